"""The paper's remarks about its parts, made in passing and without an equation, hold for ours."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerAttention, sinusoids


@torch.no_grad()
def test_feed_forward_equals_two_convolutions_of_width_1(tiny_model):
    layer = tiny_model().model.encoder.layers[0]
    convolutions = []
    for linear in (layer.fc1, layer.fc2):
        convolution = nn.Conv1d(linear.in_features, linear.out_features, kernel_size=1)
        convolution.weight.copy_(linear.weight[..., None])
        convolution.bias.copy_(linear.bias)
        convolutions.append(convolution)
    states = torch.randn(2, 7, 16)
    expected = convolutions[1](convolutions[0](states.transpose(1, 2)).relu()).transpose(1, 2)
    torch.testing.assert_close(layer.feed_forward(states), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("offset", [1, 5, 40])
def test_shifted_position_is_a_linear_function(offset):
    """One matrix for all positions (section 3.5): it rotates each pair of sine and cosine by its own angle."""
    turns = []
    for two_i in range(0, 16, 2):
        angle = torch.tensor(offset / 10000 ** (two_i / 16))
        turns.append(torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos())).view(2, 2))
    positions = torch.arange(100)
    there = sinusoids(positions, 16) @ torch.block_diag(*turns)
    torch.testing.assert_close(there, sinusoids(positions + offset, 16), atol=2e-5, rtol=0)


@torch.no_grad()
def test_encoder_without_positions_ignores_the_order(tiny_model):
    encoder = tiny_model().model.encoder
    ids, order = torch.randint(4, 40, (1, 7)), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    with_positions = encoder(ids[:, order]).last_hidden_state, encoder(ids).last_hidden_state[:, order]
    assert (with_positions[0] - with_positions[1]).abs().max() > 0.1
    encoder.embed_positions.forward = lambda positions: torch.zeros(len(positions), 16)
    torch.testing.assert_close(encoder(ids[:, order]).last_hidden_state, encoder(ids).last_hidden_state[:, order])


def test_attention_cost_is_independent_of_head_count(tiny_config):
    costs = set()
    for heads in (1, 2, 8):
        attention = VanillaTransformerAttention(tiny_config(attn_implementation="eager"), heads, is_causal=False)
        with FlopCounterMode(display=False) as counter:
            attention(torch.randn(1, 9, 16))
        costs.add(counter.get_total_flops())
    assert costs == {2 * (4 * 9 * 16 * 16 + 2 * 9 * 9 * 16)}
