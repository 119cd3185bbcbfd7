"""What a training run shows: progress, log, learning curve, speed; and how to stop it."""

import _thread
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate.utils import reduce
from tqdm import tqdm
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..files import named_in_errors, write_text
from ..plots import plot_learning_curve
from ..signals import first_signal


logger = logging.getLogger(__name__)

# The fields of the log that the bar shows, with name and format.
_SHOWN = {
    "loss": ("loss", "{:.3g}"),
    "learning_rate": ("rate", "{:.2e}"),
    "target_tokens_per_second": ("target tokens/s", "{:,.0f}"),
    "real_share": ("padding", "{:.1%}"),
    "skipped_updates": ("skipped", "{:d}"),
    "eval_loss": ("validation loss", "{:.3g}"),
    "eval_bleu": ("BLEU", "{:.3g}"),
    "eval_chrf": ("chrF", "{:.3g}"),
}


class ProgressBar(TrainerCallback):
    """One line on the terminal: updates done and to do, the time it takes, and the latest logged values."""

    def __init__(self):
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        # Without smoothing: the time left includes the validations to come, and is right just after one of them.
        options = {"initial": state.global_step, "unit": "update", "dynamic_ncols": True, "smoothing": 0}
        if args.max_minutes is None:
            self.bar = tqdm(total=state.max_steps, **options)
        else:  # the clock ends it, at an unknown update
            self.bar = tqdm(desc=f"{args.max_minutes:g} minutes", **options)

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
        if self.shown.get("skipped") == "0":  # shown only when there is something to worry about
            del self.shown["skipped"]
        self.bar.set_postfix(self.shown)

    def on_train_end(self, args, state, control, **kwargs):
        self.close()

    def close(self) -> None:
        """Leaves the bar as it is; otherwise one that an error cut short would be drawn once more, below the error."""
        if self.bar is not None:
            self.bar.close()


class LearningCurve(TrainerCallback):
    """Draws the learning curve after an evaluation, at most every `every` seconds; if it fails, training continues.

    Drawing takes half a second, so a run of small evaluations would otherwise spend more time on it than on them. A
    stopped run gets its curve at the end; whoever finishes a run draws its final curve.
    """

    def __init__(self, path: Path, every: float = 60.0):
        self.path, self.every = path, every
        self.drawn_at = time.perf_counter()
        self.failed = False

    def on_evaluate(self, args, state, control, **kwargs):
        if time.perf_counter() - self.drawn_at >= self.every:
            self._draw(state)

    def on_train_end(self, args, state, control, **kwargs):
        if state.global_step < state.max_steps:
            self._draw(state)

    def _draw(self, state) -> None:
        if not state.is_world_process_zero:
            return
        try:
            plot_learning_curve(state.log_history, self.path)
        except Exception as error:
            if not self.failed:
                logger.warning("The learning curve %s could not be drawn: %s", self.path, error)
            self.failed = True
        self.drawn_at = time.perf_counter()


class LogFile(TrainerCallback):
    """Keeps the training log as JSON lines, without the records of updates that a resumed run repeats."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            write_log(self.path, state.log_history)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(_json_line(state.log_history[-1]))


def write_log(path: Path, records: Iterable[dict]) -> None:
    """Writes the records of a training log."""
    write_text(path, "".join(map(_json_line, records)))


def _json_line(record: dict) -> str:
    """JSON has no infinity and no NaN, unlike a diverging loss: they become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


