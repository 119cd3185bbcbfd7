"""Updates whose loss or gradients are not finite: skipped, counted and, if they do not end, reported."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from accelerate.utils import gather_object, reduce
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerBase, TrainerCallback

from ..files import write_text


logger = logging.getLogger(__name__)


class UpdateGuard(TrainerCallback):
    """Skips updates that would make parameters infinite or NaN, and stops a run after too many of them in a row.

    A skipped update changes no parameter and no state of the optimizer; the schedule and the count of updates advance.
    With several processes all decide the same. With a gradient scaler (fp16) overflows are expected and skipping
    them is the scaler's job: they are neither counted nor skipped here.

    The norm is the 2-norm, so gradients whose squares overflow are not finite either: Adam, which keeps squares, would
    never recover from them.

    Args:
        limit: After this many skipped updates in a row training stops, with a checkpoint.
        path: The pairs of the last skipped update are then written here, as JSON lines.
    """

    def __init__(self, limit: int, path: Path):
        self.limit, self.path = limit, path
        self.on_stop: Callable[[], None] = lambda: None  # called when training is about to be stopped
        self.begin()

    def begin(self) -> None:
        """Resets the guard: training begins or resumes."""
        self.error: str | None = None  # what to tell the user once training has stopped
        self.in_a_row = self.skipped = 0
        self.finite = True  # the last update: otherwise nothing has changed
        self.grad_norm: torch.Tensor | float | None = None  # of this update; None: the guard computes it
        self.loss: torch.Tensor | float = 0.0  # of the update under way
        self.batches: list[Mapping[str, torch.Tensor]] = []  # of the update under way
        self.window, self.session = [], []  # losses since the last record, and of all updates; None: it was skipped

    def saw(self, batch: Mapping[str, torch.Tensor], loss: torch.Tensor) -> torch.Tensor:
        """Records a batch of this update; returns its loss, or 0 if that is not finite: Trainer sums the losses."""
        self.batches.append(batch)
        self.loss = self.loss + loss
        return loss.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def on_step_begin(self, args, state, control, **kwargs):
        self.batches, self.loss, self.grad_norm = [], 0.0, None

    def on_pre_optimizer_step(self, args, state, control, *, model, optimizer, **kwargs):
        loss, norm = self._measure(model, args)
        self.finite = math.isfinite(loss) and math.isfinite(norm)
        for losses in (self.window, self.session):
            losses.append(loss if self.finite else None)
        if getattr(optimizer, "scaler", None) is not None:
            return
        if self.finite:
            self.in_a_row = 0
            return
        model.zero_grad(set_to_none=True)  # optimizers skip parameters without a gradient
        self.in_a_row += 1
        self.skipped += 1
        if state.is_world_process_zero:
            logger.warning("Update %d is skipped: loss %g, gradient norm %g.", state.global_step + 1, loss, norm)

    def on_step_end(self, args, state, control, *, processing_class=None, **kwargs):
        if self.in_a_row < self.limit:
            return
        rows = [row for batch in self.batches for row in _pairs(batch, processing_class, state.global_step)]
        rows = gather_object(rows)
        if state.is_world_process_zero:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self.error = (
            f"Stopped after update {state.global_step}: {self.in_a_row} updates in a row were skipped, their loss or "
            f"gradients were not finite. The {len(rows)} pairs of update {state.global_step} are in {self.path}. "
            "Training can be resumed with the pairs after them, from the checkpoint "
            f"{Path(args.output_dir, f'checkpoint-{state.global_step}')}."
        )
        self.on_stop()
        control.should_log = control.should_save = control.should_training_stop = True

    def _measure(self, model: torch.nn.Module, args) -> tuple[float, float]:
        """Loss and gradient norm of this update, the same in all processes; the only wait for the device."""
        norm = self.grad_norm
        if norm is None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        if isinstance(norm, DTensor):  # each process has a part of every gradient
            norm = norm.full_tensor()
        both = torch.stack([torch.as_tensor(x, dtype=torch.float32, device=args.device) for x in (self.loss, norm)])
        if args.world_size > 1:
            both = reduce(both, "mean")  # a loss can be infinite in one process, and its gradients finite
        loss, norm = both.tolist()
        return loss, norm

    def record(self, logs: Mapping[str, float]) -> dict[str, float]:
        """The fields to add to a log record: updates skipped since the last record, and the loss of the others."""
        if "loss" in logs:
            losses, skipped = self.window, self.skipped
            self.window, self.skipped = [], 0
            return {"skipped_updates": skipped, **({"loss": _mean(losses)} if None in losses else {})}
        return {"train_loss": _mean(self.session)} if "train_loss" in logs and None in self.session else {}


def _mean(losses: list[float | None]) -> float:
    finite = [loss for loss in losses if loss is not None]
    return sum(finite) / len(finite) if finite else math.nan


def _pairs(batch: Mapping[str, torch.Tensor], tokenizer: PreTrainedTokenizerBase | None, update: int) -> list[dict]:
    """The text of a batch's pairs; their token ids if there is no tokenizer."""
    sides = {}
    for name, column, padding in (("source", "attention_mask", 0), ("target", "labels", -100)):
        ids = batch["input_ids" if name == "source" else "labels"]
        rows = [row[real].tolist() for row, real in zip(ids, batch[column] != padding, strict=True)]
        sides[name] = rows if tokenizer is None else tokenizer.batch_decode(rows, skip_special_tokens=True)
    pairs = zip(*sides.values(), strict=True)
    return [{"update": update, "source": source, "target": target} for source, target in pairs]
