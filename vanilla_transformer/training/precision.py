"""Whether training in bfloat16 pays on this device."""

import logging
from collections.abc import Mapping

import torch


logger = logging.getLogger(__name__)


def with_usable_precision(training: Mapping, *, has_bfloat16: bool, begun_in: str | None = None) -> dict:
    """A recipe's training section without `bf16` where the device has no fast way to it.

    Recipes ask for bf16 for its speed: without one it is some fifty times as slow as float32.

    Args:
        training: The section; its `bf16` beside `fp16` stays, for transformers to refuse.
        has_bfloat16: What `has_bfloat16` says of the device.
        begun_in: What a run was begun in that now goes on, as its environment.json says: "bf16", "float32".
    """
    training = dict(training)
    if not training.get("bf16") or training.get("fp16"):
        return training
    if begun_in == "float32":
        logger.info("training.bf16 is left out: the run was begun in float32.")
    elif not has_bfloat16:
        begun = ", although the run was begun in it" if begun_in == "bf16" else ""
        logger.warning("training.bf16 is left out%s: torch has no fast way to it on this device.", begun)
    else:
        return training
    return {**training, "bf16": False}


def has_bfloat16(use_cpu: bool) -> bool:
    """Whether torch has a fast way to products in bfloat16, on x86 by AVX-512. Unknown devices are believed."""
    if use_cpu:
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)
