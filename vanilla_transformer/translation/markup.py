"""Tags and placeholders: taken out of a line before it is translated, and put back by word alignment.

A line with markup is a tree: elements with what they stand around, and points (void and self-closing elements,
comments, placeholders …). The model translates the text without it. Then each element goes around the words of the
translation that were made from its words, and each point beside the one made from its neighbour.

Whatever the alignment says, the tree's shape stays: a child gets its place within its parent's words, and siblings
share these without overlap. So no tag is lost or invented, and what was well-formed is well-formed.
"""

import logging
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape, unescape
from xml.parsers import expat

from ..attention.weights import WordAlignment
from .decoding import Hypothesis
from .lines import MOST_LINES


logger = logging.getLogger(__name__)

KINDS = ("xml", "html", "placeholders")
DEEPEST = 100  # elements in one another

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[^\W\d][^\s<>/\"'=]*)(?P<rest>(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>")
_OTHER = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![A-Za-z][^<>]*>", re.DOTALL)
_VOID = frozenset(
    re.findall(
        r"\w+",
        """
        area base br col embed hr img input link meta param source track wbr
        """,
    )
)
# what they hold is no text
_RAW = frozenset(
    re.findall(
        r"\w+",
        """
        script style xmp iframe noembed noframes
        """,
    )
)
# words before and after one of these tags do not belong together
_BREAKING = frozenset(
    re.findall(
        r"\w+",
        """
        address article aside blockquote br caption dd div dl dt fieldset figcaption figure footer form h1 h2 h3
        h4 h5 h6 header hr img input legend li main nav ol option p pre section select table tbody td tfoot th
        thead tr ul
        """,
    )
)
_PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}"  # {{ name }}
    r"|\{\w+,\s*(?:plural|select|selectordinal)\b(?:[^{}]|\{[^{}]*\})*\}"  # of ICU, as a whole
    r"|[$#%]?\{\w*(?:\.\w+|\[\w+\])*(?:![rsa])?(?::[^{}\s]*)?\}"  # {0} {name} {x.y!r:>9} ${x} #{x} %{x}
    r"|%%|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.\d+)?(?:hh|h|ll|l|z)?[diouxXeEfFgGcrsa@](?![^\W_])"
    r"|(?:\b(?:https?|ftp)://|\bwww\.)(?:(?!&(?:quot|apos|lt|gt|nbsp|#\w+);)[^\s<>\"'{}])*(?:&amp;|[^\s<>\"'{}.,;:!?)\]»”…&](?![\w]*;))"
    r"|[\w.+-]*\w@\w[\w-]*(?:\.[\w-]*\w)+"
)
_NUMBER = r"|(?<![\w.,])\d+(?:[.,:/]\d+)*(?!\w)"
_UNKNOWN_ENTITY = r"|&(?!(?:amp|lt|gt|quot|apos);|\#)[\w:][\w.:-]*;"  # of XML: what it stands for is elsewhere
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OPENING, _CLOSING = "([«„“‘¿¡\"'", ".,;:!?)]»”’…\"'"
_POINT = "\ufffc"  # stands for a point where characters beside it are compared


class BrokenMarkupError(ValueError):
    """A line whose tags do not fit together."""


@dataclass
class Node:
    """An element or a point of a line, with its place in the text without markup."""

    before: str  # the start tag; all of a point
    after: str = ""
    is_point: bool = False
    is_placeholder: bool = False
    start: int = 0
    end: int = 0
    left: str = ""  # of a point: the characters that it stood between, "" at an end of the line
    right: str = ""
    children: list["Node"] = field(default_factory=list)


@dataclass
class MarkedLine:
    """A line in its parts: the text that is to be translated, and its markup as a tree."""

    line: str
    text: str
    root: Node
    kind: str  # one of `KINDS`


# -------------------------------------------------------------------------------------------------------- taking apart


