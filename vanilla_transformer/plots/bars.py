"""Bars: the score of a test set in each form of writing; the gains of stages; counts by kind."""

import os
from collections.abc import Mapping

from .figures import add_legend, color_of, new_figure, save


def plot_forms(
    systems: Mapping[str, Mapping[str, float]], path: str | os.PathLike, *, metric: str, title: str = ""
) -> None:
    """Draws how well systems translate a test set in each form: a group of bars per form, a bar per system.

    After each bar come the score and its percentage of the first form's, the clean one.

    Args:
        systems: For each system, the score of each form; the first form is the clean one, and all have the same forms.
        metric: The name of the score; higher must be better.
    """
    if not systems or not next(iter(systems.values())):
        raise ValueError("nothing to draw: give one system and one form at least")
    forms = list(next(iter(systems.values())))
    figure = new_figure(8, 1.4 + 0.28 * len(forms) * (len(systems) + 0.6), title)
    axes, height = figure.subplots(), 0.8 / len(systems)
    for number, (system, scores) in enumerate(systems.items()):
        places = [place + (number - (len(systems) - 1) / 2) * height for place in range(len(forms))]
        values = [scores[form] for form in forms]
        bars = axes.barh(places, values, 0.9 * height, color=color_of(number), label=system)
        labels = [f"{value:.1f}" for value in values]
        if values[0]:
            labels[1:] = [f"{value:.1f} ({100 * value / values[0]:.0f} %)" for value in values[1:]]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set_yticks(range(len(forms)), [form.replace("_", " ") for form in forms])
    axes.invert_yaxis()
    axes.set(
        xlabel=f"{metric}; in brackets the share of {forms[0]}",
        xlim=(1.2 * axes.dataLim.x0, 1.2 * (axes.dataLim.x1 or 1)),
    )
    _plain(axes)
    if len(systems) > 1:
        add_legend(figure, "outside lower center", ncols=2)
    save(figure, path)


def plot_account(
    systems: Mapping[str, Mapping[str, float]], path: str | os.PathLike, *, metric: str, title: str = ""
) -> None:
    """Draws systems that were made one from another: their scores with intervals, speeds, and sizes, side by side.

    Args:
        systems: For each name `score`, `interval` (half of it), `sentences_per_second` and `megabytes`.
        metric: The name of the score.
    """
    names = list(systems)
    figure = new_figure(10, 1.4 + 0.4 * len(names), title)
    panels = (("score", metric), ("sentences_per_second", "sentences a second"), ("megabytes", "MB"))
    for number, (axes, (field, label)) in enumerate(zip(figure.subplots(1, 3, sharey=True), panels, strict=True)):
        values = [systems[name][field] for name in names]
        errors = [systems[name]["interval"] for name in names] if field == "score" else None
        bars = axes.barh(range(len(names)), values, 0.7, xerr=errors, color=color_of(number), ecolor="gray", capsize=3)
        axes.bar_label(bars, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values], padding=3)
        axes.set(xlabel=label, xlim=(0, 1.3 * max(values) or 1))
        _plain(axes)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    save(figure, path)


def plot_counts(
    counts: Mapping[str, int], path: str | os.PathLike, *, total: int, xlabel: str, title: str = ""
) -> None:
    """Draws counts by kind, with the share of the total after each bar.

    Args:
        counts: The counts by kind.
        total: The whole that the shares refer to.
        xlabel: What is counted.
    """
    if not counts or total < 1:
        raise ValueError("nothing to draw: give one count at least, of one or more")
    figure = new_figure(8, 1.2 + 0.28 * len(counts), title)
    axes = figure.subplots()
    bars = axes.barh(range(len(counts)), counts.values(), 0.8, color=color_of(0))
    labels = [f"{count:,} ({100 * count / total:.1f} %)" if count else "0" for count in counts.values()]
    axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set_yticks(range(len(counts)), [kind.replace("_", " ") for kind in counts])
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, xlim=(0, 1.25 * max(1, *counts.values())))
    _plain(axes)
    save(figure, path)


def _plain(axes) -> None:
    """Gives axes of horizontal bars a faint grid across, and two open sides."""
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
