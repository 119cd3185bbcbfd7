"""Markup: taken out of a line, put back where its words went, rejected if broken, kept in translations."""

import re
import time
from dataclasses import replace
from html import unescape

import pytest

from vanilla_transformer import ExportedModel, Glossary, OnnxTranslator, translate, translate_lines
from vanilla_transformer.attention.weights import WordAlignment
from vanilla_transformer.data.scripts import WORD
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.translation import Hypothesis
from vanilla_transformer.translation.markup import (
    BrokenMarkupError,
    Markup,
    put_together,
    take_apart,
    text_of,
)

from ..model.conftest import build_model, sharpened
from ..scripts.conftest import load_script
from .conftest import SENTENCES


def aligned(source: str, target: str, links: list[int]) -> WordAlignment:
    return WordAlignment(source.split(), target.split(), links, [1.0] * len(links))


def in_order(text: str) -> WordAlignment:
    words = re.findall(r"\w+|[^\w\s]", text)
    return WordAlignment(words, words, list(range(len(words))), [1.0] * len(words))


def test_markup_is_taken_out_and_put_back():
    for kind, line, text in (
        ("html", "A <b>red</b> dog", "A red dog"),
        ("html", "AT&amp;T &lt;b&gt; &eacute;&#228;", "AT&T <b> éä"),
        ("html", "one<br>two<p>three</p>", "one two three"),
        ("html", "5 < 6 & x", "5 < 6 & x"),
        ("html", "<script>a < '<b>'</script>x", "x"),
        ("html", '<a title="a > b">x</a><!-- <b> -->', "x"),
        ("html", "<img src=x> <input/>", ""),
        ("xml", "&eacute; &amp; <g id='1'/>x<?p <x ?>", "& x"),
        ("xml", "<![CDATA[<b>]]>a", "a"),
        ("xml", "half<g/>way", "half way"),
        ("placeholders", "<b> &amp; {name}", "<b> &amp; "),
        ("placeholders", "You have {n}.", "You have."),
        ("placeholders", "{a} and {b}", "and "),
        ("placeholders", "", ""),
        ("html", "a {n, plural, one {<b>{x}</b> dog} other {# <i>dogs}} <b>b</b>", "a b"),
        ("html", '<a href="{n, select, a {<b>}}">c</a>', "c"),
    ):
        found = take_apart(line, kind)
        assert found.text == text_of(line, kind) == text, line
        again = put_together(found, text.strip(), in_order(text))
        assert unescape("".join(again.split())) == unescape("".join(line.split())), line
    for kind in ("html", "xml"):
        assert text_of(f"a &#{'1' * 5000};", kind) == "a \ufffd"


def test_placeholders_are_recognized():
    for kept in (
        "{} {0} {name} {x.y} {x[0]!r:>9} {x:.2f} {{ name }} ${x} #{x} %{x}",
        "{n, plural, one {# dog} other {# dogs}}",
        "{n, plural, one {{name} has # dog} other {{name} has # dogs}}",
        "{g, select, f {{n, plural, one {{name} has # dog} other {{n, number, {x}}}}} other {}}",
        "%s %d %1$s %(name)s %.2f %05d %% %@ %-8s %lld",
        "http://a.org/x?y=1 https://a.org www.a.org/ä a.b+c@d-e.org",
    ):
        parts = [kept] if "plural" in kept else kept.replace("{{ name }}", "{{name}}").split()
        found = take_apart(kept.replace("{{ name }}", "{{name}}"), "placeholders")
        assert [node.before for node in found.root.children] == parts
    for text in ("100% of 5 %x1", "a{b", "{a b}", "user@", "http://", "%", "{a}}"[3:], "5%d"):
        assert take_apart(text, "placeholders").root.children == [], text
    for line, kept in (
        ("(see http://a.org/b).", ["http://a.org/b"]),
        ("http://a.org/b;", ["http://a.org/b"]),
        ("It is 5, 1,234.5 or 12:30; x2", ["5", "1,234.5", "12:30"]),
    ):
        found = take_apart(line, "placeholders", keep_numbers=True)
        assert [node.before for node in found.root.children] == kept
    assert take_apart("&#228;5 &#xe4; &#65;", "html", keep_numbers=True).text == "ä ä A"
    assert [node.before for node in take_apart("http://a.org/?a=1&amp;b=2&lt;", "xml").root.children] == [
        "http://a.org/?a=1&amp;b=2"
    ]


