"""EVALB's parameter files (`COLLINS.prm` and others): which labels count, and which are the same."""

from dataclasses import dataclass
from os import PathLike

from ..files import text_lines


@dataclass(frozen=True)
class EvalbParameters:
    """EVALB's parameters. `_SETS` and `_NUMBERS` give the keyword that sets each attribute in a parameter file.

    `quote_labels` are tags that quotation marks and apostrophes (`'`, `"`, `/`) may have by mistake. If gold tree and
    parse have different numbers of words only because a tag in `delete_labels` meets another of these, such words are
    kept.
    """

    delete_labels: frozenset[str] = frozenset()  # tags whose words are left out, and phrases whose brackets are
    delete_labels_for_length: frozenset[str] = frozenset()  # tags whose words do not count in a sentence's length
    quote_labels: frozenset[str] = frozenset()
    equivalent_labels: frozenset[frozenset[str]] = frozenset()  # pairs that match; they are not chained
    equivalent_words: frozenset[frozenset[str]] = frozenset()
    labeled: bool = True  # brackets must have the same label to match
    cutoff_length: int = 40  # most words of a sentence in the second summary
    max_error: int | None = 10  # EVALB stops at the second error beyond this, so one more is allowed; None: no limit

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> "EvalbParameters":
        """Reads a parameter file; attributes that it does not set are as in EVALB without a file: nothing is deleted.

        Raises:
            FileNotFoundError, IsADirectoryError: There is no such file.
            ValueError: A keyword is unknown or its value makes no sense; the message names file and line.
        """
        sets: dict[str, set] = {name: set() for name, _ in _SETS.values()}
        numbers = {}
        for number, line in enumerate(text_lines(path), start=1):
            keyword, *values = line.split() or [""]
            if not keyword or line.startswith("#"):
                continue
            try:
                if keyword in _NUMBERS:
                    numbers[_NUMBERS[keyword]] = _whole_number(keyword, values)
                elif keyword in _SETS:
                    name, size = _SETS[keyword]
                    _check_number(keyword, values, size)
                    sets[name].add(values[0] if size == 1 else frozenset(values))
                elif keyword == "DISC_ONLY":  # discodop's
                    if _whole_number(keyword, values):
                        raise ValueError(
                            "DISC_ONLY asks for discontinuous constituents only, and trees in brackets have none; set "
                            "it to 0"
                        )
                elif keyword != "DEBUG":  # it changes no number
                    known = ", ".join((*_NUMBERS, *_SETS, "DEBUG", "DISC_ONLY"))
                    raise ValueError(f"{keyword} is unknown; known are {known}")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
        labeled = bool(numbers.pop("labeled", True))
        return cls(**{name: frozenset(values) for name, values in sets.items()}, labeled=labeled, **numbers)

    def same_label(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) in self.equivalent_labels

    def same_word(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) in self.equivalent_words


_NUMBERS = {"LABELED": "labeled", "CUTOFF_LEN": "cutoff_length", "MAX_ERROR": "max_error"}
_SETS = {  # and how many words follow the keyword
    "DELETE_LABEL": ("delete_labels", 1),
    "DELETE_LABEL_FOR_LENGTH": ("delete_labels_for_length", 1),
    "QUOTE_LABEL": ("quote_labels", 1),
    "EQ_LABEL": ("equivalent_labels", 2),
    "EQ_WORD": ("equivalent_words", 2),
}


def _check_number(keyword: str, values: list[str], number: int) -> None:
    if len(values) != number:
        raise ValueError(f"{keyword} takes {number} value{'s'[: number - 1]}, not {len(values)}")


def _whole_number(keyword: str, values: list[str]) -> int:
    _check_number(keyword, values, 1)
    if not (values[0].isascii() and values[0].isdigit()):
        raise ValueError(f"{keyword} takes a whole number from 0 upwards, not {values[0]!r}")
    return int(values[0])


COLLINS = EvalbParameters(
    delete_labels=frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."}),
    delete_labels_for_length=frozenset({"-NONE-"}),
    equivalent_labels=frozenset({frozenset({"ADVP", "PRT"})}),
)
"""`COLLINS.prm`, the rules of results on the Wall Street Journal: no TOP, no traces, no punctuation, ADVP = PRT."""
