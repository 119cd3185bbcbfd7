"""What `train auto` is worth on little text, beside the paper's defaults and a fixed recipe, each with the same time.

    python scripts/experiments/little_text.py --data data --output runs/little --texts multi30k tatoeba --minutes 5 \\
        --workers 2 --picture little.png

The texts are in little_text.yaml. Each is cut to the numbers of pairs given there; a smaller cut is part of a larger
one. No cut contains either side of a pair of the validation or test set. Those sets have one pair per held-out source.
`paper` is the recipe wmt14_en_de_base. Where a text is too small for a recipe's vocabulary, it gets the next smaller
one of VOCABULARIES. A system may have other settings, `auto:model.dropout=0.3`, several of them with commas between.
Each run has --minutes of training, by the clock, on its share of the processor's cores: with
--workers 2 on two cores, one. Finished work is not repeated, and interrupted or killed work is resumed.

Nothing is chosen on the test set: each run translates it once, with its own decoding, after its training. To choose,
give `--part validation`: then the test set is not translated. p is from approximate randomisation of BLEU, against the
first system.
"""

import argparse
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import yaml
from rungs import run, stop

from vanilla_transformer.choosing.rule import VOCABULARIES
from vanilla_transformer.data.corpora import load_corpus
from vanilla_transformer.data.tokenizer import learn_tokenizer
from vanilla_transformer.evaluation.scores import compare_systems, score_translations
from vanilla_transformer.files import read_json, text_lines, write_json, write_text
from vanilla_transformer.plots.figures import COLORS, add_legend, finish_axes, new_figure, save
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.translation.lines import one_line


TEXTS = Path(__file__).with_suffix(".yaml")
METRICS = ("sacrebleu", "chrf")
HELD_OUT = 1000  # sources at most, and at most one in twenty
SYSTEMS = {
    "auto": ["auto", "--minutes", "{minutes}"],
    "paper": ["wmt14_en_de_base", "--training.max_minutes", "{minutes}"],
    "multi30k_en_de": ["multi30k_en_de", "--training.max_minutes", "{minutes}"],
    "auto-without-phrases": ["auto", "--no-phrases", "--minutes", "{minutes}"],
}
BY_DEFAULT = ("auto", "paper", "multi30k_en_de")


@dataclass(frozen=True)
class Cut:
    """A number of pairs of a text, in a folder with files of its own."""

    text: str
    pairs: int
    languages: tuple[str, str]
    folder: Path

    def files(self, name: str) -> list[Path]:
        return [self.folder / f"{name}.{language}" for language in self.languages]

    def lines(self, name: str, side: int) -> list[str]:
        return list(text_lines(self.files(name)[side]))


