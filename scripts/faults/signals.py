"""Sends commands random signals and checks what they leave: no traceback, no leftover, no worker, and the same result.

    python scripts/faults/signals.py --signals 200 --json signals.json

`train`, `translate`, `prepare`, `evaluate`, `export` and `publish --dry-run` are started over and over and get a
SIGINT, SIGTERM or SIGKILL, alone or with all their workers, at a moment drawn from the whole life of an undisturbed
command, and often from its first moments, when Python starts and modules are imported. (Moments are in processor time,
which hardly depends on what else the machine is doing.) Some get a second signal soon after the first. After SIGINT
and SIGTERM there must be no hidden file, no worker and no traceback, and the status must say which signal it was.
Leftovers of SIGKILL or of a second signal must be gone once the same command has run to its end, which it does after
at most three signals; then the result must be that of the undisturbed command, bit for bit.

The only traceback allowed is Python's own, for a SIGINT that comes before this package's first lines have run.
The exit status is 0 if there was no fault. It needs Linux, where /proc tells which processes are alive and which
handle signals.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
from kills import ROOT, SMALL


SETTINGS = {
    **SMALL,
    "training.max_steps": 60,
    "training.warmup_steps": 20,
    "training.max_tokens": 256,
    "training.eval_steps": 10,
    "training.save_steps": 10,
    "training.logging_steps": 1,
    "training.average_last": 2,
    "training.generation_num_beams": 1,
    "decoding.num_beams": 1,
    "decoding.max_new_tokens": 12,
}
OVERRIDES = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
# A corpus of several shards, so that `prepare` does more than learn a vocabulary.
CORPUS = ["--data.train", "phrasebook:train:20000", "--tokenizer.vocab_size", "300"]
NAMES = {signal.SIGINT: "INT", signal.SIGTERM: "TERM", signal.SIGKILL: "KILL"}
TIMES = ("elapsed_seconds", "eval_runtime", "target_tokens_per_second")
BAD = re.compile(r"Traceback|Exception ignored|Fatal Python|terminate called|panicked|core dumped|Segmentation")


@dataclass
class Done:
    """The outcome of a command.

    Attributes:
        status: Its status, or the signal that ended it, below 0.
        life: Seconds of processor time.
        came: When it got the signal: "before" the package's handler was installed, "during" its time, or "after" it;
            None: never.
        remained: How many of its processes were still there two seconds after its end.
    """

    status: int
    output: str
    errors: str
    life: float
    came: str | None
    remained: int


def words_of(name: str, place: Path, run: Path) -> list[str]:
    """The command line that writes its result to a folder."""
    text = [str(run.parent / f"text.{language}") for language in ("en", "de")]
    return {
        "train": ["train", "phrasebook", "--output", str(place / "run"), "--resume", *OVERRIDES],
        "translate": ["translate", "--model", str(run), "--input", text[0], "--output", str(place / "out.txt"),
                      "--workers", "2"],
        "prepare": ["prepare", "phrasebook", "--output", str(place / "prepared"), "--workers", "2", *CORPUS],
        "evaluate": ["evaluate", "--model", str(run), "--sources", text[0], "--references", text[1], "--json"],
        "export": ["export", str(run), "--output", str(place / "exported")],
        "publish": ["publish", str(run), "user/name", "--dry-run"],
    }[name]  # fmt: skip


COMMANDS = ("train", "translate", "prepare", "evaluate", "export", "publish")


def start(words: list[str], place: Path) -> subprocess.Popen:
    environment = {"PYTHONUTF8": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(place / "tmp")}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(place.parent / "inductor")  # torch creates it on import
    files = [(place / f"{stream}.log").open("w") for stream in ("output", "errors")]
    with files[0], files[1]:
        return subprocess.Popen(
            [sys.executable, "-m", "vanilla_transformer.cli", *words],
            cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1],
            start_new_session=True, preexec_fn=_handle_interrupts,
        )  # fmt: skip


def _handle_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts background jobs with it ignored


def handles_signals(pid: int) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def members(session: int) -> list[int]:
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def run(words: list[str], place: Path, signals=(), moment: float = 0.0, pause: float = 0.0, group=False) -> Done:
    """Runs a command; sends it the signals from a moment on, with a pause between them."""
    process, life, handled, came, waiting = start(words, place), 0.0, False, None, list(signals)
    try:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):  # it has just ended
                times = psutil.Process(process.pid).cpu_times()
                life = times.user + times.system or life
            if waiting and life >= moment:
                if came is not None:
                    time.sleep(pause)
                elif handles_signals(process.pid):
                    came = "during"
                else:
                    came = "after" if handled else "before"
                with contextlib.suppress(ProcessLookupError):
                    (os.killpg if group else os.kill)(process.pid, waiting.pop(0))
            handled = handled or handles_signals(process.pid)
            time.sleep(0.002)
    finally:
        if process.poll() is None:  # this script was interrupted, which the command does not hear
            for pid in members(process.pid):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + (2 if signal.SIGKILL not in signals else 10)
    while (left := members(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    output, errors = ((place / f"{stream}.log").read_text(errors="replace") for stream in ("output", "errors"))
    return Done(process.returncode, output, errors, life, came, len(left))


def hidden(place: Path) -> set[Path]:
    """Leftovers: hidden files, and everything in the folder for temporary files."""
    return {path for path in place.rglob("*") if path.name.startswith(".")} | set((place / "tmp").iterdir())


def result_of(name: str, place: Path, done: Done) -> dict:
    """Everything that must be the same in the end."""
    if name in ("evaluate", "publish"):
        return {"output": re.sub(r"\S*/place-\d+", "", done.output)}
    if name != "train":
        files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".log"]
        return {str(path.relative_to(place)): path.read_bytes() for path in files}
    folder = place / "run"
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    training = [record for record in records if "train_runtime" not in record]
    last = max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    return {
        **{f"{model} weights": (folder / model / "model.safetensors").read_bytes() for model in ("averaged", "best")},
        "last weights": (last / "model.safetensors").read_bytes(),
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        "log": [{key: value for key, value in record.items() if key not in TIMES} for record in training],
        "scores": (folder / "scores.json").read_text(encoding="utf-8"),
        "files": sorted(path.name for path in folder.iterdir()),
    }


def faults_of(done: Done, number: int, twice: bool, new: set[Path]) -> list[str]:
    """The forbidden effects of a signal."""
    found = []
    if done.remained:
        found.append(f"{done.remained} processes are left")
    if number == signal.SIGKILL or done.came is None:  # or it had ended before
        return found
    pythons_own = number == signal.SIGINT and done.came == "before"
    if BAD.search(done.errors) and not pythons_own:
        found.append("it wrote a traceback")
    if twice:
        return found
    if new:
        found.append(f"it left {', '.join(path.name for path in sorted(new))}")
    allowed = {"before": (-number, 128 + number, 1), "during": (128 + number, 0), "after": (-number, 0)}[done.came]
    if done.status not in allowed:  # 0: it had just finished
        found.append(f"its status is {done.status}")
    return found


def disturbed(name: str, place: Path, undisturbed: Path, life: float, count: int, draw: random.Random) -> list[dict]:
    """Sends a command at most `count` signals, one per start; returns a record of each."""
    records, words = [], words_of(name, place, undisturbed)
    for _ in range(count):
        number = draw.choice(list(NAMES))
        moment = draw.uniform(0, draw.choice([life, life, life, life / 3, min(life, 0.15)]))
        twice, group = number != signal.SIGKILL and draw.random() < 0.15, draw.random() < 0.5
        before = hidden(place)
        done = run(words, place, [number] * (2 if twice else 1), moment, draw.uniform(0.3, 1), group)
        faults = faults_of(done, number, twice, hidden(place) - before)
        record = {"command": name, "signal": NAMES[number], "twice": twice, "to_all": group, "second": round(moment, 2)}
        record |= {"status": done.status, "came": done.came, "faults": faults}
        record["pythons_traceback"] = done.came == "before" and bool(BAD.search(done.errors))
        records.append(record)
        print(*(f"{key}: {value}" for key, value in record.items()), sep=", ", file=sys.stderr, flush=True)
        if faults:
            print(done.errors, file=sys.stderr, flush=True)
        if done.status == 0:
            break
    return records


def faults_at_the_end(name: str, place: Path, undisturbed: Path, expected: dict) -> list[str]:
    """Runs the command to its end; returns its faults."""
    for path in (place / "exported", place / "out.txt"):  # complete already; `export` replaces nothing
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    done = run(words_of(name, place, undisturbed), place)
    if done.status != 0:
        return [f"run to its end it fails: {done.errors}"]
    found = result_of(name, place, done)
    faults = [f"another {key}" for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)]
    return faults + [f"{path.name} is still there" for path in sorted(hidden(place))]


def new_place(folder: Path, number: int) -> Path:
    place = folder / f"place-{number}"
    (place / "tmp").mkdir(parents=True)
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=200, metavar="N")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("--seed", type=int, default=1, help="decides which signals, and when")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    draw, signals, ends = random.Random(options.seed), [], []
    with tempfile.TemporaryDirectory() as name:
        folder, places = Path(name), 0
        expected, lives, undisturbed = {}, {}, folder / "place-0" / "run"
        for command in dict.fromkeys(["train", *options.commands]):
            place = new_place(folder, places)
            if command == "train":
                for language, line in (("en", "The dog is old."), ("de", "Der Hund ist alt.")):
                    (place / f"text.{language}").write_text(f"{line}\n" * 50)
            done = run(words_of(command, place, undisturbed), place)
            if done.status:
                sys.exit(f"{command} fails without any signal:\n{done.errors}")
            expected[command], lives[command], places = result_of(command, place, done), done.life, places + 1
            print(f"{command} takes {done.life:.1f} s.", file=sys.stderr, flush=True)
        while len(signals) < options.signals:
            command = options.commands[len(ends) % len(options.commands)]
            place, places = new_place(folder, places), places + 1
            count = min(draw.randint(1, 3), options.signals - len(signals))
            signals += disturbed(command, place, undisturbed, lives[command], count, draw)
            faults = faults_at_the_end(command, place, undisturbed, expected[command])
            ends.append({"command": command, "faults": faults})
            if faults:
                print(f"{command} in the end: {'; '.join(faults)}", file=sys.stderr, flush=True)
            shutil.rmtree(place)
    faulty = [record for record in (*signals, *ends) if record["faults"]]
    figures = {
        "signals": len(signals),
        "of_each_kind": dict(Counter(record["signal"] for record in signals)),
        "of_each_command": dict(Counter(record["command"] for record in signals)),
        "sent_twice": sum(record["twice"] for record in signals),
        "came": dict(Counter(record["came"] for record in signals)),
        "with_pythons_own_traceback": sum(record["pythons_traceback"] for record in signals),
        "run_to_the_end": len(ends),
        "equal_to_the_undisturbed": sum(not end["faults"] for end in ends),
        "faults": len(faulty),
        "seed": options.seed,
    }
    print("\n".join(f"{name}: {value}" for name, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps({**figures, "each_signal": signals, "each_end": ends}, indent=2) + "\n")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
