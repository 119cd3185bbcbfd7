"""Linear layers whose matrices lie in memory as the processor's library multiplies them fastest."""

import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..environment import machine
from ..model.linear_vanilla_transformer import is_its_weights
from ..model.modeling_vanilla_transformer import VanillaTransformerDecoderLayer


def pack_linear(model: PreTrainedModel) -> None:
    """Rearranges matrices of a model, to translate faster on a CPU in float32.

    On Intel processors, and on others with no more than AVX2, matrices are stored by columns, which MKL multiplies
    faster by few rows, and the largest are laid out for oneDNN. Elsewhere nearly all are laid out for oneDNN, by what
    was measured on an AMD EPYC: MKL, which torch uses for products, does not use AVX-512 there. Those for oneDNN are
    copies, which take memory.

    The results are the same except for the order of sums. The model itself is changed: it can be read, and saved with
    `save_pretrained`, but no longer trained. Merge adapters and resize embeddings first. Nothing happens if torch lacks
    these kernels, or if the model is not in float32 on a CPU.

    Args:
        model: Ours, or an ensemble of ours.
    """
    if not torch.backends.mkldnn.enabled or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return
    others = [module for module in model.modules() if not isinstance(module, nn.Linear)]
    read_by_rows = {id(each) for module in others for each in module.parameters(recurse=False)}  # tied embeddings
    layers = [each for each in model.modules() if is_its_weights(each)]
    by_columns = {each for each in layers if _layout_for(each.weight).by_columns}
    by_columns -= {each for each in layers if each.weight.is_inference() or id(each.weight) in read_by_rows}
    for each in by_columns:  # takes no more memory
        each.weight.data = _by_columns(each.weight.data)
    if by_columns:
        leave_file(model)
    for module in others:
        for name, child in list(module.named_children()):
            if is_its_weights(child) and child not in by_columns and _layout_for(child.weight).pays:
                setattr(module, name, PackedLinear(child.weight, child.bias).train(child.training))
    # Weights that a search needs are packed now, so that processes forked later share them.
    attentions = [each.self_attn for each in model.modules() if isinstance(each, VanillaTransformerDecoderLayer)]
    projections = [(each.q_proj, each.k_proj, each.v_proj) for each in attentions]
    joined = [each for each in projections if all(isinstance(one, PackedLinear) for one in each)]
    alone = {each for each in model.modules() if isinstance(each, PackedLinear)} - set(chain(*joined))
    for each in (*alone, *(first.together_with(*others) for first, *others in joined)):
        _ = each.packed


def leave_file(model: PreTrainedModel) -> None:
    """Copies weights that may be parts of the saved file: it stays in memory as a whole while one part is in use."""
    for parameter in model.parameters():
        if parameter.is_contiguous() and not parameter.is_inference():  # those by columns are copies
            parameter.data = parameter.data.clone()


@dataclass(frozen=True)
class _Layout:
    """How a matrix is best laid out in memory.

    Attributes:
        rows: The numbers of rows for which products are faster than with the matrix as it is.
        by_columns: Whether it is stored by columns, for MKL. Otherwise it is laid out for oneDNN's kernels.
    """

    rows: range
    by_columns: bool = False

    @property
    def pays(self) -> bool:
        """Whether a second matrix pays in batches of the usual sizes."""
        return any(each in self.rows for each in (16, 128))


def _layout_for(weight: torch.Tensor) -> _Layout:
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not weight.numel():
        return _Layout(range(0))
    kind = _kind_of_processor()
    if kind == "AVX2":  # measured on an AMD EPYC: oneDNN is faster only for vocabularies
        by_columns = len(weight) <= 4096  # not more than the inner layer of the paper's big model
        return _Layout(range(1 if by_columns else 2, sys.maxsize), by_columns)
    if kind == "Intel":  # measured on a Xeon with AMX
        by_columns = weight.numel() < 2**22
        return _Layout(range(3 if by_columns else 2, 129), by_columns)
    # Measured on an AMD EPYC with AVX-512: large products take less than half the time, but the call takes 11
    # microseconds where a plain one takes 3.
    return _Layout(range(2**20 // weight.numel() + 1, sys.maxsize))


def _by_columns(weight: torch.Tensor) -> torch.Tensor:
    """The same matrix, stored by columns."""
    return weight.t().contiguous().t()


@lru_cache
def _kind_of_processor() -> str:
    """`AVX2`: MKL is fast, and there is nothing faster; `Intel`: it is fast with AVX-512, too; `other`: it is not.

    torch's own limit (`ATEN_CPU_CAPABILITY`) counts as the processor's.
    """
    if not torch.backends.mkl.is_available():
        return "other"
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        return "AVX2"
    return "Intel" if "Intel" in machine()["processor"] else "other"


class PackedLinear(nn.Linear):
    """A linear layer that has its matrix in another layout too, for the numbers of rows where that pays.

    `torch.ops.mkldnn` is what torch.compile uses for frozen weights. Checked on torch 2.13. Weights that were changed,
    loaded, copied, or moved to another type or device are packed anew when they are used.

    Args:
        weight: (out_features, in_features); a parameter if the layer is one of a model.
        bias: (out_features,), or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias
        self._begin_with_weights()

    @cached_property
    def packed(self) -> torch.Tensor:
        """The weights, rearranged when they are first needed."""
        weight = self.weight.detach()
        return _by_columns(weight) if self.layout.by_columns else torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def together_with(self, *others: "PackedLinear") -> "PackedLinear":
        """One layer for this one and others that take the same states, made once."""
        layers = (self, *others)
        made_of = layers[1:], tuple(_state_of(each.weight) for each in layers)
        if self._together is None or self._together[0] != made_of:
            weight, bias = torch.cat([each.weight for each in layers]).detach(), None
            if any(each.bias is not None for each in layers):
                biases = [
                    each.weight.new_zeros(each.out_features) if each.bias is None else each.bias for each in layers
                ]
                bias = torch.cat(biases).detach()
            self._together = made_of, PackedLinear(weight, bias)
        return self._together[1]

    def plain_matrix(self, rows: int) -> torch.Tensor | None:
        """The (out_features, in_features) matrix for a plain product of so many rows; None: oneDNN multiplies them."""
        if self._state != _state_of(self.weight):
            self._begin_with_weights()
        if rows not in self.layout.rows or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return self.weight
        return self.packed if self.layout.by_columns else None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        matrix = self.plain_matrix(states.numel() // self.in_features)
        if matrix is not None:
            return F.linear(states, matrix, self.bias)
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")

    def __getstate__(self) -> dict:
        state = super().__getstate__()
        state.pop("packed", None)  # packed weights cannot be copied
        return state | {"_together": None}

    def _begin_with_weights(self) -> None:
        vars(self).pop("packed", None)
        self.layout, self._state = _layout_for(self.weight), _state_of(self.weight)
        self._together: tuple[tuple, PackedLinear] | None = None


def _state_of(weight: torch.Tensor) -> tuple[int, int]:
    """A value that changes when the weights do, by torch's own counting."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version
