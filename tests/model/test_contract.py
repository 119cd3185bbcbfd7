"""The contract of every transformers model, as far as the other files of this folder do not test it."""

import inspect
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)

from .conftest import CLASSES, TRANSLATOR, build, build_config, transformers_own


# --------------------------------------------------------------------------------------------------- configuration


def test_configuration_keeps_library_fields():
    config = build_config(
        output_hidden_states=True, output_attentions=True, dtype="float16", chunk_size_feed_forward=2,
        architectures=["X"], problem_type="regression", id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1},
    )  # fmt: skip
    assert (config.output_hidden_states, config.output_attentions, config.chunk_size_feed_forward) == (True, True, 2)
    assert (config.architectures, config.problem_type, config.dtype) == (["X"], "regression", torch.float16)
    assert (config.id2label, config.label2id, config.num_labels) == ({0: "a", 1: "b"}, {"a": 0, "b": 1}, 2)
    config.num_labels = 3
    assert (len(config.id2label), len(config.label2id)) == (3, 3)


def test_building_a_configuration_logs_no_warnings(caplog):
    with caplog.at_level(logging.WARNING):
        VanillaTransformerConfig()
        VanillaTransformerConfig(**VanillaTransformerConfig(d_model=8, encoder_attention_heads=2).to_dict())
    assert caplog.records == []


def test_configuration_loads_from_a_subfolder(tmp_path):
    build_config().save_pretrained(tmp_path / "deep")
    assert VanillaTransformerConfig.from_pretrained(tmp_path, subfolder="deep").to_dict() == build_config().to_dict()
    with pytest.raises(OSError, match="missing"):
        VanillaTransformerConfig.from_pretrained(tmp_path / "missing")


