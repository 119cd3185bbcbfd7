"""Forms of text, checked against examples by hand, the distribution of typos, and arbitrary Unicode text."""

import unicodedata
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.forms import FORMS, _letters, some_in_forms, texts_in_form, typos


BY_HAND = {
    "upper": [("Zwei Straßen, ist's wahr?", "ZWEI STRASSEN, IST'S WAHR?"), ("日本 2nd", "日本 2ND")],
    "title": [
        ("a man's NASA hat isn't \"old\" – 'ere", "A Man's NASA Hat Isn't \"Old\" – 'Ere"),
        ("e\u0301tude über l'eau 3d _x", "E\u0301tude Über L'eau 3d _x"),
    ],
    "lower": [("Der Hund und NASA. ÄÖÜ", "der hund und nasa. äöü")],
    "no_end_punctuation": [
        ("A dog runs.", "A dog runs"),
        ('He said: "No!?" ', 'He said: "No" '),
        ("C'est vrai ?", "C'est vrai"),
        ("3.5 of them", "3.5 of them"),
        ("彼は走る。」", "彼は走る」"),
        ("...", "..."),
    ],
    "no_diacritics": [
        ("Größe, élève, ťuhýk, Łódź, Ærø, İ", "Grosse, eleve, tuhyk, Lodz, AEro, I"),
        ("がで 안녕", "がで 안녕"),
    ],
}


def test_forms_match_examples_by_hand():
    for name, pairs in BY_HAND.items():
        for text, expected in pairs:
            assert FORMS[name](text, Random(0)) == expected
    for ending, endings in ((".", {"..", "..."}), ('?"', {'??"', '???"'}), ("", {""})):
        found = {FORMS["doubled_end_punctuation"](f"a 2.5{ending}", Random(seed)) for seed in range(30)}
        assert found == {f"a 2.5{each}" for each in endings}


def test_noise_adds_the_same_run_to_both_sides():
    seen = set()
    for seed in range(200):
        source, target = (FORMS["noise"](text, Random(seed)) for text in ("a b", "ein anderer"))
        if source.endswith(" a b"):
            run = source.removesuffix(" a b")
            assert target == f"{run} ein anderer"
        else:
            run = source.removeprefix("a b ")
            assert target == f"ein anderer {run}"
        assert run
        assert not any(sign.isalnum() or sign.isspace() for sign in run)
        seen.add((run, source.startswith("a")))
    assert len(seen) > 60


def test_typos_follow_the_documented_distribution():
    """All outcomes of the word "ha" on both keyboards, QWERTY and QWERTZ."""
    share, times = 0.3, 40_000
    expected = Counter()
    for beside_h, beside_a in (("gjbnyu", "szqw"), ("gjbnzu", "syqw")):
        keys_of_h = dict.fromkeys(beside_h, share / 3 / 6)
        # After an h that is kept, replaced or left out comes an a: kept, replaced or left out.
        then = {"a": 1 - share, "": share / 2} | dict.fromkeys(beside_a, share / 2 / 4)
        for first, probability in {"h": 1 - share, "": share / 3, **keys_of_h}.items():
            for second, given_first in then.items():
                expected[(first + second) or "left out"] += probability * given_first / 2
        expected["ah"] += share / 3 / 2
    assert sum(expected.values()) == pytest.approx(1)
    found = Counter(typos("ha -", Random(seed), share).removesuffix(" -") or "left out" for seed in range(times))
    assert found.keys() <= expected.keys()
    square = sum((found[each] - times * p) ** 2 / (times * p) for each, p in expected.items())
    freedom = len(expected) - 1
    assert square < freedom + 4 * (2 * freedom) ** 0.5


def test_typos_change_only_letters_at_the_given_rate():
    text = "Жук жужжит, 12 – no: Ωmega "
    assert typos(text, Random(1), 0.0) == text
    found = [typos(text, Random(seed), 0.5) for seed in range(200)]
    assert len(set(found)) > 150
    for each in found:
        assert [sign for sign in each if not sign.isalpha()] == [sign for sign in text if not sign.isalpha()]
        assert {sign for sign in each if sign > "\u0400"} <= set(text)  # Cyrillic has no neighbouring keys here
    lonely = {typos("я 7 I", Random(seed), 1.0) for seed in range(50)}
    assert lonely == {f"я 7 {key}" for key in "UOJK"}  # on a German keyboard I has the same neighbours
    errors = sum(len(long) - len(typos(long, Random(seed))) for seed, long in enumerate(["Жжук" * 500] * 20))
    assert errors / 40_000 == pytest.approx(0.05 / 2, rel=0.2)  # half of them are omissions, half swaps


