"""The ladder from Multi30k's plain recipe to the best one: each rung adds one thing to the rung below it.

    python scripts/experiments/ladder.py --data multi30k --output runs/ladder --seeds 1 2 3 --workers 2
    python scripts/experiments/ladder.py --data multi30k --output runs/ladder --rungs --test --picture ladder.png

The rungs are in ladder.yaml. Every run is `vanilla-transformer train multi30k_en_de` with the overrides of its rung and
of all rungs below, in OUTPUT/RUNG/SEED, on one core of its own. Finished work is not repeated, and interrupted or
killed work is continued. All rungs get their first seed before any gets its second.

A rung may learn from translations: `texts` names files of --data, the rungs whose models of the same seed translate
them (its teachers), and options of `vanilla-transformer backtranslate`. They are in OUTPUT/RUNG/SEED.texts, "{texts}"
in the rung's overrides. Its minutes include its teachers' and the translation's. A rung that begins with the weights of
the one below it has `initial_model: "{below}"`, and its minutes include that one's. Minutes are those of one core, as
they were and as they would have been with nothing else on the machine ("quiet").

Rungs are chosen on the validation set. Test sets are read only with --test: then every finished run that has not been
tested yet translates them once, and OUTPUT/tests.jsonl says when. Scores are lower-cased tokenised BLEU, the score of
the published results, with half of the 95 % interval by bootstrap. "Against the rung below" is the difference of the
means of the seeds that both have, with the p-value of approximate randomisation over all translations of those seeds.
"""

import argparse
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, pairwise, product
from pathlib import Path

import yaml

from vanilla_transformer.data.readers import plain_or_packed
from vanilla_transformer.evaluation.scores import compare_systems, score_translations
from vanilla_transformer.files import text_lines, write_text
from vanilla_transformer.plots.figures import COLORS, finish_axes, new_figure, save
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import translate


LADDER = Path(__file__).with_suffix(".yaml")
RECIPE = "multi30k_en_de"
METRIC = "bleu_lowercase_tokenized"
RUNNING: list[subprocess.Popen] = []


@dataclass(frozen=True)
class Text:
    """What teachers make of a text: a folder of pairs."""

    name: str
    text: str
    teachers: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rung:
    """What a rung is trained with: the overrides and texts of all rungs below it, and its own."""

    name: str
    adds: str
    below: str | None = None
    overrides: dict = field(default_factory=dict)
    texts: tuple[Text, ...] = ()

    @property
    def teachers(self) -> list[str]:
        begins_with = [self.below] if self.overrides.get("initial_model") == "{below}" else []
        return list(dict.fromkeys([*begins_with, *(teacher for text in self.texts for teacher in text.teachers)]))


def read_ladder(path: Path) -> dict[str, Rung]:
    """All rungs by name; in the file, each comes after the one below it."""
    rungs: dict[str, Rung] = {}
    if not path.is_file():
        raise SystemExit(f"There is no file {path}.")
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        below = entry.get("below")
        if below is not None and below not in rungs:
            raise SystemExit(f"{path}: {name} stands on {below}, which does not stand before it.")
        inherited = rungs[below].overrides if below else {}
        overrides = inherited | entry.get("overrides", {})
        texts = tuple(
            Text(text, made["of"], tuple(made["by"]), tuple(map(str, made.get("options", []))))
            for text, made in entry.get("texts", {}).items()
        )
        rungs[name] = Rung(name, entry["adds"], below, overrides, (rungs[below].texts if below else ()) + texts)
        if missing := set(rungs[name].teachers) - set(rungs):
            raise SystemExit(f"{path}: {name} learns from {', '.join(sorted(missing))}, which must stand before it.")
    return rungs


# ------------------------------------------------------------------------------------------------------------ training


def folder_of(output: Path, rung: Rung, seed: int) -> RunFolder:
    return RunFolder(output / rung.name / str(seed))


def texts_of(output: Path, rung: Rung, seed: int) -> Path:
    return output / rung.name / f"{seed}.texts"


