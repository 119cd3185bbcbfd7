"""Where everything lies: the files of a run, and the recipes that come with the package.

Nothing here needs torch or transformers: `vanilla-transformer recipes` answers at once.
"""

import json
import math
import os
import re
import zipfile
from pathlib import Path

import yaml
from safetensors import SafetensorError, safe_open

from ..files import read_json
from .digests import DIGESTS, DamagedError, check_digests, read_digests


_RECIPES = Path(__file__).resolve().parents[1] / "recipes"
WEIGHTS = "model.safetensors"
MODEL_FILES = (WEIGHTS, "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", DIGESTS)
_LOGGED_NUMBERS = {"step", "elapsed_seconds", "loss", "eval_loss", "eval_perplexity", "eval_bleu", "skipped_updates"}


class RunFolder:
    """The files of one training run. The folder need not exist yet."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.recipe = self.path / "recipe.yaml"
        self.environment = self.path / "environment.json"
        self.data = self.path / "data.json"
        self.finished = self.path / "finished.json"
        self.tokenizer = self.path / "tokenizer"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.averaged = self.path / "averaged"
        self.ema = self.path / "ema"
        self.log = self.path / "log.jsonl"
        self.not_finite = self.path / "not_finite.jsonl"
        self.scores = self.path / "scores.json"
        self.published = self.path / "published.json"
        self.translations = self.path / "translations"
        self.learning_curve = self.path / "learning_curve.png"
        self.attention = self.path / "attention.png"
        # What `train auto` writes before the run begins: its recipe with reasons, the text it has split, and a search.
        self.chosen = self.path / "chosen.yaml"
        self.text = self.path / "text"
        self.search = self.path / "search"
        self.files_of_auto = (self.chosen, self.text, self.search)
        # All files that may exist before the first checkpoint; an evaluation may have drawn a curve.
        records = (self.recipe, self.environment, self.data, self.log)
        self.files_of_a_start = (*records, self.learning_curve, self.not_finite)

    @property
    def names(self) -> list[str]:
        """Names of everything that a run writes into its folder, besides its model."""
        return [path.name for path in vars(self).values() if isinstance(path, Path) and path != self.path]

    def check_places(self) -> None:
        """Raises OSError if a file is where a run has a folder, or the reverse. (Only `checkpoints` may be a link.)"""
        folders = (self.tokenizer, self.checkpoints, self.best, self.averaged, self.ema, self.translations)
        folders += (self.text, self.search)
        for path in folders:
            linked = path.is_symlink() and (path != self.checkpoints or not path.exists())
            if linked or (path.exists() and not path.is_dir()):
                kind = "a symbolic link" if path.is_symlink() else "a file"
                raise NotADirectoryError(f"{path} is {kind}, where a run has a folder: move it elsewhere.")
        for name in (*self.names, *MODEL_FILES):
            path = self.path / name
            if path not in folders and path.is_dir():
                raise IsADirectoryError(f"{path} is a folder, where a run has a file: move it elsewhere.")

    def log_records(self) -> list[dict]:
        """The records logged so far. An unfinished last line is left out: it is being written, or was cut.

        Raises FileNotFoundError if there is no log, and ValueError, with file and line, for a malformed record.
        """
        if not self.log.is_file():
            raise FileNotFoundError(f"There is no training log {self.log}: give the folder of a run.")
        *lines, _ = self.log.read_bytes().split(b"\n")
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(record := json.loads(line))
                for name in _LOGGED_NUMBERS & record.keys():
                    if record[name] is not None:  # null: it was not finite
                        math.isfinite(record[name])
            except (ValueError, AttributeError, TypeError, OverflowError) as error:
                raise ValueError(
                    f"{self.log}, line {number}: no record of a training log ({error}). Remove the line."
                ) from error
        return records

    # ------------------------------------------------------------------------------------------------- records

    def began(self) -> dict:
        """The record that the run wrote when it began; empty if it has not; ValueError if the record is damaged."""
        if not self.environment.exists():
            return {}
        record = read_json(self.environment, "Restore it, or choose another output folder: a run needs what it says.")
        packages = record.get("packages")
        if not isinstance(packages, dict) or "vanilla-transformer" not in packages:
            raise ValueError(f"{self.environment} is not the record of a run: choose another output folder.")
        return record

    def data_record(self) -> dict[str, dict]:
        """The record of the run's text by the names of its sets; empty if it is missing; ValueError if damaged."""
        remedy = "Restore it, or remove it: then the text is not compared with what the run began with."
        record = read_json(self.data, remedy) if self.data.exists() else {}
        kinds = {"fingerprint": str, "corpus": dict}
        if not all(
            isinstance(each, dict) and all(isinstance(each.get(name, kind()), kind) for name, kind in kinds.items())
            for each in record.values()
        ):
            raise ValueError(f"{self.data} is damaged (it is not the account of a run's text). {remedy}")
        return record

    def finished_after(self) -> int | None:
        """The `max_steps` with which training ended; None if it has not; ValueError if the file is damaged."""
        if not self.finished.exists():
            return None
        remedy = "Remove it: the checkpoints also say how far training got."
        steps = read_json(self.finished, remedy).get("max_steps")
        if type(steps) is not int:
            raise ValueError(f"{self.finished} is damaged (it has no max_steps). {remedy}")
        return steps

    # --------------------------------------------------------------------------------------------- checkpoints

    def checkpoint_folders(self) -> list[Path]:
        """The folders named like checkpoints, complete or not, by number of updates."""
        return checkpoints_in(self.checkpoints)

    def good_checkpoints(self) -> list[Path]:
        """The complete checkpoints, by number of updates. Digests are not compared: `fault_of` does that."""
        return [folder for folder in self.checkpoint_folders() if self.fault_of(folder, contents=False) is None]

    def fault_of(self, checkpoint: Path, *, contents: bool = True) -> str | None:
        """The fault of a checkpoint of this run, in a sentence; None if it is sound.

        With `contents` all files are read and digests compared. An unreadable file is not damage: it raises OSError.
        """
        try:
            record = read_digests(checkpoint)
            if record is None:
                # Runs of version 0.1.0 had no names and their checkpoints no digests.
                return "its save was cut short" if "run" in self.began() else _fault_without_digests(checkpoint)
            if record.get("run") != self.began().get("run", record.get("run")):
                return "it is of another run"
            if f"checkpoint-{record.get('step')}" != checkpoint.name:
                return f"it is of update {record.get('step')}"
            check_digests(checkpoint, contents=contents)
        except DamagedError as error:
            return str(error).rstrip(".")
        return None


