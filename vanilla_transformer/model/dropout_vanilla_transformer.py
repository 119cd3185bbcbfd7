"""Dropout (section 5.4) with masks that are quick to draw on a CPU: a step with torch's takes 8 to 33 % longer."""

import torch
from torch.nn import functional as F

from .checks_vanilla_transformer import is_recorded


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Zeroes each element with probability `p` and divides the others by 1 - p; the identity unless `training`.

    Like `torch.nn.functional.dropout`, but on a CPU 16 bits of torch's generator decide on an element instead of a
    Bernoulli sample: `p` is rounded to a multiple of 2^-16, and the mask depends on `torch.manual_seed` as usual.

    Args:
        states: Any shape.
        p: From 0 to below 1.
        training: Whether to drop at all.
    """
    if not training or p == 0:
        return states
    if not _may_draw_bits(states):
        return F.dropout(states, p)
    return _Dropout.apply(states, *_draw(states.shape, p))


def add_dropout(residual: torch.Tensor, states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """residual + dropout(states), in one pass over both on a CPU.

    Args:
        residual: Any shape.
        states: The same shape.
        p: From 0 to below 1.
        training: Whether to drop at all.
    """
    if not training or p == 0 or not _may_draw_bits(states):
        return residual + dropout(states, p, training)
    return _AddDropout.apply(residual, states, *_draw(states.shape, p))


def word_dropout(embeddings: torch.Tensor, p: float, training: bool, first: int = 0) -> torch.Tensor:
    """Drops whole tokens: e_t <- m_t e_t / (1 - p) with m_t ~ Bernoulli(1 - p), one m_t for each row of E.

    Gal & Ghahramani (2016, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks"), which
    Sennrich & Zhang (2019, "Revisiting Low-Resource Neural Machine Translation") use to train on little text. As in
    Nematus, the toolkit of the latter, each token is drawn separately, even if it occurs several times in the sentence.
    Dividing the kept embeddings by 1 - p preserves the mean. Padding may be dropped too, which has no effect.

    Args:
        embeddings: (batch, length, d_model), without positions: a dropped token keeps its position.
        p: From 0 to below 1.
        training: Whether to drop at all.
        first: This many tokens at the beginning of each row are neither dropped nor rescaled.
    """
    if not training or p == 0:
        return embeddings
    kept = embeddings.new_ones((*embeddings.shape[:2], 1))  # (batch, length, 1)
    return embeddings * torch.cat((kept[:, :first], dropout(kept[:, first:], p, training)), dim=1)


def _may_draw_bits(states: torch.Tensor) -> bool:
    return states.device.type == "cpu" and type(states) is torch.Tensor and not is_recorded()


class _Dropout(torch.autograd.Function):
    """states * keep * scale, keeping a byte per element for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(states, keep, scale):
        return (states * keep.to(states.dtype)).mul_(scale)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, keep, ctx.scale = inputs
        ctx.save_for_backward(keep.to(torch.uint8))
        ctx.save_for_forward(keep)

    @staticmethod
    def backward(ctx, grad_output):
        return _dropped(grad_output, *ctx.saved_tensors, ctx.scale), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return _dropped(tangent, *ctx.saved_tensors, ctx.scale)


class _AddDropout(torch.autograd.Function):
    """residual + states * keep * scale, in the wider of the two types."""

    generate_vmap_rule = True

    @staticmethod
    def forward(residual, states, keep, scale):
        dtype = torch.promote_types(residual.dtype, states.dtype)
        return torch.addcmul(residual.to(dtype), states.to(dtype), keep.to(dtype), value=scale)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, states, keep, ctx.scale = inputs
        ctx.dtype = states.dtype
        ctx.save_for_backward(keep.to(torch.uint8))
        ctx.save_for_forward(keep)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, _dropped(grad_output, *ctx.saved_tensors, ctx.scale).to(ctx.dtype), None, None

    @staticmethod
    def jvp(ctx, tangent_residual, tangent_states, *_):
        return tangent_residual + _dropped(tangent_states, *ctx.saved_tensors, ctx.scale)


def _draw(shape: torch.Size, p: float) -> tuple[torch.Tensor, float]:
    """1 for kept and 0 for dropped elements, as int16: torch turns that into floats eight times as fast as bool.

    Returns:
        The mask, and the factor for the kept elements.
    """
    words = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: shape.numel()].view(shape)  # uniform on -2^15 .. 2^15 - 1
    threshold = min(round(p * 2**16), 2**16 - 1)
    return draws.ge_(threshold - 2**15), 2**16 / (2**16 - threshold)


def _dropped(gradient: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
    return (gradient * keep.to(gradient.dtype)).mul_(scale)
