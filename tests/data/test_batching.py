"""Token batches: every pair once, never over the budget, the same order from the same seed, little padding."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.batching import TokenBatchSampler
from vanilla_transformer.data.corpora import load_corpus
from vanilla_transformer.data.encoding import PairLimits, encode_corpus
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


MULTI30K = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multi30k"

length_pairs = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)
budgets = st.integers(40, 300)
seeds = st.integers(0, 2**32)


def sampler_of(lengths, max_tokens, **options):
    sources, targets = zip(*lengths, strict=True)
    return TokenBatchSampler(sources, targets, max_tokens, **options)


def batches_of(sampler, epoch=0):
    sampler.set_epoch(epoch)
    return list(sampler)


def cells(lengths, batch):
    """Padded source and target tokens of a batch."""
    return [len(batch) * max(lengths[pair][side] for pair in batch) for side in (0, 1)]


# ------------------------------------------------------------------------------------------------------ properties


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 5), st.booleans())
def test_every_pair_comes_exactly_once_in_an_epoch(lengths, budget, seed, epoch, shuffle):
    batches = batches_of(sampler_of(lengths, budget, seed=seed, shuffle=shuffle), epoch)
    assert sorted(pair for batch in batches for pair in batch) == list(range(len(lengths)))
    assert all(batches)


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 5))
def test_no_batch_is_over_the_budget_on_either_side(lengths, budget, seed, epoch):
    for batch in batches_of(sampler_of(lengths, budget, seed=seed), epoch):
        assert max(cells(lengths, batch)) <= budget


@settings(deadline=None)
@given(length_pairs, budgets, seeds)
def test_every_epoch_has_as_many_batches_as_len_says(lengths, budget, seed):
    sampler = sampler_of(lengths, budget, seed=seed)
    assert {len(batches_of(sampler, epoch)) for epoch in range(4)} == {len(sampler)}


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 9))
def test_order_depends_on_seed_and_epoch_alone(lengths, budget, seed, epoch):
    fresh, used = sampler_of(lengths, budget, seed=seed), sampler_of(lengths, budget, seed=seed)
    for other in (3, 1):
        batches_of(used, other)
    assert batches_of(fresh, epoch) == batches_of(used, epoch) == batches_of(used, epoch)


@settings(deadline=None)
@given(length_pairs, budgets)
def test_real_share_is_what_counting_cells_gives(lengths, budget):
    sampler = sampler_of(lengths, budget)
    padded = sum(sum(cells(lengths, batch)) for batch in sampler)
    assert sampler.real_share() == pytest.approx(sum(map(sum, lengths)) / padded, rel=1e-12)


@settings(deadline=None)
@given(length_pairs, budgets, seeds)
def test_unshuffled_batches_are_the_same_in_every_epoch(lengths, budget, seed):
    sampler = sampler_of(lengths, budget, seed=seed, shuffle=False)
    assert batches_of(sampler, 0) == batches_of(sampler, 7)
    assert batches_of(sampler) == batches_of(sampler_of(lengths, budget, shuffle=False))


# ---------------------------------------------------------------------------------------------------------- orders


def test_unshuffled_batches_are_sorted_by_target_length():
    rng = np.random.default_rng(0)
    targets = rng.integers(1, 30, 200)
    order = np.concatenate(list(TokenBatchSampler(rng.integers(1, 30, 200), targets, 64, shuffle=False)))
    assert (np.diff(targets[order]) >= 0).all()


def test_pairs_of_equal_lengths_change_places_between_epochs():
    # With one batch size for all, only the order within and between batches can change.
    sampler = TokenBatchSampler([5] * 40, [6] * 40, 60)
    first, second = ({frozenset(batch) for batch in batches_of(sampler, epoch)} for epoch in (0, 1))
    assert first != second


def test_batches_change_places_between_epochs():
    # All lengths differ, so that every batch has the same pairs in every epoch.
    sampler = TokenBatchSampler(range(1, 101), range(1, 101), 200)
    first, second = batches_of(sampler, 0), batches_of(sampler, 1)
    assert sorted(first) == sorted(second)
    assert first != second


def test_seeds_give_different_orders():
    lengths = [4] * 50
    assert list(TokenBatchSampler(lengths, lengths, 20, seed=1)) != list(
        TokenBatchSampler(lengths, lengths, 20, seed=2)
    )


def test_seed_and_epoch_are_not_simply_added():
    # Otherwise the run with seed 1 would repeat epoch 1 of the run with seed 0.
    lengths = [4] * 50
    first, second = (TokenBatchSampler(lengths, lengths, 20, seed=seed) for seed in (0, 1))
    assert batches_of(first, 1) != batches_of(second, 0)


def test_batches_are_as_full_as_the_budget_allows():
    sampler = TokenBatchSampler([10] * 100, [7] * 100, 100)
    assert [len(batch) for batch in sampler] == [10] * 10


# ---------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(("source", "target"), [(101, 5), (5, 101)])
def test_pair_longer_than_the_budget_is_named_at_once(source, target):
    with pytest.raises(
        ValueError, match=rf"Pair 1 has {source} source and {target} target .* max_tokens = 100 .* lower"
    ):
        TokenBatchSampler([3, source, 100], [3, target, 100], 100)


def test_pair_as_long_as_the_budget_is_a_batch_of_its_own():
    assert sorted(TokenBatchSampler([100, 3], [3, 100], 100)) == [[0], [1]]


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="There are no pairs"):
        TokenBatchSampler([], [], 100)


@pytest.mark.parametrize(("sources", "targets"), [([1, 2], [1]), ([[1, 2]], [[1, 2]])])
def test_lengths_that_do_not_belong_together_are_refused(sources, targets):
    with pytest.raises(ValueError, match="do not belong together"):
        TokenBatchSampler(sources, targets, 100)


# --------------------------------------------------------------------------------------------------------- padding


def test_little_padding_on_captions_that_were_made_up():
    # Like Multi30k: 29,000 pairs, about 14 tokens, the lengths of both sides correlated but not equal.
    rng = np.random.default_rng(0)
    sources = np.clip(rng.normal(14, 4, 29_000), 4, 45).round().astype(int)
    targets = np.clip(sources + rng.normal(0, 2.5, 29_000), 4, 50).round().astype(int)
    assert TokenBatchSampler(sources, targets, 4096).real_share() >= 0.95


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"Multi30k is not at {MULTI30K}")
def test_little_padding_on_multi30k():
    corpus = load_corpus(["train.en.gz", "train.de.gz"], "en", "de", folder=MULTI30K)
    texts = [text for pair in corpus["translation"] for text in pair.values()]
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=10_000))
    pairs, _ = encode_corpus(corpus, tokenizer, "en", "de", PairLimits())
    lengths = [[len(ids) for ids in pairs[column]] for column in ("input_ids", "labels")]
    assert TokenBatchSampler(*lengths, 4096).real_share() >= 0.95
