"""Glossaries: reading a file, finding terms in a line, using them in translations, and the engines that can."""

from unicodedata import normalize

import pytest
import torch

from vanilla_transformer import Glossary, load_glossary, translate, translate_lines
from vanilla_transformer.data.terms import TERM_MARKERS
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.translation.by_ctranslate2 import Ctranslate2Engine
from vanilla_transformer.translation.by_onnx import OnnxEngine
from vanilla_transformer.translation.decoding import Decoding
from vanilla_transformer.translation.glossary import constraints_of, used_terms
from vanilla_transformer.translation.likelihood import likelihoods

from ..model.conftest import build_model, sharpened, tiny_marian
from .conftest import SENTENCES


FILE = """\
# A comment, and a blank line

dog\tHund|Hündin
hot  dog\tHotdog\t
Anna\t
New York\tnew york
Ubuntu\tUbuntu
iPhone\t\tkeep
"""


def test_glossary_file_is_read(tmp_path):
    path = tmp_path / "glossary.tsv"
    path.write_text("\ufeff" + FILE, encoding="utf-8")
    found = [(term.source, term.targets) for term in load_glossary(path).terms]
    assert found == [
        ("dog", ("Hund", "Hündin")), ("hot dog", ("Hotdog",)), ("Anna", ()), ("New York", ("new york",)),
        ("Ubuntu", ()), ("iPhone", ()),
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError):
        load_glossary(tmp_path / "nothing.tsv")


def test_terms_in_other_scripts_match_any_normal_form():
    terms = ("ñe'ẽ", "g̃uarani", "बच्चा", "猫", "แมว", "کتاب")
    glossary = Glossary([(normalize("NFD", term), None) for term in terms])
    for line, expected in (
        ("Ñe'ẽ g̃uarani.", ["Ñe'ẽ", "g̃uarani"]),
        ("बच्चा और बच्चे, बच्चाओं", ["बच्चा"]),  # marks belong to words
        ("小さな猫が寝る。", ["猫"]),  # no spaces
        ("แมวตัวเล็ก", ["แมว"]),
        ("کتاب‌ها", []),  # a joiner does not end a word
        ("کتاب است", ["کتاب"]),
    ):
        for form in ("NFC", "NFD"):
            text = normalize(form, line)
            found = glossary.find(text)
            assert [each.text for each in found] == [normalize(form, each) for each in expected]
            assert all(text[each.start : each.end] == each.text for each in found)


def test_words_have_the_apostrophes_that_the_vocabulary_takes_for_letters(tokenizer):
    settings = TokenizerSettings(vocab_size=280, apostrophe_as_letter=True)
    letters = learn_tokenizer(["mba'e po'i ko'ápe upépe"] * 9, settings)
    glossary = Glossary([("mba'e", "thing"), ("po", "hand"), ("Mba'e Guasu", None)])
    as_read = glossary.reading(letters)
    for spelling in ("mba'e", "mba’e", "mba\u02bce", "mba\ua78ce"):
        assert [(each.text, each.targets) for each in as_read.find(f"po {spelling}, po'i")] == [
            ("po", ("hand",)), (spelling, ("thing",))
        ]  # fmt: skip
    assert [each.targets for each in as_read.find("Mba’e Guasu")] == [("Mba’e Guasu",)]
    assert as_read is glossary.reading(letters)
    assert glossary.constraints("po'i", letters) == []
    assert len(glossary.constraints("mba’e", letters)) == 1
    assert glossary.reading(tokenizer) is glossary  # elsewhere a dog is meant to be found in "dog's"
    assert [each.text for each in Glossary([("dog", "Hund")]).reading(tokenizer).find("the dog's")] == ["dog"]


