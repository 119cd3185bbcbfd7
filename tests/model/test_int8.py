"""8-bit models: their products match numpy's on the same integers, and our searches use them."""

import copy
import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vanilla_transformer import (
    EnsembleForConditionalGeneration,
    VanillaTransformerForConditionalGeneration,
    quantize_int8,
)
from vanilla_transformer.model.steps_vanilla_transformer import StepwiseDecoder
from vanilla_transformer.translation import int8
from vanilla_transformer.translation.int8 import Int8Linear

from .conftest import sharpened, transformers_own
from .test_search import OPTIONS


SEARCHES = {
    "greedy": {"num_beams": 1},
    "beam": {"num_beams": 3},
    "n-best": {"num_beams": 3, "num_return_sequences": 3},
    "sampling": {"num_beams": 1, "do_sample": True, "top_k": 1},
}


def quantised(model):
    quantize_int8(model)
    return model


# ----------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(("rows", "ins", "outs"), [(1, 1, 1), (1, 512, 512), (7, 3, 5), (4, 64, 3000), (130, 96, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_match_integer_arithmetic(rows, ins, outs, bias):
    torch.manual_seed(rows)
    linear, states = nn.Linear(ins, outs, bias=bias), 3 * torch.randn(rows, ins)
    found = Int8Linear(linear.weight, linear.bias)(states).numpy()
    weight, x = linear.weight.detach().double().numpy(), states.double().numpy()
    largest = int8._largest_weight()  # 63 on processors without VNNI
    weight_scale = np.abs(weight).max(axis=1, keepdims=True) / largest
    scale = np.abs(x).max(axis=1, keepdims=True) / 127
    expected = np.rint(x / scale) @ np.rint(weight / weight_scale).T * scale * weight_scale.T
    expected += linear.bias.detach().numpy() if bias else 0
    # A number half-way between two integers may be rounded differently in float32.
    assert np.abs(found - expected).max() < 2e-6 * ins + 2 * (scale * np.abs(weight).max()).max() * 127 / largest
    assert np.median(np.abs(found - expected)) < 1e-5
    assert np.abs(found - linear(states).detach().numpy()).max() < 0.03 * 127 / largest * (np.abs(expected).max() + 1)


def test_rows_are_independent_of_the_batch():
    linear = nn.Linear(64, 48)
    layer = Int8Linear(linear.weight, linear.bias)
    states = torch.randn(5, 3, 64) * 10.0 ** torch.arange(5)[:, None, None]
    found = layer(states)
    assert found.shape == (5, 3, 48)
    for i in range(5):
        assert torch.equal(layer(states[i]), found[i])
        assert torch.equal(layer(states[i, 1]), found[i, 1])
    assert torch.equal(layer(states[:0]), found[:0])


def test_zero_rows_and_weights_give_the_bias():
    linear = nn.Linear(8, 6)
    with torch.no_grad():
        linear.weight[2] = 0
    found = Int8Linear(linear.weight, linear.bias)(torch.stack((torch.zeros(8), torch.full((8,), 2.0))))
    assert torch.equal(found[0], linear.bias)
    assert found[1, 2] == linear.bias[2]
    assert found.isfinite().all()


def test_largest_products_do_not_overflow():
    """Sums of 8-bit products overflow 16 bits, so processors that add in 16 bits need narrower weights."""
    layer = Int8Linear(torch.tensor([[1.0] * 512, [-1.0] * 512]), None)
    torch.testing.assert_close(layer(torch.ones(3, 512)), torch.tensor([[512.0, -512.0]] * 3), rtol=1e-5, atol=0)


def test_unsupported_processor_raises_and_keeps_the_model(monkeypatch, tiny_model):
    def missing(*args):
        raise RuntimeError("not compiled with MKLDNN support")

    monkeypatch.setattr(torch.ops.onednn, "qlinear_prepack", missing)
    int8._largest_weight.cache_clear()
    model = tiny_model()
    with pytest.raises(ValueError, match="no products of 8 bits for this processor: translate in float32"):
        quantize_int8(model)
    assert type(model.lm_head) is nn.Linear


