"""Where the heads of a model look: as heat maps, and as lines like those of the paper's figures 3 to 5."""

import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from .figures import COLORS, add_legend, color_of, fonts_for, new_figure, printable, save


_HEAT = {"vmin": 0, "vmax": 1, "cmap": "Blues", "interpolation": "nearest"}  # white where no head looks
_SMALLEST_PANEL, _LARGEST_CELL, _LARGEST_CELL_ALONE, _LARGEST_PICTURE = 1.6, 0.26, 0.42, 30.0  # inches, of heat maps
_THUMBNAIL, _WIDEST_OVERVIEW = 0.62, 12.0  # inches
_FAINTEST_LINE = 0.02  # attention below this cannot be seen as a line and is not drawn
_LINE_ROW = 0.29  # inches from a word to the next one
_MOST_ROWS = 100  # of words in a picture of lines: more words stand closer


def plot_attention_maps(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | os.PathLike,
    *,
    heads: Sequence[int] | None = None,
    sides: tuple[str, str] = ("target", "source"),
    highlight: Sequence[int] = (),
    title: str = "",
) -> None:
    """Draws a heat map for each attention head of a layer.

    Row i of a map shows where position i looks. For self-attention pass the same tokens twice.

    Args:
        weights: Attention probabilities of one sentence in one layer, of shape (heads, queries, keys).
        queries, keys: The tokens that look, and those that are looked at, any text.
        heads: Which heads, counted from 0; by default all.
        sides: What to call the rows and the columns.
        highlight: Rows to put a frame around.

    Raises:
        ValueError: The shape of `weights` does not fit the tokens, there is nothing to draw, or there is no such head.
    """
    weights, heads = _checked(weights, queries, keys, heads)
    columns = _columns(len(heads), len(queries), len(keys))
    rows = math.ceil(len(heads) / columns)
    cell = _LARGEST_CELL_ALONE if len(heads) == 1 else _LARGEST_CELL
    cell = min(cell, _LARGEST_PICTURE / max(rows * len(queries), columns * len(keys)))
    width, height = (max(_SMALLEST_PANEL, cell * length) for length in (len(keys), len(queries)))
    figure = new_figure(columns * (width + 0.3) + 2.5, rows * (height + 0.5) + 2.5, title, layout="compressed")
    panels = figure.subplots(rows, columns, squeeze=False)
    font_size = min(10, 45 * cell)
    for number, axes in enumerate(panels.flat):
        if number >= len(heads):
            axes.set_axis_off()
            continue
        head = heads[number]
        image = axes.imshow(weights[head], **_HEAT)
        axes.set_title(f"head {head + 1}", fontsize=11)
        for row in highlight:
            _frame(axes, -0.5, row - 0.5, len(keys), 1, COLORS[1], 1.5)
        # No labels where a neighbour has the same ones.
        lowest_of_column = number + columns >= len(heads)
        _label_ticks(axes.xaxis, keys if lowest_of_column else [], font_size, rotation=90)
        _label_ticks(axes.yaxis, queries if number % columns == 0 else [], font_size)
    # Once, in the middle: with labels at every panel, those of flat or narrow panels would run into each other.
    down, across = (rows - 1) // 2, (columns - 1) // 2
    panels[down, 0].set_ylabel(sides[0], y=0.5 if rows % 2 else 0.0, fontsize=11)
    lowest = (len(heads) - 1 - across) // columns
    panels[lowest, across].set_xlabel(sides[1], x=0.5 if columns % 2 else 1.0, fontsize=11)
    figure.colorbar(image, ax=panels, label="attention (each row adds up to 1)", aspect=30)
    save(figure, path)


