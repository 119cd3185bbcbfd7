"""The checkpoints of a run: which ones to keep, and how to handle damaged and superfluous ones."""

import itertools
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import safe_open
from transformers import Trainer, TrainingArguments

from ..data.known_words import KNOWN_WORDS
from ..files import is_leftover, place_beside, read_json
from ..run.digests import DIGESTS, DamagedError, read_digests
from ..run.folder import WEIGHTS, RunFolder, checkpoints_in
from .arguments import VanillaTransformerTrainingArguments
from .ema import EMA_WEIGHTS


logger = logging.getLogger(__name__)

# The files that a trainer writes into a checkpoint. Any others are the user's.
_WRITTEN = (
    "*_vanilla_transformer.py", "*config.json", "model*.safetensors*", "optimizer.*", "pytorch_model_fsdp.bin",
    "recipe.yaml", "rng_state*.pth", "scaler.pt", "scheduler.pt", "stream_*.json", "token*.json",
    "special_tokens_map.json", "trainer_state.json", "training_args.bin", KNOWN_WORDS, EMA_WEIGHTS, DIGESTS,
    ".tmp??????",  # safetensors 0.8 writes weights there, then renames the file
)  # fmt: skip


def step_of(checkpoint: Path) -> int:
    """After how many updates a checkpoint was saved."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def is_regular(checkpoint: Path, args: TrainingArguments) -> bool:
    """Whether the run would have saved it without being stopped. With `max_minutes` the answer is always yes."""
    return args.max_minutes is not None or step_of(checkpoint) % _updates_between(args) == 0


def _updates_between(args: TrainingArguments) -> int:
    """Updates from one checkpoint to the next; below 1 `save_steps` is a share of them all, as for transformers."""
    return int(args.save_steps) if args.save_steps >= 1 else math.ceil(args.max_steps * args.save_steps)


def trainer_state(checkpoint: Path) -> dict:
    """The trainer's progress, as saved in a checkpoint."""
    return read_json(checkpoint / "trainer_state.json")


def best_of(checkpoint: Path) -> str | None:
    """Name of the best checkpoint as far as this one knows. (The path that it records is where the run was then.)"""
    best = trainer_state(checkpoint).get("best_model_checkpoint")
    return Path(best).name if best else None


# --------------------------------------------------------------------------------------------------- saved and removed


@contextmanager
def saving(checkpoint: Path) -> Iterator[None]:
    """Removes a checkpoint that could not be saved completely, say on a full disk, and raises OSError."""
    try:
        yield
    except Exception as error:  # torch, safetensors and tokenizers raise their own errors for a full disk
        if (checkpoint / DIGESTS).exists():  # it is written last: a later step failed, say sending to the Hub
            raise
        with suppress(OSError):  # another process of the run has done it, or nothing was made
            remove_checkpoint(checkpoint)
        raise OSError(
            f"The checkpoint {checkpoint} could not be saved: {error}. Those before it are whole: make room, "
            "check that the folder is writable, then resume."
        ) from error


def remove_checkpoint(checkpoint: Path) -> None:
    """Removes the trainer's files. Any others are kept, in a folder of another name."""
    hidden = place_beside(checkpoint)
    checkpoint.rename(hidden)  # at once, so that a kill leaves no half checkpoint
    _remove_hidden(hidden)


def finish_removals(folder: Path) -> None:
    """Finishes removing the checkpoints whose removal was killed."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if is_removed_checkpoint(path):
            _remove_hidden(path)


def is_removed_checkpoint(path: Path) -> bool:
    """Whether this is the leftover of a checkpoint whose removal was killed."""
    found = re.match(r"\.(checkpoint-\d+)\.", path.name)
    return found is not None and is_leftover(path, found[1]) and path.is_dir() and not path.is_symlink()


def _remove_hidden(checkpoint: Path) -> None:
    for path in sorted(written_by_trainer(checkpoint), key=lambda path: path.name == DIGESTS):  # the list comes last
        path.unlink()
    try:
        checkpoint.rmdir()
    except OSError:
        name = checkpoint.name.removeprefix(".").partition(".")[0]
        logger.warning("%s had files of yours: they are in %s.", name, set_aside(checkpoint, f"{name}.kept"))


def set_aside(path: Path, name: str) -> Path:
    """Gives a folder another name, and a number if that is taken; returns its new place."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    free = next(place for place in map(path.with_name, names) if not place.exists())
    return path.rename(free)


def written_by_trainer(checkpoint: Path) -> list[Path]:
    """The files in a checkpoint that are not the user's: those on its list, which is written last."""
    try:
        record = read_digests(checkpoint)
    except DamagedError:  # then there is no telling
        return []
    files = [path for path in checkpoint.iterdir() if path.is_file() and not path.is_symlink()]
    if record is not None:
        return [path for path in files if path.name in (DIGESTS, *record["files"])]
    return [path for path in files if any(map(path.match, _WRITTEN)) or is_leftover(path)]


def was_cut_short(checkpoint: Path) -> bool:
    """Whether this is the leftover of a killed save: the beginning of a checkpoint, and nothing else."""
    ours = written_by_trainer(checkpoint) if not (checkpoint / DIGESTS).exists() else []
    return len(ours) == len(list(checkpoint.iterdir()))


