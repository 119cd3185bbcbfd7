"""Token batches: every pair once, never over the budget, the same order from the same seed, little padding.

Also their tensors: every number of a small batch, and the same shift as the model's own.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.conftest import build_model
from vanilla_transformer.data.batching import TokenBatchSampler, TranslationCollator, cut_again
from vanilla_transformer.data.corpora import read_corpus
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


length_pairs = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)
budgets = st.integers(40, 300)
seeds = st.integers(0, 2**32)


def sampler_of(lengths, max_tokens, **options):
    return TokenBatchSampler(*zip(*lengths, strict=True), max_tokens, **options)


def batches_of(sampler, epoch=0):
    sampler.set_epoch(epoch)
    return list(sampler)


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 5), st.booleans())
def test_every_pair_comes_exactly_once_in_an_epoch(lengths, budget, seed, epoch, shuffle):
    batches = batches_of(sampler_of(lengths, budget, seed=seed, shuffle=shuffle), epoch)
    assert sorted(pair for batch in batches for pair in batch) == list(range(len(lengths)))
    assert all(batches)


@settings(deadline=None)
@given(length_pairs, seeds, st.data())
def test_cutting_into_n_batches_uses_the_smallest_budget(lengths, seed, data):
    pairs = [{"input_ids": [place] * source, "labels": [0] * target} for place, (source, target) in enumerate(lengths)]
    count = data.draw(st.integers(1, len(pairs)))
    batches = cut_again(pairs, count, seed)
    assert len(batches) == count
    assert all(batches)
    assert sorted(pair["input_ids"][0] for batch in batches for pair in batch) == list(range(len(pairs)))
    budget = max(len(batch) * max(len(side) for pair in batch for side in pair.values()) for batch in batches)
    longest = max(map(max, lengths))
    assert budget == longest or len(sampler_of(lengths, budget - 1)) > count


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 5), st.booleans())
def test_no_batch_is_over_the_budget_on_either_side(lengths, budget, seed, epoch, coarse):
    sampler = sampler_of(lengths, budget, seed=seed, coarse=coarse)
    padded = 0
    for batch in batches_of(sampler, epoch):
        cells = [len(batch) * max(lengths[pair][side] for pair in batch) for side in (0, 1)]
        assert max(cells) <= budget
        padded += sum(cells)
    assert sampler.real_share() == pytest.approx(sum(map(sum, lengths)) / padded, rel=1e-12)


@settings(deadline=None)
@given(length_pairs, budgets, seeds, st.integers(0, 9))
def test_order_depends_on_seed_and_epoch_alone(lengths, budget, seed, epoch):
    fresh, used = sampler_of(lengths, budget, seed=seed), sampler_of(lengths, budget, seed=seed)
    assert {len(batches_of(used, other)) for other in range(4)} == {len(used)}
    assert batches_of(fresh, epoch) == batches_of(used, epoch) == batches_of(used, epoch)


@settings(deadline=None)
@given(length_pairs, budgets, seeds)
def test_unshuffled_batches_are_the_same_in_every_epoch(lengths, budget, seed):
    sampler = sampler_of(lengths, budget, seed=seed, shuffle=False)
    assert batches_of(sampler, 0) == batches_of(sampler, 7)
    assert batches_of(sampler) == batches_of(sampler_of(lengths, budget, shuffle=False))


def test_unshuffled_batches_are_sorted_by_target_length():
    rng = np.random.default_rng(0)
    targets = rng.integers(1, 30, 200)
    order = np.concatenate(list(TokenBatchSampler(rng.integers(1, 30, 200), targets, 64, shuffle=False)))
    assert (np.diff(targets[order]) >= 0).all()


def test_order_changes_between_epochs_and_seeds():
    # With one batch size for all, only the order within and between batches can change.
    sampler = TokenBatchSampler([5] * 40, [6] * 40, 60)
    first, second = ({frozenset(batch) for batch in batches_of(sampler, epoch)} for epoch in (0, 1))
    assert first != second
    # All lengths differ, so that every batch has the same pairs in every epoch.
    sampler = TokenBatchSampler(range(1, 101), range(1, 101), 200)
    first, second = batches_of(sampler, 0), batches_of(sampler, 1)
    assert sorted(first) == sorted(second)
    assert first != second
    # Seeds are not added to the epoch: else the run with seed 1 would repeat epoch 1 of the run with seed 0.
    first, second = (TokenBatchSampler([4] * 50, [4] * 50, 20, seed=seed) for seed in (0, 1))
    assert batches_of(first, 0) != batches_of(second, 0) != batches_of(first, 1)


def test_batches_are_as_full_as_the_budget_allows():
    sampler = TokenBatchSampler([10] * 100, [7] * 100, 100)
    assert [len(batch) for batch in sampler] == [10] * 10
    assert sorted(TokenBatchSampler([100, 3], [3, 100], 100)) == [[0], [1]]


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([3, 101, 100], [3, 5, 100], "Pair 1 has 101 source and 5 target .* max_tokens = 100 .* lower"),
        ([3, 5, 100], [3, 101, 100], "Pair 1 has 5 source and 101 target .* max_tokens = 100 .* lower"),
        ([], [], "There are no pairs"),
        ([1, 2], [1], "do not belong together"),
        ([[1, 2]], [[1, 2]], "do not belong together"),
    ],
)
def test_invalid_lengths_raise_on_construction(sources, targets, message):
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler(sources, targets, 100)


def test_made_up_captions_need_little_padding():
    # Like Multi30k: 29,000 pairs, about 14 tokens, the lengths of both sides correlated but not equal.
    rng = np.random.default_rng(0)
    sources = np.clip(rng.normal(14, 4, 29_000), 4, 45).round().astype(int)
    targets = np.clip(sources + rng.normal(0, 2.5, 29_000), 4, 50).round().astype(int)
    assert TokenBatchSampler(sources, targets, 4096).real_share() >= 0.95


@pytest.mark.slow
def test_multi30k_needs_little_padding(shared):
    corpus = read_corpus(["train.en.gz", "train.de.gz"], "en", "de", folder=shared / "multi30k")
    texts = (text for pair in corpus.pairs for text in pair)
    pairs, _ = corpus.encoded(learn_tokenizer(texts, TokenizerSettings(vocab_size=10_000)), PairLimits())
    lengths = [[len(ids) for ids in pairs[column]] for column in ("input_ids", "labels")]
    assert TokenBatchSampler(*lengths, 4096).real_share() >= 0.95


PAIRS = [{"input_ids": [7, 8, 2], "labels": [9, 2], "id": "a"}, {"input_ids": [4, 2], "labels": [5, 6, 5, 2], "id": 3}]


def test_batch_matches_tensors_by_hand():
    batch = TranslationCollator()(PAIRS)
    expected = {
        "input_ids": [[7, 8, 2], [4, 2, 1]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[9, 2, -100, -100], [5, 6, 5, 2]],
        "decoder_input_ids": [[0, 9, 2, 1], [0, 5, 6, 5]],
    }
    assert {name: tensor.tolist() for name, tensor in batch.items()} == expected
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    tensors = [{name: torch.tensor(row[name]) for name in ("input_ids", "labels")} for row in PAIRS]
    assert all(torch.equal(tensor, batch[name]) for name, tensor in TranslationCollator()(tensors).items())
    alone = TranslationCollator()(PAIRS[:1])
    assert [alone[name].tolist() for name in ("input_ids", "decoder_input_ids")] == [[[7, 8, 2]], [[0, 9]]]


def test_pad_token_inside_a_text_stays_a_token():
    # Lengths, not ids, decide where padding is: a pad id inside a text is a real token.
    batch = TranslationCollator()([{"input_ids": [1, 4, 1, 2], "labels": [1, 2]}, {"input_ids": [2], "labels": [2]}])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2], [2, -100]]


def test_shift_matches_the_model_and_losses_add_up():
    model = build_model(vocab_size=12)
    batch = TranslationCollator()(PAIRS)
    assert torch.equal(batch["decoder_input_ids"], model.prepare_decoder_input_ids_from_labels(batch["labels"]))
    one, other, both = (
        model(**TranslationCollator()(pairs), num_items_in_batch=1).loss.item()
        for pairs in (PAIRS[:1], PAIRS[1:], PAIRS)
    )
    assert both == pytest.approx(one + other, rel=1e-5)
