"""The rules for a pair, each with a bad case and a similar good one; mending; languages and scripts."""

import pickle
import unicodedata

import pytest
from datasets import Dataset

from vanilla_transformer.cleaning.languages import is_identified, odds_of_another, share_of_other_scripts
from vanilla_transformer.cleaning.rules import REASONS, RULES, CleaningSettings, check_pair, mend, plain


SETTINGS = CleaningSettings("en", "de", max_characters=200)
GOOD = ("The old dog sleeps in the warm kitchen.", "Der alte Hund schläft in der warmen Küche.")
# For each rule, a pair that it drops and a similar pair that it keeps.
CASES = {
    "empty": ((GOOD[0], " \u3000"), GOOD),
    "too_long": ((GOOD[0] * 6, GOOD[1] * 6), GOOD),
    "broken_encoding": ((GOOD[0], "Der alte Hund schl\ufffdft in der K\ufffdche."), GOOD),
    "numbers_or_markup": (("12.30 | 14.50 | 99", "<td class='x'>12.30</td>"), ("It is 8:30.", "Es ist 8:30 Uhr.")),
    "identical": ((GOOD[1], GOOD[1].upper()), GOOD),
    "length_ratio": ((GOOD[0], "Der Hund."), ("I do.", "Ja, ich auch.")),
    "addresses_differ": (
        (f"{GOOD[0]} http://a.org/1", f"{GOOD[1]} http://a.org/2"),
        (f"{GOOD[0]} http://a.org/1", f"{GOOD[1]} (http://a.org/1)"),
    ),
    "numbers_differ": (
        ("The 50 dogs sleep in 3 kitchens.", "Die 50 Hunde schlafen in 4 Küchen."),
        ("There were 50,000 dogs and 3 cats.", "Da waren 50.000 Hunde und drei Katzen."),
    ),
    "source_script": (
        ("Старая собака спит в тёплой кухне.", GOOD[1]),
        ("The dog is called Жук.", "Der Hund heißt Жук."),
    ),
    "target_script": ((GOOD[0], "Старая собака спит в тёплой кухне."), GOOD),
    "source_language": (("Le vieux chien dort dans la cuisine chaude.", GOOD[1]), GOOD),
    "target_language": ((GOOD[0], "Le vieux chien dort dans la cuisine."), ("Hello Maria!", "Hallo Maria!")),
}


def test_each_rule_drops_bad_and_keeps_good_pairs():
    assert CASES.keys() == RULES.keys()
    assert list(REASONS)[: len(RULES)] == list(RULES)
    for name, (bad, good) in CASES.items():
        assert check_pair(*bad, SETTINGS)["reason"] == name
        assert check_pair(*good, SETTINGS)["reason"] is None, name
        assert check_pair(*bad, CleaningSettings("en", "de", 200, skip=(name,)))["reason"] != name


def test_broken_text_is_mended_or_dropped():
    latin = "schöne Grüße".encode("latin-1").decode(errors="surrogateescape")
    cases = {
        "plain text": "plain text",
        "schÃ¶ne GrÃ¼ÃŸe": "schöne Grüße",
        "schÃƒÂ¶n": "schön",
        latin: "schöne Grüße",
        "\x96 nein".encode("latin-1").decode(errors="surrogateescape"): "– nein",
        "http://a.org/?x=1&region=us&notify=1 &lt;more&gt;": "http://a.org/?x=1&region=us&notify=1 <more>",
        "Max &amp; Moritz &quot;hier&quot;": 'Max & Moritz "hier"',
        "http://a.org/?x=1&region;2 &amplifier; &#8364;": "http://a.org/?x=1&region;2 &amplifier; €",
        f"a &#{'1' * 5000}; &amp;": f"a &#{'1' * 5000}; &",
        " a\r\nb\u2028c\td ": "a b c d",
        "a\u200b\ufeff\x07b": "ab",
        "„Straße“ – 日本語 🎉 naïve Ã": "„Straße“ – 日本語 🎉 naïve Ã",
    }
    for text, expected in cases.items():
        assert mend(text) == expected
        assert mend(expected) == expected
    assert mend("é" + " " * 1_000_000 + "x").endswith(" x")  # would take hours if blanks took quadratic time
    lost = b"\x81\x8d \xff".decode(errors="surrogateescape")
    assert check_pair(GOOD[0], f"{GOOD[1]} {lost}", SETTINGS)["reason"] == "broken_encoding"


def test_adjacent_numbers_and_spaced_digits_compare_correctly():
    settings = CleaningSettings("en", "de")
    for source, target, reason in (
        ("In 2019 12 people died there.", "Im Jahr 2019 starben dort 12 Menschen.", None),
        ("They paid 1 234 567 euros for it.", "Sie haben dafür 1.234.567 Euro bezahlt.", None),
        ("They paid 1 234 567 euros for it.", "Sie haben dafür 1.234.568 Euro bezahlt.", "numbers_differ"),
        ("They paid 1,00,000 rupees for it.", "Sie haben dafür 100.000 Rupien bezahlt.", None),
        ("It was signed on 3/4/1990 at 10:30.", "Es wurde am 3.4.1990 um 10.30 unterschrieben.", None),
        ("It was signed on 3/4/1990 at 10:30.", "Es wurde am 3.4.1991 um 10.30 unterschrieben.", "numbers_differ"),
        ("It was signed on 3/4/1990 at 8:30.", "Es wurde am 03.04.1990 um 08:30 unterschrieben.", None),
        ("They paid 0.5 euros for these two.", "Sie haben für die zwei 5 Euro bezahlt.", "numbers_differ"),
    ):
        assert check_pair(source, target, settings)["reason"] == reason


