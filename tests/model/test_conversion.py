"""Converting Marian models to ours and back keeps weights, logits and translations."""

import pytest
import torch
from transformers import GenerationConfig

from vanilla_transformer.model.conversion_vanilla_transformer import from_marian, to_marian
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config

from .conftest import randomize_vectors, tiny_marian


SHAPES = {
    "even": {},
    "uneven sides": {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_ffn_dim": 40},
    "OPUS-MT's activation": {"activation_function": "swish"},
    "three matrices": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "no scaled embeddings": {"scale_embedding": False},
}


@pytest.fixture
def marian():
    def build(**choices):
        model = tiny_marian(**choices)
        randomize_vectors(model)
        model.final_logits_bias.normal_()
        model.generation_config = GenerationConfig(
            num_beams=3, max_length=20, length_penalty=1.0, early_stopping=False, bad_words_ids=[[39]],
            eos_token_id=0, pad_token_id=39, decoder_start_token_id=39, bos_token_id=0, forced_eos_token_id=0,
        )  # fmt: skip
        return model

    return build


@pytest.fixture
def sources():
    return {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9, 0], [10, 11, 12, 0, 39, 39]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
    }


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_converted_marian_model_translates_the_same(marian, sources, shape):
    theirs = marian(**SHAPES[shape])
    ours = from_marian(theirs)
    target = torch.tensor([[39, 13, 14], [39, 15, 16]])
    logits = [model(**sources, decoder_input_ids=target).logits for model in (ours, theirs)]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=0)
    for options in ({}, {"num_beams": 1}):
        assert torch.equal(ours.generate(**sources, **options), theirs.generate(**sources, **options))


@pytest.mark.parametrize("shape", SHAPES)
def test_marian_model_round_trips_losslessly(marian, sources, shape):
    before = marian(**SHAPES[shape])
    after = to_marian(from_marian(before))
    weights = after.state_dict()
    assert weights.keys() == before.state_dict().keys()
    assert [name for name, weight in before.state_dict().items() if not torch.equal(weight, weights[name])] == []
    assert torch.equal(after.generate(**sources), before.generate(**sources))


@pytest.mark.parametrize("choices", [{}, {"attention_bias": True, "output_bias": True}, {"tie_word_embeddings": False}])
@torch.no_grad()
def test_our_model_round_trips_through_marian(tiny_model, batch, choices):
    ours = tiny_model(sinusoid_layout="halves", **choices)
    theirs = to_marian(ours)
    back = from_marian(theirs)
    for model in (theirs, back):
        torch.testing.assert_close(model(**batch).logits, ours(**batch).logits, atol=1e-5, rtol=0)
    weights = back.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in ours.state_dict().items())


def test_to_marian_leaves_no_limit_of_20_tokens(tiny_model, batch):
    ours = tiny_model(sinusoid_layout="halves", output_bias=True)
    torch.nn.init.constant_(ours.lm_head.bias[ours.config.eos_token_id], -1e4)  # it never stops by itself
    ours.generation_config = paper_generation_config(ours.config, num_beams=1)
    sources = {name: batch[name][:1] for name in ("input_ids", "attention_mask")}
    theirs = to_marian(ours)
    assert ours.generate(**sources).shape[1] > 40
    assert theirs.generate(**sources).shape[1] > 40


@pytest.mark.parametrize(
    "choices", [{}, {"sinusoid_layout": "halves", "norm_first": True}, {"sinusoid_layout": "halves", "head_dim": 5}]
)
def test_to_marian_names_the_unsupported_option(tiny_model, choices):
    name = list(choices)[-1] if choices else "sinusoid_layout"
    with pytest.raises(ValueError, match=f"Marian has no {name}"):
        to_marian(tiny_model(**choices))


def test_different_source_and_target_vocabularies_are_rejected(marian):
    theirs = marian(
        decoder_vocab_size=30, share_encoder_decoder_embeddings=False, tie_word_embeddings=False, pad_token_id=29,
        decoder_start_token_id=29,
    )  # fmt: skip
    with pytest.raises(ValueError, match="40 source and 30 target pieces"):
        from_marian(theirs)


def test_converted_model_round_trips_through_a_folder(marian, sources, tmp_path):
    ours = from_marian(marian())
    ours.save_pretrained(tmp_path)
    loaded = type(ours).from_pretrained(tmp_path)
    assert torch.equal(loaded.generate(**sources), ours.generate(**sources))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_conversion_keeps_the_dtype(marian, dtype):
    assert from_marian(marian().to(dtype)).dtype == dtype