def test_term_may_stand_inside_text_without_spaces():
    texts = ["小さな猫が寝る。", "The cat sleeps."] * 2
    tokenizer = learn_tokenizer(texts, TokenizerSettings(vocab_size=270))
    found = Glossary([("cat", "猫")]).find("the cat")
    [ways] = constraints_of(found, "the cat", tokenizer)
    before = tokenizer("な", add_special_tokens=False).input_ids
    assert {tokenizer.decode([*before, *ids]) for ids in ways} == {"な 猫", "な猫"}
    assert used_terms(found, "小さな猫が寝る。", tokenizer)[0].used == "猫"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dog Hund", "is not a source term, a tab"),
        ("dog\tHund\tstay", "the word keep"),
        ("dog\tHund\tkeep\tmore", "is not a source term"),
        ("dog\tHund\tkeep", "keep contradicts the target 'Hund'"),
        ("\tHund", "empty source term"),
        ("cat\tKatze|", "empty alternative"),
        ("Cow\tKuh", "line 1 already"),
        ("cow\tRind", "line 1 already"),
    ],
)
def test_invalid_glossary_line_is_named(tmp_path, line, message):
    path = tmp_path / "glossary.tsv"
    path.write_text(f"cow\tKuh\n\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"glossary\.tsv, line 3: .*{message}"):
        load_glossary(path)
    with pytest.raises(ValueError, match=r"entry 2: .*entry 1 already"):
        Glossary([("cow", "Kuh"), ("Cow", "Rind")])


def test_longest_whole_word_terms_are_found():
    glossary = Glossary(
        [
            ("dog", "Hund"), ("hot dog", "Hotdog"), ("dog food", "Futter"), ("us", "uns"), ("US", "USA"), ("C++", ""),
            ("iPhone", None), (".NET", ""), ("New York", ""), ("straße", "street"), ("日本", "Japan"), ("café", ""),
        ]
    )  # fmt: skip
    for line, expected in {
        "The Dog, the DOG and the dog's dogs": ["Dog", "DOG", "dog"],
        "A hot dog is no dog": ["hot dog", "dog"],
        "hot dog food": ["dog food"],  # longer than "hot dog"
        "hotdog underdog dog2 dog_ 2dog": [],
        "US and us and Us": ["US", "us", "Us"],
        "C++, c++ and C": ["C++", "c++"],
        "iPhone IPHONE iphone": ["iPhone"],
        "It is .NET.": [".NET"],
        "New   York, new york": ["New   York"],
        "STRASSE Straße": ["Straße"],
        "私は日本人": ["日本"],
        "": [],
        "CAFÉ (dog)-dog": ["CAFÉ", "dog", "dog"],
    }.items():
        found = glossary.find(line)
        assert [each.text for each in found] == expected, line
        assert [line[each.start : each.end] for each in found] == expected
    assert Glossary([("us", "uns"), ("US", "USA")]).find("US us")[0].targets == ("USA",)
    [found] = Glossary([("anna", "")]).find("ANNA sleeps")
    assert found.targets == ("ANNA",)  # as it stands in the line


def test_constraints_are_terms_as_tokenized_in_translations(tokenizer):
    def texts(line, glossary):
        return [
            {tokenizer.decode(tokenizer("x", add_special_tokens=False).input_ids + ids)[1:] for ids in each}
            for each in constraints_of(glossary.find(line), line, tokenizer)
        ]

    glossary = Glossary([("dog", "rot|Hund"), ("Anna", None)])
    assert texts("dog Anna", glossary) == [{" rot", " Rot", " Hund"}, {" Anna"}]
    quoted = {" rot", " Rot", " Hund", "rot", "Rot", "Hund"}
    assert texts('the "dog" and dog', glossary) == [quoted, quoted]
    # The tokens of a term occur among the tokens of a text that has it.
    for text, line in (("Ein Hund läuft.", "dog"), ('"Hund"', '"dog"'), ("(Hund) x", "(dog)")):
        ids = tokenizer(text).input_ids
        [alternatives] = constraints_of(glossary.find(line), line, tokenizer)
        assert any(ids[i : i + len(each)] == each for each in alternatives for i in range(len(ids))), text


def test_a_term_that_a_line_repeats_is_tokenized_once(tokenizer):
    calls = []

    class Counting:
        def __call__(self, **given):
            calls.append(given)
            return tokenizer(**given)

        def decode(self, *given, **options):
            return tokenizer.decode(*given, **options)

    glossary, counting, of = Glossary([("dog", "Hund|Hündin")]), Counting(), {}
    for line in ("dog", "dog " * 50):
        calls.clear()
        terms = glossary.find(line)
        constraints_of(terms, line, counting)
        used_terms(terms, "Hund " * 50, counting)
        of[line] = len(calls)
    assert of["dog"] == of["dog " * 50] > 0


def test_used_terms_are_found_in_translations(tokenizer):
    glossary = Glossary([("dog", "Hund|rot"), ("Anna", None), ("cat", "Hund")])
    for line, translation, expected in (
        ("dog Anna", "Ein Hund und Anna", ["Hund", "Anna"]),
        ("dog Anna", "Die Hunde, anna", ["Hund", None]),  # an ending is allowed; a name must match exactly
        ("dog", "Brot, Schäferhund", [None]),
        ("dog", "Rot", ["Rot"]),
        ("dog dog", "Hund und rot", ["Hund", "rot"]),
        ("dog dog", "ein Hund", ["Hund", None]),
        ("dog cat", "ein Hund", ["Hund", "Hund"]),  # two terms may share a word
        ("nothing", "Hund", []),
    ):
        found = used_terms(glossary.find(line), translation, tokenizer)
        assert [each.used for each in found] == expected, (line, translation)


@pytest.fixture(scope="module")
def model():
    model = sharpened(build_model(vocab_size=280))
    model.generation_config = paper_generation_config(model.config, num_beams=6)
    return model


def test_only_lines_with_terms_follow_the_glossary(model, tokenizer, caplog):
    glossary = Glossary([("dog", "Hund|Tier"), ("little girl", None), ("日本", "Japan")])
    options = {"max_new_tokens": 60}
    plain = translate(model, tokenizer, SENTENCES, **options)
    found = list(translate_lines(model, tokenizer, [SENTENCES], glossary=glossary, **options))
    for sentence, before, [best] in zip(SENTENCES, plain, found, strict=True):
        matches = glossary.find(sentence)
        assert [each.source for each in best.terms] == [each.text for each in matches]
        assert all(each.used in each.targets for each in best.terms), best
        assert best.score is None
        if not matches:
            assert best.text == before
    for workers in (1, 2):
        each = translate_lines(
            model, tokenizer, [[line] for line in SENTENCES], glossary=glossary, workers=workers, **options
        )
        assert list(each) == found
    assert translate(model, tokenizer, SENTENCES, glossary=glossary, **options) == [best.text for best, *_ in found]
    # Each piece of a long line has its own terms.
    [[best]] = translate_lines(model, tokenizer, [SENTENCES[2:3]], glossary=glossary, longest=60, max_new_tokens=40)
    assert [each.used for each in best.terms].count("little girl") == 2
    assert caplog.text == ""
    [[best]] = translate_lines(model, tokenizer, [SENTENCES[:1]], glossary=glossary, max_new_tokens=2)
    assert best.terms[0].used is None
    assert best.text == translate(model, tokenizer, SENTENCES[:1], max_new_tokens=2)[0]
    assert "Line 1: the translation lacks the glossary's term for ['dog']" in caplog.text


def test_unsupported_engines_and_searches_are_rejected(model, tokenizer):
    glossary = Glossary([("dog", "Hund")])
    for options in ({"num_beams": 1}, {"do_sample": True}):
        with pytest.raises(ValueError, match="num_beams of 2 or more, and no samples; or for soft terms"):
            translate(model, tokenizer, SENTENCES, glossary=glossary, **options)
    with pytest.raises(ValueError, match="convert the model"):
        translate(tiny_marian(), tokenizer, SENTENCES, glossary=glossary, num_beams=2)
    decoding = Decoding.resolve({"num_beams": 2}, model.generation_config, constrained=True)
    for engine, remedy in ((Ctranslate2Engine, "translate by torch"), (OnnxEngine, "model of torch")):
        with pytest.raises(ValueError, match=remedy):
            engine(None, tokenizer, decoding)


# ----------------------------------------------------------------------------------------------------------- soft terms


@pytest.fixture(scope="module")
def with_terms():
    """A model whose vocabulary has the markers of terms, and its tokenizer."""
    tokenizer = learn_tokenizer(SENTENCES * 2, TokenizerSettings(vocab_size=280), tags=TERM_MARKERS)
    model = sharpened(build_model(seed=1, vocab_size=len(tokenizer)))
    model.generation_config = paper_generation_config(model.config, num_beams=1, max_new_tokens=20)
    return model, tokenizer


def test_soft_terms_are_read_in_the_source(with_terms, caplog):
    model, tokenizer = with_terms
    glossary = Glossary([("dog", "Hund|Tier"), ("little girl", None)])
    src, trg, done = tokenizer.convert_tokens_to_ids(list(TERM_MARKERS))
    words = {text: tokenizer(text, add_special_tokens=False).input_ids for text in ("A man sees the", "dog", "Hund")}
    by_hand = [*words["A man sees the"], src, *words["dog"], trg, *words["Hund"], done]
    by_hand += tokenizer("A man sees the dog.").input_ids[len(words["A man sees the"] + words["dog"]) :]
    [ids] = model.generate(torch.tensor([by_hand])).tolist()
    soft = {"glossary": glossary, "terms": "soft"}
    found = list(translate_lines(model, tokenizer, [SENTENCES], **soft))
    assert found[0][0].text == tokenizer.decode(ids, skip_special_tokens=True)
    plain = translate(model, tokenizer, SENTENCES)
    for number, (sentence, [best]) in enumerate(zip(SENTENCES, found, strict=True), start=1):
        matches = glossary.find(sentence)
        assert [each.source for each in best.terms] == [each.text for each in matches]
        assert (best.text == plain[number - 1]) == (not matches)
        lacking = [each.source for each in best.terms if each.used is None]
        assert (f"Line {number}: the translation lacks the glossary's term for {lacking}" in caplog.text) == bool(
            lacking
        )
    assert translate(model, tokenizer, SENTENCES, workers=2, **soft) == [best.text for best, *_ in found]
    # Confidence is computed from the source as the model read it, with its terms.
    calibration = Calibration(50, 0.0, {"mean_surprisal": -1.0})
    [[judged]] = translate_lines(model, tokenizer, [SENTENCES[:1]], calibration=calibration, **soft)
    [as_read] = likelihoods(model, tokenizer, [("", judged.text)], sources=[by_hand])
    assert judged.likelihood.tokens == pytest.approx(as_read.tokens, abs=1e-5)
    # Any search works.
    for options in ({"num_beams": 3}, {"do_sample": True, "top_k": 1}):
        texts = translate(model, tokenizer, SENTENCES, **options, **soft)
        assert (texts[3], texts == [best.text for best, *_ in found]) == (
            translate(model, tokenizer, SENTENCES[3:4], **options)[0], "do_sample" in options
        )  # fmt: skip


def test_soft_terms_that_do_not_fit_are_left_out(with_terms):
    _, tokenizer = with_terms
    glossary, [line, *_] = Glossary([("dog", "Hund" * 40)]), SENTENCES
    model = sharpened(
        build_model(vocab_size=len(tokenizer), position_embedding_type="learned", max_position_embeddings=64)
    )
    model.generation_config = paper_generation_config(model.config, num_beams=1, max_new_tokens=20)
    [[best]] = translate_lines(model, tokenizer, [[line]], glossary=glossary, terms="soft")
    assert best.text == translate(model, tokenizer, [line])[0]
    assert best.terms[0].used is None


def test_ctranslate2_reads_soft_terms_too(with_terms, tmp_path):
    pytest.importorskip("ctranslate2")
    from vanilla_transformer import ExportedModel, to_ctranslate2

    model, tokenizer = with_terms
    to_ctranslate2(model, tokenizer, tmp_path / "exported")
    soft = {"glossary": Glossary([("dog", "Hund"), ("street", "Straße")]), "terms": "soft", "num_beams": 1}
    expected = translate(model, tokenizer, SENTENCES, **soft)
    assert translate(ExportedModel(tmp_path / "exported"), tokenizer, SENTENCES, **soft) == expected
    assert expected != translate(model, tokenizer, SENTENCES, num_beams=1)


def test_model_without_soft_terms_is_rejected(model, tokenizer, with_terms):
    glossary = Glossary([("dog", "Hund")])
    with pytest.raises(ValueError, match=r"knows no soft terms: train one, .* or use hard terms"):
        translate(model, tokenizer, SENTENCES, glossary=glossary, terms="soft")
    with pytest.raises(ValueError, match="terms must be hard or soft, not 'both'"):
        translate(*with_terms, SENTENCES, glossary=glossary, terms="both")
