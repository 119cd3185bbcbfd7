"""What heads do, as a picture."""

import pytest

from vanilla_transformer.evaluation.heads import Head
from vanilla_transformer.plots import plot_heads

from .conftest import assert_is_a_picture


def test_every_measure_of_every_head_but_entropy_in_nats(path, panels):
    heads = [
        Head("cross", None, None, {"previous": 0.25, "next": None, "entropy": 1.5}),
        Head("cross", 1, 1, {"previous": 0.5, "next": 0.125, "entropy": 0.7, "aer": 0.75}),
    ]
    plot_heads({"Cross": heads}, path, title="What the heads do")
    assert_is_a_picture(path)
    axes = panels[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["previous", "next", "aer"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["even", "1.1"]
    assert [text.get_text() for text in axes.texts] == ["0.25", "–", "–", "0.50", "0.12", "0.75"]


@pytest.mark.parametrize("groups", [{}, {"Cross": []}])
def test_refuses_nothing(path, groups):
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_heads(groups, path)
