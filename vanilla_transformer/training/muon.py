"""Muon: an optimizer with which short runs learn more than with Adam.

(Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/)
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import AdamW, Optimizer
from transformers import PreTrainedModel


MUON = "muon"
"""The value of `optim` for it."""

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al.: the steepest at 0 that keep singular values near 1
_STEPS = 5
_LEAST_NORM = 1e-7
_RMS_OF_ADAM = 0.2  # of its steps, by Liu et al. 2025, section 2.2


class Muon(Optimizer):
    """Muon for the matrices of groups with `muon: True`, AdamW for all others.

    For a matrix W of shape (m, n) with gradient G:

        B <- mu B + (1 - mu) G                                        (momentum)
        U  = mu B + (1 - mu) G                                        (Nesterov)
        W <- W - lr (decay W + 0.2 sqrt(max(m, n)) orthogonalized(U))

    All singular values of a step are about the same, so rare directions learn as fast as frequent ones. The factor
    0.2 sqrt(max(m, n)) makes its entries as large as those of Adam's steps, so both take the same learning rates
    (Liu et al. 2025, https://arxiv.org/abs/2502.16982, equation 4).

    `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"` computes the same for matrices alone, but always in
    bfloat16, which is far slower on a processor without instructions for it (`scripts/benchmarks/ingredients.py`
    compares them).

    Args:
        groups: Groups of parameters as for any optimizer, with `muon` True or False. The True ones have only matrices.
        lr, betas, eps, weight_decay: As for AdamW; Muon uses `lr` and `weight_decay`.
        momentum: mu.

    Raises:
        ValueError: A group does not say whether it is `muon`, or has `muon: True` and a parameter that is no matrix;
            or a state to be loaded is that of another optimizer.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ):
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups, {**options, "momentum": momentum})
        self._begin_adam()

    def _begin_adam(self) -> None:
        # It works on this optimizer's own groups and state, so that schedules and checkpoints see one optimizer. It
        # also gives the groups of an old checkpoint the options that AdamW has got since.
        others = self._groups(muon=False)
        self._adam = AdamW(others, fused=True) if others else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_adam()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if not isinstance(param_group.get("muon"), bool):
            raise ValueError("Every group of parameters of Muon needs `muon`: True for matrices, False for others.")
        super().add_param_group(param_group)
        for parameter in param_group["params"] if param_group["muon"] else []:
            if parameter.ndim != 2:
                raise ValueError(f"Muon is for matrices, not for a parameter of shape {tuple(parameter.shape)}.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not all("muon" in group for group in state_dict["param_groups"]):
            raise ValueError("The checkpoint was trained with another optimizer than Muon: set `optim` as it was.")
        super().load_state_dict(state_dict)

    def _groups(self, muon: bool) -> list[dict[str, Any]]:
        return [each for each in self.param_groups if each["muon"] is muon]

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """One update. Parameters without a gradient stay as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._adam is not None:
            self._adam.param_groups, self._adam.state = self._groups(muon=False), self.state
            self._adam.step()
        for group in self._groups(muon=True):
            by_shape = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape].append(matrix)
            for matrices in by_shape.values():
                # On a GPU one large product is faster than many small ones. Elsewhere it only takes more memory.
                alone = matrices[0].device.type == "cpu" or isinstance(matrices[0], DTensor)
                together = 1 if alone else len(matrices)
                for start in range(0, len(matrices), together):
                    self._step_of(matrices[start : start + together], group)
        return loss

    def _step_of(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        """The update of matrices of one shape."""
        directions = [self._direction(each, group["momentum"]) for each in matrices]
        steps = orthogonalized(torch.stack([_whole(each) for each in directions]))
        size = -group["lr"] * _RMS_OF_ADAM * math.sqrt(max(matrices[0].shape))
        for matrix, direction, step in zip(matrices, directions, steps, strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.add_(_shared_out_like(direction, step.to(matrix.dtype)), alpha=size)

    def _direction(self, matrix: torch.Tensor, momentum: float) -> torch.Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix.grad)
        average = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(average, momentum)


def _whole(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.full_tensor() if isinstance(matrix, DTensor) else matrix


def _shared_out_like(sharded: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Each process has computed the whole matrix, so it takes its part without asking another one."""
    if not isinstance(sharded, DTensor):
        return matrix
    everywhere = [Replicate()] * sharded.device_mesh.ndim
    matrix = DTensor.from_local(matrix, sharded.device_mesh, everywhere, run_check=False)
    return matrix.redistribute(placements=sharded.placements)


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices with about the same singular vectors, and singular values of about 1 (from 0.7 to 1.2).

    Five iterations of Newton-Schulz: X <- a X + (b X X' + c X X' X X') X, from X = matrix / its norm. Singular values
    below 0.0015 of the norm stay smaller. A matrix of zeros stays one.

    Args:
        matrices: Shape (number, rows, columns).

    Returns:
        The same shape: in float32 on a CPU, and elsewhere in bfloat16, which is precise enough (Jordan et al.).
    """
    rows, columns = matrices.shape[-2:]
    x = matrices.to(torch.float32 if matrices.device.type == "cpu" else torch.bfloat16)
    x = x.mT if rows > columns else x  # so that X X' is the smaller product
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=_LEAST_NORM)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if rows > columns else x


def muon_groups(model: PreTrainedModel, decayed: Iterable[str], weight_decay: float) -> list[dict[str, Any]]:
    """Groups of a model's parameters for `Muon`, which gets the matrices of its encoder and decoder layers.

    Embeddings, the output matrix over the vocabulary or over classes, biases and normalisation belong to Adam.

    Args:
        model: Those of its parameters that need no gradient are left out.
        decayed: Names of the parameters that decay.
        weight_decay: How fast.
    """
    layers, decayed = model.named_modules(), set(decayed)
    linear = {id(each.weight) for name, each in layers if isinstance(each, nn.Linear) and ".layers." in name}
    groups = {
        (muon, decay): {"params": [], "muon": muon, "weight_decay": weight_decay if decay else 0.0}
        for muon in (True, False)
        for decay in (True, False)
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[id(parameter) in linear, name in decayed]["params"].append(parameter)
    return [each for each in groups.values() if each["params"]]
