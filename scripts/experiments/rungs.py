"""Rungs: models of one recipe, each trained like the rung below it with one thing added, and how they compare.

A rung is trained once for each seed, in OUTPUT/RUNG/SEED. The scripts that train rungs share their options
(`parse_rungs`), keep finished runs and resume the others (`train_rungs`). ladder.py describes the files of rungs.
"""

import argparse
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path

import yaml

from vanilla_transformer.data.readers import plain_or_packed
from vanilla_transformer.evaluation.scores import compare_systems, score_translations
from vanilla_transformer.files import text_lines
from vanilla_transformer.run.folder import RunFolder


RECIPE = "multi30k_en_de"
METRIC = "bleu_lowercase_tokenized"
RUNNING: list[subprocess.Popen] = []
STARTING = threading.Lock()  # held by the thread that starts a process; by `stop` until the end of ours


@dataclass(frozen=True)
class Text:
    """A text translated by teachers (see `of_seed`): a folder of pairs."""

    name: str
    text: str
    teachers: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rung:
    """A rung, with the overrides and texts of all rungs below it and its own."""

    name: str
    adds: str
    below: str | None = None
    overrides: dict = field(default_factory=dict)
    texts: tuple[Text, ...] = ()

    @property
    def teachers(self) -> list[str]:
        begins_with = [self.below] if self.overrides.get("initial_model") == "{below}" else []
        return list(dict.fromkeys([*begins_with, *(teacher for text in self.texts for teacher in text.teachers)]))


def of_seed(teacher: str, seed: int) -> tuple[str, int]:
    """The rung and the seed of a teacher: `wide` has the seed of the rung that learns from it, `wide/2` its own."""
    name, slash, own = teacher.partition("/")
    if slash and not own.isdecimal():
        raise SystemExit(f"The seed of a teacher is a number, as in {name}/2, not {teacher}.")
    return name, int(own or seed)


def read_rungs(path: Path) -> dict[str, Rung]:
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
        texts = {text.name: text for text in (rungs[below].texts if below else ())}
        for text, made in (entry.get("texts") or {}).items():
            if made is None:  # a text of the rung below that this one does without
                if texts.pop(text, None) is None:
                    raise SystemExit(f"{path}: {name} does without {text}, which the rung below does not have.")
                continue
            texts[text] = Text(text, made["of"], tuple(made["by"]), tuple(map(str, made.get("options", []))))
        rung = Rung(name, entry["adds"], below, overrides, tuple(texts.values()))
        if missing := {of_seed(teacher, 1)[0] for teacher in rung.teachers} - set(rungs):
            raise SystemExit(f"{path}: {name} learns from {', '.join(sorted(missing))}, which must stand before it.")
        rungs[name] = rung
    return rungs


# ------------------------------------------------------------------------------------------------------------ training


def folder_of(output: Path, rung: str, seed: int) -> RunFolder:
    return RunFolder(output / rung / str(seed))


def texts_of(output: Path, rung: str, seed: int) -> Path:
    return output / rung / f"{seed}.texts"


def train(rung: Rung, seed: int, data: Path, output: Path, core: int) -> None:
    """Makes a rung's texts and trains it. Raises CalledProcessError if that fails; the log beside the run says why."""
    folder = folder_of(output, rung.name, seed).path
    texts = texts_of(output, rung.name, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for text in rung.texts:
        teachers = dict.fromkeys(of_seed(teacher, seed) for teacher in text.teachers)
        models = [str(folder_of(output, *teacher).path) for teacher in teachers]
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
    places = {"{texts}": texts, "{below}": below, "{ladder}": output}
    values = {name: json.dumps(value).strip('"') for name, value in overrides.items()}
    for sign, place in places.items():
        whole = str(place.resolve())  # because the recipe has a folder of its own
        values = {name: value.replace(sign, whole) for name, value in values.items()}
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    run(["train", RECIPE, *words, "--output", str(folder), "--resume"], folder.with_suffix(".log"), [core])


def run(words: Sequence[str], log: Path, cores: Collection[int]) -> None:
    """Runs one of our commands on these cores, with a thread on each. Not for the main thread, where `stop` runs."""
    command = [sys.executable, "-m", "vanilla_transformer", *words]
    with log.open("a") as file:
        with STARTING:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=os.environ | {"OMP_NUM_THREADS": str(len(cores))}
            )
            RUNNING.append(process)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, cores)
        failed = process.wait()
    with STARTING:  # if `stop` has ended the process, it did not fail: this waits for the end
        pass
    if failed:
        raise subprocess.CalledProcessError(process.returncode, command)


