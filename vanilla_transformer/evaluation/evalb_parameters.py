"""What EVALB's parameter files (`COLLINS.prm` and its like) say: which labels count, and which are the same."""

from dataclasses import dataclass
from os import PathLike

from ..files import text_lines


@dataclass(frozen=True)
class EvalbParameters:
    """What is counted. The keyword that sets each attribute in a parameter file stands in brackets.

    Attributes:
        delete_labels: Tags whose words are left out, and phrases whose brackets are (DELETE_LABEL).
        delete_labels_for_length: Tags whose words do not count in a sentence's length (DELETE_LABEL_FOR_LENGTH).
        quote_labels: Tags that quotation marks and apostrophes (`'`, `"`, `/`) may bear by mistake. If gold tree and
            parse have different numbers of words only because a tag in `delete_labels` stands against another of these,
            such words are kept (QUOTE_LABEL).
        equivalent_labels: Pairs of labels that match; no chain is followed (EQ_LABEL).
        equivalent_words: Pairs of words that match (EQ_WORD).
        labeled: Whether brackets must have the same label to match (LABELED).
        cutoff_length: The second summary is of sentences with at most so many words (CUTOFF_LEN).
        max_error: So many errors are borne, and one more, since EVALB stops at the second beyond; None bears all
            (MAX_ERROR).
    """

    delete_labels: frozenset[str] = frozenset()
    delete_labels_for_length: frozenset[str] = frozenset()
    quote_labels: frozenset[str] = frozenset()
    equivalent_labels: frozenset[frozenset[str]] = frozenset()
    equivalent_words: frozenset[frozenset[str]] = frozenset()
    labeled: bool = True
    cutoff_length: int = 40
    max_error: int | None = 10

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> "EvalbParameters":
        """Reads a parameter file; what it does not set is as EVALB has it without a file: nothing is deleted.

        Raises:
            FileNotFoundError, IsADirectoryError: There is no such file.
            ValueError: A keyword is unknown or its value makes no sense; the message names file and line.
        """
        sets: dict[str, set] = {name: set() for name in (*_LABELS.values(), *_PAIRS.values())}
        numbers = {}
        for number, line in enumerate(text_lines(path), start=1):
            keyword, *values = line.split() or [""]
            if not keyword or line.startswith("#"):
                continue
            try:
                if keyword in _NUMBERS:
                    numbers[_NUMBERS[keyword]] = _whole_number(keyword, values)
                elif keyword in _LABELS:
                    sets[_LABELS[keyword]].add(_values(keyword, values, 1)[0])
                elif keyword in _PAIRS:
                    sets[_PAIRS[keyword]].add(frozenset(_values(keyword, values, 2)))
                else:
                    known = ", ".join((*_NUMBERS, *_LABELS, *_PAIRS, *_WITHOUT_MEANING))
                    _check_unused(keyword, values, known)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
        labeled = bool(numbers.pop("labeled", True))
        return cls(**{name: frozenset(values) for name, values in sets.items()}, labeled=labeled, **numbers)

    def same_label(self, one: str, other: str) -> bool:
        """Whether the labels match."""
        return one == other or frozenset((one, other)) in self.equivalent_labels

    def same_word(self, one: str, other: str) -> bool:
        """Whether the words match."""
        return one == other or frozenset((one, other)) in self.equivalent_words


_NUMBERS = {"LABELED": "labeled", "CUTOFF_LEN": "cutoff_length", "MAX_ERROR": "max_error"}
_LABELS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIRS = {"EQ_LABEL": "equivalent_labels", "EQ_WORD": "equivalent_words"}
_WITHOUT_MEANING = ("DEBUG", "DISC_ONLY")


def _values(keyword: str, values: list[str], number: int) -> list[str]:
    if len(values) != number:
        raise ValueError(f"{keyword} takes {number} value{'s'[: number - 1]}, not {len(values)}")
    return values


def _whole_number(keyword: str, values: list[str]) -> int:
    [value] = _values(keyword, values, 1)
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"{keyword} takes a whole number from 0 upwards, not {value!r}")
    return int(value)


def _check_unused(keyword: str, values: list[str], known: str) -> None:
    """Lets what changes no number here pass: EVALB's own output for debugging, and discodop's switch if it is off."""
    if keyword not in _WITHOUT_MEANING:
        raise ValueError(f"{keyword} is unknown; known are {known}")
    if keyword == "DISC_ONLY" and _whole_number(keyword, values):
        raise ValueError(
            "DISC_ONLY asks for discontinuous constituents only, and trees in brackets have none; set it to 0"
        )


COLLINS = EvalbParameters(
    delete_labels=frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."}),
    delete_labels_for_length=frozenset({"-NONE-"}),
    equivalent_labels=frozenset({frozenset({"ADVP", "PRT"})}),
)
"""`COLLINS.prm`, the rules of results on the Wall Street Journal: no TOP, no traces, no punctuation, ADVP = PRT."""
