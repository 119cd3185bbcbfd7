"""The searches match exhaustive search, transformers' own and one forward pass, alone and in any batch."""

import copy
import itertools
import logging
import math
import random

import pytest
import torch
from sacrebleu.metrics import CHRF
from torch import nn
from transformers import AttentionInterface, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import GenerationMixin
from transformers.generation.logits_process import (
    ForcedEOSTokenLogitsProcessor,
    LogitNormalization,
    NoBadWordsLogitsProcessor,
    TopKLogitsWarper,
)
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from vanilla_transformer.model import steps_vanilla_transformer
from vanilla_transformer.model.generation_vanilla_transformer import length_penalty
from vanilla_transformer.model.search_vanilla_transformer import (
    Normalisers,
    _blocks,
    beam_search,
    exact_top_k,
    least_risk_first,
)
from vanilla_transformer.model.steps_vanilla_transformer import StepwiseDecoder

from .conftest import sharpened, sums_of_one_pass, transformers_own


OPTIONS = {
    "paper": {},
    "pre-norm": {"norm_first": True, "attention_bias": True, "activation_function": "gelu"},
    "learned": {"position_embedding_type": "learned", "output_bias": True},
    "row B": {"head_dim": 6, "value_head_dim": 10},
    "untied": {"tie_word_embeddings": False, "sinusoid_layout": "halves", "scale_embedding": False},
}


# ------------------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize(
    ("rows", "columns", "count"), [(1, 5000, 8), (3, 5000, 8), (4, 4099, 1), (2, 100, 7), (5, 7, 7)]
)
def test_exact_top_k_equals_topk(rows, columns, count):
    for seed in range(20):
        values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
        best, places = exact_top_k(values, count)
        expected = values.topk(count, dim=1)
        assert torch.equal(best, expected.values)
        assert torch.equal(places, expected.indices)


@pytest.mark.parametrize(("rows", "columns", "count"), [(3, 5000, 8), (2, 4099, 2), (1, 40_001, 10), (4, 60, 7)])
def test_exact_top_k_adds_offsets_to_parts(rows, columns, count):
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        values, offsets = (torch.randn(*shape, generator=random) for shape in ((rows, 5, columns), (rows, 5)))
        offsets[0, 1:3] = -torch.inf  # hypotheses that there are not
        offsets = offsets.double() if seed % 2 else offsets
        best, places = exact_top_k(values, count, offsets)
        expected = (values + offsets[..., None]).flatten(1).topk(count, dim=1)
        assert torch.equal(best, expected.values)
        assert torch.equal(places, expected.indices)


def test_normalisers_make_log_probabilities():
    normalisers = Normalisers()
    for shape in ((2, 3, 50), (20, 4, 3000), (3, 1, 200_000)):
        # Exponentials of some are too large for float32, of others too small; some tokens are forbidden.
        for shift in (0.0, 200.0, -200.0, -60.0):
            scores = torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift
            scores[..., 7:11] = -torch.inf
            expected = scores.double().log_softmax(dim=-1)
            normalised = scores - normalisers(scores)[..., None]  # few scores change in place
            torch.testing.assert_close(normalised.double(), expected, atol=5e-5, rtol=1e-6)
        scores = torch.full(shape, math.nan)
        assert (scores - normalisers(scores)[..., None]).isnan().all()


def test_exact_top_k_returns_existing_places_of_minus_infinity():
    values = torch.full((3, 4099), -torch.inf)
    values[1, 7] = 0
    best, places = exact_top_k(values, 8)
    assert best.tolist() == [[-math.inf] * 8, [0] + [-math.inf] * 7, [-math.inf] * 8]
    assert places.max() < 4099
    assert places[1, 0] == 7


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_stepwise_scores_match_the_whole_forward_pass(tiny_model, sources, options):
    model, beams = tiny_model(**options), 3
    assert model.has_plain_decoder()
    torch.manual_seed(1)
    tokens = torch.randint(3, 40, (5, beams, 40))  # longer than the space reserved at first
    with torch.no_grad():
        decoder = StepwiseDecoder(model, model.model.encoder(**sources)[0], sources["attention_mask"], beams)
        stay = torch.tensor([0, 2, 4])
        for position in range(tokens.shape[2]):
            if position == 10:  # two sentences leave
                decoder.keep(stay)
                tokens = tokens[stay]
            if position % 7 == 3:  # hypotheses swap places, and one has two successors
                parents = torch.tensor([2, 0, 0]).expand(len(tokens), -1)
                decoder.continue_from(parents)
                tokens[:, :, :position] = tokens[:, parents[0], :position]
            scores = decoder.scores(tokens[:, :, position])
        kept = {name: value[stay].repeat_interleave(beams, dim=0) for name, value in sources.items()}
        expected = model(**kept, decoder_input_ids=tokens.flatten(0, 1)).logits[:, -1]
    torch.testing.assert_close(scores.flatten(0, 1), expected, atol=2e-5, rtol=1e-4)


