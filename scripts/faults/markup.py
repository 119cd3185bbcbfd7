"""Lines with tags and placeholders of all kinds, whole and broken: what `translate --markup` does to them.

    python scripts/faults/markup.py --lines 100000
    python scripts/faults/markup.py --lines 1000 --model runs/multi30k_en_de

Lines are drawn from a seed: nested elements with hostile attributes, comments, void elements, placeholders, URLs,
entities, broken tags, and characters that regular expressions stumble over. Without a model the "translation" is words
drawn at random, linked at random, so that no luck of an alignment helps. Of every line is checked:

- each tag and each placeholder of the line is in the result, exactly once, and no other;
- if the line is well-formed by a parser that is not ours (xml.etree, html.parser), the result is, with the same tree;
- a line that is broken is reported once, and has no tags in the result: they are text.
"""

import argparse
import logging
import random
import re
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser

from vanilla_transformer.attention.weights import WordAlignment
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import Hypothesis, translate_lines
from vanilla_transformer.translation.markup import KINDS, Markup, plain_text


TEXT = 'a man in blue is on the ladder, two dogs run. "Yes!" (perhaps) it\'s 3.5 42 & co; straße naïve 日本 مرحبا 🙂 …'
WORDS = TEXT.split()
NAMES = {"xml": ["a", "b", "g", "x:ref", "bpt", "Über"], "html": ["a", "b", "em", "span", "p", "div", "I", "td"]}
ATTRIBUTES = [
    "",
    ' id="1"',
    " class='x y'",
    ' title="a &gt; b"',
    ' href="http://e.org/?a=1&amp;b=2"',
    ' on="<"',
    ' k="/"',
]
VOID = {
    "xml": ["<x/>", '<ph id="3"/>', "<!-- a > b -->", "<?pi x?>"],
    "html": ["<br>", '<img src="x">', "<hr/>", "<!-- <b> -->"],
}
PLACEHOLDERS = [
    *("{name}", "{0}", "{}", "{x.y[2]!r:>9}", "{{ user }}", "${HOME}", "%s", "%(name)s", "%1$d", "%%", "%.2f"),
    *("https://example.org/a?b=c", "www.example.org", "me@example.org", "{n, plural, one {# dog} other {# dogs}}"),
]
HOSTILE = [
    "{",
    "}",
    "%",
    "&",
    "&amp",
    "&unknown;",
    "<",
    ">",
    "< b",
    "<3",
    "</",
    "<!",
    "]]>",
    "'",
    '"',
    "\\",
    "\u200b",
    "\ufffc",
]


def draw_text(draw: random.Random, kind: str, depth: int = 0) -> str:
    """Well-formed markup among words; of the kind placeholders no tags."""
    parts = []
    for _ in range(draw.randrange(1, 5)):
        what = draw.random()
        if what < 0.2:
            parts.append(draw.choice(PLACEHOLDERS).replace("&", "&amp;"))
        elif kind != "placeholders" and what < 0.35 and depth < 5:
            name = draw.choice(NAMES[kind])
            attributes = draw.choice(ATTRIBUTES).replace("<", "&lt;" if kind == "xml" else "<")
            inner = draw_text(draw, kind, depth + 1) if draw.random() < 0.9 else ""
            parts.append(f"<{name}{attributes}>{inner}</{name}>")
        elif kind != "placeholders" and what < 0.45:
            parts.append(draw.choice(VOID[kind]))
        else:
            words = draw.choices(WORDS, k=draw.randrange(1, 6))
            parts.append(" ".join(words).replace("&", "&" if kind == "placeholders" else "&amp;"))
    return "".join(f"{part}{draw.choice(['', ' ', ' '])}" for part in parts)


def draw_line(draw: random.Random, kind: str) -> str:
    """One in five may be broken: a stretch is cut out, doubled, or has something hostile put in."""
    line = draw_text(draw, kind)
    if draw.random() < 0.2:
        start, end = sorted(draw.randrange(len(line) + 1) for _ in range(2))
        line = draw.choice(
            [line[:start] + line[end:], line[:end] + line[start:], line[:start] + draw.choice(HOSTILE) + line[start:]]
        )
    return line


