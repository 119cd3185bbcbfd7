"""From a line with markup to its text and the tree of its markup."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from xml.parsers import expat

from ...data.scripts import UNSPACED, is_unspaced


KINDS = ("xml", "html", "placeholders")
DEEPEST = 100  # nested elements
_LONGEST = 100  # characters of a message

# The name is as long as it can be: else a `<` that nothing closes takes quadratic time.
_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[^\W\d][^\s<>/\"'=]*)(?![^\s<>/\"'=])(?P<rest>(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>"
)
_OTHER = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![A-Za-z][^<>]*>", re.DOTALL)
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_RAW = {"script", "style", "xmp", "iframe", "noembed", "noframes"}  # their content is not text
# Words before and after one of these tags do not belong together.
_BREAKING = {
    "address", "article", "aside", "blockquote", "br", "caption", "dd", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "img", "input", "legend", "li",
    "main", "nav", "ol", "option", "p", "pre", "section", "select", "table", "tbody", "td", "tfoot", "th", "thead",
    "tr", "ul",
}  # fmt: skip
# Letters beside a placeholder without a blank: those of scripts without spaces, and Korean particles. Neither they nor
# their punctuation are part of an address.
_BESIDE = UNSPACED + "\uac00-\ud7a3"
_NOT_IN_ADDRESS = _BESIDE + "\u3000-\u303f\uff00-\uff65"
_IN_MAIL = f"(?![{_BESIDE}])"
_IN_BRACES = "[^{}]"  # and braces in braces: plurals in branches of a select, with arguments in theirs
for _ in range(6):
    _IN_BRACES = rf"[^{{}}]|\{{(?:{_IN_BRACES})*\}}"
_ICU = rf"\{{\w+,\s*(?:plural|select|selectordinal)\b(?:{_IN_BRACES})*\}}"
PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}"  # {{ name }}
    rf"|{_ICU}"  # as a whole
    r"|[$#%]?\{\w*(?:\.\w+|\[\w+\])*(?:![rsa])?(?::[^{}\s]*)?\}"  # {0} {name} {x.y!r:>9} ${x} #{x} %{x}
    r"|%%|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*(?:[1-9]\d*|\*)?(?:\.\d+)?(?:hh|h|ll|l|z)?[diouxXeEfFgGcrsa@]"
    rf"(?![^\W_{_BESIDE}])"
    rf"|(?<![^\W{_BESIDE}])(?:(?:https?|ftp)://|www\.)(?:&amp;|&(?!#?\w+;)|[^\s<>\"'{{}}&{_NOT_IN_ADDRESS}])*"
    rf"(?:&amp;|[^\s<>\"'{{}}.,;:!?)\]»”…&{_NOT_IN_ADDRESS}])"
    rf"|(?<![^\W{_BESIDE}])(?<![.+-])(?:{_IN_MAIL}[\w.+-])*{_IN_MAIL}\w@{_IN_MAIL}\w(?:{_IN_MAIL}[\w-])*"
    rf"(?:\.(?:{_IN_MAIL}[\w-])*{_IN_MAIL}\w)+"
)
_NUMBER = rf"|(?<![^\W{_BESIDE}])(?<![.,])(?<!&#)\d+(?:[.,:/]\d+)*(?![^\W{_BESIDE}])"
_UNKNOWN_ENTITY = r"|&(?!(?:amp|lt|gt|quot|apos);|\#)[\w:][\w.:-]*;"  # of XML: defined elsewhere
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CLOSING = ".,;:!?)]»”’…\"'؟،؛۔।॥。、！？：；）」』"
POINT = "\ufffc"  # stands for a point where characters beside it are compared


class BrokenMarkupError(ValueError):
    """A line whose tags do not fit together; the message is short and printable, whatever the line holds."""

    def __init__(self, message: str):
        message = message if message.isprintable() else ascii(message)[1:-1]  # otherwise it could control the terminal
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…")


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


def take_apart(line: str, kind: str, keep_numbers: bool = False) -> MarkedLine:
    """Separates a line's text from its markup.

    A line that has only tags may have elements that begin or end in other lines.

    Args:
        line: The line; with "xml" and "html" its entities are decoded in the text.
        kind: One of `KINDS`; placeholders are taken out with each.
        keep_numbers: Whether numbers are placeholders too.

    Raises:
        BrokenMarkupError: Elements cross or are not closed in this line, or a `<` or `&` is not allowed where it is.
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
    messages = deque(match.span() for match in re.finditer(_ICU, line))  # tags in their branches are part of them
    while (at := line.find("<", at)) >= 0:
        while messages and messages[0][1] <= at:
            messages.popleft()
        if messages and start <= messages[0][0] < at:
            at = messages[0][1]
            continue
        match = _TAG.match(line, at) or _OTHER.match(line, at)
        if match is None:
            if kind == "html" and not re.match(r"<[A-Za-z/!?]", line[at : at + 2]):
                at += 1  # in HTML this is text
                continue
            raise BrokenMarkupError(f"{line[at : at + 20]!r} is not a tag")
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
    pattern = PLACEHOLDER.pattern + (_NUMBER if keep_numbers else "") + (_UNKNOWN_ENTITY if kind == "xml" else "")
    decoded = (lambda text: text) if kind == "placeholders" else _unescaped
    at = 0
    for match in re.finditer(pattern, raw):
        yield decoded(raw[at : match.start()])
        yield Node(match[0], is_point=True, is_placeholder=True)
        at = match.end()
    yield decoded(raw[at:])


