"""Damages runs, and puts a user's files in their way: no damage may go unnoticed, and no file of a user may be lost.

    python scripts/faults/damages.py --damages 80 --folders 60 --json damages.json

A run of a few seconds is trained. Copies of it, finished and half-way, get one damage each: bits, zeros, missing
files, files and checkpoints of another run or update, weights that are not numbers, records that are not records,
pickles that run code. `train --resume RUN` must then end as the undamaged run does, bit for bit, and name what was
wrong; or it must end with status 1 or 2 and one message that names it, and change nothing. (A record that only informs
may differ, and one that can be rebuilt may be missing, if the result is the same.)

The folders hold a run, the beginning of one, or neither, with a user's files in every place, some of them unreadable
to another user. Whatever `train` with and without `--resume`, `average`, `publish --dry-run` and `translate` do with
them, each file must be there afterwards, and a command that fails must change nothing.

No command may write a traceback, hang, leave a hidden file when it succeeds, or run code from a file.
The exit status is 0 if there was no fault. It needs Linux, and root to try another user.
"""

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from kills import ROOT, SETTINGS, result_of
from safetensors.torch import load_file, save_file
from signals import BAD

from vanilla_transformer.files import is_leftover
from vanilla_transformer.run.digests import DIGESTS, write_digests


sys.path.insert(0, str(ROOT))
from tests.warm_python import CLI, PACKAGE


HALF, WHOLE = 8, 16
RUN = SETTINGS | {
    "training.max_steps": WHOLE,
    "training.warmup_steps": 8,
    "training.cooldown_steps": 0,
    "training.eval_steps": 4,
    "training.save_steps": 4,
    "training.save_total_limit": 9,
    "decoding.max_new_tokens": 12,
}
OTHER_USER = 65534
# Root without capabilities may read its own files, including Python's, and nobody else's.
WITHOUT_POWERS = (
    "import ctypes; ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())"
)
AS_OTHER_USER = f"{WITHOUT_POWERS}\n{CLI}"
PLACES = ("", "checkpoints", "checkpoints/checkpoint-4", "checkpoints/checkpoint-8", "averaged", "best", "tokenizer")
RECORDS = ("finished.json", "environment.json", "data.json", "tokenizer/tokenizer.json",
           "tokenizer/tokenizer_config.json", "tokenizer/digests.json", "recipe.yaml",
           "checkpoints/checkpoint-8/digests.json", "checkpoints/checkpoint-8/trainer_state.json",
           "averaged/digests.json", "averaged/config.json", "digests.json", "config.json")  # fmt: skip
STATES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
# Without these the result is the same: they are rebuilt, or hold information that nothing needs.
TELLING = ("finished.json", "data.json", "environment.json", "digests.json", "config.json", "averaged", "best",
           "tokenizer", "log.jsonl")  # fmt: skip