def test_placeholders_and_spaces_work_in_other_scripts():
    for line, kept, text in (
        ("詳しくはhttps://a.org/b?x=1をご覧ください。", ["https://a.org/b?x=1"], "詳しくはをご覧ください。"),
        ("連絡はinfo@a.orgまで（www.a.org）。", ["info@a.org", "www.a.org"], "連絡はまで（）。"),
        ("%sさんは%d個、%(n)s回", ["%s", "%d", "%(n)s"], "さんは個、回"),
        ("%s님의 https://a.org은", ["%s", "https://a.org"], "님의 은"),
        ("คุณ%sมี{n}ข้อความ", ["%s", "{n}"], "คุณมีข้อความ"),
        ("مرحبا {name}؟", ["{name}"], "مرحبا؟"),
        ("नमस्ते {name}।", ["{name}"], "नमस्ते।"),
        ("www.a.org/ä ä@ä.org", ["www.a.org/ä", "ä@ä.org"], ""),
    ):
        found = take_apart(line, "placeholders")
        assert [node.before for node in found.root.children] == kept, line
        assert found.text.strip() == text
        words = WORD.findall(found.text)
        alignment = WordAlignment(words, words, list(range(len(words))), [1.0] * len(words))
        assert "".join(put_together(found, found.text, alignment).split()) == "".join(line.split())
    for text in ("%größer %sä", "x@", "ab%d1"):
        assert take_apart(text, "placeholders").root.children == [], text
    numbers = take_apart("第3回、2024年5月、x2 3D", "placeholders", keep_numbers=True).root.children
    assert [node.before for node in numbers] == ["3", "2024", "5"]
    assert take_apart("<b>猫</b><i>犬</i>と<b>one</b><i>two</i>", "html").text == "猫犬とone two"
    marked = take_apart("Hello {name}, <b>welcome</b>!", "html")
    there = WordAlignment(["Hello", ",", "welcome", "!"], ["よう", "こそ", "こんにちは"], [2, 2, 0], [1.0] * 3)
    assert put_together(marked, "ようこそこんにちは", there) == "<b>ようこそ</b>こんにちは{name}"
    marked = take_apart("こんにちは{name}さん", "html")
    alignment = WordAlignment(["こんにちは", "さん"], ["Hello", "Mr"], [0, 1], [1.0] * 2)
    assert put_together(marked, "Hello Mr", alignment) == "Hello {name} Mr"


def test_markup_goes_where_its_words_went():
    german = "Den roten Hund sieht er heute ."
    for line, links, expected in (
        ("He <b>sees</b> the red dog today .", [2, 3, 4, 1, 0, 5, 6], "Den roten Hund <b>sieht</b> er heute ."),
        (
            "He sees <i>the <b>red</b> dog</i> today .",
            [2, 3, 4, 1, 0, 5, 6],
            "<i>Den <b>roten</b> Hund</i> sieht er heute .",
        ),
        ("<p>He sees the red dog today .</p>", [0, 0, 0, 0, 0, 0, 0], "<p>Den roten Hund sieht er heute .</p>"),
        ("He <b>sees the</b> red dog today .", [2, 3, 4, 1, 0, 5, 6], "Den roten Hund <b>sieht</b> er heute ."),
        (
            "<i>He</i> <b>sees</b> the red dog today .",
            [2, 3, 4, 1, 0, 5, 6],
            "Den roten Hund <b>sieht</b> <i>er</i> heute .",
        ),
        ("He sees the red dog {when} .", [2, 3, 4, 1, 0, 4, 5], "Den roten Hund sieht er heute {when} ."),
        ("{a}He sees the red dog today .{b}", [6] * 7, "{a}Den roten Hund sieht er heute .{b}"),
        ("He sees the red dog today .<br><hr>", [0] * 7, "Den roten Hund sieht er heute .<br><hr>"),
    ):
        marked = take_apart(line, "html")
        source = "He sees the red dog ." if "{when}" in line else "He sees the red dog today ."
        assert put_together(marked, german, aligned(source, german, links)) == expected
    # Tags in the translation itself are text.
    marked = take_apart("<b>Hi</b> {x}", "html")
    assert put_together(marked, "<i> & {x}", aligned("Hi", "<i> & {x}", [0, 0, 0])) == "<b>&lt;i&gt; &amp;  </b> {x}"
    assert put_together(marked, "", WordAlignment([], [], [], [])) == "<b></b>{x}"


