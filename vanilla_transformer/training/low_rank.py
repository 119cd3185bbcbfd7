"""LoRA in a run: only low-rank adapters and the rows of new pieces learn; the final models have them merged in.

    W' = W + 2 B A      B (out, r), A (r, in), B = 0 at first      (Hu et al. 2021, equation 3, alpha = 2 r)

The layers are PEFT's, put into the model itself: checkpoints hold everything, as those of any run do.
"""

from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

from .initial_model import ROWS_OF_PIECES


_SCALE = 2.0
_LAYERS = ["q_proj", "v_proj"]
_BASE, _A, _B = ".base_layer.weight", ".lora_A.default.weight", ".lora_B.default.weight"


def add_adapters(model: PreTrainedModel, rank: int, old_pieces: int) -> None:
    """Puts adapters into the model. Only they and the new rows of matrices with a row for each piece learn.

    Raises:
        ImportError: PEFT is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ImportError("training.lora_rank needs PEFT: pip install 'vanilla-transformer[finetune]'") from error
    grows = old_pieces < model.config.vocab_size
    with_rows = [each for name, each in model.named_parameters() if grows and name.endswith(ROWS_OF_PIECES)]
    model.requires_grad_(False)
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=round(_SCALE * rank), target_modules=_LAYERS), model)
    for parameter in with_rows:
        parameter.requires_grad_(True)
        # Without a gradient Adam leaves a row as it is.
        parameter.register_hook(
            lambda gradient: torch.cat([torch.zeros_like(gradient[:old_pieces]), gradient[old_pieces:]])
        )


def merged(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of the same function without adapters; weights that have none are returned as they are."""
    plain = {}
    for name, weight in weights.items():
        if name.endswith(_BASE):
            layer = name.removesuffix(_BASE)
            update = weights[layer + _B].double() @ weights[layer + _A].double()
            plain[f"{layer}.weight"] = (weight.double() + _SCALE * update).to(weight.dtype)
        elif not name.endswith((_A, _B)):
            plain[name.replace(".base_layer.", ".")] = weight
    return plain