def test_forms_keep_letters_of_other_scripts_whole():
    unchanging = ("no_diacritics", "lower", "upper", "title", "no_end_punctuation")
    for text in (
        "แมวตัวเล็กนอนอยู่บนเก้าอี้",
        "बच्चा बगीचे में खेल रहा है",
        "ذهبَ الولدُ إلى المدرسة",
        "猫がガラスの上で寝る",
        "می‌خواهم به خانه بروم",
    ):
        for name in unchanging:
            assert FORMS[name](text, Random(1)) == text, (name, text)
        letters = set(_letters(text))
        for seed in range(50):
            assert set(_letters(typos(text, Random(seed), 0.4))) <= letters
        assert len({typos(text, Random(seed), 0.4) for seed in range(50)}) > 40
    for form in ("NFC", "NFD"):
        guarani = unicodedata.normalize(form, "g̃uarani ñe'ẽ, mitã’i")
        assert FORMS["title"](guarani, Random(1)) == unicodedata.normalize(form, "G̃uarani Ñe'ẽ, Mitã’i")
        assert FORMS["upper"](guarani, Random(1)) == unicodedata.normalize(form, "G̃UARANI ÑE'Ẽ, MITÃ’I")
        assert FORMS["no_diacritics"](guarani, Random(1)) == "guarani ne'e, mita’i"
    assert FORMS["no_end_punctuation"]("बच्चा सो गया।", Random(1)) == "बच्चा सो गया"
    assert FORMS["no_end_punctuation"]("كيف حالك؟", Random(1)) == "كيف حالك"


@given(st.text(max_size=40), st.integers(0, 2**64))
def test_every_form_handles_any_text(text, seed):
    for name, form in FORMS.items():
        found = form(text, Random(seed))
        assert found == form(text, Random(seed)), name
        assert found.strip() or not text.strip(), name
        found.encode("utf-8", "surrogatepass" if any("\ud800" <= sign <= "\udfff" for sign in text) else "strict")
    assert FORMS["upper"](text, Random(seed)) == text.upper()
    bare = FORMS["no_diacritics"](text, Random(seed))
    if bare != text:
        assert not any("\u0300" <= sign <= "\u036f" for sign in unicodedata.normalize("NFD", bare))


def test_each_text_draws_its_own_reproducible_typos():
    texts = ["a man rides a horse in the park"] * 20
    found = texts_in_form("typos", texts)
    assert found == texts_in_form("typos", texts) != texts_in_form("typos", texts, seed=1)
    assert len(set(found)) > 10
    assert texts_in_form("typos", texts[:7]) == found[:7]
    # The draws must never change: scores of a form are compared by its name and seed.
    assert texts_in_form("typos", ["The quick brown fox jumps over the lazy dog, again and again."] * 2) == [
        "The quick brow fox jumps over the lauy dog, again amd gaain.",
        "Teh quick brown flx jumps over the lazy odg, again and again.",
    ]


def test_forms_get_their_shares_regardless_of_order():
    texts, shares = [f"A dog, number {number}." for number in range(4000)], {"upper": 0.3, "title": 0.2}
    found = list(some_in_forms(texts, shares))
    counts = Counter(
        next((name for name in shares if text == FORMS[name](before, Random(0))), "as it was" * (text == before))
        for before, text in zip(texts, found, strict=True)
    )
    assert sum(counts.values()) == 4000
    for form, share in {**shares, "as it was": 0.5}.items():
        assert abs(counts[form] / 4000 - share) < 0.03  # four standard deviations
    assert list(some_in_forms(reversed(texts), dict(reversed(shares.items())))) == found[::-1]
    assert list(some_in_forms(texts, {})) == list(some_in_forms(texts, {"upper": 0.0})) == texts
