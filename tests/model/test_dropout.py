"""Dropout of numbers, words and layers: the right share, the same in forward and backward, set by the seed."""

import copy
import math

import pytest
import torch
from torch import nn

from vanilla_transformer.model.dropout_vanilla_transformer import add_dropout, dropout, word_dropout
from vanilla_transformer.model.modeling_vanilla_transformer import sinusoids


NUMBERS = 200_000


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_share_dropped_is_p(p):
    """The rest is divided by 1 - p, which preserves the mean."""
    torch.manual_seed(0)
    got = dropout(torch.ones(NUMBERS), p, training=True)
    dropped = (got == 0).sum().item()
    # Five standard deviations of a binomial: one seed in two million falls outside.
    assert abs(dropped - NUMBERS * p) < 5 * math.sqrt(NUMBERS * p * (1 - p))
    # p has 16 bits
    torch.testing.assert_close(got[got > 0], torch.full((NUMBERS - dropped,), 1 / (1 - p)), atol=0, rtol=1e-4)


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True), (0, True)])
def test_zero_p_or_evaluation_changes_nothing(p, training):
    states = torch.randn(10, 10)
    assert torch.equal(dropout(states, p, training), states)


@pytest.mark.parametrize("shape", [(1,), (3,), (5,), (2, 3, 7), (4, 4), (0,), (2, 0)])
def test_every_shape_and_dtype_is_supported(shape):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        states = torch.full(shape, 3.0, dtype=dtype)
        got = dropout(states, 0.5, training=True)
        assert (got.shape, got.dtype) == (shape, dtype)
        assert ((got == 0) | (got == 6)).all()
        assert (states == 3).all()  # the input is unchanged


def test_forward_and_backward_drop_the_same_elements():
    states = torch.ones(999, requires_grad=True)
    got = dropout(states, 0.4, training=True)
    got.backward(torch.ones(999))
    assert torch.equal(states.grad, got.detach())
    assert 0 < (got == 0).sum() < 999


def test_same_seed_drops_the_same_elements():
    def draw():
        return dropout(torch.ones(500), 0.5, training=True)

    torch.manual_seed(3)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(draw(), first)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(2)
    dropped = dropout(torch.ones(NUMBERS), 0.5, training=True) == 0
    for distance in (1, 2, 3, 4):  # four elements share one number of the generator
        both = (dropped[distance:] & dropped[:-distance]).float().mean().item()
        assert abs(both - 0.25) < 0.01


def test_strided_states_are_supported():
    states = torch.arange(1.0, 13.0).view(3, 4).T
    got = dropout(states, 0.5, training=True)
    assert ((got == 0) | (got == 2 * states)).all()


def test_p_just_below_one_drops_nearly_everything():
    assert (dropout(torch.ones(100), 0.999999, training=True) == 0).float().mean() > 0.9


class TestAddDropout:
    @pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float32, torch.bfloat16)])
    def test_values_and_gradients_match_the_drawn_mask(self, dtypes):
        residual, states = (torch.randn(50, 40).to(dtype).requires_grad_() for dtype in dtypes)
        torch.manual_seed(2)
        got = add_dropout(residual, states, 0.3, training=True)
        torch.manual_seed(2)
        kept = dropout(torch.ones(50, 40), 0.3, training=True)  # 0 or 1 / 0.7
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, residual + states.float() * kept)
        gradient = torch.randn(50, 40)
        got.backward(gradient)
        torch.testing.assert_close(residual.grad, gradient)
        torch.testing.assert_close(states.grad, (gradient * kept).to(states.dtype))

    def test_gradients_match_finite_differences(self):
        residual, states = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def same_mask(*args):
            torch.manual_seed(3)
            return add_dropout(*args, 0.5, training=True)

        assert torch.autograd.gradcheck(same_mask, (residual, states))

    @pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
    def test_zero_p_or_evaluation_gives_the_plain_sum(self, p, training):
        residual, states = torch.randn(2, 5, 6)
        assert torch.equal(add_dropout(residual, states, p, training), residual + states)


