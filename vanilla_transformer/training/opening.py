"""Prepares a folder for training: for a new run, or for a resumed one, which must be the same run."""

import contextlib
import dataclasses
import logging
import re
import shutil
from pathlib import Path
from uuid import uuid4

import torch

from ..environment import machine, versions
from ..files import is_leftover, remove_leftovers, write_json, write_text
from ..run.digests import DIGESTS, DamagedError, check_digests, read_digests
from ..run.folder import RunFolder, typed_to_resume
from ..run.recipe import Recipe, differing_fields, load_recipe
from .arguments import VanillaTransformerTrainingArguments, rate_factors
from .checkpoints import (
    finish_removals,
    is_removed_checkpoint,
    none_is_whole,
    recover,
    remove_checkpoint,
    set_aside,
    trainer_state,
    was_cut_short,
)
from .run_data import RunData
from .run_results import MADE_MODEL


logger = logging.getLogger(__name__)

# Fields that may change between the sessions of one run, besides those of decoding and evaluation. (The text may move,
# because its fingerprint may not change; for max_steps see check_same_rates.)
_MAY_CHANGE = {
    *(f"training.{name}" for name in ("max_steps", "max_minutes", "average_last", "save_total_limit")),
    *(f"training.{name}" for name in ("max_skipped_updates", "push_to_hub", "hub_model_id", "hub_private_repo")),
    *(f"training.{name}" for name in ("hub_revision", "hub_strategy", "hub_always_push", "eval_delay")),
    *(f"data.{name}" for name in ("folder", "train", "validation", "test", "patience")),
}


def open_folder(
    folder: RunFolder,
    recipe: Recipe,
    data: RunData,
    resume: bool,
    arguments: VanillaTransformerTrainingArguments,
    command: str | None,
) -> None:
    """Prepares a folder for training. All checks come before the first change."""
    if folder.checkpoint_folders() and not resume:
        raise FileExistsError(f"{folder.path} holds a run already: add --resume to go on, or choose another folder.")
    folder.check_places()
    if checkpoints := folder.good_checkpoints():
        if not folder.recipe.is_file():
            raise FileNotFoundError(
                f"{folder.recipe} is missing: every checkpoint of the run has a copy, restore that."
            )
        folder.finished_after()  # raises if the file is damaged
        for begun in filter(None, (folder.recipe, _newest_copy(checkpoints, "recipe.yaml"))):
            _check_same_recipe(load_recipe(begun), recipe, begun)
        if folder.tokenizer.exists():  # if it is gone, the same one is learned again
            check_digests(folder.tokenizer)
            _check_vocabulary(folder)
        before, now = folder.began().get("processes", 1), arguments.world_size
        if before != now:
            raise ValueError(
                f"{folder.path} was begun with {before} processes, not {now}: which pairs come next depends on their "
                "number. Resume with the same, or choose another output folder."
            )
        if (state := _newest_copy(checkpoints, "trainer_state.json")) is not None:
            check_same_rates(state.parent, arguments)
        data.check_same(folder)
        recover(folder, arguments)
        remove_leftovers(folder.path, *folder.names, MADE_MODEL)
        finish_removals(folder.checkpoints)
    else:
        _clear_failed_start(folder)
        write_json(folder.environment, _environment(arguments, command))
    write_text(folder.recipe, recipe.to_yaml())


def make_vocabulary(folder: RunFolder, data: RunData, show_progress: bool) -> None:
    """Makes the run's vocabulary if it has none: for a run with checkpoints, the same as theirs.

    Raises:
        ValueError: It would not be the same, say because the initial model has another one by now. Nothing is left.
    """
    is_lost = not folder.tokenizer.exists()
    data.make_tokenizer(folder, show_progress)
    try:
        _check_vocabulary(folder)
    except ValueError as error:
        if not is_lost:
            raise
        shutil.rmtree(folder.tokenizer)
        source = data.recipe.initial_model or "the training text"
        raise ValueError(
            f"{folder.tokenizer} is gone, and {source} gives another vocabulary now than when the run was begun: "
            "restore one of them."
        ) from error


def _check_vocabulary(folder: RunFolder) -> None:
    """Raises ValueError if the run has another vocabulary than its checkpoints."""
    copy, own = _newest_copy(folder.good_checkpoints(), "tokenizer.json"), folder.tokenizer / "tokenizer.json"
    if copy is not None and (not own.is_file() or own.read_bytes() != copy.read_bytes()):
        raise ValueError(f"{own} is not the vocabulary that the run was begun with: restore it, {copy} is a copy.")


def _newest_copy(checkpoints: list[Path], name: str) -> Path | None:
    """The newest intact copy of a file in a checkpoint, if any: the run's own may be damaged, or another run's."""
    for checkpoint in reversed(checkpoints):
        with contextlib.suppress(DamagedError):
            check_digests(checkpoint, [name])
            if (checkpoint / name).is_file():
                return checkpoint / name
    return None


def check_start(folder: RunFolder) -> list[Path]:
    """Raises the errors of a new run in this folder, and changes nothing; returns the leftover of a killed save."""
    found = folder.checkpoint_folders()
    if len(found) > 1 or not all(map(was_cut_short, found)):
        raise none_is_whole({path: folder.fault_of(path) for path in found})
    if folder.finished.exists():
        raise FileExistsError(
            f"The run in {folder.path} is finished and its checkpoints are gone: there is nothing to go on from. "
            "Choose another output folder."
        )
    if strangers := _not_of_a_start(folder):
        name = strangers[0].relative_to(folder.path)
        raise FileExistsError(f"{folder.path} is not a run folder, it holds {name}: choose another one.")
    return found