def take_apart(line: str, kind: str, keep_numbers: bool = False) -> MarkedLine:
    """Separates a line's text from its markup.

    A line of nothing but tags may have elements that begin or end in other lines.

    Args:
        line: The line; with "xml" and "html" its entities are decoded in the text.
        kind: One of `KINDS`; placeholders are taken out with each.
        keep_numbers: Whether numbers are placeholders too.

    Raises:
        BrokenMarkupError: Elements cross or are not closed in this line, or a `<` or `&` may not be there.
    """
    root = Node("")
    atoms, stack, names, partial = [], [root], [""], ""
    for raw, match in [(line, None)] if kind == "placeholders" else _tokens(line, kind):
        if match is None:
            for atom in _in_text(raw, kind, keep_numbers):
                atoms.append(atom)
                if isinstance(atom, Node):
                    stack[-1].children.append(atom)
            continue
        name = match["name"] if match.re is _TAG else ""
        name = name.lower() if kind == "html" else name
        if name and match["end"] and name == names[-1]:
            names.pop()
            stack[-1].after = raw
            atoms.append((stack.pop(),))
            continue
        if name and match["end"]:
            if name in names:
                raise BrokenMarkupError(f"<{names[-1]}> is not closed before {raw}")
            partial = f"{raw} ends what has not begun in this line"
        alone = not name or match["end"] or _stands_alone(name, match["rest"], kind)
        node = Node(raw, is_point=bool(alone))
        stack[-1].children.append(node)
        atoms.append(node)
        if not alone:
            stack.append(node)
            names.append(name)
            if len(stack) > DEEPEST + 1:
                raise BrokenMarkupError(f"more than {DEEPEST} elements are in one another")
    if len(stack) > 1:
        partial = f"<{names[-1]}> is not closed in this line"
    text = _settle(atoms)
    root.end = len(text)
    if text.strip() and partial:
        raise BrokenMarkupError(partial)
    if kind == "xml" and not partial and not re.match(r"\s*<(?:\?xml\b|!DOCTYPE)", line):
        _check_xml(line)
    return MarkedLine(line, text, root, kind)


def _stands_alone(name: str, rest: str, kind: str) -> bool:
    """Whether a tag is a whole element."""
    if kind == "xml":
        return rest.endswith("/")
    # In <a href=x/> the slash belongs to the address.
    return name in _VOID | _RAW or re.search(r"(?:^|[\s\"'])/$", rest) is not None


def _tokens(line: str, kind: str) -> Iterator[tuple[str, re.Match | None]]:
    """Texts, and tags and other markup with their matches."""
    at = start = 0
    while (at := line.find("<", at)) >= 0:
        match = _TAG.match(line, at) or _OTHER.match(line, at)
        if match is None:
            if kind == "html" and not re.match(r"<[A-Za-z/!?]", line[at : at + 2]):
                at += 1  # in HTML this is text
                continue
            raise BrokenMarkupError(f"{line[at : at + 20]!r} is no tag")
        if start < at:
            yield line[start:at], None
        end = match.end()
        if kind == "html" and match.re is _TAG and not match["end"] and match["name"].lower() in _RAW:
            closing = re.compile(rf"</{match['name']}\s*>", re.IGNORECASE).search(line, end)
            if closing is None:
                raise BrokenMarkupError(f"<{match['name']}> is not closed in this line")
            end = closing.end()
        yield line[at:end], match
        at = start = end
    if start < len(line):
        yield line[start:], None


def _in_text(raw: str, kind: str, keep_numbers: bool) -> Iterator[str | Node]:
    """The texts and placeholders of a line's text."""
    pattern = _PLACEHOLDER.pattern + (_NUMBER if keep_numbers else "") + (_UNKNOWN_ENTITY if kind == "xml" else "")
    decoded = (lambda text: text) if kind == "placeholders" else unescape
    at = 0
    for match in re.finditer(pattern, raw):
        yield decoded(raw[at : match.start()])
        yield Node(match[0], is_point=True, is_placeholder=True)
        at = match.end()
    yield decoded(raw[at:])


def _check_xml(line: str) -> None:
    parser = expat.ParserCreate("utf-8")
    parser.UseForeignDTD(True)  # entities may be declared elsewhere
    try:
        parser.Parse(f"<r>{line}</r>".encode(), True)
    except expat.ExpatError as error:
        raise BrokenMarkupError(f"{expat.ErrorString(error.code)} at byte {error.offset - 2}") from error
    except UnicodeEncodeError as error:
        raise BrokenMarkupError("half of a surrogate pair") from error


def _settle(atoms: Sequence[str | Node | tuple[Node]]) -> str:
    """The text of a line; every node gets its place in it, and every point the characters beside it.

    Args:
        atoms: In their order texts, points, elements where they begin, and `(element,)` where they end.
    """
    text, last = "", ""
    between: list[Node | tuple[Node]] = []  # what has come since the last text
    point = None  # the last one, if no text has come since
    for atom in filter(None, atoms):
        if isinstance(atom, str):
            if point is not None:
                point.right = atom[0]
            text = _joined(text, between, atom)
            last, between, point = atom[-1], [], None
            continue
        between.append(atom)
        if isinstance(atom, tuple):
            atom[0].end = len(text)
            continue
        atom.start = atom.end = len(text)
        if atom.is_point:
            if point is not None:
                point.right = _POINT
            atom.left, last, point = last, _POINT, atom
    return text