def settings(**changes) -> list[str]:
    values = RUN | {f"training.{name}": value for name, value in changes.items()}
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def call(words: list, code: str = CLI, timeout: float = 300) -> tuple[int | None, str]:
    """Status and messages of a command; no status if it hangs."""
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
    try:
        done = PACKAGE.run(code, *words, environment=environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, "It hangs."
    return done.returncode, done.stderr


def train(folder: Path, *more, **changes) -> None:
    status, messages = call(["train", "phrasebook", "--output", folder, *settings(**changes), *more])
    if status != 0:
        sys.exit(f"Without any damage it fails:\n{messages}")


def contents(folder: Path) -> dict[str, object]:
    """Everything in a folder except leftovers, which are removed: links by their targets, files by content, folders."""
    found = {path: path.relative_to(folder) for path in folder.rglob("*")}
    return {
        str(name): os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path, name in found.items()
        if not any(is_leftover(Path(part)) for part in name.parts)
    }


def differences(run: Path, expected: dict) -> list[str]:
    """The parts in which a run's result differs from the expected one."""
    found = result_of(run)
    return [name for name in expected if name not in ("checkpoints", "files") and found[name] != expected[name]]


# ------------------------------------------------------------------------------------------------------------ damages


@dataclass
class Damage:
    """One damage of one run.

    Attributes:
        run: The damaged copy.
        other: Another run, whose files may come into this one.
        marker: A file that must not appear: a pickle that is run would create it.
        what: What was done, in words.
        told: A name that messages must mention.
        silent: Whether it may go unnoticed, as long as the result is the same.
        listed: Whether the digests were updated to match the damage.
        checkpoint: The checkpoint that most damages hit.
    """

    draw: random.Random
    run: Path
    other: Path
    marker: Path
    what: str = ""
    told: str = ""
    silent: bool = False
    listed: bool = False
    checkpoint: Path = field(init=False)

    def __post_init__(self):
        self.checkpoint = self.draw.choice(sorted(self.run.glob("checkpoints/checkpoint-*")))

    def some_file(self) -> Path:
        name = self.draw.choice(STATES if self.draw.random() < 0.7 else ("config.json", "tokenizer.json", DIGESTS))
        return self.checkpoint / name

    def note(self, what: str, path: Path, silent: bool = False) -> None:
        self.what, self.told, self.silent = f"{what} {path.relative_to(self.run)}", path.name, silent
        self.what += " (and its digests fit)" * self.listed
        for checkpoint in (path, path.parent):
            if checkpoint.parent == self.run / "checkpoints":
                self.told = checkpoint.name

    def content(self) -> None:
        """A flipped bit, zeros, a truncated file or an empty one."""
        path = self.some_file() if self.draw.random() < 0.8 else self.run / "tokenizer" / "tokenizer.json"
        content, kind = bytearray(path.read_bytes()), self.draw.choice(["a bit of", "zeros in", "the end of", "all of"])
        at = self.draw.randrange(len(content))
        if kind == "a bit of":
            content[at] ^= 1 << self.draw.randrange(8)
        elif kind == "zeros in":
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        else:
            del content[at if kind == "the end of" else 0 :]
        same = bytes(content) == path.read_bytes()  # zeros replaced by zeros
        path.write_bytes(content)
        self.note(kind, path, silent=same)

    def missing(self) -> None:
        path = self.draw.choice([self.some_file(), self.run / self.draw.choice([*RECORDS, "tokenizer", "averaged"])])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.note("missing:", path, silent=path.name in TELLING and self.checkpoint not in path.parents)

    def exchanged(self) -> None:
        """A file, a checkpoint or a record of another run or update."""
        of_run = self.draw.random() < 0.5
        found = sorted((self.other if of_run else self.run).glob("checkpoints/checkpoint-*"))
        of = self.draw.choice([path for path in found if path != self.checkpoint])
        path = self.some_file()
        if (kind := self.draw.choice(["file", "checkpoint", "record"])) == "file":
            same = (of / path.name).read_bytes() == path.read_bytes()
            shutil.copyfile(of / path.name, path)
        elif kind == "checkpoint":
            path, same = self.checkpoint, False
            shutil.rmtree(path)
            shutil.copytree(of, path)
        else:
            names = ("environment.json", "recipe.yaml", "finished.json", "data.json", "tokenizer")
            path = self.run / self.draw.choice(names)
            other, same = self.other / path.name, False
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            (shutil.copytree if other.is_dir() else shutil.copyfile)(other, path)
            of_run, same = True, path.name in ("data.json", "finished.json")
        self.note(f"of another {'run' if of_run else 'update'}:", path, silent=same)

    def weights(self) -> None:
        path = self.checkpoint / "model.safetensors"
        weights = load_file(path)
        name = self.draw.choice(sorted(weights))
        if missing := self.draw.random() < 0.5:
            del weights[name]
        else:
            weights[name].view(-1)[0] = self.draw.choice([math.nan, math.inf])
        save_file(weights, path, metadata={"format": "pt"})
        self.list_anew()
        self.note("a weight is missing in" if missing else "a weight is not a number in", path, silent=self.listed)

    def list_anew(self) -> None:
        """Half of the time, updates the digests; then damage must be noticed only where something depends on it."""
        if self.draw.random() < 0.5:
            record = json.loads((self.checkpoint / DIGESTS).read_text())
            write_digests(self.checkpoint, run=record["run"], step=record["step"])
            self.listed = True

    def without_part(self) -> None:
        path = self.checkpoint / self.draw.choice(["rng_state.pth", "optimizer.pt", "scheduler.pt"])
        path.unlink()
        self.list_anew()
        self.note("missing:", path, silent=self.listed)

    def record(self) -> None:
        """Malformed records."""
        path = self.run / self.draw.choice(RECORDS)
        told = path.name in ("recipe.yaml", "trainer_state.json") or path.parent.name in ("tokenizer", "checkpoint-8")
        if self.draw.random() < 0.4 and path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
            name = self.draw.choice(sorted(content))
            content[name] = self.draw.choice([None, [], {}, "x", -1, True, 1e308, {"a": [[]]}, [None]])
            path.write_text(json.dumps(content))
            self.note(f"{name} is {content[name]!r} in", path, silent=not told)
            return
        content = self.draw.choice([b"", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe\0", b"[" * 100_000,
                                    b'{"a":' * 100_000])  # fmt: skip
        path.write_bytes(content)
        self.note(f"{content[:12]!r} is", path, silent="averaged" in path.parts or path.parent == self.run)

    def link_or_file(self) -> None:
        path = self.checkpoint
        if link := self.draw.random() < 0.5:
            elsewhere = self.run / "elsewhere"
            path.rename(elsewhere)
            path.symlink_to(self.draw.choice([elsewhere, self.run / "nowhere"]))
        else:
            shutil.rmtree(path)
            path.write_text("x")
        self.note("a link is" if link else "a file is", path)

    def pickle(self) -> None:
        """Something that runs code when it is unpickled."""
        path = self.checkpoint / self.draw.choice(
            ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"]
        )
        path.write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % str(self.marker).encode())
        self.list_anew()
        self.note("a pickle that runs code is", path, silent=self.listed)

    KINDS = (content, content, content, missing, exchanged, exchanged, weights, without_part, record, record, record,
             link_or_file, pickle)  # fmt: skip


def damaged(place: Path, base: dict[str, Path], expected: dict, draw: random.Random) -> dict:
    """Damages a copy of a run, runs a command on it, and returns a record of its faults."""
    state = draw.choice(["half", "whole"])
    run = shutil.copytree(base[state], place / "run", symlinks=True)
    damage = Damage(draw, run, base["other"], place / "executed")
    draw.choice(Damage.KINDS)(damage)
    mine = put_things(run, draw)
    command, told = draw.choices(["train", "average", "publish", "translate"], [9, 1, 1, 1])[0], damage.told
    before = contents(run)
    words = {
        "train": ["train", "--resume", run, *(["--training.max_steps", WHOLE] if state == "half" else [])],
        "average": ["average", run / "checkpoints" / "checkpoint-4", run / "checkpoints" / "checkpoint-8",
                    "--output", place / "average"],
        "publish": ["publish", run, "user/name", "--dry-run"],
        "translate": ["translate", "--model", run, "--output", place / "out", "--input", base["text"]],
    }[command]  # fmt: skip
    status, messages = call(words)
    after = contents(run)
    if damage.listed:  # noticed only when training is about to begin
        after |= {name: before[name] for name in ("recipe.yaml", "finished.json", "scores.json")}
    faults = faults_of(status, messages, place, before == after, mine)
    if command == "train" and status == 0:
        differs = differences(run, expected)
        if differs and "the run ends without that one" not in messages:
            faults.append(f"it ends with another {', '.join(differs)}")
        if not damage.silent and told not in messages:
            faults.append("it says nothing")
        faults += [f"{path.name} is left" for path in run.rglob(".*") if is_leftover(path)]
    elif command != "train" and before != after:
        faults.append("it changed the run")
    record = {"state": state, "command": command, "damage": damage.what, "status": status, "faults": faults}
    return record | {"said": messages.strip().splitlines()[-1:] if status else []}


def faults_of(status: int | None, messages: str, place: Path, unchanged: bool, mine: list[str]) -> list[str]:
    """The forbidden things that a command did."""
    found = ["it hangs"] * (status is None)
    if BAD.search(messages) or status not in (0, 1, 2, None):
        found.append(f"it breaks with status {status}")
    last = messages.strip().splitlines()[-1:] or [""]
    if status and (not last[0].startswith("vanilla-transformer") or last[0].split(": ")[1].endswith("Error")):
        found.append("its message is none")
    if status and not unchanged:
        found.append("it fails and has changed something")
    if (place / "executed").exists():
        found.append("it ran what is in a file")
    there = {content for content in contents(place).values() if isinstance(content, bytes)}
    found += [f"{text.partition(' ')[0]} is gone" for text in mine if text.encode() not in there]
    return found


# ----------------------------------------------------------------------------------------------------- hostile folders


def put(path: Path) -> str:
    """Writes a user's file, recognisable by its content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"{path.name} {uuid4().hex}"
    path.write_text(text)
    return text


def put_things(run: Path, draw: random.Random, count: int = 2) -> list[str]:
    folders = [run / place for place in draw.sample(PLACES, count)]
    return [put(folder / "mine.txt") for folder in folders if folder.is_dir() and not folder.is_symlink()]


def hostile(place: Path, base: dict[str, Path], draw: random.Random) -> tuple[str, list[str], bool]:
    """Makes a folder with a user's files; returns its description, their texts, and whether to use another user."""
    run, mine = place / "run", []
    kind = draw.choice(["none", "record", "begun", "begun", "half", "half", "whole", "whole"])
    if kind in ("half", "whole"):
        shutil.copytree(base[kind], run)
    else:
        run.mkdir()
        names = {
            "begun": ("environment.json", "recipe.yaml", "data.json", "tokenizer"),
            "record": ("environment.json",),
        }
        for name in names.get(kind, ()):
            source = base["half"] / name
            shutil.copytree(source, run / name) if source.is_dir() else shutil.copyfile(source, run / name)
    done = [kind]
    for trick in draw.sample(TRICKS, draw.randint(1, 2)):
        done.append(trick.__name__)
        mine += trick(run, place, draw)
    if other_user := os.getuid() == 0 and draw.random() < 0.3:
        done.append("another user's")
        files = [path for path in run.rglob("*") if path.is_file() and not path.is_symlink()]
        path = draw.choice(files or [run])
        os.chown(path, OTHER_USER, OTHER_USER)
        path.chmod(0o600)
        done.append(str(path.relative_to(place)))
    return ", ".join(done), mine, other_user


def in_some_place(run: Path, place: Path, draw: random.Random) -> list[str]:
    name = draw.choice(["thesis.tex", "tokenizer/precious", "checkpoints/notes.txt", "checkpoints/checkpoint-8/news.pt",
                        "averaged/precious", "best/deep/precious", "translations/precious", ".git/config",
                        "checkpoints/checkpoint-4.damaged/precious", "checkpoints/.old/precious"])  # fmt: skip
    return [put(run / name)]


def copies(run: Path, place: Path, draw: random.Random) -> list[str]:
    text = [put(run / "checkpoints" / name / "precious") for name in ("checkpoint-40-good", "checkpoint-8.kept")]
    return [*text, put(run / "checkpoints" / "checkpoint-40-good" / "model.safetensors")]


def leftovers(run: Path, place: Path, draw: random.Random) -> list[str]:
    for name in ("recipe.yaml", "tokenizer", "averaged", "model", "checkpoints/checkpoint-8"):
        path = run / name
        put(path.with_name(f".{path.name}.{uuid4().hex}") / "model.safetensors")
    return []


def own_record(run: Path, place: Path, draw: random.Random) -> list[str]:
    name = draw.choice(["recipe.yaml", "environment.json", "finished.json", "data.json", "tokenizer/tokenizer.json"])
    return [put(run / name)]


def folder_for_a_file(run: Path, place: Path, draw: random.Random) -> list[str]:
    path = run / draw.choice(["log.jsonl", "recipe.yaml", "learning_curve.png", "not_finite.jsonl", "scores.json",
                              "config.json", "model.safetensors", "attention.png"])  # fmt: skip
    path.unlink(missing_ok=True)
    return [put(path / "precious")]


def file_for_a_folder(run: Path, place: Path, draw: random.Random) -> list[str]:
    path = run / draw.choice(["averaged", "best", "tokenizer", "checkpoints", "translations"])
    shutil.rmtree(path, ignore_errors=True)
    return [put(path)]


def link_elsewhere(run: Path, place: Path, draw: random.Random) -> list[str]:
    path, elsewhere = (
        run / draw.choice(["averaged", "best", "tokenizer", "checkpoints", "translations"]),
        place / "else",
    )
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists() and not elsewhere.exists():
        elsewhere.mkdir()
        path.symlink_to(elsewhere)
    return [put(elsewhere / "precious"), put(elsewhere / "tokenizer.json"), put(elsewhere / "checkpoint-8" / "news.pt")]


TRICKS: tuple[Callable, ...] = (in_some_place, in_some_place, copies, leftovers, own_record, folder_for_a_file,
                                file_for_a_folder, link_elsewhere)  # fmt: skip


def tried(place: Path, base: dict[str, Path], expected: dict, draw: random.Random) -> dict:
    """Runs a command on a hostile folder, and returns a record of its faults."""
    what, mine, other_user = hostile(place, base, draw)
    run, before = place / "run", contents(place)
    words = draw.choice([
        ["train", "phrasebook", "--output", run, *settings()],
        ["train", "phrasebook", "--output", run, "--resume", *settings()],
        ["train", "phrasebook", "--output", run, "--resume", *settings()],
        ["train", "--resume", run, "--training.max_steps", WHOLE],
        ["train", "--resume", run, "--training.max_steps", WHOLE],
        ["average", run, "--output", run / "averaged"],
        ["publish", run, "user/name", "--dry-run"],
        ["translate", "--model", run, "--input", base["text"], "--output", place / "out"],
    ])  # fmt: skip
    status, messages = call(words, AS_OTHER_USER if other_user else CLI)
    faults = faults_of(status, messages, place, before == contents(place), mine)
    if words[0] == "train" and status == 0:
        faults += [f"it ends with another {name}" for name in differences(run, expected)]
        faults += [f"{path.name} is left" for path in run.rglob(".*") if is_leftover(path)]
    command = " ".join(map(str, words[:1])) + " --resume" * ("--resume" in words)
    record = {"folder": what, "command": command, "status": status, "faults": faults}
    return record | {"said": messages.strip().splitlines()[-1:] if status else []}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=80, metavar="N")
    parser.add_argument("--folders", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="decides what is done")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="the damage or folder of that number alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        base = {state: folder / state for state in ("half", "whole", "other")} | {"text": folder / "text.en"}
        base["text"].write_text("The dog is old.\n")
        train(base["half"], max_steps=HALF)
        train(base["other"], max_steps=HALF, seed=7)
        train(shutil.copytree(base["half"], base["whole"]), "--resume")
        expected, records = result_of(base["whole"]), {"damages": [], "folders": []}
        for kind, count, attempt in (("damages", options.damages, damaged), ("folders", options.folders, tried)):
            for number in range(1, count + 1):
                if options.only not in (None, number):
                    continue
                place = folder / f"{kind}-{number}"
                place.mkdir()
                record = attempt(place, base, expected, random.Random(f"{options.seed} {kind} {number}"))
                records[kind].append({"number": number, **record})
                print(*(f"{key}: {value}" for key, value in record.items()), sep=", ", file=sys.stderr, flush=True)
                shutil.rmtree(place)
    everything = [record for each in records.values() for record in each]
    faulty = [record for record in everything if record["faults"]]
    figures = {kind: len(each) for kind, each in records.items()}
    figures |= {f"{kind}_by_status": dict(Counter(r["status"] for r in each)) for kind, each in records.items()}
    figures |= {"faults": len(faulty), "seed": options.seed}
    print("\n".join(f"{name}: {value}" for name, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps({**figures, **{f"each_of_{k}": r for k, r in records.items()}}, indent=2))
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
