"""Pictures as PNG files: learning curves, attention heads, schedules and positional encodings.

Every figure is a `matplotlib.figure.Figure` of its own, never pyplot's: drawing needs no display, chooses no backend
and leaves a notebook's own figures and settings alone.
"""

import itertools
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .files import replaced_path


_DOTS_PER_INCH = 150
_TRAINING_COLOR, _VALIDATION_COLOR, _BLEU_COLOR = "tab:gray", "tab:blue", "tab:red"
_SKIPPED_COLOR = "black"
_SMALLEST_PANEL, _LARGEST_CELL, _LARGEST_PICTURE = 1.6, 0.26, 30.0  # inches, of attention pictures
_LONGEST_TOKEN = 18  # characters of a tick label; longer tokens would leave the heat map no room
_MARKED_POINTS = 80  # up to so many points of a curve are drawn as dots too: a curve of one point is no line


def plot_learning_curve(log: Sequence[Mapping[str, float]], path: str | os.PathLike) -> None:
    """Draws the losses of a training run and, where the log has it, the validation BLEU.

    Up to three panels: training and validation loss against updates, with a cross wherever updates were skipped; BLEU
    against updates; BLEU against minutes of training. What the log lacks is left out.

    Args:
        log: Records as in transformers' `TrainerState.log_history`. Those of training have "step" and "loss", those of
            evaluation "step" and "eval_loss", "eval_bleu" (0 to 100) or both; any may have "elapsed_seconds". Losses
            are in nats per target token. "skipped_updates" is their number since the record before. Records of other
            kinds are passed over.
        path: The PNG file to write.

    Raises:
        ValueError: If the log is empty or has neither a loss nor a BLEU to draw.
    """
    losses = {
        "training loss": _series(log, "step", "loss"),
        "validation loss": _series(log, "step", "eval_loss"),
    }
    losses = {label: points for label, points in losses.items() if points[0]}
    bleu_by_step = _series(log, "step", "eval_bleu")
    bleu_by_second = _series(log, "elapsed_seconds", "eval_bleu")
    if not losses and not bleu_by_step[0]:
        raise ValueError(f"nothing to draw: none of the {len(log)} log records has a loss or a BLEU beside its step")

    bleu_panels = (["bleu"] if bleu_by_step[0] else []) + (["minutes"] if bleu_by_second[0] else [])
    rows = ([["loss"] * max(1, len(bleu_panels))] if losses else []) + ([bleu_panels] if bleu_panels else [])
    figure = _new_figure(width=9, height=1 + 3.5 * len(rows), title="Learning curve")
    panels = figure.subplot_mosaic(rows)
    if losses:
        _draw_losses(panels["loss"], losses)
        _draw_skipped(panels["loss"], *_series(log, "step", "skipped_updates"))
        _add_legend(panels["loss"], "upper right")
    if bleu_by_step[0]:
        if losses:
            panels["bleu"].sharex(panels["loss"])
        _draw_bleu(panels["bleu"], *bleu_by_step, x_label="updates")
    if bleu_by_second[0]:
        seconds, bleu = bleu_by_second
        _draw_bleu(panels["minutes"], [second / 60 for second in seconds], bleu, x_label="training time (minutes)")
    _save(figure, path)