class TestWordDropout:
    def test_share_dropped_is_p_but_never_the_start(self):
        torch.manual_seed(0)
        batch, length, p = 400, 51, 0.2
        got = word_dropout(torch.ones(batch, length, 3), p, training=True, first=1)
        assert torch.equal(got[:, 0], torch.ones(batch, 3))
        drawn = got[:, 1:]
        dropped = (drawn == 0).all(dim=2)
        torch.testing.assert_close(
            drawn[~dropped], torch.full((int((~dropped).sum()), 3), 1 / (1 - p)), rtol=1e-4, atol=0
        )
        drawings = batch * (length - 1)
        assert abs(dropped.sum().item() - drawings * p) < 5 * math.sqrt(drawings * p * (1 - p))
        assert word_dropout(got, p, training=False) is got
        assert word_dropout(got, 0.0, training=True) is got

    def test_model_drops_embeddings_but_keeps_positions(self, tiny_model):
        ids = torch.arange(4, 34).view(2, 15)
        positions = sinusoids(torch.arange(15), 16)
        for side, start in (("encoder", 0), ("decoder", 1)):
            name = "source" if side == "encoder" else "target"
            model = tiny_model(**{f"{name}_word_dropout": 0.5}).train()
            stack, other = model.model.encoder, model.model.decoder
            if side == "decoder":
                stack, other = other, stack
            with torch.no_grad():
                rows = stack.embed_tokens(ids)
                got = stack.embed(rows) - positions
                torch.testing.assert_close(other.embed(rows) - positions, 4 * rows)  # sqrt(d_model) E
            torch.testing.assert_close(got[:, :start], 4 * rows[:, :start])
            dropped = got.abs().amax(dim=2) < 1e-5  # (batch, length)
            assert 0 < dropped[:, start:].sum() < dropped[:, start:].numel()
            torch.testing.assert_close(got[:, start:][~dropped[:, start:]], 8 * rows[:, start:][~dropped[:, start:]])


def layers_run(model, call):
    """The result of a call, and the names of the layers that it ran."""
    names, handles = [], []
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model.model, side).layers):
            name = f"{side}.layers.{number}"
            handles.append(layer.register_forward_hook(lambda *_, name=name: names.append(name)))
    output = call()
    for handle in handles:
        handle.remove()
    return output, names


class TestLayerdrop:
    def test_each_layer_is_skipped_with_its_probability(self, tiny_model, batch):
        model = tiny_model(encoder_layerdrop=0.2, decoder_layerdrop=0.5).train()
        torch.manual_seed(0)
        passes = 300
        expected = {f"encoder.layers.{i}": 0.8 for i in range(2)} | {f"decoder.layers.{i}": 0.5 for i in range(3)}
        for given in ("labels", "decoder_input_ids"):  # with the latter for a loss of one's own
            inputs = {**batch, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(batch["labels"])}
            del inputs["labels" if given == "decoder_input_ids" else "decoder_input_ids"]
            with torch.no_grad():
                ran = [name for _ in range(passes) for name in layers_run(model, lambda: model(**inputs))[1]]  # noqa: B023
            for name, kept in expected.items():
                assert abs(ran.count(name) - passes * kept) < 5 * math.sqrt(passes * kept * (1 - kept)), (given, name)

    def test_remaining_layers_equal_a_shallower_model(self, tiny_model, batch):
        model, seen = tiny_model(encoder_layerdrop=0.5, decoder_layerdrop=0.5), set()
        for seed in range(8):
            torch.manual_seed(seed)
            output, ran = layers_run(model.train(), lambda: model(**batch))
            gradients = torch.autograd.grad(output.loss, list(model.parameters()), allow_unused=True)
            shallow = copy.deepcopy(model).eval()
            for side in ("encoder", "decoder"):
                stack = getattr(shallow.model, side)
                stack.layers = nn.ModuleList(
                    layer for number, layer in enumerate(stack.layers) if f"{side}.layers.{number}" in ran
                )
            torch.testing.assert_close(output.logits, shallow(**batch).logits)
            for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
                layer = name.removeprefix("model.").rpartition(".layers.")
                if layer[1]:
                    reached = f"{layer[0]}.layers.{layer[2].partition('.')[0]}" in ran
                    if layer[0] == "encoder":  # needs a decoder layer that attends to it
                        reached = reached and any("decoder" in each for each in ran)
                    assert (gradient is not None) == reached, name
            seen.add(tuple(ran))
        assert len(seen) > 4
        assert len(layers_run(model.eval(), lambda: model(**batch))[1]) == 5

    def test_gradient_checkpointing_keeps_the_same_gradients(self, tiny_model, batch):
        model, found = tiny_model(encoder_layerdrop=0.5, decoder_layerdrop=0.5, dropout=0.3).train(), []
        for checkpointing in (False, True):
            if checkpointing:
                model.gradient_checkpointing_enable()
            torch.manual_seed(4)
            model.zero_grad()
            model(**batch).loss.backward()
            found.append([parameter.grad for parameter in model.parameters()])
        assert any(gradient is None for gradient in found[0])
        torch.testing.assert_close(*found)

    def test_generation_in_training_mode_skips_no_layer(self, tiny_model, unlabelled):
        model = tiny_model(decoder_layerdrop=0.9)
        expected = model.generate(**unlabelled, max_new_tokens=6)
        assert torch.equal(model.train().generate(**unlabelled, max_new_tokens=6), expected)
