"""Curves: how runs went, the paper's schedule and positions, and scores of groups of sentences."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from .figures import COLORS, add_legend, finish_axes, look_of, marker, new_figure, printable, save


_TRAINING_COLOR, _VALIDATION_COLOR, _BLEU_COLOR = "0.45", COLORS[0], COLORS[1]
_LONGEST_RUN_NAME = 50  # characters
_LEGEND_LINE = 0.22  # inches
_AS_TRAINED = "(under any dropout and label smoothing)"  # the validation loss has neither, so it can be lower
# Fields of the log, with their labels and the scale that shows each best.
_COMPARED = {
    "eval_loss": ("loss per target token (nats)", "linear"),
    "eval_perplexity": ("validation perplexity per token", "log"),
    "eval_bleu": ("validation BLEU", "linear"),
    "eval_chrf": ("validation chrF", "linear"),
}


def plot_learning_curve(log: Sequence[Mapping[str, float]], path: str | os.PathLike) -> None:
    """Draws the losses of a training run and, if the log has it, the validation BLEU.

    Up to three panels: training and validation loss against updates, with a cross wherever updates were skipped; BLEU
    against updates; BLEU against minutes of training. Curves that the log lacks are left out.

    Args:
        log: Records as in transformers' `TrainerState.log_history`. Those of training have "step" and "loss", those of
            evaluation "step" and "eval_loss", "eval_bleu" (0 to 100) or both; any may have "elapsed_seconds". Losses
            are in nats per target token. "skipped_updates" counts those since the last record. Other records are
            ignored.
    """
    losses = {
        f"training loss {_AS_TRAINED}": _series(log, "step", "loss"),
        "validation loss": _series(log, "step", "eval_loss"),
    }
    losses = {label: points for label, points in losses.items() if points[0]}
    bleu_by_step = _series(log, "step", "eval_bleu")
    bleu_by_second = _series(log, "elapsed_seconds", "eval_bleu")
    if not losses and not bleu_by_step[0]:
        raise ValueError(f"nothing to draw: none of the {len(log)} log records has a loss or a BLEU beside its step")

    bleu_panels = (["bleu"] if bleu_by_step[0] else []) + (["minutes"] if bleu_by_second[0] else [])
    rows = ([["loss"] * max(1, len(bleu_panels))] if losses else []) + ([bleu_panels] if bleu_panels else [])
    figure = new_figure(width=9, height=1 + 3.5 * len(rows), title="Learning curve")
    panels = figure.subplot_mosaic(rows)
    if losses:
        _draw_losses(panels["loss"], losses, *_series(log, "step", "skipped_updates"))
    if bleu_by_step[0]:
        if losses:
            panels["bleu"].sharex(panels["loss"])
        _draw_bleu(panels["bleu"], *bleu_by_step, x_label="updates")
    if bleu_by_second[0]:
        seconds, bleu = bleu_by_second
        _draw_bleu(panels["minutes"], [second / 60 for second in seconds], bleu, x_label="training time (minutes)")
    save(figure, path)


def plot_runs(runs: Mapping[str, Sequence[Mapping[str, float]]], path: str | os.PathLike) -> None:
    """Draws the curves of several runs in one picture: loss, perplexity and BLEU, against updates and minutes.

    The validation loss is a thick line, the training loss a thin one in the same colour. Curves that no log has are
    left out.

    Args:
        runs: For each name in the legend, log records as for `plot_learning_curve`; "eval_perplexity" is drawn too.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for name, log in runs.items():
        if not any(_series(log, "step", field)[0] for field in (*_COMPARED, "loss")):
            raise ValueError(f"nothing to draw: none of the {len(log)} log records of {name} has a loss or a BLEU")
    rows = [field for field in _COMPARED if any(_series(log, "step", field)[0] for log in runs.values())]
    if any(_series(log, "step", "loss")[0] for log in runs.values()) and "eval_loss" not in rows:
        rows.insert(0, "eval_loss")
    if not rows:
        raise ValueError("nothing to draw: give one run at least")
    timed = any(_series(log, "elapsed_seconds", field)[0] for log in runs.values() for field in (*rows, "loss"))
    clocks = {"step": "updates"} | ({"elapsed_seconds": "training time (minutes)"} if timed else {})
    title = "Learning curves" if len(runs) > 1 else "Learning curve"
    handles = []
    for place, name in enumerate(printable(run, longest=None) for run in runs):
        if len(name) > _LONGEST_RUN_NAME:  # the end tells the paths of runs apart
            name = f"…{name[1 - _LONGEST_RUN_NAME :]}"
        handles.append(Line2D([], [], label=name, linewidth=1.8, **look_of(place)))
    if any(_series(log, "step", "loss")[0] for log in runs.values()):
        handles.append(Line2D([], [], color="0.3", linewidth=0.7, label=f"thin: training loss\n{_AS_TRAINED}"))
    below = _LEGEND_LINE * (1 + math.ceil(len(handles) / 2))
    figure = new_figure(5 * len(clocks), 0.9 + below + 2.7 * len(rows), title)
    panels = figure.subplots(len(rows), len(clocks), squeeze=False, sharex="col", sharey="row")
    for (row, field), (column, (clock, unit)) in itertools.product(enumerate(rows), enumerate(clocks.items())):
        axes = panels[row][column]
        _draw_runs(axes, runs, clock, field)
        label, scale = _COMPARED[field]
        axes.set_yscale(scale)
        axes.set(ylabel=label if column == 0 else "", xlabel=unit if row == len(rows) - 1 else "")
        finish_axes(axes, whole_numbers=clock == "step")
        if field == "eval_bleu":
            axes.set_ylim(0, None)
    for axes in panels[:, 0]:
        if axes.get_yscale() == "log":  # plain numbers, 20, 50 and 100, instead of powers of ten
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
    add_legend(figure, "outside lower center", handles=handles, ncols=2)
    save(figure, path)


