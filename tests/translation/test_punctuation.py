"""A missing full stop: added to examples and to any text, and removed from a model's translations."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer import (
    Casing,
    Punctuation,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    translate,
    translate_lines,
)
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.translation.likelihood import WordProbability


def test_missing_full_stop_is_added_and_removed():
    punctuation = Punctuation()
    for line, read in [
        ("A dog", "A dog."),
        ('a "dog" ', 'a "dog." '),
        ("room 7", "room 7."),
        ("e\u0301", "e\u0301."),
        ("नमस्ते", "नमस्ते."),
    ]:
        assert punctuation.put_on(line) == (read, True)
        assert punctuation.take_off(read) == line
    for line in ("A dog.", "A dog?", "A dog …", "A dog:", "a,", "a -", "😀", "I love it ❤️", "1️⃣", "", " ", '"', "."):
        assert punctuation.put_on(line) == (line, False)
    for text in ("Ein Hund?", "Ein Hund...", "Ein Hund!", ".", "", " ", "Ein Hund"):
        assert punctuation.take_off(text) == text
    assert punctuation.take_off("Der Hund läuft . ") == "Der Hund läuft "


def test_full_stop_matches_the_training_text():
    assert Punctuation({"犬": 3, "。": 2, ".": 1}).put_on("犬") == ("犬。", True)
    assert Punctuation({"कुत्ता", "।"}).put_on("कुत्ता") == ("कुत्ता।", True)
    assert Punctuation({"।": 2}).take_off("A dog.") == "A dog"


@given(st.text(max_size=20))
def test_full_stop_round_trips_on_any_line(line):
    punctuation = Punctuation()
    read, got_one = punctuation.put_on(line)
    assert (read != line) == got_one
    assert punctuation.put_on(read) == (read, False)
    if got_one:
        assert punctuation.take_off(read) == line


def test_full_stop_is_removed_from_words():
    punctuation, words = Punctuation(), [WordProbability("Hund", 0.5), WordProbability(".", 0.9)]
    assert punctuation.take_off_words(words, "Hund.") == words[:1]
    assert punctuation.take_off_words([WordProbability("Hund.", 0.5)], "Hund.") == [WordProbability("Hund", 0.5)]
    assert punctuation.take_off_words(words, "Hund. Hund") == words
    quoted = [WordProbability("ja", 0.5), WordProbability('."', 0.9)]
    assert punctuation.take_off_words(quoted, '"ja."') == [quoted[0], WordProbability('"', 0.9)]
    assert punctuation.take_off_words([], ".") == []


def test_model_reads_full_stop_and_translation_loses_it(tokenizer):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **sizes)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    sentences, punctuation = ["A man sees the dog.", "No. A dog sees.", "Two men?"], Punctuation()
    plain = translate(model, tokenizer, sentences, num_beams=1)
    bare = ["A man sees the dog", "No. A dog sees", "Two men?"]
    expected = [*map(punctuation.take_off, plain[:2]), plain[2]]
    assert translate(model, tokenizer, bare, num_beams=1, punctuation=punctuation) == expected
    assert translate(model, tokenizer, sentences, num_beams=1, punctuation=punctuation) == plain
    capitals = {"punctuation": punctuation, "casing": Casing(), "num_beams": 1}
    plain = translate(model, tokenizer, ["A man sees the dog."], num_beams=1)
    assert translate(model, tokenizer, ["A MAN SEES THE DOG"], **capitals) == [punctuation.take_off(plain[0]).upper()]
    calibration = Calibration(50.0, 0.3, {"mean_surprisal": -1.5})
    [[best]] = translate_lines(model, tokenizer, [["A MAN SEES THE DOG"]], calibration=calibration, **capitals)
    assert "".join(each.word for each in best.likelihood.words).replace(" ", "") == best.text.replace(" ", "")
    assert (best.read.text, best.read.words, best.written) == ("A man sees the dog.", "A man sees the dog", plain[0])
    [[best]] = translate_lines(model, tokenizer, [["A <b>man</b>"]], markup="xml", num_beams=1)
    assert best.read.text == best.read.words == "A man"
    assert best.written == "".join(re.split("</?b>", best.text))
    for options in ({"markup": "xml"}, {"align": True}):
        with pytest.raises(ValueError, match="punctuation changes the words that were aligned"):
            list(translate_lines(model, tokenizer, [["A B"]], punctuation=punctuation, **options))
