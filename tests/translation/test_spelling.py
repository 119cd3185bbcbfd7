"""Mistyped words become the closest words of the training text: in examples, against all words, through a model."""

import logging
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer import (
    Glossary,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    translate,
    translate_lines,
)
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.translation import Spelling
from vanilla_transformer.translation.lines import UnknownWordsWarnings


COUNTS = {
    "the": 90, "The": 60, "dog": 40, "dig": 30, "Dog": 5, "house": 20, "horse": 10, "hoarse": 2, "Anna": 9, "Berlin": 4,
    "Camp": 2, "camp": 7, "Hund": 3, "sees": 5, "isn": 8, "'t": 8, "0": 50, ".": 80, "beautiful": 6, "Asian": 30,
    "asian": 5, "he": 9, "किताब": 9,
}  # fmt: skip
BY_HAND = [
    # line, corrected line
    ("The dgo sees teh hosue.", "The dog sees the house."),
    ("Teh doog. Hte hors!", "The dog. The horse!"),
    ("Annna, annna and dgoo", "Anna, Anna and dgoo"),  # two mistakes are allowed only in long words
    ("the man, Dgo, and - Hte (Dgo)", "the man, Dgo, and - Hte (Dgo)"),  # a capital inside a sentence marks a name
    ('"Dgo! (Teh dgo: Dgo', '"Dog! (The dog: Dog'),
    ("the Asain man, asain", "the Asian man, Asian"),  # usually written this way, apart from slips
    ("I’ve isn’t a dgo’s house’re ’dgo", "I’ve isn’t a dgo’s house’re ’dog"),
    ("किताबब और हगरी", "किताब और हगरी"),
    ("wom\u00adan dgo", "wom\u00adan dog"),
    ("a beuatifull house", "a beautiful house"),
    ("a beuattifull house", "a beuattifull house"),
    ("the Cammp, the cammp, the Berlinn", "the Cammp, the camp, the Berlin"),  # a capital here marks a name
    ("DGO", "DGO"),
    ("hoarsee", "horse"),  # `hoarse` is closer, but it came only twice
    ("dxg", "dog"),  # not `dig`, because it came more often; no key is near
    ("dpg dug", "dog dig"),  # o is beside p, and i beside u
    ("dig", "dig"),
    ("isnn't and isnn", "isnn't and isn"),
    ("e\u0301 dgo", "e\u0301 dog"),
    ('(dgo) "dgo": dgo-hosue.', '(dog) "dog": dog-house.'),
    # unchanged
    ("The dog sees Anna.", "The dog sees Anna."),
    ("d1g dg2 dgo_ @dgo (http://dgo.de) dgo.de 犬犬 12", "d1g dg2 dgo_ @dgo (http://dgo.de) dgo.de 犬犬 12"),
    ("{dgo} dgo/hors %dgo", "{dgo} dgo/hors %dgo"),
    ("e\u0301", "e\u0301"),
    ("", ""),
    (" \t ", " \t "),
]


TOKENIZER = learn_tokenizer(["the dog"], TokenizerSettings(vocab_size=262))


ON_KEYBOARD = {
    letter: (place + row / 2, row)
    for row, letters in enumerate(("qwertyuiop", "asdfghjkl", "zxcvbnm"))
    for place, letter in enumerate(letters)
}


def distance(typed: str, meant: str, added_letter: float = 1, far_key: float = 1) -> float:
    """Optimal string alignment distance, by its recursion; some mistakes may weigh more."""

    @cache
    def of(i: int, j: int) -> float:
        if i == j == 0:
            return 0
        ways = []
        if j:
            ways.append(of(i, j - 1) + 1)
        if i:
            ways.append(of(i - 1, j) + (1 if i > 1 and typed[i - 1] == typed[i - 2] else added_letter))
        if i and j:
            (x, y), (u, v) = ON_KEYBOARD[typed[i - 1]], ON_KEYBOARD[meant[j - 1]]
            changed = 1 if abs(x - u) <= 1 and abs(y - v) <= 1 and abs(x - u) + abs(y - v) < 2 else far_key
            ways.append(of(i - 1, j - 1) + (0 if typed[i - 1] == meant[j - 1] else changed))
        if i > 1 and j > 1 and (typed[i - 1], typed[i - 2]) == (meant[j - 2], meant[j - 1]):
            ways.append(of(i - 2, j - 2) + 1)
        return min(ways)

    return of(len(typed), len(meant))


def test_example_typos_are_corrected():
    spelling = Spelling(TOKENIZER, COUNTS)
    for line, read in BY_HAND:
        assert spelling.correct(line) == read, line
    text, corrections = spelling.read("The dgo sees teh hosue.")
    assert text == "The dog sees the house."
    assert corrections == {"dgo": "dog", "teh": "the", "hosue": "house"}
    assert spelling.read("The dog.") == ("The dog.", {})


