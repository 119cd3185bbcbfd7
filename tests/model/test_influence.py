"""The future, padding, neighbours, the cache and the attention implementation have no influence on the results."""

import pytest
import torch
from transformers import DynamicCache

from .conftest import TRANSLATOR


IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["eager", "sdpa"])
VARIANTS = pytest.mark.parametrize(
    "choices",
    [{}, {"norm_first": True}, {"head_dim": 6, "value_head_dim": 10}, {"position_embedding_type": "learned"}],
    ids=["paper", "pre-norm", "odd heads", "learned"],
)
pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients(request):
    """Gradients are off unless a test turns them on."""
    with torch.no_grad():
        yield


@IMPLEMENTATIONS
@VARIANTS
def test_the_future_has_no_influence(tiny_model, batch, decoder_input_ids, implementation, choices):
    model = tiny_model(attn_implementation=implementation, **choices)
    before = model(input_ids=batch["input_ids"], decoder_input_ids=decoder_input_ids).logits
    for position in range(1, 5):
        changed = decoder_input_ids.clone()
        changed[:, position:] = 30 + position
        after = model(input_ids=batch["input_ids"], decoder_input_ids=changed).logits
        assert torch.equal(after[:, :position], before[:, :position])
        assert not torch.allclose(after[:, position], before[:, position], atol=1e-4)


@IMPLEMENTATIONS
def test_no_gradient_comes_from_the_future(tiny_model, batch, decoder_input_ids, implementation):
    model = tiny_model(attn_implementation=implementation)
    for position in range(5):
        with torch.enable_grad():
            embeddings = model.get_input_embeddings()(decoder_input_ids).detach().requires_grad_()
            logits = model(input_ids=batch["input_ids"], decoder_inputs_embeds=embeddings).logits
            (gradient,) = torch.autograd.grad(logits[:, position].square().sum(), embeddings)
        assert (gradient[:, position + 1 :] == 0).all()
        assert (gradient[:, : position + 1] != 0).any(dim=-1).all()


@IMPLEMENTATIONS
@VARIANTS
def test_padding_of_the_source_has_no_influence(tiny_model, batch, decoder_input_ids, implementation, choices):
    """Different shapes are summed in different orders: an error of 1e-6 in float32 vanishes in float64."""
    model = tiny_model(attn_implementation=implementation, **choices)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 1e-13)):
        model.to(dtype)
        alone = model(ids[1:, :4], decoder_input_ids=decoder_input_ids[1:]).logits
        assert (model(ids, mask, decoder_input_ids).logits[1:] - alone).abs().max() < tolerance
        assert not torch.allclose(model(ids, None, decoder_input_ids).logits[1:], alone, atol=1e-3)


@IMPLEMENTATIONS
def test_content_of_the_padding_has_exactly_no_influence(tiny_model, inputs, implementation):
    model, given = tiny_model(attn_implementation=implementation), inputs(TRANSLATOR)
    scribbled = given["input_ids"].masked_fill(given["attention_mask"] == 0, 33)
    assert torch.equal(model(**given).logits, model(**{**given, "input_ids": scribbled}).logits)


@IMPLEMENTATIONS
def test_padding_of_the_target_has_no_influence(tiny_model, batch, implementation):
    model = tiny_model(attn_implementation=implementation)
    labels = batch["labels"][1:, :3]
    source = {name: batch[name][1:] for name in ("input_ids", "attention_mask")}
    padded = model(**source, labels=batch["labels"][1:])
    alone = model(**source, labels=labels)
    torch.testing.assert_close(padded.logits[:, :3], alone.logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(padded.loss, alone.loss)


@IMPLEMENTATIONS
def test_neighbours_in_the_batch_have_no_influence(tiny_model, batch, decoder_input_ids, implementation):
    model = tiny_model(attn_implementation=implementation)
    other_sources, other_targets = batch["input_ids"].clone(), decoder_input_ids.clone()
    other_sources[1], other_targets[1] = torch.arange(20, 26), torch.arange(30, 35)
    before = model(batch["input_ids"], batch["attention_mask"], decoder_input_ids).logits
    after = model(other_sources, batch["attention_mask"], other_targets).logits
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1], atol=1e-3)


@VARIANTS
def test_eager_equals_sdpa(tiny_model, batch, choices):
    eager = tiny_model(attn_implementation="eager", **choices)(**batch)
    sdpa = tiny_model(attn_implementation="sdpa", **choices)(**batch)
    torch.testing.assert_close(eager.logits, sdpa.logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(eager.loss, sdpa.loss)


def test_all_padding_source_gives_finite_logits(tiny_model, batch, decoder_input_ids):
    mask = batch["attention_mask"].clone()
    mask[1] = 0
    logits = tiny_model()(batch["input_ids"], mask, decoder_input_ids).logits
    assert logits.isfinite().all()


@IMPLEMENTATIONS
@VARIANTS
def test_cached_steps_equal_one_forward_pass(tiny_model, batch, decoder_input_ids, implementation, choices):
    model = tiny_model(attn_implementation=implementation, **choices)
    mask = batch["attention_mask"]
    at_once = model(batch["input_ids"], mask, decoder_input_ids).logits
    encoded, past = model.model.encoder(batch["input_ids"], mask), None
    for position in range(5):
        new = decoder_input_ids[:, position : position + 1]
        given = {"encoder_outputs": encoded, "attention_mask": mask, "past_key_values": past}
        step = model(**given, decoder_input_ids=new, use_cache=True)
        past = step.past_key_values
        assert past.get_seq_length() == position + 1
        torch.testing.assert_close(step.logits[:, 0], at_once[:, position], atol=1e-5, rtol=0)


def test_several_tokens_continue_from_the_cache(tiny_model, unlabelled, decoder_input_ids):
    model = tiny_model()
    at_once = model(**unlabelled, decoder_input_ids=decoder_input_ids).logits
    first = model(**unlabelled, decoder_input_ids=decoder_input_ids[:, :2], use_cache=True)
    rest = model(**unlabelled, decoder_input_ids=decoder_input_ids[:, 2:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.logits, at_once[:, 2:], atol=1e-5, rtol=0)


def test_the_encoders_keys_are_computed_once(tiny_model, batch, decoder_input_ids):
    model, calls = tiny_model(), []
    for layer in model.model.decoder.layers:
        layer.encoder_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
    past = model(batch["input_ids"], decoder_input_ids=decoder_input_ids[:, :1], use_cache=True).past_key_values
    model(batch["input_ids"], decoder_input_ids=decoder_input_ids[:, 1:2], past_key_values=past)
    assert len(calls) == 3  # one per layer


def test_a_decoder_alone_continues_from_a_plain_cache(tiny_model, decoder_input_ids):
    decoder = tiny_model().model.decoder
    at_once = decoder(decoder_input_ids).last_hidden_state
    past = decoder(decoder_input_ids[:, :3], past_key_values=DynamicCache(), use_cache=True).past_key_values
    rest = decoder(decoder_input_ids[:, 3:], past_key_values=past).last_hidden_state
    torch.testing.assert_close(rest, at_once[:, 3:], atol=1e-5, rtol=0)