def stop(number: int, frame) -> None:
    """Ends all training, each run with a checkpoint, then this process. (After SIGKILL, training keeps running.)"""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # once is enough
    STARTING.acquire()  # so no thread starts the next run
    for process in RUNNING:
        if process.poll() is None:
            process.terminate()
    for process in RUNNING:
        process.wait()
    os._exit(128 + number)


class LacksTeacherError(Exception):
    """The teacher of this name could not be trained."""


def train_missing(rungs: Sequence[Rung], seeds: Sequence[int], data: Path, output: Path, workers: int) -> bool:
    """Trains the rungs that are not done yet; returns whether all succeeded."""
    chosen = {rung.name: rung for rung in rungs}
    jobs: dict[tuple[str, int], Rung] = {}

    def add(name: str, seed: int) -> None:
        """Adds a rung that is not done yet, after its teachers."""
        if name not in chosen or seed not in seeds or (name, seed) in jobs:
            return
        for teacher in chosen[name].teachers:
            add(*of_seed(teacher, seed))
        if not folder_of(output, name, seed).scores.exists():
            jobs[name, seed] = chosen[name]

    for seed, name in product(seeds, chosen):
        add(name, seed)
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(workers))[:workers]:
        cores.put(core)
    running: dict[tuple[str, int], Future] = {}

    def climb(rung: Rung, seed: int) -> None:
        for teacher in rung.teachers:
            waiting = running.get(of_seed(teacher, seed))  # it comes before this rung, so it already has a thread
            if waiting is not None and waiting.exception():
                raise LacksTeacherError(teacher)
        core = cores.get()
        try:
            train(rung, seed, data, output, core)
        finally:
            cores.put(core)

    succeeded = True
    with ThreadPoolExecutor(workers) as pool:
        for (name, seed), rung in jobs.items():
            running[name, seed] = pool.submit(climb, rung, seed)
        for (name, seed), future in running.items():
            log = output / name / f"{seed}.log"
            try:
                future.result()
                print(f"{name} seed {seed}: done", flush=True)
            except subprocess.CalledProcessError as error:
                print(f"{name} seed {seed}: `{error.cmd[3]}` ended with {error.returncode}, see {log}", flush=True)
                succeeded = False
            except LacksTeacherError as error:
                print(f"{name} seed {seed}: not trained, because its teacher {error} failed", flush=True)
                succeeded = False
    return succeeded


# ------------------------------------------------------------------------------------------------------------- measures


def read_set(data: Path, name: str) -> tuple[list[str], list[str]]:
    """Sources and references of one of Multi30k's sets, packed or not."""
    files = (plain_or_packed(data / f"{name}.{language}") for language in ("en", "de"))
    sources, references = map(list, map(text_lines, files))
    return sources, references


def translations(folder: RunFolder, test_set: str = "validation") -> tuple[list[str], list[str]]:
    """Hypotheses and references of a finished run."""
    rows = [json.loads(line) for line in text_lines(folder.translations / f"{test_set}.jsonl")]
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
    """Training time on one core, without validation."""
    return max(record.get("elapsed_seconds", 0) for record in folder.log_records()) / 60


def spread(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


# --------------------------------------------------------------------------------------------------------- command line


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
    rungs = read_rungs(arguments.file)
    if arguments.rungs is None:
        arguments.rungs = list(rungs)
    if unknown := set(arguments.rungs) - set(rungs):
        parser.error(f"--rungs: there is no {', '.join(sorted(unknown))} in {arguments.file}")
    if arguments.workers < 1:
        parser.error(f"--workers must be at least 1, not {arguments.workers}")
    if not arguments.data.is_dir():
        parser.error(f"--data: there is no folder {arguments.data}")
    for name, seed in product(arguments.rungs, arguments.seeds):
        for teacher, its_seed in (of_seed(teacher, seed) for teacher in rungs[name].teachers):
            asked_for = teacher in arguments.rungs and its_seed in arguments.seeds
            if not asked_for and not folder_of(arguments.output, teacher, its_seed).scores.exists():
                parser.error(
                    f"--rungs: {name} learns from {teacher}, which is not trained with seed {its_seed}: add it"
                )
    return arguments, rungs


def train_rungs(arguments: argparse.Namespace, rungs: dict[str, Rung]) -> bool:
    """Trains the requested rungs that are not done yet; returns whether all succeeded."""
    chosen = [rung for name, rung in rungs.items() if name in arguments.rungs]  # teachers first
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    succeeded = train_missing(chosen, arguments.seeds, arguments.data, arguments.output, arguments.workers)
    for number, handler in before.items():
        signal.signal(number, handler)
    return succeeded