def plot_attention(
    weights: np.ndarray,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike,
    *,
    heads: Sequence[int] | None = None,
    title: str = "",
) -> None:
    """Draws one heat map per attention head, like the paper's appendix "Attention Visualizations".

    Row i of a map shows where the query at target position i looks. For self-attention pass the same tokens twice.

    Args:
        weights: Attention probabilities of one sentence in one layer, of shape (heads, target, source).
        source_tokens: The tokens attended to, any text.
        target_tokens: The tokens that attend, any text.
        path: The PNG file to write.
        heads: Which heads, counted from 0; all if it is not given.
        title: A line above the picture.

    Raises:
        ValueError: If the shape of `weights` does not fit the tokens, or there is nothing to draw.
    """
    weights = np.asarray(weights, dtype=float)
    expected = (len(target_tokens), len(source_tokens))
    if weights.ndim != 3 or weights.shape[1:] != expected or weights.size == 0:
        raise ValueError(
            f"weights must have the shape (heads, target, source) = (heads, {expected[0]}, {expected[1]}) of "
            f"{expected[0]} target tokens and {expected[1]} source tokens, none of them 0; got {weights.shape}"
        )
    _, target_length, source_length = weights.shape
    heads = list(range(len(weights)) if heads is None else heads)
    columns = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3}.get(len(heads), 4)
    rows = math.ceil(len(heads) / columns)
    cell = _cell_size(rows * target_length, columns * source_length)
    width, height = (max(_SMALLEST_PANEL, cell * length) for length in (source_length, target_length))
    figure = _new_figure(columns * (width + 0.3) + 2.5, rows * (height + 0.5) + 2.5, title, layout="compressed")
    panels = figure.subplots(rows, columns, squeeze=False)
    font_size = min(10, 45 * cell)
    for number, axes in enumerate(panels.flat):
        if number >= len(heads):
            axes.set_axis_off()
            continue
        head, is_lowest = heads[number], number + columns >= len(heads)
        image = axes.imshow(weights[head], vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
        axes.set_title(f"head {head + 1}", fontsize=11)
        _label_ticks(axes.xaxis, source_tokens if is_lowest else [], "source", font_size, rotation=90)
        _label_ticks(axes.yaxis, target_tokens if number % columns == 0 else [], "target", font_size)
    figure.colorbar(image, ax=panels, label="attention probability", aspect=30)
    _save(figure, path)


def plot_schedule(learning_rates: Mapping[str, Sequence[float]], path: str | os.PathLike) -> None:
    """Draws learning rates against updates, such as section 5.3's schedule for several warm-ups.

    Args:
        learning_rates: For each label of the legend, the learning rates of updates 1, 2, 3, …
        path: The PNG file to write.

    Raises:
        ValueError: If there is no learning rate to draw.
    """
    if not learning_rates or not all(len(rates) for rates in learning_rates.values()):
        raise ValueError("nothing to draw: every schedule needs a learning rate at least")
    figure = _new_figure(width=8, height=4.5, title="Learning rate schedule")
    axes = figure.subplots()
    for label, rates in learning_rates.items():
        axes.plot(range(1, len(rates) + 1), rates, label=label)
    axes.set(xlabel="updates", ylabel="learning rate", ylim=(0, None))
    axes.ticklabel_format(axis="y", style="scientific", scilimits=(0, 0))
    _finish_axes(axes, whole_numbers=True)
    _add_legend(axes, "upper right")
    _save(figure, path)


def plot_positional_encoding(table: np.ndarray, path: str | os.PathLike) -> None:
    """Draws a table of positional encodings (section 3.5) as a heat map.

    Args:
        table: The encodings, sinusoidal or learned, of shape (positions, d_model).
        path: The PNG file to write.

    Raises:
        ValueError: If the table is not two-dimensional or is empty.
    """
    table = np.asarray(table, dtype=float)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"the table must have the shape (positions, d_model), none of them 0; got {table.shape}")
    limit = np.abs(table).max() or 1.0  # the same on both sides, so that white is zero
    figure = _new_figure(width=9, height=5, title="Positional encoding")
    axes = figure.subplots()
    image = axes.imshow(table, vmin=-limit, vmax=limit, cmap="RdBu_r", interpolation="nearest", aspect="auto")
    axes.set(xlabel="dimension", ylabel="position")
    figure.colorbar(image, ax=axes, label="value")
    _save(figure, path)


