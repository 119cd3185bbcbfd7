"""What transformers promises of any model, beyond what the other files of this folder test of ours."""

import copy

import pytest
import torch
from transformers import CompileConfig, EncoderDecoderCache
from transformers.integrations.executorch import Seq2SeqLMExportableModule
from transformers.modeling_layers import GradientCheckpointingLayer

from vanilla_transformer.model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

from .conftest import build_config


CLASSES = (
    VanillaTransformerModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
)
TRANSLATOR = VanillaTransformerForConditionalGeneration


@pytest.fixture
def inputs(batch, decoder_input_ids):
    sources = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}

    def inputs(kind):
        with_target = kind is not VanillaTransformerForSequenceClassification
        return sources | ({"decoder_input_ids": decoder_input_ids} if with_target else {})

    return inputs


def build(kind, **choices):
    torch.manual_seed(3)
    return kind(build_config(**choices)).eval()


# --------------------------------------------------------------------------------------------------- configuration


def test_the_librarys_own_fields_are_kept():
    config = build_config(
        output_hidden_states=True, output_attentions=True, dtype="float16", chunk_size_feed_forward=2,
        architectures=["X"], problem_type="regression", id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1},
    )  # fmt: skip
    assert (config.output_hidden_states, config.output_attentions, config.chunk_size_feed_forward) == (True, True, 2)
    assert (config.architectures, config.problem_type, config.dtype) == (["X"], "regression", torch.float16)
    assert (config.id2label, config.label2id, config.num_labels) == ({0: "a", 1: "b"}, {"a": 0, "b": 1}, 2)
    config.num_labels = 3
    assert (len(config.id2label), len(config.label2id)) == (3, 3)


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


def test_a_configuration_without_special_tokens_still_makes_a_model(inputs):
    fields = {k: v for k, v in build_config().to_diff_dict().items() if not k.endswith("_token_id")}
    model = VanillaTransformerModel(type(build_config())(**fields)).eval()
    assert model(**inputs(VanillaTransformerModel)).last_hidden_state.isfinite().all()


# --------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", CLASSES)
def test_parameters_are_contiguous_and_no_tensor_hides(kind, tmp_path):
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


@pytest.mark.parametrize("kind", CLASSES[1:])
def test_the_base_model_is_held_by_its_prefix(kind):
    model = build(kind)
    assert model.base_model is getattr(model, kind.base_model_prefix)
    assert model.base_model is not model
    assert model.main_input_name == "input_ids"
    assert model.can_generate() == (kind is TRANSLATOR)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_same_weights_from_a_dictionary(kind):
    model = build(kind)
    again = kind.from_pretrained(None, config=model.config, state_dict=model.state_dict())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_loading_under_the_meta_device_is_refused(tmp_path):
    build(TRANSLATOR).save_pretrained(tmp_path)
    with torch.device("meta"), pytest.raises(RuntimeError):
        TRANSLATOR.from_pretrained(tmp_path)


# --------------------------------------------------------------------------------------------------------- forward


@pytest.mark.parametrize("kind", CLASSES[:2])
def test_outputs_asked_for_by_the_configuration(kind, inputs):
    config = build_config(attn_implementation="eager", output_hidden_states=True, output_attentions=True)
    outputs = kind(config).eval()(**inputs(kind))
    assert (len(outputs.encoder_hidden_states), len(outputs.decoder_hidden_states)) == (3, 4)
    assert (len(outputs.encoder_attentions), len(outputs.decoder_attentions), len(outputs.cross_attentions)) == (
        2,
        3,
        3,
    )


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


def test_hooks_of_the_embedding_see_both_sides(inputs):
    model, seen = build(VanillaTransformerModel), []
    for stack in (model.encoder, model.decoder):
        stack.get_input_embeddings().register_forward_hook(lambda *_: seen.append(1))
    model(**inputs(VanillaTransformerModel))
    assert len(seen) == 2


def test_embeddings_looked_up_outside_are_those_looked_up_inside(inputs):
    model = build(VanillaTransformerModel)
    ids = inputs(VanillaTransformerModel)
    look_up = model.get_input_embeddings()
    outputs = model(
        inputs_embeds=look_up(ids["input_ids"]),
        attention_mask=ids["attention_mask"],
        decoder_inputs_embeds=look_up(ids["decoder_input_ids"]),
    )
    torch.testing.assert_close(outputs.last_hidden_state, model(**ids).last_hidden_state)


