"""How the paper turns a trained model into translations (section 6.1), inside transformers' `generate()`."""

import torch
from transformers import GenerationConfig, StoppingCriteria

from .configuration_vanilla_transformer import VanillaTransformerConfig


# "We set the maximum output length during inference to input length + 50" (section 6.1).
EXTRA_LENGTH = 50


def paper_generation_config(config: VanillaTransformerConfig, **overrides) -> GenerationConfig:
    """Beam search with 4 hypotheses and length penalty 0.6 (section 6.1), to be saved with the model.

    transformers divides a hypothesis' log-probability by length^0.6.

    Args:
        config: Where the ids of the special tokens come from.
        **overrides: Fields of `GenerationConfig` that are to differ.
    """
    settings = {
        "num_beams": 4,
        "max_length": 512,
        "bos_token_id": config.bos_token_id,
        "pad_token_id": config.pad_token_id,
        "eos_token_id": config.eos_token_id,
        "decoder_start_token_id": config.decoder_start_token_id,
        **overrides,
    }
    if settings["num_beams"] > 1:  # transformers refuses to save what greedy search has no use for
        settings = {"length_penalty": 0.6, "early_stopping": False, **settings}
    return GenerationConfig(**settings)


class SourceLengthLimit(StoppingCriteria):
    """Ends each output at its own source's length + `extra_length` tokens, whoever else is in the batch (section 6.1).

    Args:
        source_lengths: (batch,) tokens of each source.
        extra_length: How many more the output may have.
    """

    def __init__(self, source_lengths: torch.Tensor, extra_length: int = EXTRA_LENGTH):
        self.limits = source_lengths + extra_length  # (batch,)

    def __call__(self, input_ids: torch.LongTensor, scores, **kwargs) -> torch.BoolTensor:
        hypotheses = input_ids.shape[0] // self.limits.shape[0]  # rows per sentence: beam search has several
        limits = self.limits.to(input_ids.device).repeat_interleave(hypotheses)
        return input_ids.shape[1] - 1 >= limits  # the start token does not count
