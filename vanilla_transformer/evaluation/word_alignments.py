"""Words aligned by people, and how well others agree with them: the alignment error rate of Och and Ney (2003)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike

from ..files import text_lines


_LINK = re.compile(r"(\d+)([-?p])(\d+)", flags=re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class GoldAlignment:
    """Which words of a source and its translation people found to belong together.

    Attributes:
        sure: Positions (source word, target word), counted from 0.
        possible: Those, and the links that may as well be left out.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def read_alignments(path: str | PathLike[str]) -> Iterator[GoldAlignment]:
    """Reads alignments in the format of Pharaoh: a sentence pair a line, `0-0 1-2 2?1`.

    `i-j` links word i of the source surely with word j of the target, `i?j` or `ipj` possibly. Words are what blanks
    separate, counted from 0.

    Raises:
        FileNotFoundError, IsADirectoryError: There is no such file. Raised at once.
        ValueError: A line has something else; file, line and link are named. Raised on reading it.
    """
    return (_alignment(line, f"{path}, line {number}") for number, line in enumerate(text_lines(path), start=1))


def _alignment(line: str, place: str) -> GoldAlignment:
    sure, possible = set(), set()
    for text in line.split():
        link = _LINK.fullmatch(text)
        if link is None:
            raise ValueError(f"{place}: {text!r} is no link; write 0-0 for a sure one, 0?0 or 0p0 for a possible one.")
        possible.add((int(link[1]), int(link[3])))
        if link[2] == "-":
            sure.add((int(link[1]), int(link[3])))
    return GoldAlignment(frozenset(sure), frozenset(possible))


@dataclass
class AlignmentError:
    """Counts links over a set of sentences: AER = 1 - (|A and sure| + |A and possible|) / (|A| + |sure|)."""

    links: int = 0
    sure: int = 0
    agreeing: int = 0

    def add(self, links: set[tuple[int, int]], gold: GoldAlignment) -> None:
        """Counts the links (source word, target word) of a sentence."""
        self.links += len(links)
        self.sure += len(gold.sure)
        self.agreeing += len(links & gold.sure) + len(links & gold.possible)

    @property
    def rate(self) -> float | None:
        """From 0, all as it should be, to 1; None if there was nothing to align."""
        return 1 - self.agreeing / (self.links + self.sure) if self.links + self.sure else None
