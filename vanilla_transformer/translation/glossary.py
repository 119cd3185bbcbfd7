"""Glossaries: how terms of a line are to be translated, and whether a translation does so."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from unicodedata import normalize

from regex import Match
from transformers import PreTrainedTokenizerBase

from ..data.scripts import LETTER, WORD, is_unspaced
from ..data.terms import annotated_ids
from ..data.tokenizer import as_read_by
from ..files import text_lines


@dataclass(frozen=True)
class Term:
    """An entry of a glossary: `source` becomes one of `targets`; without targets it is not to be translated."""

    source: str
    targets: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether only this capitalisation is meant: there is a capital after the first letter."""
        return any(letter.isupper() for letter in self.source[1:])


@dataclass(frozen=True)
class FoundTerm:
    """A term in a line, at the characters from `start` to `end`; `text` is how it is written there."""

    term: Term
    start: int
    end: int
    text: str

    @property
    def targets(self) -> tuple[str, ...]:
        """The alternatives, one of which must be in the translation."""
        return self.term.targets or (self.text,)


@dataclass(frozen=True)
class UsedTerm:
    """A term of a line: as it stands in the source, its possible translations, and the one used.

    `used` is None if the translation has none of them.
    """

    source: str
    targets: tuple[str, ...]
    used: str | None


class Glossary:
    """Terms and their translations.

    A term is found in a line as whole words, whatever normal form either is in; in scripts without spaces between words
    it is found anywhere. Capitals do not matter, unless the term has one after its first letter: "apple" and "Apple"
    both find "Apple", and "iPhone" only "iPhone". Where terms overlap, the longest wins; of two equally long ones, the
    one with such a capital.

    Args:
        entries: Pairs of a source term and its target: alternatives are separated by `|`; an empty or equal target, or
            None, means that the term is to stay as it is.

    Raises:
        ValueError: A term is empty, or occurs twice.

    Example:
        >>> glossary = Glossary([("dog", "Hund|Hündin"), ("Anna", None)])
        >>> [(found.text, found.targets) for found in glossary.find("Anna sees the dog.")]
        [('Anna', ('Anna',)), ('dog', ('Hund', 'Hündin'))]
    """

    def __init__(self, entries: Iterable[tuple[str, str | None]]):
        self.terms: list[Term] = []
        self._as_read: Callable[[str], str] = str  # text of the same length
        self._read_otherwise: Glossary | None = None  # there are only two ways to read
        self._places: dict[str, str] = {}  # where each term was read, by the form that is looked for
        self._by_first_word: dict[str, list[tuple[list[str], Term]]] = {}
        for number, (source, target) in enumerate(entries, start=1):
            self._add(source, target, f"entry {number}")

    def __len__(self) -> int:
        return len(self.terms)

    def reading(self, tokenizer: PreTrainedTokenizerBase) -> "Glossary":
        """The same; if the tokenizer takes apostrophes between letters for letters, its words have them too."""
        as_read = as_read_by(tokenizer)
        if as_read is self._as_read:
            return self
        if self._read_otherwise is None:
            self._read_otherwise = Glossary([])
            self._read_otherwise._as_read = as_read
            for term in self.terms:
                self._read_otherwise._add(term.source, "|".join(term.targets), self._places[self._key(term)])
        return self._read_otherwise

    @staticmethod
    def _key(term: Term) -> str:
        return term.source if term.is_exact else term.source.lower()

    def _add(self, source: str, target: str | None, place: str) -> None:
        """Adds an entry; errors name the place."""
        source, target = normalize("NFC", source), normalize("NFC", target or "")  # as the model reads and writes
        source = " ".join(source.split())
        targets = [" ".join(each.split()) for each in target.split("|")]
        targets = () if targets in ([""], [source]) else tuple(dict.fromkeys(targets))
        term = Term(source, targets)
        if not source or "" in targets:
            raise ValueError(f"Glossary, {place}: there is an empty {'source term' if not source else 'alternative'}.")
        key = self._key(term)
        if key in self._places:
            raise ValueError(
                f"Glossary, {place}: {source!r} is in {self._places[key]} already; give a term once, with its "
                "alternatives separated by |."
            )
        self._places[key] = place
        self.terms.append(term)
        source = self._as_read(source)
        words = _spaced(source, list(WORD.finditer(source)))
        self._by_first_word.setdefault(words[0].lower(), []).append((words, term))

    def find(self, line: str) -> list[FoundTerm]:
        """The terms of a line, in their order; they do not overlap."""
        found, read = [], self._as_read(line)
        words = list(WORD.finditer(read))
        for i, first in enumerate(words):
            for wanted, term in self._by_first_word.get(normalize("NFC", first.group()).lower(), ()):
                there = words[i : i + len(wanted)]
                written = _spaced(read, there)
                if written == wanted or (
                    not term.is_exact and [each.lower() for each in written] == [each.lower() for each in wanted]
                ):
                    start, end = first.start(), there[-1].end()
                    found.append(FoundTerm(term, start, end, line[start:end]))
        found.sort(key=lambda each: (each.start - each.end, not each.term.is_exact, each.start))
        chosen: list[FoundTerm] = []
        for each in found:
            if all(each.end <= other.start or other.end <= each.start for other in chosen):
                chosen.append(each)
        return sorted(chosen, key=lambda each: each.start)

    def sources(self) -> list[str]:
        """All source terms."""
        return [term.source for term in self.terms]

    def constraints(self, line: str, tokenizer: PreTrainedTokenizerBase) -> list[list[list[int]]]:
        """The entry for a line in the `constraints` of `generate`."""
        return constraints_of(self.reading(tokenizer).find(line), line, tokenizer)

    def annotated(self, line: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
        """Token ids of a line with its terms annotated, for a model that knows soft terms; see [`annotated_ids`]."""
        terms = self.reading(tokenizer).find(line)
        [ids] = annotated_ids(tokenizer, [(line, annotations_of(terms))])
        return ids


def _spaced(text: str, words: Sequence[Match]) -> list[str]:
    """Neighbouring words of a text in NFC, each with a blank in front if there are any; the first one without."""
    blanks = ["", *(" " * (a.end() < b.start()) for a, b in pairwise(words))]
    return [blank + normalize("NFC", word.group()) for blank, word in zip(blanks, words, strict=True)]


def load_glossary(path: str | PathLike[str]) -> Glossary:
    """Reads a glossary: lines of source term, tab, target term, and optionally a tab and `keep`.

    The text is UTF-8. Blank lines and those that begin with `#` are skipped. Several targets are separated by `|`. With
    `keep`, an empty target or an equal one the term is to stay as it is in the source.

    Args:
        path: A text file, plain or gzipped.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has another form, or repeats the term of an earlier one. The message names the line.
    """
    glossary = Glossary([])
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        place = f"{path}, line {number}"
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) not in (2, 3) or cells[2:] not in ([], [""], ["keep"]):
            raise ValueError(
                f"Glossary, {place}: {line!r:.100} is not a source term, a tab, its target term, and perhaps a tab and "
                "the word keep."
            )
        source, target, *keep = cells
        if keep == ["keep"] and target not in ("", source):
            raise ValueError(f"Glossary, {place}: keep contradicts the target {target!r:.100}: leave out one of them.")
        glossary._add(source, target, place)
    return glossary