# ----------------------------------------------------------------------------------------------- exhaustive search


def all_translations(model, source, limit, penalty):
    """Every translation of at most `limit` tokens and its score, best first, from forward passes alone."""
    vocabulary, found = range(model.config.vocab_size), {}
    full = torch.tensor(list(itertools.product(vocabulary, repeat=limit)))
    inputs = torch.cat((torch.zeros(len(full), 1, dtype=torch.long), full[:, :-1]), dim=1)
    with torch.no_grad():
        logits = model(source.expand(len(full), -1), decoder_input_ids=inputs).logits.double()
    log_probabilities = logits.log_softmax(-1).gather(2, full[..., None])[..., 0].cumsum(1)
    for row, sums in zip(full.tolist(), log_probabilities.tolist(), strict=True):
        length = row.index(2) + 1 if 2 in row else limit
        found[tuple(row[:length])] = sums[length - 1] / penalty(length)
    return sorted(found.items(), key=lambda each: -each[1])


@pytest.mark.parametrize(
    ("kind", "alpha"), [("gnmt", 0.6), ("length", 0.6), ("length", 2.0), ("gnmt", 0.0), ("length", -1.0)]
)
@pytest.mark.parametrize("end", [-3.0, 0.0, 3.0], ids=["ends late", "ends anywhere", "ends early"])
def test_wide_search_equals_exhaustive_search(tiny_model, kind, alpha, end):
    def penalty(length):
        return length_penalty(length, alpha, kind)

    for seed in range(12):
        limit, source = 2 + seed % 3, torch.tensor([[3, 4, 2]])
        model = sharpened(tiny_model(seed, vocab_size=5, output_bias=True, d_model=8, encoder_layers=1)).double()
        with torch.no_grad():
            model.lm_head.bias[2] += end
        expected = all_translations(model, source, limit, penalty)
        beams = 5 ** (limit - 1)
        with torch.no_grad():
            decoder = StepwiseDecoder(model, model.model.encoder(source)[0], None, beams)
        found = beam_search(decoder, torch.zeros(1, 1, dtype=torch.long), [limit], eos_ids={2}, penalty=penalty)[0]
        assert len(found) == min(beams, len(expected))
        for translation, (tokens, score) in zip(found, expected, strict=False):
            assert translation.score == pytest.approx(score, abs=1e-4)
            if sum(abs(other - score) < 1e-4 for _, other in expected) == 1:
                assert tuple(translation.tokens) == tokens


def test_searching_a_batch_in_parts_changes_nothing(tiny_model, monkeypatch):
    # Else small batches would use another attention kernel, whose rounding differs.
    monkeypatch.setattr(steps_vanilla_transformer, "_MANY_HEADS", 1)
    model, ids = sharpened(tiny_model(vocab_size=9000)), torch.randint(3, 9000, (75, 6))
    constraints = [[] for _ in ids]
    constraints[70] = [[8, 9]]
    options = {"num_beams": 4, "max_new_tokens": 5, "output_scores": False, "return_dict_in_generate": True}
    with torch.no_grad():
        decoder = StepwiseDecoder(model, model.model.encoder(ids)[0], None, 4)
    assert len([*_blocks(decoder, len(ids), ids.device)]) == 3
    together = model.generate(ids, constraints=constraints, **options)
    for first in range(0, len(ids), 5):  # each of these fits in one part
        some = slice(first, first + 5)
        found = model.generate(ids[some], constraints=constraints[some], **options)
        width = found.sequences.shape[1]
        assert torch.equal(together.sequences[some, :width], found.sequences)
        torch.testing.assert_close(together.sequences_scores[some], found.sequences_scores, atol=1e-5, rtol=1e-5)


