"""Which way of aligning words is best: each layer, head and state of a model's attention, and aligners without a model.

    python scripts/experiments/alignment.py runs/phrasebook --phrasebook 500
    python scripts/experiments/alignment.py MODEL --sources gold.en --targets gold.de --alignments gold.talp \\
        --corpus train.en train.de
    python scripts/experiments/alignment.py MODEL --sources val.en --targets val.de --corpus train.en train.de

It prints the alignment error rate (Och and Ney 2003) of each way, AER = 1 - (|A & S| + |A & P|) / (|A| + |S|) with the
links A, the sure gold links S and the possible ones P: on every second pair, by which the ways are ordered and one of
them may be chosen, and on the other pairs, which that choice has not seen. Numbers are percentages. The gold
alignments are one of:

- a file in the format of Pharaoh (`0-0 1-2 2?1`), whose texts have blanks between words;
- those that the phrasebook's lexicon gives: nouns, adjectives, verbs and names that the lexicon translates by one
  another, each once in its sentence, are sure links; between the other words any link is possible;
- without either, the links of eflomal (Ostling and Tiedemann 2016; `pip install eflomal`) as a stand-in: those in both
  directions are sure, those in only one are possible.

Aligners learn from the --corpus and the pairs themselves. eflomal is one of them if it is installed; or pass its
links, of the corpus and then of the pairs, with --links FORWARD BACKWARD.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from head_measures import AlignmentError, GoldAlignment, read_alignments

from vanilla_transformer.attention.weights import AlignmentHead, WordAlignment, alignments_by_heads
from vanilla_transformer.data import phrasebook_lexicon as lexicon
from vanilla_transformer.data.phrasebook import NAMES, NOUNS, PRONOUNS, VERBS, phrasebook, rows
from vanilla_transformer.data.word_aligner import align_corpus, grow_diag
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.loading import load_model


BATCH = 64
Links = set[tuple[int, int]]


def split_words(text: str) -> list[str]:
    """The words of a text, with punctuation marks separate."""
    return re.findall(r"\w+|[^\w\s]", text)


# ------------------------------------------------------------------------------------------------------- gold links


def lexicon_pairs() -> dict[str, set[str]]:
    """For each English word of the phrasebook with a meaning of its own, the beginnings of its German words."""
    found: dict[str, set[str]] = {name.english: {name.german} for name in NAMES}
    for noun in NOUNS:
        for english in filter(None, (noun.english, noun.plural)):
            found.setdefault(english, set()).update(filter(None, (noun.nominative, noun.oblique, noun.german_plural)))
    for english, german, _ in rows(lexicon.ADJECTIVES):
        found.setdefault(english, set()).update(german.split("/"))
    for verb in VERBS:
        forms = {*verb.present, verb.infinitive, verb.participle, *(verb.prefix + form for form in verb.present)}
        for english in (verb.base, verb.third, verb.gerund, verb.past):
            found.setdefault(english.split()[0], set()).update(forms)
    for english in ("have", "has", "is", "are", "am"):  # also auxiliaries
        found.pop(english, None)
    return found


def phrasebook_gold(count: int) -> Iterator[tuple[str, str, GoldAlignment]]:
    """Pairs of the phrasebook's test split, split into words, with the links that the lexicon is sure of."""
    meanings = lexicon_pairs()
    adjectives = {word[0] for word in rows(lexicon.ADJECTIVES)}
    pronouns = {form for row in PRONOUNS for form in row[:3]}
    for pair in islice(phrasebook("test"), count):
        source, target = split_words(pair["en"]), split_words(pair["de"])

        def fits(english: str, german: str) -> bool:
            several = meanings.get(english) or meanings.get(english[0].lower() + english[1:], set())
            german = {german, german[0].lower() + german[1:]}
            ends = ("", "e", "en", "er", "em", "es") if english in adjectives else ("", "n")
            return english not in pronouns and any(each + end in german for each in several for end in ends)

        all_links = {(i, j) for i, e in enumerate(source) for j, g in enumerate(target) if fits(e, g)}
        once = [{i for i, _ in all_links if sum(i == x for x, _ in all_links) == 1}]
        once.append({j for _, j in all_links if sum(j == y for _, y in all_links) == 1})
        sure = {(i, j) for i, j in all_links if i in once[0] and j in once[1]}
        taken = {i for i, _ in sure}, {j for _, j in sure}
        rest = {(i, j) for i in range(len(source)) for j in range(len(target)) if i not in taken[0]}
        possible = sure | {(i, j) for i, j in rest if j not in taken[1]}
        yield " ".join(source), " ".join(target), GoldAlignment(frozenset(sure), frozenset(possible))


# --------------------------------------------------------------------------------------------------- ways to align


def by_eflomal(sources: list[list[str]], targets: list[list[str]]) -> tuple[list[Links], list[Links]] | None:
    """The links of eflomal in both directions; None where it is not installed."""
    try:
        import eflomal
    except ImportError:
        return None
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        files = [str(Path(folder, name)) for name in ("forward", "backward")]
        texts = [[" ".join(words) + "\n" for words in side] for side in (sources, targets)]
        eflomal.Aligner().align(*texts, links_filename_fwd=files[0], links_filename_rev=files[1])
        return tuple(links_of_file(file) for file in files)


