"""The model's loss in training and evaluation, over accumulated batches, with R-Drop and guided alignment."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from vanilla_transformer.model.loss_vanilla_transformer import guided_alignment_loss
from vanilla_transformer.model.modeling_vanilla_transformer import log_softmax_attention


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_same_gradients(got, expected):
    assert got.keys() == expected.keys()
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-5, msg=name)


def test_labels_alone_are_enough(tiny_model, batch, decoder_input_ids):
    model = tiny_model()
    alone, both = model(**batch), model(**batch, decoder_input_ids=decoder_input_ids)
    assert torch.equal(alone.logits, both.logits)
    assert torch.equal(alone.loss, both.loss)


def test_decoder_inputs_are_the_labels_shifted_right(tiny_model, batch, decoder_input_ids):
    labels = batch["labels"].clone()
    assert torch.equal(tiny_model().prepare_decoder_input_ids_from_labels(labels), decoder_input_ids)
    assert torch.equal(labels, batch["labels"])  # the caller's tensor is unchanged


def test_given_decoder_inputs_override_the_labels(tiny_model, batch, decoder_input_ids):
    model = tiny_model()
    other = decoder_input_ids.flip(0)
    expected = model(batch["input_ids"], batch["attention_mask"], other).logits
    assert torch.equal(model(**batch, decoder_input_ids=other).logits, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_evaluation_loss_is_plain_cross_entropy_of_the_logits(tiny_model, batch, smoothing):
    output = tiny_model(label_smoothing=smoothing)(**batch)
    expected = F.cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
    torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_training_loss_is_smoothed_cross_entropy(tiny_model, batch, smoothing):
    model = tiny_model(label_smoothing=smoothing)
    logits, labels = model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
    expected = F.cross_entropy(logits, labels, ignore_index=-100, label_smoothing=smoothing)
    loss = model.train()(**batch).loss
    torch.testing.assert_close(loss, expected)
    assert_same_gradients(gradients(model, loss), gradients(model, expected))


@pytest.mark.parametrize("training", [True, False])
def test_ignored_positions_do_not_count(tiny_model, batch, training):
    model = tiny_model(label_smoothing=0.1).train(training)
    shorter = {name: tensor[1:, :3] if name == "labels" else tensor[1:] for name, tensor in batch.items()}
    longer = {name: tensor[1:] for name, tensor in batch.items()}
    torch.testing.assert_close(model(**longer).loss, model(**shorter).loss)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("wrap", [int, torch.tensor])
def test_loss_is_divided_by_num_items_in_batch(tiny_model, batch, training, wrap):
    model = tiny_model(label_smoothing=0.1).train(training)
    mean, shared = model(**batch).loss, model(**batch, num_items_in_batch=wrap(32)).loss
    torch.testing.assert_close(shared, mean * 8 / 32)  # the batch has eight real tokens


def test_two_accumulated_halves_equal_one_batch(tiny_model, batch):
    model = tiny_model(label_smoothing=0.1).train()
    whole = gradients(model, model(**batch).loss)
    halves = [{name: tensor[row : row + 1] for name, tensor in batch.items()} for row in range(2)]
    accumulated = gradients(model, sum(model(**half, num_items_in_batch=8).loss for half in halves))
    assert_same_gradients(accumulated, whole)


@pytest.mark.parametrize("items", [None, torch.tensor(8)])
def test_omitting_logits_keeps_loss_and_gradients(tiny_model, batch, items):
    model = tiny_model(dropout=0.0, label_smoothing=0.1).train()
    plain = model(**batch, num_items_in_batch=items)
    fused = model(**batch, num_items_in_batch=items, return_logits=False)
    assert plain.logits.shape == (2, 5, model.config.vocab_size)
    assert fused.logits is None
    torch.testing.assert_close(fused.loss, plain.loss)
    plain_gradients = torch.autograd.grad(plain.loss, list(model.parameters()))
    torch.testing.assert_close(torch.autograd.grad(fused.loss, list(model.parameters())), plain_gradients)


def test_evaluation_loss_is_never_regularised(tiny_model, batch):
    model = tiny_model(label_smoothing=0.1, r_drop_alpha=5.0).eval()
    with torch.no_grad():
        plain, fused = model(**batch), model(**batch, return_logits=False)
        expected = F.cross_entropy(plain.logits.flatten(0, 1).double(), batch["labels"].flatten())
    assert fused.logits is None
    for loss in (plain.loss, fused.loss):
        torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)


def test_logits_are_always_returned_without_labels(tiny_model, batch, decoder_input_ids):
    output = tiny_model().train()(batch["input_ids"], decoder_input_ids=decoder_input_ids, return_logits=False)
    assert output.loss is None
    assert output.logits.shape == (2, 5, 40)


@pytest.mark.parametrize("options", [{}, {"return_logits": False}])
@pytest.mark.parametrize("training", [True, False])
def test_padding_id_counts_as_a_label(tiny_model, batch, training, options):
    """As in every transformers model, on every device, only -100 is ignored."""
    model = tiny_model()
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == -100, 1)
    expected = F.cross_entropy(model(**batch).logits.flatten(0, 1), batch["labels"].flatten())
    torch.testing.assert_close(model.train(training)(**batch, **options).loss, expected)


def test_no_cache_is_built_with_labels(tiny_model, batch):
    assert tiny_model()(**batch, use_cache=True).past_key_values is None


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "activation_dropout"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_each_kind_of_dropout_changes_training(tiny_model, batch, field, implementation):
    model = tiny_model(**{field: 0.5}, attn_implementation=implementation)
    quiet = tiny_model(attn_implementation=implementation)
    quiet.load_state_dict(model.state_dict())
    assert not torch.allclose(model.train()(**batch).loss, quiet.train()(**batch).loss)
    torch.testing.assert_close(model.eval()(**batch).loss, quiet.eval()(**batch).loss)


def test_bfloat16_autocast_trains_near_float32(tiny_model, batch):
    model = tiny_model(label_smoothing=0.1).train()
    exact = model(**batch).loss
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(**batch).loss
    rounded.backward()
    torch.testing.assert_close(rounded.float(), exact, rtol=0.02, atol=0)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_model_memorises_a_batch(tiny_model, batch):
    model = tiny_model(label_smoothing=0.0, d_model=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.eval()
    translations = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=8)
    expected = torch.cat([torch.zeros(2, 1, dtype=torch.long), batch["labels"].masked_fill(batch["labels"] < 0, 1)], 1)
    assert torch.equal(translations, expected)


@pytest.mark.parametrize("how", ["sequence", "hook"])
def test_changed_output_layer_is_trained(tiny_model, batch, how):
    model = tiny_model(tie_word_embeddings=False).train()
    if how == "sequence":
        model.lm_head = torch.nn.Sequential(model.lm_head, torch.nn.Linear(40, 40))
    else:
        model.lm_head.register_forward_hook(lambda module, inputs, output: 2 * output)
    plain = model(**batch).loss * (batch["labels"] != -100).sum()
    as_trainer = model(**batch, num_items_in_batch=1, return_logits=False).loss
    torch.testing.assert_close(as_trainer, plain)
    as_trainer.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.lm_head.parameters())


# ---------------------------------------------------------------------------------------------------------- R-Drop


@pytest.mark.parametrize("choice", [{}, {"output_bias": True}])
def test_r_drop_loss_matches_the_papers_formula(tiny_model, batch, choice):
    model = tiny_model(dropout=0.3, label_smoothing=0.1, r_drop_alpha=5.0, **choice).train()
    torch.manual_seed(1)
    output = model(**batch)
    assert output.logits.shape == (4, 5, 40)
    real = batch["labels"] != -100
    first, second = (logits[real].double() for logits in output.logits.chunk(2))
    assert (first - second).abs().max() > 0.1  # each pass has its own dropout
    entropies = [F.cross_entropy(z, batch["labels"][real], label_smoothing=0.1) for z in (first, second)]
    p, q = first.softmax(1), second.softmax(1)
    divergence = (p * (p / q).log() + q * (q / p).log()).sum(1).mean() / 2
    expected = sum(entropies) / 2 + 5 / 2 * divergence
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-6, atol=1e-6)
    expected_gradients = gradients(model, expected)
    torch.manual_seed(1)
    without_logits = model(**batch, return_logits=False).loss
    torch.testing.assert_close(without_logits, output.loss)
    assert_same_gradients(gradients(model, without_logits), expected_gradients)
    torch.manual_seed(1)  # part of a larger update: both passes count each token once
    torch.testing.assert_close(model(**batch, num_items_in_batch=32).loss, output.loss * 8 / 32)


def test_r_drop_without_dropout_equals_a_single_pass(tiny_model, batch, decoder_input_ids):
    model = tiny_model(label_smoothing=0.1)
    ids, mask, labels = batch.values()
    with torch.no_grad():
        encoded = model.model.encoder(ids, mask)
        rows, target_rows = model.model.shared(ids), model.model.shared(decoder_input_ids)
    places = torch.arange(5).expand(2, 5)
    for inputs in (
        {**batch, "decoder_attention_mask": (labels != -100).long(), "decoder_position_ids": places},
        {"encoder_outputs": encoded, "attention_mask": mask, "labels": labels},
        {"encoder_outputs": encoded.to_tuple(), "attention_mask": mask, "labels": labels},
        {"inputs_embeds": rows, "attention_mask": mask, "decoder_inputs_embeds": target_rows, "labels": labels},
    ):
        for options in ({}, {"return_logits": False}):
            found = []
            for alpha in (0.0, 5.0):
                model.config.r_drop_alpha = alpha
                found.append(model.train()(**inputs, **options).loss)
            torch.testing.assert_close(*found)
        output = model.eval()(**inputs)
        assert output.logits.shape == (2, 5, 40)
    with pytest.raises(ValueError, match="r_drop_alpha takes no past_key_values"):
        model.train()(**batch, past_key_values=DynamicCache())


def test_r_drop_loss_without_real_tokens_is_zero(tiny_model, batch):
    model = tiny_model(r_drop_alpha=5.0).train()
    batch["labels"] = torch.full_like(batch["labels"], -100)
    loss = model(**batch, num_items_in_batch=9, return_logits=False).loss
    loss.backward()
    assert loss.item() == 0


# ------------------------------------------------------------------------------------------------- guided alignment


@pytest.fixture
def alignment(batch):
    """Random weights of the real tokens."""
    generator = torch.Generator().manual_seed(4)
    shape = (*batch["labels"].shape, batch["input_ids"].shape[1])
    real = (batch["labels"] != -100)[:, :, None] * batch["attention_mask"][:, None]
    return torch.rand(shape, generator=generator) * real


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("layers", [1, 2])
def test_guided_alignment_adds_the_cross_entropy_of_attention(tiny_model, batch, alignment, implementation, layers):
    model = tiny_model(attn_implementation=implementation, decoder_layers=layers, label_smoothing=0.1).train()
    plain = model(**batch, output_attentions=True)
    attention = plain.cross_attentions[-1][:, 0]
    real = alignment > 0
    expected = plain.loss - (alignment[real].double() * attention[real].double().log()).sum() / 8
    expected_gradients = gradients(model, expected)
    for options in ({}, {"return_logits": False}, {"output_attentions": True}):
        output = model(**batch, alignment=alignment, **options)
        torch.testing.assert_close(output.loss.double(), expected)
        assert_same_gradients(gradients(model, output.loss), expected_gradients)
    assert output.cross_attentions[-1].shape == plain.cross_attentions[-1].shape
    accumulated = model(**batch, alignment=alignment, num_items_in_batch=32).loss
    torch.testing.assert_close(accumulated.double(), expected * 8 / 32)
    for reentrant in (False, True):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        assert_same_gradients(gradients(model, model(**batch, alignment=alignment).loss), expected_gradients)


def test_guided_alignment_is_the_mean_of_both_passes_of_r_drop(tiny_model, batch, alignment):
    model = tiny_model(dropout=0.3, r_drop_alpha=5.0).train()

    def output(**options):
        torch.manual_seed(1)
        return model(**batch, output_attentions=True, **options)

    plain = output()
    both = plain.cross_attentions[-1][:, 0].chunk(2)
    real = alignment > 0
    guided = -sum((alignment[real] * attention[real].log()).sum() for attention in both) / 2 / 8
    assert (both[0] - both[1]).abs().max() > 1e-3
    torch.testing.assert_close(output(alignment=alignment).loss, plain.loss + guided)


def test_guided_alignment_knows_no_dropout_and_skipped_layers(tiny_model, batch, alignment):
    model = tiny_model(attention_dropout=0.5).train()
    attention = model.eval()(**batch, output_attentions=True).cross_attentions[-1][:, 0]
    real = alignment > 0
    guided = -(alignment[real] * attention[real].log()).sum() / 8
    plain, both = [], []
    for found, more in ((plain, {}), (both, {"alignment": alignment})):
        torch.manual_seed(1)
        found.append(model.train()(**batch, **more).loss)
    # Dropout of self-attention changes what the last layer is asked, but no weight is dropped before its logarithm.
    torch.testing.assert_close(both[0] - plain[0], guided, rtol=0.1, atol=0)
    model = tiny_model(decoder_layerdrop=0.999, decoder_layers=2).train()
    assert model(**batch, alignment=alignment).loss == model(**batch).loss  # no layer is left


def test_guided_alignment_refuses_other_attention_functions(tiny_model, batch, alignment):
    AttentionInterface.register("others", sdpa_attention_forward)
    model = tiny_model(attn_implementation="others").train()
    with pytest.raises(ValueError, match="alignment needs attn_implementation eager or sdpa, not others"):
        model(**batch, alignment=alignment)
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_hardly_any_attention_has_a_gradient(dtype):
    query = torch.full((1, 1, 4), 10.0, dtype=dtype, requires_grad=True)
    key = torch.tensor([[[3.0] * 4, [-3.0] * 4]], dtype=dtype)
    logs = log_softmax_attention(query, key, None, scaling=0.5)  # 120 apart
    loss = guided_alignment_loss(logs, torch.tensor([[[0.0, 0.1]]]))
    assert loss.item() == pytest.approx(12)
    loss.backward()
    assert query.grad.flatten().tolist() == pytest.approx([0.3] * 4, rel=1e-2)