def endless_beam_search(model, source, limit, beams, penalty):
    """The plainest beam search, from whole forward passes; it never stops before the limit."""
    open_ones, finished = [((0,), 0.0)], []
    for length in range(1, limit + 1):
        rows = torch.tensor([tokens for tokens, _ in open_ones])
        with torch.no_grad():
            scores = model(source.expand(len(rows), -1), decoder_input_ids=rows).logits[:, -1].log_softmax(-1).tolist()
        longer = [
            ((*tokens, token), so_far + score)
            for (tokens, so_far), row in zip(open_ones, scores, strict=True)
            for token, score in enumerate(row)
        ]
        open_ones = []
        for rank, (tokens, score) in enumerate(sorted(longer, key=lambda each: -each[1])[: 2 * beams]):
            if tokens[-1] != 2 and length < limit:
                open_ones = ([*open_ones, (tokens, score)])[:beams]
            elif rank < beams:
                finished.append((tokens[1:], score / penalty(length)))
    return sorted(finished, key=lambda each: -each[1])[:beams]


@pytest.mark.parametrize(("kind", "alpha"), [("gnmt", 0.6), ("length", 1.0), ("gnmt", 2.0), ("length", 0.0)])
@pytest.mark.parametrize("end", [-1.0, 1.0], ids=["ends late", "ends early"])
def test_early_stop_loses_no_better_hypothesis(tiny_model, kind, alpha, end):
    def penalty(length):
        return length_penalty(length, alpha, kind)

    source, limit, saved = torch.tensor([[3, 4, 2]]), 9, 0
    for seed in range(12):
        beams = 2 + seed % 4
        model = sharpened(tiny_model(seed, vocab_size=12, output_bias=True)).double()
        with torch.no_grad():
            model.lm_head.bias[2] += end
            decoder = StepwiseDecoder(model, model.model.encoder(source)[0], None, beams)
        prefix = torch.zeros(1, 1, dtype=torch.long)
        [found] = beam_search(decoder, prefix, [limit], eos_ids={2}, penalty=penalty)
        expected = endless_beam_search(model, source, limit, beams, penalty)
        assert [tuple(each.tokens) for each in found] == [tokens for tokens, _ in expected]
        assert [each.score for each in found] == pytest.approx([score for _, score in expected], abs=1e-4)
        saved += limit - decoder.length
    assert saved > 0  # steps; otherwise this shows nothing


# ------------------------------------------------------------------------------------------------ scores and batches


@pytest.mark.parametrize("kind", ["gnmt", "length"])
def test_sequence_scores_equal_one_forward_pass(tiny_model, sources, kind):
    for seed in range(5):
        model = sharpened(tiny_model(seed))
        options = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.6, "length_penalty_type": kind}
        output = model.generate(**sources, **options, max_new_tokens=9, return_dict_in_generate=True)
        sums, lengths = sums_of_one_pass(model, sources, output.sequences)
        expected = sums / torch.tensor([length_penalty(int(length), 0.6, kind) for length in lengths])
        torch.testing.assert_close(output.sequences_scores, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{"num_beams": 1}, {"num_beams": 4, "num_return_sequences": 4}], ids=["greedy", "beam"]
)
def test_neighbours_and_their_order_change_nothing(tiny_model, sources, options):
    for seed in range(6):
        model = sharpened(tiny_model(seed))
        count = options.get("num_return_sequences", 1)

        def translations(rows, model=model, count=count):
            ids, mask = sources["input_ids"][rows], sources["attention_mask"][rows]
            length = int(mask.sum(1).max())
            found = model.generate(ids[:, :length], attention_mask=mask[:, :length], **options)
            found = [[token for token in row if token != 1] for row in found.tolist()]
            return {row: found[i * count : (i + 1) * count] for i, row in enumerate(rows)}

        together = translations([0, 1, 2, 3, 4])
        assert translations([3, 1, 4, 0, 2]) == together
        assert {row: translations([row])[row] for row in range(5)} == together


# -------------------------------------------------------------------------- comparison with transformers' own searches