def test_the_attention_implementation_can_be_chosen_and_changed(inputs):
    config = build_config(attn_implementation="eager")
    assert config._attn_implementation == "eager"
    model = build(TRANSLATOR)
    assert model.config._attn_implementation == "sdpa"
    before = model(**inputs(TRANSLATOR)).logits
    for name in ("eager", "sdpa", "eager"):
        model.set_attn_implementation(name)
        assert {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")} == {name}
        torch.testing.assert_close(model(**inputs(TRANSLATOR)).logits, before, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="nothing_like_this"):
        model.set_attn_implementation("nothing_like_this")
    assert model.config._attn_implementation == "eager"


def test_configuration_without_special_tokens_builds_a_model(inputs):
    fields = {k: v for k, v in build_config().to_diff_dict().items() if not k.endswith("_token_id")}
    model = VanillaTransformerModel(type(build_config())(**fields)).eval()
    assert model(**inputs(VanillaTransformerModel)).last_hidden_state.isfinite().all()


# --------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", CLASSES)
def test_all_tensors_are_contiguous_parameters(kind, tmp_path):
    model = build(kind)
    model.save_pretrained(tmp_path)
    for each in (model, kind.from_pretrained(tmp_path)):
        assert all(parameter.is_contiguous() for parameter in each.parameters())
    hidden = [
        (name, attribute)
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    assert hidden == []
    assert list(model.buffers()) == []  # so `init_weights` has none to fill again


@pytest.mark.parametrize("kind", CLASSES)
def test_class_attributes_follow_transformers_conventions(kind):
    model = build(kind)
    assert model.base_model is getattr(model, kind.base_model_prefix, model)
    assert (model.base_model is model) == (kind is CLASSES[0])
    assert model.main_input_name == next(iter(inspect.signature(model.forward).parameters)) == "input_ids"
    assert model.can_generate() == (kind is TRANSLATOR) == (GenerationMixin in kind.__bases__)


@pytest.mark.parametrize("kind", CLASSES)
def test_weights_load_from_a_state_dict(kind):
    model = build(kind)
    again = kind.from_pretrained(None, config=model.config, state_dict=model.state_dict())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("kind", CLASSES)
def test_loading_without_weights_equals_a_new_model(kind, monkeypatch):
    """Every module gets the same seed, since new and loaded models fill their modules in different orders."""
    fill = VanillaTransformerPreTrainedModel._init_weights

    def seeded(self, module):
        torch.manual_seed(5)
        fill(self, module)

    monkeypatch.setattr(VanillaTransformerPreTrainedModel, "_init_weights", seeded)
    built = kind(build_config())
    loaded = kind.from_pretrained(None, config=build_config(), state_dict={})
    for (name, one), other in zip(built.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_all_missing_weights_are_reported(kind, tied, tmp_path):
    model = build(kind, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    save_file({"nothing": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    _, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == model.state_dict().keys()
    assert stored.keys() == {name for name, _ in model.named_parameters()}  # only the first of those that are tied


@pytest.mark.parametrize("kind", CLASSES)
def test_saved_folder_holds_the_expected_files(kind, tmp_path):
    build(kind).save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir() if path.suffix != ".py"}  # the code has its own tests
    assert names - {"generation_config.json"} == {"config.json", "model.safetensors"}
    assert ("generation_config.json" in names) == (kind is TRANSLATOR)


@pytest.mark.parametrize("saved", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.float16, torch.bfloat16, "auto"])
def test_requested_dtype_is_loaded(saved, wanted, tmp_path):
    build(TRANSLATOR).to(saved).save_pretrained(tmp_path)
    expected = saved if wanted == "auto" else wanted
    for name in ("dtype", "torch_dtype"):
        model = TRANSLATOR.from_pretrained(tmp_path, **{name: wanted})
        assert {parameter.dtype for parameter in model.parameters()} == {expected}


@pytest.mark.parametrize("auto", [AutoModel, AutoModelForSeq2SeqLM])
def test_changed_vocabulary_requires_ignore_mismatched_sizes(auto, tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError):
        auto.from_pretrained(tmp_path, vocab_size=50)
    model = auto.from_pretrained(tmp_path, vocab_size=50, ignore_mismatched_sizes=True)
    assert model.get_input_embeddings().num_embeddings == 50


def test_loading_under_the_meta_device_raises(tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    with torch.device("meta"), pytest.raises(RuntimeError):
        TRANSLATOR.from_pretrained(tmp_path)


# --------------------------------------------------------------------------------------------------------- forward


@pytest.mark.parametrize("kind", CLASSES[:2])
def test_configuration_can_request_states_and_attentions(kind, inputs):
    config = build_config(attn_implementation="eager", output_hidden_states=True, output_attentions=True)
    outputs = kind(config).eval()(**inputs(kind))
    assert (len(outputs.encoder_hidden_states), len(outputs.decoder_hidden_states)) == (3, 4)
    assert [len(outputs[f"{name}_attentions"]) for name in ("encoder", "decoder", "cross")] == [2, 3, 3]


def test_gradients_reach_states_and_attentions(inputs):
    model = build(TRANSLATOR, attn_implementation="eager")
    outputs = model(**inputs(TRANSLATOR), output_hidden_states=True, output_attentions=True)
    kept = [
        outputs.encoder_hidden_states[0], outputs.decoder_hidden_states[0], outputs.encoder_attentions[0],
        outputs.decoder_attentions[0], outputs.cross_attentions[0],
    ]  # fmt: skip
    for tensor in kept:
        tensor.retain_grad()
    outputs.logits.flatten()[0].backward()
    assert all(tensor.grad is not None for tensor in kept)


def test_embedding_hooks_run_on_both_sides(inputs):
    model, seen = build(VanillaTransformerModel), []
    for stack in (model.encoder, model.decoder):
        stack.get_input_embeddings().register_forward_hook(lambda *_: seen.append(1))
    model(**inputs(VanillaTransformerModel))
    assert len(seen) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("padding", ["left", "right", "none"])
@torch.no_grad()
def test_eager_equals_sdpa_in_every_dtype(inputs, dtype, padding):
    ids = inputs(VanillaTransformerModel)
    if padding == "left":
        ids["input_ids"], ids["attention_mask"] = ids["input_ids"].flip(1), ids["attention_mask"].flip(1)
    if padding == "none":
        del ids["attention_mask"]
    found = []
    for name in ("eager", "sdpa"):
        model = build(VanillaTransformerModel, attn_implementation=name).to(dtype)
        found.append(model(**ids, output_attentions=name == "eager").last_hidden_state)
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}[dtype]
    torch.testing.assert_close(*found, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", CLASSES)
@torch.no_grad()
def test_row_alone_gives_the_same_outputs(kind, inputs):
    model = build(kind, attn_implementation="eager")
    asked = {"output_hidden_states": True, "output_attentions": True}
    ids = inputs(kind)
    together = model(**ids, **asked)
    alone = model(**{name: tensor[:1] for name, tensor in ids.items()}, **asked)
    assert together.keys() == alone.keys()
    for name in together.keys() - {"past_key_values"}:
        several = together[name] if isinstance(together[name], tuple) else (together[name],)
        single = alone[name] if isinstance(alone[name], tuple) else (alone[name],)
        for one, other in zip(several, single, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one[:1], other, atol=1e-5, rtol=1e-5)


def test_use_cache_and_checkpointing_control_the_cache(inputs):
    model = build(TRANSLATOR, use_cache=False)
    assert model(**inputs(TRANSLATOR)).past_key_values is None
    model.config.use_cache = True
    assert model(**inputs(TRANSLATOR)).past_key_values is not None
    model.train().gradient_checkpointing_enable()
    assert model(**inputs(TRANSLATOR)).past_key_values is None  # recomputed layers would fill it twice


@pytest.mark.parametrize("kind", CLASSES)
def test_chunked_feed_forward_changes_nothing(kind, inputs):
    """A field of every configuration in transformers; none of our layers reads it."""
    model = build(kind)
    before = model(**inputs(kind))[0]
    model.config.chunk_size_feed_forward = 1
    torch.testing.assert_close(model(**inputs(kind))[0], before)


@pytest.mark.parametrize("kind", CLASSES)
def test_argument_or_configuration_can_request_tuples(kind, inputs):
    model = build(kind)
    expected = model(**inputs(kind)).to_tuple()
    by_argument = model(**inputs(kind), return_dict=False)
    model.config.return_dict = False
    for outputs in (model(**inputs(kind)), by_argument):
        assert isinstance(outputs, tuple)
        assert len(outputs) == len(expected)
        assert torch.equal(outputs[0], expected[0])


# ------------------------------------------------------------------------------------------------------ embeddings


def test_embeddings_can_be_replaced_and_head_is_linear(inputs):
    for kind in CLASSES:
        model = build(kind)
        assert isinstance(model.get_input_embeddings(), nn.Embedding)
        other = nn.Embedding(40, 16)
        model.set_input_embeddings(other)
        assert model.get_input_embeddings() is other
        before = model(**inputs(kind))[0]
        other.weight.data.add_(torch.randn(40, 16))
        assert not torch.allclose(model(**inputs(kind))[0], before)
    assert isinstance(build(TRANSLATOR).get_output_embeddings(), nn.Linear)
    assert [build(kind).get_output_embeddings() for kind in CLASSES if kind is not TRANSLATOR] == [None, None]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_resizing_updates_embeddings_head_and_configuration(tied, bias):
    model = build(TRANSLATOR, tie_word_embeddings=tied, output_bias=bias)
    pair = {"input_ids": torch.tensor([[5, 6, 2]]), "decoder_input_ids": torch.tensor([[0, 7]])}
    before = model(**pair).logits[..., :9]
    for size, multiple, expected in ((50, None, 50), (41, 8, 48), (30, None, 30), (9, None, 9)):
        model.resize_token_embeddings(size, pad_to_multiple_of=multiple)
        encoder, decoder = model.model.encoder.embed_tokens, model.model.decoder.embed_tokens
        sizes = {model.config.vocab_size, model.lm_head.out_features, encoder.num_embeddings, decoder.num_embeddings}
        assert sizes == {expected}
        logits = model(**pair).logits
        assert logits.shape[-1] == model.lm_head.weight.shape[0] == expected
        torch.testing.assert_close(logits[..., :9], before)
        assert len({encoder.weight, decoder.weight, model.lm_head.weight}) == (1 if tied else 3)
        head = model.lm_head.weight.detach().clone()
        model.post_init()
        assert torch.equal(model.lm_head.weight, head)
    with pytest.raises(ValueError, match="multiple"):
        model.resize_token_embeddings(20, pad_to_multiple_of=1.5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_new_tokens_keep_old_scores_and_round_trip(tied, bias, inputs, tmp_path):
    model = build(TRANSLATOR, tie_word_embeddings=tied, output_bias=bias)
    if bias:
        model.lm_head.bias.copy_(torch.randn(40))
    before = model(**inputs(TRANSLATOR)).logits
    model.resize_token_embeddings(43)
    model.save_pretrained(tmp_path)
    for each in (model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path)):
        logits = each(**inputs(TRANSLATOR)).logits
        assert logits.shape[-1] == each.config.vocab_size == 43
        torch.testing.assert_close(logits[..., :40], before)
        matrices = {each.get_input_embeddings().weight, each.model.decoder.embed_tokens.weight, each.lm_head.weight}
        assert len(matrices) == (1 if tied else 3)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("beams", [1, 3])
def test_new_tokens_are_learned_and_generated(tied, beams, ours_used):
    model = build(TRANSLATOR, tie_word_embeddings=tied, output_bias=True, d_model=32).train()
    model.resize_token_embeddings(43)
    source, labels = torch.tensor([[41, 6, 2]]), torch.tensor([[42, 40, 7, 2]])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = model(source, labels=labels, num_items_in_batch=torch.tensor(4), return_logits=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    assert model.generate(source, num_beams=beams).tolist() == [[0, 42, 40, 7, 2]]
    assert ours_used
    assert transformers_own(model, inputs=source, num_beams=beams).tolist() == [[0, 42, 40, 7, 2]]


# -------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("kind", CLASSES[1:])
def test_gradient_checkpointing_keeps_every_gradient(kind, batch, reentrant):
    """Embeddings also get theirs, and dropout draws the same masks again."""
    model, calls = build(kind, dropout=0.3).train(), []
    labels = batch["labels"] if kind is TRANSLATOR else torch.tensor([0, 1])

    def gradients():
        calls.clear()
        model.zero_grad()
        torch.manual_seed(7)
        model(**{**batch, "labels": labels}).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    model.model.encoder.layers[0].fc1.register_forward_hook(lambda *_: calls.append(1))
    assert not model.is_gradient_checkpointing
    before = gradients()
    assert len(calls) == 1
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    model.enable_input_require_grads()
    after = gradients()
    assert len(calls) == 2  # forward, and again in backward: it does recompute
    assert after.keys() == before.keys() == dict(model.named_parameters()).keys()
    for name, gradient in before.items():
        torch.testing.assert_close(after[name], gradient, msg=name)


def test_every_layer_supports_gradient_checkpointing():
    model = build(TRANSLATOR)
    layers = [*model.model.encoder.layers, *model.model.decoder.layers]
    assert all(isinstance(layer, GradientCheckpointingLayer) for layer in layers)
    assert {type(layer).__name__ for layer in layers} == set(model._no_split_modules)
    assert model.supports_gradient_checkpointing
    model.gradient_checkpointing_enable()
    assert all(layer.gradient_checkpointing for layer in layers)
    model.gradient_checkpointing_disable()
    assert not any(layer.gradient_checkpointing for layer in layers)
