"""Text in many scripts: it round-trips through the tokenizer in one normal form, and its words stay whole."""

import unicodedata

import pytest

from vanilla_transformer.data.known_words import UnknownWords, WordList, load_known_words
from vanilla_transformer.data.scripts import WORD, is_mark, is_unspaced
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


TEXTS = {
    "Thai": ["สวัสดีครับ วันนี้อากาศดีมาก", "แมวตัวเล็กนอนอยู่บนเก้าอี้"],
    "Arabic": ["ذهبَ الولدُ إلى المدرسة.", "كيف حالك؟"],
    "Persian": ["می‌خواهم به خانه بروم."],  # with U+200C, the zero-width non-joiner
    "Hindi": ["बच्चा बगीचे में खेल रहा है।", "क़लम और ज़मीन, र्‍य"],  # with U+200D, and letters that NFC decomposes
    "Hebrew": ["הַיֶּלֶד הולך לבית הספר."],
    "Japanese": ["小さな猫が椅子の上で寝ています。", "ガギグゲゴとﾊﾟﾝ"],
    "Guarani": ["Che ñe'ẽ avañe’ẽme, g̃uarani kuéra.", "Ko mitã'i oho mbo'ehaópe."],
    "Ukrainian": ["Її м’яч лежить у саду, а п'ять інших ні."],
}
SENTENCES = [text for texts in TEXTS.values() for text in texts]


def learned(**settings):
    return learn_tokenizer(SENTENCES * 2, TokenizerSettings(**{"vocab_size": 330, **settings}))


def back(tokenizer, text):
    return tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)


def words(tokenizer, text):
    normalized = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    found = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
    return [normalized[start:end].strip() for _, (start, end) in found]


@pytest.mark.parametrize("settings", [("bpe", 330), ("wordpiece", 560)])
def test_normal_forms_encode_alike_and_decode_to_nfc(settings):
    tokenizer = learned(kind=settings[0], vocab_size=settings[1])
    for text in SENTENCES:
        composed = unicodedata.normalize("NFC", text)
        for form in (text, composed, unicodedata.normalize("NFD", text)):
            assert tokenizer(form).input_ids == tokenizer(composed).input_ids
            assert back(tokenizer, form) == composed
            assert back(tokenizer, f" {form}\n") == f" {composed}\n"


def test_marks_and_joiners_do_not_split_words():
    tokenizer = learned()
    for texts in ("Hindi", "Persian", "Hebrew"):
        for text in TEXTS[texts]:
            expected = text.replace(".", " .").replace("।", " ।").replace(",", " ,").split()
            assert words(tokenizer, text) == [unicodedata.normalize("NFC", word) for word in expected]
    assert words(tokenizer, "g̃uarani") == ["g̃uarani"]
    assert words(tokenizer, "❤ \u200d a\u200d") == ["❤", "\u200d", "a\u200d"]  # joiners attach only to letters


def test_nfkc_maps_variants_to_the_usual_letters():
    tokenizer = learned(normalization="nfkc", lowercase=True)
    for text, expected in (("ﾊﾟﾝ", "パン"), ("ＡＢＣ１２", "abc12"), ("ﬁn ﷲ", "fin الله"), ("ñe'ẽ", "ñe'ẽ"), ("ℌ", "h")):
        assert back(tokenizer, text) == expected
    assert back(learned(), "ﾊﾟﾝＡ") == "ﾊﾟﾝＡ"
    with pytest.raises(ValueError, match=r"tokenizer\.normalization is 'nfd'; choose one of 'nfc', 'nfkc'"):
        TokenizerSettings(normalization="nfd")


@pytest.mark.parametrize("normalization", ["nfc", "nfkc"])
def test_all_spellings_of_the_puso_are_one_letter(normalization):
    tokenizer = learned(apostrophe_as_letter=True, normalization=normalization)
    spellings = ["ñe'ẽ", "ñe’ẽ", "ñe‘ẽ", "ñe´ẽ", "ñe`ẽ", "ñeʼẽ", "ñeʻẽ", "ñeꞌẽ", "ñe′ẽ"]
    for spelling in [*spellings, *(unicodedata.normalize("NFD", each) for each in spellings)]:
        assert tokenizer(spelling).input_ids == tokenizer("ñe'ẽ").input_ids, ascii(spelling)
        assert back(tokenizer, f"Che {spelling}.") == "Che ñe'ẽ."
    assert words(tokenizer, "Ko mitã’i, 'ha'e'.") == ["Ko", "mitãʼi", ",", "'", "haʼe", "'."]
    assert words(tokenizer, "g̃'a") == ["g̃ʼa"]
    assert words(learned(), "mitã'i") == ["mitã", "'", "i"]


def test_words_are_found_in_all_scripts():
    def found(text):
        return WORD.findall(text)

    assert found("बच्चा खेल रहा है।") == ["बच्चा", "खेल", "रहा", "है", "।"]
    assert found("می‌خواهم g̃uarani, x_1") == ["می‌خواهم", "g̃uarani", ",", "x_1"]
    assert found("猫がガ。 ok") == ["猫", "が", "ガ", "。", "ok"]
    assert found("ที่นี่") == ["ที่", "นี่"]
    assert [is_unspaced(text) for text in ("ok 猫", "ที่", "हिन्दी", "كيف", "")] == [True, True, False, False, False]
    assert [is_mark(each) for each in ("\u0303", "ี", "\u200d", "a", "")] == [True, True, True, False, False]


def test_unspaced_scripts_report_only_unknown_letters(tmp_path):
    tokenizer, words = learned(), WordList()
    for text in SENTENCES:
        words.read(unicodedata.normalize("NFD", text))
    words.save(tmp_path, tokenizer)
    unknown = UnknownWords(tokenizer, load_known_words(tmp_path))
    for line in ("猫が椅子で寝ています。", "แมวนอนอยู่บนเก้าอี้", "बच्चा खेल रहा है।", "Che mitã'i g̃uarani.", "می‌خواهم"):
        assert unknown(line) == unknown(unicodedata.normalize("NFD", line)) == []
    assert unknown("小さな犬が寝ています。") == ["犬"]
    assert unknown("बच्ची खेल रहा है।") == ["बच्ची"]