OF_OPUS = {
    "num_beams": 4, "bad_words_ids": [[1], [9]], "forced_eos_token_id": 2, "renormalize_logits": True, "max_length": 8,
    "length_penalty_type": "length",
}  # fmt: skip
SEARCHES = {
    "greedy": {"num_beams": 1},
    "greedy, bounded": {"num_beams": 1, "max_new_tokens": 9},
    "beam": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False, "length_penalty_type": "length"},
    "beam, early": {"num_beams": 4, "early_stopping": True, "length_penalty_type": "length"},
    "n-best": {"num_beams": 5, "num_return_sequences": 3, "length_penalty_type": "length"},
    "no bound": {"num_beams": 3, "early_stopping": "never", "length_penalty_type": "length", "max_new_tokens": 9},
    "short ones": {"num_beams": 3, "length_penalty": -0.5, "early_stopping": "never", "length_penalty_type": "length"},
    "gnmt": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
    "gnmt, no bound": {"num_beams": 3, "length_penalty": 1.0, "early_stopping": False, "max_length": 12},
    "two ends": {"num_beams": 3, "eos_token_id": [2, 7], "length_penalty_type": "length"},
    "no end": {"num_beams": 3, "eos_token_id": None, "max_new_tokens": 6, "length_penalty_type": "length"},
    "prefix": {"num_beams": 3, "decoder_input_ids": torch.tensor([[0, 9, 11]] * 5), "length_penalty_type": "length"},
    "labels, as Seq2SeqTrainer gives them": {"num_beams": 3, "labels": torch.tensor([[5, 6, 2]] * 5)},
    "OPUS-MT's": OF_OPUS,
    "OPUS-MT's, greedy": OF_OPUS | {"num_beams": 1},
    "OPUS-MT's, not renormalised": OF_OPUS | {"renormalize_logits": False},
    "OPUS-MT's, prefix": OF_OPUS | {"decoder_input_ids": torch.tensor([[0, 9, 11]] * 5)},
    "bad words": {"num_beams": 3, "bad_words_ids": [[9], [2], [11], [12]], "length_penalty_type": "length"},
    "bad words, greedy": {"num_beams": 1, "bad_words_ids": [[9], [2], [11], [12]]},
    "nothing twice": {"num_beams": 4, "no_repeat_ngram_size": 1, "length_penalty_type": "length"},
    "no two twice": {"num_beams": 4, "no_repeat_ngram_size": 2, "max_new_tokens": 20, "max_length_offset": None},
    "no two twice, greedy": {"num_beams": 1, "no_repeat_ngram_size": 2, "max_new_tokens": 20},
    "no two twice, of the prefix either": {
        "num_beams": 3,
        "no_repeat_ngram_size": 2,
        "decoder_input_ids": torch.tensor([[0, 9, 11, 9, 12, 9]] * 5),
        "length_penalty_type": "length",
    },
    "no three twice, and OPUS-MT's": OF_OPUS | {"no_repeat_ngram_size": 3, "max_length": 20},
    "one end of two is forced": {
        "num_beams": 3,
        "max_length": 6,
        "eos_token_id": [2, 7],
        "forced_eos_token_id": 7,
        "length_penalty_type": "length",
    },
    "greedy prefix": {"num_beams": 1, "decoder_input_ids": torch.tensor([[0, 9, 11]] * 5)},
    "lowest risk": {"num_beams": 6, "length_penalty_type": "length", "minimum_bayes_risk": True},
    "lowest risk, n-best after a prefix": {
        "num_beams": 5,
        "num_return_sequences": 3,
        "decoder_input_ids": torch.tensor([[0, 9, 11]] * 5),
        "eos_token_id": [2, 7],
        "bad_words_ids": [[1]],  # padding, which nobody could tell from what comes after the end
        "minimum_bayes_risk": True,
    },
}


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_outputs_equal_transformers_own_search(tiny_model, sources, options, ours_used):
    options = {**sources, "max_length_offset": 9, **options}
    for seed, choices in enumerate(OPTIONS.values()):
        model = sharpened(tiny_model(seed, **{**choices, "output_bias": True}))
        ours = model.generate(**options)
        assert len(ours_used) == seed + 1
        assert torch.equal(ours, transformers_own(model, **options))
        assert len(ours_used) == seed + 1


