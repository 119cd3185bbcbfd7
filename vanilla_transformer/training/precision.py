"""Whether training in bfloat16 pays on this device."""

import logging
import time

import torch


logger = logging.getLogger(__name__)


def with_usable_precision(training: dict) -> dict:
    """A recipe's training section without `bf16` where that would make training slower, or impossible.

    Recipes ask for bf16 for its speed. Processors without instructions for it compute it by other means, up to a
    hundred times as slowly as float32; transformers refuses it on GPUs that lack it.
    """
    if not training.get("bf16"):
        return training
    if torch.cuda.is_available() and not training.get("use_cpu"):
        usable, why = torch.cuda.is_bf16_supported(including_emulation=False), "this GPU does not have it"
    else:
        slowdown = bfloat16_slowdown()
        usable, why = slowdown <= 1, f"a trial on this processor was {slowdown:.1f} times as slow in it as in float32"
    if usable:
        return training
    logger.warning("training.bf16 is left out: %s. Training is in float32.", why)
    return {**training, "bf16": False}


def bfloat16_slowdown() -> float:
    """How many times as long a matrix product takes the processor in bfloat16 as in float32; below 1 bfloat16 pays."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix, taken = torch.ones(256, 256, dtype=dtype), []
        for _ in range(6):  # the fastest: the first prepares, and others may be interrupted
            start = time.perf_counter()
            matrix @ matrix
            taken.append(time.perf_counter() - start)
        seconds[dtype] = min(taken)
    return seconds[torch.bfloat16] / seconds[torch.float32]
