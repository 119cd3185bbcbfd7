"""BPE-dropout follows the distribution of Algorithm 1, computed in exact fractions, and never changes the text."""

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.data.subword_dropout import BPEDropout
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


TEXTS = ["the cat's whiskers, 2nd of   three", "zwei Kätzchen (klein) schlafen\tüber Nacht", "bananas  \n can ban"] * 4
# In APART no merge ever takes a symbol that another possible merge needs; in OVERLAPPING many do.
APART = ("abcd", "efgabcd", "abefg")
OVERLAPPING = ("xyz", "banana", "oooooo", "xyzbanan")
MERGES = ["a b", "ab c", "e f", "abc d", "ef g", "x y", "xy z", "y z", "a n", "n a", "b an", "an an", "o o", "oo oo"]


@pytest.fixture(scope="module")
def by_hand():
    """A tokenizer with known merges that adds no leading blank."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge.split()) for merge in MERGES)]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [(*m.split(),) for m in MERGES]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.fixture(scope="module", params=[False, True], ids=["text", "pretokenized"])
def tokenizer(request):
    return learn_tokenizer(TEXTS, TokenizerSettings(vocab_size=310, pretokenized=request.param))


def algorithm_1(word: str, p: Fraction) -> dict[tuple[str, ...], Fraction]:
    """The probability of each outcome, over all ways to skip merges at every step."""

    @cache
    def outcomes(pieces: tuple[str, ...]) -> dict:
        ranked = [(MERGES.index(f"{a} {b}"), at) for at, (a, b) in enumerate(pairwise(pieces)) if f"{a} {b}" in MERGES]
        found = Counter()
        for kept in product((True, False), repeat=len(ranked)):
            share = (1 - p) ** sum(kept) * p ** (len(kept) - sum(kept))
            if not any(kept):
                found[pieces] += share
                continue
            _, at = min(merge for merge, is_kept in zip(ranked, kept, strict=True) if is_kept)
            after = outcomes((*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]))
            for outcome, probability in after.items():
                found[outcome] += share * probability
        return dict(found)

    return outcomes(tuple(word))


def sampled(tokenizer, word: str, p: float, times: int) -> Counter:
    ids = tokenizer(word).input_ids
    pairs = BPEDropout(tokenizer, p)([{"input_ids": ids, "labels": ids}] * (times // 2), (7,))
    texts = [pair[side] for pair in pairs for side in ("input_ids", "labels")]
    return Counter(tuple(tokenizer.convert_ids_to_tokens(text)) for text in texts)


def distance(found: Counter, expected: dict) -> float:
    """Chi-square minus its expected value, in standard deviations; rare outcomes are pooled."""
    total = sum(found.values())
    assert found.keys() <= expected.keys()
    cells = [(found[outcome], float(share) * total) for outcome, share in expected.items()]
    rare = [cell for cell in cells if cell[1] < 10]
    cells = [cell for cell in cells if cell[1] >= 10] + ([tuple(map(sum, zip(*rare, strict=True)))] if rare else [])
    square = sum((seen - mean) ** 2 / mean for seen, mean in cells if mean)
    return (square - (len(cells) - 1)) / (2 * (len(cells) - 1)) ** 0.5


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_segmentations_follow_algorithm_1(by_hand, p):
    for word in APART + OVERLAPPING:
        expected = algorithm_1(word, Fraction(p))
        assert sum(expected.values()) == 1
        assert distance(sampled(by_hand, word, p, 20_000), expected) < 4, word


def test_tokenizers_library_agrees_where_merges_never_compete(by_hand):
    """Elsewhere the library differs. It cannot be seeded, so the bounds are wide."""
    backend = Tokenizer.from_str(by_hand.backend_tokenizer.to_str())
    backend.model.dropout = 0.3
    for word in APART:
        theirs = Counter(tuple(encoding.tokens) for encoding in backend.encode_batch([word] * 20_000))
        ours = sampled(by_hand, word, 0.3, 20_000)
        assert distance(theirs, algorithm_1(word, Fraction(3, 10))) < 8, word
        # The difference of two counts with the same mean has twice the variance.
        chance = sum((theirs[each] - ours[each]) ** 2 / (theirs[each] + ours[each]) for each in theirs | ours)
        assert chance < len(theirs | ours) + 8 * (2 * len(theirs | ours)) ** 0.5, word
    backend.model.dropout = 0.1
    theirs = Counter(tuple(encoding.tokens) for encoding in backend.encode_batch(["xyz"] * 20_000))
    assert 0.013 < theirs["xy", "z"] / 20_000 < 0.021
    assert algorithm_1("xyz", Fraction(1, 10))["xy", "z"] == Fraction(9, 100)


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(st.sampled_from("abckstz th'sä<>,.27 \t\n\u00a0\u3000日é\u0301"), max_size=60), p=st.floats(0.01, 0.99)
)
def test_text_survives_and_pieces_stay_within_words(tokenizer, text, p):
    text = text.strip()
    ids, backend = tokenizer(text).input_ids, tokenizer.backend_tokenizer
    [pair] = BPEDropout(tokenizer, p)([{"input_ids": ids, "labels": ids}], (1, 2))
    words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
    for found in pair.values():
        assert found[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(found, skip_special_tokens=True) == tokenizer.decode(ids, skip_special_tokens=True)
        pieces = iter(tokenizer.convert_ids_to_tokens(found[:-1]))
        for word, _ in words:
            spelt = ""
            while len(spelt) < len(word):
                spelt += next(pieces)
            assert spelt == word
    # No merge is overlooked: dropping nearly all of them leaves nearly every byte on its own.
    [pair] = BPEDropout(tokenizer, 0.9999)([{"input_ids": ids, "labels": ids}], (1, 2))
    assert len(pair["labels"]) > 0.9 * sum(len(word) for word, _ in words)


def test_result_depends_only_on_the_key(tokenizer):
    pairs = [{"input_ids": tokenizer(text).input_ids, "labels": tokenizer(text[::-1]).input_ids} for text in TEXTS]
    dropout, another = BPEDropout(tokenizer, 0.3), BPEDropout(tokenizer, 0.3)
    first = dropout(pairs, (0, 0, 5))
    assert dropout(pairs, (0, 1, 5)) != first != dropout(pairs, (1, 0, 5))
    assert dropout(pairs, (0, 0, 5)) == another(pairs, (0, 0, 5)) == first
    assert BPEDropout(tokenizer, 1e-12)(pairs, (0, 0, 5)) == pairs  # as p goes to 0 it becomes plain BPE


def test_text_growing_past_its_limit_keeps_its_ids(tokenizer):
    ids = tokenizer(TEXTS[0]).input_ids
    pairs = [{"input_ids": ids, "labels": ids}] * 50
    limited = BPEDropout(tokenizer, 0.1, max_source_length=len(ids) + 2, max_target_length=len(ids))(pairs, (3,))
    free = BPEDropout(tokenizer, 0.1)(pairs, (3,))
    for some, each in zip(limited, free, strict=True):
        assert some["input_ids"] == (each["input_ids"] if len(each["input_ids"]) <= len(ids) + 2 else ids)
        assert some["labels"] == (each["labels"] if len(each["labels"]) <= len(ids) else ids)
    assert 0 < sum(some == each for some, each in zip(limited, free, strict=True)) < 50


def test_ids_bpe_would_not_produce_are_kept(by_hand):
    ids = by_hand.convert_tokens_to_ids(["a", "b", "c"])  # BPE gives abc
    pairs = [{"input_ids": ids, "labels": by_hand("abc").input_ids}] * 50
    found = BPEDropout(by_hand, 0.5)(pairs, (1,))
    assert all(pair["input_ids"] == ids for pair in found)
    assert len({tuple(pair["labels"]) for pair in found}) > 1


def test_invalid_rate_or_tokenizer_is_rejected(tokenizer):
    for p in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="must be above 0 and below 1"):
            BPEDropout(tokenizer, p)
    pieces = learn_tokenizer(TEXTS, TokenizerSettings("wordpiece", 550))
    with pytest.raises(ValueError, match=r"needs a tokenizer of kind bpe, of bytes, and this one \(WordPiece\)"):
        BPEDropout(pieces, 0.1)
