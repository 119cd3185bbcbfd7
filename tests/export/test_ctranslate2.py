"""Exported models give the same tokens and scores in CTranslate2 as in PyTorch."""

import importlib
import json
import runpy
import sys

import ctranslate2
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from transformers import AutoTokenizer

from vanilla_transformer import ExportedModel, translate
from vanilla_transformer.export.ctranslate2 import QUANTIZATIONS, to_ctranslate2

from ..model.conftest import build_model
from ..warm_python import LIBRARIES
from .conftest import EOS, ending_model


LIMIT = 12
SHAPES = {
    "the paper's": {},
    "pre-norm": {"norm_first": True},
    "attention biases": {"attention_bias": True},
    "pre-norm with attention biases": {"norm_first": True, "attention_bias": True},
    "sines, then cosines": {"sinusoid_layout": "halves"},
    "learned positions": {"position_embedding_type": "learned", "max_position_embeddings": 64},
    "three matrices": {"tie_word_embeddings": False},
    "no scaled embeddings": {"scale_embedding": False},
    "output bias": {"output_bias": True},
    "wide heads": {"head_dim": 6},
    "narrow heads": {"head_dim": 3, "value_head_dim": 3, "attention_bias": True},
    "large epsilon": {"layer_norm_eps": 0.1},
    **{name: {"activation_function": name} for name in ("gelu", "gelu_new", "quick_gelu", "silu", "swish", "tanh")},
}


def translated_here(model, tokenizer, texts, beams: int) -> tuple[list[list[int]], list[float]]:
    """All hypotheses of all texts, each up to its end token, and with beam search their scores."""
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    options = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": LIMIT}
    if beams > 1:
        options |= {"length_penalty": 0.6, "early_stopping": True, "length_penalty_type": "length"}
    found = model.generate(**batch, **options, return_dict_in_generate=True)
    rows = [row[1:] for row in found.sequences.tolist()]
    rows = [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]
    return rows, found.sequences_scores.tolist() if beams > 1 else []


def translated_there(folder, tokenizer, texts, beams: int, **options) -> tuple[list[list[int]], list[float]]:
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    options = {"length_penalty": 0.6, "max_decoding_length": LIMIT, "min_decoding_length": 0, **options}
    found = translator.translate_batch(
        [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(texts).input_ids],
        beam_size=beams,
        num_hypotheses=beams,
        return_end_token=True,
        return_scores=True,
        **options,
    )
    rows = [tokenizer.convert_tokens_to_ids(tokens) for each in found for tokens in each.hypotheses]
    return rows, [score for each in found for score in each.scores]


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_and_scores_equal_ours(tokenizer, texts, tmp_path, shape):
    ours = ending_model(**SHAPES[shape])
    to_ctranslate2(ours, tokenizer, tmp_path / "out")
    here, there = translated_here(ours, tokenizer, texts, 1), translated_there(tmp_path / "out", tokenizer, texts, 1)
    assert here[0] == there[0]
    here, there = translated_here(ours, tokenizer, texts, 4), translated_there(tmp_path / "out", tokenizer, texts, 4)
    assert here[0] == there[0]
    assert here[1] == pytest.approx(there[1], abs=1e-4)
    assert len({len(row) for row in here[0]}) > 1  # otherwise the end and the length penalty are untested


