"""Averages the weights of several checkpoints into one model (section 6.1: the last 5 for base, 20 for big)."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..data.known_words import KNOWN_WORDS
from ..files import written_beside
from ..run.digests import check_digests, write_digests
from ..run.folder import WEIGHTS
from .low_rank import merged


# With its weights, these files make a checkpoint a loadable model; the rest of its folder is the trainer's.
_COMPANIONS = (
    "config.json",
    "*_vanilla_transformer.py",  # the code that the configuration names
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "recipe.yaml",
    KNOWN_WORDS,
)


def average_checkpoints(checkpoints: Sequence[str | Path], output: str | Path, *, weights: str = WEIGHTS) -> None:
    """Writes a model atomically; each of its weights is the mean of that weight in all `checkpoints`.

    Sums are taken in float64; a weight keeps the type it is stored in. Configuration and tokenizer are copied from the
    last checkpoint. Adapters are merged in first.

    Args:
        checkpoints: Folders of models, all of one architecture.
        output: The new model's folder; it must not exist.
        weights: The file to read in each, if not `model.safetensors`.

    Raises:
        FileExistsError: `output` exists.
        FileNotFoundError: A checkpoint has no such file.
        ValueError: There are no checkpoints, one is damaged, or their weights differ in name or shape.
        FloatingPointError: The mean is not finite.
    """
    if not checkpoints:
        raise ValueError("There are no checkpoints to average.")
    folders = [Path(checkpoint) for checkpoint in checkpoints]
    with written_beside(Path(output)) as beside:
        others = _weights(folders[0] / weights)
        mean = {name: weight.double() for name, weight in others.items()}
        for folder in folders[1:]:
            others = _weights(folder / weights)
            for name in mean.keys() | others.keys():
                shapes = [tuple(w[name].shape) if name in w else None for w in (mean, others)]
                if shapes[0] != shapes[1]:
                    raise ValueError(
                        f"{folders[0]} and {folder} are not of one architecture: {name} has the shapes "
                        f"{shapes[0] or 'none'} and {shapes[1] or 'none'}."
                    )
                mean[name] += others[name].double()
        mean = {name: (total / len(folders)).to(others[name].dtype) for name, total in mean.items()}
        for name, weight in mean.items():
            if not weight.isfinite().all():
                raise FloatingPointError(
                    f"The weights of {', '.join(map(str, folders))} are not finite ({name}): the model is of no use. "
                    "Train with a lower rate (training.noam_factor, or learning_rate without it)."
                )
        save_file(mean, beside / WEIGHTS, metadata={"format": "pt"})
        _copy_companions(folders[-1], beside)
        write_digests(beside)


def copy_model(model: Path, output: Path) -> None:
    """Copies a model or checkpoint to a second folder; its weights take no space where the disk has hard links."""
    output.mkdir(parents=True)
    try:
        os.link(model / WEIGHTS, output / WEIGHTS)
    except OSError:
        shutil.copy(model / WEIGHTS, output)
    _copy_companions(model, output)


def _copy_companions(model: Path, output: Path) -> None:
    for pattern in _COMPANIONS:
        for path in model.glob(pattern):
            check_digests(model, [path.name])
            shutil.copy(path, output)


def is_of_a_model(path: Path) -> bool:
    """Whether a file has the name of one of a model's files."""
    return path.name == WEIGHTS or any(map(path.match, _COMPANIONS))


def _weights(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}: it is not a checkpoint.")
    check_digests(path.parent, [path.name])
    try:
        with safe_open(path, framework="pt") as file:
            return merged({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): leave this checkpoint out.") from error
