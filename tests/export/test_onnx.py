"""Exported graphs compute the same in onnxruntime as the model in PyTorch, for any length and batch size."""

import copy
import importlib
import itertools
import json
import shutil
import sys

import numpy as np
import onnx
import pytest
import torch

from vanilla_transformer.export.onnx import OPSET, to_onnx
from vanilla_transformer.translation import OnnxTranslator, translate_lines

from ..model.conftest import build_model
from .conftest import EOS, ending_model


OFTEN = 119  # the model generates it wherever it may
SMALL = {"vocab_size": 300, "encoder_layers": 1, "decoder_layers": 2}
# Most tests run on two exports, each of which takes seconds: the paper's shape and this one.
OTHER = {
    "norm_first": True,
    "attention_bias": True,
    "output_bias": True,
    "tie_word_embeddings": False,
    "position_embedding_type": "learned",
    "max_position_embeddings": 64,
    "head_dim": 6,
    "value_head_dim": 3,
    "activation_function": "gelu",
}
MORE = {
    "sines, then cosines": {"sinusoid_layout": "halves"},
    "pre-norm": {"norm_first": True},
    "no scaled embeddings": {"scale_embedding": False},
    "large epsilon": {"layer_norm_eps": 0.1},
    **{name: {"activation_function": name} for name in ("gelu_new", "quick_gelu", "silu", "tanh", "mish")},
}


def small_model(**choices):
    """A model whose random translations depend on their sources and end now and then."""
    model = ending_model(ends=1, seed=8, **SMALL, **choices)
    with torch.no_grad():
        for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
            for parameter in layer.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(3)
    return model


@pytest.fixture(scope="module", params=["paper", pytest.param("other", marks=pytest.mark.slow)])
def exported(request, tokenizer, tmp_path_factory):
    """A model and its export; the second is exported from half precision."""
    folder = tmp_path_factory.mktemp("onnx") / "out"
    model = small_model(**(OTHER if request.param == "other" else {}))
    if request.param == "other":
        model = model.half()
    before = copy.deepcopy(model)
    to_onnx(model, tokenizer, folder)
    assert model.config.to_dict() == before.config.to_dict()
    assert model.config._attn_implementation == before.config._attn_implementation
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))
    return model.float(), folder


def translated_here(model, tokenizer, texts: list[str]) -> list[list[int]]:
    """All translations, padded."""
    return model.generate(**tokenizer(texts, return_tensors="pt", padding=True), num_beams=1)[:, 1:].tolist()


def translated_there(folder, texts: list[str], size: int = 24) -> list[list[int]]:
    translator = OnnxTranslator(folder, threads=1)
    ids = translator.tokenizer(texts).input_ids
    rows = [row for start in range(0, len(ids), size) for row in translator.translate_ids(ids[start : start + size])]
    pad, longest = translator.tokenizer.pad_token_id, max(map(len, rows))
    return [row + [pad] * (longest - len(row)) for row in rows]


def logits_there(translator: OnnxTranslator, source, mask, target, steps: list[int]) -> np.ndarray:
    """The logits of a whole target, which the decoder reads in pieces of `steps` tokens and then the rest."""
    encoded = translator.encoder.run(None, {"input_ids": source, "attention_mask": mask})
    names = [each.name for each in translator.encoder.get_outputs()]
    fixed = {"attention_mask": mask, **dict(zip(names, encoded, strict=True))}
    past = {name.replace("encoder", "past"): each[:, :, :0] for name, each in zip(names, encoded, strict=True)}
    found = []
    for tokens in np.split(target, np.cumsum(steps), axis=1):
        logits, *present = translator.decoder.run(None, {"input_ids": tokens, **fixed, **past})
        past = dict(zip(past, present, strict=True))
        found.append(logits)
    return np.concatenate(found, axis=1)


