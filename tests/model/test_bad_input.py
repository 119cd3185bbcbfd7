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


def test_what_is_right_is_not_refused(tiny_model, batch):
    assert tiny_model()(**batch).loss.isfinite()
    del batch["attention_mask"]
    assert tiny_model()(**batch).loss.isfinite()


@pytest.mark.parametrize("shape", [(2,), (2, 6, 6), (2, 7)])
def test_a_source_mask_of_no_use(tiny_model, batch, shape):
    with pytest.raises(ValueError, match="attention_mask has shape"):
        tiny_model()(**{**batch, "attention_mask": torch.ones(shape)})


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 6), (1, 5), (2, 5, 5)])
def test_a_target_mask_of_another_shape(tiny_model, batch, shape):
    with pytest.raises(ValueError, match=r"decoder_attention_mask has shape .* not \(batch, length\), \(2, 5\)"):
        tiny_model()(**batch, decoder_attention_mask=torch.ones(shape))


def test_a_target_mask_shorter_than_what_is_cached_and_new(tiny_model, batch, decoder_input_ids):
    model, source = tiny_model(), {name: batch[name] for name in ("input_ids", "attention_mask")}
    first = model(**source, decoder_input_ids=decoder_input_ids[:, :3])
    rest = {"decoder_input_ids": decoder_input_ids[:, 3:], "past_key_values": first.past_key_values}
    with pytest.raises(ValueError, match=r"decoder_attention_mask .* \(2, cached \+ 2\)"):
        model(**source, **rest, decoder_attention_mask=torch.ones(2, 1))


def test_a_mask_that_does_not_fit_the_encoders_output(tiny_model, batch):
    model = tiny_model()
    encoded = model.model.encoder(batch["input_ids"])
    with pytest.raises(ValueError, match="attention_mask has shape"):
        model(encoder_outputs=encoded, attention_mask=torch.ones(2, 4), labels=batch["labels"])


def test_another_number_of_targets_than_sources(tiny_model, batch):
    with pytest.raises(ValueError, match="1 targets for 2 sources"):
        tiny_model()(**{**batch, "labels": batch["labels"][:1]})


@pytest.mark.parametrize("name", ["decoder_start_token_id", "pad_token_id"])
def test_a_configuration_without_the_tokens_that_labels_need(tiny_model, batch, name):
    with pytest.raises(ValueError, match=f"configuration's {name} is None"):
        tiny_model(**{name: None})(**batch)


@pytest.mark.parametrize("cached", [0, 4])
def test_learned_positions_end_where_their_table_ends(tiny_model, cached):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=6)
    source, target = torch.tensor([[5, 6, 2]]), torch.zeros(1, 7, dtype=torch.long)
    past = model(source, decoder_input_ids=target[:, :cached]).past_key_values if cached else None
    assert model(source, decoder_input_ids=target[:, cached:6], past_key_values=past).logits.isfinite().all()
    past = model(source, decoder_input_ids=target[:, :cached]).past_key_values if cached else None
    with pytest.raises(ValueError, match="7 tokens, but max_position_embeddings is 6"):
        model(source, decoder_input_ids=target[:, cached:], past_key_values=past)


def test_checks_stand_aside_for_torch_func(tiny_model, batch):
    """One example at a time under vmap, and the gradient under `torch.func.grad`, dropout and fused loss included."""
    model = tiny_model(dropout=0.1, label_smoothing=0.1)
    weights = dict(model.named_parameters())

    def logits(source, target):
        return torch.func.functional_call(model, weights, (source[None],), {"decoder_input_ids": target[None]}).logits

    target = torch.tensor([[0, 5, 6], [0, 7, 8]])
    apart = torch.vmap(logits)(batch["input_ids"], target)
    together = model(batch["input_ids"], decoder_input_ids=target).logits
    torch.testing.assert_close(apart[:, 0], together, atol=1e-5, rtol=1e-4)

    def loss(weights, **options):
        return torch.func.functional_call(model, weights, (), {**batch, **options}).loss

    expected = torch.autograd.grad(loss(weights), list(weights.values()))
    for got, want in zip(torch.func.grad(loss)(weights).values(), expected, strict=True):
        torch.testing.assert_close(got, want)
    model.train()
    found = torch.func.grad(lambda w: loss(w, num_items_in_batch=8, return_logits=False))(weights)
    assert all(gradient.isfinite().all() for gradient in found.values())
