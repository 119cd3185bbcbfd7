"""Initial weights: the spread that the paper's scaling needs, for every kind of parameter."""

import math

import pytest
import torch
from torch import nn

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerForConditionalGeneration,
)


@pytest.fixture(scope="module")
def model():
    """Wide enough for variances to be meaningful."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=500, d_model=128, encoder_layers=1, decoder_layers=1, attention_bias=True, head_dim=24,
        position_embedding_type="learned", max_position_embeddings=300, tie_word_embeddings=False,
    )  # fmt: skip
    return VanillaTransformerForConditionalGeneration(config)


def assert_uniform(weight, bound):
    """Within ±bound, nearly reaching it, with the standard deviation of a uniform distribution."""
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.99 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


def xavier(weight):
    return math.sqrt(6 / (weight.shape[0] + weight.shape[1]))


def test_embeddings_have_variance_one_over_d_model(model):
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    assert len(tables) >= 4  # encoder's and decoder's tokens and positions
    for table in tables:
        assert table.weight.std().item() == pytest.approx(128**-0.5, rel=0.03)


def test_queries_keys_and_values_initialise_as_one_matrix(model):
    attentions = [module for module in model.modules() if isinstance(module, VanillaTransformerAttention)]
    assert len(attentions) == 3  # one in the encoder's layer, two in the decoder's
    for attention in attentions:
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            assert_uniform(projection.weight, xavier(projection.weight) * 2**-0.5)


def test_other_matrices_are_xavier_uniform(model):
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and not name.endswith(("q_proj", "k_proj", "v_proj")):
            assert_uniform(module.weight, xavier(module.weight))


def test_biases_are_zero_and_norms_one(model):
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            assert (module.bias == 0).all()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()


def test_the_tied_output_matrix_is_an_embedding_not_a_xavier_matrix():
    torch.manual_seed(0)
    config = VanillaTransformerConfig(vocab_size=900, d_model=64, encoder_layers=1, decoder_layers=1)
    weight = VanillaTransformerForConditionalGeneration(config).lm_head.weight
    assert weight.std().item() == pytest.approx(64**-0.5, rel=0.03)
    assert weight.abs().max() > 2.5 * 64**-0.5  # a normal distribution, not a uniform one


def test_layers_start_with_different_weights(model):
    attention, other = model.model.encoder.layers[0].self_attn, model.model.decoder.layers[0].self_attn
    assert not torch.equal(attention.q_proj.weight, other.q_proj.weight)


@torch.no_grad()
def test_new_base_model_has_near_uniform_loss():
    """The loss is ln V plus half a nat for the unit variance of the first scores, which is within 5 %."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig()).eval()
    source, target = torch.randint(4, 37_000, (2, 8, 64))
    loss = model(input_ids=source, labels=target).loss
    assert loss.item() == pytest.approx(math.log(37_000), rel=0.05)