def plot_attention_lines(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | os.PathLike,
    *,
    heads: Sequence[int] | None = None,
    sides: tuple[str, str] = ("target", "source"),
    highlight: Sequence[int] = (),
    title: str = "",
) -> None:
    """Draws where a layer's heads look as lines between two columns of words, like the paper's figures 3 to 5.

    The more attention, the darker the line; its colour is that of its head. Arguments and errors are those of
    `plot_attention_maps`, with the queries in the left column and the keys in the right one. If there are queries to
    highlight, only their attention is drawn, with a square in each head's colour beside what they look at.
    """
    weights, heads = _checked(weights, queries, keys, heads)
    longest = max(len(queries), len(keys))
    row = _LINE_ROW * min(1, _MOST_ROWS / longest)
    figure = new_figure(5.2, row * longest + 1.5, title)
    axes = figure.subplots()
    squares = _draw_squares(axes, weights, heads, highlight) if highlight else 0.0
    for place, head in enumerate(heads):
        # Side by side, so that no head hides another at the same words.
        shift, rows = 0.36 * ((place + 0.5) / len(heads) - 0.5), highlight or range(len(queries))
        found = [(i, j) for i in rows for j in np.flatnonzero(weights[head, i] >= _FAINTEST_LINE)]
        segments = [[(0, i + shift), (1, j + shift)] for i, j in found]
        _add_lines(axes, segments, color_of(place), [weights[head, i, j] for i, j in found], width=2)
        axes.plot([], [], color=color_of(place), linewidth=4, label=f"head {head + 1}")
    axes.set(xlim=(0, 1 + squares), ylim=(longest - 0.4, -0.6))
    axes.xaxis.set_visible(False)
    font_size = min(11, 38 * row)
    for column, tokens, name in zip((axes, axes.secondary_yaxis("right")), (queries, keys), sides, strict=True):
        _label_ticks(column.yaxis, tokens, font_size)
        column.tick_params(axis="y", length=0)
        column.set_ylabel(name, fontsize=10)
        column.spines[:].set_visible(False)
    for number, label in enumerate(axes.get_yticklabels()):
        if highlight:
            label.set(**({"weight": "bold"} if number in highlight else {"color": "0.55"}))
    add_legend(figure, "outside lower center", ncols=min(4, len(heads)))
    save(figure, path)


def plot_attention_overview(
    attentions: Mapping[str, np.ndarray],
    path: str | os.PathLike,
    *,
    lines: bool = False,
    title: str = "",
    caption: str = "",
) -> None:
    """Draws all heads of all layers, small: a block for each attention, a row for each layer, a column for each head.

    Args:
        attentions: For each name, attention probabilities of shape (layers, heads, queries, keys).
        lines: Whether to draw lines instead of heat maps.
        caption: Lines below the picture, say the words that are looked at.
    """
    blocks = {name: np.asarray(weights, dtype=float) for name, weights in attentions.items()}
    if not blocks or any(weights.ndim != 4 or weights.size == 0 for weights in blocks.values()):
        raise ValueError("nothing to draw: every attention must have the shape (layers, heads, queries, keys)")
    layers, heads = (max(weights.shape[axis] for weights in blocks.values()) for axis in (0, 1))
    width, height = heads * _THUMBNAIL + 0.7, layers * _THUMBNAIL + 0.9
    across = len(blocks) if len(blocks) * width <= _WIDEST_OVERVIEW else 1
    down = len(blocks) // across
    figure = new_figure(max(across * width + 1, 6), down * height + 1.2, title)
    panels = figure.subplots(down, across, squeeze=False)
    for axes, (name, weights) in zip(panels.flat, blocks.items(), strict=True):
        axes.set_title(name, fontsize=11)
        image = _draw_thumbnails(axes, weights, lines)
    if not lines:
        figure.colorbar(image, ax=panels, label="attention (each row adds up to 1)", aspect=25)
        how = "In each, a row for each word that looks, a column for each that is looked at."
    else:
        how = "In each, left the words that look, right what they look at."
    caption = "\n".join([how, *(printable(line, 110) for line in caption.splitlines())])
    figure.supxlabel(caption, fontsize=9, parse_math=False)
    save(figure, path)