def _joined(text: str, between: Sequence[Node | tuple[Node]], more: str) -> str:
    """Text and more of it, with one blank between words that the markup between them held apart."""
    points = [isinstance(each, Node) and each.is_point for each in between]
    if any(points) and (not text or text[-1].isspace()):
        more = more.lstrip()
        if all(points) and more and more[0] in _CLOSING:
            text = text.rstrip()
    elif text and between and more[0] > " " and not text[-1].isspace():
        tags = [each[0] if isinstance(each, tuple) else each for each in between]
        names = [re.match(r"</?(\w*)", node.before) for node in tags]
        ends = [isinstance(each, tuple) for each in between]
        apart = any(ends) and not all(ends)  # one element ends, and another begins
        apart = apart or any(name is not None and name[1].lower() in _BREAKING for name in names)
        if apart or (any(points) and text[-1].isalnum() and more[0].isalnum()):
            text += " "
    return text + more


# ---------------------------------------------------------------------------------------------------- putting together


def put_together(marked: MarkedLine, text: str, alignment: WordAlignment) -> str:
    """The translation of a line's text with the line's markup.

    Args:
        marked: The line in its parts.
        text: The translation of its text.
        alignment: Which words of the one were made from which of the other. Whatever it says, every tag and placeholder
            of the line is in the result once, and the elements are in one another as they were.
    """
    if not marked.text.strip():
        return marked.line
    layout = _Layout(marked.text, text, alignment)
    layout.lay(marked.root, 0, len(layout.words))
    found = _written(layout.parts, marked.kind)
    if Counter(_PLACEHOLDER.findall(found)) != Counter(_PLACEHOLDER.findall(marked.line)):
        # The translation itself has something that looks like a placeholder, or is so beside one.
        found = _written(layout.parts, marked.kind, apart=True)
    return found


class _Layout:
    """Lays the nodes of a line around the words of its translation.

    `parts` is the result: pairs of a name (word, blank, open, close or point) and a text, or the node of a point.
    """

    def __init__(self, source_text: str, text: str, alignment: WordAlignment):
        self.text = text
        self.source = _word_spans(alignment.source, source_text)
        self.words = _word_spans(alignment.target, text)
        self.links = [link if 0 <= link < len(self.source) else None for link in alignment.links]
        self.links += [None] * (len(self.words) - len(self.links))
        self.starts = [start for start, _ in self.source]
        self.parts: list[tuple[str, str | Node]] = []
        self.blanks = 0  # words whose blank has been written

    def lay(self, node: Node, low: int, high: int) -> None:
        """Writes the words low to high, which are a node's, with its children among them."""
        at = low
        for begin, end, child in self._places(node, low, high):
            self._write(at, begin)
            at = end
            if child.is_point:
                self.parts.append(("point", child))
                continue
            if begin < end:
                self._write_blank(begin)
            self.parts.append(("open", child.before))
            self.lay(child, begin, end)
            self.parts.append(("close", child.after))
        self._write(at, high)

    def _write(self, begin: int, end: int) -> None:
        for word in range(begin, end):
            self._write_blank(word)
            start, stop = self.words[word]
            self.parts.append(("word", self.text[start:stop]))

    def _write_blank(self, word: int) -> None:
        if word == self.blanks and word and self.words[word - 1][1] < self.words[word][0]:
            self.parts.append(("blank", self.text[self.words[word - 1][1] : self.words[word][0]]))
        self.blanks = max(self.blanks, word + 1)

    def _places(self, node: Node, low: int, high: int) -> list[tuple[int, int, Node]]:
        """Words begin to end of each child, one behind the other; of points and empty elements these are equal."""
        children = [child for child in node.children if child.start < child.end]
        starts = [child.start for child in children]
        owned: list[list[int]] = [[] for _ in children]
        reached: dict[int, list[int]] = {}  # the first and last word made from each word of the source
        for word in range(low, high):
            link = self.links[word]
            if link is None:
                continue
            reached.setdefault(link, [word, word])[1] = word
            start, end = self.source[link]
            owner = bisect_right(starts, max(start, end - 1)) - 1
            if owner >= 0 and children[owner].end > start:
                owned[owner].append(word)
        wide = _disjoint([(*_interval(words), number, words) for number, words in enumerate(owned) if words])
        places = {id(children[number]): (begin, end) for begin, end, number in wide}
        found, order = [], {id(child): number for number, child in enumerate(node.children)}
        for number, child in enumerate(node.children):
            if id(child) not in places:
                gap = self._gap(node, child, reached, low, high)
                for begin, end, other in wide:
                    if begin < gap < end:  # not into an element that it was not in
                        gap = begin if number < order[id(children[other])] else end
                found.append((gap, gap, number, child))
            else:
                found.append((*places[id(child)], number, child))
        return [(begin, end, child) for begin, end, _, child in sorted(found, key=lambda each: each[:3])]

    def _gap(self, parent: Node, child: Node, reached: dict[int, list[int]], low: int, high: int) -> int:
        """The word before which a point, or an element that nothing was made from, comes."""
        first, after = (bisect_right(self.starts, place - 1) for place in (parent.start, parent.end))
        right = bisect_right(self.starts, child.start - 1)
        left, beyond = right - 1, bisect_right(self.starts, child.end - 1)
        if left < first:
            return low
        if beyond >= after:
            return high
        lefts = (reached[word][1] + 1 for word in range(left, first - 1, -1) if word in reached)
        rights = (reached[word][0] for word in range(beyond, after) if word in reached)
        to_the_right = child.is_point and (not child.left or child.left.isspace()) and not child.right.isspace()
        near = rights if to_the_right and right in reached else lefts
        return next(near, next(rights, low))


