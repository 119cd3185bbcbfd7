"""A tokenizer, a model and pairs so small that training them takes no time."""

import random

import pytest
from datasets import Dataset

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration


SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}


@pytest.fixture(scope="session")
def tokenizer():
    return learn_tokenizer(["a tiny vocabulary of tiny words"] * 3, TokenizerSettings(vocab_size=264))


@pytest.fixture(scope="session")
def make_model(tokenizer):
    """Makes a model of a seed; options are fields of its configuration."""
    from transformers import set_seed

    def make(seed=0, **options):
        set_seed(seed)
        config = VanillaTransformerConfig(vocab_size=len(tokenizer), **{**SIZES, **options})
        model = VanillaTransformerForConditionalGeneration(config)
        model.generation_config = paper_generation_config(config, num_beams=1)
        return model

    return make


@pytest.fixture(scope="session")
def pairs():
    """20 pairs of 2 to 9 made-up letters each, of ids that decode to text; many lengths differ."""
    rng = random.Random(7)

    def ids():
        return [*rng.choices(range(70, 90), k=rng.randint(2, 9)), 2]

    return Dataset.from_dict({"input_ids": [ids() for _ in range(20)], "labels": [ids() for _ in range(20)]})