def _checked(weights, queries, keys, heads) -> tuple[np.ndarray, list[int]]:
    weights = np.asarray(weights, dtype=float)
    expected = (len(queries), len(keys))
    if weights.ndim != 3 or weights.shape[1:] != expected or weights.size == 0:
        raise ValueError(
            f"weights must have the shape (heads, queries, keys) = (heads, {expected[0]}, {expected[1]}) of "
            f"{expected[0]} tokens that look and {expected[1]} that are looked at, none of them 0; got {weights.shape}"
        )
    heads = list(range(len(weights))) if heads is None else list(heads)
    if not heads or not all(0 <= head < len(weights) for head in heads):
        raise ValueError(f"heads must be some of 0 to {len(weights) - 1}; got {heads}")
    return weights, heads


def _add_lines(axes, segments: list, color: str, opacity: list[float], width: float) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    colors = [to_rgba(color, min(1.0, alpha)) for alpha in opacity]
    axes.add_collection(LineCollection(segments, colors=colors, linewidths=width, capstyle="butt"), autolim=False)


def _draw_squares(axes, weights: np.ndarray, heads: Sequence[int], highlight: Sequence[int]) -> float:
    """Draws a square for each head beside each key: the more the highlighted queries look at it, the darker.

    Returns how much room they take beyond x = 1.
    """
    from matplotlib.patches import Rectangle

    side = 0.055
    for place, head in enumerate(heads):
        looked_at = weights[head, list(highlight)].max(axis=0)
        for key in np.flatnonzero(looked_at >= _FAINTEST_LINE):
            where = (1.01 + place * side, key - 0.4)
            look = {"color": color_of(place), "alpha": min(1.0, looked_at[key]), "linewidth": 0}
            axes.add_patch(Rectangle(where, side, 0.8, **look))
    return 0.015 + len(heads) * side


def _draw_thumbnails(axes, weights: np.ndarray, lines: bool):
    """Draws all heads (layers, heads, queries, keys), each within a unit square; returns the last heat map."""
    layers, heads, queries, keys = weights.shape
    margin, image = 0.05, None
    inner = 1 - 2 * margin
    for layer, head in np.ndindex(layers, heads):
        left, top = head + margin, layer + margin
        if lines:
            found = np.argwhere(weights[layer, head] >= _FAINTEST_LINE)
            longest = max(queries, keys)
            segments = [
                [(left, top + inner * (i + 0.5) / longest), (left + inner, top + inner * (j + 0.5) / longest)]
                for i, j in found
            ]
            _add_lines(axes, segments, color_of(head), [weights[layer, head, i, j] for i, j in found], 0.7)
        else:
            extent = (left, left + inner, top + inner, top)
            image = axes.imshow(weights[layer, head], extent=extent, **_HEAT)
        _frame(axes, left, top, inner, inner, "0.6", 0.5)
    axes.set(xlim=(0, heads), ylim=(layers, 0), xlabel="head", ylabel="layer", aspect="equal")
    axes.set_xticks(np.arange(heads) + 0.5, range(1, heads + 1))
    axes.set_yticks(np.arange(layers) + 0.5, range(1, layers + 1))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _frame(axes, left: float, top: float, width: float, height: float, color: str, line_width: float) -> None:
    from matplotlib.patches import Rectangle

    where = {"clip_on": False, "zorder": 3}  # whole at the edges too, above the lines around a picture
    axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=color, linewidth=line_width, **where))


def _columns(heads: int, queries: int, keys: int) -> int:
    """How many maps go side by side, so that the picture is closest to a landscape page, with few empty places."""

    def ugliness(columns: int) -> float:
        rows = math.ceil(heads / columns)
        return abs(math.log((columns * keys) / (rows * queries) / 1.4)) + 0.5 * (rows * columns - heads)

    return min(range(1, min(heads, 4) + 1), key=ugliness)


def _label_ticks(axis, tokens: Sequence[str], font_size: float, rotation: float = 0) -> None:
    """Puts the tokens at one axis of a picture."""
    labels = [printable(token) for token in tokens]
    look = {"fontsize": font_size, "fontfamily": fonts_for(labels), "rotation": rotation}
    axis.set_ticks(range(len(labels)), labels, parse_math=False, **look)