def test_beam_search_equals_generation_mixins(tiny_model, sources):
    """Compares with the method of `GenerationMixin` itself, without any of our code in between."""
    model = sharpened(tiny_model())
    options = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False, "length_penalty_type": "length"}
    theirs = model.generate(**sources, **options, custom_generate=GenerationMixin._beam_search)
    assert torch.equal(model.generate(**sources, **options), theirs)


def test_scores_do_not_depend_on_torchs_default_type(tiny_model, sources):
    options = {"num_beams": 3, "max_new_tokens": 8, "return_dict_in_generate": True}
    model = tiny_model()
    expected = model.generate(**sources, **options).sequences_scores
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = model.generate(**sources, **options).sequences_scores
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, atol=0, rtol=0, check_dtype=False)


def test_lowest_bayes_risk_comes_first_by_chrf_of_tokens():
    """sacreBLEU computes the same with a character for each token."""
    chrf, draw = CHRF(char_order=2, beta=2), random.Random(1)
    for _ in range(200):
        candidates = [draw.choices(range(6), k=draw.randrange(8)) for _ in range(draw.randrange(1, 7))]
        texts = ["".join(chr(0x4E00 + token) for token in tokens) for tokens in candidates]
        utilities = [
            sum(chrf.sentence_score(text, [other]).score for j, other in enumerate(texts) if j != i and text and other)
            for i, text in enumerate(texts)
        ]
        found = [utilities[place] for place in least_risk_first(candidates)]
        assert sorted(least_risk_first(candidates)) == [*range(len(candidates))]
        assert found == pytest.approx(sorted(utilities, reverse=True), abs=1e-6)