def _word_spans(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where each word is in a text. Words that a tokenizer has changed get a share of it."""
    places = [place for place, character in enumerate(text) if not character.isspace()]
    total = sum(map(len, words))
    if not places or not total:
        return [(places[0], places[-1] + 1)] if places else []
    found, length, begin = [], 0, 0
    for word in words:
        length += len(word)
        end = length * len(places) // total
        start = places[begin] if begin < len(places) else places[-1] + 1
        found.append((start, places[end - 1] + 1 if end > begin else start))
        begin = end
    return found


def _interval(words: Sequence[int]) -> tuple[int, int]:
    """The stretch with most of the given words and fewest others, so that one wrong link does not widen it."""
    best, start, value = (0, 0, 0), words[0], 0
    for previous, word in zip([words[0], *words], words, strict=False):
        value -= max(0, word - previous - 1)
        if value < 0:
            start, value = word, 0
        value += 1
        best = max(best, (value, word + 1 - start, start))
    return best[2], best[2] + best[1]


def _disjoint(wide: list[tuple[int, int, int, list[int]]]) -> list[tuple[int, int, int]]:
    """Elements (begin, end, number, words) in the order of their words, each cut where the next one begins."""
    wide = sorted(wide, key=lambda each: (each[0] + each[1], each[2]))
    found: list[tuple[int, int, int]] = []
    for begin, end, number, words in wide:
        if found and begin < found[-1][1]:
            start, stop, other = found[-1]
            others = next(each[3] for each in wide if each[2] == other)
            lost = {
                cut: sum(cut <= word < stop for word in others) + sum(begin <= word < cut for word in words)
                for cut in range(start, stop + 1)
            }
            cut = min(lost, key=lost.__getitem__)
            found[-1] = (start, cut, other)
            begin, end = max(begin, cut), max(end, cut)
        found.append((begin, max(begin, end), number))
    return found


# ------------------------------------------------------------------------------------------------------------- writing


def _written(parts: list[tuple[str, str | Node]], kind: str, *, apart: bool = False) -> str:
    """The parts as a line, its text encoded.

    Args:
        parts: Those of a `_Layout`.
        kind: One of `KINDS`.
        apart: Whether placeholders have blanks on both sides, and text that looks like one is left out.
    """
    parts = list(parts)
    blanks = {}  # before which part there is one more
    for i, (name, node) in enumerate(parts):
        if name != "point":
            continue
        (left, left_blank, before), (right, right_blank, behind) = (_beside(parts, i, step) for step in (-1, 1))
        gap = left_blank is not None or right_blank is not None
        if _wants_blank(node.left, left, gap, _OPENING) or (apart and left):
            if left_blank is None:
                blanks[before] = " "
        elif left_blank is not None and left != _POINT:
            parts[left_blank] = ("blank", "")
        if right == _POINT:
            continue
        if _wants_blank(node.right, right, gap, _CLOSING) or (apart and right):
            if right_blank is None:
                blanks[behind] = " "
        elif right_blank is not None:
            parts[right_blank] = ("blank", "")
    runs: list[list] = []  # texts, and what stands between them as it is
    for i, (name, value) in enumerate(parts):
        for is_text, piece in ((True, blanks.get(i, "")), (name in ("word", "blank"), value)):
            piece = piece.before if isinstance(piece, Node) else piece
            if runs and runs[-1][0] == is_text:
                runs[-1][1] += piece
            else:
                runs.append([is_text, piece])
    return "".join(_encoded(piece, kind, apart) if is_text else piece for is_text, piece in runs) + blanks.get(
        len(parts), ""
    )


def _beside(parts: list[tuple[str, str | Node]], i: int, step: int) -> tuple[str, int | None, int]:
    """The next character on one side of a point ("" at the end), the blank before it, and where one would go."""
    blank, place, only = None, i, "open" if step < 0 else "close"
    at, outside = i + step, False
    while 0 <= at < len(parts):
        name, value = parts[at]
        if name == "point":
            return _POINT, blank, place if step < 0 else place + 1
        if name == "word" and value:
            return value[-1 if step < 0 else 0], blank, place if step < 0 else place + 1
        if name == "blank" and value:
            blank = at
        outside = outside or name != only
        if not outside:  # a blank goes outside tags that have the point alone
            place = at
        at += step
    return "", blank, place if step < 0 else place + 1


def _wants_blank(source: str, target: str, gap: bool, marks: str) -> bool:
    """Whether there is to be a blank between a point and the character beside it.

    Args:
        source: What was beside the point.
        target: What is there now; "" is the end of the line.
        gap: Whether the translation has a blank where the point goes.
        marks: Punctuation that may stand close to a word on this side.
    """
    if not target:
        return False
    if not source or source.isspace():
        return gap or target not in marks
    if target == _POINT:
        return False
    if source.isalnum() and target.isalnum():
        return target.isdigit()
    return gap


def _encoded(text: str, kind: str, apart: bool) -> str:
    if apart:
        text = re.sub(f"{_PLACEHOLDER.pattern}|[{{}}]", " ", text)
    if kind == "xml":
        text = _NOT_XML.sub("", text)
    return text if kind == "placeholders" else escape(text, quote=False)


# --------------------------------------------------------------------------------------------------------------- lines


class Markup:
    """Takes the markup out of lines, and puts it back into their translations, in the same order.

    A line with broken markup is reported with its number, and translated as text: with "xml" and "html" its translation
    has `&lt;` for `<`.

    Args:
        kind: One of `KINDS`.
        keep_numbers: Whether numbers are placeholders too.

    Raises:
        ValueError: There is no such kind.
    """

    def __init__(self, kind: str, keep_numbers: bool = False):
        if kind not in KINDS:
            raise ValueError(f"There is no markup {kind!r}: choose {', '.join(KINDS)}.")
        self.kind, self.keep_numbers = kind, keep_numbers
        self.lines = self.broken = 0
        self._waiting: deque[MarkedLine] = deque()

    def take_out(self, line: str) -> str:
        """The next line's text."""
        self.lines += 1
        try:
            marked = take_apart(line, self.kind, self.keep_numbers)
        except BrokenMarkupError as error:
            self._warn(error)
            marked = as_text(line, self.kind, self.keep_numbers)
        self._waiting.append(marked)
        return marked.text

    def put_back(self, hypotheses: Sequence[Hypothesis], align: bool = False) -> list[Hypothesis]:
        """The translations of the first line that waits for them; they keep their alignment if `align` says so."""
        marked = self._waiting.popleft()
        return [
            replace(
                each,
                text=put_together(marked, each.text, each.alignment),
                alignment=each.alignment if align else None,
            )
            for each in hypotheses
        ]

    def _warn(self, error: BrokenMarkupError) -> None:
        self.broken += 1
        if self.broken <= MOST_LINES:
            logger.warning(f"Line {self.lines:,}: broken markup, translated as text: {error}.")
        if self.broken == MOST_LINES:
            logger.warning("Further lines with broken markup are translated as text without a warning.")


def as_text(line: str, kind: str, keep_numbers: bool = False) -> MarkedLine:
    """A line whose tags are text; placeholders are taken out all the same."""
    marked = take_apart(line, "placeholders", keep_numbers)
    if kind != "placeholders":
        for node in marked.root.children:
            node.before = escape(node.before, quote=False)
    return replace(marked, kind=kind)