def _unescaped(text: str) -> str:
    """The text with its entities decoded. Python reads no number of more than 4,300 digits."""
    return unescape(re.sub(r"&#\d{100,};?", "\ufffd", text))


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
        atoms: In order: texts, points, elements where they begin, and `(element,)` where they end.
    """
    text, last = "", ""
    nodes: list[Node] = []  # those that began or ended since the last character that is not blank
    between: list[Node | tuple[Node]] = []  # atoms since the last text
    point = None  # the last one, if no text has come since
    for atom in filter(None, atoms):
        if isinstance(atom, str):
            if point is not None:
                point.right = atom[0]
            text = _joined(text, nodes, between, atom)
            if not atom.isspace():
                nodes.clear()
            last, between, point = atom[-1], [], None
            continue
        between.append(atom)
        if isinstance(atom, tuple):
            atom[0].end = len(text)
            nodes.append(atom[0])
            continue
        atom.start = atom.end = len(text)
        nodes.append(atom)
        if atom.is_point:
            if point is not None:
                point.right = POINT
            atom.left, last, point = last, POINT, atom
    return text


def _joined(text: str, nodes: Sequence[Node], between: Sequence[Node | tuple[Node]], more: str) -> str:
    """Text and more of it, with one blank between words that the markup between them held apart.

    Blanks before punctuation are removed; the nodes, which may have been among them, get their places anew.
    """
    points = [isinstance(each, Node) and each.is_point for each in between]
    if any(points) and (not text or text[-1].isspace()):
        more = more.lstrip()
        if all(points) and more and more[0] in CLOSING:
            text = text.rstrip()
            for node in nodes:
                node.start, node.end = min(node.start, len(text)), min(node.end, len(text))
    elif text and between and more[0] > " " and not text[-1].isspace():
        tags = [each[0] if isinstance(each, tuple) else each for each in between]
        names = [re.match(r"</?(\w*)", node.before) for node in tags]
        ends = [isinstance(each, tuple) for each in between]
        apart = any(ends) and not all(ends)  # one element ends, and another begins
        apart = apart and not (is_unspaced(text[-1]) and is_unspaced(more[0]))
        apart = apart or any(name is not None and name[1].lower() in _BREAKING for name in names)
        if apart or (any(points) and text[-1].isalnum() and more[0].isalnum() and not is_unspaced(more[0])):
            text += " "
    return text + more


def as_text(line: str, kind: str, keep_numbers: bool = False) -> MarkedLine:
    """A line whose tags are text; placeholders are taken out all the same."""
    atoms = list(_in_text(line, kind, keep_numbers))
    root = Node("", children=[atom for atom in atoms if isinstance(atom, Node)])
    if kind != "placeholders":
        line = encoded(_unescaped(line), kind)
        for node in root.children:
            if not _is_text(node.before, kind):
                node.before = encoded(_unescaped(node.before), kind)
    text = _settle(atoms)
    root.end = len(text)
    return MarkedLine(line, text, root, kind)


def _is_text(raw: str, kind: str) -> bool:
    """Whether a text may stand between tags as it is."""
    try:
        if kind == "xml":
            _check_xml(raw)
    except BrokenMarkupError:
        return False
    return "<" not in raw


def encoded(text: str, kind: str) -> str:
    """A text as it is written between tags."""
    if kind == "xml":
        text = _NOT_XML.sub("", text)
    return text if kind == "placeholders" else escape(text, quote=False)
