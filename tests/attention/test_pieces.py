"""Readable labels for pieces, and attention between words instead of pieces."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.attention.pieces import merged, piece_labels, words
from vanilla_transformer.data.scripts import is_mark
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


@pytest.fixture(scope="module", params=[("bpe", 290), ("wordpiece", 540)])
def tokenizer(request):
    texts = ["The old dogs of the old town", "Die alten Hunde der alten Stadt"] * 3
    return learn_tokenizer(texts, TokenizerSettings(*request.param))


def labels(tokenizer, text):
    return piece_labels(tokenizer, tokenizer(text).input_ids)


def test_bytes_of_a_character_are_shown_as_the_character(tokenizer):
    assert labels(tokenizer, "日")[-4:] == ["日 1/3", "日 2/3", "日 3/3", "</s>"]
    assert labels(tokenizer, "ü 🙂")[-5:-1] == ["🙂 1/4", "🙂 2/4", "🙂 3/4", "🙂 4/4"]
    assert "".join(labels(tokenizer, "The old")).replace("␣", "") == "Theold</s>"
    assert "␣" in labels(tokenizer, "a  日")


def test_bytes_of_incomplete_characters_are_shown_in_hexadecimal(tokenizer):
    first, second, _ = tokenizer("日").input_ids[-4:-1]
    old = tokenizer("old").input_ids[-2]
    whole = piece_labels(tokenizer, [old])
    assert piece_labels(tokenizer, [old, first, old]) == [*whole, "<E6>", *whole]
    assert piece_labels(tokenizer, [second]) == ["<97>"]
    assert piece_labels(tokenizer, []) == []


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=12))
def test_every_piece_has_a_nonempty_label(tokenizer, text):
    ids = tokenizer(text).input_ids
    found = piece_labels(tokenizer, ids)
    assert len(found) == len(ids)
    assert all(found)


def test_merging_sums_over_keys_and_averages_over_queries():
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 1.0, 0.0]])
    expected = torch.tensor([[0.45, 0.55], [1.0, 0.0]])
    torch.testing.assert_close(merged(weights, [[0, 1], [2]], [[0, 1], [2]]), expected)
    torch.testing.assert_close(merged(weights[None, None], [[0, 1], [2]], [[0, 1], [2]])[0, 0], expected)


def test_words_in_unspaced_scripts_never_start_with_marks():
    texts = ["小さな猫が寝る。", "แมวตัวเล็กนอนที่นี่", "Die Katze schläft, ja."]
    for kind, size in (("bpe", 300), ("wordpiece", 556)):
        tokenizer = learn_tokenizer(texts * 3, TokenizerSettings(kind, size))
        for text in [*texts, "猫犬😀 มันดี", "𠮷野"]:
            encoded = tokenizer([text])
            found = words(tokenizer, encoded, 0)
            assert "".join(word for word, _ in found) == "".join(text.split())
            assert [place for _, places in found for place in places] == [*range(len(encoded.input_ids[0]) - 1)]
            assert not any(is_mark(word[0]) for word, _ in found)
        assert len(words(tokenizer, tokenizer(["犬が鳴く。"]), 0)) >= 4  # words are one character or a few
        assert [word for word, _ in words(tokenizer, tokenizer([texts[2]]), 0)] == [
            "Die",
            "Katze",
            "schläft",
            ",",
            "ja",
            ".",
        ]
