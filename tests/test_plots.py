"""Pictures: real PNG files with something on them, written whole or not at all, without traces in matplotlib."""

import math
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from vanilla_transformer.plots import (
    plot_attention,
    plot_learning_curve,
    plot_positional_encoding,
    plot_schedule,
)


LOG = [
    {"step": 100, "loss": 6.1, "learning_rate": 1e-4, "elapsed_seconds": 31.0},
    {"step": 100, "eval_loss": 5.5, "eval_perplexity": 244.7, "eval_bleu": 1.3, "elapsed_seconds": 33.0},
    {"step": 200, "loss": 4.2, "learning_rate": 2e-4, "elapsed_seconds": 64.0},
    {"step": 200, "eval_loss": 3.9, "eval_perplexity": 49.4, "eval_bleu": 17.0, "elapsed_seconds": 66.0},
    {"step": 200, "train_loss": 5.15, "train_runtime": 66.0},
]
WEIRD_TOKENS = [
    "$x_1^{",
    "\\frac{1}",
    "▁der",
    "日本語",
    "שלום",
    "नमस्ते",
    "🙂",
    "\n\t\x00",
    "\ud800",
    "",
    "_",
    "x" * 300,
]


@pytest.fixture(autouse=True)
def every_warning_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def attention(heads, target, source):
    scores = np.exp(np.random.default_rng(0).normal(size=(heads, target, source)))
    return scores / scores.sum(-1, keepdims=True)


def assert_is_a_picture(path):
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(path)[..., :3]
    height, width = pixels.shape[:2]
    assert 300 < width < 6000
    assert 300 < height < 6000
    assert pixels.var() > 1e-3
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing is left beside it


@pytest.fixture
def path(tmp_path):
    return tmp_path / "picture.png"


@pytest.fixture
def panels(monkeypatch):
    """The axes of the figure that is drawn next, seen at the moment it is saved."""
    seen = []
    save = Figure.savefig

    def savefig(figure, *arguments, **settings):
        seen.extend(figure.axes)
        return save(figure, *arguments, **settings)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return seen


class TestLearningCurve:
    def test_draws_losses_bleu_and_minutes(self, path, panels):
        plot_learning_curve(LOG, path)
        assert_is_a_picture(path)
        losses, bleu, minutes = panels
        curves = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
        best = curves.pop("best validation loss: 3.900")
        assert [y for _, y in best] == [3.9, 3.9]
        assert curves == {"training loss": [[100, 6.1], [200, 4.2]], "validation loss": [[100, 5.5], [200, 3.9]]}
        assert bleu.lines[0].get_xydata().tolist() == [[100, 1.3], [200, 17.0]]
        assert minutes.lines[0].get_xydata().tolist() == [[33 / 60, 1.3], [66 / 60, 17.0]]

    def test_marks_where_updates_were_skipped(self, path, panels):
        counts = enumerate([0, 1250, 0, 4])
        log = [{"step": n, "loss": math.nan if count else 2.0, "skipped_updates": count} for n, count in counts]
        plot_learning_curve(log, path)
        curves = {line.get_label(): line.get_xdata() for line in panels[0].lines}
        assert {label: list(updates) for label, updates in curves.items()} == {
            "training loss": [0, 2],
            "skipped updates: 1,254": [1, 3],
        }
        assert [text.get_text() for text in panels[0].get_legend().get_texts()] == list(curves)

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["loss"], ["loss per target token (nats)"]),
            (["eval_loss", "elapsed_seconds"], ["loss per target token (nats)"]),
            (["eval_bleu"], ["validation BLEU"]),
            (["loss", "eval_bleu"], ["loss per target token (nats)", "validation BLEU"]),
            (["eval_bleu", "elapsed_seconds"], ["validation BLEU", "validation BLEU"]),
        ],
    )
    def test_leaves_out_what_is_missing(self, path, panels, names, expected):
        log = [{name: record[name] for name in ["step", *names] if name in record} for record in LOG]
        plot_learning_curve(log, path)
        assert_is_a_picture(path)
        assert [axes.get_ylabel() for axes in panels] == expected
        assert all(axes.get_xlabel() and axes.get_legend() for axes in panels)

    def test_one_point_and_a_bleu_of_zero(self, path):
        plot_learning_curve([{"step": 1, "eval_loss": 9.0, "eval_bleu": 0.0, "elapsed_seconds": 0.0}], path)
        assert_is_a_picture(path)

    @pytest.mark.parametrize("log", [[], [{"step": 1, "learning_rate": 0.1}], [{"loss": 3.0}]])
    def test_refuses_a_log_with_nothing_to_draw(self, path, log):
        with pytest.raises(ValueError, match=f"none of the {len(log)} log records"):
            plot_learning_curve(log, path)
        assert not path.exists()


