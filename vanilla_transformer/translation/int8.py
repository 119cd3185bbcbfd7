"""Matrices of whole numbers from -127 to 127, which processors multiply several times as fast as those of float32."""

from functools import lru_cache

import torch
from torch import nn
from transformers import PreTrainedModel

from .packed import leave_file


def quantize_int8(model: PreTrainedModel) -> None:
    """Rounds the matrices of a model to 8 bits, to translate faster and in less memory on a CPU.

    Each row of a matrix has a scale of its own, and so do the states of each token, which are rounded on the fly: a
    translation does not depend on its neighbours. Embeddings, attention and norms stay float32. The model itself is
    changed, and moved to the CPU and float32; it can neither be trained nor saved any more.

    Args:
        model: Ours, or an ensemble of ours.

    Raises:
        ValueError: torch has no 8-bit matrix products for this processor.
    """
    _largest_weight()
    model.to("cpu", torch.float32).eval()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child.weight, child.bias))
    leave_file(model)


_LARGEST_STATE = 127.0
_TINY = 1e-30  # in place of 0, to avoid division by zero


class Int8Linear(nn.Module):
    """A linear layer with weights of 8 bits, through oneDNN's kernels.

    `torch.ops.onednn.qlinear_pointwise` is what torch.compile makes of quantised models on x86. `torch.ao.quantization`
    is about as fast, but on its way out of torch, and torchao's layers are slow if not compiled. Checked on torch 2.13.

    Args:
        weight: (out_features, in_features).
        bias: (out_features,), or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        weight = weight.detach().contiguous()  # `pack_linear` may have stored it by columns
        scale = weight.abs().amax(dim=1).clamp_(min=_TINY) / _largest_weight()  # (out_features,)
        self.matrix = _Matrix((weight / scale[:, None]).round_().to(torch.int8), scale / _LARGEST_STATE)
        self.bias = None if bias is None else bias.detach().clone()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rows = states.reshape(-1, self.in_features)
        scale = rows.abs().amax(dim=1, keepdim=True).clamp_(min=_TINY)  # (rows, 1)
        product = self.matrix.times((rows * (_LARGEST_STATE / scale)).round_()).mul_(scale)
        if self.bias is not None:
            product += self.bias
        return product.view(*states.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def _save_to_state_dict(self, *args, **kwargs):
        raise ValueError("A model of 8 bits cannot be saved: save the one that it was made from.")


class _Matrix:
    """Whole numbers from -127 to 127 (out_features, in_features), laid out for oneDNN, and a scale for each row."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor):
        self.packed, self.scale = torch.ops.onednn.qlinear_prepack(weight, None), scale
        self.zeros = torch.zeros(len(scale), dtype=torch.int32)

    def times(self, states: torch.Tensor) -> torch.Tensor:
        """The product with whole numbers from -127 to 127 (rows, in_features): float32 (rows, out_features)."""
        # The kernels want them from 0 to 255, and to be told that 128 is 0. (torch makes int8 faster than uint8.)
        shifted = states.to(torch.int8).bitwise_xor_(-128).view(torch.uint8)
        return torch.ops.onednn.qlinear_pointwise(
            shifted, 1.0, 128, self.packed, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )


@lru_cache
def _largest_weight() -> int:
    """The number that the largest weight of a row becomes: 127 where products are exact with it.

    Processors without VNNI add two products of 8 bits in 16 bits. The largest do not fit there: then it is 63.
    """
    states = torch.full((1, 64), _LARGEST_STATE)
    try:
        found = _Matrix(torch.full((1, 64), 127, dtype=torch.int8), torch.ones(1)).times(states)
    except (AttributeError, RuntimeError) as error:
        raise ValueError("This torch has no products of 8 bits for this processor: translate in float32.") from error
    return 127 if found.item() == 64 * 127 * 127 else 63
