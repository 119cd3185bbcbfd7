"""The paper's learning rate (equation 3), which everybody calls the Noam schedule."""

from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def noam(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Learning rate of an update: factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    It rises in a straight line for `warmup_steps` updates and then falls with the inverse square root.

    Args:
        step: Number of the update, counted from 1.
        d_model: Width of the model.
        warmup_steps: Updates of the rise; the paper's 4,000.
        factor: 1 in the paper.

    Raises:
        ValueError: If `step` or `warmup_steps` is below 1.
    """
    if step < 1 or warmup_steps < 1:
        raise ValueError(f"Updates count from 1: step is {step}, warmup_steps is {warmup_steps}.")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def create_noam_scheduler(
    optimizer: Optimizer, d_model: int, warmup_steps: int = 4000, factor: float = 1.0
) -> LambdaLR:
    """The Noam schedule for any optimizer whose own learning rate is 1, exact from update 1.

    Works with the stock Trainer as `optimizers=(optimizer, create_noam_scheduler(optimizer, ...))`.

    Args:
        optimizer: Its `lr` multiplies the schedule: 1.0 for the paper's rates.
        d_model: Width of the model.
        warmup_steps: Updates of the rise.
        factor: 1 in the paper.
    """
    return LambdaLR(optimizer, partial(_after_updates, d_model=d_model, warmup_steps=warmup_steps, factor=factor))


def _after_updates(updates_done: int, **sizes) -> float:
    return noam(updates_done + 1, **sizes)
