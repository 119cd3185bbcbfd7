"""Faster paths give the same results as the plain equations."""

import pytest
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from vanilla_transformer.model import masks_vanilla_transformer as masks
from vanilla_transformer.model import modeling_vanilla_transformer as modeling
from vanilla_transformer.model.linear_vanilla_transformer import projected
from vanilla_transformer.model.modeling_vanilla_transformer import eager_attention_forward
from vanilla_transformer.model.steps_vanilla_transformer import GrowingLayer


class TestProjected:
    @pytest.mark.parametrize("bias", [True, False])
    def test_one_product_equals_three(self, bias):
        layers = nn.Linear(6, 4, bias=bias), nn.Linear(6, 4, bias=bias), nn.Linear(6, 10, bias=bias)
        states = torch.randn(2, 3, 6)
        expected = torch.cat([layer(states) for layer in layers], dim=-1)
        got = torch.cat(list(projected(states, *layers)), dim=-1)
        torch.testing.assert_close(got, expected)
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        weights = torch.randn_like(got)
        gradients = [torch.autograd.grad((one * weights).sum(), parameters) for one in (got, expected)]
        torch.testing.assert_close(*gradients)

    @pytest.mark.parametrize("length", [1, 16, 77, 300])
    @pytest.mark.parametrize("bias", [True, False])
    def test_rows_added_in_16_bits_change_nothing(self, bias, length):
        layer, states = nn.Linear(6, 4, bias=bias), torch.randn(3, length, 6, requires_grad=True)
        inputs = [states, *layer.parameters()]
        with torch.autocast("cpu", torch.bfloat16):
            expected = layer(states)
            (got,) = projected(states, layer)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        gradients = [torch.autograd.grad(one, inputs, torch.ones_like(one)) for one in (got, expected)]
        torch.testing.assert_close(*gradients)

    def test_products_in_16_bits_have_few_sizes(self, monkeypatch):
        sizes, linear = set(), torch.nn.functional.linear
        monkeypatch.setattr(torch.nn.functional, "linear", lambda x, *rest: sizes.add(len(x)) or linear(x, *rest))
        with torch.autocast("cpu", torch.bfloat16):
            for rows in range(1024, 2049, 10):
                (got,) = projected(torch.randn(rows, 1, 6), nn.Linear(6, 4))
                assert got.shape == (rows, 1, 4)
        assert len(sizes) == 9
        assert max(sizes) == 2048

    def test_layer_with_a_forward_hook_is_called(self):
        layers = nn.Linear(6, 4), nn.Linear(6, 4)
        layers[1].register_forward_hook(lambda module, inputs, output: output + 100)
        first, second = projected(torch.zeros(1, 1, 6), *layers)
        assert first.max() < 50 < second.min()

    def test_backward_hooks_are_called(self):
        layer, seen = nn.Linear(6, 4), []
        layer.register_full_backward_hook(lambda *gradients: seen.append(len(gradients)))
        (output,) = projected(torch.zeros(1, 1, 6), layer)
        output.sum().backward()
        assert seen == [3]


class TestGrowingLayer:
    def test_selected_rows_keep_their_capacity(self):
        layer, given = GrowingLayer(), torch.randn(2, 5, 3, 4, 8)  # keys and values
        layer.update(*given)
        layer.batch_select_indices(torch.tensor([4, 1]))
        expected = given[:, [4, 1]]
        assert torch.equal(layer.keys[:, :, :4], expected[0])
        assert torch.equal(layer.values[:, :, :4], expected[1])
        place, further = layer.keys.data_ptr(), torch.randn(2, 2, 3, 4, 8)
        keys, values = layer.update(*further)
        assert torch.equal(keys, torch.cat((expected[0], further[0]), dim=2))
        assert torch.equal(values, torch.cat((expected[1], further[1]), dim=2))
        assert layer.keys.data_ptr() == place


class TestWhichAttention:
    def test_only_short_16_bit_sentences_use_the_plain_formula(self, tiny_model, monkeypatch):
        calls = []

        def plain(*args, **kwargs):
            calls.append("plain")
            return eager_attention_forward(*args, **kwargs)

        monkeypatch.setattr(modeling, "eager_attention_forward", plain)
        model, everywhere = tiny_model(attn_implementation="sdpa"), 2 + 2 * 3
        for dtype, length, expected in (
            (torch.bfloat16, 9, everywhere), (torch.float16, 9, everywhere), (torch.bfloat16, 513, 0),
            (torch.float32, 9, 0), (torch.float64, 9, 0),
        ):  # fmt: skip
            ids = torch.randint(4, 40, (1, length))
            calls.clear()
            model.to(dtype)(input_ids=ids, decoder_input_ids=ids)
            assert len(calls) == expected

    def test_both_formulas_agree_around_the_threshold(self, tiny_model, monkeypatch):
        model = tiny_model(attn_implementation="sdpa").bfloat16()
        ids = torch.randint(4, 40, (2, 30))
        mask = torch.ones_like(ids)
        mask[1, 20:] = 0
        found = []
        for pairs in (30 * 30, 30 * 30 - 1):
            monkeypatch.setattr(masks, "_PLAIN_PAIRS", pairs)
            found.append(model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids).logits)
        torch.testing.assert_close(*found, atol=0.1, rtol=0.1)
        assert not torch.equal(*found)  # otherwise nothing was compared


class TestMasks:
    def test_missing_mask_stays_none(self, tiny_config):
        states = torch.zeros(2, 3, 16)
        assert masks.padding_mask(tiny_config(), states, None) is None

    def test_padding_mask_has_one_row_per_sentence(self, tiny_config):
        mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
        for implementation in ("eager", "sdpa"):
            got = masks.padding_mask(tiny_config(attn_implementation=implementation), torch.zeros(2, 5, 16), mask)
            assert got.tolist() == [[[[True, True, True]]], [[[True, False, False]]]]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_additive_mask_is_never_infinite(self, dtype):
        given = torch.tensor([0.0, torch.finfo(torch.float32).min])
        for mask in (given, given == 0):
            got = masks.additive_mask(mask, dtype)
            assert got.dtype == dtype
            assert got.tolist() == [0, torch.finfo(dtype).min]

    @pytest.mark.parametrize("attend", [eager_attention_forward, sdpa_attention_forward])
    def test_causal_attention_without_a_mask_hides_the_future(self, attend):
        module = nn.Module()
        module.is_causal = True
        query, key, value = torch.randn(3, 2, 4, 6, 8)
        got, _ = attend(module, query, key, value, None, scaling=0.5)
        changed = value.clone()
        changed[:, :, 3:] += 1
        after, _ = attend(module, query, key, changed, None, scaling=0.5)
        assert torch.equal(after[:, :3], got[:, :3])
        assert not torch.isclose(after[:, 3:], got[:, 3:]).any()
