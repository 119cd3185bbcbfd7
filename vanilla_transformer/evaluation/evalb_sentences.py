"""Sentences as EVALB sees them: words that are not deleted, and brackets over them."""

from collections.abc import Iterable
from dataclasses import dataclass

from .evalb_parameters import EvalbParameters
from .trees import Tree


@dataclass
class Bracket:
    """A constituent over the words `start` to `end - 1`, deleted words not counted."""

    label: str
    start: int
    end: int


@dataclass(eq=False)  # two marks side by side may be alike in all they hold
class Quote:
    """A word that may be tagged as a quotation mark in one tree and as something else in the other.

    Attributes:
        index: How many words that are not deleted stand before it.
        word: The word and its tag.
        brackets_before: How many brackets open before it.
        around: Which of these are still open, by number.
    """

    index: int
    word: tuple[str, str]
    brackets_before: int
    around: frozenset[int]


class SentenceView:
    """What EVALB sees of a tree, or of several that stand in one line.

    Attributes:
        words: Words that are not deleted, with their tags.
        length: Number of words, in the sense of `delete_labels_for_length`.
        brackets: All constituents in the order in which they open, also those that do not count.
        quotes: Quotation marks and apostrophes with a tag in `quote_labels`, deleted or not.
    """

    def __init__(self, trees: Iterable[Tree], parameters: EvalbParameters):
        self.words: list[tuple[str, str]] = []
        self.length = 0
        self.brackets: list[Bracket] = []
        self.quotes: list[Quote] = []
        self._open: list[int] = []
        for tree in trees:
            for constituent, down in tree.walk():
                if constituent.word is None:
                    self._open_or_close(constituent.label, down)
                elif down:
                    self._add_word(constituent.word, constituent.label, parameters)

    def _open_or_close(self, label: str, opens: bool) -> None:
        if opens:
            self._open.append(len(self.brackets))
            self.brackets.append(Bracket(label, len(self.words), len(self.words)))
        else:
            self.brackets[self._open.pop()].end = len(self.words)

    def _add_word(self, word: str, tag: str, parameters: EvalbParameters) -> None:
        self.length += tag not in parameters.delete_labels_for_length
        if tag in parameters.quote_labels and word in ("'", '"', "/"):
            self.quotes.append(Quote(len(self.words), (word, tag), len(self.brackets), frozenset(self._open)))
        if tag not in parameters.delete_labels:
            self.words.append((word, tag))

    def put_back(self, quote: Quote) -> None:
        """Undoes the deletion of a word; all that stands after it moves one to the right."""
        self.words.insert(quote.index, quote.word)
        for number, bracket in enumerate(self.brackets):
            if number >= quote.brackets_before:
                bracket.start += 1
                bracket.end += 1
            elif number in quote.around:
                bracket.end += 1
        # The word itself moves too: a slip of EVALB's by which it may keep the first of two marks twice, not both.
        for later in self.quotes[self.quotes.index(quote) :]:
            later.index += 1

    def counted_brackets(self, parameters: EvalbParameters) -> list[Bracket]:
        """Brackets around words, without function tags and deleted labels."""
        found = [
            Bracket(bracket.label.replace("=", "-").partition("-")[0], bracket.start, bracket.end)
            for bracket in self.brackets
            if bracket.start < bracket.end
        ]
        deleted = parameters.delete_labels
        return [each for each in found if not any(parameters.same_label(each.label, label) for label in deleted)]


def keep_quotes(gold: SentenceView, parsed: SentenceView, deleted: frozenset[str]) -> None:
    """Puts quotes back that are deleted on one side only, because they bear another tag on the other."""
    for parsed_quote in parsed.quotes:
        index, parsed_tag = parsed_quote.index, parsed_quote.word[1]
        for gold_quote in gold.quotes:
            gold_tag = gold_quote.word[1]
            if gold_quote.index == index and gold_tag != parsed_tag:
                if gold_tag in deleted and parsed_tag not in deleted:
                    gold.put_back(gold_quote)
                elif parsed_tag in deleted and gold_tag not in deleted:
                    parsed.put_back(parsed_quote)