def test_markup_of_an_unchanged_text_stays_where_it_was():
    for kind, line in (
        ("placeholders", "Dear {name}, the dog is old."),
        ("placeholders", "In {city}, Anna sleeps."),
        ("placeholders", "See http://a.com, then write."),
        ("placeholders", "Hello, {name}."),
        ("placeholders", "Hello, {name}!"),
        ("placeholders", "A {x}: two {y}; three {z}, four."),
        ("placeholders", 'Click "{button}" now.'),
        ("placeholders", 'Click "{button}".'),
        ("placeholders", "The file ({name}) is old."),
        ("placeholders", "See (http://a.com/x)."),
        ("placeholders", "It costs €{price}."),
        ("placeholders", "Is it {x}?"),
        ("placeholders", "Yes, it is {x}..."),
        ("html", "One dog. <br>Two cats sleep."),
        ("html", "Click <img src=x>OK now."),
        ("html", '"<i>Go!</i>"'),
        ("xml", 'Click <x id="1"/>here<x id="2"/> now.'),
        ("xml", '(<g id="1">"a" b</g>), c.'),
        ("html", "<b>Total:</b> {n}."),
        ("html", "Hello <b>{x}, you</b>"),
    ):
        # Punctuation after a placeholder stays out of a tag that ended with a blank, or in one that began with one.
        marked = take_apart(line.replace(":</b>", ": </b>").replace("<b>{x}", "<b> {x}"), kind)
        for pattern in (r"\w+|[^\w\s]", r"\w+|[^\w\s]+"):  # tokenizers that part runs of marks, and those that do not
            words = re.findall(pattern, marked.text)
            alignment = WordAlignment(words, words, list(range(len(words))), [1.0] * len(words))
            assert put_together(marked, marked.text, alignment) == line


def test_broken_markup_is_rejected():
    for kind, line, message in (
        ("html", "a <b>x", "<b> is not closed in this line"),
        ("html", "a x</b>", "</b> ends what has not begun"),
        ("html", "<b>x<i>y</b>z</i>", "<i> is not closed before </b>"),
        ("html", "x <b", "'<b' is not a tag"),
        ("html", "x <script>y", "<script> is not closed"),
        ("html", "<b>" * 101 + "x" + "</b>" * 101, "more than 100 elements"),
        ("xml", "5 < 6", "is not a tag"),
        ("xml", "AT&T", "not well-formed"),
        ("xml", "<b a='1' a='2'>x</b>", "duplicate attribute"),
        ("xml", "<b>x</B>", "<b> is not closed"),
        ("xml", "<br>x", "<br> is not closed"),
    ):
        with pytest.raises(BrokenMarkupError, match=message):
            take_apart(line, kind)
    for name in ("b\x1b[31m", "b" * 1000):
        with pytest.raises(BrokenMarkupError) as error:
            take_apart(f"x <{name}>", "html")
        assert str(error.value).isprintable()
        assert len(str(error.value)) <= 101
    for line in ("<ul>", "</b></i>", " <p> ", "<!DOCTYPE html>"):  # from a text whose elements span several lines
        marked = take_apart(line, "html")
        assert put_together(marked, "", WordAlignment([], [], [], [])) == line


def test_random_lines_keep_their_markup():
    script = load_script("faults/markup")
    found = list(script.with_random_translations(script.Maker(3), 600))
    assert [(wrong, line.text, text) for line, text, _, wrong in found if wrong] == []
    assert {(line.kind, line.form) for line, *_ in found} == {
        ("xml", "well-formed"), ("xml", "broken"), ("xml", "hostile"), ("html", "well-formed"), ("html", "broken"),
        ("html", "hostile"), ("placeholders", "well-formed"), ("placeholders", "hostile"),
    }  # fmt: skip
    # The script detects faults.
    line = next(line for line, *_ in found if line.form == "well-formed" and line.kind == "xml" and len(line.tags) > 3)
    for text in (line.text.replace(line.tags[0], ""), f"{line.text}<b/>", f"{line.text} more"):
        assert list(script.faults_of(line, text, None if "more" not in text else "x", [], 1))
    assert list(script.faults_of(line, line.text, None, ["Line 1: broken markup"], 1))


