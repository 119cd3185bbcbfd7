"""Mistyped words: read as the closest words of the training text, before they are translated.

    The dgo sees teh hosue. -> The dog sees the house. -> Der Hund sieht das Haus.

A model that has hardly met typos makes something else of each piece of a mistyped word. This way it need not meet any.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from functools import lru_cache

import regex
from transformers import PreTrainedTokenizerBase

from ..data.known_words import cut_words
from ..data.scripts import is_unspaced
from .casing import usual_case


# Strings between blanks, and what makes one no plain word: "dg2", "a.com", "@anna", "{dgo}", soft hyphens, ligatures.
_STRING, _ODD = re.compile(r"\S+"), re.compile("[\\d@#/\\\\&=%_<>{}$\u00ad\u200b\ufb00-\ufb06]|[.:]\\w")
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}\u200c\u200d]+")
_APOSTROPHES = ("'", "’")  # what stands before them may be half a word, as in "isn't"
_ENDINGS = frozenset(["s", "t", "re", "ve", "m", "ll", "d"])  # of English words, behind an apostrophe
_SENTENCE_ENDS = frozenset(".!?…:;؟۔।॥։።")
_FEWEST = 3  # a rarer word may itself be a typo of the training text
_LONG, _MOST_MISTAKES = 6, 2  # letters of a word that may have this many; a shorter one has too many neighbours
_REMEMBERED = 2**16  # mistyped words: the same ones come again


class Spelling:
    """Corrects the words of a line that the training text did not have.

    A word is read as the closest one of the training text; of several equally close words, as the most frequent. The
    distance is that of optimal string alignment: letters left out, added, changed, or swapped with the next one. One
    mistake is allowed, or two in words of six letters or more. A word without such a neighbour stays as it is. So do
    addresses, words with digits, words in capitals, and scripts without spaces between words. Inside a sentence a word
    with a capital is only read as one that the training text always writes with a capital. Still, a name that the text
    did not have may be taken for a typo.

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
        totals: Counter[str] = Counter()
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

    def correct(self, line: str) -> str:
        """A line with its mistyped words corrected; the line itself if it has none.

        Where the tokenizer's normalization moves words, it is the normalized line that is corrected.
        """
        normalized, found = self._read(line)
        if not found:
            return line
        before = normalized
        for same in (line, f" {line}"):  # a tokenizer may put a blank in front
            places = [(same[start:end].lower(), normalized[start:end].lower()) for _, start, end in found]
            if len(same) == len(normalized) and all(one == other for one, other in places):
                before = same
        parts, end_before = [], 0
        for better, start, end in found:
            parts += [before[end_before:start], better]
            end_before = end
        return "".join([*parts, before[end_before:]]).strip()

    def corrections(self, line: str) -> dict[str, str]:
        """The mistyped words of a line, and what each is read as."""
        normalized, found = self._read(line)
        return {normalized[start:end]: better for better, start, end in found}

    def keeping(self, texts: Iterable[str]) -> "Spelling":
        """The same, with more words that stay as they are: all words of these texts."""
        other = copy(self)
        other.kept = self.kept | {
            word.casefold() for text in texts for word, _, _ in cut_words(self.tokenizer, text)[1]
        }
        return other

    def _read(self, line: str) -> tuple[str, list[tuple[str, int, int]]]:
        """A line as the tokenizer normalizes it, and the corrections: what is read, and from which place to which."""
        normalized, words = cut_words(self.tokenizer, line)
        found, begins = [], True
        odd = {place for each in _STRING.finditer(normalized) if _ODD.search(each[0]) for place in range(*each.span())}
        for word, start, end in words:
            stays = word.casefold() in self.kept or start in odd or normalized[end : end + 1] in _APOSTROPHES
            if normalized[max(0, start - 1) : start] in _APOSTROPHES and word.lower() in _ENDINGS:
                stays = stays or normalized[max(0, start - 2) : start - 1].isalpha()
            if not stays and (better := self._best(word, begins)) != word:
                found.append((better, start, end))
            # A sentence begins behind the end of another, and still behind a quote or a bracket.
            begins = not _SENTENCE_ENDS.isdisjoint(word) or (begins and not any(map(str.isalnum, word)))
        return normalized, found

    def _best(self, word: str, begins: bool) -> str:
        """What a word is read as: itself, or one that the training text had."""
        small, has_capital = word.lower(), word[:1].isupper()
        if not _is_word(word) or small in self._spelt or word.isupper() or len(small) > self._longest:
            return word
        if (found := self._nearest(small, has_capital and not begins)) is None:
            return word
        return found[0].upper() + found[1:] if has_capital else found

    def _look_for(self, small: str, is_name: bool) -> str | None:
        candidates = self._capitals if is_name else self._candidates
        mistakes = 1 if len(small) < _LONG else _MOST_MISTAKES
        near = self._closest(small, candidates, scorer=self._distance, score_cutoff=mistakes, limit=None)
        if not near:
            return None
        best, _, _ = min(near, key=lambda entry: entry[1:])  # distance, then place among the candidates
        return self._spelt[best]


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and not is_unspaced(text)