class _Tree(HTMLParser):
    """The tree of HTML: names and attributes of elements by depth; wrong if an end does not fit."""

    def __init__(self, line: str):
        super().__init__(convert_charrefs=True)
        self.found: list = []
        self.open: list[str] = []
        self.wrong = False
        self.feed(line)
        self.close()
        self.wrong = self.wrong or bool(self.open)

    def handle_starttag(self, tag, attrs):
        self.found.append((tuple(self.open), tag, tuple(attrs)))
        if tag not in ("br", "img", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tuple(self.open), tag, tuple(attrs)))

    def handle_endtag(self, tag):
        if self.open[-1:] != [tag]:
            self.wrong = True
        else:
            self.open.pop()

    def handle_comment(self, data):
        self.found.append((tuple(self.open), "!", data))


def tree_of(line: str, kind: str):
    """The elements of a line, each with the path to it, by a parser that is not ours; None if they are broken."""
    if kind == "html":
        tree = _Tree(line)
        return None if tree.wrong else Counter(tree.found)
    try:
        parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True, insert_pis=True))
        declared = ' xmlns:x="x"'
        root = ElementTree.fromstring(f"<r{declared}>{line}</r>", parser)
    except (ElementTree.ParseError, ValueError):
        return None

    def walk(element, path) -> Iterator:
        for child in element:
            name = child.tag if isinstance(child.tag, str) else child.text
            yield path, name, tuple(sorted(child.attrib.items()))
            yield from walk(child, (*path, name))

    return Counter(walk(root, ()))


def at_random(draw: random.Random, text: str) -> Hypothesis:
    """Words in place of a translation, linked with those of the text as luck has it."""
    source, target = text.split(), draw.choices(WORDS, k=draw.randrange(0, 12))
    links = [draw.randrange(len(source)) if source else 0 for _ in target]
    return Hypothesis(" ".join(target), alignment=WordAlignment(source, target, links, [1.0] * len(target)))


def by_model(path: str, lines: list[str], kind: str) -> Callable[[str], Hypothesis]:
    """The translations of the lines' texts, all made at once."""
    texts = list(dict.fromkeys(plain_text(line, kind) for line in lines))
    found = translate_lines(*load_model(path, "cpu"), [texts], align=True, num_beams=1)
    return {text: best for text, (best, *_) in zip(texts, found, strict=True)}.__getitem__


def placeholders_in(text: str) -> Counter:
    """Some that are easy to count by other means than ours."""
    text = text.replace("%%", "")  # in %%(name)s there is none
    found = Counter({each: text.count(each) for each in ("{name}", "${HOME}", "%(name)s", "{{ user }}")})
    return found + Counter(re.findall(r"(?<![\w.+@-])me@example\.org(?![\w@-])", text))


def check(lines: list[str], kind: str, translate: Callable[[str], Hypothesis]) -> Counter:
    """Counts lines by what they were and what went wrong with them."""
    counts: Counter = Counter()
    for line in lines:
        markup = Markup(kind)
        text = markup.take_out(line)
        [result] = markup.put_back([translate(text)])
        before = None if kind == "placeholders" else tree_of(line, kind)
        counts["lines"] += 1
        counts["reported as broken"] += markup.broken
        if markup.broken and kind != "placeholders" and tree_of(result.text, kind):
            counts["WRONG: a broken line has tags"] += 1
        if not markup.broken:
            if placeholders_in(result.text) != placeholders_in(line):
                counts["WRONG: placeholders"] += 1
            if before is not None:
                counts["well-formed"] += 1
                counts["WRONG: another tree"] += tree_of(result.text, kind) != before
        elif before is not None:
            counts["reported, but another parser takes them"] += 1
    return +counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", help="a run or a model's folder to translate with")
    arguments = parser.parse_args()
    logging.getLogger("vanilla_transformer").setLevel(logging.ERROR)  # that a line is broken is counted
    draw = random.Random(arguments.seed)
    total, started = Counter(), time.monotonic()
    for number, kind in enumerate(KINDS):
        share = arguments.lines * (number + 1) // 3 - arguments.lines * number // 3
        lines = [draw_line(draw, kind) for _ in range(share)]
        counts = check(
            lines, kind, by_model(arguments.model, lines, kind) if arguments.model else partial(at_random, draw)
        )
        print(f"{kind}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        total += counts
    wrong = sum(count for name, count in total.items() if name.startswith("WRONG"))
    print(f"{total['lines']:,} lines in {time.monotonic() - started:.0f} seconds, {wrong} of them wrong.")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
