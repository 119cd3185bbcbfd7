"""Glossary terms in constrained beam search: how many are used, what BLEU gains or loses, and what they cost in time.

    python scripts/benchmarks/constraints.py runs/multi30k_en_de multi30k/val.en.gz multi30k/val.de.gz \\
        --json constraints.json

Each line gets its own glossary: words of its source with the aligned words of its reference, at most `--terms` of
them, drawn at random from the links between words of at least `--letters` letters on both sides. The same lines are
translated with and without it, in turns, with beams of several widths. "Whole" counts terms that appear in the
translation as whole words: a term may also take an ending. BLEU and chrF are against the references that the terms
come from, so a gain is no surprise; a loss would be one.

Links come from the model's own attention, until `aligned_words` gets a better aligner: wrong links make entries that
no translator would write, and so a BLEU that is too low.
"""

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu
import torch
from tqdm import tqdm

from vanilla_transformer import Glossary, Hypothesis, translate_lines
from vanilla_transformer.attention.weights import align_words
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation.glossary import FoundTerm, used_terms


SURE = 0.3  # smallest share of attention that makes a link


@dataclass
class Row:
    """One width of the beam, without and with glossaries."""

    num_beams: int
    terms: int
    used_without: float  # shares of the terms
    used: float
    used_whole: float
    bleu_without: float
    bleu: float
    chrf_without: float
    chrf: float
    sentences_per_second_without: float
    sentences_per_second: float


class GlossaryOfEachLine:
    """A glossary for each line."""

    def __init__(self, glossaries: dict[str, Glossary]):
        self.glossaries = glossaries

    def find(self, line: str) -> list[FoundTerm]:
        """The terms of one of the lines."""
        return self.glossaries[line].find(line)

    def reading(self, tokenizer) -> "GlossaryOfEachLine":
        """As of a [`Glossary`], for each line."""
        return GlossaryOfEachLine({line: glossary.reading(tokenizer) for line, glossary in self.glossaries.items()})


def aligned_words(model, tokenizer, pairs: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """For each pair of texts, the words that are translations of each other. Put a better aligner here."""
    found = []
    for begin in range(0, len(pairs), 50):
        for each in align_words(model, tokenizer, pairs[begin : begin + 50]):
            best = {}  # by source word, the target word that looks at it most
            for target, (source, weight) in enumerate(zip(each.links, each.weights, strict=True)):
                if weight >= SURE and weight > best.get(source, (0, 0))[0]:
                    best[source] = weight, target
            found.append([(each.source[i], each.target[j]) for i, (_, j) in sorted(best.items())])
    return found


def glossaries_of(links: list[list[tuple[str, str]]], lines: list[str], terms: int, letters: int, seed: int) -> dict:
    """A glossary of at most `terms` terms for each line."""
    draw, found = random.Random(seed), {}
    for line, pairs in zip(lines, links, strict=True):
        long_enough = {
            source.lower(): (source, target)
            for source, target in pairs
            if min(len(source), len(target)) >= letters and source.isalpha() and target.isalpha()
        }
        chosen = draw.sample(sorted(long_enough.values()), min(terms, len(long_enough)))
        found[line] = Glossary([(source.lower(), target) for source, target in chosen])
    return found


def shares(
    glossary: GlossaryOfEachLine, lines: list[str], translations: list[str], tokenizer
) -> tuple[int, float, float]:
    """The number of terms, and the shares of them that are used at all and used as whole words."""
    terms = used = whole = 0
    for line, translation in zip(lines, translations, strict=True):
        for term in used_terms(glossary.find(line), translation, tokenizer):
            terms += 1
            used += term.used is not None
            whole += term.used is not None and bool(re.search(rf"\b{re.escape(term.used)}\b", translation))
    return terms, used / terms, whole / terms


def translated(model, tokenizer, lines: list[str], **options) -> tuple[list[str], float]:
    """The translations, and the seconds that they took."""
    begin = time.perf_counter()
    found: list[list[Hypothesis]] = list(translate_lines(model, tokenizer, [lines], **options))
    return [best.text for best, *_ in found], time.perf_counter() - begin


def measured(model, tokenizer, lines, references, glossary, num_beams: int, rounds: int, terms: str = "hard") -> Row:
    """A row of the table; the two contestants take turns, each first in every other round. Terms are hard or soft."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    texts, options = {}, {"num_beams": num_beams, "terms": terms}
    for number in range(rounds + 1):
        for with_it in (False, True) if number % 2 else (True, False):
            given = glossary if with_it else None
            texts[with_it], taken = translated(model, tokenizer, lines, glossary=given, **options)
            if number:  # the first round is for what is done once
                seconds[with_it].append(taken)
    speed = {with_it: len(lines) / statistics.median(taken) for with_it, taken in seconds.items()}
    number, used_without, _ = shares(glossary, lines, texts[False], tokenizer)
    _, used, whole = shares(glossary, lines, texts[True], tokenizer)
    bleu = [sacrebleu.corpus_bleu(texts[with_it], [references]).score for with_it in (False, True)]
    chrf = [sacrebleu.corpus_chrf(texts[with_it], [references]).score for with_it in (False, True)]
    return Row(num_beams, number, used_without, used, whole, *bleu, *chrf, speed[False], speed[True])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a run folder or a model's folder")
    parser.add_argument("sources", type=Path, help="a text file")
    parser.add_argument("references", type=Path, help="its translations")
    parser.add_argument("--lines", type=int, default=1000, help="how many of them")
    parser.add_argument("--terms", type=int, default=2, help="of a line's glossary, at most")
    parser.add_argument("--letters", type=int, default=4, help="of a term, at least")
    parser.add_argument("--num-beams", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the rows")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, tokenizer = load_model(arguments.model)
    pairs = zip(text_lines(arguments.sources), text_lines(arguments.references), strict=True)
    reference_of = dict([pair for pair in pairs if all(pair)][: arguments.lines])  # a repeated line has one glossary
    lines, references = list(reference_of), list(reference_of.values())
    links = aligned_words(model, tokenizer, list(reference_of.items()))
    glossary = GlossaryOfEachLine(glossaries_of(links, lines, arguments.terms, arguments.letters, arguments.seed))
    print(
        "| beams | terms | used without | used | whole | BLEU without | BLEU | chrF without | chrF | sent./s | with |"
    )
    print(f"|{' ---: |' * 11}")
    rows = []
    for num_beams in tqdm(arguments.num_beams, desc="beams"):
        row = measured(model, tokenizer, lines, references, glossary, num_beams, arguments.rounds)
        rows.append(row)
        cells = [f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in vars(row).values()]
        print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
