"""The precision that a model translates in: float32, bfloat16, or the one that a short trial finds faster."""

import copy
import logging
import time

import torch
from transformers import PreTrainedModel

from ..environment import has_bfloat16
from .packed import pack_linear


logger = logging.getLogger(__name__)
PRECISIONS = ("auto", "float32", "bfloat16")


def in_precision(model: PreTrainedModel, precision: str = "auto") -> PreTrainedModel:
    """The model, ready to translate as fast as it can in a precision. Do not use the given model any more.

    In bfloat16, weights and states have 8 significant bits, but the search still adds up its log-probabilities in
    float32. In float32, matrices are laid out for the processor: see [`pack_linear`].

    Args:
        model: Ours, or an ensemble of ours, in float32.
        precision: float32; bfloat16; or auto, which lets the model translate a few made-up sentences in both. The
            choice is logged.

    Raises:
        ValueError: There is no such precision.
    """
    if precision not in PRECISIONS:
        choices = f"{', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}"
        raise ValueError(f"There is no precision {precision!r} to translate in: choose {choices}.")
    if precision == "bfloat16":
        return model.to(torch.bfloat16)
    slow = precision == "auto" and not has_bfloat16(model.device.type == "cpu")
    if precision == "float32" or slow:
        if slow:
            logger.info("Translates in float32: this processor is slow at bfloat16.")
        pack_linear(model)
        return model
    candidates = {"bfloat16": copy.deepcopy(model).to(torch.bfloat16), "float32": model}
    pack_linear(model)
    seconds = {name: _seconds(candidate) for name, candidate in candidates.items()}
    chosen = min(seconds, key=seconds.get)
    times = ", ".join(f"{1000 * each:.0f} ms in {name}" for name, each in seconds.items())
    logger.info(f"Translates in {chosen}: {times}, by a short trial.")
    return candidates[chosen]


def _seconds(model: PreTrainedModel) -> float:
    """The shorter of two times for 4 tokens of each of 32 sentences, after a first try that does not count."""
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.arange(32 * 12, device=model.device).view(32, 12) * 31 % vocabulary
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        # Without an end token every sentence gets its 4 tokens. The search reads them, so a GPU has done its work.
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, eos_token_id=None)
        times.append(time.perf_counter() - begun)
    return min(times[1:])