def test_languages_and_scripts_are_identified():
    assert odds_of_another(GOOD[0], "en") == odds_of_another(GOOD[0].upper(), "en_GB") == 1
    assert odds_of_another(GOOD[0], "de") > 100
    for text, code, share in (
        ("Собака спит", "ru", 0),
        ("Собака dog", "ru", 3 / 9),
        ("犬が眠る ラーメン", "ja", 0),
        ("犬 dog", "zh", 3 / 4),
        ("개가 잔다", "ko", 0),
        ("Ｄｏｇ", "en", 0),
        ("собака", "shp", 0),
        ("123 !?", "en", 0),
        ("кучук", "uz", 1),
        ("кучук", "uz_Cyrl", 0),
        ("собака", "uzn-cyrl", 0),
        ("dog", "sr_Cyrl", 1),
        ("dog", "sr", 0),
    ):
        assert share_of_other_scripts(text, code) == pytest.approx(share), text
    assert all(map(is_identified, ("pt_BR", "sr_Latn", "uz")))
    assert not any(map(is_identified, ("shp", "uz_Cyrl")))
    assert check_pair("Собака спит", "The dog sleeps.", CleaningSettings("shp", "en"))["reason"] is None


def test_good_pairs_in_other_scripts_are_kept():
    for source, target, code in (
        ("The small cat is sleeping on the chair.", "小さな猫が椅子の上で寝ています。", "ja"),
        ("See https://example.com/a for more, or write to info@example.com.",
         "詳しくはhttps://example.com/aをご覧になるか、info@example.comまでご連絡ください。", "ja"),
        ("You can read more at http://a.org/b, as we said (or “www.a.org”).",
         "Mehr lesen Sie, wie gesagt („www.a.org“), auf der Seite http://a.org/b.", "de"),
        ("The dog sleeps in the warm kitchen.", "Кучук иссиқ ошхонада ухлайди.", "uz_Cyrl"),
        ("Hello, the weather is very nice today.", "สวัสดีครับ วันนี้อากาศดีมาก", "th"),
        ("The boy went to school in 1999.", "ذهبَ الولدُ إلى المدرسة عام ١٩٩٩.", "ar"),
        ("It costs 50,000 dollars.", "اس کی قیمت ۵۰٬۰۰۰ ڈالر ہے۔", "ur"),
        ("I want to go home.", "می‌خواهم به خانه بروم.", "fa"),
        ("He is 35 years old.", "वह ३५ साल का है।", "hi"),
        ("The child went to school.", "Ko mitã'i oho mbo'ehaópe g̃uarani.", "gn"),
        ("The small cat sleeps on the chair.", "細貓喺張櫈度瞓覺。", "yue"),
    ):  # fmt: skip
        for form in ("NFC", "NFD"):
            found = check_pair(source, unicodedata.normalize(form, target), CleaningSettings("en", code))
            assert found["reason"] is None, (code, form, found)
            assert found["target"] == unicodedata.normalize("NFC", target)
    bad = ("He is 36 years old.", "वह ३५ साल का है।")
    assert check_pair(*bad, CleaningSettings("en", "hi"))["reason"] == "numbers_differ"
    bad = ("See https://example.com/b for more.", "詳しくはhttps://example.com/aをご覧ください。")
    assert check_pair(*bad, CleaningSettings("en", "ja"))["reason"] == "addresses_differ"
    assert plain("กี่ กา? ñe'ẽ") != plain("กา กี? ñe'ẽ")  # marks count


def test_rules_run_under_datasets_multiprocessing():
    pairs = [GOOD, *(bad for bad, _ in CASES.values())] * 3
    rows = Dataset.from_dict({"en": [pair[0] for pair in pairs], "de": [pair[1] for pair in pairs]})
    options = {"input_columns": ["en", "de"], "fn_kwargs": {"settings": SETTINGS}, "num_proc": 2}
    checked = rows.map(check_pair, **options)
    assert list(checked["reason"]) == [None, *CASES] * 3
    assert checked.filter(lambda reason: reason is None, input_columns="reason")["target"][:] == [GOOD[1]] * 3
    assert pickle.loads(pickle.dumps(check_pair)) is check_pair


def test_invalid_settings_are_rejected():
    for values, message in (
        ({"target_language": "en"}, "both 'en'"),
        ({"source_language": "../x"}, "'../x' is not a language code"),
        ({"max_length_ratio": float("nan")}, "max_length_ratio must be at least 1 and finite, not nan"),
        ({"max_target_repeats": 0}, "max_target_repeats must be at least 1"),
        ({"skip": ("lenght_ratio",)}, "no rule 'lenght_ratio': choose from empty, "),
    ):
        with pytest.raises(ValueError, match=message):
            CleaningSettings(**{"source_language": "en", "target_language": "de", **values})
