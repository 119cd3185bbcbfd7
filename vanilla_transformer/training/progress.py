"""What a person sees of a training run, and how that person can stop it."""

import json
import math
import re
import shutil
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from ..files import write_text


class ProgressBar(TrainerCallback):
    """One line on the terminal: updates done and to do, the latest loss and the latest validation scores."""

    def __init__(self):
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, unit="update", dynamic_ncols=True)

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is None or self.bar.disable:
            return
        names = {"loss": "loss", "eval_loss": "validation loss", "eval_bleu": "BLEU"}
        self.shown |= {names[key]: f"{value:.3g}" for key, value in (logs or {}).items() if key in names}
        self.bar.set_postfix(self.shown)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


class LogFile(TrainerCallback):
    """Keeps the training log as JSON lines, without the records of updates that a resumed run does again."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            write_text(self.path, "".join(map(_json_line, state.log_history)))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_json_line(state.log_history[-1]))


def _json_line(record: dict) -> str:
    """JSON has no infinity and no NaN, which a diverging loss has: they become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


class StopOnRequest(TrainerCallback):
    """Ends training after the update under way, with a checkpoint, once `requested` is true.

    Such a checkpoint is one more than the run would have: it makes none of the others go, and it goes itself when the
    resumed run saves its next one, so that the same checkpoints are averaged as without the stop.
    """

    def __init__(self):
        self.requested = False
        self.made_room = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.requested = self._any_process_asks(args)
        if is_regular(state.global_step, args.save_steps):
            self._make_room(args, len(self._extra(args, state)))
        elif self.requested:
            self.make_room_for_one(args)
        if self.requested:
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args, state, control, **kwargs):
        if is_regular(state.global_step, args.save_steps):
            for folder in self._extra(args, state):
                shutil.rmtree(folder)
        self._make_room(args, -self.made_room)

    def make_room_for_one(self, args):
        """For a checkpoint that is saved now and would not be by the run as planned."""
        self._make_room(args, 1)

    def _any_process_asks(self, args) -> bool:
        """All processes stop after the same update: whoever went on alone would wait for the others for ever."""
        if args.world_size == 1:
            return self.requested
        asking = torch.tensor(float(self.requested), device=args.device)
        torch.distributed.all_reduce(asking, torch.distributed.ReduceOp.MAX)
        return bool(asking)

    def _make_room(self, args, checkpoints: int):
        """So that those that are one more make none of the others go."""
        args.save_total_limit += checkpoints
        self.made_room += checkpoints

    @staticmethod
    def _extra(args, state) -> list[Path]:
        """The checkpoints that are one more than the run would have; the best one stays as long as it is the best."""
        best = Path(state.best_model_checkpoint or "").name
        found = [path for path in Path(args.output_dir).glob("checkpoint-*") if path.name != best]
        steps = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in found}
        return [path for path, step in steps.items() if step and not is_regular(int(step[1]), args.save_steps)]


def is_regular(step: int, save_steps: float) -> bool:
    """Whether the run saves a checkpoint at this update, stopped or not."""
    return step % save_steps == 0