@pytest.mark.parametrize("kind", CLASSES)
def test_feed_forward_in_chunks_changes_nothing(kind, inputs):
    model = build(kind)
    before = model(**inputs(kind))[0]
    model.config.chunk_size_feed_forward = 1
    torch.testing.assert_close(model(**inputs(kind))[0], before)


@pytest.mark.parametrize("kind", CLASSES)
def test_tuples_asked_for_by_the_configuration(kind, inputs):
    model = build(kind)
    expected = model(**inputs(kind)).to_tuple()
    model.config.return_dict = False
    outputs = model(**inputs(kind))
    assert isinstance(outputs, tuple)
    assert len(outputs) == len(expected)
    assert torch.equal(outputs[0], expected[0])


# ------------------------------------------------------------------------------------------------------ embeddings


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_resizing_moves_everything_with_it(inputs, tied, bias):
    model = build(TRANSLATOR, tie_word_embeddings=tied, output_bias=bias)
    old = model.get_input_embeddings().weight.detach().clone()
    for size, multiple, expected in ((50, None, 50), (41, 8, 48), (30, None, 30), (9, None, 9)):
        model.resize_token_embeddings(size, pad_to_multiple_of=multiple)
        assert (model.config.vocab_size, model.lm_head.out_features) == (expected, expected)
        assert model.lm_head.weight.shape[0] == model.model.decoder.embed_tokens.num_embeddings == expected
        kept = min(expected, 9)
        assert torch.equal(model.get_input_embeddings().weight[:kept], old[:kept])
        assert model(torch.tensor([[5, 6, 2]]), decoder_input_ids=torch.tensor([[0, 7]])).logits.shape[-1] == expected
    with pytest.raises(ValueError, match="multiple"):
        model.resize_token_embeddings(20, pad_to_multiple_of=1.5)


# -------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("kind", CLASSES[1:])
def test_checkpointed_layers_give_every_parameter_its_gradient(kind, inputs, reentrant):
    model = build(kind).train()
    turn_on = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    labels = (
        torch.tensor([[13, 14, 15, 16, 2], [17, 18, 2, -100, -100]]) if kind is TRANSLATOR else torch.tensor([0, 1])
    )
    ids = {name: value for name, value in inputs(kind).items() if name != "decoder_input_ids"}

    def gradients():
        model.zero_grad()
        model(**ids, labels=labels).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    assert not model.is_gradient_checkpointing
    before = gradients()
    turn_on({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    if reentrant:
        model.enable_input_require_grads()
    after = gradients()
    assert after.keys() == before.keys() == dict(model.named_parameters()).keys()
    for name, gradient in before.items():
        torch.testing.assert_close(after[name], gradient)


def test_every_layer_can_be_recomputed():
    model = build(TRANSLATOR)
    layers = [*model.model.encoder.layers, *model.model.decoder.layers]
    assert all(isinstance(layer, GradientCheckpointingLayer) for layer in layers)
    assert {type(layer).__name__ for layer in layers} == set(model._no_split_modules)


# ------------------------------------------------------------------------------------------------------ generation


@pytest.fixture
def sources(batch):
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def plain(model, sources, **options):
    return model.generate(**sources, max_new_tokens=6, min_new_tokens=6, **options)


def test_generating_in_two_parts_is_generating_at_once(sources):
    model = build(TRANSLATOR)
    options = {"num_beams": 1, "return_dict_in_generate": True, "output_scores": True}
    whole = plain(model, sources, **options)
    first = model.generate(**sources, max_new_tokens=3, min_new_tokens=3, **options)
    second = model.generate(
        **sources, max_new_tokens=3, min_new_tokens=3, decoder_input_ids=first.sequences,
        past_key_values=first.past_key_values, **options,
    )  # fmt: skip
    assert torch.equal(second.sequences, whole.sequences)
    for one, other in zip((*first.scores, *second.scores), whole.scores, strict=True):
        torch.testing.assert_close(one, other)


def test_the_cache_has_a_layer_for_each_of_the_decoders(sources):
    model = build(TRANSLATOR)
    cache = plain(model, sources, num_beams=1, return_dict_in_generate=True).past_key_values
    assert isinstance(cache, EncoderDecoderCache)
    own, cross = cache.self_attention_cache, cache.cross_attention_cache
    assert (len(own.layers), len(cross.layers)) == (3, 3)
    assert own.layers[0].keys.shape == (2, 4, 6, 4)  # (batch, heads, start token and five more, head_dim)
    assert cross.layers[0].keys.shape == (2, 4, 6, 4)
    assert plain(model, sources, num_beams=1, use_cache=False, return_dict_in_generate=True).past_key_values is None


@pytest.mark.parametrize("assistant", ["itself", "another"])
def test_assisted_decoding_is_greedy_decoding(sources, assistant):
    model = build(TRANSLATOR)
    helper = model if assistant == "itself" else copy.deepcopy(model)
    if assistant == "another":
        torch.nn.init.normal_(helper.lm_head.weight)
    one = {name: tensor[:1] for name, tensor in sources.items()}
    assert torch.equal(plain(model, one, assistant_model=helper), plain(model, one))


def test_prompt_look_up_is_greedy_decoding(sources):
    model = build(TRANSLATOR)
    one = {name: tensor[:1] for name, tensor in sources.items()}
    assert torch.equal(plain(model, one, prompt_lookup_num_tokens=2), plain(model, one))


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3}])
def test_a_static_cache_changes_nothing(sources, options):
    model = build(TRANSLATOR)
    static = plain(model, sources, cache_implementation="static", **options)
    assert torch.equal(static, plain(model, sources, **options))