def test_logits_equal_pytorch(exported):
    model, folder = exported
    translator = OnnxTranslator(folder, threads=1)
    targets = [(1, []), (2, [1]), (60, []), (60, [1, 1, 7])]
    for batch, source_length, (target_length, steps) in itertools.product((1, 7), (1, 2, 9, 60), targets):
        torch.manual_seed(batch)
        source, target = torch.randint(4, 300, (batch, source_length)), torch.randint(4, 300, (batch, target_length))
        mask = torch.ones_like(source)
        mask[0, source_length // 2 + 1 :] = 0
        found = logits_there(translator, source.numpy(), mask.numpy(), target.numpy(), steps)
        with torch.no_grad():
            expected = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        assert found.shape == expected.shape
        assert np.abs(found - expected.numpy()).max() < 5e-5  # of logits up to 5


def test_greedy_search_finds_the_same_tokens(exported, tokenizer, texts):
    model, folder = exported
    expected = translated_here(model, tokenizer, texts)
    for size in (1, 7, 24):
        assert translated_there(folder, texts, size) == expected
    assert len({row.index(EOS) for row in expected if EOS in row}) > 2  # otherwise no sentence leaves a batch early


def test_sources_beyond_the_last_position_are_refused(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"position_embedding_type": "learned", "max_position_embeddings": 4}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    translator = OnnxTranslator(folder, threads=1)
    assert translator.translate_ids([[5, 6, EOS]])
    with pytest.raises(ValueError, match="A source has 6 tokens, but max_position_embeddings is 4: learned positions"):
        translator.translate_ids([[5, 6, EOS], [*range(5, 10), EOS]])


def test_generation_config_settings_are_followed(exported, tokenizer, texts, tmp_path):
    model, folder = copy.deepcopy(exported[0]), shutil.copytree(exported[1], tmp_path / "copy")
    for settings in (
        {"max_length_offset": 2},
        {"max_length": 9},
        {"max_new_tokens": 5},
        {"max_length_offset": None, "max_length": 11},
        {"max_length_offset": None},
        {"bad_words_ids": [[EOS], [OFTEN]]},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2, "bad_words_ids": [[OFTEN]]},
        {"eos_token_id": [EOS, 7]},
    ):
        model.generation_config = copy.deepcopy(exported[0].generation_config)
        model.generation_config.update(**settings)
        model.generation_config.save_pretrained(folder)
        assert translated_there(folder, texts) == translated_here(model, tokenizer, texts), settings
    for settings in (
        {"repetition_penalty": 1.2}, {"bad_words_ids": [[5, 6]]}, {"min_new_tokens": 1}, {"do_sample": True},
    ):  # fmt: skip
        model.generation_config = copy.deepcopy(exported[0].generation_config)
        model.generation_config.update(**settings)
        model.generation_config.save_pretrained(folder)
        with pytest.raises(ValueError, match=f"sets {next(iter(settings))} = .*, which ONNX does not support"):
            OnnxTranslator(folder)
        with pytest.raises(ValueError, match="The model's generation config sets"):
            to_onnx(model, tokenizer, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_graph_sizes_are_dynamic(exported):
    for name, lengths in (("encoder", {"source"}), ("decoder", {"source", "target", "past", "past + target"})):
        graph = onnx.load(exported[1] / f"{name}.onnx")
        onnx.checker.check_model(graph)
        assert [(each.domain, each.version) for each in graph.opset_import] == [("", OPSET)]
        shapes = [
            [size.dim_param or size.dim_value for size in each.type.tensor_type.shape.dim]
            for each in (*graph.graph.input, *graph.graph.output)
        ]
        assert {shape[0] for shape in shapes} == {"batch"}
        names = {size for shape in shapes for size in shape[1:] if isinstance(size, str)}
        assert {" + ".join(sorted(name.split(" + "))) for name in names} == lengths


def test_translate_keeps_order_and_blank_texts(exported, tokenizer, texts):
    translator = OnnxTranslator(exported[1], threads=1)
    expected = tokenizer.batch_decode(translated_here(exported[0], tokenizer, texts), skip_special_tokens=True)
    assert translator.translate([" ", *texts, ""], batch_size=5) == ["", *expected, ""]
    assert translator.translate([]) == []


def test_engine_matches_model_and_rejects_unsupported_options(exported, tokenizer, texts):
    model, onnx_model = exported[0], OnnxTranslator(exported[1], threads=1)
    for options in ({}, {"prefix": "Der", "max_new_tokens": 6}, {"max_length_offset": 2}):
        ours, theirs = (
            [best.text for best, *_ in translate_lines(each, tokenizer, [["", *texts]], num_beams=1, **options)]
            for each in (model, onnx_model)
        )
        assert theirs == ours
    for refused in ({"num_beams": 2}, {"do_sample": True}, {"align": True}, {"min_p": 0.1}, {"workers": 2}):
        with pytest.raises(ValueError, match=r"ONNX (has|does)"):
            list(translate_lines(onnx_model, tokenizer, [texts], **refused))


def test_folder_contains_exactly_the_expected_files(exported):
    names = sorted(path.name for path in exported[1].iterdir())
    configurations = ["config.json", "decoder.onnx", "encoder.onnx", "generation_config.json"]
    assert names == [*configurations, "tokenizer.json", "tokenizer_config.json"]
    assert [path.name for path in exported[1].parent.iterdir()] == ["out"]
    settings = json.loads((exported[1] / "config.json").read_text(encoding="utf-8"))
    assert settings["model_type"] == "vanilla_transformer"
    assert "auto_map" not in settings  # there is no code beside it


@pytest.mark.slow
@pytest.mark.parametrize("shape", MORE)
def test_other_shapes_find_the_same_tokens(tokenizer, texts, tmp_path, shape):
    model = small_model(**MORE[shape])
    to_onnx(model, tokenizer, str(tmp_path / "out"))
    assert translated_there(tmp_path / "out", texts) == translated_here(model, tokenizer, texts)


def test_vocabulary_mismatch_and_existing_folder_raise(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="vocab_size is 299, but the tokenizer has 300 tokens"):
        to_onnx(build_model(vocab_size=299), tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileExistsError):
        to_onnx(build_model(vocab_size=300), tokenizer, tmp_path)


def test_missing_package_error_names_the_extra(exported, monkeypatch):
    monkeypatch.delitem(sys.modules, "vanilla_transformer.export.onnx")
    for package in ("onnxscript", "onnxruntime"):
        for each in [each for each in sys.modules if each.split(".")[0] == package]:
            monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(ImportError, match=r'pip install "vanilla-transformer\[onnx\]"'):
        importlib.import_module("vanilla_transformer.export.onnx")
    with pytest.raises(ImportError, match=r'pip install "vanilla-transformer\[onnx\]"'):
        OnnxTranslator(exported[1])