@given(st.text("dogehrsiu", min_size=1, max_size=9))
def test_correction_is_closest_then_likeliest_then_most_frequent(word):
    counts = {"dog": 40, "dig": 30, "house": 20, "horse": 10, "god": 10, "gourd": 3, "r": 9, "or": 7, "so": 12,
              "shoe": 4, "hoarse": 2, "she": 11, "he": 11, "hours": 5, "oodles": 3, "houses": 3}  # fmt: skip
    [found] = Spelling(TOKENIZER, counts).correct(word).split()
    if word in counts or len(word) == 1:
        assert found == word
        return
    allowed = 1 if len(word) < 6 else 2
    near = [
        (distance(word, each), distance(word, each, 1.25, 1.5), -count, each)
        for each, count in counts.items()
        if count > 2 and len(each) > 1
    ]
    *_, best = min((entry for entry in near if entry[0] <= allowed), default=(word,))
    assert found == best


def test_capitals_count_also_for_vocabularies_without_them():
    tokenizer = learn_tokenizer(["the dog"], TokenizerSettings(vocab_size=262, lowercase=True))
    small = {}
    for word, count in COUNTS.items():
        small[word.lower()] = small.get(word.lower(), 0) + count
    spelling = Spelling(tokenizer, small)
    for line, corrected in (
        ("the dgo", "the dog"),
        ("Dgo sees", "Dog sees"),
        ("the DGO sees Dgo", "the DGO sees Dgo"),  # an abbreviation and a name
    ):
        assert spelling.correct(line) == corrected


def test_rare_training_word_may_be_a_typo():
    counts = {"the": 2000, "teh": 2, "thr": 3, "tha": 2, "an": 1999, "ab": 1, "abn": 2, "Tge": 1, "and": 1000}
    # `thr` is too frequent, `tha` is an unlikely slip, and `Tge` is a name. Below, `an` is not frequent enough.
    assert Spelling(TOKENIZER, counts).correct("Teh teh thr tha ab Tge") == "The the thr tha an Tge"
    assert Spelling(TOKENIZER, counts | {"an": 999}).correct("ab teh") == "ab the"


@given(st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["The dgo ", " teh", " hosue ", "."])), max_size=9))
def test_correction_changes_only_words(parts):
    text = "".join(parts)
    spelling = Spelling(TOKENIZER, COUNTS)
    corrected, corrections = spelling.read(text)
    if not corrections:
        assert corrected == text
    # Compared as the tokenizer normalizes them: it decomposes some Hebrew letters, for example.
    before, after = (
        [sign for sign in spelling._mistyped(line)[0] if not sign.isalnum() and not sign.isspace()]
        for line in (text, corrected)
    )
    assert after == before


def test_correction_works_with_equal_or_no_counts():
    assert Spelling(TOKENIZER, dict.fromkeys(COUNTS, 10)).correct("teh hoarsee") == "the hoarse"
    assert Spelling(TOKENIZER, {}).correct("dxg") == "dxg"


def test_kept_terms_and_uncorrected_words_stay_as_written():
    guarani = learn_tokenizer(["ha'e porã"], TokenizerSettings(vocab_size=262, apostrophe_as_letter=True))
    spelling = Spelling(guarani, {"porã": 9, "ha\u02bce": 9})
    assert spelling.correct("ha'e prã") == "ha'e porã"
    assert spelling.correct("haa'e prã") == "ha\u02bce porã"
    assert spelling.keeping(["haa'e"]).correct("haa'e prã") == "haa'e porã"
    small = learn_tokenizer(["the dog"], TokenizerSettings(vocab_size=262, lowercase=True))
    assert Spelling(small, {"the": 9, "dog": 9}).correct("The iPhone dgo") == "The iPhone dog"


def test_model_reads_corrected_line_and_terms_stay(tokenizer):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    config = VanillaTransformerConfig(vocab_size=len(tokenizer), **sizes)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    spelling = Spelling(tokenizer, COUNTS)
    lines = ["The dgo sees teh hosue.", "THE DGO.", "", "The dog."]
    read = [spelling.correct(line) for line in lines]
    options = {"num_beams": 2, "max_new_tokens": 8}
    assert translate(model, tokenizer, lines, spelling=spelling, **options) == translate(
        model, tokenizer, read, **options
    )
    glossary = Glossary([("dgo", "Dgo"), ("the house", "das Haus")])
    [[best]] = translate_lines(model, tokenizer, [lines[:1]], spelling=spelling, glossary=glossary, num_beams=2)
    # One term is not taken for a typo, and the other is found because its typos are corrected.
    assert {term.source for term in best.terms} == {"dgo", "the house"}
    assert spelling.correct("dgo") == "dog"  # without the glossary
    with pytest.raises(ValueError, match="Correcting the spelling would change markup"):
        list(translate_lines(model, tokenizer, [["<b>a</b>"]], spelling=spelling, markup="xml"))


def test_warnings_include_the_correction(caplog):
    warnings = UnknownWordsWarnings(lambda line: [w for w in line.split() if w not in COUNTS])
    with caplog.at_level(logging.WARNING):
        warnings.look_at("the dgo xyzzy", Spelling(TOKENIZER, COUNTS).read("the dgo xyzzy")[1])
    assert caplog.messages == [
        'Line 1: the model has not learned "dgo" (read as "dog"), "xyzzy": the translation may be wrong.'
    ]
