"""What cannot be meant is one clear ValueError."""

import pytest
import torch


@pytest.mark.parametrize("side", ["input_ids", "decoder_input_ids"])
@pytest.mark.parametrize("odd", [-1, 40, 10**9])
def test_a_token_outside_the_vocabulary(tiny_model, batch, decoder_input_ids, side, odd):
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": decoder_input_ids}
    inputs[side] = inputs[side].clone()
    inputs[side][1, 2] = odd
    with pytest.raises(ValueError, match=f"Token id {odd} is not in the vocabulary, whose ids are 0 to 39"):
        tiny_model()(**inputs)


@pytest.mark.parametrize("shape", [(2, 5), (1, 6), (6, 2)])
def test_a_mask_of_another_shape_than_the_source(tiny_model, batch, shape):
    batch["attention_mask"] = torch.ones(shape, dtype=torch.long)
    with pytest.raises(ValueError, match=r"attention_mask has shape .* not the source's \(batch, length\), \(2, 6\)"):
        tiny_model()(**batch)


def test_sources_of_nothing_but_padding(tiny_model, batch):
    batch["attention_mask"] = torch.zeros_like(batch["attention_mask"])
    with pytest.raises(ValueError, match="hides every token of every source"):
        tiny_model()(**batch)


def test_labels_whose_padding_would_be_learned(tiny_model, batch):
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == -100, 1)
    with pytest.raises(ValueError, match=r"labels end in padding \(id 1\): put -100 in its place"):
        tiny_model()(**batch)


def test_what_is_right_is_not_refused(tiny_model, batch):
    assert tiny_model()(**batch).loss.isfinite()
    del batch["attention_mask"]
    assert tiny_model()(**batch).loss.isfinite()
