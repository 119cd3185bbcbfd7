"""Model inputs and outputs: shapes, tuples, embeddings in place of ids, precisions and lengths."""

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from .conftest import TRANSLATOR


@pytest.fixture
def inputs(inputs):
    return inputs(TRANSLATOR)


def test_hidden_states_cover_every_layer(tiny_model, inputs):
    output = tiny_model()(**inputs, output_hidden_states=True)
    assert [tuple(states.shape) for states in output.encoder_hidden_states] == [(2, 6, 16)] * 3
    assert [tuple(states.shape) for states in output.decoder_hidden_states] == [(2, 5, 16)] * 4
    torch.testing.assert_close(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)


def test_attentions_cover_every_layer(tiny_model, inputs):
    output = tiny_model(attn_implementation="eager")(**inputs, output_attentions=True)
    assert [tuple(weights.shape) for weights in output.encoder_attentions] == [(2, 2, 6, 6)] * 2
    assert [tuple(weights.shape) for weights in output.decoder_attentions] == [(2, 4, 5, 5)] * 3
    assert [tuple(weights.shape) for weights in output.cross_attentions] == [(2, 4, 5, 6)] * 3
    for weights in (*output.encoder_attentions, *output.decoder_attentions, *output.cross_attentions):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert all((weights.triu(1) == 0).all() for weights in output.decoder_attentions)
    assert all((weights[1, ..., 4:] == 0).all() for weights in output.cross_attentions)


@pytest.mark.parametrize("length", [6, 600])
def test_sdpa_returns_attentions_on_request(tiny_model, length):
    """torch's kernel does not return them, so this call uses the plain formula, however long the sentences are."""
    ids = torch.randint(4, 40, (1, length))
    sdpa, eager = (tiny_model(attn_implementation=name) for name in ("sdpa", "eager"))
    found = [model(ids, decoder_input_ids=ids, output_attentions=True) for model in (sdpa, eager)]
    for name, count in (("encoder_attentions", 2), ("decoder_attentions", 3), ("cross_attentions", 3)):
        assert len(found[0][name]) == count
        for one, other in zip(found[0][name], found[1][name], strict=True):
            torch.testing.assert_close(one, other)
    assert found[0].logits.equal(found[1].logits)
    assert sdpa(ids, decoder_input_ids=ids).cross_attentions is None


def test_only_requested_outputs_are_returned(tiny_model, inputs):
    output = tiny_model()(**inputs, use_cache=False)
    assert set(output.keys()) == {"logits", "encoder_last_hidden_state"}


@pytest.mark.parametrize("options", [{}, {"output_hidden_states": True}, {"output_attentions": True}])
def test_tuple_matches_the_output_dict(tiny_model, batch, options):
    model = tiny_model(attn_implementation="eager")
    named = model(**batch, **options)
    plain = model(**batch, **options, return_dict=False)
    assert isinstance(plain, tuple)
    assert len(plain) == len(named.to_tuple())
    for ours, theirs in zip(plain[:2], (named.loss, named.logits), strict=True):
        assert torch.equal(ours, theirs)


def test_embeddings_can_replace_ids(tiny_model, inputs):
    model = tiny_model()
    table = model.get_input_embeddings()
    by_ids = model(**inputs).logits
    by_embeddings = model(
        inputs_embeds=table(inputs["input_ids"]),
        attention_mask=inputs["attention_mask"],
        decoder_inputs_embeds=table(inputs["decoder_input_ids"]),
    ).logits
    assert torch.equal(by_ids, by_embeddings)


@pytest.mark.parametrize("both", [True, False])
def test_both_or_neither_of_ids_and_embeddings_raises(tiny_model, inputs, both):
    embeddings = torch.zeros(2, 6, 16) if both else None
    ids = inputs["input_ids"] if both else None
    model = tiny_model()
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model(input_ids=ids, inputs_embeds=embeddings, decoder_input_ids=inputs["decoder_input_ids"])
    with pytest.raises(ValueError, match="either decoder_input_ids or decoder_inputs_embeds"):
        model.model.decoder(input_ids=ids, inputs_embeds=embeddings)


def test_encoder_outputs_can_be_a_tuple_or_other_outputs(tiny_model, inputs):
    model = tiny_model()
    encoded = model.model.encoder(inputs["input_ids"], inputs["attention_mask"], return_dict=False)
    assert isinstance(encoded, tuple)
    rest = {name: inputs[name] for name in ("attention_mask", "decoder_input_ids")}
    for given in (encoded, [*encoded], BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=encoded[0])):
        assert torch.equal(model(encoder_outputs=given, **rest).logits, model(**inputs).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_half_precision_stays_near_float32(tiny_model, inputs, dtype, implementation):
    model = tiny_model(attn_implementation=implementation)
    exact = model(**inputs).logits
    rounded = model.to(dtype)(**inputs).logits
    assert rounded.dtype == dtype
    assert (rounded.float() - exact).norm() < (0.02 if dtype == torch.bfloat16 else 0.003) * exact.norm()


def test_encoder_and_decoder_can_differ_in_size(tiny_model, inputs):
    model = tiny_model(encoder_layers=1, decoder_layers=4, encoder_ffn_dim=20, decoder_ffn_dim=44)
    assert (len(model.model.encoder.layers), len(model.model.decoder.layers)) == (1, 4)
    assert model.model.encoder.layers[0].fc1.out_features == 20
    assert model.model.decoder.layers[0].fc1.out_features == 44
    assert model(**inputs).logits.shape == (2, 5, 40)


def test_sinusoids_ignore_max_position_embeddings(tiny_model):
    short, long = tiny_model(max_position_embeddings=8), tiny_model(max_position_embeddings=1000)
    source, target = torch.randint(4, 40, (1, 30)), torch.randint(4, 40, (1, 20))
    got = short(source, decoder_input_ids=target).logits
    assert torch.equal(got, long(source, decoder_input_ids=target).logits)


@pytest.mark.parametrize(("source", "target"), [(9, 2), (2, 9)])
def test_input_longer_than_the_learned_table_raises(tiny_model, source, target):
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8)
    model(torch.full((1, 8), 5), decoder_input_ids=torch.full((1, 8), 5))
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model(torch.full((1, source), 5), decoder_input_ids=torch.full((1, target), 5))


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_gets_a_gradient(tiny_model, batch, tied):
    model = tiny_model(tie_word_embeddings=tied).train()
    model(**batch).loss.backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_base_model_without_targets_decodes_the_source(tiny_model, batch):
    model = tiny_model().model
    source = batch["input_ids"][:1]  # without padding
    shifted = torch.tensor([[0, 5, 6, 7, 8, 9]])
    assert torch.equal(model(source)[0], model(source, decoder_input_ids=shifted)[0])
    with pytest.raises(ValueError, match="decoder_input_ids or decoder_inputs_embeds"):
        model(inputs_embeds=model.get_input_embeddings()(source))
    with pytest.raises(ValueError, match="Give labels or decoder_input_ids"):
        tiny_model()(source)