def plot_score_groups(groups: Mapping[str, Sequence], path: str | os.PathLike, *, metric: str, title: str = "") -> None:
    """Draws how well systems translate groups of sentences: a panel per way to group, a line per system.

    Args:
        groups: By what the groups are made of, say "words in the source": `Group`s with a label, a number of segments
            and a score per system.
        path: The PNG file to write.
        metric: The name of the score.
        title: A line above the picture.

    Raises:
        ValueError: If there is nothing to draw.
    """
    if not any(groups.values()):
        raise ValueError("nothing to draw: there are no groups of sentences")
    figure = _new_figure(width=1 + 5.5 * len(groups), height=4.5, title=title)
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (heading, found) in zip(panels, groups.items(), strict=True):
        for system, style in zip(found[0].values, itertools.cycle("osD^v"), strict=False):
            axes.plot([group.values[system] for group in found], label=system, marker=style, markersize=5)
        labels = [f"{group.label}\n{group.segments:,}" for group in found]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set(xlabel=f"{heading}; number of sentences below", ylabel=metric, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        _add_legend(axes, "lower right")
    _save(figure, path)


def _series(log: Sequence[Mapping[str, float]], x_name: str, y_name: str) -> tuple[list[float], list[float]]:
    """Returns the x and y values of the records that have both; one that is not finite is None in a log file."""
    points = [(record.get(x_name), record.get(y_name)) for record in log]
    points = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
    return [x for x, _ in points], [y for _, y in points]


def _new_figure(width: float, height: float, title: str, layout: str = "constrained"):
    """Returns a figure of that many inches; either layout keeps labels out of each other's way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    if title:
        figure.suptitle(title, fontsize=14, parse_math=False)
    return figure


def _draw_losses(axes, losses: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    colors = {"training loss": _TRAINING_COLOR, "validation loss": _VALIDATION_COLOR}
    for label, (steps, values) in losses.items():
        axes.plot(steps, values, label=label, color=colors[label], marker=_marker(values), markersize=4)
    if validation := losses.get("validation loss", ([], []))[1]:
        best = min(validation)
        axes.axhline(best, color=_VALIDATION_COLOR, linestyle=":", label=f"best validation loss: {best:.3f}")
    axes.set(xlabel="updates", ylabel="loss per target token (nats)")
    _finish_axes(axes, whole_numbers=True)


def _draw_skipped(axes, steps: Sequence[float], skipped: Sequence[int]) -> None:
    """Marks where updates were skipped, at the lower edge."""
    where = [step for step, count in zip(steps, skipped, strict=True) if count]
    if where:
        label, edge = f"skipped updates: {sum(skipped):,}", axes.get_xaxis_transform()
        axes.plot(where, [0.02] * len(where), "x", color=_SKIPPED_COLOR, transform=edge, label=label, clip_on=False)


def _draw_bleu(axes, x_values: Sequence[float], bleu: Sequence[float], x_label: str) -> None:
    axes.plot(x_values, bleu, label="validation BLEU", color=_BLEU_COLOR, marker=_marker(bleu), markersize=4)
    axes.set(xlabel=x_label, ylabel="validation BLEU", ylim=(0, None))
    axes.axhline(max(bleu), color=_BLEU_COLOR, linestyle=":", label=f"best: {max(bleu):.1f}")
    _finish_axes(axes, whole_numbers=x_label == "updates")
    _add_legend(axes, "lower right")


def _marker(values: Sequence[float]) -> str:
    return "o" if len(values) <= _MARKED_POINTS else ""


def _finish_axes(axes, *, whole_numbers: bool) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole_numbers, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if whole_numbers else "{x:,g}"))


def _add_legend(axes, corner: str) -> None:
    for text in axes.legend(loc=corner, frameon=False).get_texts():
        text.set_parse_math(False)  # labels are the caller's words: a dollar sign in them is a dollar sign


def _cell_size(cells_down: int, cells_across: int) -> float:
    """Returns the side of a heat map's cell in inches; cells shrink where the maps together would grow too large."""
    return min(_LARGEST_CELL, _LARGEST_PICTURE / max(cells_down, cells_across))


def _label_ticks(axis, tokens: Sequence[str], name: str, font_size: float, rotation: float = 0) -> None:
    """Puts the tokens at one axis of a heat map; no tokens, no ticks: a neighbour has the same ones."""
    labels = [_printable(token) for token in tokens]
    axis.set_ticks(range(len(labels)), labels, fontsize=font_size, rotation=rotation, parse_math=False)
    if labels:
        axis.set_label_text(name, fontsize=11)


def _printable(token: str) -> str:
    """Returns the token in a form that fits a tick: one short line, control characters and the like escaped."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
    return visible if len(visible) <= _LONGEST_TOKEN else visible[: _LONGEST_TOKEN - 1] + "…"


def _save(figure, path: str | os.PathLike) -> None:
    """Writes the figure beside its place and moves it there, so that a reader never meets half a picture."""
    with replaced_path(Path(path)) as unfinished, warnings.catch_warnings():
        # Tokens come from every script of the world, more than any font has; a box in the picture says enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        figure.savefig(unfinished, format="png", dpi=_DOTS_PER_INCH, bbox_inches="tight")
