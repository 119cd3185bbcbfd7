"""Labelled bracketing precision, recall and F1 of parses, equal to EVALB's numbers.

EVALB (Sekine and Collins 1997) is how constituency parsing is scored: a bracket is its label and the words it spans,
once function tags, traces and punctuation are gone. It is a C program that must be built; pyevalb, the port on PyPI,
has none of its parameters. The version here is that of 2006, which prints F-measure and repairs quotation marks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from .evalb_parameters import COLLINS, EvalbParameters
from .trees import Tree, read_trees


class Status(IntEnum):
    """The outcome for a sentence, numbered as in EVALB's column `Stat.`: only `SCORED` ones count in a summary."""

    SCORED = 0
    ERROR = 1
    """The parse is not a tree in brackets, or its words differ from the gold tree's."""
    SKIPPED = 2
    """The parse has no words: the parser found none, or all of them are deleted."""


def _percentage(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


class _Percentages:
    """Percentages from the counts of one or more sentences; 0 where there is nothing to count."""

    matched: int
    gold: int
    parsed: int
    words: int
    correct_tags: int

    @property
    def recall(self) -> float:
        """Percentage of the gold brackets that the parse has."""
        return _percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percentage of the parse's brackets that are right."""
        return _percentage(self.matched, self.parsed)

    @property
    def tag_accuracy(self) -> float:
        """Percentage of words whose tags match."""
        return _percentage(self.correct_tags, self.words)


@dataclass(frozen=True)
class SentenceScore(_Percentages):
    """How one parse compares with its gold tree."""

    number: int  # the sentence's, from 1
    length: int  # words of the gold tree, without those in `delete_labels_for_length`
    status: Status
    matched: int = 0  # brackets of the parse that are in the gold tree
    gold: int = 0  # brackets of the gold tree
    parsed: int = 0  # brackets of the parse
    crossing: int = 0  # brackets of the parse that overlap with a gold bracket without one containing the other
    words: int = 0  # words of the gold tree that are not deleted
    correct_tags: int = 0  # words whose tags match
    problem: str = ""  # why it is an error, if it is one

    @property
    def complete(self) -> bool:
        """Whether all brackets match."""
        return self.matched == self.gold == self.parsed


_SUMS = ("matched", "gold", "parsed", "crossing", "words", "correct_tags", "complete")


@dataclass(frozen=True)
class BracketingSummary(_Percentages):
    """Sums over sentences: how many there are, how many were errors or skipped, and for the scored ones the counts of
    `SentenceScore`, how many are complete, and how many have no or at most two crossing brackets.
    """

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    parsed: int
    crossing: int
    words: int
    correct_tags: int
    complete: int
    without_crossing: int
    at_most_two_crossing: int

    @classmethod
    def of(cls, scores: Iterable[SentenceScore]) -> "BracketingSummary":
        """Sums up sentences; their order does not matter."""
        scores = list(scores)
        scored = [score for score in scores if score.status == Status.SCORED]
        return cls(
            sentences=len(scores),
            errors=sum(score.status == Status.ERROR for score in scores),
            skipped=sum(score.status == Status.SKIPPED for score in scores),
            **{name: sum(getattr(score, name) for score in scored) for name in _SUMS},
            without_crossing=sum(score.crossing == 0 for score in scored),
            at_most_two_crossing=sum(score.crossing <= 2 for score in scored),
        )

    @property
    def valid(self) -> int:
        """How many sentences were scored."""
        return self.sentences - self.errors - self.skipped

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where EVALB, dividing by zero, prints `nan`."""
        return _percentage(2 * self.matched, self.gold + self.parsed)

    @property
    def complete_match(self) -> float:
        """Percentage of scored sentences whose brackets all match."""
        return _percentage(self.complete, self.valid)

    @property
    def average_crossing(self) -> float:
        """Crossing brackets per scored sentence."""
        return self.crossing / self.valid if self.valid else 0.0

    @property
    def no_crossing(self) -> float:
        """Percentage of scored sentences without a crossing bracket."""
        return _percentage(self.without_crossing, self.valid)

    @property
    def two_or_less_crossing(self) -> float:
        """Percentage of scored sentences with at most two crossing brackets."""
        return _percentage(self.at_most_two_crossing, self.valid)


@dataclass(frozen=True)
class BracketingScores:
    """All that EVALB prints: each sentence in order, and summaries of all and of those up to `cutoff_length` words."""

    sentences: tuple[SentenceScore, ...]
    overall: BracketingSummary
    short: BracketingSummary
    cutoff_length: int


def score_trees(gold: Sequence[str], parsed: Sequence[str], parameters: EvalbParameters = COLLINS) -> BracketingScores:
    """Scores parses against gold trees as EVALB does.

    It differs from EVALB in two ways, neither of which changes the score of a well-formed parse. A malformed parse is
    an error with nothing counted, where EVALB may count what it understood, or stop. And labels and words may be long.

    Args:
        gold: The gold trees in brackets, one string per sentence. A bracket without a label around a tree counts like
            any other, so give it to both sides or to neither.
        parsed: The parser's trees in the same order. A string without words (an empty one, say) is a skipped sentence;
            one that cannot be read, or whose words differ from the gold tree's, is an error.
        parameters: What is counted.

    Raises:
        ValueError: There is nothing to score, the numbers of trees differ, a gold tree is malformed or has no words, or
            there are more errors than `parameters.max_error` allows. The message names the line, from 1.
        TypeError: Either is a single string, which would be split into characters.
    """
    if isinstance(gold, str) or isinstance(parsed, str):
        raise TypeError("gold and parsed must be sequences of strings, one per sentence; got one string")
    if len(gold) != len(parsed):
        raise ValueError(f"every gold tree needs its parse: got {len(gold)} gold trees and {len(parsed)} parses")
    if not gold:
        raise ValueError("nothing to score: there are no trees")
    scores: list[SentenceScore] = []
    errors: list[SentenceScore] = []
    for number, (gold_text, parsed_text) in enumerate(zip(gold, parsed, strict=True), start=1):
        scores.append(_score(number, _gold_trees(gold_text, number), parsed_text, parameters))
        errors += [scores[-1]] * (scores[-1].status == Status.ERROR)
        if parameters.max_error is not None and len(errors) > parameters.max_error + 1:
            raise ValueError(
                f"{len(errors)} parses up to line {number} are errors, more than MAX_ERROR {parameters.max_error} "
                f"allows; mend them or raise it. The first is line {errors[0].number}: {errors[0].problem}"
            )
    return BracketingScores(
        sentences=tuple(scores),
        overall=BracketingSummary.of(scores),
        short=BracketingSummary.of(score for score in scores if score.length <= parameters.cutoff_length),
        cutoff_length=parameters.cutoff_length,
    )


def _gold_trees(text: str, number: int) -> tuple[Tree, ...]:
    try:
        trees = read_trees(text)
    except ValueError as error:
        raise ValueError(f"line {number} of the gold trees is malformed: {error}") from error
    if not any(tree.leaves() for tree in trees):
        raise ValueError(f"line {number} of the gold trees has no words: each line must be a tree, the last one too")
    return trees


def _score(number: int, gold_trees: Iterable[Tree], parsed_text: str, parameters: EvalbParameters) -> SentenceScore:
    gold = _Sentence(gold_trees, parameters)

    def score(status: Status, **found) -> SentenceScore:
        return SentenceScore(number, gold.length, status, words=len(gold.words), **found)

    try:
        parsed = _Sentence(read_trees(parsed_text), parameters)
    except ValueError as error:
        return score(Status.ERROR, problem=f"the parse is malformed: {error}")
    if not parsed.words:
        return score(Status.SKIPPED)
    if len(gold.words) != len(parsed.words):
        _keep_quotes(gold, parsed, parameters.delete_labels)
    if len(gold.words) != len(parsed.words):
        problem = f"the gold tree has {len(gold.words)} words and the parse {len(parsed.words)}"
        return score(Status.ERROR, problem=problem)
    correct_tags = 0
    for (gold_word, gold_tag), (parsed_word, parsed_tag) in zip(gold.words, parsed.words, strict=True):
        if not parameters.same_word(gold_word, parsed_word):
            return score(Status.ERROR, problem=f"the parse has {parsed_word!r} for the word {gold_word!r}")
        correct_tags += parameters.same_label(gold_tag, parsed_tag)
    gold_brackets, parsed_brackets = gold.counted_brackets(parameters), parsed.counted_brackets(parameters)
    return score(
        Status.SCORED,
        matched=_matches(gold_brackets, parsed_brackets, parameters),
        gold=len(gold_brackets),
        parsed=len(parsed_brackets),
        crossing=_crossings(gold_brackets, parsed_brackets, len(gold.words)),
        correct_tags=correct_tags,
    )


@dataclass
class _Bracket:
    """A constituent over the words `start` to `end - 1`, deleted words not counted."""

    label: str
    start: int
    end: int


@dataclass(eq=False)  # two marks side by side may be equal in everything
class _Quote:
    """A word with its tag, which may be a quotation mark in one tree and something else in the other.

    It stands after `index` words that are not deleted and after `brackets_before` opened brackets, of which those with
    the numbers `around` are still open.
    """

    index: int
    word: tuple[str, str]
    brackets_before: int
    around: frozenset[int]


class _Sentence:
    """What EVALB sees of a tree, or of several trees in one line."""

    def __init__(self, trees: Iterable[Tree], parameters: EvalbParameters):
        self.words: list[tuple[str, str]] = []  # those that are not deleted, with their tags
        self.length = 0  # in words, as `delete_labels_for_length` counts them
        self.brackets: list[_Bracket] = []  # in the order in which they open, including those that do not count
        self.quotes: list[_Quote] = []  # quotation marks and apostrophes with a tag in `quote_labels`, deleted or not
        opened: list[int] = []
        for node, down in (step for tree in trees for step in tree.walk()):
            if node.word is None and down:
                opened.append(len(self.brackets))
                self.brackets.append(_Bracket(node.label, len(self.words), len(self.words)))
            elif node.word is None:
                self.brackets[opened.pop()].end = len(self.words)
            elif down:
                word, tag = node.word, node.label
                self.length += tag not in parameters.delete_labels_for_length
                if tag in parameters.quote_labels and word in ("'", '"', "/"):
                    self.quotes.append(_Quote(len(self.words), (word, tag), len(self.brackets), frozenset(opened)))
                if tag not in parameters.delete_labels:
                    self.words.append((word, tag))

    def put_back(self, quote: _Quote) -> None:
        """Undoes the deletion of a word; everything after it moves one to the right."""
        self.words.insert(quote.index, quote.word)
        for number, bracket in enumerate(self.brackets):
            if number >= quote.brackets_before:
                bracket.start += 1
                bracket.end += 1
            elif number in quote.around:
                bracket.end += 1
        # The word itself moves too, a slip of EVALB's: it may keep the first of two marks twice, instead of both.
        for later in self.quotes[self.quotes.index(quote) :]:
            later.index += 1

    def counted_brackets(self, parameters: EvalbParameters) -> list[_Bracket]:
        """Brackets around words, without function tags and deleted labels."""
        found = []
        for bracket in self.brackets:
            label = bracket.label.replace("=", "-").partition("-")[0]
            deleted = any(parameters.same_label(label, each) for each in parameters.delete_labels)
            if bracket.start < bracket.end and not deleted:
                found.append(_Bracket(label, bracket.start, bracket.end))
        return found


def _keep_quotes(gold: _Sentence, parsed: _Sentence, deleted: frozenset[str]) -> None:
    """Puts back quotes that are deleted on one side only, because they have another tag on the other."""
    for parsed_quote in parsed.quotes:
        index, parsed_tag = parsed_quote.index, parsed_quote.word[1]
        for gold_quote in gold.quotes:
            gold_tag = gold_quote.word[1]
            if gold_quote.index == index and gold_tag != parsed_tag:
                if gold_tag in deleted and parsed_tag not in deleted:
                    gold.put_back(gold_quote)
                elif parsed_tag in deleted and gold_tag not in deleted:
                    parsed.put_back(parsed_quote)


def _matches(gold: list[_Bracket], parsed: list[_Bracket], parameters: EvalbParameters) -> int:
    """How many brackets have a partner of their own, assigned in the order in which they open."""
    free: dict[tuple[int, int], list[str]] = defaultdict(list)
    for bracket in parsed:
        free[bracket.start, bracket.end].append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = free[bracket.start, bracket.end]
        for place, label in enumerate(labels):
            if not parameters.labeled or parameters.same_label(bracket.label, label):
                del labels[place]
                matched += 1
                break
    return matched


def _crossings(gold: list[_Bracket], parsed: list[_Bracket], words: int) -> int:
    """How many brackets of the parse cross one of the gold tree."""
    first_start = list(range(words + 1))  # of gold brackets by their ends
    last_end = list(range(words + 1))  # of gold brackets by their starts
    for bracket in gold:
        first_start[bracket.end] = min(first_start[bracket.end], bracket.start)
        last_end[bracket.start] = max(last_end[bracket.start], bracket.end)
    return sum(
        min(first_start[bracket.start + 1 : bracket.end], default=words) < bracket.start
        or max(last_end[bracket.start + 1 : bracket.end], default=0) > bracket.end
        for bracket in parsed
    )
