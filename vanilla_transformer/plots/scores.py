"""Numbers in groups: scores of systems on kinds of sentences, and what each head does."""

import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np

from .figures import add_legend, look_of, new_figure, save


def plot_score_groups(groups: Mapping[str, Sequence], path: str | os.PathLike, *, metric: str, title: str = "") -> None:
    """Draws how well systems translate groups of sentences: a panel per way to group, a line per system.

    Args:
        groups: By what the groups are made of, say "words in the source": `Group`s with a label, a number of segments
            and a score per system.
        path: The file to write, .png or .svg.
        metric: The name of the score.
        title: A line above the picture.

    Raises:
        ValueError: If there is nothing to draw.
    """
    if not any(groups.values()):
        raise ValueError("nothing to draw: there are no groups of sentences")
    figure = new_figure(width=1 + 5.5 * len(groups), height=4.5, title=title)
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (heading, found) in zip(panels, groups.items(), strict=True):
        for (place, system), style in zip(enumerate(found[0].values), itertools.cycle("osD^v"), strict=False):
            values = [group.values[system] for group in found]
            axes.plot(values, label=system, marker=style, markersize=5, **look_of(place))
        labels = [f"{group.label}\n{group.segments:,}" for group in found]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set(xlabel=f"{heading}; number of sentences below", ylabel=metric, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        add_legend(axes, "lower right")
    save(figure, path)


def plot_heads(groups: Mapping[str, Sequence], path: str | os.PathLike, *, title: str = "") -> None:
    """Draws what each head of a model does: a panel for each attention, a row per head, a column per measure.

    Args:
        groups: By what to call an attention, its `Head`s, all with the same measures. Entropy in nats is left out: only
            what lies between 0 and 1 can be compared by colour.
        path: The file to write, .png or .svg.
        title: A line above the picture.

    Raises:
        ValueError: If there is nothing to draw.
    """
    if not groups or not all(groups.values()):
        raise ValueError("nothing to draw: there are no heads")
    tables = {name: _table_of_heads(heads) for name, heads in groups.items()}
    columns = [len(measures) for measures, _, _ in tables.values()]
    tallest = max(len(rows) for _, rows, _ in tables.values())
    figure = new_figure(1.5 + sum(0.6 * count + 0.9 for count in columns), 2.2 + 0.24 * tallest, title)
    panels = figure.subplots(1, len(tables), squeeze=False, width_ratios=columns)[0]
    for axes, (name, (measures, rows, values)) in zip(panels, tables.items(), strict=True):
        image = axes.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="nearest")
        axes.set_title(name, fontsize=11)
        axes.set_xticks(range(len(measures)), measures, rotation=45, ha="right", fontsize=9)
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
        axes.set_ylabel("layer.head" if axes is panels[0] else "")
        axes.tick_params(length=0)
        for (row, column), value in np.ndenumerate(values):
            text = "–" if np.isnan(value) else f"{value:.2f}"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=7, color="white" if value > 0.6 else "black"
            )
    figure.colorbar(image, ax=panels, label="share (0 to 1)", aspect=30)
    save(figure, path)


def _table_of_heads(heads: Sequence) -> tuple[list[str], list[str], np.ndarray]:
    """Measures, names of heads, and their values (heads, measures), NaN where there is none."""
    measures = [measure for measure in heads[-1].measures if measure != "entropy"]
    rows = ["even" if head.layer is None else f"{head.layer}.{head.head}" for head in heads]
    values = [[np.nan if head.measures.get(m) is None else head.measures[m] for m in measures] for head in heads]
    return [measure.replace("_", "\n") for measure in measures], rows, np.array(values, dtype=float)