# ------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_linear_layer_but_no_embedding_is_quantised(tiny_model, options):
    model = tiny_model(**options)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    embeddings = model.get_input_embeddings().weight.clone()
    quantize_int8(model)
    assert linear
    assert all(type(model.get_submodule(name)) is Int8Linear for name in linear)
    assert torch.equal(model.get_input_embeddings().weight, embeddings)
    layers = dict(model.named_modules())
    quantize_int8(model)  # the second time there is nothing to do
    assert dict(model.named_modules()) == layers


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_stepwise_scores_match_the_whole_forward_pass(tiny_model, sources, options):
    model = quantised(tiny_model(**options))
    torch.manual_seed(1)
    tokens = torch.randint(3, 40, (5, 2, 9))
    with torch.no_grad():
        decoder = StepwiseDecoder(model, model.model.encoder(**sources)[0], sources["attention_mask"], 2)
        for position in range(tokens.shape[2]):
            scores = decoder.scores(tokens[:, :, position])
        twice = {name: value.repeat_interleave(2, dim=0) for name, value in sources.items()}
        expected = model(**twice, decoder_input_ids=tokens.flatten(0, 1)).logits[:, -1]
    # Different orders of summation occasionally round states to different integers.
    torch.testing.assert_close(scores.flatten(0, 1), expected, atol=0.1, rtol=0)
    assert (scores.flatten(0, 1) - expected).abs().median() < 0.02


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_our_searches_match_transformers_own(tiny_model, sources, search, ours_used):
    model = quantised(sharpened(tiny_model(tie_word_embeddings=False)))
    options = {**sources, **search, "max_new_tokens": 8}
    found = model.generate(**options)
    assert len(ours_used) == 1
    assert torch.equal(found, transformers_own(model, **options))
    assert len(found) == 5 * search.get("num_return_sequences", 1)


def test_a_translation_does_not_depend_on_its_neighbours(tiny_model, sources):
    model = quantised(sharpened(tiny_model(tie_word_embeddings=False)))
    together = model.generate(**sources, num_beams=3, max_new_tokens=8)
    for row in range(5):
        alone = {name: value[row : row + 1, : 7 - row] for name, value in sources.items()}
        found = model.generate(**alone, num_beams=3, max_new_tokens=8)[0]
        assert torch.equal(found, together[row, : len(found)])


def test_quantised_ensemble_translates_with_our_search(tiny_model, sources, ours_used):
    members = [sharpened(tiny_model(seed, tie_word_embeddings=False)) for seed in (1, 2)]
    single = quantised(copy.deepcopy(members[0]))
    ensemble = quantised(EnsembleForConditionalGeneration(members))
    assert type(ensemble.models[1].lm_head) is Int8Linear
    found = ensemble.generate(**sources, num_beams=3, max_new_tokens=8)
    assert len(ours_used) == 1
    assert not torch.equal(found, single.generate(**sources, num_beams=3, max_new_tokens=8))


def test_half_precision_model_in_training_is_quantised(tiny_model, sources):
    model = quantised(tiny_model().half().train())
    assert not model.training
    assert model.generate(**sources, max_new_tokens=3).shape[0] == 5


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks for mapped files in /proc")
def test_quantising_releases_the_mapped_file(tiny_model, tmp_path):
    tiny_model(attention_bias=True, output_bias=True).save_pretrained(tmp_path)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    file = str(tmp_path / "model.safetensors")
    assert file in Path("/proc/self/maps").read_text(encoding="utf-8")  # otherwise there is nothing to release
    quantize_int8(model)
    gc.collect()
    assert file not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_hook_on_a_quantised_layer_takes_effect(tiny_model, sources, ours_used):
    for place in ("lm_head", "model.decoder.layers.0.self_attn.q_proj"):
        model = quantised(sharpened(tiny_model(tie_word_embeddings=False)))
        before = model.generate(**sources, max_new_tokens=6)
        model.get_submodule(place).register_forward_hook(lambda module, args, output: output.flip(-1))
        ours_used.clear()
        found = model.generate(**sources, max_new_tokens=6)
        assert ours_used
        assert not torch.equal(found, before)
        assert torch.equal(found, transformers_own(model, **sources, max_new_tokens=6))


def test_saving_a_quantised_model_raises(tiny_model, tmp_path):
    model = quantised(tiny_model())
    with pytest.raises(ValueError, match="cannot be saved: save the one that it was made from"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
