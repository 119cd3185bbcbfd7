"""Hard and soft terms on Multi30k: how many of a glossary's terms are used, what happens to BLEU, and what it costs.

    python scripts/experiments/terms.py --data multi30k --output runs/terms --seeds 1 2 3 --workers 2 --json terms.json
    python scripts/experiments/terms.py --data multi30k --output runs/terms --rungs --test-set test_2016_flickr

The models are the rungs of terms.yaml, trained as ladder.py trains; finished work is not repeated. Each line of the
test set gets its own glossary, as in benchmarks/constraints.py: words of its source with the aligned words of its
reference. Here the aligner has also read the training text. Every model translates with hard terms, and with soft
terms if it knows them, in turns with translating without a glossary.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch


sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where `constraints` is

from constraints import GlossaryOfEachLine, Row, glossaries_of, measured
from rungs import folder_of, parse_rungs, read_set, train_rungs

from vanilla_transformer.data.terms import WORD, knows_soft_terms
from vanilla_transformer.data.word_aligner import align_corpus
from vanilla_transformer.files import write_text
from vanilla_transformer.run.loading import load_model


RUNGS = Path(__file__).with_suffix(".yaml")
HEADS = ("model", "seed", "terms", "beams", "number", "used without", "used", "as a word", "BLEU without", "BLEU",
         "sentences/s without", "sentences/s")  # fmt: skip


def words_of_pairs(data: Path, name: str, most: int | None = None) -> list[tuple[str, str, list[str], list[str]]]:
    """Source, reference, and the words of both, for at most `most` pairs."""
    texts = zip(*(side[:most] for side in read_set(data, name)), strict=True)
    return [(*pair, *map(WORD.findall, pair)) for pair in texts if all(pair)]


def linked_words(data: Path, pairs: list[tuple[str, str, list[str], list[str]]]) -> list[list[tuple[str, str]]]:
    """For each pair, the words aligned one to one, by an aligner that also learns from the training text."""
    every = [*pairs, *words_of_pairs(data, "train")]
    lower = [[[word.lower() for word in pair[side]] for pair in every] for side in (2, 3)]
    found = []
    for (_, _, source, target), links in zip(pairs, align_corpus(*lower), strict=False):
        ends = [[link[side] for link in links] for side in (0, 1)]
        alone = [(i, j) for i, j in sorted(links) if ends[0].count(i) == ends[1].count(j) == 1]
        found.append([(source[i], target[j]) for i, j in alone])
    return found


def rows_of(found: list[tuple[str, int, str, Row]]) -> Iterator[str]:
    """The table."""
    yield f"| {' | '.join(HEADS)} |\n| --- |{' ---: |' * (len(HEADS) - 1)}"
    for name, seed, terms, row in found:
        cells = [name, str(seed), terms, str(row.num_beams), f"{row.terms:,}"]
        cells += [f"{100 * share:.1f} %" for share in (row.used_without, row.used, row.used_whole)]
        cells += [f"{number:.2f}" for number in (row.bleu_without, row.bleu)]
        cells += [f"{speed:.1f}" for speed in (row.sentences_per_second_without, row.sentences_per_second)]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test-set", default="val", help="its name in --data")
    parser.add_argument("--lines", type=int, help="of the test set; all of them if it is not given")
    parser.add_argument("--terms", type=int, default=2, help="of a line's glossary, at most")
    parser.add_argument("--letters", type=int, default=4, help="of a term, at least")
    parser.add_argument("--num-beams", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1, help="of which the median time counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the rows")
    arguments, rungs = parse_rungs(parser, RUNGS, "--models")
    succeeded, output = train_rungs(arguments, rungs), arguments.output
    torch.set_num_threads(arguments.threads)
    # A line that occurs twice has one glossary.
    pairs = list(
        {pair[0]: pair for pair in words_of_pairs(arguments.data, arguments.test_set, arguments.lines)}.values()
    )
    lines, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    links = linked_words(arguments.data, pairs)
    glossary = GlossaryOfEachLine(glossaries_of(links, lines, arguments.terms, arguments.letters, seed=0))
    found = []
    for name, rung in rungs.items():
        for seed in arguments.seeds:
            if not (folder := folder_of(output, rung.name, seed)).scores.exists():
                continue
            model, tokenizer = load_model(folder.path, "cpu")
            for terms in ("hard", "soft") if knows_soft_terms(tokenizer) else ("hard",):
                search = (arguments.num_beams, arguments.rounds)
                row = measured(model, tokenizer, lines, references, glossary, *search, terms=terms)
                found.append((name, seed, terms, row))
    if found:
        print("\n".join(rows_of(found)))
    if arguments.json:
        records = [{"model": name, "seed": seed, "mode": terms, **asdict(row)} for name, seed, terms, row in found]
        write_text(arguments.json, json.dumps(records, indent=2) + "\n")
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
