"""Markup of lines that are translated: taken out of each, and put back into its translations."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..decoding import Hypothesis
from .putting_together import put_together
from .taking_apart import KINDS, BrokenMarkupError, MarkedLine, as_text, take_apart


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
        self.lines = 0
        self._waiting: deque[tuple[MarkedLine, str | None]] = deque()

    def take_out(self, line: str) -> str:
        """The next line's text."""
        self.lines += 1
        try:
            marked, broken = take_apart(line, self.kind, self.keep_numbers), None
        except BrokenMarkupError as error:
            marked, broken = as_text(line, self.kind, self.keep_numbers), str(error)
            logger.warning(f"Line {self.lines:,}: broken markup, translated as text: {broken}.")
        self._waiting.append((marked, broken))
        return marked.text

    def put_back(self, hypotheses: Sequence[Hypothesis], align: bool = False) -> list[Hypothesis]:
        """The translations of the first line that waits for them; they keep their alignment if `align` says so."""
        marked, broken = self._waiting.popleft()
        return [
            replace(
                each,
                text=put_together(marked, each.text, each.alignment),
                alignment=each.alignment if align else None,
                broken_markup=broken,
            )
            for each in hypotheses
        ]


def text_of(line: str, kind: str, keep_numbers: bool = False) -> str:
    """The text that the model reads of a line; the arguments are those of [`take_apart`]."""
    try:
        return take_apart(line, kind, keep_numbers).text
    except BrokenMarkupError:
        return as_text(line, kind, keep_numbers).text
