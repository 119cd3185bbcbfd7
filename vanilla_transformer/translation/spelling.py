"""Mistyped words: read as the closest words of the training text, before they are translated.

    The dgo sees teh hosue. -> The dog sees the house. -> Der Hund sieht das Haus.

A model that has seen hardly any typos misreads the pieces of a mistyped word. This way it need not see any.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from functools import lru_cache

import regex
from transformers import PreTrainedTokenizerBase

from ..data.forms import KEYBOARDS
from ..data.known_words import cut_words
from ..data.scripts import is_unspaced
from .casing import APOSTROPHES, ends_a_word, usual_case


# Strings between blanks, and signs of a non-word: "dg2", "a.com", "@anna", "{dgo}", soft hyphens, ligatures.
_STRING, _ODD = re.compile(r"\S+"), re.compile("[\\d@#/\\\\&=%_<>{}$\u00ad\u200b\ufb00-\ufb06]|[.:]\\w")
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}\u200c\u200d]+")
_SENTENCE_ENDS = frozenset(".!?…:;؟۔।॥։።")
_FEWEST = 3  # a rarer word may itself be a typo in the training text
_TIMES = 1000  # it counts as a typo if a word that is one likely mistake away came this many times as often
_LONG, _MOST_MISTAKES = 6, 2  # letters of a word that may have this many; a shorter one has too many neighbours
_FAR_KEY, _ADDED_LETTER = 1.5, 1.25  # mistakes less likely than others, which count 1
_REMEMBERED = 2**16  # mistyped words: the same ones come again

_NEIGHBOURS: dict[str, set[str]] = {}
for _keyboard in KEYBOARDS:
    for _key, _beside in _keyboard.items():
        _NEIGHBOURS.setdefault(_key, set()).update(_beside)


class Spelling:
    """Corrects the words of a line that the training text did not have.

    A word is read as the closest one of the training text. The distance is that of optimal string alignment: letters
    left out, added, changed, or swapped with the next one. One mistake is allowed, or two in words of six letters or
    more. Of several equally close words it is the one with the likeliest mistakes: a changed letter is mostly that of a
    key nearby, and a letter is more often left out or typed twice than another one is added. Of equally likely words it
    is the most frequent.

    A word that the training text had once or twice is corrected, too, if a word that is one likely mistake away came a
    thousand times as often. A word without a close one stays as it is. So do addresses, words with digits, words in
    capitals, and scripts without spaces between words. Inside a sentence a word with a capital is only read as one that
    the training text always writes with a capital. Still, a name that the text did not have may be taken for a typo.

    Args:
        tokenizer: The model's, which says what a word is.
        counts: How often the model's training text had each word, see `load_word_counts`.
        kept: More words that stay as they are, in whatever capitals.

    Raises:
        ImportError: `rapidfuzz` is not installed.

    Example:
        >>> from vanilla_transformer.run.loading import load_model, word_counts_of
        >>> _, tokenizer = load_model("runs/phrasebook")  # doctest: +SKIP
        >>> Spelling(tokenizer, word_counts_of(["runs/phrasebook"])).correct("My sistre sings.")  # doctest: +SKIP
        'My sister sings.'
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, counts: Mapping[str, int], kept: Iterable[str] = ()):
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import OSA
        except ImportError as error:
            message = 'Correcting the spelling needs rapidfuzz: pip install "vanilla-transformer[respell]"'
            raise ImportError(message) from error
        self._closest, self._distance = process.extract, OSA.distance
        self.tokenizer = tokenizer
        self.kept = frozenset(word.casefold() for word in kept)
        self._totals = totals = Counter[str]()  # by small letters
        self._spelt: dict[str, str] = {}  # by small letters: so written if the text has that, else as it mostly is
        for word, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
            if _is_word(word):
                totals[word.lower()] += count
                self._spelt.setdefault(word.lower(), usual_case(word.lower(), [word], counts))
        often = [word for word, count in totals.items() if count >= _FEWEST]
        self._candidates = sorted(often, key=lambda word: (-totals[word], word))
        self._capitals = [word for word in self._candidates if self._spelt[word] != word]
        self._longest = max(map(len, self._candidates), default=0) + _MOST_MISTAKES
        self._nearest = lru_cache(_REMEMBERED)(self._look_for)

    def read(self, line: str) -> tuple[str, dict[str, str]]:
        """A line with its mistyped words corrected, and these words with their corrections.

        Where the tokenizer's normalization moves words, it is the normalized line that is corrected. A line without
        such words stays as it is.
        """
        normalized, found = self._mistyped(line)
        if not found:
            return line, {}
        before = normalized
        for same in (line, f" {line}"):  # a tokenizer may put a blank in front
            places = [(same[start:end].lower(), normalized[start:end].lower()) for _, start, end in found]
            if len(same) == len(normalized) and all(one == other for one, other in places):
                before = same
        parts, end_before = [], 0
        for better, start, end in found:
            parts += [before[end_before:start], better]
            end_before = end
        corrections = {normalized[start:end]: better for better, start, end in found}
        return "".join([*parts, before[end_before:]]).strip(), corrections

    def correct(self, line: str) -> str:
        """A line with its mistyped words corrected."""
        return self.read(line)[0]

    def keeping(self, texts: Iterable[str]) -> "Spelling":
        """The same, with more words that stay as they are: all words of these texts."""
        other = copy(self)
        other.kept = self.kept | {
            word.casefold() for text in texts for word, _, _ in cut_words(self.tokenizer, text)[1]
        }
        return other

    def _mistyped(self, line: str) -> tuple[str, list[tuple[str, int, int]]]:
        """A line as the tokenizer normalizes it, and the corrections: the new word, and begin and end of the old."""
        normalized, words = cut_words(self.tokenizer, line)
        # With its capitals, if the tokenizer takes only these away: they tell names and abbreviations from typos.
        as_typed = (each for each in (line, f" {line}") if len(each) == len(normalized))
        cased = next((each for each in as_typed if each.lower() == normalized.lower()), normalized)
        found, begins = [], True
        odd = {place for each in _STRING.finditer(normalized) if _ODD.search(each[0]) for place in range(*each.span())}
        for word, start, end in words:
            stays = word.casefold() in self.kept or start in odd or normalized[end : end + 1] in APOSTROPHES
            stays = stays or ends_a_word(normalized, start, end)
            written = cased[start:end]
            if not stays and (better := self._best(written, begins)) != written:
                found.append((better, start, end))
            # A sentence begins after the end of another, even if a quote or a bracket comes in between.
            begins = not _SENTENCE_ENDS.isdisjoint(word) or (begins and not any(map(str.isalnum, word)))
        return normalized, found

    def _best(self, word: str, begins: bool) -> str:
        """The word that a word is read as: itself, or one of the training text."""
        small, has_capital = word.lower(), word[:1].isupper()
        if not _is_word(word) or word.isupper() or len(small) > self._longest:
            return word
        seen = self._totals[small]
        if seen >= _FEWEST or (seen and self._spelt[small] != small):  # a rare name is not a typo
            return word
        found = self._nearest(small, has_capital and not begins)
        if found is None or (seen and not self._is_typo_of(found.lower(), small)):
            return word
        return found[0].upper() + found[1:] if has_capital else found

    def _look_for(self, small: str, is_name: bool) -> str | None:
        candidates = self._capitals if is_name else self._candidates
        mistakes = 1 if len(small) < _LONG else _MOST_MISTAKES
        near = self._closest(small, candidates, scorer=self._distance, score_cutoff=mistakes, limit=None)
        if not near:
            return None
        least = min(distance for _, distance, _ in near)
        closest = [(_unlikeliness(small, word), place, word) for word, distance, place in near if distance == least]
        return self._spelt[min(closest)[2]]  # the place says how frequent a candidate is

    def _is_typo_of(self, word: str, small: str) -> bool:
        return self._totals[word] >= _TIMES * self._totals[small] and _unlikeliness(small, word) <= 1


def _unlikeliness(typed: str, meant: str) -> float:
    """The mistakes between two words, by optimal string alignment, each with its weight."""
    before, row, last = [], [], [float(place) for place in range(len(meant) + 1)]  # at first, all letters are left out
    for i, letter in enumerate(typed):
        row = [last[0] + _ADDED_LETTER]
        near, added = _NEIGHBOURS.get(letter), 1 if typed[i - 1 : i] == letter else _ADDED_LETTER
        for j, wanted in enumerate(meant):
            is_far = near is not None and wanted in _NEIGHBOURS and wanted not in near
            changed = 0 if letter == wanted else _FAR_KEY if is_far else 1
            cost = min(last[j] + changed, row[j] + 1, last[j + 1] + added)
            if i and j and letter == meant[j - 1] and typed[i - 1] == wanted:
                cost = min(cost, before[j - 1] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and not is_unspaced(text)