def test_hypotheses_of_a_beam_are_ordered_by_risk(tiny_model, sources, ours_used, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model, options = sharpened(tiny_model(1)), {**sources, "num_beams": 6, "return_dict_in_generate": True}
    plain = model.generate(**options, num_return_sequences=6)
    found = model.generate(**options, num_return_sequences=2, minimum_bayes_risk=True)
    best, differ = [], 0
    for first in range(0, 30, 6):
        rows = [
            [token for token in row[1:] if token not in (1, 2)] for row in plain.sequences[first : first + 6].tolist()
        ]
        best += [first + place for place in least_risk_first(rows)[:2]]
        differ += best[-2] != first
    assert differ
    assert torch.equal(found.sequences, plain.sequences[best, : found.sequences.shape[1]])
    assert torch.equal(found.sequences_scores, plain.sequences_scores[best])
    assert len(ours_used) == 2
    with_steps = model.generate(**options, num_return_sequences=2, minimum_bayes_risk=True, output_scores=True)
    assert torch.equal(with_steps.sequences, found.sequences)
    torch.testing.assert_close(with_steps.sequences_scores, found.sequences_scores)
    assert len(with_steps.beam_indices) == 10
    assert len(ours_used) == 2  # transformers' search has the scores of every step
    assert "deprecated" not in caplog.text  # transformers warns of a config beside other settings
    endless = model.generate(**options, minimum_bayes_risk=True, eos_token_id=None, max_new_tokens=30)
    assert endless.sequences.shape[1] == 31  # None counts, too
    model.generation_config.minimum_bayes_risk = True
    assert torch.equal(model.generate(**options, num_return_sequences=2).sequences, found.sequences)
    with pytest.raises(ValueError, match="minimum_bayes_risk must be true or false, not 'yes'"):
        model.generate(**options, minimum_bayes_risk="yes")


class Nothing(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores


ELSEWHERE = {
    "a logits processor": {"logits_processor": [Nothing()]},
    "a field that makes one": {"encoder_no_repeat_ngram_size": 3},
    "bad words of two tokens": {"bad_words_ids": [[5], [6, 7]]},
    "two forced ends": {"forced_eos_token_id": [2, 7], "eos_token_id": [2, 7]},
    "processors in another order": {"logits_processor": [LogitNormalization(), NoBadWordsLogitsProcessor([[9]])]},
    "a forced end, twice": {"logits_processor": [ForcedEOSTokenLogitsProcessor(each, 2) for each in (3, 4)]},
    "processors behind a warper": {
        "num_beams": 1,
        "do_sample": True,
        "top_k": 0,
        "logits_processor": [TopKLogitsWarper(30), NoBadWordsLogitsProcessor([[9]])],
    },
    "scores of every step": {"output_scores": True, "return_dict_in_generate": True},
    "no cache": {"use_cache": False},
    "a static cache": {"cache_implementation": "static"},
    "beams that are drawn": {"do_sample": True},
}


@pytest.mark.parametrize("options", ELSEWHERE.values(), ids=ELSEWHERE)
def test_unsupported_options_fall_back_to_transformers(tiny_model, sources, options, ours_used):
    tiny_model().generate(**{**sources, "num_beams": 2, "max_new_tokens": 3, **options})
    assert not ours_used


def test_bad_words_beyond_the_vocabulary_are_named(tiny_model, sources):
    with pytest.raises(ValueError, match=r"vocabulary size is 40, but the following .*: \[40\]"):
        tiny_model().generate(**sources, num_beams=2, bad_words_ids=[[40]])


def test_nothing_is_drawn_from_no_probabilities(tiny_model, sources):
    model = tiny_model(output_bias=True)
    for options in ({"bad_words_ids": [[token] for token in range(40)], "eos_token_id": None}, {}):
        for top_k in (0, 5):
            with pytest.raises(RuntimeError, match="no probabilities to draw from"):
                model.generate(**sources, do_sample=True, top_k=top_k, max_new_tokens=3, **options)
        model.lm_head.bias.data[7] = float("nan")


def test_of_a_callers_top_k_all_stay_that_it_keeps(tiny_model, ours_used):
    """Some tokens are made unlikely, not impossible, by `filter_value`."""
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 1, "num_return_sequences": 2000}
    kept = LogitsProcessorList([TopKLogitsWarper(3, filter_value=-2.0)])
    drawn = tiny_model().generate(torch.tensor([[5, 6, 7, 2]]), **settings, logits_processor=kept)[:, 1]
    assert len(drawn.unique()) > 10
    assert ours_used


def turned(output):
    return output.flip(-1) * 3


class Turned(torch.Tensor):
    """A matrix of its own kind, like torchao's quantised weights: products with it do not follow from its elements."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function is not nn.functional.linear:
            return result
        return turned(result).as_subclass(torch.Tensor)  # otherwise all later results would be of this kind


def of_another_class(module, method, changed=turned):
    """Gives a module its own class, with one method that returns something else."""
    parent = type(module)

    def other(self, *args, **kwargs):
        return changed(getattr(parent, method)(self, *args, **kwargs))

    module.__class__ = type("Other", (parent,), {method: other})


def of_another_kind(linear):
    linear.weight = nn.Parameter(linear.weight.detach().as_subclass(Turned), requires_grad=False)


def in_8_bits(model):
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)


def with_an_output_layer_in_8_bits(model):
    model.lm_head.qconfig = torch.ao.quantization.default_dynamic_qconfig
    model.lm_head = torch.ao.nn.quantized.dynamic.Linear.from_float(model.lm_head)


def with_a_forward_of_its_own(model):
    layer = last(model).fc2
    forward = layer.forward
    layer.forward = lambda states: turned(forward(states))


def hooked_as_a_whole(model):
    def hook(module, inputs, output):
        output.last_hidden_state = turned(output.last_hidden_state)

    model.model.decoder.register_forward_hook(hook)


def parametrized(model):
    nn.utils.parametrizations.weight_norm(model.lm_head)
    with torch.no_grad():
        model.lm_head.parametrizations.weight.original0[::2] *= 3


def with_other_scores(output):
    output.logits = turned(output.logits)
    return output


def last(model):
    return model.model.decoder.layers[-1]


CHANGES = {
    "hooked": lambda model: last(model).fc2.register_forward_hook(lambda module, inputs, output: turned(output)),
    "hooked as a whole": hooked_as_a_whole,
    "a forward of its own": with_a_forward_of_its_own,
    "another activation": lambda model: setattr(last(model), "activation_fn", nn.Softplus(0.1)),
    "a layer of another class": lambda model: of_another_class(last(model), "feed_forward"),
    "a norm of another class": lambda model: of_another_class(last(model).final_layer_norm, "forward"),
    "an output layer of another class": lambda model: of_another_class(model.lm_head, "forward"),
    "a model of another class": lambda model: of_another_class(model, "forward", with_other_scores),
    "an output layer in a sequence": lambda model: setattr(
        model, "lm_head", nn.Sequential(model.lm_head, nn.Linear(40, 40))
    ),
    "a table of positions": lambda model: setattr(
        model.model.decoder, "embed_positions", nn.Embedding.from_pretrained(9 * torch.randn(12, model.config.d_model))
    ),
    "a matrix of another kind": lambda model: of_another_kind(last(model).fc1),
    "an output matrix of another kind": lambda model: of_another_kind(model.lm_head),
    "parametrized": parametrized,
    "a projection in a sequence": lambda model: setattr(
        last(model).self_attn, "v_proj", nn.Sequential(last(model).self_attn.v_proj, nn.Tanh())
    ),
    "8 bits": in_8_bits,
    "an output layer of 8 bits": with_an_output_layer_in_8_bits,
}
CHANGED_AS_A_WHOLE = {"hooked as a whole", "a layer of another class", "a model of another class"}


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.parametrize("change", CHANGES)
def test_changes_to_the_model_take_effect(tiny_model, sources, change, ours_used):
    """Our searches still match transformers', whatever was changed in the model."""
    model = sharpened(tiny_model(tie_word_embeddings=False))
    for beams in (1, 3):
        options = {**sources, "num_beams": beams, "max_new_tokens": 8}
        before = model.generate(**options)
        changed = copy.deepcopy(model)
        CHANGES[change](changed)
        ours_used.clear()
        found = changed.generate(**options)
        assert ours_used
        assert changed.has_plain_decoder() == (change not in CHANGED_AS_A_WHOLE)
        assert "8 bits" in change or not torch.equal(found, before)
        assert torch.equal(found, transformers_own(changed, **options))


def test_hooked_layers_see_sentences(tiny_model, sources):
    model, shapes = tiny_model(), set()
    layer = last(model)
    modules = (layer.self_attn.q_proj, layer.encoder_attn.out_proj, layer.fc1, layer.final_layer_norm)
    for module in (*modules, layer.activation_fn):
        module.register_forward_hook(lambda module, inputs, output: shapes.add(inputs[0].shape))
    model.generate(**sources, num_beams=3, max_new_tokens=3)
    assert shapes == {(5, 3, model.config.d_model), (5, 3, layer.fc1.out_features)}


def test_unusual_steps_fall_back_to_transformers(tiny_model, sources, ours_used):
    prepared, attending, hidden = tiny_model(), tiny_model(), sources["attention_mask"].clone()
    of_another_class(prepared, "prepare_inputs_for_generation", lambda inputs: inputs)
    AttentionInterface.register("another", ALL_ATTENTION_FUNCTIONS["sdpa"])
    attending.set_attn_implementation("another")
    hidden[3] = 0
    for model, mask in ((prepared, {}), (attending, {}), (tiny_model(), {"attention_mask": hidden})):
        for beams in (1, 2):
            found = model.generate(**{**sources, **mask}, num_beams=beams, max_new_tokens=6)
            assert found.shape[0] == 5
    assert not ours_used


def test_generate_accepts_positional_arguments(tiny_model, sources):
    model = tiny_model()
    only_five = model.generate(sources["input_ids"], None, None, None, lambda sentence, tokens: [5], max_new_tokens=3)
    assert (only_five[:, 1:] == 5).all()


def test_callers_own_limit_and_end_are_kept(tiny_model, sources):
    model = tiny_model()
    for beams in (1, 2):
        options = {**sources, "num_beams": beams, "max_new_tokens": 8}
        plain = model.generate(**options)
        assert plain.shape[1] == 9
        assert model.generate(**options, stopping_criteria=[MaxLengthCriteria(4)]).shape[1] == 4
        ends = [EosTokenCriteria(plain[:, 2].tolist())]
        assert model.generate(**options, stopping_criteria=ends).shape[1] < 9


def test_16_bit_ties_at_the_edge_of_top_k_are_all_drawn(tiny_model, sources):
    model = tiny_model().bfloat16()
    with torch.no_grad():
        model.lm_head.weight[:] = model.lm_head.weight[20]
    drawn = model.generate(**sources, do_sample=True, top_k=2, max_new_tokens=3)
    assert len(drawn[:, 1].unique()) > 2


def test_plain_config_and_output_hooks_keep_our_search(tiny_model, sources, ours_used):
    model = tiny_model()
    model.generate(**sources, generation_config=GenerationConfig(num_beams=2, max_new_tokens=3))  # transformers' class
    assert len(ours_used) == 1
    model(**sources, decoder_input_ids=sources["input_ids"], output_hidden_states=True)  # installs transformers' hooks
    assert model.has_plain_decoder()
    model.generate(**sources, num_beams=2, max_new_tokens=3)
    assert len(ours_used) == 2
    expected = model.generate(**sources, num_beams=2, max_new_tokens=5)
    model.config.return_dict = False
    model.model.decoder.register_forward_hook(lambda *_: None)
    assert not model.has_plain_decoder()
    assert torch.equal(model.generate(**sources, num_beams=2, max_new_tokens=5), expected)


# ----------------------------------------------------------------------------------------------------------- sampling


def is_one_of(tokens: torch.LongTensor, vocabulary: int) -> torch.BoolTensor:
    return torch.isin(torch.arange(vocabulary), tokens)


def test_samples_are_drawn_from_the_models_distribution(tiny_model, ours_used):
    """Compares the first tokens of 4,000 samples with one forward pass, with and without warping."""
    model, source = tiny_model(), torch.tensor([[5, 6, 7, 2]])
    with torch.no_grad():
        logits = model(source, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits[0, 0].double()
    best = logits.argsort(descending=True)
    shares = (logits[best[:6]] / 2).softmax(-1)
    nucleus = best[: 1 + int((shares.cumsum(0) < 0.8).sum())]
    assert 1 < len(nucleus) < 6
    bad = best[best != 2][:3]  # transformers never forbids the end
    for options, warped in (
        ({}, logits),
        ({"temperature": 0.5}, logits / 0.5),
        ({"top_k": 5}, logits.masked_fill(logits < logits.topk(5).values[-1], -math.inf)),
        ({"top_k": 6, "temperature": 2.0, "top_p": 0.8}, (logits / 2).where(is_one_of(nucleus, 40), -math.inf)),
        ({"bad_words_ids": bad[:, None].tolist()}, logits.where(~is_one_of(bad, 40), -math.inf)),
    ):
        torch.manual_seed(0)
        settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 1, "num_return_sequences": 4000, **options}
        drawn = model.generate(source, **settings)[:, 1]
        shares = drawn.bincount(minlength=40).double() / 4000
        probabilities = warped.softmax(-1)
        error = (shares - probabilities).abs()
        # Five standard deviations, and a few samples more: counts of rare tokens are far from normal.
        assert (error < 5 * (probabilities * (1 - probabilities) / 4000).sqrt() + 4 / 4000).all()
        assert (shares[probabilities == 0] == 0).all()
    assert len(ours_used) == 5


def test_samples_repeat_nothing(tiny_model, sources, ours_used):
    drawn = tiny_model().generate(
        **sources, do_sample=True, no_repeat_ngram_size=2, num_return_sequences=20, max_new_tokens=40, eos_token_id=None
    )
    assert ours_used
    for row in drawn.tolist():
        assert len(set(itertools.pairwise(row))) == 40


def test_samples_that_are_over_may_have_no_token_left(tiny_model):
    model = tiny_model(vocab_size=4)
    options = {"do_sample": True, "no_repeat_ngram_size": 2, "num_return_sequences": 8, "max_new_tokens": 20}
    for seed in range(20):
        torch.manual_seed(seed)
        drawn = model.generate(
            input_ids=torch.tensor([[3, 3, 3, 2]]), max_length_offset=None, eos_token_id=2, **options
        )
        for row in drawn.tolist():
            translation = row[: row.index(2) + 1]  # pairs are few, so that all of them end
            assert len(set(itertools.pairwise(translation))) == len(translation) - 1


def test_seed_repeats_samples_and_top_1_is_greedy(tiny_model, sources, ours_used):
    model = sharpened(tiny_model())

    def drawn(seed, **options):
        torch.manual_seed(seed)
        return model.generate(**sources, do_sample=True, max_length_offset=4, **options)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1, num_return_sequences=2), drawn(2, num_return_sequences=2))
    assert drawn(1, num_return_sequences=2).shape[0] == 10
    assert torch.equal(drawn(1, top_k=1), model.generate(**sources, num_beams=1, max_length_offset=4))
    assert len(ours_used) == 7
