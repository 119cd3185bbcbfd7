"""Who may attend to whom, and by which of two equal computations.

Masks of padding stay one row per sentence, (batch, 1, 1, source), and that of the decoder is not made before it is
needed: transformers' own are (batch, 1, target, source), which costs more than attention itself in short sentences and
too much memory in long ones.
"""

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from .checks_vanilla_transformer import hides_something
from .configuration_vanilla_transformer import VanillaTransformerConfig


# Attention functions that take a mask to be broadcast, and make that of a decoder (`is_causal`) from None.
_BROADCASTING = ("eager", "sdpa")
# On a CPU plain matrix products are faster than sdpa's kernel up to about this many pairs of query and key a head,
# while what they hold for the backward pass is still small.
_PLAIN_PAIRS = 512 * 512


def padding_mask(
    config: VanillaTransformerConfig,
    states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    encoder_states: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """What attention from `states` (batch, length, d_model) to the source must not see.

    Args:
        config: Says which attention function it is for.
        states: The queries' embeddings.
        attention_mask: (batch, source), 1 for tokens and 0 for padding; or a mask of four dimensions, made ready.
        encoder_states: (batch, source, d_model), if the source is not `states` itself.

    Returns:
        (batch, 1, 1, source), True for tokens; None if nothing is padded; for attention functions that transformers
        has from elsewhere, what it makes for them.
    """
    if config._attn_implementation not in _BROADCASTING or (attention_mask is not None and attention_mask.dim() != 2):
        return create_bidirectional_mask(
            config=config, inputs_embeds=states, attention_mask=attention_mask, encoder_hidden_states=encoder_states
        )
    if attention_mask is None or not hides_something(attention_mask):
        return None
    return attention_mask[:, None, None, :].bool()


def causal_mask(
    config: VanillaTransformerConfig, states: torch.Tensor, attention_mask: torch.Tensor | None, cache: Cache | None
) -> torch.Tensor | None:
    """What the target's self-attention must not see: what comes after (section 3.2.3), and padding.

    Returns:
        None if that is all that comes after, and nothing is cached; else what transformers makes of its arguments.
    """
    if config._attn_implementation in _BROADCASTING and attention_mask is None and cache is None:
        return None
    return create_causal_mask(config=config, inputs_embeds=states, attention_mask=attention_mask, past_key_values=cache)


def additive_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask to be added to scores: the lowest number of `dtype` for what must not be seen, never infinity.

    Args:
        mask: Any shape; True for what may be seen, or already a number to add.
        dtype: That of the scores.
    """
    lowest = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, lowest)
    return mask.clamp(min=lowest).to(dtype)


def is_faster_plain(config: VanillaTransformerConfig, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether to take the plain formula where sdpa is asked for: the same, and on a CPU faster for short sentences.

    Args:
        config: Names the attention function.
        query: (batch, heads, target, head_dim).
        key: (batch, heads, source, head_dim).
    """
    if config._attn_implementation != "sdpa" or query.device.type != "cpu":
        return False
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False  # what is recorded is for any length
    return query.shape[2] * key.shape[2] <= _PLAIN_PAIRS
