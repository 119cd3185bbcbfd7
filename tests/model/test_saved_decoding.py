"""Unsupported options and invalid tokens in a folder's configurations raise one clear error on loading."""

import json
import shutil

import pytest

from vanilla_transformer.attention.weights import attentions
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.run.loading import load_model

from .conftest import TRANSLATOR, build


CONFIG, DECODING, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model = build(TRANSLATOR, vocab_size=260)
    model.generation_config = paper_generation_config(model.config)
    model.save_pretrained(folder)
    learn_tokenizer(["No."], TokenizerSettings(vocab_size=260)).save_pretrained(folder)
    return folder


@pytest.fixture
def changed(saved, tmp_path):
    """Copies the folder with changed fields in one of its files."""

    def change(file: str, **fields):
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
        (tmp_path / file).write_text(json.dumps(json.loads((saved / file).read_text()) | fields))
        return tmp_path

    return change


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"penalty_alpha": 0.6, "top_k": 4, "num_beams": 1}, "penalty_alpha = 0.6 asks for contrastive search"),
        ({"num_beam_groups": 2}, "num_beam_groups = 2 asks for a beam search in groups"),
        ({"force_words_ids": [[5]]}, "force_words_ids cannot be saved with a model"),
        ({"stop_strings": ["a"]}, r"stop_strings = \['a'\] asks for an end at given strings"),
        ({"guidance_scale": 2.0}, "guidance_scale = 2.0 asks for guidance"),
        ({"dola_layers": "low"}, "dola_layers = 'low' asks for"),
        ({"num_beams": "4"}, "num_beams must be a whole number of at least 1, not '4'"),
        ({"length_penalty": [1] * 10_000}, r"length_penalty must be a number, not \[1, .{,110}…"),
        ({"length_penalty": -1e308}, r"length_penalty must be from -50 to 50, not -1e\+308"),
        ({"temperature": 10**400}, "temperature must be a number, not 1000"),
        ({"temperature": float("nan")}, "temperature must be a number, not nan"),
        ({"max_length": 1.5}, "max_length must be a whole number"),
        ({"max_length": 1}, "max_length must be a whole number of at least 2, not 1"),
        ({"repetition_penalty": 2}, r"repetition_penalty must be above 0, with a decimal point \(2.0, not 2\), not 2"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"do_sample": True, "temperature": 2}, "temperature must be above 0"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a token's id, a whole number, not '</s>'"),
        ({"eos_token_id": [2, None]}, "eos_token_id must be a token's id"),
        ({"pad_token_id": {"content": 5}}, "pad_token_id must be a token's id"),
        ({"decoder_start_token_id": 260}, "decoder_start_token_id must be a token's id, from 0 to 259, not 260"),
        ({"forced_eos_token_id": 260}, "forced_eos_token_id must be a token's id, from 0 to 259, not 260"),
        ({"max_length_offset": "50"}, "max_length_offset must be None or a number of tokens from 0, not '50'"),
        ({"length_penalty_type": "gmnt"}, 'length_penalty_type must be "gnmt" or "length", not \'gmnt\''),
        ({"minimum_bayes_risk": 1}, "minimum_bayes_risk must be true or false, not 1"),
        ({"forced_bos_token_id": 10**30}, "forced_bos_token_id must be a token's id, from 0 to 259"),
    ],
)
def test_invalid_generation_config_names_file_and_field(changed, fields, message):
    with pytest.raises(ValueError, match=rf"generation_config\.json: {message}"):
        load_model(changed(DECODING, **fields))


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "7"])
def test_malformed_generation_config_names_the_file(changed, text):
    folder = changed(DECODING)
    (folder / DECODING).write_text(text)
    with pytest.raises(ValueError, match=r"generation_config\.json is not (JSON|a mapping)"):
        load_model(folder)


def test_options_without_effect_are_accepted(changed):
    model, _ = load_model(
        changed(DECODING, penalty_alpha=None, num_beam_groups=1, guidance_scale=1.0, eos_token_id=[2, 3])
    )
    assert model.generation_config.eos_token_id == [2, 3]


@pytest.mark.parametrize("name", ["bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id"])
def test_special_token_ids_must_be_whole_numbers(changed, name):
    for value in ("x", 1.5, {"content": 5}, True, ["a"]):
        with pytest.raises(ValueError, match=f"{name} must be a token's id, a whole number, not "):
            load_model(changed(CONFIG, **{name: value}))


def test_start_token_outside_the_vocabulary_raises(changed):
    for value in (-1, 260, 10**30):
        with pytest.raises(ValueError, match="decoder_start_token_id must be a token's id, from 0 to 259"):
            load_model(changed(CONFIG, decoder_start_token_id=value))


@pytest.mark.parametrize("name", ["bos_token", "pad_token", "eos_token", "unk_token"])
def test_tokenizer_special_tokens_must_be_texts(changed, name):
    for value in (5, ["a"], {"content": 5}, True):
        with pytest.raises(ValueError, match=rf"the tokenizer in .* cannot be read \(Special token {name} has to be"):
            load_model(changed(TOKENIZER, **{name: value}))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.safetensors", "The weights in .* are damaged"),
        ("tokenizer.json", "the tokenizer in .* cannot be read"),
        (TOKENIZER, "the tokenizer in .* cannot be read"),
    ],
)
def test_half_a_file_is_named_with_a_remedy(saved, tmp_path, name, said):
    shutil.copytree(saved, tmp_path / "cut")
    content = (saved / name).read_bytes()
    (tmp_path / "cut" / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{said} .*: (restore|learn)"):
        load_model(tmp_path / "cut")


def test_weights_of_another_shape_are_named(changed):
    with pytest.raises(ValueError, match=r"The weights in .* have other shapes than its config\.json says"):
        load_model(changed(CONFIG, encoder_ffn_dim=7))


def test_attentions_ignore_return_dict_in_generate(changed):
    model, tokenizer = load_model(changed(DECODING, return_dict_in_generate=True))
    assert attentions(model, tokenizer, "No.").source[-1] == "</s>"
