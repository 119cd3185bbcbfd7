"""The alignment that guides attention: fast_align's formulas in loops, and words that translate each other."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.special import digamma

from vanilla_transformer.data.batching import TranslationCollator
from vanilla_transformer.data.guided_alignment import GuidedAlignment
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


def prior(i, m, j, n):
    """p(i | j): the place of a source token, counted from 1, or 0 for none."""
    if i == 0:
        return 0.08
    near = [math.exp(-4 * abs(k / m - j / n)) for k in range(1, m + 1)]
    return 0.92 * near[i - 1] / sum(near)


def posterior(t, source, target):
    """p(i | j) by place of the target and of the source, both from 1."""
    found = {}
    for j, word in enumerate(target, start=1):
        p = [
            prior(i, len(source), j, len(target)) * t.get((other, word), 0.0) for i, other in enumerate([None, *source])
        ]
        found |= {(j, i): value / sum(p) for i, value in enumerate(p)}
    return found


def learned(pairs):
    """t(target | source) after five rounds of variational EM, and how often each is linked in the last one."""
    t = {(other, word): 1.0 for source, target in pairs for word in target for other in [None, *source]}
    for _ in range(5):
        counts = dict.fromkeys(t, 0.0)
        for source, target in pairs:
            for (j, i), p in posterior(t, source, target).items():
                counts[[None, *source][i], target[j - 1]] += p
        totals = {}
        for (other, _), count in counts.items():
            totals[other] = totals.get(other, 0.0) + count + 0.01
        t = {pair: math.exp(digamma(count + 0.01) - digamma(totals[pair[0]])) for pair, count in counts.items()}
    return t, counts


def aligned(guide, pairs) -> np.ndarray:
    """The alignment of the pairs in one batch."""
    batch = TranslationCollator()([{"input_ids": source, "labels": target} for source, target in pairs])
    return guide(batch["input_ids"], batch["attention_mask"], batch["labels"]).numpy()


def test_links_are_those_of_both_directions_by_the_formula():
    rng = np.random.default_rng(3)
    pairs = []
    for _ in range(40):  # source token k is translated by k + 20, the others by anything
        source = rng.integers(3, 12, size=rng.integers(1, 7)).tolist()
        target = [*[k + 20 for k in source if rng.random() < 0.8], int(rng.integers(20, 35))]
        pairs.append(([*source, 2], [*target, 2]))
    batch = pairs[:5]
    (forward, _), (backward, _) = learned(pairs), learned([(target, source) for source, target in pairs])
    expected = np.zeros((5, max(len(target) for _, target in batch), max(len(source) for source, _ in batch)))
    for row, (source, target) in zip(expected, batch, strict=True):
        there, back = posterior(forward, source, target), posterior(backward, target, source)
        for j, i in np.ndindex(len(target), len(source)):
            row[j, i] = 0.3 * there[j + 1, i + 1] * back[i + 1, j + 1]
    guide = GuidedAlignment(iter(pairs), weight=0.3)
    found = aligned(guide, batch)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-4)  # the smallest probabilities are left out
    assert 0.1 < found.sum(axis=2).max() <= 0.3
    # A pair has the same alignment in any batch.
    for row, (source, target) in zip(found, batch, strict=True):
        [alone] = aligned(guide, [(source, target)])
        np.testing.assert_allclose(row[: len(target), : len(source)], alone, atol=1e-6)
        assert row.sum() == pytest.approx(alone.sum())


def test_vectors_have_the_angles_of_the_factorised_associations():
    rng = np.random.default_rng(4)
    pairs = []
    for _ in range(60):  # sources of 3 to 9, targets of 23 to 29
        source = rng.integers(3, 10, size=rng.integers(1, 5)).tolist()
        pairs.append(([*source, 2], [*(k + 20 for k in source), 2]))
    (_, forward), (_, backward) = learned(pairs), learned([(target, source) for source, target in pairs])
    c = np.zeros((32, 32))
    for (source, target), count in forward.items():
        if source is not None:
            c[source, target] = math.sqrt(count * backward[target, source])
    a = np.log(1 + c * c.sum() / ((1 + c.sum(1, keepdims=True)) * (1 + c.sum(0))))
    u, s, v = np.linalg.svd(a)
    expected = u * np.sqrt(s) + v.T * np.sqrt(s)
    linked = np.flatnonzero(c.sum(0) + c.sum(1))
    expected = expected[linked] / np.linalg.norm(expected[linked], axis=1, keepdims=True)
    guide = GuidedAlignment(pairs, weight=1.0)
    found = guide.vectors(32, 40, seed=3)  # no dimension is left out
    assert found.shape == (32, 40)
    assert np.flatnonzero(found.any(1)).tolist() == linked.tolist()
    np.testing.assert_allclose(found[linked] @ found[linked].T, expected @ expected.T, atol=2e-2)
    assert torch.equal(found, guide.vectors(32, 40, seed=3))
    assert not torch.equal(found, guide.vectors(32, 40, seed=4))


@pytest.fixture(scope="module")
def of_phrasebook():
    """Its tokenizer and its alignment."""
    rows = list(islice(phrasebook("train"), 3000))
    texts = [row[language] for row in rows for language in ("en", "de")]
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=1500))
    ids = [[tokenizer(row[language]).input_ids for row in rows] for language in ("en", "de")]
    return tokenizer, GuidedAlignment(zip(*ids, strict=True), weight=1.0)


def test_a_word_is_nearest_to_its_translation(of_phrasebook):
    tokenizer, guide = of_phrasebook
    vectors = guide.vectors(len(tokenizer), 64)
    for word, translation in (("dog", "Hund"), ("house", "Haus"), ("tomorrow", "morgen")):
        one, other = (tokenizer.convert_tokens_to_ids(f"Ġ{each}") for each in (word, translation))
        alike = vectors @ vectors[one]
        alike[one] = -1
        assert tokenizer.convert_ids_to_tokens(int(alike.argmax())) == f"Ġ{translation}"
        assert alike[other] > 0.5


def test_tokens_of_translations_are_linked(of_phrasebook):
    tokenizer, guide = of_phrasebook
    texts = ("The old dog sleeps in the park.", "Der alte Hund schläft im Park.")
    source, target = (tokenizer(text).input_ids for text in texts)
    [links] = aligned(guide, [(source, target)])
    words = [tokenizer.convert_ids_to_tokens(ids) for ids in (source, target)]
    for pair in (("Ġdog", "ĠHund"), ("Ġold", "Ġalte"), ("</s>", "</s>")):
        i, j = (side.index(word) for side, word in zip(words, pair, strict=True))
        assert links[j].argmax() == i
        assert links[j, i] > 0.5


def test_context_and_unknown_tokens_have_no_links():
    pairs = [([5 + k, 6 + k, 2], [25 + k, 26 + k, 2]) for k in range(8)] * 3
    guide = GuidedAlignment(pairs, weight=1.0, separator=4)
    source, target = pairs[0]
    [plain] = aligned(guide, pairs[:1])
    assert plain.trace() > 1.5
    context = [7, 2, 8, 4, 9, 4]
    in_context = [*context, *source]
    [found, beside] = aligned(guide, [(in_context, target), (source, target)])
    np.testing.assert_array_equal(found[:, len(context) :], plain)
    np.testing.assert_array_equal(beside[:, : len(source)], plain)
    assert found[:, : len(context)].sum() == beside[:, len(source) :].sum() == 0
    with_contexts = GuidedAlignment([(in_context, target), *pairs[1:]], weight=1.0, separator=4)
    np.testing.assert_array_equal(aligned(with_contexts, pairs[:1])[0], plain)
    for strange in (3, 24, 1_000_000):  # an id that never occurred, between and beyond those that did
        [found] = aligned(guide, [([strange, *source], [*target[:-1], strange, 2])])
        assert np.isfinite(found).all()
        assert found[:, 0].sum() == found[-2].sum() == 0


def test_only_the_first_pairs_are_read_and_long_ones_are_skipped(monkeypatch):
    long, short = ([5] * 501, [6, 2]), ([7, 2], [8, 2])
    with pytest.raises(ValueError, match=r"no pair has at most 500 tokens on either side\. Set it to 0"):
        GuidedAlignment([long, ([], [2])], weight=1.0)
    monkeypatch.setattr("vanilla_transformer.data.guided_alignment.MOST_CELLS", 8)
    rest = iter([long, short, short, short, short])
    GuidedAlignment(rest, weight=1.0)
    assert len(list(rest)) == 2


def test_one_long_pair_gives_no_links_but_numbers():
    pair = list(range(5, 95)), list(range(100, 190))  # every word might be a translation of every other
    assert np.isfinite(aligned(GuidedAlignment([pair], weight=1.0), [pair])).all()
