"""Measures what every head of a model does, over a set of sentences.

    python scripts/experiments/attention_heads.py RUN --sources test.en --targets test.de --plot heads.png

A table for each of the three attentions: how much its heads look at the previous, the same and the next position, at
the end and at punctuation, and how spread out their attention is (entropy). The first row of each is a head that looks
evenly everywhere.

With --alignments, words aligned by people in the format of Pharaoh (`0-0 1-2 2?1`; `?` or `p`: possible), each head of
the decoder's attention on the source also has its alignment error rate. Words are then separated by blanks: give the
texts that were aligned. A word's attention is summed over the pieces of each source word and averaged over its own
pieces, and the word is linked with the one source word that it looks at most.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

import numpy as np
from head_measures import ATTENTIONS, MEASURES, Head, measure_heads, read_alignments

from vanilla_transformer.files import text_lines
from vanilla_transformer.plots.figures import new_figure, save
from vanilla_transformer.run.loading import load_model


TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Attention on the source",
}


def read_pairs(sources: Path, targets: Path) -> Iterator[tuple[str, str]]:
    lines = zip_longest(text_lines(sources), text_lines(targets))
    for number, (source, target) in enumerate(lines, start=1):
        if source is None or target is None:
            short, long = (sources, targets) if source is None else (targets, sources)
            raise ValueError(f"{short} ends after line {number - 1}, but {long} does not: their lines belong together.")
        yield source, target


def print_table(title: str, heads: list[Head]) -> None:
    names = list(heads[-1].measures)
    print(f"{title}\n{'layer.head':12}" + "".join(f"{name.replace('_', ' '):>18}" for name in names))
    for head in heads:
        name = "evenly" if head.layer is None else f"{head.layer}.{head.head}"
        cells = (head.measures.get(measure) for measure in names)
        print(f"{name:12}" + "".join(f"{'–' if cell is None else format(cell, '.3f'):>18}" for cell in cells))
    print()


def plot_heads(groups: Mapping[str, Sequence], path: str | os.PathLike, *, title: str = "") -> None:
    """Draws what each head of a model does: a panel for each attention, a row per head, a column per measure.

    Args:
        groups: For the name of each attention, its `Head`s, all with the same measures. Entropy in nats is left out:
            only values between 0 and 1 can be compared by colour.
        path: The file to write, .png or .svg.
        title: A line above the picture.

    Raises:
        ValueError: There is nothing to draw.
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
    """Measures, names of heads, and values (heads, measures), NaN where there is none."""
    measures = [measure for measure in heads[-1].measures if measure != "entropy"]
    rows = ["even" if head.layer is None else f"{head.layer}.{head.head}" for head in heads]
    values = [[np.nan if head.measures.get(m) is None else head.measures[m] for m in measures] for head in heads]
    return [measure.replace("_", "\n") for measure in measures], rows, np.array(values, dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run folder, a model's folder or USER/NAME of the Hub")
    parser.add_argument("--sources", type=Path, required=True, help="text file (.gz or not) of sentences")
    parser.add_argument("--targets", type=Path, required=True, help="their translations, line by line")
    parser.add_argument("--alignments", type=Path, help="word alignments, line by line")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--plot", type=Path, help="file for a picture, .png or .svg")
    arguments = parser.parse_args()
    model, tokenizer = load_model(arguments.model)
    alignments = read_alignments(arguments.alignments) if arguments.alignments else None
    found = measure_heads(model, tokenizer, read_pairs(arguments.sources, arguments.targets), alignments)
    groups = {TITLES[name]: [head for head in found if head.attention == name] for name in ATTENTIONS}
    if arguments.plot:
        plot_heads(groups, arguments.plot, title=f"What the heads do on {arguments.sources.name}")
    if arguments.json:
        print(json.dumps([asdict(head) for head in found], indent=2))
        return
    for title, heads in groups.items():
        print_table(title, heads)
    print("\n".join(f"{name.replace('_', ' ')}: {meaning}" for name, meaning in MEASURES.items()))
    if alignments:
        print("aer: alignment error rate, 0 (all as people have it) to 1")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"attention_heads.py: {error}")