def test_folder_contains_tokenizer_settings_and_vocabulary(tokenizer, texts, tmp_path):
    to_ctranslate2(ending_model(), tokenizer, str(tmp_path / "out"))
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(texts).input_ids == tokenizer(texts).input_ids
    settings = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (settings["decoder_start_token"], settings["eos_token"], settings["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert not settings["add_source_eos"]  # the tokenizer adds it
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    to_ctranslate2(ending_model(vocab_size=320), tokenizer, tmp_path / "more")
    words = json.loads((tmp_path / "more" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    unused = [f"<unused {number}>" for number in range(300, 320)]  # rows that no token uses
    assert words == [*tokenizer.convert_ids_to_tokens(range(300)), *unused]


def test_half_precision_weights_become_float32(tokenizer, texts, tmp_path):
    for dtype in (torch.float16, torch.bfloat16):
        half, folder = ending_model().to(dtype), tmp_path / str(dtype)
        to_ctranslate2(half, tokenizer, folder)
        assert ctranslate2.Translator(str(folder)).compute_type == "float32"
        expected = translated_here(half.float(), tokenizer, texts, 4)
        assert translated_there(folder, tokenizer, texts, 4)[0] == expected[0]


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_quantised_export_is_smaller_and_leaves_model_unchanged(tokenizer, texts, tmp_path, quantization):
    ours = ending_model()
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    to_ctranslate2(ours, tokenizer, tmp_path / "out", quantization=quantization)
    assert [name for name, weight in ours.state_dict().items() if not torch.equal(weight, before[name])] == []
    to_ctranslate2(ours, tokenizer, tmp_path / "plain")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("out", "plain")]
    assert sizes[0] == sizes[1] if quantization == "float32" else sizes[0] < 0.8 * sizes[1]
    here, there = translated_here(ours, tokenizer, texts, 1), translated_there(tmp_path / "out", tokenizer, texts, 1)
    assert sum(a[0] == b[0] for a, b in zip(here[0], there[0], strict=True)) > len(texts) / 2


@pytest.mark.parametrize("choices", [{}, {"output_bias": True}])
def test_bad_words_are_not_generated(tokenizer, texts, tmp_path, choices):
    ours = ending_model(ends=0, **choices)
    rows, _ = translated_here(ours, tokenizer, texts, 1)
    often = [token for token in {token for row in rows for token in row} if sum(token in row for row in rows) > 2]
    forbidden = next(token for token in often if token != EOS)
    ours.generation_config.bad_words_ids = [[forbidden], [EOS]]  # transformers forbids no end
    with pytest.raises(ValueError, match=r"forbids tokens .* set renormalize_logits to true"):
        to_ctranslate2(ours, tokenizer, tmp_path / "out")
    ours.generation_config.renormalize_logits = True
    to_ctranslate2(ours, tokenizer, tmp_path / "out")
    expected, _ = translated_here(ours, tokenizer, texts, 1)
    assert expected != rows
    assert translated_there(tmp_path / "out", tokenizer, texts, 1)[0] == expected


@pytest.mark.parametrize(
    ("choices", "positions"), [({}, 16), ({"position_embedding_type": "learned", "max_position_embeddings": 16}, 64)]
)
def test_decoding_beyond_the_last_position_raises(tokenizer, texts, tmp_path, choices, positions):
    to_ctranslate2(ending_model(**choices), tokenizer, tmp_path / "out", positions=positions)
    short = [text for text in texts if len(tokenizer(text).input_ids) <= 16]
    assert short
    limits = {"min_decoding_length": 16, "max_decoding_length": 16}
    assert len(translated_there(tmp_path / "out", tokenizer, short[:1], 1, **limits)[0][0]) == 16
    with pytest.raises(RuntimeError, match="positions >= 16"):
        translated_there(tmp_path / "out", tokenizer, short[:1], 1, min_decoding_length=17, max_decoding_length=17)


def test_unsupported_models_raise_and_write_nothing(tokenizer, tmp_path):
    for choices, message in (
        ({"head_dim": 4, "value_head_dim": 5}, r"value_head_dim \(5\) other than head_dim \(4\)"),
        ({"activation_function": "mish"}, "no activation_function 'mish'"),
        ({"eos_token_id": [2, 3]}, r"exactly one eos_token_id, not \[2, 3\]"),
        ({"decoder_start_token_id": None}, "exactly one decoder_start_token_id"),
        ({"vocab_size": 299}, "vocab_size is 299, but the tokenizer has 300 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            to_ctranslate2(build_model(**{"vocab_size": 300, **choices}), tokenizer, tmp_path / "out")
    model = build_model(vocab_size=300)
    with pytest.raises(ValueError, match=r"quantization must be one of float32, .*, not 'int7'"):
        to_ctranslate2(model, tokenizer, tmp_path / "out", quantization="int7")
    with pytest.raises(FileExistsError):
        to_ctranslate2(model, tokenizer, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_package_error_names_the_extra(monkeypatch):
    name = "vanilla_transformer.export.ctranslate2"
    monkeypatch.delitem(sys.modules, name)
    for each in [each for each in sys.modules if each.split(".")[0] == "ctranslate2"]:
        monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(ImportError, match=r'pip install "vanilla-transformer\[ctranslate2\]"'):
        importlib.import_module(name)


# ---------------------------------------------------------------------------------------- CTranslate2's own converter

COPIED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("shape", ["the paper's", "pre-norm", "three matrices", "output bias", "learned positions"])
def test_ctranslate2_converter_equals_our_export(tokenizer, texts, tmp_path, shape, quantization):
    ours = ending_model(**SHAPES[shape])
    for part in (ours, tokenizer):
        part.save_pretrained(tmp_path / "model")
    to_ctranslate2(ours, tokenizer, tmp_path / "ours", quantization=quantization)
    converter = TransformersConverter(str(tmp_path / "model"), copy_files=COPIED)
    converter.convert(str(tmp_path / "theirs"), quantization=quantization)
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        assert (tmp_path / "theirs" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()
    here, there = (translate(ExportedModel(tmp_path / name), tokenizer, texts) for name in ("ours", "theirs"))
    assert here == there


def test_converter_command_equals_our_export(tokenizer, tmp_path, monkeypatch, capsys):
    for part in (ending_model(), tokenizer):
        part.save_pretrained(tmp_path / "model")
    to_ctranslate2(ending_model(), tokenizer, tmp_path / "ours", quantization="int8")
    options = ["--model", tmp_path / "model", "--output_dir", tmp_path / "theirs", "--quantization", "int8"]
    monkeypatch.setattr(sys, "argv", ["converter", *map(str, options), "--copy_files", *COPIED])
    name = "vanilla_transformer.export.ctranslate2"
    monkeypatch.delitem(sys.modules, name)  # `python -m` loads it again anyway, and would warn here
    runpy.run_module(name, run_name="__main__")
    assert (tmp_path / "theirs" / "model.bin").read_bytes() == (tmp_path / "ours" / "model.bin").read_bytes()
    assert ExportedModel(tmp_path / "theirs").generation_config.max_length_offset == 50
    build_model(vocab_size=300, value_head_dim=16).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"value_head_dim \(16\) other than head_dim"):
        TransformersConverter(str(tmp_path / "model")).convert(str(tmp_path / "out"))


def test_converter_imported_first_gets_our_loader():
    """Registering the loader does not import the model's code."""
    code = (
        "import sys, ctranslate2.converters.transformers as converter\n"
        "assert 'VanillaTransformerConfig' not in converter._MODEL_LOADERS\n"
        "import vanilla_transformer\n"
        "assert 'VanillaTransformerConfig' in converter._MODEL_LOADERS\n"
        "assert 'vanilla_transformer.model.modeling_vanilla_transformer' not in sys.modules\n"
    )
    done = LIBRARIES.run(code)
    assert done.returncode == 0, done.stderr