def remove_old_checkpoints(folder: Path, args: TrainingArguments, best: str | None, limit: int | None) -> None:
    """Keeps `limit` checkpoints (None: all), among them the newest and the best. Their order is the number of updates.

    If the best is older than those that are averaged, it takes the place of none of them: then there may be one more.
    (transformers orders them by file time, which a clock that is set back reverses.)

    A checkpoint that was saved on request is an extra one: it displaces no other, and is removed once a regular one
    follows, so that the same ones are averaged as without the request.
    """
    checkpoints = checkpoints_in(folder)
    if not checkpoints or not limit:
        return
    newest = checkpoints[-1]
    by_number = args.save_strategy == "steps"
    regular = [path for path in checkpoints if not by_number or is_regular(path, args)]
    counted = [path for path in checkpoints if path.name == best or path in regular]
    averaged = regular[-args.average_last :] if args.average_last else []
    removable = [path for path in counted if path not in (newest, *averaged) and path.name != best]
    removable = removable[: max(0, len(counted) - limit)]
    if newest in counted:
        removable += [path for path in checkpoints if path not in counted]
    for path in removable:
        remove_checkpoint(path)


# --------------------------------------------------------------------------------------------- after a kill, or damage


def recover(folder: RunFolder, args: VanillaTransformerTrainingArguments) -> None:
    """Restores the checkpoints of a run to the state in which the next save would have found them.

    The leftover of a killed save is removed. A damaged checkpoint is moved aside. If the end of the run needs it, for
    averaging or as the best, those after it are moved too: training resumes from the one before it and makes them
    again.

    Before it changes anything, it raises ValueError if there are checkpoints but all are incomplete or damaged, and
    OSError if a file cannot be read or something is in the way.
    """
    found = folder.checkpoint_folders()
    faults = {path: fault for path in found if (fault := folder.fault_of(path)) is not None}
    whole = [path for path in found if path not in faults]
    if not whole:
        if faults:
            raise none_is_whole(faults)
        return
    best = best_of(whole[-1])
    for path, fault in faults.items():
        if path == found[-1] and was_cut_short(path):
            logger.warning("%s is removed: its save was cut short.", path)
            remove_checkpoint(path)
        else:
            logger.warning("%s was moved to %s: %s.", path, set_aside(path, f"{path.name}.damaged").name, fault)
    if found[-1] in faults:
        folder.finished.unlink(missing_ok=True)  # written after updates that will be repeated
    trained = step_of(whole[-1])
    needed = _needed_at_the_end(trained, best, args)
    if lost := sorted(step_of(path) for path in faults if path.name in needed and step_of(path) < trained):
        earlier = [path for path in whole if step_of(path) < lost[0]]
        if earlier:
            moved = [set_aside(path, f"{path.name}.later").name for path in whole[len(earlier) :]]
            folder.finished.unlink(missing_ok=True)
            told = (
                "The end of the run needs the checkpoint of update %d: going back to %s. What came after it was moved "
                "to %s, which can be removed."
            )
            logger.warning(told, lost[0], earlier[-1], ", ".join(moved))
        else:
            logger.warning("There is no checkpoint before update %d, and the run ends without that one.", lost[0])
    remove_old_checkpoints(folder.checkpoints, args, best, args.save_total_limit)


def _needed_at_the_end(trained: int, best: str | None, args: VanillaTransformerTrainingArguments) -> set[str | None]:
    """Names of the checkpoints that the end of the run averages, as far as one can tell now, and of the best one.

    `trained` is the number of updates before the last complete checkpoint.
    """
    every = _updates_between(args)
    end = trained if args.early_stopping_patience is not None else max(args.max_steps, trained)
    saved = sorted({*range(every, end + 1, every)[-args.average_last - 1 :], end})
    averaged = saved[-args.average_last :] if args.average_last else []
    return {f"checkpoint-{step}" for step in averaged} | {best}


def none_is_whole(faults: dict[Path, str | None]) -> ValueError:
    """The error if no checkpoint can be resumed from; nothing was changed."""
    told = "; ".join(f"{path}: {fault}" for path, fault in faults.items())
    return ValueError(
        f"There is no whole checkpoint to go on from ({told}). Nothing was changed: restore one, or choose another "
        "output folder."
    )


def check_state(checkpoint: Path, trainer: Trainer) -> None:
    """Raises ValueError if a checkpoint lacks state (Trainer would make it up) or has weights that are not finite."""
    rng = f"rng_state_{trainer.args.process_index}.pth" if trainer.args.world_size > 1 else "rng_state.pth"
    for name in ("optimizer.bin" if trainer.is_fsdp_enabled else "optimizer.pt", "scheduler.pt", rng):
        if not (checkpoint / name).exists():
            raise ValueError(f"{checkpoint} has no {name}: training cannot go on from it as it was.")
    if trainer.is_fsdp_enabled:
        return  # the rest is in torch's format, and torch is strict
    model = trainer.accelerator.unwrap_model(trainer.model)
    with safe_open(checkpoint / WEIGHTS, framework="pt") as file:
        names = set(file.keys())
        needed = model.state_dict().keys() - model.all_tied_weights_keys.keys()
        if missing := sorted(needed - names):
            raise ValueError(f"{checkpoint / WEIGHTS} lacks {missing[0]}: training cannot go on from it as it was.")
        for name in sorted(names):
            if not file.get_tensor(name).isfinite().all():
                raise ValueError(f"{checkpoint / WEIGHTS} is not finite in {name}: training cannot go on from it.")
