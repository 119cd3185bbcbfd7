"""Tags and placeholders: taken out of a line before it is translated, and put back by word alignment.

A line with markup is a tree: elements with what they stand around, and points (void and self-closing elements,
comments, placeholders …). The model translates the text without it. Then each element goes around the words of the
translation that were made from its words, and each point beside the one made from its neighbour.

Whatever the alignment says, the tree's shape stays: a child gets its place within its parent's words, and siblings
share these without overlap. So no tag is lost or invented, and what was well-formed is well-formed.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..decoding import Hypothesis
from ..lines import MOST_LINES
from .parsing import KINDS, BrokenMarkupError, MarkedLine, as_text, take_apart
from .placing import put_together


__all__ = ["KINDS", "BrokenMarkupError", "MarkedLine", "Markup", "as_text", "plain_text", "put_together", "take_apart"]
logger = logging.getLogger(__name__)


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


def plain_text(line: str, kind: str) -> str:
    """A line's text, without its markup; all of it if that is broken."""
    try:
        return take_apart(line, kind).text
    except BrokenMarkupError:
        return as_text(line, kind).text