def constraints_of(terms: Sequence[FoundTerm], line: str, tokenizer: PreTrainedTokenizerBase) -> list[list[list[int]]]:
    """Token ids for each term: its targets, each as a word and, where it may begin a sentence, with a capital.

    A tokenizer writes the space before a word with the word. After a quotation mark, a bracket or a hyphen there is
    none. So a term that follows one of these in the source may lack the space in the translation too. A term in a
    script without spaces always may.
    """
    behind_signs = {each.targets for each in terms if each.start and not line[each.start - 1].isspace()}
    found = {  # once for a term that the line has many times
        targets: [
            ids for target in _spellings(targets) for ids in _token_ids(target, tokenizer, targets in behind_signs)
        ]
        for targets in {each.targets for each in terms}
    }
    return [found[each.targets] for each in terms]


def _spellings(targets: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for each in targets for text in (each, each[0].upper() + each[1:])))


def _token_ids(text: str, tokenizer: PreTrainedTokenizerBase, behind_sign: bool) -> list[list[int]]:
    def ids_of(text: str) -> list[int]:
        return tokenizer(text_target=text, add_special_tokens=False).input_ids

    found, sign = [ids_of(text)], ids_of("(")
    if (behind_sign or is_unspaced(text[:1])) and (longer := ids_of(f"({text}"))[: len(sign)] == sign:
        found.append(longer[len(sign) :])
    return found


def annotations_of(terms: Iterable[FoundTerm]) -> list[tuple[int, int, str]]:
    """The terms of a line as `annotated_ids` takes them; of alternatives the first: a source can have only one."""
    return [(each.start, each.end, each.targets[0]) for each in terms]


def used_terms(
    terms: Sequence[FoundTerm], translation: str, tokenizer: PreTrainedTokenizerBase
) -> tuple[UsedTerm, ...]:
    """Which terms of a line a translation uses.

    A target is used where it stands at the beginning of a word; the word may continue with an ending. A term that is
    in the line twice must be in the translation twice.
    """
    taken: dict[tuple[str, ...], int] = {}  # the end of the last place of these targets
    different = {each.targets for each in terms}
    spellings = {targets: [_as_written(each, tokenizer) for each in _spellings(targets)] for targets in different}
    found = []
    for each in terms:
        begin, texts = taken.get(each.targets, 0), spellings[each.targets]
        places = [(start, -len(text), text) for text in texts for start in _places(text, translation, begin)]
        if places:
            start, _, used = min(places)  # the first; of those that begin there the longest
            taken[each.targets] = start + len(used)
        found.append(UsedTerm(each.text, each.targets, used if places else None))
    return tuple(found)


def _as_written(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """A text as the tokenizer gives it back: without capitals if it lower-cases all text."""
    return tokenizer.decode(tokenizer(text_target=text).input_ids, skip_special_tokens=True)


def _places(text: str, translation: str, begin: int) -> list[int]:
    """Where a text stands in a translation at the beginning of a word."""
    found, start = [], translation.find(text, begin)
    while start >= 0:
        if not start or not LETTER.match(translation[start - 1]) or not LETTER.match(text):
            found.append(start)
        start = translation.find(text, start + 1)
    return found
