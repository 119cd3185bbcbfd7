"""Bar charts of scores by form, and of counts."""

import pytest

from vanilla_transformer.plots import plot_counts, plot_forms

from .conftest import assert_is_a_picture


def test_plot_forms_labels_bars_per_form_and_system(path, panels):
    plain, robust = {"clean": 40.0, "no_end_punctuation": 10.0}, {"clean": 0.0, "no_end_punctuation": 0.0}
    plot_forms({"plain $x$": plain, "robust": robust}, path, metric="chrf", title="a set")
    assert_is_a_picture(path)
    [axes] = panels
    assert [bar.get_width() for bar in axes.patches] == [40, 10, 0, 0]
    assert [text.get_text() for text in axes.texts] == ["40.0", "10.0 (25 %)", "0.0", "0.0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["clean", "no end punctuation"]
    assert len({round(bar.get_y(), 6) for bar in axes.patches}) == 4
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_forms({}, path, metric="chrf")


def test_plot_counts_labels_a_bar_per_kind(path, panels):
    counts = {"empty": 5, "too_long": 0, "identical": 0, "score": 0}
    plot_counts(counts, path, total=2000, xlabel="pairs dropped")
    assert_is_a_picture(path)
    [axes] = panels
    assert [bar.get_width() for bar in axes.patches] == [5, 0, 0, 0]
    assert [text.get_text() for text in axes.texts] == ["5 (0.2 %)", "0", "0", "0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["empty", "too long", "identical", "score"]
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_counts({}, path, total=1, xlabel="")
