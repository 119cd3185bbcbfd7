"""Constrained beam search matches exhaustive search over the outputs that contain the phrases."""

import math
import random
from collections import Counter
from itertools import accumulate, pairwise

import pytest
import torch

from vanilla_transformer import EnsembleForConditionalGeneration
from vanilla_transformer.model.constraints_vanilla_transformer import LexicalConstraints, PhraseAutomaton, shared_out
from vanilla_transformer.model.generation_vanilla_transformer import length_penalty
from vanilla_transformer.model.search_vanilla_transformer import beam_search
from vanilla_transformer.model.steps_vanilla_transformer import StepwiseDecoder

from .conftest import sharpened, sums_of_one_pass
from .test_search import all_translations


def most_times(tokens: list[int], alternatives: list[list[int]]) -> int:
    """The largest number of non-overlapping alternatives in the tokens, by dynamic programming."""
    best = [0]  # one entry per number of leading tokens
    for end in range(1, len(tokens) + 1):
        fitting = [best[end - len(each)] + 1 for each in alternatives if tokens[max(0, end - len(each)) : end] == each]
        best.append(max([best[-1], *fitting]))
    return best[-1]


def has_all(tokens: list[int], constraints: list[list[list[int]]]) -> bool:
    times = Counter(str(sorted(each)) for each in constraints)
    return all(most_times(tokens, each) >= times[str(sorted(each))] for each in constraints)


def random_constraints(draw: random.Random, symbols: list[int], most: int = 3) -> list[list[list[int]]]:
    """Phrases over few symbols: they overlap, share prefixes and contain each other; some occur twice."""
    distinct = [
        [list(each) for each in {tuple(draw.choices(symbols, k=draw.randint(1, 3))) for _ in range(draw.randint(1, 3))}]
        for _ in range(draw.randint(1, most))
    ]
    return distinct + draw.choices(distinct, k=draw.randint(0, 1))


def test_automaton_knows_when_all_phrases_are_met():
    draw, seen = random.Random(0), Counter()
    for _ in range(3000):
        constraints = random_constraints(draw, [5, 6, 7][: draw.randint(1, 3)])
        automaton = PhraseAutomaton([tuple(map(tuple, each)) for each in constraints])
        tokens = draw.choices([5, 6, 7, 8], k=draw.randint(0, 9))
        states = list(accumulate(tokens, automaton.after, initial=automaton.start))
        met = [has_all(tokens[:length], constraints) for length in range(len(tokens) + 1)]
        assert [state.missing == 0 for state in states] == met
        seen[met[-1]] += 1
        # Every wanted token makes progress, so the end is reached soon enough.
        state, steps = states[-1], 0
        while state.missing:
            following = min((automaton.after(state, token) for token in state.wanted), key=lambda each: each.missing)
            assert following.missing < state.missing
            state, steps = following, steps + 1
        assert steps <= states[-1].missing
    assert min(seen.values()) > 300


def test_banks_share_the_beam_in_turn():
    banks = {3: ["d1", "d2", "d3"], 0: [], 1: ["b1"], 2: ["c1", "c2"]}
    assert shared_out(banks, 6) == ["b1", "c1", "d1", "c2", "d2", "d3"]
    assert shared_out(banks, 2) == ["b1", "c1"]


@pytest.mark.parametrize(
    ("kind", "alpha", "early_stopping"),
    [("gnmt", 0.6, "never"), ("length", 1.0, False), ("gnmt", 0.0, "never"), ("length", -1.0, False)],
)
def test_wide_constrained_search_equals_exhaustive_search(tiny_model, kind, alpha, early_stopping):
    def penalty(length):
        return length_penalty(length, alpha, kind)

    draw, different, impossible = random.Random(int(10 * alpha)), 0, 0
    for seed in range(12):
        limit, source = 5 if seed % 10 == 9 else 3 + seed % 2, torch.tensor([[3, 4, 2]])
        model = sharpened(tiny_model(seed, vocab_size=5, output_bias=True, d_model=8, encoder_layers=1)).double()
        constraints = random_constraints(draw, [3, 4], most=2)
        everything = all_translations(model, source, limit, penalty)
        expected = {tokens: score for tokens, score in everything if has_all([*tokens], constraints)}
        with torch.no_grad():
            decoder = StepwiseDecoder(model, model.model.encoder(source)[0], None, 5 ** (limit - 1))
        [found] = beam_search(
            decoder, torch.zeros(1, 1, dtype=torch.long), [limit], eos_ids={2}, penalty=penalty,
            early_stopping=early_stopping, constraints=LexicalConstraints(constraints, None, 5),
        )  # fmt: skip
        if not expected:
            impossible += 1
            assert found == []
            continue
        different += not has_all([*everything[0][0]], constraints)
        assert found[0].score == pytest.approx(max(expected.values()), abs=1e-4)
        for each in found:  # the others have correct scores, too
            assert each.score == pytest.approx(expected[tuple(each.tokens)], abs=1e-4)
        assert len({tuple(each.tokens) for each in found}) == len(found)
    assert different > 5
    assert impossible > 0


