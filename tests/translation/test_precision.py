"""The precision that models translate in: the requested one, or the faster one in a trial."""

import copy
import logging
import re

import pytest
import torch
from torch import nn

from vanilla_transformer import EnsembleForConditionalGeneration
from vanilla_transformer.environment import has_bfloat16
from vanilla_transformer.run.loading import load_engine
from vanilla_transformer.translation import translate
from vanilla_transformer.translation.packed import PackedLinear
from vanilla_transformer.translation.precision import in_precision

from ..model.conftest import build_model


OPTIONS = {"num_beams": 4, "max_new_tokens": 12, "length_penalty": 0.0, "return_dict_in_generate": True}
CHOICE = r"Translates in (\w+): (\d+) ms in bfloat16, (\d+) ms in float32"


def test_scores_of_bfloat16_weights_add_up_in_float32():
    model = build_model(vocab_size=60)
    # Weights that bfloat16 can represent, so only the rounding of states differs.
    model.to(torch.bfloat16).to(torch.float32)
    sources = {"input_ids": torch.randint(4, 60, (8, 9))}
    exact = copy.deepcopy(model).double()
    rounded = in_precision(model, "bfloat16")
    assert {parameter.dtype for parameter in rounded.parameters()} == {torch.bfloat16}
    found = rounded.generate(**sources, **OPTIONS)
    assert found.sequences_scores.dtype == torch.float32
    for source, labels, score in zip(
        sources["input_ids"], found.sequences[:, 1:], found.sequences_scores.tolist(), strict=True
    ):
        target = labels[labels != model.config.pad_token_id]
        with torch.no_grad():
            log_probabilities = exact(input_ids=source[None], labels=target[None]).logits[0].log_softmax(-1)
        expected = log_probabilities.gather(1, target[:, None]).sum().item()
        assert score == pytest.approx(expected, rel=0.03)


def test_models_saved_in_16_bits_translate_in_float32(tokenizer, tmp_path):
    folders = [tmp_path / "float32", tmp_path / "bfloat16"]
    models = [build_model(seed, vocab_size=280).to(dtype) for seed, dtype in enumerate((torch.float32, torch.bfloat16))]
    for folder, model in zip(folders, models, strict=True):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for given in (folders, folders[::-1], folders[1:]):
        loaded, _ = load_engine(given, precision="float32")
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
        assert translate(loaded, tokenizer, ["No."], num_beams=2, max_new_tokens=5)
    for members in (models, models[::-1]):  # as they are
        assert translate(EnsembleForConditionalGeneration(members), tokenizer, ["No."], num_beams=2, max_new_tokens=5)


def test_auto_takes_the_faster_precision(caplog):
    model = build_model(vocab_size=40_000)
    ensemble = EnsembleForConditionalGeneration([build_model(0), build_model(1)])
    with caplog.at_level(logging.INFO, "vanilla_transformer"):
        chosen = [in_precision(each, "auto") for each in (model, ensemble)]
    said = [record.message for record in caplog.records if record.message.startswith("Translates")]
    assert len(said) == 2
    for each, line in zip(chosen, said, strict=True):
        if not has_bfloat16(use_cpu=True):
            assert "slow at bfloat16" in line
            name = "float32"
        else:
            name, half, full = re.match(CHOICE, line).groups()
            assert int({"bfloat16": half, "float32": full}[name]) == min(int(half), int(full))
        assert {parameter.dtype for parameter in each.parameters()} == {getattr(torch, name)}


def test_float32_model_is_kept_and_packed():
    model = build_model(vocab_size=40_000)
    expected = model.generate(input_ids=torch.arange(4, 14)[None], num_beams=3, max_new_tokens=5)
    assert in_precision(model, "float32") is model
    packs = torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    assert type(model.lm_head) is (PackedLinear if packs else nn.Linear)
    again = model.generate(input_ids=torch.arange(4, 14)[None], num_beams=3, max_new_tokens=5)
    assert torch.equal(again, expected)


def test_unknown_precision_is_rejected():
    with pytest.raises(ValueError, match="no precision 'half' to translate in: choose auto, float32 or bfloat16"):
        in_precision(build_model(), "half")
