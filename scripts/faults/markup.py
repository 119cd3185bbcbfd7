"""Puts the markup of random lines back into random translations: no tag may be lost, invented or badly nested.

    python scripts/faults/markup.py --lines 100000 --seed 1 --model runs/multi30k_en_de --model-lines 1000

The lines are XML, HTML and text with placeholders, a third each. Of every ten, seven are well-formed, with nested and
void elements, comments, entities and placeholders of all kinds; two are such lines damaged, so that tags cross or lack
their other half; and one is hostile text, pieces of markup in any order. (Placeholders have no other half, so none of
their lines is damaged.) Their translations have random words, including pieces of markup, and random alignments, some
of wrong lengths. With `--model`, a model translates more lines.

The right results are known from how a line was made, or from Python's own parsers (xml.etree, html.parser):

- Well-formed lines: each tag and placeholder comes out exactly once; the result is well-formed, and each element is in
  the same element as before; no word of the translation is lost; there is no warning.
- Broken lines: one warning with the line's number; the result has no tags, and each placeholder once.
- Hostile lines: one or the other. XML gets a warning exactly if xml.etree rejects it.

The exit status is 0 if no line has a fault.
"""

import argparse
import json
import logging
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from vanilla_transformer.attention.weights import WordAlignment
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.translation import Hypothesis, translate_lines
from vanilla_transformer.translation.markup import KINDS, Markup


VOID = ("br", "img", "wbr", "hr", "input")
ELEMENTS = ("b", "i", "a", "span", "p", "g", "em", "strong", "code")
SOURCE_WORDS = ("a", "man", "in", "the", "red", "dog", "don't", "runs", "Straße", "日本", "🙂", "Go!", "«so»", "-")
TARGET_WORDS = ("Ein", "Mann", "im", "roten", "Hund", "läuft,", "Park.", "Straße", "日本", "🙂", "„so“", "S-Bahn", ".")
# For translations: words that could be taken for markup.
HOSTILE_WORDS = ("<b>", "</i>", "{x}", "%s", "&", "&lt;", "<script>", "</script>", "]]>", "%", "{", "www.x.org", "\1")
PIECES = (
    *"<>&{}%\"'/!=;# a", "<!--", "-->", "<b>", "</b>", "<i>", "</i>", "<br>", "<br/>", "<script>", "</script>", "]]>",
    "<img src=x onerror=alert(1)>", "<![CDATA[", "<?", "?>", "&lt;", "&#60;", "&amp;lt;", "&amp", "&x;", "&#0;", "\1",
    "\u202e", "\ufffc", "\u00a0", "%s", "{x}", "http://", "@", "dog", " dog ", "5",
)  # fmt: skip
# Placeholders; all but BRACES need separators around them. N makes them different from each other.
BRACES = (
    "{nN}", "{{ nN }}", "${nN}", "#{nN}", "%{nN}", "{N}", "{}", "{nN.x!r:>9}", "{nN[0]}",
    "{nN, plural, one {# dog} other {# dogs}}",
)  # fmt: skip
PERCENTS = ("%s", "%d", "%1$s", "%(nN)s", "%.2f", "%05d", "%%", "%@", "%-8s")
ADDRESSES = ("http://hN.example.org/x?a=1", "https://hN.example.org/?a=1&b=2", "www.hN.example.org/ä", "nN@example.org")


@dataclass
class Line:
    """A line, and how it was made."""

    kind: str
    form: str  # well-formed, broken or hostile
    text: str
    tags: list[str] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    numbers: bool = False


# -------------------------------------------------------------------------------------------------------------- making


