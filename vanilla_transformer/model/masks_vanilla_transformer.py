"""Who may attend to whom, and by which of two equivalent computations.

Padding masks stay one row per sentence, (batch, 1, 1, source), and the decoder's mask is made only when it is needed.
transformers' own are (batch, 1, target, source): they cost more than attention itself in short sentences, and too much
memory in long ones.
"""

from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.utils import logging

from .checks_vanilla_transformer import is_recorded
from .configuration_vanilla_transformer import VanillaTransformerConfig


logger = logging.get_logger(__name__)

# Attention functions that broadcast a mask, and make a decoder's mask (`is_causal`) from None.
BROADCASTING = ("eager", "sdpa")
# Up to this many query-key pairs per head, the plain formula keeps little for the backward pass.
_PLAIN_PAIRS = 512 * 512


def padding_mask(
    config: VanillaTransformerConfig,
    states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    encoder_states: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """The mask for attention from `states` (batch, length, d_model) to the source.

    Args:
        config: Names the attention function that the mask is for.
        states: The queries' embeddings.
        attention_mask: (batch, source), 1 for tokens and 0 for padding; or a prepared mask of four dimensions.
        encoder_states: (batch, source, d_model), if the source is not `states` itself.

    Returns:
        (batch, 1, 1, source), True for tokens; None if there is no mask; for attention functions from elsewhere, the
        mask that transformers makes.
    """
    if config._attn_implementation not in BROADCASTING:
        return create_bidirectional_mask(
            config=config, inputs_embeds=states, attention_mask=attention_mask, encoder_hidden_states=encoder_states
        )
    if attention_mask is None or attention_mask.dim() == 4:
        return attention_mask
    return attention_mask[:, None, None, :].bool()


def causal_mask(
    config: VanillaTransformerConfig, states: torch.Tensor, attention_mask: torch.Tensor | None, cache: Cache | None
) -> torch.Tensor | None:
    """The mask for the target's self-attention, which hides later positions (section 3.2.3) and padding.

    Returns:
        None if there is no `attention_mask` and nothing is cached; else the mask that transformers makes.
    """
    if config._attn_implementation in BROADCASTING:
        if attention_mask is None and cache is None:
            return None
        if attention_mask is not None and attention_mask.dim() == 4:
            return attention_mask
    return create_causal_mask(config=config, inputs_embeds=states, attention_mask=attention_mask, past_key_values=cache)


def additive_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask to add to scores: the lowest number of `dtype` at hidden positions, never infinity.

    Args:
        mask: Any shape; True at visible positions, or already numbers to add.
        dtype: That of the scores.
    """
    lowest = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, lowest)
    if mask.dtype == dtype:
        return mask
    return mask.clamp(min=lowest).to(dtype)


def is_better_plain(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether to use the plain formula when sdpa is asked for: in 16 bits on a CPU, for all but long sentences.

    torch 2.13 has a slow kernel there: with the plain formula a training step in bfloat16 is 1.8 times as fast on the
    size "tiny" and 1.3 times on "base" (one core of an AMD EPYC with AVX512-BF16). In float32 they are equally fast.

    Args:
        query: (batch, heads, target, head_dim).
        key: (batch, heads, source, head_dim).
    """
    in_16_bits = query.dtype in (torch.bfloat16, torch.float16)
    if query.device.type != "cpu" or not in_16_bits or is_recorded():
        return False  # a recorded graph serves any length
    if query.shape[2] * key.shape[2] > _PLAIN_PAIRS:
        return False
    logger.info_once(
        "sdpa is slow in 16 bits on a CPU: short sentences get the plain formula, whose results are the same."
    )
    return True


class _WithoutCuDNN(AbstractContextManager):
    """Turns cuDNN's attention off, in all threads, until the last user of this context has left it."""

    def __init__(self):
        self.lock, self.within, self.turned_off = Lock(), 0, False

    def __enter__(self):
        with self.lock:
            if not self.within:
                backends = torch.backends.cuda
                # torch's default is all kernels. If the user has chosen some (`sdpa_kernel`), they stay.
                self.turned_off = (
                    backends.cudnn_sdp_enabled()
                    and backends.flash_sdp_enabled()
                    and backends.mem_efficient_sdp_enabled()
                    and backends.math_sdp_enabled()
                )
                if self.turned_off:
                    backends.enable_cudnn_sdp(False)
            self.within += 1

    def __exit__(self, *exception):
        with self.lock:
            self.within -= 1
            if not self.within and self.turned_off:
                torch.backends.cuda.enable_cudnn_sdp(True)


_NOTHING, _WITHOUT_CUDNN = nullcontext(), _WithoutCuDNN()


def without_cudnn(query: torch.Tensor) -> AbstractContextManager:
    """A context in which sdpa avoids cuDNN's kernel, which is compiled anew for every shape of a batch.

    In bfloat16 torch 2.11 prefers cuDNN's on an H200. There a training step on a new shape took 339 ms with it, and 36
    ms without. Translating, known shapes were about as fast either way (`scripts/benchmarks/new_shapes.py`).

    Args:
        query: (batch, heads, target, head_dim). On a CPU, and in a recorded graph, the context does nothing.
    """
    return _NOTHING if query.device.type != "cuda" or is_recorded() else _WITHOUT_CUDNN
