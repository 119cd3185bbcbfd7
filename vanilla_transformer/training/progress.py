"""What a person sees of a training run, and how that person can stop it."""

import json
import logging
import math
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from ..files import named_in_errors, write_text
from ..plots import plot_learning_curve
from .checkpoints import extra_checkpoints, is_regular


logger = logging.getLogger(__name__)

# What the bar shows of the log, under which name and how.
_SHOWN = {
    "loss": ("loss", "{:.3g}"),
    "learning_rate": ("rate", "{:.2e}"),
    "target_tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "real_share": ("padding", "{:.1%}"),
    "skipped_updates": ("skipped", "{:d}"),
    "eval_loss": ("validation loss", "{:.3g}"),
    "eval_bleu": ("BLEU", "{:.3g}"),
}


class ProgressBar(TrainerCallback):
    """One line on the terminal: updates done and to do, the time it takes, and the latest of what is logged.

    That is loss, learning rate, target tokens per second, the share of padding, and validation loss and BLEU.
    """

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
        values = dict(logs or {})
        if "real_share" in values:
            values["real_share"] = 1 - values["real_share"]
        for key, (name, form) in _SHOWN.items():
            if key in values:
                self.shown[name] = form.format(values[key])
        if self.shown.get("skipped") == "0":  # a word that nobody wants to see without need
            del self.shown["skipped"]
        self.bar.set_postfix(self.shown)

    def on_train_end(self, args, state, control, **kwargs):
        self.close()

    def close(self) -> None:
        """Leaves the bar as it is; else one that an error cut short would be drawn once more, below the error."""
        if self.bar is not None:
            self.bar.close()


class LearningCurve(TrainerCallback):
    """Draws the learning curve anew after each evaluation; if that fails, training goes on without it."""

    def __init__(self, path: Path):
        self.path = path
        self.failed = False

    def on_evaluate(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        try:
            plot_learning_curve(state.log_history, self.path)
        except Exception as error:
            if not self.failed:
                logger.warning("The learning curve %s could not be drawn: %s", self.path, error)
            self.failed = True


class LogFile(TrainerCallback):
    """Keeps the training log as JSON lines, without the records of updates that a resumed run does again."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            write_text(self.path, "".join(map(_json_line, state.log_history)))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(_json_line(state.log_history[-1]))


def _json_line(record: dict) -> str:
    """JSON has no infinity and no NaN, which a diverging loss has: they become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


class StopOnRequest(TrainerCallback):
    """Ends training after the update under way, with a checkpoint, once `requested` is true.

    Such a checkpoint is one more than the run would have: it makes none of the others go, and it goes itself when the
    resumed run saves its next one, so that the same checkpoints are averaged as without the stop.

    Attributes:
        on_request: Called at once when somebody asks to stop.
    """

    def __init__(self):
        self.on_request: Callable[[], None] = lambda: None
        self.requested = False
        self.made_room = 0

    def request(self) -> None:
        self.requested = True
        self.on_request()

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """The first SIGINT asks training to stop after its update; a second one ends the process as ever."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def request(number, frame):
            self.request()
            signal.signal(signal.SIGINT, before)
            logger.warning("Stopping after this update; a checkpoint is saved. Interrupt again to stop at once.")

        signal.signal(signal.SIGINT, request)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def on_step_end(self, args, state, control, **kwargs):
        self.requested = self._any_process_asks(args)
        if is_regular(state.global_step, args.save_steps):
            self._make_room(args, len(_extra(args, state)))
        elif self.requested:
            self.make_room_for_one(args)
        if self.requested:
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args, state, control, **kwargs):
        if is_regular(state.global_step, args.save_steps) and state.is_world_process_zero:
            for folder in _extra(args, state):
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


def _extra(args, state) -> list[Path]:
    return extra_checkpoints(Path(args.output_dir), args.save_steps, state.best_model_checkpoint)
