"""Positions, attention, layers and whole models match the paper's formulas in float64 numpy."""

import numpy as np
import pytest
import torch

from vanilla_transformer.model.modeling_vanilla_transformer import eager_attention_forward, sinusoids

from ..reference_transformer import NumpyTransformer, attention, sinusoid


VARIANTS = {
    "paper": {},
    "d_k and d_v apart from d_model / h": {"head_dim": 6, "value_head_dim": 10},
    "d_k alone": {"head_dim": 6},
    "pre-norm": {"norm_first": True},
    "learned positions": {"position_embedding_type": "learned", "max_position_embeddings": 9},
    "sinusoids in halves": {"sinusoid_layout": "halves"},
    "attention bias": {"attention_bias": True},
    "untied": {"tie_word_embeddings": False},
    "embeddings not scaled": {"scale_embedding": False},
    "output bias": {"output_bias": True},
    "GELU": {"activation_function": "gelu"},
    "SiLU": {"activation_function": "silu"},
    "coarse epsilon": {"layer_norm_eps": 0.1},
}


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("position", [0, 1, 2, 17, 511, 1023])
def test_sinusoids_match_section_3_5(position, layout):
    got = sinusoids(torch.tensor([position]), 512, layout)[0]
    # An angle of 1,000 has steps of 6e-5 in float32.
    np.testing.assert_allclose(got, sinusoid(position, 512, layout), atol=3e-4)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("position", [10_001, 40_000])
def test_sinusoids_stay_correct_beyond_position_ten_thousand(position, layout):
    got = sinusoids(torch.tensor([position]), 512, layout)[0]
    # Angles are float32: at 40,000 they are accurate to about 1e-2, a hundredth of the sine's amplitude.
    np.testing.assert_allclose(got, sinusoid(position, 512, layout), atol=2e-2)


def test_sinusoids_keep_the_shape_of_their_positions():
    got = sinusoids(torch.tensor([[3, 1], [4, 1]]), 8)
    assert got.shape == (2, 2, 8)
    np.testing.assert_allclose(got[1, 0], sinusoid(4, 8, "interleaved"), atol=1e-6)


@pytest.fixture
def heads():
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    return query, key, value


@pytest.mark.parametrize("hidden", [0, 1, 2, 4])
def test_attention_matches_equation_1(heads, hidden):
    allowed = np.ones((4, 5), dtype=bool)
    allowed[:, 5 - hidden :] = False
    allowed[2, 0] = hidden == 0  # one target sees less than the others
    mask = torch.zeros(4, 5).masked_fill(~torch.from_numpy(allowed), torch.finfo(torch.float32).min)
    if hidden == 4:
        allowed[2, 0] = True
        mask[2, 0] = 0
    module = torch.nn.Module().eval()
    got, weights = eager_attention_forward(module, *heads, mask[None, None], scaling=6**-0.5)
    for row in range(2):
        for head in range(3):
            query, key, value = (states[row, head].double().numpy() for states in heads)
            np.testing.assert_allclose(got[row, :, head], attention(query, key, value, allowed), atol=1e-6)
    assert (weights[..., ~torch.from_numpy(allowed)] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 4))


def test_attention_dropout_drops_probabilities_in_training_only(heads):
    module = torch.nn.Module()
    _, weights = eager_attention_forward(module.train(), *heads, None, scaling=1.0, dropout=0.5)
    assert 0 < (weights == 0).float().mean() < 1
    _, weights = eager_attention_forward(module.eval(), *heads, None, scaling=1.0, dropout=0.5)
    assert (weights > 0).all()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_encoder_layer_matches_left_side_of_figure_1(tiny_model, implementation):
    model = tiny_model(attn_implementation=implementation)
    x = torch.randn(1, 5, 16)
    got = model.model.encoder.layers[1](x, None)[0]
    expected = NumpyTransformer(model).encoder_layer(x[0].double().numpy(), "model.encoder.layers.1")
    np.testing.assert_allclose(got.detach(), expected, atol=1e-5)


def test_decoder_layer_matches_right_side_of_figure_1(tiny_model):
    model = tiny_model(attn_implementation="eager")
    x, memory = torch.randn(1, 4, 16), torch.randn(1, 6, 16)
    future = torch.full((4, 4), float("-inf")).triu(1)[None, None]
    got = model.model.decoder.layers[2](x, future, memory)[0]
    expected = NumpyTransformer(model).decoder_layer(
        x[0].double().numpy(), memory[0].double().numpy(), "model.decoder.layers.2"
    )
    np.testing.assert_allclose(got.detach(), expected, atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_model_matches_numpy(tiny_model, batch, decoder_input_ids, variant, implementation):
    model = tiny_model(**VARIANTS[variant], attn_implementation=implementation)
    with torch.no_grad():
        got = model(input_ids=batch["input_ids"][:1], decoder_input_ids=decoder_input_ids[:1]).logits[0]
    expected = NumpyTransformer(model).logits(batch["input_ids"][0].numpy(), decoder_input_ids[0].numpy())
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("paper", "d_k alone")])
def test_every_variant_differs_from_the_paper(tiny_model, batch, decoder_input_ids, variant):
    paper, other = tiny_model(), tiny_model(**VARIANTS[variant])
    shared = {name: tensor for name, tensor in paper.state_dict().items() if name in other.state_dict()}
    fitting = {name: tensor for name, tensor in shared.items() if tensor.shape == other.state_dict()[name].shape}
    other.load_state_dict(fitting, strict=False)
    if variant == "untied":  # the same weights, only stored separately
        assert other.lm_head.weight is not other.model.encoder.embed_tokens.weight
        return
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": decoder_input_ids}
    assert not torch.allclose(paper(**inputs).logits, other(**inputs).logits, atol=1e-3)
