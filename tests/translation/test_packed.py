"""Matrices packed for speed give the same results as plain ones."""

import copy
import pickle
import sys

import pytest
import torch
from torch import nn

from vanilla_transformer.translation import packed
from vanilla_transformer.translation.int8 import quantize_int8
from vanilla_transformer.translation.packed import PackedLinear, pack_linear

from ..model.conftest import build_model


@pytest.fixture(params=["AVX2", "Intel", "other"])
def kind(request, monkeypatch) -> str:
    """What the processor is taken for."""
    monkeypatch.setattr(packed, "_kind_of_processor", lambda: request.param)
    return request.param


def test_packed_layer_matches_plain_layer(kind):
    torch.manual_seed(0)
    for bias, width in ((True, 600), (False, 600), (False, 4096), (True, 4200), (True, 8200)):
        plain = nn.Linear(512, width, bias=bias)
        layer = PackedLinear(plain.weight, plain.bias)
        assert layer.layout.by_columns == (width < {"AVX2": 4097, "Intel": 2**22 / 512, "other": 0}[kind])
        for shape in ((1,), (2, 3), (4, 4), (64,), (0, 5), (3, 50)):
            states = torch.randn(*shape, 512)
            with torch.no_grad():
                torch.testing.assert_close(layer(states), plain(states), atol=1e-5, rtol=1e-5)
        with torch.no_grad():
            plain.weight.mul_(2)  # the same parameter: it is packed anew
            states = torch.randn(64, 512)
            torch.testing.assert_close(layer(states), plain(states), atol=2e-5, rtol=1e-5)


def test_gradients_and_autocast_take_the_plain_product():
    plain = nn.Linear(512, 600)
    layer, states = PackedLinear(plain.weight, plain.bias), torch.randn(32, 512)
    layer(states).sum().backward()
    expected = torch.autograd.grad(plain(states).sum(), plain.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(states), plain(states))


def test_packed_model_translates_and_saves_as_before(tmp_path, kind):
    model = build_model(vocab_size=40_000, output_bias=True)
    sources = {"input_ids": torch.randint(4, 40_000, (8, 6))}
    options = {"num_beams": 4, "max_new_tokens": 6}
    before = model.generate(**sources, **options)
    pack_linear(model)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    # The output layer has 640,000 numbers, which are the embeddings too. All others are too small for oneDNN.
    assert [each for each in layers if type(each) is PackedLinear] == [model.lm_head]
    assert not model.lm_head.training
    stored_by_columns = {each.weight.t().is_contiguous() for each in layers if each is not model.lm_head}
    assert stored_by_columns == {kind != "other"}
    assert model.get_input_embeddings().weight.is_contiguous()
    assert torch.equal(model.generate(**sources, **options), before)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    for each in (again, copy.deepcopy(model)):
        assert torch.equal(each.generate(**sources, **options), before)
    for dtype in (torch.bfloat16, torch.float64):  # other types are left alone
        pack_linear(again.to(dtype))
        assert type(again.lm_head) is nn.Linear


K_PROJ = "model.decoder.layers.0.self_attn.k_proj.weight"


def test_fully_packed_model_translates_after_copying_and_loading(monkeypatch):
    """As on AMD processors with a model of usual size: projections of the same states become one packed product."""

    def all_of_float32(weight: torch.Tensor) -> packed._Layout:
        return packed._Layout(range(1, sys.maxsize) if weight.dtype == torch.float32 else range(0))

    monkeypatch.setattr(packed, "_layout_for", all_of_float32)
    model = build_model(vocab_size=300, output_bias=True)
    sources = {"input_ids": torch.randint(4, 300, (8, 6)), "attention_mask": torch.ones(8, 6, dtype=torch.long)}
    before = {beams: model.generate(**sources, num_beams=beams, max_new_tokens=6) for beams in (1, 4)}
    pack_linear(model)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert {type(each) for each in layers} == {PackedLinear}
    for beams, translations in before.items():
        assert torch.equal(model.generate(**sources, num_beams=beams, max_new_tokens=6), translations)

    def translations_of(model) -> torch.Tensor:
        return model.generate(**sources, num_beams=4, max_new_tokens=6)

    model.lm_head.compile(backend="eager")
    assert torch.equal(translations_of(pickle.loads(pickle.dumps(model))), before[4])
    packed_once = model.lm_head.packed
    assert model.to("cpu").lm_head.packed is packed_once
    moved = copy.deepcopy(model).double()
    assert torch.equal(translations_of(moved), before[4])
    assert torch.equal(translations_of(moved.float()), before[4])
    other = build_model(vocab_size=300, output_bias=True, seed=1)
    moved.load_state_dict(other.state_dict())
    assert torch.equal(translations_of(moved), translations_of(other))
    moved, exact = copy.deepcopy(model), copy.deepcopy(other).double().state_dict()
    moved.model.decoder.layers[0].self_attn.k_proj.load_state_dict({"weight": exact[K_PROJ]})
    other.load_state_dict(model.state_dict())
    other.model.decoder.layers[0].self_attn.k_proj.load_state_dict({"weight": exact[K_PROJ]})
    assert torch.equal(translations_of(moved), translations_of(other))
    moved.load_state_dict(exact, assign=True)
    assert moved.lm_head.weight.dtype == torch.float64
    assert torch.equal(translations_of(moved), translations_of(build_model(vocab_size=300, output_bias=True, seed=1)))
    decoder = model.model.decoder.layers[0]
    for layer in (decoder.self_attn.q_proj, decoder.fc1, model.lm_head):
        called = []
        hook = layer.register_forward_hook(lambda *_, called=called: called.append(1))
        model.generate(**sources, max_new_tokens=2)
        hook.remove()
        assert called


def test_packed_weights_of_other_uses(kind):
    """8 bits after packing, weights made in inference mode, and weights that change after all."""
    sources = {"input_ids": torch.randint(4, 300, (8, 6)), "attention_mask": torch.ones(8, 6, dtype=torch.long)}
    options = {**sources, "num_beams": 4, "max_new_tokens": 6}
    model = build_model(vocab_size=300)
    expected = copy.deepcopy(model)
    for each in (model, expected):
        if each is model:
            pack_linear(each)
        quantize_int8(each)
    assert torch.equal(model.generate(**options), expected.generate(**options))

    with torch.inference_mode():
        model = build_model(vocab_size=300)
    expected = model.generate(**options)
    pack_linear(model)
    assert torch.equal(model.generate(**options), expected)

    model = build_model(vocab_size=300)
    pack_linear(model)
    states = torch.randn(16, model.config.d_model)
    with torch.no_grad():
        model.lm_head(states)
        model.lm_head.weight.mul_(2)
        assert torch.equal(model.lm_head(states), states @ model.lm_head.weight.t())
        model.resize_token_embeddings(310)
        torch.testing.assert_close(model.lm_head(states), states @ model.get_input_embeddings().weight.t())


def test_forward_hooks_still_run_after_packing():
    model, called = build_model(vocab_size=40_000), []
    model.lm_head.register_forward_hook(lambda *_: called.append(1))
    pack_linear(model)
    model.generate(torch.randint(4, 40_000, (8, 6)), max_new_tokens=2)
    assert called