def train(rung: Rung, seed: int, data: Path, output: Path, core: int) -> None:
    """Makes a rung's texts and trains it. Raises CalledProcessError if that fails; the log beside the run says why."""
    folder = folder_of(output, rung, seed).path
    texts = texts_of(output, rung, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for text in rung.texts:
        models = [str(output / teacher / str(seed)) for teacher in text.teachers]
        words = [
            "--model",
            *models,
            "--input",
            str(plain_or_packed(data / text.text)),
            "--output",
            str(texts / text.name),
        ]
        run(["backtranslate", *words, *text.options], folder.with_suffix(".log"), [core])
    overrides = {"data.folder": str(data), "data.test": "{}", **rung.overrides, "training.seed": seed}
    below = output / str(rung.below) / str(seed)
    places = {"{texts}": str(texts.resolve()), "{below}": str(below.resolve())}  # the recipe has a folder of its own
    values = {name: json.dumps(value).strip('"') for name, value in overrides.items()}
    for sign, place in places.items():
        values = {name: value.replace(sign, place) for name, value in values.items()}
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    run(["train", RECIPE, *words, "--output", str(folder), "--resume"], folder.with_suffix(".log"), [core])


def run(words: Sequence[str], log: Path, cores: Collection[int]) -> None:
    """Runs one of our commands on these cores, with a thread on each."""
    command = [sys.executable, "-m", "vanilla_transformer", *words]
    with log.open("a") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | {"OMP_NUM_THREADS": str(len(cores))}
        )
        RUNNING.append(process)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, cores)
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, command)


def stop(number: int, frame) -> None:
    """Ends all training, each run with a checkpoint, then this process. (After SIGKILL they go on by themselves.)"""
    for process in RUNNING:
        if process.poll() is None:
            process.terminate()
    for process in RUNNING:
        process.wait()
    os._exit(128 + number)  # threads waiting for a core would begin the next run


class LacksTeacherError(Exception):
    """The teacher of this name could not be trained."""


def train_missing(rungs: Sequence[Rung], seeds: Sequence[int], data: Path, output: Path, workers: int) -> bool:
    """Trains what is not done yet; returns whether all of it succeeded."""
    jobs = [(rung, seed) for seed in seeds for rung in rungs if not folder_of(output, rung, seed).scores.exists()]
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(workers))[:workers]:
        cores.put(core)
    running: dict[tuple[str, int], Future] = {}

    def climb(rung: Rung, seed: int) -> None:
        for teacher in rung.teachers:
            waiting = running.get((teacher, seed))  # it comes before this rung, so it already has a thread
            if waiting is not None and waiting.exception():
                raise LacksTeacherError(teacher)
        core = cores.get()
        try:
            train(rung, seed, data, output, core)
        finally:
            cores.put(core)

    succeeded = True
    with ThreadPoolExecutor(workers) as pool:
        for rung, seed in jobs:
            running[rung.name, seed] = pool.submit(climb, rung, seed)
        for (name, seed), future in running.items():
            log = output / name / f"{seed}.log"
            try:
                future.result()
                print(f"{name} seed {seed}: done", flush=True)
            except subprocess.CalledProcessError as error:
                print(f"{name} seed {seed}: `{error.cmd[3]}` ended with {error.returncode}, see {log}", flush=True)
                succeeded = False
            except LacksTeacherError as error:
                print(f"{name} seed {seed}: not trained, for its teacher {error} failed", flush=True)
                succeeded = False
    return succeeded


# ------------------------------------------------------------------------------------------------------------- results


def translations(folder: RunFolder, test_set: str = "validation") -> tuple[list[str], list[str]]:
    """Hypotheses and references of a finished run."""
    path = folder.translations / f"{test_set}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row["hypothesis"] for row in rows], [row["reference"] for row in rows]


def bleu(hypotheses: Sequence[str], references: Sequence[str], metric: str = METRIC) -> float:
    return score_translations(hypotheses, references, [metric], target_language="de")[0].value


def paired_p(
    below: Sequence[list[str]], this: Sequence[list[str]], references: Sequence[list[str]], metric: str = METRIC
) -> float:
    """The p-value of approximate randomisation over the translations of several seeds, one list for each."""
    systems = {"below": list(chain(*below)), "this": list(chain(*this))}
    [found] = compare_systems(systems, list(chain(*references)), [metric], target_language="de")
    return found.randomization_p


def training_minutes(folder: RunFolder) -> float:
    """On one core, without validation."""
    return max(record.get("elapsed_seconds", 0) for record in folder.log_records()) / 60