def test_hostile_lines_take_no_time():
    size = 10_000
    pieces = [
        *"<>{}%&a1/@.\"' ",
        "<b>",
        "<b ",
        "<" + "b" * 3 * size,
        "</b>",
        "<!--",
        '<a "',
        "{{",
        "%0",
        "%(",
        "&a",
        "a@",
        "http://a;",
        "1:",
        "www.",
    ]
    for piece in (
        *pieces,
        "{a,plural,",
        "{a,plural,{",
        "{{a,plural,x}",
        "{a,plural,a{b{c{d{",
        " {}.",
        "{a,plural,x}<br>",
        "<b>x</b>{y} ",
    ):
        line = piece * max(1, size // len(piece))
        for kind in ("xml", "html")[piece not in ("&", "<b>", "</b>") :]:
            begin = time.process_time()
            markup = Markup(kind, keep_numbers=True)
            text = markup.take_out(line)
            [found] = markup.put_back([Hypothesis(text, alignment=in_order(text))])
            assert time.process_time() - begin < 2, (piece, kind)  # an idle machine takes a tenth of this
            assert len(found.text) >= 0.8 * len(line.strip()), (piece, kind)


LINES = [
    "A <b>man</b> sees {what}.",
    "",
    "<p>",
    "Two men <i>play</b> football.",
    "The little <b>girl runs</b> across the street and a <i>dog</i> runs after her. No. A dog sees <b>the</b> girl.",
]


@pytest.fixture(scope="module")
def model():
    model = sharpened(build_model(vocab_size=280))
    model.generation_config = paper_generation_config(model.config, num_beams=4, max_new_tokens=20)
    return model


def test_translations_have_the_markup_of_their_lines(model, tokenizer, caplog):
    texts = [text_of(line, "html") for line in LINES]
    options = {"longest": 20, "num_return_sequences": 2, "return_dict_in_generate": True}
    plain = list(translate_lines(model, tokenizer, [texts[:2], texts[2:]], align=True, **options))
    assert caplog.text.count("Line 5 has") == 1
    caplog.clear()
    for align in (True, False):
        found = list(translate_lines(model, tokenizer, [LINES[:2], LINES[2:]], markup="html", align=align, **options))
        for number, (line, hypotheses, expected) in enumerate(zip(LINES, found, plain, strict=True)):
            assert len(hypotheses) == len(expected)
            for each, before in zip(hypotheses, expected, strict=True):
                broken = number == 3
                if not broken:
                    assert each.text == put_together(take_apart(line, "html"), before.text, before.alignment)
                assert replace(each, text="", broken_markup=None) == replace(
                    before, text="", alignment=before.alignment if align else None
                )
                assert (each.broken_markup is not None) == broken
                assert not (broken and "<" in each.text)
    assert caplog.text.count("Line 4: broken markup, translated as text: <i> is not closed in this line.") == 2
    assert caplog.text.count("broken markup") == 2
    assert found[1][0].text == ""
    assert found[2][0].text == "<p>"
    one_by_one = [translate(model, tokenizer, [line], markup="html", longest=20) for line in LINES]
    assert [text for [text] in one_by_one] == [best.text for best, *_ in found]
    assert translate(model, tokenizer, LINES, markup="html", longest=20, workers=2) == [best.text for best, *_ in found]


def test_markup_works_with_glossary_and_confidence(model, tokenizer):
    line = "A <b>man</b> sees the dog {when}."
    calibration = Calibration(50.0, 0.5, {"mean_surprisal": -0.5})
    options = {"glossary": Glossary([("dog", "Hund")]), "calibration": calibration}
    [[plain]] = translate_lines(model, tokenizer, [[text_of(line, "xml")]], **options)
    [[found]] = translate_lines(model, tokenizer, [[line]], markup="xml", **options)
    assert (found.terms, found.confidence, found.likelihood) == (plain.terms, plain.confidence, plain.likelihood)
    assert found.terms[0].used == "Hund"
    assert "Hund" in found.text
    assert [found.text.count(tag) for tag in ("<b>", "</b>", "{when}")] == [1, 1, 1]


def test_unsupported_markup_options_are_rejected(model, tokenizer):
    for options, message in (
        ({"markup": "markdown"}, "There is no markup 'markdown': choose xml, html, placeholders"),
        ({"keep_numbers": True}, "Numbers are kept as placeholders are"),
    ):
        with pytest.raises(ValueError, match=message):
            translate(model, tokenizer, SENTENCES, **options)
    for kind in (ExportedModel, OnnxTranslator):
        with pytest.raises(ValueError, match="only torch has: translate with torch"):
            translate(object.__new__(kind), tokenizer, SENTENCES, markup="html")
