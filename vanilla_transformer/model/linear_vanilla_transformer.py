"""Uses the weights of linear layers directly, which is faster than calling the layers.

Several layers become one product. On a CPU, products have only a few sizes.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as module_globals

from .checks_vanilla_transformer import is_recorded


_OF_TRANSFORMERS = "transformers.utils.output_capturing"


def is_hooked(module: nn.Module) -> bool:
    """Whether calling a module may do more than its class says, or something else.

    transformers leaves hooks in a model whose attentions or hidden states were once asked for; they do nothing later.
    """
    hooks = (
        module._forward_pre_hooks,
        [each for each in module._forward_hooks.values() if getattr(each, "__module__", "") != _OF_TRANSFORMERS],
        module._backward_pre_hooks,
        module._backward_hooks,
        module_globals._global_forward_pre_hooks,
        module_globals._global_forward_hooks,
        module_globals._global_backward_pre_hooks,
        module_globals._global_backward_hooks,
    )
    return any(hooks) or "forward" in vars(module)


def is_its_weights(layer: nn.Module) -> bool:
    """Whether a layer does no more than its matrix says, so that the matrix may be used without calling the layer.

    Adapters (LoRA and its kin), quantised layers, subclasses and parametrised layers have another type. Quantised
    matrices are parameters of another type. All of these layers, and those with hooks, must be called.
    """
    parameters = (parameter for parameter in layer._parameters.values() if parameter is not None)
    return type(layer) is nn.Linear and not is_hooked(layer) and all(type(each) is nn.Parameter for each in parameters)


def projected(states: torch.Tensor, *projections: nn.Module) -> Sequence[torch.Tensor]:
    """Linear projections of the same states (batch, length, d_model): when training, as one matrix product."""
    if not torch.is_grad_enabled() or not all(is_its_weights(each) for each in projections):
        return [projection(states) for projection in projections]
    weights = [projection.weight for projection in projections]
    biases = [projection.bias for projection in projections if projection.bias is not None]
    together = _linear(states, _joined(weights), _joined(biases) if biases else None)
    return together.split([projection.out_features for projection in projections], dim=-1)


def _joined(parameters: list[nn.Parameter]) -> torch.Tensor:
    return parameters[0] if len(parameters) == 1 else torch.cat(parameters)  # a copy takes time


def type_of_products(states: torch.Tensor) -> torch.dtype:
    """The type in which matrix products of these states are computed: autocast's, where it is on."""
    device = states.device.type
    # Autocast does not know meta. `torch.amp.is_autocast_available` would say so, but breaks a graph in torch 2.11.
    casts = device != "meta" and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts else states.dtype


def _linear(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """F.linear. In 16 bits on a CPU, rows of zeros pad the states to one of a few sizes.

    oneDNN compiles code for each number of rows, which takes longer than a small product itself; it keeps the code of
    about a thousand shapes, and batches have more. For the gain see docs/explanation/fast.md.
    """
    dtype = type_of_products(states)
    # Autocast leaves float64 as it is.
    if dtype.itemsize != 2 or states.dtype == torch.float64 or states.device.type != "cpu" or is_recorded():
        return F.linear(states, weight, bias)
    rows = states.shape[:-1].numel()
    step = max(2 ** (rows.bit_length() - 4), 16)  # at most an eighth more
    filled = F.pad(states.flatten(0, -2).to(dtype), (0, 0, 0, -rows % step))
    return F.linear(filled, weight, bias)[:rows].unflatten(0, states.shape[:-1])