def test_constrained_neighbours_change_nothing(tiny_model, sources):
    """Nor do constrained sentences depend on their neighbours, even with more phrases than beams."""
    model = sharpened(tiny_model(1))
    constraints = [[[5, 6]], [], [[[7], [8, 9]], [11, 12, 13], [7]], None, [[30, 31, 32, 33, 34, 35]]]
    for options in (
        {"num_beams": 2},
        {"num_beams": 5, "num_return_sequences": 5},
        {"num_beams": 3, "length_penalty": 0},
    ):
        options |= {"return_dict_in_generate": True, "max_new_tokens": 25}
        together = model.generate(**sources, **options, constraints=constraints)
        plain = model.generate(**sources, **options)
        each = options.get("num_return_sequences", 1)
        assert together.constraints_met.all()
        for i, own in enumerate(constraints):
            length = int(sources["attention_mask"][i].sum())
            alone = {name: value[i : i + 1, :length] for name, value in sources.items()}
            expected = model.generate(**alone, **options, constraints=[own])
            rows = slice(i * each, (i + 1) * each)
            torch.testing.assert_close(together.sequences_scores[rows], expected.sequences_scores)
            width = expected.sequences.shape[1]
            assert torch.equal(together.sequences[rows, :width], expected.sequences)
            if not own:
                assert torch.equal(together.sequences_scores[rows], plain.sequences_scores[rows])
            for row in together.sequences[rows].tolist():
                assert has_all(row, [phrase if isinstance(phrase[0], list) else [phrase] for phrase in own or []])


def test_constrained_scores_equal_one_forward_pass(tiny_model, sources):
    model, another = sharpened(tiny_model(1)), sharpened(tiny_model(2))
    options = {"num_beams": 4, "max_new_tokens": 20, "length_penalty": 1.0, "length_penalty_type": "length"}
    options |= {"return_dict_in_generate": True, "force_words_ids": [[5, 6], [[7], [8]]]}
    for each in (model, EnsembleForConditionalGeneration([model, another])):
        found = each.generate(**sources, **options)
        sums, lengths = sums_of_one_pass(each, sources, found.sequences)
        torch.testing.assert_close(found.sequences_scores, sums / lengths, atol=1e-4, rtol=1e-4)
        assert all(has_all(row, [[[5, 6]], [[7], [8]]]) for row in found.sequences.tolist())
    together = model.generate(**sources, **options | {"constraints": [[[20, 21]]] * 5})
    assert all(has_all(row, [[[5, 6]], [[7], [8]], [[20, 21]]]) for row in together.sequences.tolist())


def test_only_translations_that_were_found_meet_constraints(tiny_model, sources):
    options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 3, "return_dict_in_generate": True}
    found = sharpened(tiny_model(1)).generate(**sources, **options, force_words_ids=[[5, 6, 7]])
    assert found.constraints_met.tolist() == [score > -math.inf for score in found.sequences_scores.tolist()]
    assert found.constraints_met[::4].all()
    assert not found.constraints_met.all()


def test_phrase_in_the_prefix_counts_as_met(tiny_model, sources):
    model = sharpened(tiny_model(1))
    options = {"num_beams": 4, "max_new_tokens": 9, "decoder_input_ids": torch.tensor([[0, 5, 6]] * 5)}
    plain = model.generate(**sources, **options)
    assert torch.equal(model.generate(**sources, **options, force_words_ids=[[5, 6]]), plain)
    across = model.generate(**sources, **options, force_words_ids=[[5, 6, 7, 8]])
    assert all(has_all(row, [[[5, 6, 7, 8]]]) for row in across.tolist())


