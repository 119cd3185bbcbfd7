"""How far a text lies outside what a model has seen, by its words."""

import gzip

import pytest

from vanilla_transformer.data.known_words import KNOWN_WORDS, WordList, load_known_words, load_word_counts
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation.domain import domain_of


@pytest.fixture
def tokenizer():
    return learn_tokenizer(["the dog, the cat"], TokenizerSettings(vocab_size=262))


def test_words_are_counted_with_the_vocabulary(tmp_path, tokenizer):
    words = WordList()
    for text in ["the dog"] * 9 + ["the cat, 1990"] * 12 + ["a dog."]:
        words.read(text)
    words.save(tmp_path, tokenizer)
    # `cat,` and `dog.` are words and marks.
    expected = {"the": 21, "dog": 10, "cat": 12, ",": 12, "0": 12, "a": 1, ".": 1}
    assert load_word_counts(tmp_path) == expected
    assert load_known_words(tmp_path) == frozenset(expected)
    # Older lists have numbers for rare words alone, and those before them none.
    (tmp_path / KNOWN_WORDS).write_bytes(gzip.compress(b"a\t1\ncat\nthe\n"))
    assert load_word_counts(tmp_path) == {"a": 1, "cat": 10, "the": 10}


def test_shares_are_of_words_as_they_come(tokenizer):
    counts = {"the": 10, "dog": 9, "a": 1, "0": 10}
    lines = ["the dog, the dog: 12", "the cat sees a bird", "cat 3"]
    found = domain_of("small", lines, 7.5, counts, tokenizer)
    assert (found.words, found.perplexity) == (10, 7.5)  # without 12, 3 and the marks
    assert found.unknown == pytest.approx(4 / 10)  # cat, sees, bird, cat
    assert found.rare == pytest.approx(3 / 10)  # dog, dog, a
    assert list(found.most_unknown.items()) == [("cat", 2), ("bird", 1), ("sees", 1)]


def test_what_is_not_recorded_is_not_said(tokenizer):
    without_numbers = domain_of("small", ["the cat"], 7.5, {"the": 10}, tokenizer)
    assert (without_numbers.unknown, without_numbers.rare) == (0.5, None)
    without_list = domain_of("small", ["the cat 3"], 7.5, None, tokenizer)
    assert (without_list.words, without_list.unknown, without_list.most_unknown) == (2, None, {})
    empty = domain_of("empty", ["", "1 2"], 7.5, {"a": 1}, tokenizer)
    assert (empty.words, empty.unknown, empty.rare) == (0, 0, 0)