def plot_schedule(
    learning_rates: Mapping[str, Sequence[float]], path: str | os.PathLike, *, updates: Sequence[int] | None = None
) -> None:
    """Draws learning rates against updates, such as section 5.3's schedule for several warm-ups.

    Args:
        learning_rates: For each label of the legend, the learning rates of updates 1, 2, 3, …
        updates: Which updates the rates are for, if not for every one.
    """
    if not learning_rates or not all(len(rates) for rates in learning_rates.values()):
        raise ValueError("nothing to draw: every schedule needs a learning rate at least")
    figure = new_figure(width=8, height=4.5, title="Learning rate schedule (equation 3)")
    axes = figure.subplots()
    for place, (label, rates) in enumerate(learning_rates.items()):
        axes.plot(updates or range(1, len(rates) + 1), rates, label=label, linewidth=1.8, **look_of(place))
    axes.set(xlabel="updates", ylabel="learning rate", ylim=(0, None))
    axes.ticklabel_format(axis="y", style="scientific", scilimits=(0, 0))
    finish_axes(axes, whole_numbers=True)
    add_legend(axes, "upper right")
    save(figure, path)


def plot_positional_encoding(table: np.ndarray, path: str | os.PathLike, *, title: str = "Positional encoding") -> None:
    """Draws positional encodings (section 3.5) as a heat map, and some of the dimensions as waves below.

    `table` has the encodings, sinusoidal or learned, in the shape (positions, d_model).
    """
    table = np.asarray(table, dtype=float)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"the table must have the shape (positions, d_model), none of them 0; got {table.shape}")
    limit = np.abs(table).max() or 1.0  # the same on both sides, so that white is zero
    figure = new_figure(width=8, height=8, title=title)
    heat_map, waves = figure.subplots(2, height_ratios=[2, 1], sharex=True)
    settings = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r", "interpolation": "nearest", "aspect": "auto"}
    image = heat_map.imshow(table.T, origin="lower", **settings)
    heat_map.set(ylabel="dimension (0 to d_model - 1)")
    figure.colorbar(image, ax=heat_map, label="value added to the embedding (no unit)")
    for place, dimension in enumerate(sorted({0, table.shape[1] // 8, table.shape[1] // 4, table.shape[1] // 2})):
        waves.plot(table[:, dimension], label=f"dimension {dimension}", **look_of(place))
    waves.set(xlabel="position in the sentence (tokens, from 0)", ylabel="value (no unit)")
    finish_axes(waves, whole_numbers=True)
    add_legend(figure, "outside lower center", ncols=4)
    save(figure, path)


def plot_score_groups(groups: Mapping[str, Sequence], path: str | os.PathLike, *, metric: str, title: str = "") -> None:
    """Draws how well systems translate groups of sentences: a panel per way to group, a line per system.

    Args:
        groups: The `Group`s of each way to group, by heading, say "words in the source".
        metric: The name of the score.
    """
    groups = {heading: found for heading, found in groups.items() if found}
    if not groups:
        raise ValueError("nothing to draw: there are no groups of sentences")
    figure = new_figure(width=1 + 5.5 * len(groups), height=4.5, title=title)
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (heading, found) in zip(panels, groups.items(), strict=True):
        lines = []
        for (place, system), style in zip(enumerate(found[0].values), itertools.cycle("osD^v"), strict=False):
            values = [group.values[system] for group in found]
            lines += axes.plot(values, label=system, marker=style, markersize=5, **look_of(place))
        labels = [f"{group.label}\n{group.segments:,}" for group in found]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        lowest = min(min(group.values.values()) for group in found)
        axes.set(xlabel=f"{heading}; number of sentences below", ylabel=metric, ylim=(min(0, 1.1 * lowest), None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        add_legend(axes, "lower right", handles=lines)  # by itself it would leave out names that begin with "_"
    save(figure, path)


def _draw_runs(axes, runs, clock: str, field: str) -> None:
    """Draws one field of all runs, against updates or minutes."""
    unit = 60 if clock == "elapsed_seconds" else 1
    for place, log in enumerate(runs.values()):
        look = look_of(place)
        x_values, y_values = _series(log, clock, field)
        axes.plot([x / unit for x in x_values], y_values, marker=marker(y_values), markersize=3, linewidth=1.8, **look)
        if field == "eval_loss":
            x_values, y_values = _series(log, clock, "loss")
            thin = {"color": look["color"], "linewidth": 0.7, "alpha": 0.7}
            axes.plot([x / unit for x in x_values], y_values, marker="." if len(x_values) == 1 else "", **thin)


def _series(log: Sequence[Mapping[str, float]], x_name: str, y_name: str) -> tuple[list[float], list[float]]:
    """The x and y values of the records that have both; a value that is not finite is None in a log file."""
    points = [(record.get(x_name), record.get(y_name)) for record in log]
    points = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
    return [x for x, _ in points], [y for _, y in points]


def _draw_losses(axes, losses: Mapping, skip_steps: Sequence[float], skipped: Sequence[int]) -> None:
    """Draws losses, and crosses at the lower edge where updates were skipped."""
    for label, (steps, values) in losses.items():
        color = _VALIDATION_COLOR if label == "validation loss" else _TRAINING_COLOR
        axes.plot(steps, values, label=label, color=color, marker=marker(values), markersize=4)
    if validation := losses.get("validation loss", ([], []))[1]:
        best = min(validation)
        axes.axhline(best, color=_VALIDATION_COLOR, linestyle=":", label=f"best validation loss: {best:.3f}")
    axes.set(xlabel="updates", ylabel="loss per target token (nats)")
    finish_axes(axes, whole_numbers=True)
    if where := [step for step, count in zip(skip_steps, skipped, strict=True) if count]:
        label, edge = f"skipped updates: {sum(skipped):,}", axes.get_xaxis_transform()
        axes.plot(where, [0.02] * len(where), "x", color="black", transform=edge, label=label, clip_on=False)
    add_legend(axes, "upper right")


def _draw_bleu(axes, x_values: Sequence[float], bleu: Sequence[float], x_label: str) -> None:
    axes.plot(x_values, bleu, label="validation BLEU", color=_BLEU_COLOR, marker=marker(bleu), markersize=4)
    axes.set(xlabel=x_label, ylabel="validation BLEU", ylim=(0, None))
    axes.axhline(max(bleu), color=_BLEU_COLOR, linestyle=":", label=f"best: {max(bleu):.1f}")
    finish_axes(axes, whole_numbers=x_label == "updates")
    add_legend(axes, "lower right")
