"""Lines in capitals and headlines: translated in sentence case, and given their capitals back.

    A DOG RUNS. -> A dog runs. -> Ein Hund läuft. -> EIN HUND LÄUFT.

A model that has read only sentences has hardly any pieces for words in capitals. This way it need not read any.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from copy import copy

from ..data.forms import FORMS


UPPER, TITLE = "upper", "title"
_RATHER = 5
_FEWEST_WORDS = {UPPER: 2, TITLE: 3}  # a name or an abbreviation alone is not a headline
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*")  # letters with their combining marks
APOSTROPHES = ("'", "’")  # letters before one may be half a word, as in "isn't"
_ENDINGS = frozenset(["s", "t", "re", "ve", "m", "ll", "d"])  # of English words, behind an apostrophe
_WORD_OR_END = re.compile(r"(\w)\w*|[.!?…][\"'”’»)\]]*\s")  # the end of a sentence


class Casing:
    """Takes capitals off lines and puts them on translations.

    Args:
        known: Words of the model's training text, as they are written there, with their counts (`load_word_counts`) or
            without (`load_known_words`): "ANNA" becomes "Anna" if the text has that and not "anna", or much more often.
            Without them every word but the first is lower-cased.

    Example:
        >>> casing = Casing({"Anna", "sees", "a", "dog"})
        >>> casing.take_off("ANNA SEES A DOG.")
        ('Anna sees a dog.', 'upper')
        >>> casing.put_on("Anna sieht einen Hund.", "upper")
        'ANNA SIEHT EINEN HUND.'
    """

    def __init__(self, known: Collection[str] | None = None):
        self.known, self.kept = known or (), {}

    def keeping(self, words: Iterable[str]) -> "Casing":
        """The same, but these words are always written so."""
        other = copy(self)
        other.kept = self.kept | {word.lower(): word for word in words}
        return other

    def take_off(self, line: str) -> tuple[str, str | None]:
        """A line in sentence case, and the form that it had: `"upper"`, `"title"`, or None if it stays as it is.

        A line in capitals has two words or more and no small letter. A headline has three or more, each with a capital
        first.
        """
        form = self._form_of(line)
        if form is None:
            return line, None
        small = _WORD.sub(lambda found: self._usual(found[0], ends_a_word(line, *found.span())), line)
        letters, begins = list(small), True
        for found in _WORD_OR_END.finditer(small):
            if begins and found[1] and found[0].lower() not in self.kept:  # nothing changes if it is a digit
                letters[found.start()] = found[1].title()
            begins = not found[1]
        return "".join(letters), form

    def put_on(self, text: str, form: str | None) -> str:
        """A translation in a form that `take_off` has found."""
        return text if form is None else FORMS[form].change(text, None)

    def put_on_words(self, words: Iterable[str], text: str, form: str | None) -> list[str]:
        """The words of a translation in a form, each as it comes out in the whole text: "s" in "it's" stays small."""
        found, end = [], 0
        for word in words:
            start = text.find(word, end)
            if start < 0:  # not written as in the text: say, with blanks inside
                found.append(self.put_on(word, form))
                continue
            end = start + len(word)
            found.append(self.put_on(text[:end], form)[len(self.put_on(text[:start], form)) :])
        return found

    def _form_of(self, line: str) -> str | None:
        words = [word for word in _WORD.findall(line) if word.upper() != word.lower()]
        if not words:
            return None
        line = line.replace("ß", "ẞ")  # many write it so among capitals, and Python would make it SS
        form = UPPER if line == line.upper() else TITLE
        if len(words) < _FEWEST_WORDS[form] or self.put_on(line, form) != line:
            return None
        return form

    def _usual(self, word: str, is_ending: bool) -> str:
        small = word.lower()
        if small in self.kept:
            return self.kept[small]
        return small if is_ending else usual_case(small, (small.title(), word), self.known)


def ends_a_word(text: str, start: int, end: int) -> bool:
    """Whether letters of a text are the end of an English word, as in "isn't" and "dog's"."""
    is_behind = text[max(0, start - 1) : start] in APOSTROPHES and text[max(0, start - 2) : start - 1].isalpha()
    return is_behind and text[start:end].lower() in _ENDINGS


def usual_case(small: str, others: Iterable[str], known: Collection[str]) -> str:
    """How a word is mostly written inside a sentence: in small letters, or like the most frequent of the others.

    With counts, a word gets a capital only if it came with one more than five times as often as without: sentences
    begin with capitals, and text has mistakes.
    """
    counts = known if isinstance(known, Mapping) else dict.fromkeys((small, *others), 1)
    best = max((each for each in others if each in known), key=counts.__getitem__, default=small)
    return best if small not in known or counts[best] > _RATHER * counts[small] else small
