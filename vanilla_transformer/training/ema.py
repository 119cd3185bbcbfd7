"""The exponential moving average of a model's weights over its updates, kept while it trains."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import PreTrainedModel, TrainerCallback

from .safety import UpdateGuard


EMA_WEIGHTS = "ema.safetensors"
"""The file of a checkpoint with the averaged weights, under the names that they have in `model.safetensors`."""

_UPDATES = "updates"  # how many the file averages: in its own metadata, so that the two stay together


def warmed_up_decay(update: int, decay: float) -> float:
    """The decay of an update: min(decay, (1 + update) / (10 + update)).

    The average begins at the random first weights, of which a decay of 0.999 would keep e^-1 after 1,000 updates. With
    this warm-up (that of TensorFlow's `ExponentialMovingAverage`) it spans about the last ninth of the updates, until
    `decay` is the smaller: 0.99 is after 890 updates, 0.999 after 8,990.

    Args:
        update: Number of the update, counted from 1.
        decay: The final decay, above 0 and below 1.
    """
    return min(decay, (1 + update) / (10 + update))


class WeightAverage(TrainerCallback):
    """After update t, average = d_t * average + (1 - d_t) * weights, with d_t as in `warmed_up_decay`.

    The average begins as the weights before update 1 (Polyak and Juditsky 1992 for averaging; as an exponential mean in
    TensorFlow and `torch.optim.swa_utils`). A skipped update does not count: it changed no weight, so it moves neither
    average nor t. Every process keeps the same average, on the model's device.

    Args:
        decay: d_t after its warm-up.
        guard: Knows whether the last update was skipped.

    Attributes:
        weights: The averaged weights by their names in `model.safetensors`; empty before training begins.
        updates: How many updates they average (t).
    """

    def __init__(self, decay: float, guard: UpdateGuard):
        self.decay, self.guard = decay, guard
        self.begin()

    def begin(self, checkpoint: str | Path | None = None) -> None:
        """Prepares for training that begins, or that resumes from a checkpoint with its average."""
        self.checkpoint = checkpoint
        self.weights: dict[str, torch.Tensor] = {}
        self.updates = 0

    def on_train_begin(self, args, state, control, *, model, **kwargs):
        self.weights = {name: weight.clone() for name, weight in _weights(model).items()}
        if self.checkpoint is not None:
            self._load(Path(self.checkpoint) / EMA_WEIGHTS)

    def on_step_end(self, args, state, control, *, model, **kwargs):
        if not self.guard.finite:  # the guard, or with fp16 the gradient scaler, has skipped the update
            return
        self.updates += 1
        average = get_ema_multi_avg_fn(warmed_up_decay(self.updates, self.decay))
        average(list(self.weights.values()), list(_weights(model).values()), self.updates)

    def save(self, checkpoint: Path) -> None:
        """Writes the average beside the rest of a checkpoint."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        # One entry alone: safetensors writes several in an order that changes from file to file.
        save_file(self.weights, checkpoint / EMA_WEIGHTS, metadata={_UPDATES: str(self.updates)})

    def _load(self, path: Path) -> None:
        if not path.is_file():
            raise ValueError(
                f"{path} is missing: training cannot go on with its average. Restore it, or remove this checkpoint to "
                "go on from the one before."
            )
        with safe_open(path, framework="pt") as file:
            updates = (file.metadata() or {}).get(_UPDATES)
            if updates is None or set(file.keys()) != self.weights.keys():
                raise ValueError(f"{path} is not an average of this model's weights: training cannot go on with it.")
            for name, weight in self.weights.items():
                weight.copy_(file.get_tensor(name))
        self.updates = int(updates)


def _weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A model's own tensors by name, each once: a tied one has the name under which it is saved."""
    return {name: weight for name, weight in model.state_dict().items() if name not in model.all_tied_weights_keys}
