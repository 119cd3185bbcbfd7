"""Capitals are removed from lines and restored in translations: in examples, in any text, and through a model."""

import time
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    translate,
    translate_lines,
)
from vanilla_transformer.data.forms import FORMS
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.translation import Casing


KNOWN = {"a", "Anna", "and", "dog", "isn", "sees", "S", "T", "the", "The", "TV", "Hund", "old"}
BY_HAND = [
    # line, in sentence case, form
    ("THE DOG SEES ANNA.", "The dog sees Anna.", "upper"),
    ("THE DOG ISN'T OLD. ANNA SEES TV!", "The dog isn't old. Anna sees TV!", "upper"),
    ('"THE 2 DOGS!"', '"The 2 dogs!"', "upper"),
    ("THE DOG’S OLD, S", "The dog’s old, S", "upper"),
    ("The Dog Sees Anna", "The dog sees Anna", "title"),
    ("The Dog's Old Hund", "The dog's old Hund", "title"),
    ("Anna And Hund And Old 3d TV", "Anna and Hund and old 3d TV", "title"),
    ("E\u0301TUDE DOG", "E\u0301tude dog", "upper"),
    # unchanged
    ("The dog sees Anna.", "The dog sees Anna.", None),
    ("NASA", "NASA", None),
    ("NASA!", "NASA!", None),
    ("New York", "New York", None),
    ("THE dog", "THE dog", None),
    ("", "", None),
    ("12 + 3", "12 + 3", None),
    ("彼は走る。犬。", "彼は走る。犬。", None),
]


def test_casing_handles_sharp_s_and_training_text_slips():
    assert Casing().take_off("DIE STRAßE IST LANG") == ("Die straße ist lang", "upper")
    counts = {"China": 11, "china": 2, "two": 20, "Two": 90, "dogs": 3, "in": 9}
    assert Casing(counts).take_off("TWO DOGS IN CHINA, TWO") == ("Two dogs in China, two", "upper")
    counts = {"NASA": 1000, "Nasa": 1, "UN": 200, "Un": 50, "un": 20, "und": 9}
    assert Casing(counts).take_off("UND NASA UND UN") == ("Und NASA und UN", "upper")


def test_words_of_a_glossary_keep_their_capitals():
    casing = Casing(KNOWN).keeping(["NVIDIA", "iPhone"])
    assert casing.take_off("Anna Sees NVIDIA Today") == ("Anna sees NVIDIA today", "title")
    assert casing.take_off("THE DOG SEES IPHONE.") == ("The dog sees iPhone.", "upper")
    assert casing.take_off("IPHONE SEES THE DOG.") == ("iPhone sees the dog.", "upper")


def test_long_line_of_signs_is_fast():
    started = time.process_time()
    assert Casing().take_off("A DOG " + "! " * 50_000)[1] == "upper"
    assert time.process_time() - started < 2  # quadratic time would be minutes


def test_casing_round_trips_on_examples():
    casing = Casing(KNOWN)
    for line, plain, form in BY_HAND:
        assert casing.take_off(line) == (plain, form), line
        assert casing.put_on(plain, form) == line, line
    assert Casing().take_off("THE DOG SEES ANNA.") == ("The dog sees anna.", "upper")


@given(st.text(max_size=60))
def test_casing_round_trips_on_any_line(text):
    casing = Casing(KNOWN)
    for line in (text, text.upper(), FORMS["title"](text, Random(0))):
        plain, form = casing.take_off(line)
        if form is None:
            assert plain == line
        else:
            assert plain.casefold() == line.casefold() or plain.upper() == line.upper()
            line = line.replace("ß", "ẞ")  # counts as a capital
            assert casing.put_on(line, form) == line


def test_words_get_the_casing_of_their_text():
    casing, text, words = (
        Casing(),
        "it's a weiß-rot  dog",
        ["it", "'", "s", "a", "weiß", "-", "rot", "dog", "not there"],
    )
    assert casing.put_on_words(words, text, None) == words
    title = casing.put_on_words(words, text, "title")
    assert title == ["It", "'", "s", "A", "Weiß", "-", "Rot", "Dog", "Not There"]
    assert "".join(title[:-1]) == casing.put_on(text, "title").replace(" ", "")
    assert casing.put_on_words(words, text, "upper")[4:6] == ["WEISS", "-"]


def test_model_reads_sentence_case_and_translations_get_capitals(tokenizer):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **sizes)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    sentences = ["A man sees the dog.", "No. A dog sees the little girl.", "Two men play football in the park."]
    plain = translate(model, tokenizer, sentences, num_beams=1)
    casing = Casing()
    for form in ("upper", "title"):
        lines = [FORMS[form](line, Random(0)) for line in sentences]
        found = translate(model, tokenizer, [*lines, *sentences], num_beams=1, casing=casing)
        assert found == [*(FORMS[form](text, Random(0)) for text in plain), *plain]
        calibration = Calibration(50.0, 0.3, {"mean_surprisal": -1.5})
        judged = translate_lines(model, tokenizer, [lines], num_beams=1, casing=casing, calibration=calibration)
        for text, [best] in zip(found, judged, strict=False):
            words = [each.word for each in best.likelihood.words]
            assert best.text == text
            assert "".join(words).replace(" ", "") == text.replace(" ", "")
    for options in ({"markup": "xml"}, {"align": True}):
        with pytest.raises(ValueError, match="casing changes the words that were aligned"):
            list(translate_lines(model, tokenizer, [["A B"]], casing=casing, **options))