def quiet_minutes(folder: RunFolder) -> float:
    """What training takes if nothing else runs: all updates at the pace of the fastest tenth of the records."""
    records = [record for record in folder.log_records() if "loss" in record]
    paces = [
        (after["elapsed_seconds"] - before["elapsed_seconds"]) / (after["step"] - before["step"])
        for before, after in pairwise(records)
        if after["step"] > before["step"]  # a killed run may repeat updates
    ]
    return records[-1]["step"] * sorted(paces)[len(paces) // 10] / 60 if paces else training_minutes(folder)


def minutes(rungs: dict[str, Rung], rung: Rung, seed: int, output: Path, of_training: Callable) -> float:
    """For training and translating on one core, a rung's and its teachers', each once; without validation."""
    needed, spent = [rung.name], 0.0
    for name in needed:  # the list grows
        needed += [teacher for teacher in rungs[name].teachers if teacher not in needed]
        reports = texts_of(output, rungs[name], seed).glob("*/*.report.json")
        spent += sum(json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in reports) / 60
        spent += of_training(folder_of(output, rungs[name], seed))
    return spent


def parameters(folder: RunFolder) -> int:
    return load_model(folder.path, "cpu")[0].num_parameters()


Texts = dict[int, tuple[list[str], list[str]]]  # by seed: hypotheses and references


@dataclass
class Result:
    """What is known about a rung: for each seed the folder, and by test set the texts of each seed."""

    rung: Rung
    runs: dict[int, RunFolder]
    texts: dict[str, Texts]

    def scores(self, test_set: str = "validation") -> dict[int, float]:
        return {seed: bleu(*texts) for seed, texts in self.texts.get(test_set, {}).items()}

    def cells(self, test_set: str, below: "Result | None") -> list[str]:
        """Mean and standard deviation over the seeds, half of a 95 % interval, the difference from `below`, its p."""
        if not (scores := self.scores(test_set)):
            return [""] * 4
        intervals = [
            score_translations(*texts, [METRIC], target_language="de", resamples=1000)[0].confidence
            for texts in self.texts[test_set].values()
        ]
        cells = [spread(scores.values()), f"{statistics.mean(intervals):.2f}", "", ""]
        others = below.scores(test_set) if below else {}
        if seeds := [seed for seed in scores if seed in others]:
            these, references = zip(*(self.texts[test_set][seed] for seed in seeds), strict=True)
            texts_below = [below.texts[test_set][seed][0] for seed in seeds]
            difference = statistics.mean(scores[seed] - others[seed] for seed in seeds)
            cells[2:] = [f"{difference:+.2f}", f"{paired_p(texts_below, these, references):.4f}"]
        return cells


def results(rungs: dict[str, Rung], output: Path) -> dict[str, Result]:
    found = {}
    for name, rung in rungs.items():
        if "data.source_language" in rung.overrides:  # a teacher in the other direction
            continue
        folders = [RunFolder(path) for path in sorted((output / name).glob("*/")) if path.name.isdigit()]
        runs = {int(folder.path.name): folder for folder in folders if folder.scores.exists()}
        if runs:
            found[name] = Result(rung, runs, {"validation": {seed: translations(run) for seed, run in runs.items()}})
    return found


def spread(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def table(rungs: dict[str, Rung], found: dict[str, Result], output: Path) -> Iterator[str]:
    """A row for each rung."""
    sets = list(dict.fromkeys(test_set for result in found.values() for test_set in result.texts))
    heads = ["rung", "adds", "parameters", "minutes", "quiet", "seeds"]
    for test_set in sets:
        heads += [test_set, "± 95 %", "against the rung below", "p"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- | --- |" + " ---: |" * (len(heads) - 2)
    for name, result in found.items():
        cells = [name, result.rung.adds, f"{parameters(next(iter(result.runs.values()))):,}"]
        for way in (training_minutes, quiet_minutes):
            spent = [minutes(rungs, result.rung, seed, output, way) for seed in result.runs]
            cells.append(f"{statistics.mean(spent):.0f}")
        cells.append(str(len(result.runs)))
        for test_set in sets:
            cells += result.cells(test_set, found.get(result.rung.below))
        yield f"| {' | '.join(cells)} |"


def draw(found: dict[str, Result], path: Path) -> None:
    """Draws a dot for each seed and a line at each mean, from the first rung at the bottom to the last at the top."""
    figure = new_figure(9, 1.5 + 0.4 * len(found), "Multi30k English-German, validation")
    axes = figure.subplots()
    for place, result in enumerate(found.values()):
        scores = list(result.scores().values())
        axes.plot(scores, [place] * len(scores), "o", color=COLORS[0], alpha=0.5, markeredgewidth=0)
        axes.plot([statistics.mean(scores)], [place], "|", color=COLORS[1], markersize=18, markeredgewidth=2)
    finish_axes(axes, whole_numbers=False)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlabel("lower-cased tokenised BLEU; a dot is a seed, a bar their mean")
    save(figure, path)


def test_once(found: dict[str, Result], data: Path, output: Path, names: Sequence[str]) -> None:
    """Has every run that is not tested yet translate the test sets, and gives the results their texts.

    OUTPUT/tests/RUNG/SEED.TEST_SET.jsonl has them, and OUTPUT/tests.jsonl says when each was read.
    """
    for name, result in found.items():
        for (seed, folder), test_set in product(result.runs.items(), names):
            files = (plain_or_packed(data / f"{test_set}.{language}") for language in ("en", "de"))
            sources, references = map(list, map(text_lines, files))
            path = output / "tests" / name / f"{seed}.{test_set}.jsonl"
            if not path.exists():
                model, tokenizer = load_model(folder.path, "cpu")
                hypotheses = translate(model, tokenizer, sources)
                now, score = datetime.now().astimezone().isoformat(timespec="seconds"), bleu(hypotheses, references)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, "".join(f"{json.dumps(text)}\n" for text in hypotheses))
                with (output / "tests.jsonl").open("a", encoding="utf-8") as file:
                    read = {"rung": name, "seed": seed, "test_set": test_set, "bleu": score, "read": now}
                    file.write(json.dumps(read) + "\n")
                print(f"{now}: {name} seed {seed} has translated {test_set}: {score:.2f}", flush=True)
            hypotheses = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            result.texts.setdefault(test_set, {})[seed] = hypotheses, references


def parse_rungs(
    parser: argparse.ArgumentParser, rungs_file: Path, option: str
) -> tuple[argparse.Namespace, dict[str, Rung]]:
    """Adds the options common to scripts that train rungs, parses the command line, and reads the file of rungs.

    Args:
        parser: The parser, with the script's own options.
        rungs_file: Where the rungs are, unless `option` names another file.
        option: The option's name.
    """
    parser.add_argument("--data", type=Path, required=True, help="folder of Multi30k's files")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rungs", nargs="*", metavar="RUNG", help="to train: all of them, or these, or none")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, each on a core of its own")
    parser.add_argument(option, dest="file", type=Path, default=rungs_file, help="another file of rungs")
    arguments = parser.parse_args()
    rungs = read_ladder(arguments.file)
    if arguments.rungs is None:
        arguments.rungs = list(rungs)
    if unknown := set(arguments.rungs) - set(rungs):
        parser.error(f"--rungs: there is no {', '.join(sorted(unknown))} in {arguments.file}")
    if arguments.workers < 1:
        parser.error(f"--workers must be at least 1, not {arguments.workers}")
    if not arguments.data.is_dir():
        parser.error(f"--data: there is no folder {arguments.data}")
    for name, seed in product(arguments.rungs, arguments.seeds):
        for teacher in rungs[name].teachers:
            if teacher not in arguments.rungs and not folder_of(arguments.output, rungs[teacher], seed).scores.exists():
                parser.error(f"--rungs: {name} learns from {teacher}, which is not trained with seed {seed}: add it")
    return arguments, rungs


def train_rungs(arguments: argparse.Namespace, rungs: dict[str, Rung]) -> bool:
    """Trains what the command line asks for and is not done yet; returns whether all of it succeeded."""
    chosen = [rung for name, rung in rungs.items() if name in arguments.rungs]  # teachers first
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    succeeded = train_missing(chosen, arguments.seeds, arguments.data, arguments.output, arguments.workers)
    for number, handler in before.items():
        signal.signal(number, handler)
    return succeeded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="let what is trained translate the test sets, once")
    parser.add_argument("--test-sets", nargs="+", default=["test_2016_flickr"], help="their names in --data")
    parser.add_argument("--picture", type=Path, help="where to draw the ladder")
    arguments, rungs = parse_rungs(parser, LADDER, "--ladder")
    succeeded, output = train_rungs(arguments, rungs), arguments.output
    found = results(rungs, output)
    if arguments.test:
        test_once(found, arguments.data, output, arguments.test_sets)
    print("\n".join(table(rungs, found, output)))
    if arguments.picture and found:
        draw(found, arguments.picture)
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