def links_of_file(path: str | Path) -> list[Links]:
    """The links of a file in the format of Pharaoh."""
    return [set(each.possible) for each in read_alignments(path)]


def words_of_blanks(found: list[str], given: list[str]) -> list[int]:
    """For each word that a tokenizer found, the number of the given word in which it begins."""
    number_of = [number for number, word in enumerate(given) for _ in word]
    at, numbers = 0, []
    for word in found:
        numbers.append(number_of[min(at, len(number_of) - 1)])
        at += len(word)
    return numbers


def links_of(alignment: WordAlignment, source: list[str], target: list[str]) -> Links:
    """The links of an alignment, between words separated by blanks."""
    rows, columns = words_of_blanks(alignment.source, source), words_of_blanks(alignment.target, target)
    return {(rows[i], column) for column, i in zip(columns, alignment.links, strict=True)}


def by_attention(path: str, pairs: list[tuple[str, str]]) -> dict[str, list[Links]]:
    """The links of every layer, head and state of a model."""
    model, tokenizer = load_model(path)
    layers, heads = model.config.decoder_layers, model.config.decoder_attention_heads
    ways = {
        f"layer {layer + 1}, {'mean' if head is None else f'head {head + 1}'}, {'read' if reads else 'predicted'}":
            AlignmentHead(layer, head, reads)
        for layer in range(layers) for head in (None, *range(heads)) for reads in (False, True)
    }  # fmt: skip
    found: dict[str, list[Links]] = {way: [] for way in ways}
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        several = alignments_by_heads(model, tokenizer, batch, list(ways.values()))
        for (source, target), alignments in zip(batch, several, strict=True):
            for way, alignment in zip(ways, alignments, strict=True):
                found[way].append(links_of(alignment, source.split(), target.split()))
    return found


# --------------------------------------------------------------------------------------------------------------- table


def error_rate(links: list[Links], gold: list[GoldAlignment]) -> float:
    """The alignment error rate over all pairs."""
    error = AlignmentError()
    for each, truth in zip(links, gold, strict=True):
        error.add(each, truth)
    return error.rate


def main(words: list[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="run folder, model's folder or USER/NAME of the Hub")
    parser.add_argument("--phrasebook", type=int, help="so many pairs of the phrasebook, with its lexicon's links")
    parser.add_argument("--sources", type=Path, help="text file of sources")
    parser.add_argument("--targets", type=Path, help="text file of their translations")
    parser.add_argument("--alignments", type=Path, help="gold alignments of the pairs, line by line")
    parser.add_argument("--corpus", type=Path, nargs=2, default=(), help="more text for the aligners: sources, targets")
    parser.add_argument("--links", type=Path, nargs=2, help="eflomal's links of corpus and pairs, in both directions")
    parser.add_argument("--json", type=Path, help="write the error rates here as well")
    arguments = parser.parse_args(words)
    if bool(arguments.phrasebook) == bool(arguments.sources and arguments.targets):
        parser.error("Give --phrasebook, or --sources and --targets.")
    gold, pairs = None, []
    if arguments.phrasebook:
        examples = list(phrasebook_gold(arguments.phrasebook))
        pairs, gold = [each[:2] for each in examples], [each[2] for each in examples]
        more = [(pair["en"], pair["de"]) for pair in islice(phrasebook("train"), 20_000)]
    else:
        keep = (lambda text: text) if arguments.alignments else (lambda text: " ".join(split_words(text)))
        sides = (map(keep, text_lines(file)) for file in (arguments.sources, arguments.targets))
        pairs = list(zip(*sides, strict=True))
        gold = list(read_alignments(arguments.alignments)) if arguments.alignments else None
        more = []
    if arguments.corpus:
        more = list(zip(*map(text_lines, arguments.corpus), strict=True))
    words_of = [[split_words(text) for text in side] for side in (zip(*more, strict=True) if more else ([], []))]
    sources, targets = (known + [pair[i].split() for pair in pairs] for i, known in enumerate(words_of))
    began = time.perf_counter()
    ways = {"own aligner": align_corpus(sources, targets)[len(more) :]}
    print(f"own aligner: {time.perf_counter() - began:.1f} seconds for {len(sources):,} pairs")
    began = time.perf_counter()
    both = list(map(links_of_file, arguments.links)) if arguments.links else by_eflomal(sources, targets)
    if both:
        print(f"eflomal: {time.perf_counter() - began:.1f} seconds")
        both = [links[len(more) :] for links in both]
        if gold is None:
            gold = [GoldAlignment(frozenset(x & y), frozenset(x | y)) for x, y in zip(*both, strict=True)]
        else:
            ways["eflomal"] = [grow_diag(*each) for each in zip(*both, strict=True)]
    if gold is None:
        parser.error("There is nothing to compare with: give --alignments, or install eflomal.")
    ways |= by_attention(arguments.model, pairs)
    rates = {way: [error_rate(links[half::2], gold[half::2]) for half in (0, 1)] for way, links in ways.items()}
    print("| way | AER where it is chosen | AER of the others |\n| --- | ---: | ---: |")
    for way, (chosen_by, others) in sorted(rates.items(), key=lambda each: each[1]):
        print(f"| {way} | {100 * chosen_by:.1f} | {100 * others:.1f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
