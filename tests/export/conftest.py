"""The model, tokenizer and texts that all exports are tested with."""

from itertools import islice

import pytest
import torch

from vanilla_transformer import TokenizerSettings, learn_tokenizer, phrasebook

from ..model.conftest import build_model


EOS = 2


def ending_model(ends=4, seed=5, **choices):
    """A model with random translations. The larger `ends`, the sooner they end; with 4, they end now and then."""
    model = build_model(seed, **{"vocab_size": 300, **choices})
    decoder = model.model.decoder
    last_norm = decoder.layer_norm if model.config.norm_first else decoder.layers[-1].final_layer_norm
    with torch.no_grad():  # the part that all states share makes the end token likelier
        model.lm_head.weight[EOS] += ends * last_norm.bias / last_norm.bias.square().sum()
    return model


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [row["en"] for row in islice(phrasebook("test"), 24)]


@pytest.fixture(scope="module")
def tokenizer():
    rows = islice(phrasebook("train"), 200)
    return learn_tokenizer((text for row in rows for text in row.values()), TokenizerSettings(vocab_size=300))
