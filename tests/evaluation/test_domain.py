"""How far a text is from the training data, judged by its words."""

import gzip

import pytest

from vanilla_transformer.data.known_words import KNOWN_WORDS, WordList, load_known_words, load_word_counts
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation.domain import domain_of


@pytest.fixture
def tokenizer():
    return learn_tokenizer(["the dog, the cat"], TokenizerSettings(vocab_size=262))


def test_word_counts_round_trip_and_old_lists_load(tmp_path, tokenizer):
    words = WordList()
    for text in ["the dog"] * 9 + ["the cat, 1990"] * 12 + ["a dog."]:
        words.read(text)
    words.save(tmp_path, tokenizer)
    # `cat,` and `dog.` are split into word and mark.
    expected = {"the": 21, "dog": 10, "cat": 12, ",": 12, "0": 12, "a": 1, ".": 1}
    assert load_word_counts(tmp_path) == expected
    assert load_known_words(tmp_path) == frozenset(expected)
    # Older lists have counts for rare words only; still older ones have just the words.
    (tmp_path / KNOWN_WORDS).write_bytes(gzip.compress(b"a\t1\ncat\nthe\n"))
    assert load_word_counts(tmp_path) == {"a": 1, "cat": 10, "the": 10}


def test_unknown_and_rare_shares_count_repeated_words(tokenizer):
    counts = {"the": 10, "dog": 9, "a": 1, "0": 10}
    lines = ["the dog, the dog: 12", "the cat sees a bird", "cat 3"]
    found = domain_of("small", lines, 7.5, counts, tokenizer)
    assert (found.words, found.perplexity) == (10, 7.5)  # without 12, 3 and the marks
    assert found.unknown == pytest.approx(4 / 10)  # cat, sees, bird, cat
    assert found.rare == pytest.approx(3 / 10)  # dog, dog, a
    assert list(found.most_unknown.items()) == [("cat", 2), ("bird", 1), ("sees", 1)]


def test_missing_word_counts_leave_shares_undefined(tokenizer):
    without_numbers = domain_of("small", ["the cat"], 7.5, {"the": 10}, tokenizer)
    assert (without_numbers.unknown, without_numbers.rare) == (0.5, None)
    without_list = domain_of("small", ["the cat 3"], 7.5, None, tokenizer)
    assert (without_list.words, without_list.unknown, without_list.most_unknown) == (2, None, {})
    empty = domain_of("empty", ["", "1 2"], 7.5, {"a": 1}, tokenizer)
    assert (empty.words, empty.unknown, empty.rare) == (0, 0, 0)
