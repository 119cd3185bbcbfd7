"""Attention as heat maps, as lines, and as an overview of all heads."""

import numpy as np
import pytest

from vanilla_transformer.plots import plot_attention_lines, plot_attention_maps, plot_attention_overview

from .conftest import assert_is_a_picture


WEIRD_TOKENS = ["$x_1^{", "\\frac{1}", "▁der", "日本語", "שלום", "नमस्ते", "🙂", "\n\t\x00", "\ud800", "", "_", "x" * 300]


def attention(heads, target, source):
    scores = np.exp(np.random.default_rng(0).normal(size=(heads, target, source)))
    return scores / scores.sum(-1, keepdims=True)


class TestMaps:
    def test_draws_every_head(self, path, panels):
        for heads, target, source in ((1, 1, 1), (5, 3, 2), (8, 12, 14), (2, 40, 150)):
            panels.clear()
            weights = attention(heads, target, source)
            plot_attention_maps(weights, ["b"] * target, ["a"] * source, path, title="layer 6")
            assert_is_a_picture(path)
            maps = [axes for axes in panels if axes.get_title()]
            assert [axes.get_title() for axes in maps] == [f"head {head + 1}" for head in range(heads)]
            for axes, expected in zip(maps, weights, strict=True):
                [image] = axes.images
                np.testing.assert_array_equal(image.get_array(), expected)
                assert image.get_clim() == (0, 1)

    def test_each_grid_row_and_column_is_labelled_once(self, path, panels):
        # Head 4 has no head below it.
        plot_attention_maps(attention(5, 2, 3), ["x", "y"], ["p", "q", "r"], path, sides=("here", "there"))
        sources = [[label.get_text() for label in axes.get_xticklabels()] for axes in panels[:5]]
        targets = [[label.get_text() for label in axes.get_yticklabels()] for axes in panels[:5]]
        assert sources == [[], [], [], ["p", "q", "r"], ["p", "q", "r"]]
        assert targets == [["x", "y"], [], ["x", "y"], [], ["x", "y"]]
        names = [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels[:6]]  # each side is named once
        assert names == [("", ""), ("", ""), ("", "here"), ("", ""), ("there", ""), ("", "")]

    def test_grid_columns_depend_on_map_shape(self, path, panels):
        for heads, queries, keys, across in ((8, 9, 9, 4), (4, 9, 9, 2), (4, 2, 40, 1), (4, 40, 2, 4)):
            panels.clear()
            plot_attention_maps(attention(heads, queries, keys), ["x"] * queries, ["p"] * keys, path)
            assert panels[0].get_gridspec().ncols == across

    def test_any_text_may_be_a_token(self, path, panels):
        size = len(WEIRD_TOKENS)
        plot_attention_lines(attention(16, size, size), WEIRD_TOKENS, WEIRD_TOKENS, path, heads=range(16))
        assert_is_a_picture(path)
        panels.clear()
        plot_attention_maps(attention(2, size, size), WEIRD_TOKENS, WEIRD_TOKENS, path, title="$x_{ \\frac")
        assert_is_a_picture(path)
        drawn = [label.get_text() for label in panels[0].get_yticklabels()]
        assert drawn[:3] == WEIRD_TOKENS[:3]
        assert drawn[7:9] == ["\\n\\t\\x00", "\\ud800"]
        assert drawn[-1] == "x" * 17 + "…"

    def test_rejects_weights_of_wrong_shape_and_unknown_heads(self, path):
        for shape in ((2, 4, 3), (3, 4), (1, 2, 3, 4), (0, 3, 4)):
            for plot in (plot_attention_maps, plot_attention_lines):
                with pytest.raises(ValueError, match=r"\(heads, 3, 4\) .* got \(") as caught:
                    plot(np.zeros(shape), ["t"] * 3, ["s"] * 4, path)
                assert str(shape) in str(caught.value)
        for heads in ([], [4], [-1]):
            with pytest.raises(ValueError, match="some of 0 to 3"):
                plot_attention_maps(attention(4, 1, 1), ["x"], ["y"], path, heads=heads)
        assert not path.exists()

    def test_draws_chosen_heads_and_frames_rows(self, path, panels):
        weights = attention(4, 3, 2)
        options = {"heads": [2], "highlight": [1], "sides": ("here", "there")}
        plot_attention_maps(weights, ["x", "y", "z"], ["p", "q"], path, **options)
        assert panels[0].get_title() == "head 3"
        np.testing.assert_array_equal(panels[0].images[0].get_array(), weights[2])
        [frame] = panels[0].patches
        assert (frame.get_y(), frame.get_height()) == (0.5, 1)
        assert not frame.get_clip_on()  # not cut off in the first and last row
        assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == ("there", "here")