class StopOnRequest(TrainerCallback):
    """Ends training after the update under way, with a checkpoint, once `requested` is true.

    `on_request` is called at once, in its own thread if a signal (`signal`) asks.
    """

    def __init__(self):
        self.on_request: Callable[[], None] = lambda: None
        self.requested = False
        self.signal: int | None = None

    def request(self) -> None:
        self.requested = True
        self.on_request()

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks training to stop after its update; a second one ends the process at once."""

        def request(number, frame):
            self.signal, self.requested = number, True
            # In another thread: the interrupted code may hold the very lock that logging needs.
            _thread.start_new_thread(tell, ())

        def tell():
            self.on_request()
            logger.warning("Stopping after this update; a checkpoint is saved. Interrupt again to stop at once.")

        with first_signal(request):
            yield

    def on_step_end(self, args, state, control, **kwargs):
        if args.world_size > 1:  # all stop after the same update: one that continued alone would wait forever
            asking = torch.tensor(float(self.requested), device=args.device)
            torch.distributed.all_reduce(asking, torch.distributed.ReduceOp.MAX)
            self.requested = bool(asking)
        if self.requested:
            control.should_save = control.should_training_stop = True


class PresentIntervals(TrainerCallback):
    """Logs, evaluates and saves as often as the arguments say; transformers resumes with those of the checkpoint."""

    def on_train_begin(self, args, state, control, **kwargs):
        state.compute_steps(args, state.max_steps)


class TimeBudget(TrainerCallback, ExportableState):
    """Ends training after `max_minutes`; saves `PARTS` times in them, and evaluates as often or less.

    Every checkpoint has the seconds spent before it, so that a resumed run gets the rest.
    """

    PARTS = 20

    def __init__(self):
        self.since: float | None = None
        self.begin()

    def begin(self) -> None:
        """Resets the budget: training begins."""
        self.seconds = 0.0
        self.evaluated_at = self.evaluation = 0.0  # when the last evaluation ended, and the seconds that it took

    def on_train_begin(self, args, state, control, **kwargs):
        # Earlier sessions may have had no budget. (A log is written a moment after the seconds are counted.)
        earlier = max((record.get("elapsed_seconds", 0.0) for record in state.log_history), default=0.0)
        if earlier > self.seconds + 1:
            self.seconds = self.evaluated_at = earlier
        state.stateful_callbacks[type(self).__name__] = self.state()  # transformers expects it when it saves
        self.since = time.perf_counter() - self.seconds

    def on_step_end(self, args, state, control, **kwargs):
        before, self.seconds = self.seconds, time.perf_counter() - self.since
        if args.world_size > 1:
            # The clocks of processes differ, and so do their evaluations; all must do the same: one that evaluated
            # alone would wait for ever.
            own = [self.seconds, self.evaluated_at, self.evaluation]
            agreed = torch.tensor(own, device=args.device)
            torch.distributed.all_reduce(agreed, torch.distributed.ReduceOp.MAX)
            self.seconds, self.evaluated_at, self.evaluation = agreed.tolist()
        part = 60 * args.max_minutes / self.PARTS
        control.should_training_stop |= is_over(self.state(), args.max_minutes)
        control.should_save |= control.should_training_stop
        # Not whenever training stops: someone who interrupts it does not wait for an evaluation.
        ends = is_over(self.state(), args.max_minutes) or state.global_step >= state.max_steps
        if self.seconds // part > before // part or ends:
            control.should_save = True
            # The first translations of a model are long: evaluations get a tenth of the time, not all of it.
            rested = self.seconds - self.evaluated_at >= 9 * self.evaluation
            control.should_evaluate = (rested or ends) and args.eval_strategy != "no"

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self.since is None or "eval_runtime" not in metrics:  # outside training, or of another set
            return
        self.evaluation = metrics["eval_runtime"]
        self.evaluated_at = time.perf_counter() - self.since

    def cooldown(self, args) -> float:
        """Factor of the rate: 1 until the last share of the time, `cooldown_steps`, begins, and 0 when time is up."""
        whole = 60 * args.max_minutes
        return min(1.0, max(0.0, (whole - self.seconds) / (whole * args.cooldown_steps)))

    def state(self) -> dict:
        seconds = max(self.seconds, self.evaluated_at)  # a checkpoint is saved after the evaluation
        kept = {"seconds": seconds, "evaluated_at": self.evaluated_at, "evaluation": self.evaluation}
        return {"args": {}, "attributes": kept}


def is_over(budget: Mapping, minutes: float) -> bool:
    """Whether the minutes of a [`TimeBudget`] with this state are spent."""
    return budget["attributes"]["seconds"] >= 60 * minutes


# -------------------------------------------------------------------------------------------------------------- speed


class TokenCounter:
    """Counts the cells of the batches that a trainer sees, and how many of them are real tokens.

    Real tokens are summed on the device and read only when they are logged, so training never waits for them.
    """

    def __init__(self):
        self.cells = 0
        self.real: torch.Tensor | None = None  # (2,) source and target tokens

    def saw(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Counts a batch: `attention_mask` (batch, source) and `labels` (batch, target), -100 where padded."""
        self.cells += batch["attention_mask"].numel() + batch["labels"].numel()
        real = torch.stack((batch["attention_mask"].sum(), (batch["labels"] != -100).sum()))
        self.real = real if self.real is None else self.real + real

    def record(self, seconds: float) -> dict[str, float]:
        """Speed and `real_share` (tokens per cell of both sides) of all processes in this time; resets the counts."""
        cells, real = self.cells, self.real
        self.__init__()
        if real is None or seconds <= 0:
            return {}
        source, target, cells = reduce(torch.cat((real, real.new_tensor([cells]))), "sum").tolist()
        share = round((source + target) / cells, 4)
        return {"target_tokens_per_second": round(target / seconds, 1), "real_share": share}


class Clock:
    """Seconds of training: stopped during validation, continued when a run is resumed."""

    def __init__(self):
        self.before = self.lapped = 0.0
        self.since: float | None = None
        self.started = self.resumed = False

    def start(self) -> None:
        self.__init__()
        self.started, self.since = True, time.perf_counter()

    def carry_on_from(self, log_history: list[dict]) -> None:
        if self.started and not self.resumed:
            self.resumed = True
            earlier = max((record.get("elapsed_seconds", 0.0) for record in log_history), default=0.0)
            self.before += earlier
            self.lapped += earlier

    def seconds(self) -> float:
        return self.before + (time.perf_counter() - self.since if self.since is not None else 0.0)

    def lap(self) -> float:
        """Seconds since the last call, or since this session began."""
        lapped, self.lapped = self.lapped, self.seconds()
        return self.lapped - lapped

    @contextmanager
    def stopped(self) -> Iterator[None]:
        was_running = self.since is not None
        self.before, self.since = self.seconds(), None
        try:
            yield
        finally:
            if was_running:
                self.since = time.perf_counter()
