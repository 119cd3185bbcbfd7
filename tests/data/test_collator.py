"""The collator: every number of a small batch, and the same shift as the model's own."""

import pytest
import torch

from vanilla_transformer.data.collator import TranslationCollator
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration


PAIRS = [{"input_ids": [7, 8, 2], "labels": [9, 2], "id": "a"}, {"input_ids": [4, 2], "labels": [5, 6, 5, 2], "id": 3}]


def test_batch_by_hand():
    batch = TranslationCollator()(PAIRS)
    expected = {
        "input_ids": [[7, 8, 2], [4, 2, 1]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[9, 2, -100, -100], [5, 6, 5, 2]],
        "decoder_input_ids": [[0, 9, 2, 1], [0, 5, 6, 5]],
    }
    assert {name: tensor.tolist() for name, tensor in batch.items()} == expected


def test_all_tensors_are_int64():
    assert {tensor.dtype for tensor in TranslationCollator()(PAIRS).values()} == {torch.int64}


def test_pad_token_inside_a_text_stays_a_token():
    # Lengths decide about padding, not ids: what looks like padding may be a token.
    batch = TranslationCollator()([{"input_ids": [1, 4, 1, 2], "labels": [1, 2]}, {"input_ids": [2], "labels": [2]}])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2], [2, -100]]


def test_one_pair_needs_no_padding():
    batch = TranslationCollator()(PAIRS[:1])
    assert batch["input_ids"].tolist() == [[7, 8, 2]]
    assert batch["decoder_input_ids"].tolist() == [[0, 9]]


def test_columns_may_be_tensors():
    rows = [{name: torch.tensor(row[name]) for name in ("input_ids", "labels")} for row in PAIRS]
    expected = TranslationCollator()(PAIRS)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in TranslationCollator()(rows).items())


@pytest.fixture(scope="module")
def model():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig(vocab_size=12, d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, dropout=0.0, **sizes)
    ).eval()


def test_decoder_inputs_are_those_the_model_makes_of_the_labels(model):
    batch = TranslationCollator()(PAIRS)
    assert torch.equal(batch["decoder_input_ids"], model.prepare_decoder_input_ids_from_labels(batch["labels"]))


def test_loss_of_a_batch_is_that_of_its_pairs(model):
    def nats(pairs):
        return model(**TranslationCollator()(pairs), num_items_in_batch=1).loss.item()

    assert nats(PAIRS) == pytest.approx(nats(PAIRS[:1]) + nats(PAIRS[1:]), rel=1e-5)
