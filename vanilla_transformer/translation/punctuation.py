"""Lines without punctuation at the end: translated with a full stop, which their translations lose again.

    A dog runs -> A dog runs. -> Ein Hund läuft. -> Ein Hund läuft

A model that has read only whole sentences translates one worse if it does not see where it ends.
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..data.forms import end_of
from .likelihood import WordProbability


_OF_EMOJI = ("\ufe0f", "\u20e3")  # marks that make an emoji of the sign before them
_FULL_STOPS = (".", "。", "।", "۔", "։", "።")


class Punctuation:
    """Puts a full stop on lines that end without punctuation, and takes it off their translations.

    Args:
        known: Words and signs of the model's training text with their counts (`load_word_counts`) or without
            (`load_known_words`): its most frequent full stop is the one to put on. Without them it is ".".

    Example:
        >>> punctuation = Punctuation()
        >>> punctuation.put_on("The dog is old")
        ('The dog is old.', True)
        >>> punctuation.take_off("Der Hund ist alt.")
        'Der Hund ist alt'
    """

    def __init__(self, known: Collection[str] | None = None):
        known = known or ()
        counts = known if isinstance(known, Mapping) else dict.fromkeys(known, 1)
        self.full_stop = max(_FULL_STOPS, key=lambda sign: counts.get(sign, 0))  # of equals, the first

    def put_on(self, line: str) -> tuple[str, bool]:
        """A line, with a full stop added if it ends in a letter or digit (and quotes), and whether one was added."""
        body, signs, closing = end_of(line)
        last = next((sign for sign in reversed(body) if sign in _OF_EMOJI or unicodedata.category(sign)[0] != "M"), "")
        if signs or not last or unicodedata.category(last)[0] not in "LN":
            return line, False
        return body + self.full_stop + closing, True

    def take_off(self, text: str) -> str:
        """A translation without its full stop; a question mark or an ellipsis stays, and so does a full stop alone."""
        body, signs, closing = end_of(text)
        return body.rstrip() + closing if body.strip() and signs in _FULL_STOPS else text

    def take_off_words(self, words: Sequence[WordProbability], text: str) -> Sequence[WordProbability]:
        """The words of a translation without its full stop: the last one loses it too, or is dropped if then empty."""
        if not words or self.take_off(text) == text:
            return words
        *others, last = words
        body, signs, closing = end_of(last.word)  # a full stop and a quote may be one word
        left = body.rstrip() + closing if signs in _FULL_STOPS else last.word
        return [*others, replace(last, word=left)] if left else others
