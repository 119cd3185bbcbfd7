"""Bars: the score of a test set in each form that people write it in."""

import os
from collections.abc import Mapping

from .figures import add_legend, color_of, new_figure, save


def plot_forms(
    systems: Mapping[str, Mapping[str, float]], path: str | os.PathLike, *, metric: str, title: str = ""
) -> None:
    """Draws how well systems translate a test set in each form: a group of bars per form, a bar per system.

    Behind each bar stands the score and which percentage it is of the first form's, the clean one.

    Args:
        systems: By system, the score of each form; the first form is the clean one, and all have the same forms.
        metric: The name of the score, of which higher is better.
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
    axes.set(xlabel=f"{metric}; in brackets the share of {forms[0]}", xlim=(0, 1.2 * (axes.dataLim.x1 or 1)))
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    if len(systems) > 1:
        add_legend(figure, "outside lower center", ncols=2)
    save(figure, path)