class TestAttention:
    @pytest.mark.parametrize(("heads", "target", "source"), [(1, 1, 1), (4, 12, 14), (5, 3, 2), (8, 12, 14)])
    def test_draws_every_head(self, path, panels, heads, target, source):
        weights = attention(heads, target, source)
        plot_attention(weights, ["a"] * source, ["b"] * target, path, title="layer 6")
        assert_is_a_picture(path)
        maps = [axes for axes in panels if axes.get_title()]
        assert [axes.get_title() for axes in maps] == [f"head {head + 1}" for head in range(heads)]
        for axes, expected in zip(maps, weights, strict=True):
            [image] = axes.images
            np.testing.assert_array_equal(image.get_array(), expected)
            assert image.get_clim() == (0, 1)

    def test_draws_the_heads_that_are_asked_for(self, path, panels):
        weights = attention(4, 2, 3)
        plot_attention(weights, ["p", "q", "r"], ["x", "y"], path, heads=[2])
        maps = [axes for axes in panels if axes.get_title()]
        assert [axes.get_title() for axes in maps] == ["head 3"]
        np.testing.assert_array_equal(maps[0].images[0].get_array(), weights[2])

    def test_every_column_and_row_of_the_grid_has_its_tokens(self, path, panels):
        plot_attention(attention(5, 2, 3), ["p", "q", "r"], ["x", "y"], path)  # head 3 has no head below it
        sources = [[label.get_text() for label in axes.get_xticklabels()] for axes in panels[:5]]
        targets = [[label.get_text() for label in axes.get_yticklabels()] for axes in panels[:5]]
        assert sources == [[], [], ["p", "q", "r"], ["p", "q", "r"], ["p", "q", "r"]]
        assert targets == [["x", "y"], [], [], ["x", "y"], []]

    def test_any_text_may_be_a_token(self, path, panels):
        plot_attention(
            attention(2, len(WEIRD_TOKENS), len(WEIRD_TOKENS)), WEIRD_TOKENS, WEIRD_TOKENS, path, title="$x_{ \\frac"
        )
        assert_is_a_picture(path)
        drawn = [label.get_text() for label in panels[0].get_yticklabels()]
        assert drawn[:3] == WEIRD_TOKENS[:3]
        assert drawn[7:9] == ["\\n\\t\\x00", "\\ud800"]
        assert drawn[-1] == "x" * 17 + "…"

    def test_long_sentences_stay_below_the_largest_picture(self, path):
        plot_attention(attention(2, 40, 150), ["a"] * 150, ["b"] * 40, path)
        assert_is_a_picture(path)

    @pytest.mark.parametrize("shape", [(2, 4, 3), (3, 4), (1, 2, 3, 4), (0, 3, 4)])
    def test_refuses_weights_that_do_not_fit(self, path, shape):
        with pytest.raises(ValueError, match=r"\(heads, 3, 4\) .* got \(") as caught:
            plot_attention(np.zeros(shape), ["s"] * 4, ["t"] * 3, path)
        assert str(shape) in str(caught.value)
        assert not path.exists()


class TestSchedule:
    def test_draws_each_schedule_from_update_1(self, path, panels):
        noam = [512**-0.5 * min(step**-0.5, step * 40**-1.5) for step in range(1, 201)]
        plot_schedule({"warmup=40, $d_{model}": noam, "constant": [1e-3]}, path)
        assert_is_a_picture(path)
        [axes] = panels
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["warmup=40, $d_{model}", "constant"]
        assert axes.lines[0].get_xdata()[np.argmax(axes.lines[0].get_ydata())] == 40

    @pytest.mark.parametrize("schedules", [{}, {"empty": []}, {"full": [0.1], "empty": []}])
    def test_refuses_nothing(self, path, schedules):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot_schedule(schedules, path)
        assert not path.exists()


class TestPositionalEncoding:
    def test_draws_the_table_with_zero_in_the_middle_of_the_scale(self, path, panels):
        table = np.array([[math.sin(position / 100**dimension) for dimension in range(8)] for position in range(50)])
        plot_positional_encoding(2 * table, path)
        assert_is_a_picture(path)
        lowest, highest = panels[0].images[0].get_clim()
        assert -lowest == highest == np.abs(2 * table).max()

    def test_draws_a_table_of_zeros(self, path):
        plot_positional_encoding(np.zeros((2, 4)), path)
        assert_is_a_picture(path)

    @pytest.mark.parametrize("shape", [(8,), (1, 5, 8), (0, 8)])
    def test_refuses_other_shapes(self, path, shape):
        with pytest.raises(ValueError, match=r"\(positions, d_model\)"):
            plot_positional_encoding(np.zeros(shape), path)


class TestFiles:
    def test_a_failure_leaves_the_old_picture_and_nothing_else(self, path, monkeypatch):
        def fail_halfway(figure, file, **settings):
            file.write_bytes(b"half a picture")
            raise OSError("no space left on device")

        path.write_bytes(b"the old picture")
        monkeypatch.setattr(Figure, "savefig", fail_halfway)
        with pytest.raises(OSError, match="no space left"):
            plot_schedule({"constant": [1e-3]}, path)
        assert path.read_bytes() == b"the old picture"
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]

    def test_replaces_an_old_picture_and_takes_a_string_as_path(self, path):
        path.write_bytes(b"the old picture")
        plot_schedule({"constant": [1e-3]}, str(path))
        assert_is_a_picture(path)

    def test_settings_and_backend_stay_as_they_were(self, path):
        before = dict.copy(matplotlib.rcParams)
        plot_learning_curve(LOG, path)
        plot_attention(attention(2, 3, 3), ["a"] * 3, ["b"] * 3, path)
        assert dict.copy(matplotlib.rcParams) == before

    def test_importing_loads_no_matplotlib_and_drawing_no_pyplot(self, path):
        program = (
            "import sys, vanilla_transformer.plots as plots\n"
            "assert 'matplotlib' not in sys.modules\n"
            f"plots.plot_schedule({{'constant': [1e-3]}}, {str(path)!r})\n"
            "assert 'matplotlib.pyplot' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
        assert_is_a_picture(path)


def test_values_that_were_not_finite_leave_a_gap(tmp_path):
    log = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 2, "eval_loss": None, "eval_bleu": 1.0}]
    plot_learning_curve(log, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
