"""The checkpoints of a run: which there should be, and what becomes of one that cannot be saved."""

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..run_folder import RunFolder


logger = logging.getLogger(__name__)


def is_regular(step: int, save_steps: float) -> bool:
    """Whether the run saves a checkpoint at this update, stopped or not."""
    return step % save_steps == 0


def extra_checkpoints(folder: Path, save_steps: float, best: str | None) -> list[Path]:
    """The checkpoints that are one more than the run would have; the best one stays as long as it is the best."""
    found = [(path, path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*")]
    steps = {path: int(step) for path, step in found if step.isdecimal() and path.name != Path(best or "").name}
    return [path for path, step in steps.items() if not is_regular(step, save_steps)]


def trainer_state(checkpoint: Path) -> dict:
    """What the trainer keeps of its progress in a checkpoint."""
    return json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))


@contextmanager
def saving(checkpoint: Path) -> Iterator[None]:
    """Removes a checkpoint that could not be saved as a whole, so that it takes no room and nobody takes it for one.

    Raises:
        OSError: It could not be saved, say because the disk is full.
    """
    try:
        yield
    except Exception as error:  # torch, safetensors and tokenizers have kinds of their own for a full disk
        if _has_its_state(checkpoint):  # which is written last: what failed came after it, say sending it to the Hub
            raise
        shutil.rmtree(checkpoint, ignore_errors=True)
        raise OSError(
            f"The checkpoint {checkpoint} could not be saved: {error}. Those before it are whole: see that there is "
            "room and that one may write there, then resume."
        ) from error


def _has_its_state(checkpoint: Path) -> bool:
    try:
        trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def finish_what_was_cut_short(folder: RunFolder, save_steps: float, save_total_limit: int) -> None:
    """Brings the checkpoints of a run that was killed into the state in which the next save would have found them.

    A kill while a checkpoint was written leaves a part of it. One while an old checkpoint was removed leaves that, or
    what is left of it, as the folder that was changed last: transformers, which goes by that, would take it for the
    newest one and remove another in its place.

    Args:
        folder: The run folder.
        save_steps: A checkpoint is saved every so many updates.
        save_total_limit: So many are kept.
    """
    for damaged in folder.bad_checkpoints():
        logger.warning("%s is not complete: it is removed.", damaged)
        shutil.rmtree(damaged)
    checkpoints = folder.good_checkpoints()
    if not checkpoints:
        return
    best = trainer_state(checkpoints[-1])["best_model_checkpoint"]
    kept = save_total_limit + len(extra_checkpoints(folder.checkpoints, save_steps, best))
    removable = [path for path in checkpoints[:-1] if path.name != Path(best or "").name]
    for path in removable[: max(0, len(checkpoints) - kept)]:
        shutil.rmtree(path)
        checkpoints.remove(path)
    now = time.time()
    for age, path in enumerate(reversed(checkpoints), start=1):
        os.utime(path, (now - age, now - age))
