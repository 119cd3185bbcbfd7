"""Bad input raises one clear ValueError."""

import pytest
import torch


@pytest.mark.parametrize("side", ["input_ids", "decoder_input_ids"])
@pytest.mark.parametrize("odd", [-1, 40, 10**9])
def test_token_outside_the_vocabulary_raises(tiny_model, batch, decoder_input_ids, side, odd):
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": decoder_input_ids}
    inputs[side] = inputs[side].clone()
    inputs[side][1, 2] = odd
    with pytest.raises(ValueError, match=f"Token id {odd} is not in the vocabulary, whose ids are 0 to 39"):
        tiny_model()(**inputs)


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("", [(2, 5), (1, 6), (6, 2), (2,), (2, 6, 6), (2, 7)], r"the source's \(batch, length\), \(2, 6\)"),
        ("decoder_", [(2,), (2, 4), (2, 6), (1, 5), (2, 5, 5)], r"\(batch, length\), \(2, 5\)"),
    ],
)
def test_mask_of_wrong_shape_raises(tiny_model, batch, name, shapes, message):
    for shape in shapes:
        with pytest.raises(ValueError, match=rf"{name}attention_mask has shape .* not {message}"):
            tiny_model()(**{**batch, f"{name}attention_mask": torch.ones(shape)})


def test_batch_of_only_padding_raises(tiny_model, batch):
    batch["attention_mask"] = torch.zeros_like(batch["attention_mask"])
    with pytest.raises(ValueError, match="hides every token of every source"):
        tiny_model()(**batch)


def test_valid_input_is_accepted(tiny_model, batch):
    assert tiny_model()(**batch).loss.isfinite()
    del batch["attention_mask"]
    assert tiny_model()(**batch).loss.isfinite()


def test_target_mask_shorter_than_the_cache_raises(tiny_model, batch, decoder_input_ids):
    model, source = tiny_model(), {name: batch[name] for name in ("input_ids", "attention_mask")}
    first = model(**source, decoder_input_ids=decoder_input_ids[:, :3])
    rest = {"decoder_input_ids": decoder_input_ids[:, 3:], "past_key_values": first.past_key_values}
    with pytest.raises(ValueError, match=r"decoder_attention_mask .* \(2, cached \+ 2\)"):
        model(**source, **rest, decoder_attention_mask=torch.ones(2, 1))


def test_mask_not_fitting_the_encoder_output_raises(tiny_model, batch):
    model = tiny_model()
    encoded = model.model.encoder(batch["input_ids"])
    with pytest.raises(ValueError, match="attention_mask has shape"):
        model(encoder_outputs=encoded, attention_mask=torch.ones(2, 4), labels=batch["labels"])


def test_fewer_targets_than_sources_raises(tiny_model, batch):
    with pytest.raises(ValueError, match="1 targets for 2 sources"):
        tiny_model()(**{**batch, "labels": batch["labels"][:1]})


@pytest.mark.parametrize("name", ["decoder_start_token_id", "pad_token_id"])
def test_labels_without_start_or_padding_token_raise(tiny_model, batch, name):
    with pytest.raises(ValueError, match=f"configuration's {name} is None"):
        tiny_model(**{name: None})(**batch)


@pytest.mark.parametrize("cached", [0, 4])
def test_positions_beyond_the_learned_table_raise(tiny_model, cached):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=6)
    source, target = torch.tensor([[5, 6, 2]]), torch.zeros(1, 7, dtype=torch.long)
    past = model(source, decoder_input_ids=target[:, :cached]).past_key_values if cached else None
    assert model(source, decoder_input_ids=target[:, cached:6], past_key_values=past).logits.isfinite().all()
    past = model(source, decoder_input_ids=target[:, :cached]).past_key_values if cached else None
    with pytest.raises(ValueError, match="7 tokens, but max_position_embeddings is 6"):
        model(source, decoder_input_ids=target[:, cached:], past_key_values=past)
