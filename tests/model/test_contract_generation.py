"""Generation as in transformers: outputs, caches, assistants, compilation and export."""

import copy

import pytest
import torch
from transformers import CompileConfig, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput
from transformers.integrations.executorch import Seq2SeqLMExportableModule

from .conftest import CLASSES, TRANSLATOR, build, transformers_own


def plain(model, unlabelled, **options):
    return model.generate(**unlabelled, max_new_tokens=6, min_new_tokens=6, **options)


MODES = {
    "greedy": {"num_beams": 1},
    "sampling": {"num_beams": 1, "do_sample": True, "num_return_sequences": 2},
    "beam": {"num_beams": 3, "num_return_sequences": 2},
    "beam sampling": {"num_beams": 3, "do_sample": True, "num_return_sequences": 2},
}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_search_outputs_have_expected_shapes(unlabelled, mode, cached):
    model, options = build(TRANSLATOR, attn_implementation="eager"), MODES[mode]
    outputs = plain(
        model, unlabelled, **options, use_cache=cached, return_dict_in_generate=True, output_scores=True,
        output_logits=True, output_attentions=True, output_hidden_states=True,
    )  # fmt: skip
    returned, beams = options.get("num_return_sequences", 1), options["num_beams"]
    rows = 2 * (beams if beams > 1 else returned)  # rows computed at every step
    assert type(outputs) is (GenerateBeamEncoderDecoderOutput if beams > 1 else GenerateEncoderDecoderOutput)
    assert outputs.sequences.shape == (2 * returned, 7)  # the start token and six more
    assert [tuple(scores.shape) for scores in outputs.scores] == [(rows, 40)] * 6
    assert [tuple(logits.shape) for logits in outputs.logits] == [(rows, 40)] * 6
    assert [len(states) for states in outputs.decoder_hidden_states] == [4] * 6
    for step, (states, own, cross) in enumerate(
        zip(outputs.decoder_hidden_states, outputs.decoder_attentions, outputs.cross_attentions, strict=True), start=1
    ):
        length = 1 if cached else step
        assert {tuple(state.shape) for state in states} == {(rows, length, 16)}
        assert {tuple(weights.shape) for weights in own} == {(rows, 4, length, step)}
        assert {tuple(weights.shape) for weights in cross} == {(rows, 4, length, 6)}
    assert (outputs.past_key_values is not None) == cached


def test_prepared_inputs_keep_ids_and_extra_arguments(unlabelled):
    model = build(TRANSLATOR)
    ids = torch.tensor([[0, 13]])
    prepared = model.prepare_inputs_for_generation(ids, position_ids=torch.tensor([[0, 1]]), mark="kept")
    assert torch.equal(prepared["decoder_input_ids"], ids)
    assert prepared["mark"] == "kept"


def test_generating_in_two_parts_equals_generating_at_once(unlabelled):
    model = build(TRANSLATOR)
    options = {"num_beams": 1, "return_dict_in_generate": True, "output_scores": True}
    whole = plain(model, unlabelled, **options)
    first = model.generate(**unlabelled, max_new_tokens=3, min_new_tokens=3, **options)
    second = model.generate(
        **unlabelled, max_new_tokens=3, min_new_tokens=3, decoder_input_ids=first.sequences,
        decoder_attention_mask=torch.ones_like(first.sequences), past_key_values=first.past_key_values, **options,
    )  # fmt: skip
    assert torch.equal(second.sequences, whole.sequences)
    for one, other in zip((*first.scores, *second.scores), whole.scores, strict=True):
        torch.testing.assert_close(one, other)


def test_cache_has_one_layer_per_decoder_layer(unlabelled):
    model = build(TRANSLATOR)
    cache = plain(model, unlabelled, num_beams=1, return_dict_in_generate=True).past_key_values
    assert isinstance(cache, EncoderDecoderCache)
    own, cross = cache.self_attention_cache, cache.cross_attention_cache
    assert (len(own.layers), len(cross.layers)) == (3, 3)
    assert own.layers[0].keys.shape == (2, 4, 6, 4)  # (batch, heads, start token and five more, head_dim)
    assert cross.layers[0].keys.shape == (2, 4, 6, 4)
    decoder = model.config.get_text_config(decoder=True)  # where tools look for the sizes of a cache
    assert (decoder.num_attention_heads, decoder.head_dim, decoder.num_hidden_layers) == (4, 4, 3)
    assert plain(model, unlabelled, num_beams=1, use_cache=False, return_dict_in_generate=True).past_key_values is None


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 3},
        # By transformers: ours draws other numbers.
        {"num_beams": 1, "do_sample": True, "encoder_no_repeat_ngram_size": 20},
    ],
)
def test_given_cache_is_filled(unlabelled, options):
    model = build(TRANSLATOR)
    model.generation_config.eos_token_id = None
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    found = []
    for given in ({"past_key_values": cache}, {}):
        torch.manual_seed(0)
        found.append(model.generate(**unlabelled, max_new_tokens=6, **options, **given))
    assert torch.equal(*found)
    assert cache.get_seq_length() == 6  # the start token and five more
    assert cache.cross_attention_cache.layers[2].keys.shape == (2 * options["num_beams"], 4, 6, 4)


