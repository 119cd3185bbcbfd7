"""From captions to everyday sentences and back: what adapting gains on Tatoeba, and loses on Multi30k.

    python scripts/experiments/adapt.py --model runs/multi30k --multi30k multi30k --tatoeba tatoeba.en-de.tsv.gz \\
        --output runs/adapt --steps 2000 --json adapt.json

A model of Multi30k's captions is adapted to Tatoeba's sentences in several ways: with and without captions mixed in,
with and without a growing vocabulary, and by LoRA. Tatoeba is split by English sentence, 2,000 for validation and 2,000
for testing, so that no sentence is in two parts. Finished work is not repeated.
"""

import argparse
import gzip
import hashlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from vanilla_transformer.command_processes import run_command
from vanilla_transformer.files import read_json, replaced_path, text_lines, write_text


HELD_OUT = 2_000
# Tatoeba has five times as many pairs as Multi30k: with this weight nearly half of the training text is captions.
REPLAY = ["--replay", "--replay-weight", "4"]
VARIANTS = {
    "no replay, no floor": ["--no-floor"],
    "no replay": [],
    "replay": REPLAY,
    "replay, vocabulary as it was": [*REPLAY, "--grow-vocabulary", "0"],
    "replay, LoRA": [*REPLAY, "--lora-rank", "16"],
}
HEADS = ("way", "pieces", "text", "before", "after", "difference", "p")


def split(path: Path, folder: Path, held_out: int) -> None:
    """Writes train, validation and test as two files of lines each; held-out sets have one pair per sentence.

    Sentences are held out by their hash, so the order of the file does not matter.
    """
    pairs: dict[str, list[str]] = {}
    for line in text_lines(path):
        english, german = line.split("\t")
        pairs.setdefault(english, []).append(german)
    ordered = sorted(pairs, key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
    parts = {"validation": ordered[:held_out], "test": ordered[held_out : 2 * held_out]}
    rows = {name: [(english, pairs[english][0]) for english in part] for name, part in parts.items()}
    rows["train"] = [(english, german) for english in ordered[2 * held_out :] for german in pairs[english]]
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in rows.items():
        for side, language in enumerate(("en", "de")):
            with replaced_path(folder / f"{name}.{language}.gz") as path, gzip.GzipFile(path, "wb", mtime=0) as file:
                file.writelines(f"{row[side]}\n".encode() for row in found)


def words_of(name: str, arguments: argparse.Namespace, data: Path) -> list[str]:
    """The command line of one way to adapt."""
    captions = [
        [str((arguments.multi30k / f"{part}.{side}").resolve()) for side in ("en", "de")] for part in ("train", "val")
    ]
    words = [
        "adapt",
        str(arguments.model),
        "--output",
        str(arguments.output / name.replace(", ", "-").replace(" ", "_")),
    ]
    for part, corpus in {"train": "train", "validation": "validation", "test.new_test": "test"}.items():
        words += [f"--data.{part}", json.dumps([str(data / f"{corpus}.{side}.gz") for side in ("en", "de")])]
    words += ["--old", *captions[1], "--training.max_steps", str(arguments.steps)]
    words += [f"--training.{option}={arguments.every}" for option in ("eval_steps", "save_steps")]
    for word in VARIANTS[name]:
        words += [word, *captions[0]] if word == "--replay" else [word]
    return [*words, *shlex.split(arguments.options)]


def rows_of(found: dict[str, dict]) -> Iterator[str]:
    """The table."""
    yield f"| {' | '.join(HEADS)} |\n| --- | ---: | --- |{' ---: |' * (len(HEADS) - 3)}"
    for name, account in found.items():
        for row in account["sets"]:
            scores = [f"{row[each]['score']:.2f} ± {row[each]['interval']:.2f}" for each in ("before", "after")]
            low, high = row["difference_interval"]
            difference = f"{row['difference']:+.2f} [{low:+.2f}, {high:+.2f}]"
            cells = [name, f"{account['pieces']:,}", row["set"], *scores, difference, f"{row['p']:.4f}"]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="of Multi30k, from English into German")
    parser.add_argument("--multi30k", type=Path, required=True, help="folder of its files")
    parser.add_argument("--tatoeba", type=Path, required=True, help="file of English TAB German")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="WAY")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="sentences for validation, and for testing")
    parser.add_argument("--steps", type=int, default=2_000, help="updates at most")
    parser.add_argument("--every", type=int, default=250, help="updates from one validation to the next")
    parser.add_argument("--options", default="", help="more options of the command adapt, in one word")
    parser.add_argument("--json", type=Path, help="where to write the accounts")
    arguments = parser.parse_args()
    data = arguments.output / "tatoeba"
    if not (data / "train.de.gz").exists():  # written last
        split(arguments.tatoeba, data, arguments.held_out)
    found, failed = {}, False
    for name in arguments.ways:
        words = words_of(name, arguments, data)
        try:
            run_command(words)
        except ValueError as error:  # a floor that was not kept is a result too
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        found[name] = read_json(Path(words[3]) / "adaptation.json")
    if found:
        print("\n".join(rows_of(found)))
    if arguments.json:
        write_text(arguments.json, json.dumps(found, indent=2) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