def test_sampling_with_several_beams_and_results_in_half_precision(sources):
    model = build(TRANSLATOR).half()
    torch.manual_seed(0)
    found = plain(model, sources, do_sample=True, num_beams=4, num_return_sequences=3)
    assert found.shape == (6, 7)


def test_generating_from_nothing_but_the_start_token():
    model = build(TRANSLATOR)
    assert model.generate(max_new_tokens=3, min_new_tokens=3, bos_token_id=0).shape[-1] == 4


# ------------------------------------------------------------------------------------------- compiling and exporting


@pytest.mark.parametrize("beams", [1, 2])
def test_generation_compiles_one_graph_and_keeps_it(sources, beams):
    """The first call compiles; neither a second one nor a shorter source makes another graph, or breaks one."""
    torch.compiler.reset()
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    how = CompileConfig(fullgraph=True, dynamic=True, mode=None, backend=count)
    how._compile_all_devices = True
    model, compiled = build(TRANSLATOR), []
    for length in (6, 6, 5):
        inputs = {name: tensor[:, :length] for name, tensor in sources.items()}
        found = plain(model, inputs, cache_implementation="static", compile_config=how, num_beams=beams)
        assert torch.equal(found, plain(model, inputs, num_beams=beams))
        compiled.append(len(graphs))
    assert 0 < compiled[0] == compiled[1] == compiled[2]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(kind, inputs, dynamic):
    model, ids = build(kind, use_cache=False), inputs(kind)
    shapes = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in ids} if dynamic else None
    program = torch.export.export(model, (), ids, dynamic_shapes=shapes, strict=False)
    if dynamic:
        ids = {name: torch.cat((tensor, tensor))[:3] for name, tensor in ids.items()}
    torch.testing.assert_close(program.module()(**ids)[0], model(**ids)[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [4, 12])
def test_encoder_and_decoding_step_are_exported_for_other_runtimes(length):
    """Both programs of transformers' own exporter, the decoder's with a static cache, translate as the model does."""
    model = build(TRANSLATOR)
    source = torch.randint(4, 40, (1, length))
    exported = Seq2SeqLMExportableModule(model, max_hidden_seq_length=32, max_cache_length=16).export()
    expected = model.generate(source, num_beams=1, max_new_tokens=7, eos_token_id=None)
    exported.generation_config.eos_token_id = None
    assert exported.generate(source, max_new_tokens=8) == expected[0].tolist()
