"""Linear layers whose matrices are laid out for oneDNN's kernels, which multiply few rows faster than plain ones do."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel


def pack_linear(model: PreTrainedModel) -> None:
    """Lays out the large matrices of a model anew, to translate faster on a CPU, in float32 and in more memory.

    The results are the same but for the order of sums. The model itself is changed: it can be saved and read, but no
    longer trained. Nothing happens where torch lacks these kernels, or the model is not one of float32 on a CPU.

    Args:
        model: Ours, or an ensemble of ours.
    """
    if not torch.backends.mkldnn.enabled or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and _pays(child.weight, 16):
                setattr(module, name, PackedLinear(child.weight, child.bias))


def _pays(weight: torch.Tensor, rows: int) -> bool:
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    return fits and weight.numel() >= (2**18 if rows >= 16 else 2**24)  # measured on an AMD EPYC with AVX-512


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

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rows = states.numel() // self.in_features
        if not _pays(self.weight, rows) or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return F.linear(states, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")
