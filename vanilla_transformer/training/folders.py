"""Where everything lies in a run folder, and how it gets there without ever being half-written."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


class RunFolder:
    """The files of one training run.

    Args:
        path: The run folder; it need not exist yet.
    """

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
        self.log = self.path / "log.jsonl"
        self.scores = self.path / "scores.json"
        self.translations = self.path / "translations"
        self.learning_curve = self.path / "learning_curve.png"
        self.attention = self.path / "attention.png"

    def log_records(self) -> list[dict]:
        """What was logged so far."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def good_checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first.

        The trainer writes a checkpoint's `trainer_state.json` last: if the process is killed before that, the
        checkpoint does not count. Files damaged afterwards are not looked for.
        """
        found = []
        for folder in self.checkpoints.glob("checkpoint-*"):
            try:
                step = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["global_step"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            found.append((step, folder))
        return [folder for _, folder in sorted(found)]


def find_model(path: str | Path) -> Path:
    """The folder to load a model from: `path` itself, or the averaged (else the best) model of a run folder.

    Raises:
        FileNotFoundError: There is no model at `path`.
    """
    run = RunFolder(path)
    for folder in (run.path, run.averaged, run.best):
        if (folder / "config.json").is_file():
            return folder
    raise FileNotFoundError(f"There is no model in {path}: give a run folder, a checkpoint or a saved model.")


def write_text(path: Path, text: str) -> None:
    """Writes a file that is complete from the moment it is there."""
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content) -> None:
    """Writes JSON that people can read; the file is complete from the moment it is there."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives an empty folder to fill, which becomes `path` if nothing went wrong and vanishes otherwise.

    Raises:
        FileExistsError: `path` exists.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists already: remove it or choose another place.")
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    beside.mkdir(parents=True)
    try:
        yield beside
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