def checkpoints_in(folder: Path) -> list[Path]:
    """The folders named like checkpoints, by number of updates. (`checkpoint-40-copy` is the user's.)"""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := re.fullmatch(r"checkpoint-(0|[1-9][0-9]*)", path.name):
            if path.is_symlink() or not path.is_dir():
                kind = "a symbolic link" if path.is_symlink() else "a file"
                raise NotADirectoryError(f"{path} is {kind}, not the folder of a checkpoint: move it elsewhere.")
            found[int(match[1])] = path
    return [found[step] for step in sorted(found)]


def _fault_without_digests(checkpoint: Path) -> str | None:
    """The fault that shows without digests: truncated states of optimiser, schedule and random numbers, or weights."""
    state = checkpoint / "trainer_state.json"
    if not state.is_file():  # the trainer writes it last
        return "its save was cut short"
    try:
        if type(read_json(state).get("global_step")) is not int:
            return f"{state} is damaged"
        (checkpoint / WEIGHTS).open("rb").close()  # safe_open's own error does not say why it cannot read
        with safe_open(checkpoint / WEIGHTS, framework="pt"):
            pass
    except (ValueError, FileNotFoundError, SafetensorError) as error:
        return str(error).rstrip(".")
    for pattern in ("optimizer.*", "scheduler.pt", "scaler.pt", "rng_state*.pth"):
        for path in checkpoint.glob(pattern):
            with path.open("rb") as file:  # given a name, is_zipfile returns False if it may not read
                if not zipfile.is_zipfile(file):  # as torch.save writes it
                    return f"{path} is damaged"
    return None


def list_recipes() -> dict[str, str]:
    """Names of the recipes that come with the package, with one line on each."""
    contents = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(_RECIPES.glob("*.yaml"))}
    return {name: content.get("description", "") for name, content in contents.items()}


def typed_to_resume(folder: str | Path) -> str:
    """A run folder as `train --resume` takes it: one named like a recipe would be taken for the recipe."""
    return os.path.join(".", folder) if str(folder) in ("auto", *list_recipes()) else str(folder)


def find_recipe(name_or_path: str) -> Path:
    """The file of a recipe that comes with the package, or of that path. FileNotFoundError names those available."""
    shipped = [_RECIPES / f"{name_or_path}.yaml"] if Path(name_or_path).name == name_or_path else []
    for path in (*shipped, Path(name_or_path)):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in _RECIPES.glob("*.yaml")))
    raise FileNotFoundError(f"There is no recipe {name_or_path!r}: give a YAML file or one of {known}.")