class Maker:
    """Makes lines, and translations of texts with alignments."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.number = 100

    def line(self, kind: str) -> Line:
        form = self.random.choices(("well-formed", "broken", "hostile"), (7, 0 if kind == "placeholders" else 2, 1))[0]
        if form == "hostile":
            return Line(kind, form, "".join(self.random.choices(PIECES, k=self.random.randint(1, 30))))
        while True:
            line = Line(kind, form, "", numbers=self.random.random() < 0.3)
            parts = [self.random.choice(SOURCE_WORDS), " ", *self._content(line, self.random.randint(0, 5))]
            if form == "well-formed":
                line.text = "".join(parts)
                return line
            line.text = self._damaged(parts, kind)
            if (tree_of_xml if kind == "xml" else tree_of_html)(line.text) is None:
                return line

    def _content(self, line: Line, depth: int) -> Iterator[str]:
        """The parts of a line: words, tags, placeholders and separators."""
        for _ in range(self.random.randint(0, 4)):
            what = self.random.random()
            self.number += 1
            if what < 0.4 or (what < 0.7 and line.kind == "placeholders"):
                yield self._word(line)
            elif what < 0.6 and depth:
                name = self.random.choice(ELEMENTS)
                start, end = f'<{name} id="{self.number}"{self._attribute(line.kind)}>', f"</{name}>"
                line.tags += [start, end]
                yield start
                yield from self._content(line, depth - 1)
                yield end
            elif what < 0.7:
                point = self._point(line.kind)
                line.tags.append(point)
                yield point
            else:
                yield from self._placeholder(line)
            yield self.random.choice(("", " ", " ", ", "))

    def _word(self, line: Line) -> str:
        words = [*SOURCE_WORDS, "&lt;", "&amp;", "&#228;"] if line.kind != "placeholders" else SOURCE_WORDS
        if line.numbers and self.random.random() < 0.3:
            return f" {self.number} "
        return self.random.choice(words)

    def _attribute(self, kind: str) -> str:
        value = f"h{self.number}.org/&amp;{{n{self.number}}}"
        bare = f" href=http://{value}/" if kind == "html" else ""
        return self.random.choice(("", f' title="{value}"', f" title='a > {value}'", bare))

    def _point(self, kind: str) -> str:
        name, number = self.random.choice(VOID), self.number
        points = [f'<{name} id="{number}"/>', f"<!-- c{number} <b> -->"]
        own = [f"<?p{number} x?>", f'<x id="{number}" />', f"<![CDATA[c{number} < d]]>"]
        other = [f'<{name} id="{number}">', f'<{name.upper()} id="{number}">', f"<script>x{number} < '</b>'</script>"]
        return self.random.choice(points + (own if kind == "xml" else other))

    def _placeholder(self, line: Line) -> Iterator[str]:
        kinds = [BRACES, PERCENTS, ADDRESSES] + [("&nN;",)] * (line.kind == "xml")
        kind = self.random.choice(kinds)
        found = self.random.choice(kind).replace("N", str(self.number))
        if line.kind != "placeholders" and kind is ADDRESSES:
            found = found.replace("&", "&amp;")
        line.placeholders.append(found)
        apart = kind in (PERCENTS, ADDRESSES)
        yield self.random.choice((" ", " (")) if apart else ""
        yield found
        yield self.random.choice((" ", ", ", ") ")) if apart else ""

    def _damaged(self, parts: list[str], kind: str) -> str:
        """A line with broken tags."""
        tags = [i for i, part in enumerate(parts) if part.startswith("<")]
        if not tags or self.random.random() < 0.2:
            wrong = ["<b>", "</b>", "<b", "</b", "<b><i></b></i>", '<b title=">'] + ["<", "&", "&amp"] * (kind == "xml")
            parts.insert(self.random.randint(0, len(parts)), f" {self.random.choice(wrong)} ")
            return "".join(parts)
        i, j = self.random.choice(tags), self.random.choice(tags)
        how = self.random.randrange(3)
        if how == 0:
            del parts[i]
        elif how == 1:
            parts[i], parts[j] = parts[j], parts[i]
        else:
            parts[i] = parts[i][:-1]
        return "".join(parts)

    def translation(self, text: str, tame: bool) -> tuple[str, WordAlignment]:
        """Random words, and a random alignment that does not always fit."""
        source = re.findall(r"\w+|[^\w\s]", text)
        vocabulary = TARGET_WORDS if tame else TARGET_WORDS + HOSTILE_WORDS
        found = " ".join(self.random.choices(vocabulary, k=self.random.randint(0, 2 * len(source) + 2)))
        target = re.findall(r"\w+|[^\w\s]", found)
        if self.random.random() < 0.1:  # as if the tokenizer had changed words
            source, target = (words[: self.random.randint(0, len(words))] for words in (source, target))
        last = len(source) - 1
        straight = self.random.random() < 0.5
        links = [min(i, last) if straight else self.random.randint(0, max(0, last)) for i in range(len(target))]
        links = [-1 if self.random.random() < 0.02 else link for link in links]
        return found, WordAlignment(source, target, links, [1.0] * len(links))


# ------------------------------------------------------------------------------------------------------------ checking


def tree_of_xml(text: str) -> Counter | None:
    """Each element, comment and instruction of a line with its parent element; None if the line is not well-formed."""
    text = re.sub(r"&(?!(?:amp|lt|gt|quot|apos);)[a-z]\w*;", "", text)  # declared elsewhere
    builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
    try:
        root = ElementTree.fromstring(f"<r>{text}</r>", ElementTree.XMLParser(target=builder))
    except (ElementTree.ParseError, UnicodeEncodeError):
        return None

    def name(element) -> tuple:
        own = element.text if callable(element.tag) else ""
        return (str(element.tag), own, *sorted(element.attrib.items()))

    return Counter((name(child), name(parent)) for parent in root.iter() for child in parent)


class TreeOfHtml(HTMLParser):
    """Each start tag and comment with its parent element, and whether elements are closed."""

    def __init__(self):
        super().__init__()
        self.nodes, self.stack, self.fits = Counter(), [("", ())], True

    def handle_starttag(self, tag, attrs):
        node = (tag, tuple(attrs))
        self.nodes[node, self.stack[-1]] += 1
        if tag not in VOID:
            self.stack.append(node)

    def handle_startendtag(self, tag, attrs):
        self.nodes[(tag, tuple(attrs)), self.stack[-1]] += 1

    def handle_endtag(self, tag):
        if self.stack[-1][0] == tag:
            self.stack.pop()
        else:
            self.fits = False

    def handle_comment(self, data):
        self.nodes[("comment", data), self.stack[-1]] += 1


def tree_of_html(text: str) -> Counter | None:
    """The same for HTML."""
    parser = TreeOfHtml()
    parser.feed(text)
    unread = parser.rawdata
    parser.close()
    return parser.nodes if parser.fits and len(parser.stack) == 1 and "<" not in unread else None


def faults_of(line: Line, text: str, translation: str | None, warnings: list[str], number: int) -> Iterator[str]:
    """The faults in the result of a line.

    Args:
        line: The line.
        text: The line with the markup put back.
        translation: The translation of its text; None if it may look like markup.
        warnings: The logged warnings.
        number: The line's number.
    """
    tree_of = {"xml": tree_of_xml, "html": tree_of_html}.get(line.kind)
    broken = line.form == "broken"
    if line.form == "hostile":
        broken = bool(warnings)  # with or without a warning, but the rest must agree
        alone = not re.sub(r"<[^<>]*>|\s", "", line.text)  # its elements may continue in other lines
        if line.kind == "xml" and broken != (tree_of(line.text) is None) and text != line.text and not alone:
            yield "a warning of what is well-formed" if warnings else "no warning"
    if len(warnings) != int(broken) or not all(f"Line {number:,}: broken markup" in each for each in warnings):
        yield f"warned {warnings}"
    if tree_of and (line.form != "hostile" or line.kind == "xml" or warnings) and text != line.text:
        before, after = tree_of(line.text), tree_of(text)
        if after is None:
            yield "not well-formed"
        elif after != (Counter() if broken else before):
            yield "not the elements that were there, each in its own"
    if line.form == "hostile":
        return
    for tag in () if broken else line.tags:
        if text.count(tag) != line.text.count(tag):
            yield f"{tag} {text.count(tag)} times"
    for placeholder, times in Counter(line.placeholders).items():
        pattern, searched = re.escape(placeholder), text
        if "example.org" in placeholder:
            letter = r"[^\W\u3040-\u9fff]"  # Japanese has no blanks
            is_url = "/" in placeholder
            pattern = rf"(?<!{letter}){pattern}(?!{letter}|/)" if is_url else rf"{pattern}(?!{letter})"
        elif placeholder[0] == "%" and placeholder[1] not in "{(":
            searched = text.replace("%%", "\0")
            pattern = "\0" if placeholder == "%%" else rf"(?<!\d){pattern}(?![^\W_])"
        there = len(re.findall(pattern, searched))
        if there != times:
            yield f"{placeholder} {there} times"
    if line.numbers and not broken and _numbers(text) != _numbers(line.text):
        yield "other numbers"
    if translation is not None and not broken and line.kind == "xml" and text != line.text:
        words = "".join(ElementTree.fromstring(f"<r>{re.sub(r'&n[0-9]+;', '', text)}</r>").itertext())
        for found in sorted(line.placeholders, key=len, reverse=True):
            words = words.replace(found.replace("&amp;", "&"), "", 1)
        for data in re.findall(r"<!\[CDATA\[(.*?)\]\]>", line.text):
            words = words.replace(data, "", 1)
        if "".join(re.sub(r"\d", "", words).split()) != "".join(translation.split()):
            yield "other words than the translation has"


def _numbers(text: str) -> Counter:
    return Counter(re.findall(r"(?<!&#)(?<!\d)\d+", text))


class Warnings(logging.Handler):
    """Keeps the warnings of the package while a block of code runs."""

    def __enter__(self) -> list[str]:
        self.messages, self.log = [], logging.getLogger("vanilla_transformer")
        self.log.addHandler(self)
        self.before, self.log.propagate = self.log.propagate, False
        return self.messages

    def __exit__(self, *_):
        self.log.removeHandler(self)
        self.log.propagate = self.before

    def emit(self, record):
        self.messages.append(record.getMessage())


def with_random_translations(maker: Maker, lines: int) -> Iterator[tuple[Line, str, list[str], str]]:
    """Lines with their result, the warnings, and the faults."""
    for i in range(lines):
        line = maker.line(KINDS[i % len(KINDS)])
        markup, tame = Markup(line.kind, line.numbers), maker.random.random() < 0.7
        with Warnings() as warnings:
            text = markup.take_out(line.text)
        translation, alignment = maker.translation(text, tame)
        [found] = markup.put_back([Hypothesis(translation, alignment=alignment)])
        wrong = faults_of(line, found.text, translation if tame else None, warnings, 1)
        yield line, found.text, warnings, "; ".join(wrong)


def with_a_model(maker: Maker, folder: Path, lines: int) -> Iterator[tuple[Line, str, list[str], str]]:
    """The same, with translations by a model."""
    model, tokenizer = load_model(folder)
    for kind in KINDS:
        made = [maker.line(kind) for _ in range(lines // len(KINDS))]
        for line in made:
            line.numbers = False
        texts = [line.text for line in made]
        with Warnings() as messages:
            found = [best.text for best, *_ in translate_lines(model, tokenizer, [texts], markup=kind, num_beams=2)]
        for number, (line, text) in enumerate(zip(made, found, strict=True), start=1):
            warnings = [each for each in messages if each.startswith(f"Line {number:,}: ")]
            yield line, text, warnings, "; ".join(faults_of(line, text, None, warnings, number))


def table(found: Iterator[tuple[Line, str, list[str], str]], title: str) -> dict:
    """Prints how many lines of each kind and form there were, and their faults."""
    counts: dict[str, Counter] = {}
    examples = []
    for line, text, warnings, wrong in found:
        row = counts.setdefault(f"{line.kind}, {line.form}", Counter())
        row.update(lines=1, tags=len(line.tags), placeholders=len(line.placeholders), warnings=len(warnings))
        row.update(faults=bool(wrong))
        if wrong and len(examples) < 10:
            examples.append(f"{wrong}\n    {line.text!r}\n    {text!r}")
    columns = ("lines", "tags", "placeholders", "warnings", "faults")
    print(f"{title}\n\n| | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    for name in sorted(counts):
        print(f"| {name} | {' | '.join(f'{counts[name][column]:,}' for column in columns)} |")
    total = sum(counts.values(), Counter())
    print(f"| all | {' | '.join(f'{total[column]:,}' for column in columns)} |\n")
    print(*examples, sep="\n", end="\n" if examples else "", file=sys.stderr)
    return {"rows": {name: dict(row) for name, row in counts.items()}, "faults": total["faults"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000, help="with random translations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, help="run folder or model whose translations are tried too")
    parser.add_argument("--model-lines", type=int, default=300)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    maker, begin = Maker(arguments.seed), time.perf_counter()
    figures = {"random": table(with_random_translations(maker, arguments.lines), "Random translations and alignments")}
    figures["seconds"] = time.perf_counter() - begin
    if arguments.model:
        title = "Translations of a model, with its own alignment"
        figures["model"] = table(with_a_model(maker, arguments.model, arguments.model_lines), title)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    sys.exit(1 if any(part["faults"] for part in figures.values() if isinstance(part, dict)) else 0)


if __name__ == "__main__":
    main()