def _clear_failed_start(folder: RunFolder) -> None:
    """Lets a run that ended before its first checkpoint begin anew. If anything was trained, nothing is removed."""
    found = check_start(folder)
    remove_leftovers(folder.path, *folder.names, MADE_MODEL)
    finish_removals(folder.checkpoints)
    for path in found:  # there may be one checkpoint, left half-written by a kill
        logger.warning("Beginning anew: the save of %s was cut short.", path)
        if (path / "trainer_state.json").exists():  # it is nearly complete
            set_aside(path, f"{path.name}.damaged")
        else:
            remove_checkpoint(path)
    for path in folder.files_of_a_start:
        if path != folder.environment:  # it marks a run folder, should this be killed; the new start replaces it
            path.unlink(missing_ok=True)
    shutil.rmtree(folder.tokenizer, ignore_errors=True)


def _not_of_a_start(folder: RunFolder) -> list[Path]:
    """Paths that a run without a checkpoint does not have: if there are any, the folder is something else."""
    found = [path for path in sorted(folder.path.iterdir()) if not is_leftover(path, *folder.names, MADE_MODEL)]
    found = [path for path in found if path not in folder.files_of_auto]
    try:
        if found and not folder.began():
            return found
    except ValueError:
        return [folder.environment]
    tokenizer, checkpoints = folder.tokenizer, folder.checkpoints
    strangers = [path for path in found if path not in {*folder.files_of_a_start, tokenizer, checkpoints}]
    for path, read in (
        (folder.recipe, lambda: load_recipe(folder.recipe)),
        (folder.data, folder.data_record),
        (folder.log, folder.log_records),
    ):
        try:
            if path.exists():
                read()
        except ValueError:
            strangers.append(path)
    if tokenizer.exists():
        listed = (read_digests(tokenizer) or {}).get("files", ("tokenizer.json", "tokenizer_config.json"))
        strangers += [p for p in tokenizer.iterdir() if p.name not in (DIGESTS, *listed) or not p.is_file()]
    if checkpoints.exists():
        # `config.json` and the code are for pushes; `runs` is TensorBoard's.
        of_runs = re.compile(
            r"checkpoint-\d+(\.(damaged|kept|later)(-\d+)?)?|config\.json|\w+_vanilla_transformer\.py|runs"
        )
        strangers += [
            path
            for path in checkpoints.iterdir()
            if not of_runs.fullmatch(path.name) and not is_removed_checkpoint(path)
        ]
    return strangers


def _check_same_recipe(before: Recipe, now: Recipe, begun: Path) -> None:
    """Raises ValueError if a recipe differs from one that the run has, its own or a checkpoint's."""
    path, sections = begun.parent, ("data", "tokenizer", "model", "training", "initial_model", "grow_vocabulary")
    for field, old, new in differing_fields(dataclasses.asdict(before), dataclasses.asdict(now), sections):
        if field in _MAY_CHANGE:
            continue
        was = f"was begun with {field} = {old!r}, not {new!r}"
        if path.parent.name == "checkpoints":
            run = path.parent.parent
            raise ValueError(
                f"The run in {run} {was}, as {begun} says: give that, and if {run / begun.name} differs take that "
                "copy of it; or choose another output folder."
            )
        raise ValueError(
            f"{path} {was}: resume with the run's own recipe (vanilla-transformer train --resume "
            f"{typed_to_resume(path)}), or choose another output folder."
        )


def check_same_rates(checkpoint: Path, arguments: VanillaTransformerTrainingArguments) -> None:
    """Raises ValueError if with another `max_steps` the updates so far, or the next, would have had other rates.

    So it does if there have been more updates than that.
    """
    state = trainer_state(checkpoint)
    updates, before, now = state["global_step"], state["max_steps"], arguments.max_steps
    if now == before:
        return
    rates = (rate_factors(arguments, steps, min(updates + 1, now)) for steps in (before, now))
    differ = [update for update, (old, new) in enumerate(zip(*rates, strict=True), start=1) if old != new]
    if differ:  # a checkpoint has the rate of the update after it
        raise ValueError(
            f"training.max_steps was {before} and cannot become {now}: the rate of update {differ[0]} depends on it, "
            f"and {checkpoint} is after {updates} updates. Resume with {before}, or choose another output folder"
            + (f", or move the checkpoints after update {differ[0] - 2} elsewhere." if differ[0] > 2 else ".")
        )
    if now < updates:
        raise ValueError(
            f"training.max_steps was {before} and cannot become {now}: {checkpoint} is after {updates} updates. Give "
            "at least as many, or choose another output folder."
        )


def _environment(arguments: VanillaTransformerTrainingArguments, command: str | None) -> dict:
    device = arguments.device
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "run": uuid4().hex,
        "command": command,
        **versions(),
        **machine(),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "accelerator": None if accelerator == "cpu" else accelerator,
        "precision": "float32" if arguments.mixed_precision == "no" else arguments.mixed_precision,
    }
