"""Spoils a clean corpus with ten kinds of noise, cleans it, and counts what `clean` finds of each kind.

    python scripts/experiments/dirty.py ../shared/data/tatoeba_en_de/tatoeba.en-de.tsv.gz --output dirty \\
        --foreign ../shared/data/newstest/newstest2013.fr --pairs 20000

A fifth of the pairs is spoiled, two per cent by each kind. Rules and limits are tuned on `--part validation`; the
reported results are from `--part test`. An English sentence is in one part only. The folder holds `original.tsv`,
`spoiled.tsv` (the same pairs, line by line), `kinds.txt` (the kind of each line; blank: good) and the output folder of
`clean`.

A pair is found if it is dropped or restored. Precision is that of the rules made for the kind: of the pairs they
dropped, the share that is spoiled in any way.
"""

import argparse
import gzip
import hashlib
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from vanilla_transformer.cleaning import CleaningSettings, Scoring, clean
from vanilla_transformer.files import text_lines


Pair = tuple[str, str]
SHARE = 0.02  # of each kind
BOILERPLATE = ("Diese Seite wurde nicht gefunden.", "Alle Rechte vorbehalten.", "Bitte melden Sie sich an.")
CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyzäöü", "абцдефгхийклмнопярстувшхызаоу")


def copied(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    return pair[0], draw.choice((pair[0], pair[0].rstrip(".!?"), f"{pair[0]} {pair[0].split()[0]}"))


def empty(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    return draw.choice((("", pair[1]), (pair[0], ""), (pair[0], " ")))


def wrong_language(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    return draw.choice(
        ((pair[0], foreign), (foreign, pair[1]), (pair[0], pair[1].lower().translate(CYRILLIC)), pair[::-1])
    )


def mojibake(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    """UTF-8 decoded once as Latin-1 or Windows-1252, or lost characters."""
    read = pair[1].encode().decode(draw.choice(("latin-1", "cp1252")), errors="replace")
    lost = re.sub(r"[^\x00-\x7f]", "\ufffd", pair[1])
    return pair[0], draw.choice((read, lost))


def markup(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    numbers = " | ".join(str(draw.randrange(10_000)) for _ in range(draw.randint(2, 6)))
    tags = f'<td class="c{draw.randrange(9)}"><a href="/p/{draw.randrange(999)}">{pair[1].split()[0]}</a></td>'
    return draw.choice(((numbers, numbers), (pair[0], tags), (f"{pair[0].split()[0]} {numbers}", numbers)))


def wrong_length(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    """A side that has lost nearly all of its text, or has other text after it."""
    return draw.choice(((pair[0], pair[1].split()[0]), (pair[0], f"{pair[1]} {other[1]} {other[1]} {pair[1]}")))


def repeated(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    """An earlier pair, unchanged or nearly so, or a target that occurs with many sources."""
    typo = draw.randrange(len(other[1]))
    near = (
        (other[0].upper(), other[1].rstrip(".!?")),
        (f"{other[0].rstrip('.!?')} !", other[1]),
        (other[0], other[1][:typo] + other[1][typo + 1 :]),
    )
    return draw.choice((other, draw.choice(near), (pair[0], draw.choice(BOILERPLATE))))


def other_numbers(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    """Like `No. 214 ...` and `Nr. 873 ...`, or with different addresses."""
    first, second = draw.sample(range(10, 2000), 2)
    if draw.random() < 0.3:
        return f"{pair[0]} http://a.org/{first}", f"{pair[1]} http://a.org/{second}"
    return f"No. {first}: {pair[0]}", f"Nr. {second}: {pair[1]}"


def wrong_pair(pair: Pair, other: Pair, foreign: str, draw: Random) -> Pair:
    return pair[0], other[1]


class Kind(NamedTuple):
    """A kind of noise."""

    rules: tuple[str, ...]  # those made for it
    spoil: Callable[[Pair, Pair, str, Random], Pair] | None  # None: it is not made pair by pair


KINDS = {
    "empty": Kind(("empty",), empty),
    "copied": Kind(("identical", "target_language"), copied),
    "wrong language": Kind(("source_language", "target_language", "source_script", "target_script"), wrong_language),
    "mojibake": Kind(("broken_encoding",), mojibake),
    "markup": Kind(("numbers_or_markup",), markup),
    "wrong length": Kind(("length_ratio", "too_long"), wrong_length),
    "misaligned run": Kind(("misaligned",), None),
    "repeated": Kind(("repeated_pair", "repeated_target", "near_duplicate"), repeated),
    "other numbers": Kind(("numbers_differ", "addresses_differ"), other_numbers),
    "wrong pair": Kind(("score",), wrong_pair),
}


def part_of(pairs: list[Pair], part: str, count: int, seed: int) -> list[Pair]:
    """`count` pairs of a part, chosen by the hash of the English sentence, in random order."""
    wanted = {"validation": 0, "test": 1}[part]
    chosen = [pair for pair in pairs if hashlib.sha256(pair[0].encode()).digest()[0] % 2 == wanted]
    return Random(f"{seed} {part}").sample(chosen, min(count, len(chosen)))


def foreign_lines(path: Path) -> list[str]:
    """The beginnings of a file's lines, of four to ten words."""
    lines = [" ".join(line.split()[:10]) for line in text_lines(path)]
    return [line for line in lines if len(line.split()) > 3]


def spoiled(pairs: list[Pair], foreign: list[str], seed: int) -> tuple[list[Pair], list[str]]:
    """The pairs, some of them spoiled, and the kind of noise of each."""
    draw, kinds, found, originals = Random(seed), [""] * len(pairs), list(pairs), set()
    wanted = round(SHARE * len(pairs))
    while kinds.count("misaligned run") < wanted:
        length = draw.randint(5, 20)
        start = draw.randrange(len(pairs) - length)
        places = range(start, start + length)
        if not any(kinds[place] for place in places):
            for place in places:
                kinds[place] = "misaligned run"
                found[place] = pairs[place][0], pairs[start + (place - start + 1) % length][1]
    for kind, (_, spoil) in KINDS.items():
        while spoil is not None and kinds.count(kind) < wanted:
            place = draw.randrange(10, len(pairs))
            other = draw.randrange(place)
            if kinds[place] or kinds[other] or (kind == "mojibake" and pairs[place][1].isascii()):
                continue
            if place in originals:  # without it, its copy would be the only good one
                continue
            if kind == "repeated":
                originals.add(other)
            kinds[place] = kind
            found[place] = spoil(pairs[place], pairs[other], draw.choice(foreign), draw)
    return found, kinds


def measured(folder: Path, pairs: list[Pair], dirty: list[Pair], kinds: list[str]) -> str:
    """The tables: for each kind, how much was found; for all rules, how many good pairs they cost."""
    reasons = {}
    with gzip.open(folder / "dropped.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            reasons[row["line"] - 1] = row["reason"]
    kept = list(zip(text_lines(folder / "clean.en.gz"), text_lines(folder / "clean.de.gz"), strict=True))
    left = [place for place in range(len(pairs)) if place not in reasons]
    mended = {place for place, pair in zip(left, kept, strict=True) if kinds[place] and pair == pairs[place]}
    rows = [
        "| kind | pairs | found | recall | of these mended | precision | by |",
        "| --- | ---: " + "| ---: " * 4 + "| --- |",
    ]
    for kind, (rules, _) in KINDS.items():
        places = {place for place, each in enumerate(kinds) if each == kind}
        found = {place for place in places if place in reasons or place in mended}
        by = Counter(reasons[place] for place in places if place in reasons)
        dropped = [place for place, reason in reasons.items() if reason in rules]
        precision = f"{sum(bool(kinds[place]) for place in dropped) / len(dropped):.1%}" if dropped else "–"
        share = f"{len(found) / max(1, len(places)):.1%}"
        names = ", ".join(f"{name} {count}" for name, count in by.most_common(4))
        rows.append(
            f"| {kind} | {len(places)} | {len(found)} | {share} | {len(places & mended)} | {precision} | {names} |"
        )
    good = [place for place, kind in enumerate(kinds) if not kind]
    lost = Counter(reasons[place] for place in good if place in reasons)
    all_found = sum(place in reasons or place in mended for place, kind in enumerate(kinds) if kind)
    names = ", ".join(f"{name} {count}" for name, count in lost.most_common())
    rows.append(f"\nFound: {all_found / (len(kinds) - len(good)):.1%} of the spoiled pairs.")
    rows.append(f"Lost: {lost.total()} of {len(good)} good pairs, {lost.total() / len(good):.2%} ({names}).")
    return "\n".join(rows)


def resources() -> str:
    """CPU seconds and peak memory of this process and its workers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    peaks = [f"{each.ru_maxrss / 1024:,.0f} MB" for each in used]
    return f"{seconds:.0f} CPU seconds; peak memory {peaks[0]}, and {peaks[1]} of the largest worker"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="English TAB German on each line")
    parser.add_argument("--output", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--foreign", type=Path, required=True, help="text in a third language")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--score-models", type=Path, nargs=2, metavar=("FORWARD", "BACKWARD"))
    parser.add_argument("--keep-best", type=float, default=0.95)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    pairs = [tuple(line.split("\t")) for line in text_lines(arguments.corpus)]
    pairs = part_of(pairs, arguments.part, arguments.pairs, arguments.seed)
    dirty, kinds = spoiled(pairs, foreign_lines(arguments.foreign), arguments.seed)
    arguments.output.mkdir(parents=True)
    for name, some in (("original.tsv", pairs), ("spoiled.tsv", dirty)):
        text = "".join(f"{source}\t{target}\n" for source, target in some)
        (arguments.output / name).write_text(text, encoding="utf-8")
    (arguments.output / "kinds.txt").write_text("".join(f"{kind}\n" for kind in kinds), encoding="utf-8")
    scoring = None
    if arguments.score_models:
        scoring = Scoring(*arguments.score_models, keep_best=arguments.keep_best, device=arguments.device)
    begun, settings = time.monotonic(), CleaningSettings("en", "de")
    clean(
        arguments.output / "spoiled.tsv",
        arguments.output / "clean",
        settings,
        scoring=scoring,
        workers=arguments.workers,
    )
    seconds = time.monotonic() - begun
    print(measured(arguments.output / "clean", pairs, dirty, kinds))
    print(f"{len(pairs) / seconds:,.0f} pairs a second; {resources()}.")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"dirty.py: {error}")
