"""Dropout (section 5.4) whose masks are quick to draw on a CPU, where they otherwise cost a fifth of a step."""

import torch
from torch.nn import functional as F

from .checks_vanilla_transformer import needs_plain_operations


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Zeroes each element with probability `p` and divides the others by 1 - p; the identity unless `training`.

    `torch.nn.functional.dropout`, except that on a CPU an element is decided by 16 bits of torch's generator instead of
    a Bernoulli sample: `p` is rounded to a multiple of 2^-16, and the mask depends on `torch.manual_seed` as ever.

    Args:
        states: Any shape.
        p: From 0 to below 1.
        training: Whether to drop at all.
    """
    if not training or p == 0:
        return states
    if states.device.type != "cpu" or needs_plain_operations():
        return F.dropout(states, p)
    return _Dropout.apply(states, p)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, p):
        words = torch.empty((states.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        draws = words.view(torch.int16)[: states.numel()].view(states.shape)  # uniform on -2^15 .. 2^15 - 1
        threshold = min(round(p * 2**16), 2**16 - 1)
        keep = draws >= threshold - 2**15
        ctx.save_for_backward(keep)
        ctx.scale = 2**16 / (2**16 - threshold)
        return (states * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx, grad_output):
        (keep,) = ctx.saved_tensors
        return (grad_output * keep).mul_(ctx.scale), None