def test_phrase_too_long_falls_back_and_is_reported(tiny_model, sources, caplog):
    model = sharpened(tiny_model(1, output_bias=True))
    with torch.no_grad():
        model.lm_head.bias[2] += 3  # it ends before the limit
    options = {"num_beams": 4, "max_new_tokens": 8}
    long = [*range(20, 30)]
    found = model.generate(**sources, **options, return_dict_in_generate=True, constraints=[[long], *[[[5]]] * 4])
    assert found.constraints_met.tolist() == [False, True, True, True, True]
    expected = model.generate(**sources, **options, return_dict_in_generate=True)
    assert found.sequences_scores[0] == expected.sequences_scores[0]
    assert [token for token in found.sequences[0].tolist() if token != 1] == [
        token for token in expected.sequences[0].tolist() if token != 1
    ]
    model.generate(**sources, **options, force_words_ids=[[30], long])
    assert "[0, 1, 2, 3, 4]" in caplog.text


def test_constraints_are_met_within_opus_mts_rules(tiny_model, sources):
    model = tiny_model()
    rules = {"bad_words_ids": [[1], [9]], "forced_eos_token_id": 2, "renormalize_logits": True, "max_length": 10}
    options = {**sources, "num_beams": 4, "return_dict_in_generate": True, **rules}
    found = model.generate(**options, force_words_ids=[[30, 31], [12]])
    assert found.constraints_met.all()
    for row in found.sequences.tolist():
        assert (30, 31) in pairwise(row)
        assert 12 in row
        assert 9 not in row
    assert not model.generate(**options, force_words_ids=[[9]]).constraints_met.any()


def test_constraints_are_met_without_repetitions(tiny_model, sources):
    options = {**sources, "num_beams": 4, "max_length": 20, "return_dict_in_generate": True, "no_repeat_ngram_size": 2}
    model = tiny_model()
    found = model.generate(**options, force_words_ids=[[30, 31], [12]])
    assert found.constraints_met.all()
    for row in found.sequences.tolist():
        tokens = [token for token in row if token != 1]
        assert (30, 31) in pairwise(tokens)
        assert len(set(pairwise(tokens))) == len(tokens) - 1
    # Phrases come first: one that is wanted twice is there twice, and one may repeat tokens or share some with others.
    for phrases in ([[30, 31], [30, 31], [12]], [[5, 6, 5, 6]], [[12, 5, 6, 7], [5, 6, 7]]):
        found = model.generate(**options, force_words_ids=phrases)
        assert found.constraints_met.all()
        assert all(has_all(row, [[phrase] for phrase in phrases]) for row in found.sequences.tolist())


def test_invalid_constraints_are_rejected_and_empty_ones_ignored(tiny_model, sources):
    model = tiny_model()
    for given, message in (
        ({"force_words_ids": [5, 6]}, "force_words_ids must be a list of phrases"),
        ({"force_words_ids": [[]]}, "force_words_ids must be"),
        ({"force_words_ids": [[[5], []]]}, "force_words_ids must be"),
        ({"force_words_ids": [[40]]}, "token ids from 0 to 39"),
        ({"force_words_ids": [["dog"]]}, "force_words_ids must be"),
        ({"force_words_ids": 5}, "force_words_ids must be"),
        ({"constraints": [[[5]], [[-1]], [], [], []]}, r"constraints\[1\] must be"),
        ({"constraints": [[[5]]]}, "1 lists for 5 sentences"),
        ({"force_words_ids": [[5, 2]]}, "add_special_tokens=False"),
        ({"force_words_ids": [[5]], "num_beams": 1}, "num_beams of 2 or more"),
        ({"force_words_ids": [[5]], "num_beams": 1, "do_sample": True}, "num_beams of 2 or more"),
        ({"force_words_ids": [[5]], "do_sample": True}, "do_sample=False"),
        ({"force_words_ids": [[5]], "bad_words_ids": [[7, 8]]}, "no logits processors but"),
    ):
        with pytest.raises(ValueError, match=message):
            model.generate(**sources, **{"num_beams": 3, "max_new_tokens": 5, **given})
    for nothing in ({"force_words_ids": None}, {"force_words_ids": []}, {"constraints": [[]] * 5}):
        assert torch.equal(
            model.generate(**sources, num_beams=1, max_new_tokens=5, **nothing),
            model.generate(**sources, num_beams=1, max_new_tokens=5),
        )
