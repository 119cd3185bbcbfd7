"""Where everything lies in the folder of a training run."""

import json
import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .data.tokenizer import load_tokenizer
from .model.ensemble_vanilla_transformer import EnsembleForConditionalGeneration
from .model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from .translation.by_ctranslate2 import ExportedModel


WEIGHTS = "model.safetensors"
_LOGGED_NUMBERS = {"step", "elapsed_seconds", "loss", "eval_loss", "eval_perplexity", "eval_bleu", "skipped_updates"}


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
        self.not_finite = self.path / "not_finite.jsonl"
        self.scores = self.path / "scores.json"
        self.translations = self.path / "translations"
        self.learning_curve = self.path / "learning_curve.png"
        self.attention = self.path / "attention.png"

    def log_records(self) -> list[dict]:
        """What was logged so far. A last line that has no end yet is left out: it is being written, or was cut.

        Raises:
            FileNotFoundError: Nothing was: this is no run folder, or training has not begun.
            ValueError: A line is no record of a training log; file and line are named.
        """
        if not self.log.is_file():
            raise FileNotFoundError(f"There is no training log {self.log}: give the folder of a run.")
        *lines, _ = self.log.read_bytes().split(b"\n")
        return [self._log_record(number, line) for number, line in enumerate(lines, start=1)]

    def _log_record(self, number: int, line: bytes) -> dict:
        try:
            record = json.loads(line)
            for name in _LOGGED_NUMBERS & record.keys():
                if record[name] is not None:  # where it was not finite
                    math.isfinite(record[name])
        except (ValueError, AttributeError, TypeError, OverflowError) as error:
            raise ValueError(f"{self.log}, line {number}: no record of a training log ({error}).") from error
        return record

    def good_checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first.

        The trainer writes a checkpoint's `trainer_state.json` last: if the process is killed before that, the
        checkpoint does not count. Nor does one with a truncated file, as a full disk or a crash of the machine leaves.
        """
        found = []
        for folder in self._all_checkpoints():
            try:
                step = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["global_step"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if _has_whole_files(folder):
                found.append((step, folder))
        return [folder for _, folder in sorted(found)]

    def bad_checkpoints(self) -> list[Path]:
        """Those that `good_checkpoints` leaves out."""
        return sorted(set(self._all_checkpoints()) - set(self.good_checkpoints()))

    def _all_checkpoints(self) -> list[Path]:
        found = self.checkpoints.glob("checkpoint-*")
        return [path for path in found if path.name.removeprefix("checkpoint-").isdecimal()]  # not somebody's copies


def _has_whole_files(checkpoint: Path) -> bool:
    """Whether the weights and the states of optimiser, schedule and random numbers have the length they should have."""
    try:
        with safe_open(checkpoint / WEIGHTS, framework="pt"):
            pass
    except (OSError, SafetensorError):
        return False
    saved = (path for pattern in ("*.pt*", "*.bin") for path in checkpoint.glob(pattern))
    return all(map(zipfile.is_zipfile, saved))  # as torch.save writes it


def find_model(path: str | Path) -> Path:
    """The folder to load a model from: `path` itself, or the averaged (else the best) model of a run folder.

    Args:
        path: A folder; or USER/NAME, or USER/NAME@REVISION, of a model of the Hub, where there is no folder USER. What
            it needs is fetched, unless it is in the cache already; none of its code is.

    Raises:
        FileNotFoundError: There is no model at `path`.
        ConnectionError: The Hub cannot be reached.
        PermissionError: The Hub does not know the token.
    """
    run = RunFolder(path)
    for folder in (run.path, run.averaged, run.best):
        if (folder / "config.json").is_file():
            return folder
    if is_of_the_hub(path):
        return _fetched(str(path))
    if run.checkpoints.is_dir() and run.recipe.is_file():
        raise FileNotFoundError(
            f"The run in {path} is not finished, it has no model yet but its checkpoints: give one of them, or go on "
            "with --resume."
        )
    raise FileNotFoundError(f"There is no model in {path}: give a run folder, a checkpoint or a saved model.")


def is_of_the_hub(path: str | Path) -> bool:
    """Whether `path` can only be USER/NAME or USER/NAME@REVISION: there is no folder USER here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", str(path))) and not Path(path).parent.exists()


def _fetched(name: str) -> Path:
    """A model of the Hub as a folder of the cache."""
    from huggingface_hub import is_offline_mode, snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, revision = name.partition("@")
    patterns = ["*.json", "*.safetensors", "*.spm", "recipe.yaml"]
    try:
        folder = Path(
            snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=patterns,
                ignore_patterns=["*/*"],  # checkpoints, which a training pushes
            )
        )
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise FileNotFoundError(
            f"There is no folder {name}, and no such model on the Hub, or not for you: log in with `hf auth login`."
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, HTTPError, ConnectionError) as error:
        if is_offline_mode():
            raise ConnectionError(
                f"There is no folder {name} and no such model of the Hub in the cache; HF_HUB_OFFLINE is set: unset it."
            ) from error
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            raise PermissionError(
                f"There is no folder {name}, and the Hub does not know your token: log in with `hf auth login`."
            ) from error
        raise ConnectionError(
            f"There is no folder {name}, and the Hub could not be asked for it ({type(error).__name__}): try again."
        ) from error
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{repository} on the Hub holds no model: it has no config.json.")
    return folder


def load_weights(kind: type, path: str | Path):
    """`kind.from_pretrained(path)`, of all the model's weights.

    Raises:
        ValueError: The file lacks some of them, which transformers would make up.
    """
    model, report = kind.from_pretrained(path, output_loading_info=True)
    if missing := sorted(report["missing_keys"]):
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        raise ValueError(f"The weights in {path} are not complete: {missing[0]}{more} missing.")
    return model


def load_model(path: str | Path) -> tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]:
    """Loads the model that `find_model` finds, on the GPU if there is one, and its tokenizer.

    Raises:
        FileNotFoundError: There is no model at `path`.
        ValueError: There is no tokenizer beside it, some of its weights are missing, or it is for CTranslate2.
    """
    found = find_model(path)
    if ExportedModel.is_in(found):
        raise ValueError(
            f"The model in {found} was exported: CTranslate2 can run it (translate --backend ctranslate2)."
        )
    model = load_weights(VanillaTransformerForConditionalGeneration, found)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), load_its_tokenizer(found)


def load_its_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of the model in `folder`.

    Ours is checked; a model that was converted from Marian's has the tokenizer that it came with.

    Raises:
        ValueError: There is none.
    """
    if (folder / "source.spm").is_file():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return load_tokenizer(folder)


def load_ensemble(
    paths: Sequence[str | Path],
) -> tuple[VanillaTransformerForConditionalGeneration | EnsembleForConditionalGeneration, PreTrainedTokenizerBase]:
    """Loads a model as `load_model` does, or several of one vocabulary as an ensemble.

    Raises:
        FileNotFoundError: There is no model at one of the paths.
        ValueError: As for `load_model`; or the vocabularies are not the same.
    """
    models, tokenizers = zip(*(load_model(path) for path in paths), strict=True)
    for path, tokenizer in zip(paths, tokenizers, strict=True):
        if tokenizer.get_vocab() != tokenizers[0].get_vocab():
            raise ValueError(f"{path} has another vocabulary than {paths[0]}: an ensemble has one.")
    return models[0] if len(models) == 1 else EnsembleForConditionalGeneration(list(models)), tokenizers[0]