class TestLines:
    def lines_of(self, axes):
        """For each head: start, end and opacity of its lines, without the sideways shift between heads."""
        return [
            [
                (round(line[0][1]), round(line[1][1]), pytest.approx(color[3]))
                for line, color in zip(lines.get_segments(), lines.get_colors(), strict=True)
            ]
            for lines in axes.collections
        ]

    def test_opacity_shows_weight_and_colour_shows_head(self, path, panels):
        weights = np.array([[[0.25, 0.75], [1.0, 0.0]], [[0.99, 0.01], [0.5, 0.5]]])
        plot_attention_lines(weights, ["x", "y"], ["p", "q"], path, title="$layer")
        assert_is_a_picture(path)
        axes = panels[0]
        assert self.lines_of(axes) == [
            [(0, 0, 0.25), (0, 1, 0.75), (1, 0, 1.0)],
            [(0, 0, 0.99), (1, 0, 0.5), (1, 1, 0.5)],
        ]
        colors = [tuple(lines.get_colors()[0][:3]) for lines in axes.collections]
        assert len(set(colors)) == 2
        [legend] = axes.figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["head 1", "head 2"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
        assert [label.get_text() for label in axes.child_axes[0].get_yticklabels()] == ["p", "q"]

    def test_highlight_draws_lines_of_one_word_only(self, path, panels):
        weights = np.array([[[0.3, 0.7], [1.0, 0.0], [0.0, 1.0]]])
        plot_attention_lines(weights, ["x", "y", "z"], ["p", "q"], path, highlight=[0])
        assert self.lines_of(panels[0]) == [[(0, 0, 0.3), (0, 1, 0.7)]]
        assert [patch.get_alpha() for patch in panels[0].patches] == pytest.approx([0.3, 0.7])
        assert [label.get_weight() for label in panels[0].get_yticklabels()] == ["bold", "normal", "normal"]


class TestOverview:
    BLOCKS = {"Encoder": np.ones((2, 3, 4, 4)) / 4, "Cross": np.ones((3, 2, 5, 4)) / 4}

    def test_overview_draws_every_head_in_place(self, path, panels):
        blocks = {name: weights * np.arange(weights[..., 0, 0].size).reshape(*weights.shape[:2], 1, 1) / 10
                  for name, weights in self.BLOCKS.items()}  # fmt: skip
        plot_attention_overview(blocks, path, title="All", caption="Source: $x")
        assert_is_a_picture(path)
        for axes, (name, weights) in zip(panels, blocks.items(), strict=False):
            assert axes.get_title() == name
            assert len(axes.images) == weights.shape[0] * weights.shape[1]
            for image in axes.images:
                left, _, _, top = image.get_extent()
                np.testing.assert_array_equal(image.get_array(), weights[int(top), int(left)])
            assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3"][: weights.shape[1]]
            assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"][: weights.shape[0]]

        panels.clear()
        plot_attention_overview(self.BLOCKS, path, lines=True)
        assert_is_a_picture(path)
        assert [len(axes.collections) for axes in panels] == [6, 6]

    def test_empty_or_misshapen_blocks_raise(self, path):
        for blocks in ({}, {"Encoder": np.ones((1, 4, 4))}, {"Encoder": np.ones((0, 1, 4, 4))}):
            with pytest.raises(ValueError, match="nothing to draw"):
                plot_attention_overview(blocks, path)
