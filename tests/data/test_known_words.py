"""The list of words in a training text, and the words that a model cannot know."""

import gzip
from itertools import islice

import pytest

from vanilla_transformer.data.known_words import (
    KNOWN_WORDS,
    UnknownWords,
    WordList,
    count_words,
    load_known_words,
    words_of,
)
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


TEXTS = ["The dog isn't old.", "Die Größe: 1990 (not 1,5)!", "the dog, the DOG"]


def learned(**settings):
    return learn_tokenizer(TEXTS, TokenizerSettings(**{"vocab_size": 262, **settings}))


def saved(folder, tokenizer, texts=TEXTS, **options):
    words = WordList(**options)
    for text in texts:
        words.read(text)
    words.save(folder, tokenizer)
    return load_known_words(folder)


def test_known_words_follow_the_tokenizers_settings(tmp_path):
    usual = {"The", "the", "DOG", "dog", "isn", "'t", "old", "Die", "Größe", "not", ".", ":", "(", ")", "!", ",", "0"}
    assert saved(tmp_path, learned()) == usual
    small = {"the", "dog", "isn", "'t", "old", "die", "größe", "not", ".", ":", "(", ")", "!", ",", "0"}
    assert saved(tmp_path, learned(lowercase=True)) == small
    spaced = {"The", "the", "dog", "dog,", "DOG", "isn't", "old.", "Die", "Größe:", "0", "(not", "1,5)!"}
    assert saved(tmp_path, learned(pretokenized=True)) == spaced
    assert count_words(frozenset(["The", "the", "dog", ".", "0", "'t"])) == 3  # ignoring punctuation and case


def test_file_does_not_depend_on_text_order(tmp_path):
    tokenizer, files = learned(), []
    for number, texts in enumerate((TEXTS, TEXTS[::-1], TEXTS[1:] + TEXTS[:1])):
        (tmp_path / str(number)).mkdir()
        saved(tmp_path / str(number), tokenizer, texts)
        files.append((tmp_path / str(number) / KNOWN_WORDS).read_bytes())
    assert files[0] == files[1] == files[2]


def test_list_of_too_many_words_is_not_saved(tmp_path):
    assert saved(tmp_path, learned(), most=5) is None
    assert list(tmp_path.iterdir()) == []


def test_damaged_or_oversized_list_raises_naming_the_file(tmp_path):
    for content, said in (
        (b"", ".*"),
        (b"no gzip", ".*"),
        (gzip.compress(b"a\n\xff\n"), ".*"),
        (gzip.compress(b"words" * 9)[:-5], ".*"),
        (gzip.compress(b"a" * 64_000_001), "more than 64,000,000 bytes"),
    ):
        (tmp_path / KNOWN_WORDS).write_bytes(content)
        with pytest.raises(ValueError, match=rf"known_words\.txt\.gz is not a list of words \({said}\): remove it"):
            load_known_words(tmp_path)


def test_words_missing_from_the_list_are_unknown(tmp_path):
    tokenizer = learned()
    unknown = UnknownWords(tokenizer, saved(tmp_path, tokenizer))
    assert unknown("The old dog: 2024! (!)") == []
    assert unknown("The old dog; the old… dog") == [";", "…"]
    assert unknown("I am here, dog, here. Gro\u0308ße 日本") == ["I", "am", "here", "日本"]
    assert unknown("") == unknown("  ") == []
    for text in TEXTS:
        assert unknown(text) == []


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_without_a_list_only_byte_spelt_words_are_unknown(kind):
    texts = [text for row in islice(phrasebook("train"), 2000) for text in row.values()]
    tokenizer = learn_tokenizer(texts, TokenizerSettings(kind, 1000))
    unknown = UnknownWords(tokenizer, None)
    assert unknown("I am here, zyx \x7f \x01 ~ 'Qq'. Sie hört Bücher.") == []
    assert unknown("日本 is far, naïve 日本, far 🎉!") == ["日本", "naïve", "日本,", "🎉!"]


def test_every_word_of_the_phrasebook_is_known(tmp_path):
    texts = [row["en"] for row in islice(phrasebook("train"), 30_000)]
    tokenizer = learned()
    unknown = UnknownWords(tokenizer, saved(tmp_path, tokenizer, texts))
    assert [word for row in islice(phrasebook("test"), 300) for word in unknown(row["en"])] == []
    assert list(words_of(tokenizer, "Nobody knows 7.")) == ["Nobody", "knows", "0", "."]
