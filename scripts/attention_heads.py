"""Measures what every head of a model does, over a set of sentences.

    python scripts/attention_heads.py RUN --sources test.en --targets test.de --plot heads.png

A table for each of the three attentions: how much its heads look at the previous, the same and the next position, at
the end and at punctuation, and how spread out they look (entropy). The first row of each is a head that looks evenly.

With --alignments, words aligned by people in the format of Pharaoh (`0-0 1-2 2?1`; `?` or `p`: possible), each head of
the decoder's attention on the source also has its alignment error rate. Words are then what blanks separate: the texts
must be those that were aligned. A word's attention is summed over the pieces of what it looks at and averaged over its
own pieces, and it is linked with the one source word that has most of it.

It goes over the set batch by batch: memory does not grow with its length.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

from vanilla_transformer.evaluation.heads import ATTENTIONS, MEASURES, Head, measure_heads
from vanilla_transformer.evaluation.word_alignments import read_alignments
from vanilla_transformer.files import text_lines
from vanilla_transformer.plots import plot_heads
from vanilla_transformer.run_folder import load_model


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