def cuts_of(name: str, text: dict, data: Path, output: Path) -> Iterator[Cut]:
    """Writes the files of all cuts of a text, unless they are there."""
    languages = tuple(text["languages"])

    def pairs_of(where) -> list[tuple[str, str]]:
        corpus = load_corpus(where, *languages, folder=data)["translation"]
        return [tuple(one_line(pair[language]) for language in languages) for pair in corpus]

    parts = {part: pairs_of(text[part]) for part in ("test", "validation") if part in text}
    measured = {line for pairs in parts.values() for pair in pairs for line in pair}
    left = {}  # by source, in an order that does not depend on that of the text
    for pair in sorted(set(pairs_of(text["train"])), key=lambda pair: (_digest(pair[0]), pair)):
        if not measured & set(pair):
            left.setdefault(pair[0], []).append(pair)
    for part in ("test", "validation"):
        if part not in parts:
            held = list(left)[: min(HELD_OUT, len(left) // 20)]
            parts[part] = [left.pop(source)[0] for source in held]
            measured |= {line for pair in parts[part] for line in pair}
    left = [pair for pairs in left.values() for pair in pairs if not measured & set(pair)]
    for count in text.get("pairs", [len(left)]):
        if count > len(left):
            raise SystemExit(f"{name}: pairs is {count:,}, but only {len(left):,} are left to train on.")
        cut = Cut(name, count, languages, output / name / str(count))
        cut.folder.mkdir(parents=True, exist_ok=True)
        for part, pairs in {"train": left[:count], **parts}.items():
            for side, path in enumerate(cut.files(part)):
                content = "".join(f"{pair[side]}\n" for pair in pairs)
                if not path.exists():
                    write_text(path, content)
                elif path.read_text(encoding="utf-8") != content:
                    raise SystemExit(f"{path} is of another text: choose another --output.")
        yield cut


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class System(NamedTuple):
    """A way to train."""

    name: str
    words: list[str]  # of the command line, after `train`

    @classmethod
    def parse(cls, text: str) -> "System":
        """`NAME` or `NAME:FIELD=VALUE,…`, with a name of SYSTEMS. Raises ArgumentTypeError for others."""
        name, colon, settings = text.partition(":")
        fields = [setting.partition("=") for setting in settings.split(",")] if colon else []
        if name not in SYSTEMS or "/" in text or not all(field and equals for field, equals, _ in fields):
            known = ", ".join(SYSTEMS)
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:FIELD=VALUE,… with a name of {known}")
        return cls(text, [*SYSTEMS[name], *(word for field, _, value in fields for word in (f"--{field}", value))])


def find_vocabulary(cut: Cut, system: System) -> None:
    """Records the vocabulary size for the system's recipe: its own, or the next smaller one that the text allows."""
    place, recipe = cut.folder / f"{system.name}.pieces.json", system.words[0]
    if place.exists() or recipe == "auto":
        return
    settings = load_recipe(recipe).tokenizer
    for size in (settings.vocab_size, *reversed(VOCABULARIES)):
        if size <= settings.vocab_size:
            texts = chain(cut.lines("train", 0), cut.lines("train", 1))
            with suppress(ValueError):
                learn_tokenizer(texts, replace(settings, vocab_size=size))
                write_json(place, {"pieces": size})
                return
    raise SystemExit(f"{cut.folder} has too little text for {VOCABULARIES[0]} pieces.")


def train_and_translate(cut: Cut, system: System, part: str, minutes: float, cores: Sequence[int]) -> None:
    """Does one run and translates a part of the text. Raises CalledProcessError; the log beside the run says why."""
    folder, log = cut.folder / system.name, cut.folder / f"{system.name}.log"
    source, target = cut.languages
    names = {part: json.dumps([path.name for path in cut.files(part)]) for part in ("train", "validation")}
    overrides = {
        "data.source_language": source,
        "data.target_language": target,
        "data.folder": str(cut.folder.resolve()),
        "data.train": names["train"],
        "data.validation": names["validation"],
        "data.test": "{}",
    }
    words = [word.replace("{minutes}", f"{minutes:g}") for word in system.words]
    if words[0] != "auto":
        pieces = read_json(cut.folder / f"{system.name}.pieces.json")["pieces"]
        overrides |= {"evaluation.examples": "[]", "tokenizer.vocab_size": pieces}
    # Before the system's own settings, which count.
    words[1:1] = [word for name, value in overrides.items() for word in (f"--{name}", str(value))]
    hypotheses = cut.folder / f"{system.name}.{part}"
    if not hypotheses.exists():
        # Even if there are scores: `auto` chooses its decoding after them.
        run(["train", *words, "--output", str(folder), "--resume"], log, cores)
        [sources, _] = cut.files(part)
        words = ["--model", str(folder), "--input", str(sources), "--output", str(hypotheses)]
        run(["translate", *words], log, cores)


@dataclass(frozen=True)
class Row:
    """A system on the test or validation set of a cut.

    Attributes:
        minutes: Training time; None for a published system.
        scores: By metric: the score, and half of its 95 % interval if that is known.
        p: p-value of the difference from the first system; None for that and the published one.
    """

    cut: Cut
    system: str
    minutes: float | None
    scores: dict[str, tuple[float, float | None]]
    p: float | None = None


def results(cuts: Sequence[Cut], systems: Sequence[System], part: str, texts: dict) -> Iterator[Row]:
    """Rows of all runs that have translated this part, and of the published systems, which translated the test set."""
    for cut in cuts:
        files = {system.name: cut.folder / f"{system.name}.{part}" for system in systems}
        done = {name: path for name, path in files.items() if path.exists()}
        hypotheses = {name: list(text_lines(path)) for name, path in done.items()}
        options = {"references": cut.lines(part, 1), "target_language": cut.languages[1]}
        p = {}
        if systems[0].name in hypotheses and len(hypotheses) > 1:
            compared = compare_systems(hypotheses, metrics=METRICS[:1], **options)
            p = {each.system: each.randomization_p for each in compared}
        for name, lines in hypotheses.items():
            scores = score_translations(lines, metrics=METRICS, resamples=1000, **options)
            spent = max(record.get("elapsed_seconds", 0) for record in RunFolder(cut.folder / name).log_records()) / 60
            yield Row(cut, name, spent, {each.metric: (each.value, each.confidence) for each in scores}, p.get(name))
        if part == "test" and (published := texts[cut.text].get("published")):
            yield Row(cut, "published", None, {name: (value, None) for name, value in published.items()})


def table(rows: Sequence[Row]) -> Iterator[str]:
    heads = ["text", "pairs", "system", "minutes", *(word for name in METRICS for word in (name, "± 95 %")), "p"]
    yield f"| {' | '.join(heads)} |"
    yield f"| --- | ---: | --- |{' ---: |' * (len(heads) - 3)}"
    for row in rows:
        numbers = [(row.minutes, ".1f")]
        numbers += [(number, ".2f") for name in METRICS for number in row.scores.get(name, (None, None))]
        numbers += [(row.p, ".4f")]
        cells = ["" if number is None else format(number, how) for number, how in numbers]
        yield f"| {' | '.join([row.cut.text, f'{row.cut.pairs:,}', row.system, *cells])} |"


def draw(rows: Sequence[Row], part: str, path: Path) -> None:
    """BLEU against pairs, a panel for each text, a line for each system."""
    texts = list(dict.fromkeys(row.cut.text for row in rows))
    figure = new_figure(4.5 * len(texts) + 1, 4, f"BLEU of the {part} set against pairs to train on")
    panels = figure.subplots(1, len(texts), squeeze=False)[0]
    systems = [name for name in dict.fromkeys(row.system for row in rows) if name != "published"]
    for axes, text in zip(panels, texts, strict=True):
        for number, system in enumerate(systems):
            points = [
                (row.cut.pairs, *row.scores[METRICS[0]]) for row in rows if (row.cut.text, row.system) == (text, system)
            ]
            pairs, values, intervals = zip(*points, strict=True) if points else ((), (), ())
            axes.errorbar(
                pairs, values, intervals, fmt="o-", color=COLORS[number % len(COLORS)], capsize=3, label=system
            )
        axes.set_xscale("log")
        axes.set_title(text)
        axes.set_xlabel("pairs")
        finish_axes(axes, whole_numbers=False)
        counts = sorted({row.cut.pairs for row in rows if row.cut.text == text})
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
    add_legend(panels[0], "upper left")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that paths in the file of texts begin at")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--texts", nargs="+", metavar="TEXT", help="of the file; all of them by default")
    parser.add_argument("--pairs", nargs="+", type=int, help="sizes of the parts, instead of those in the file")
    parser.add_argument("--file", type=Path, default=TEXTS, help="another file of texts")
    parser.add_argument(
        "--systems",
        nargs="+",
        type=System.parse,
        default=[System.parse(name) for name in BY_DEFAULT],
        help=f"{', '.join(SYSTEMS)}, or NAME:FIELD=VALUE,…; {', '.join(BY_DEFAULT)} by default",
    )
    parser.add_argument("--part", choices=["test", "validation"], default="test", help="what to translate and score")
    parser.add_argument("--minutes", type=float, default=5.0, help="training time of each run")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, each with its share of the cores")
    parser.add_argument("--picture", type=Path, help="where to draw the scores against the pairs")
    args = parser.parse_args()
    texts = yaml.safe_load(args.file.read_text(encoding="utf-8"))
    if args.pairs:
        texts = {name: text | {"pairs": args.pairs} for name, text in texts.items()}
    if unknown := set(args.texts or ()) - set(texts):
        parser.error(f"--texts: there is no {', '.join(sorted(unknown))} in {args.file}")
    every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if not 1 <= args.workers <= len(every):
        parser.error(f"--workers must be from 1 to {len(every)}, the cores here, not {args.workers}")
    plan = args.output / "minutes.json"
    began = read_json(plan)["minutes"] if plan.exists() else args.minutes
    if began != args.minutes:
        parser.error(f"--minutes: the runs in {args.output} have {began:g}: give that, or another --output.")
    args.output.mkdir(parents=True, exist_ok=True)
    write_json(plan, {"minutes": began})
    cuts = [cut for name in args.texts or texts for cut in cuts_of(name, texts[name], args.data, args.output)]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    for cut, system in product(cuts, args.systems):
        find_vocabulary(cut, system)
    shares: queue.Queue[list[int]] = queue.Queue()
    for worker in range(args.workers):
        shares.put(every[worker :: args.workers][: len(every) // args.workers])

    def work(cut: Cut, system: System) -> bool:
        cores = shares.get()
        try:
            train_and_translate(cut, system, args.part, args.minutes, cores)
        except subprocess.CalledProcessError as error:
            print(f"`{error.cmd[3]}` has failed, see {cut.folder / system.name}.log", flush=True)
            return False
        finally:
            shares.put(cores)
        print(f"{cut.text}, {cut.pairs:,} pairs, {system.name}: done", flush=True)
        return True

    with ThreadPoolExecutor(args.workers) as pool:
        succeeded = all(list(pool.map(lambda job: work(*job), product(cuts, args.systems))))
    rows = list(results(cuts, args.systems, args.part, texts))
    print("\n".join(table(rows)))
    if args.picture and rows:
        draw(rows, args.part, args.picture)
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
