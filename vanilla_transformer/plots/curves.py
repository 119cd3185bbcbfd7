"""How runs went: losses, perplexity and BLEU against updates and time."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence

from .figures import COLORS, add_legend, finish_axes, look_of, marker, new_figure, printable, save


_TRAINING_COLOR, _VALIDATION_COLOR, _BLEU_COLOR = "0.45", COLORS[0], COLORS[1]
_SKIPPED_COLOR = "black"
_LONGEST_RUN_NAME = 50  # characters
_LEGEND_LINE = 0.22  # inches
# Fields of the log, what to call them, and the scale that shows them best.
_COMPARED = {
    "eval_loss": ("loss per target token (nats)", "linear"),
    "eval_perplexity": ("validation perplexity per token", "log"),
    "eval_bleu": ("validation BLEU", "linear"),
}


def plot_learning_curve(log: Sequence[Mapping[str, float]], path: str | os.PathLike) -> None:
    """Draws the losses of a training run and, where the log has it, the validation BLEU.

    Up to three panels: training and validation loss against updates, with a cross wherever updates were skipped; BLEU
    against updates; BLEU against minutes of training. What the log lacks is left out.

    Args:
        log: Records as in transformers' `TrainerState.log_history`. Those of training have "step" and "loss", those of
            evaluation "step" and "eval_loss", "eval_bleu" (0 to 100) or both; any may have "elapsed_seconds". Losses
            are in nats per target token. "skipped_updates" is their number since the record before. Records of other
            kinds are passed over.
        path: The file to write, .png or .svg.

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
    figure = new_figure(width=9, height=1 + 3.5 * len(rows), title="Learning curve")
    panels = figure.subplot_mosaic(rows)
    if losses:
        _draw_losses(panels["loss"], losses)
        _draw_skipped(panels["loss"], *_series(log, "step", "skipped_updates"))
        add_legend(panels["loss"], "upper right")
    if bleu_by_step[0]:
        if losses:
            panels["bleu"].sharex(panels["loss"])
        _draw_bleu(panels["bleu"], *bleu_by_step, x_label="updates")
    if bleu_by_second[0]:
        seconds, bleu = bleu_by_second
        _draw_bleu(panels["minutes"], [second / 60 for second in seconds], bleu, x_label="training time (minutes)")
    save(figure, path)


def plot_runs(runs: Mapping[str, Sequence[Mapping[str, float]]], path: str | os.PathLike) -> None:
    """Draws the curves of several runs into one picture: loss, perplexity and BLEU, against updates and minutes.

    The validation loss is a thick line, that of training a thin one of the same colour. What no log has is left out.

    Args:
        runs: For each name in the legend, log records as for `plot_learning_curve`; "eval_perplexity" is drawn too.
        path: The file to write, .png or .svg.

    Raises:
        ValueError: If there is no run, or the log of a run has nothing to draw.
    """
    from matplotlib.lines import Line2D

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
    names = map(_legend_name, runs)
    handles = [Line2D([], [], label=name, linewidth=1.8, **look_of(place)) for place, name in enumerate(names)]
    if any(_series(log, "step", "loss")[0] for log in runs.values()):
        handles.append(Line2D([], [], color="0.3", linewidth=0.7, label="thin: training loss"))
    below = _LEGEND_LINE * math.ceil(len(handles) / 2)
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
    _label_powers(panels[:, 0])
    add_legend(figure, "outside lower center", handles=handles, ncols=2)
    save(figure, path)


def _draw_runs(axes, runs, clock: str, field: str) -> None:
    """Draws one field of all runs; in minutes if the clock is the one that counts seconds."""
    unit = 60 if clock == "elapsed_seconds" else 1
    for place, log in enumerate(runs.values()):
        look = look_of(place)
        x_values, y_values = _series(log, clock, field)
        axes.plot([x / unit for x in x_values], y_values, marker=marker(y_values), markersize=3, linewidth=1.8, **look)
        if field == "eval_loss":
            x_values, y_values = _series(log, clock, "loss")
            thin = {"color": look["color"], "linewidth": 0.7, "alpha": 0.7}
            axes.plot([x / unit for x in x_values], y_values, marker="." if len(x_values) == 1 else "", **thin)


def _legend_name(run: str) -> str:
    """Of a long name its end: that is what tells the paths of runs apart."""
    shown = printable(run, longest=None)
    return shown if len(shown) <= _LONGEST_RUN_NAME else f"…{shown[1 - _LONGEST_RUN_NAME :]}"


def _label_powers(panels) -> None:
    """Plain numbers at logarithmic axes: 20, 50 and 100 instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for axes in panels:
        if axes.get_yscale() == "log":
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())


def _series(log: Sequence[Mapping[str, float]], x_name: str, y_name: str) -> tuple[list[float], list[float]]:
    """Returns the x and y values of the records that have both; one that is not finite is None in a log file."""
    points = [(record.get(x_name), record.get(y_name)) for record in log]
    points = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
    return [x for x, _ in points], [y for _, y in points]


def _draw_losses(axes, losses: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    colors = {"training loss": _TRAINING_COLOR, "validation loss": _VALIDATION_COLOR}
    for label, (steps, values) in losses.items():
        axes.plot(steps, values, label=label, color=colors[label], marker=marker(values), markersize=4)
    if validation := losses.get("validation loss", ([], []))[1]:
        best = min(validation)
        axes.axhline(best, color=_VALIDATION_COLOR, linestyle=":", label=f"best validation loss: {best:.3f}")
    axes.set(xlabel="updates", ylabel="loss per target token (nats)")
    finish_axes(axes, whole_numbers=True)


def _draw_skipped(axes, steps: Sequence[float], skipped: Sequence[int]) -> None:
    """Marks where updates were skipped, at the lower edge."""
    where = [step for step, count in zip(steps, skipped, strict=True) if count]
    if where:
        label, edge = f"skipped updates: {sum(skipped):,}", axes.get_xaxis_transform()
        axes.plot(where, [0.02] * len(where), "x", color=_SKIPPED_COLOR, transform=edge, label=label, clip_on=False)


def _draw_bleu(axes, x_values: Sequence[float], bleu: Sequence[float], x_label: str) -> None:
    axes.plot(x_values, bleu, label="validation BLEU", color=_BLEU_COLOR, marker=marker(bleu), markersize=4)
    axes.set(xlabel=x_label, ylabel="validation BLEU", ylim=(0, None))
    axes.axhline(max(bleu), color=_BLEU_COLOR, linestyle=":", label=f"best: {max(bleu):.1f}")
    finish_axes(axes, whole_numbers=x_label == "updates")
    add_legend(axes, "lower right")
