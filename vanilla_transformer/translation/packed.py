"""Linear layers whose matrices are laid out for oneDNN's kernels, which multiply few rows faster than plain ones do."""

from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..environment import machine


def pack_linear(model: PreTrainedModel) -> None:
    """Rearranges the large matrices of a model, to translate faster on a CPU in float32. This takes more memory.

    The results are the same but for the order of sums. The model itself is changed: it can be saved and read, but no
    longer trained. Nothing happens where torch lacks these kernels, or the model is not one of float32 on a CPU.

    Args:
        model: Ours, or an ensemble of ours.
    """
    if not torch.backends.mkldnn.enabled or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and _pays(child.weight, 16):  # with these rows it pays first
                setattr(module, name, PackedLinear(child.weight, child.bias))


def _pays(weight: torch.Tensor, rows: int) -> bool:
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return False
    if _has_fast_mkl():  # measured on an Intel Xeon with AMX
        return 1 < rows <= 32 and weight.numel() >= 500_000
    return weight.numel() >= (2**18 if rows >= 16 else 2**24)  # measured on an AMD EPYC with AVX-512


@lru_cache
def _has_fast_mkl() -> bool:
    """MKL, which torch takes for products, is slow on processors that are not Intel's."""
    return torch.backends.mkl.is_available() and "Intel" in machine()["processor"]


class PackedLinear(nn.Linear):
    """A linear layer that takes oneDNN's kernels for as many rows as they pay for.

    `torch.ops.mkldnn` is what torch.compile uses for frozen weights. Checked on torch 2.13.

    Args:
        weight: (out_features, in_features).
        bias: (out_features,), or None.
    """

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None):
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def is_plain(self, rows: int) -> bool:
        """Whether this many rows are multiplied as any linear layer multiplies them."""
        return not _pays(self.weight, rows) or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.is_plain(states.numel() // self.in_features):
            return F.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")
