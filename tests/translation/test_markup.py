"""Tags and placeholders go out of a line and back into its translation, and none is lost."""

import logging
import random
import re
import time

import pytest

from vanilla_transformer.attention.weights import WordAlignment
from vanilla_transformer.translation import Hypothesis
from vanilla_transformer.translation.markup import BrokenMarkupError, Markup, plain_text, put_together, take_apart

from ..scripts.conftest import load_script


def put_back(line: str, kind: str, translation: str, links: list[int]) -> str:
    """The line's markup in a translation; `links` are of its words, by position in the line's text."""
    marked = take_apart(line, kind)
    words = translation.split()
    source = re.findall(r"\w+|[^\w\s]", marked.text)  # signs are words, as in our alignments
    return put_together(marked, translation, WordAlignment(source, words, links, [1.0] * len(words)))


def test_elements_go_where_their_words_go():
    for line, kind, translation, links, expected in [
        ("A <b>red</b> dog", "html", "Ein Hund rot", [0, 2, 1], "Ein Hund <b>rot</b>"),
        ("<i>A <b>red</b></i> dog", "xml", "Ein roter Hund", [0, 1, 2], "<i>Ein <b>roter</b></i> Hund"),
        ("<b>Up</b> he got", "html", "Er stand auf", [1, 2, 0], "Er stand <b>auf</b>"),
        ("A dog<br> A cat", "html", "Ein Hund Eine Katze", [0, 1, 2, 3], "Ein Hund<br> Eine Katze"),
        ("{name} runs", "placeholders", "rennt", [0], "{name} rennt"),
        ("Mail me@x.org, please", "placeholders", "Bitte mailen", [2, 0], "Bitte mailen me@x.org"),
        ("Tom &amp; Ann", "xml", "Tom & Ann", [0, 1, 2], "Tom &amp; Ann"),
        ("<p></p>", "html", "", [], "<p></p>"),
    ]:
        assert put_back(line, kind, translation, links) == expected, line


def test_what_is_taken_out_of_a_text():
    for line, kind, text in [
        ('<a href="x>y">two</a> <b>dogs</b>', "html", "two dogs"),
        ("one<br>two", "html", "one two"),
        ("a &lt;b&gt; c", "xml", "a <b> c"),
        ("{a} %s %(b)s{{c}} 5% of %%", "placeholders", "5% of"),
        ("see https://e.org/a?b=c. End", "placeholders", "see. End"),
        ("a < b and b > c", "html", "a < b and b > c"),
    ]:
        assert plain_text(line, kind).split() == text.split(), line


def test_broken_markup_is_reported_once_and_is_text(caplog):
    for line, kind, reason in [
        ("A <b>dog", "html", "<b> is not closed in this line"),
        ("A dog</b>", "xml", "</b> ends what has not begun"),
        ("<b><i>x</b></i>", "xml", "<i> is not closed before </b>"),
        ("a < b", "xml", "is no tag"),
        ("a & b", "xml", "not well-formed"),
        ("<b>" * 101 + "x" + "</b>" * 101, "html", "more than 100 elements"),
    ]:
        with pytest.raises(BrokenMarkupError, match=reason):
            take_apart(line, kind)
        markup = Markup(kind)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            text = markup.take_out(line)
        assert [f"Line 1: broken markup, translated as text: {reason}"[:40] in m for m in caplog.messages] == [True]
        words = text.split()
        own = Hypothesis(text, alignment=WordAlignment(words, words, list(range(len(words))), [1.0] * len(words)))
        [found] = markup.put_back([own])
        assert "<" not in found.text
    with pytest.raises(ValueError, match="no markup 'markdown': choose xml, html, placeholders"):
        Markup("markdown")


def test_hostile_lines_take_no_time():
    for sign in ("<", "{", "%", "&", "<a ", '<a b="', "{{", "{a,plural", "http://", "a@", "<!--", "<![CDATA[", "%("):
        for kind in ("xml", "html", "placeholders"):
            started = time.perf_counter()
            plain_text(sign * (10_000 // len(sign)), kind)
            assert time.perf_counter() - started < 2, (sign, kind)


@pytest.mark.parametrize("kind", ["xml", "html", "placeholders"])
def test_random_lines_lose_nothing(kind, caplog):
    faults, draw = load_script("faults/markup"), random.Random(7)
    caplog.set_level(logging.ERROR)
    lines = [faults.draw_line(draw, kind) for _ in range(400)]
    counts = faults.check(lines, kind, lambda text: faults.at_random(draw, text))
    assert counts["lines"] == 400
    assert not [name for name in counts if name.startswith("WRONG")], counts
    if kind != "placeholders":
        assert counts["well-formed"] > 300
        assert counts["reported as broken"] > 5
