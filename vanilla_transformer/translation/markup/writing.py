"""The parts of a translation as a line: blanks beside points, and text encoded."""

import re

from ...data.scripts import is_unspaced
from .taking_apart import CLOSING, PLACEHOLDER, POINT, Node, encoded


OPENING = "([«„“‘¿¡\"'"


def written(parts: list[tuple[str, str | Node]], kind: str, *, apart: bool = False) -> str:
    """The parts as a line, its text encoded.

    Args:
        parts: Those of a `Layout`.
        kind: One of `KINDS`.
        apart: Whether placeholders have blanks on both sides, and text that looks like one is left out.
    """
    parts = list(parts)
    blanks = {}  # extra ones, by the part that they come before
    for i, (name, node) in enumerate(parts):
        if name != "point":
            continue
        (left, left_blank, before), (right, right_blank, behind) = (_beside(parts, i, step) for step in (-1, 1))
        gap = left_blank is not None or right_blank is not None
        if _wants_blank(node.left, left, gap, OPENING) or (apart and left):
            if left_blank is None:
                blanks[before] = " "
        elif left_blank is not None and left != POINT:
            parts[left_blank] = ("blank", "")
        if right == POINT:
            continue
        if _wants_blank(node.right, right, gap, CLOSING) or (apart and right):
            if right_blank is None:
                blanks[behind] = " "
        elif right_blank is not None:
            parts[right_blank] = ("blank", "")
    runs: list[list] = []  # texts, and the markup between them
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
            return POINT, blank, place if step < 0 else place + 1
        if name == "word" and value:
            return value[-1 if step < 0 else 0], blank, place if step < 0 else place + 1
        if name == "blank" and value:
            blank = at
        outside = outside or name != only
        if not outside:  # a blank goes outside tags that hold only the point
            place = at
        at += step
    return "", blank, place if step < 0 else place + 1


def _wants_blank(source: str, target: str, gap: bool, marks: str) -> bool:
    """Whether a blank belongs between a point and the character beside it.

    Args:
        source: The character beside the point in the source.
        target: The one beside it now; "" is the end of the line.
        gap: Whether the translation has a blank where the point goes.
        marks: Punctuation that may stand close to a word on this side.
    """
    if not target:
        return False
    if is_unspaced(target):
        return gap
    if not source or source.isspace():
        return gap or target not in marks
    if target == POINT:
        return source != POINT
    if target.isalnum():
        return target.isdigit() or not source.isalnum() or is_unspaced(source)
    return gap


def _encoded(text: str, kind: str, apart: bool) -> str:
    if apart:
        text = re.sub(f"{PLACEHOLDER.pattern}|[{{}}]", " ", text)
    return encoded(text, kind)