def test_beam_search_returns_only_requested_outputs(unlabelled, ours_used):
    model = build(TRANSLATOR)
    asked = {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2, "return_dict_in_generate": True}
    ours, theirs = model.generate(**unlabelled, **asked), transformers_own(model, **unlabelled, **asked)
    assert len(ours_used) == 1
    for found in (ours, theirs):
        assert "scores" not in found
        assert found.scores is None
    assert torch.equal(ours.sequences, theirs.sequences)
    torch.testing.assert_close(ours.sequences_scores, theirs.sequences_scores)
    assert len(model.generate(**unlabelled, **asked, output_scores=True).scores) == 6


def test_low_memory_is_rejected(unlabelled):
    with pytest.raises(ValueError, match="low_memory=True"):
        build(TRANSLATOR).generate(**unlabelled, num_beams=3, low_memory=True)


@pytest.mark.parametrize("assistant", ["itself", "another", "prompt look-up"])
def test_assisted_decoding_equals_greedy_decoding(unlabelled, assistant):
    model = build(TRANSLATOR)
    helper = model if assistant == "itself" else copy.deepcopy(model)
    if assistant == "another":
        torch.nn.init.normal_(helper.lm_head.weight)
    options = {"prompt_lookup_num_tokens": 2} if assistant == "prompt look-up" else {"assistant_model": helper}
    one = {name: tensor[:1] for name, tensor in unlabelled.items()}
    assert torch.equal(plain(model, one, **options), plain(model, one))


def test_assisted_sampling_runs(unlabelled):
    model = build(TRANSLATOR)
    one = {name: tensor[:1] for name, tensor in unlabelled.items()}
    assert plain(model, one, assistant_model=copy.deepcopy(model), do_sample=True).shape == (1, 7)


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3}])
def test_a_static_cache_changes_nothing(unlabelled, options):
    model = build(TRANSLATOR)
    static = plain(model, unlabelled, cache_implementation="static", **options)
    assert torch.equal(static, plain(model, unlabelled, **options))


@pytest.mark.parametrize("beams", [1, 3])
def test_eager_and_sdpa_generate_alike_in_half_precision(unlabelled, beams):
    one, other = (build(TRANSLATOR, attn_implementation=name).half() for name in ("eager", "sdpa"))
    assert torch.equal(plain(one, unlabelled, num_beams=beams), plain(other, unlabelled, num_beams=beams))


def test_beam_sampling_runs_in_half_precision(unlabelled):
    model = build(TRANSLATOR).half()
    torch.manual_seed(0)
    found = plain(model, unlabelled, do_sample=True, num_beams=4, num_return_sequences=3)
    assert found.shape == (6, 7)


def test_generation_works_from_only_the_start_token():
    model = build(TRANSLATOR)
    assert model.generate(max_new_tokens=3, min_new_tokens=3, bos_token_id=0).shape[-1] == 4


# -------------------------------------------------------------------------------------------- compilation and export


def test_generation_compiles_only_one_graph(unlabelled):
    """A step is one graph, and other inputs of the same shape reuse it."""
    torch.compiler.reset()
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    how = CompileConfig(fullgraph=True, mode=None, backend=count)
    how._compile_all_devices = True
    model = build(TRANSLATOR)
    options = {"num_beams": 1, "return_dict_in_generate": True, "output_scores": True, "output_hidden_states": True}
    for shift in (0, 1, 2):
        inputs = unlabelled | {"input_ids": unlabelled["input_ids"] + shift}
        found = plain(model, inputs, cache_implementation="static", compile_config=how, **options)
        expected = plain(model, inputs, **options)
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(found.scores, expected.scores)
        assert len(found.decoder_hidden_states) == len(expected.decoder_hidden_states)
        assert len(graphs) == 1


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_model_gives_the_same_outputs(kind, inputs, dynamic):
    model, ids = build(kind, use_cache=False), inputs(kind)
    shapes = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in ids} if dynamic else None
    program = torch.export.export(model, (), ids, dynamic_shapes=shapes, strict=False)
    if dynamic:
        ids = {name: torch.cat((tensor, tensor))[:3] for name, tensor in ids.items()}
    torch.testing.assert_close(program.module()(**ids)[0], model(**ids)[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_exported_encoder_and_step_translate_like_the_model(length):
    """Both programs of transformers' own exporter, the decoder's with a static cache, translate like the model."""
    # The exporter takes the encoder's number of heads for both sides.
    model = build(TRANSLATOR, decoder_attention_heads=2)
    source = torch.randint(4, 40, (1, length))
    exported = Seq2SeqLMExportableModule(model, max_hidden_seq_length=32, max_cache_length=16).export()
    expected = model.generate(source, num_beams=1, max_new_tokens=7, eos_token_id=None)
    exported.generation_config.eos_token_id = None
    assert exported.generate(source, max_new_tokens=8) == expected[0].tolist()
