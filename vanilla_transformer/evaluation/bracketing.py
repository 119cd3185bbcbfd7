"""Labelled bracketing precision, recall and F1 of parses, equal to EVALB's numbers.

EVALB (Sekine and Collins 1997) is how constituency parsing is scored: a bracket is its label and the words it spans,
after function tags, traces and punctuation are gone. It is a C program that must be built; pyevalb, the port on PyPI,
knows none of its parameters.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from .evalb_parameters import COLLINS, EvalbParameters
from .evalb_sentences import Bracket, SentenceView, keep_quotes
from .trees import Tree, read_trees


class Status(IntEnum):
    """What became of a sentence, numbered as in EVALB's column `Stat.`: only `SCORED` ones count in a summary."""

    SCORED = 0
    ERROR = 1
    """The parse is no tree in brackets, or has other words than the gold tree."""
    SKIPPED = 2
    """The parse has no words: the parser found none, or only deleted ones are in it."""


@dataclass(frozen=True)
class SentenceScore:
    """How one parse compares with its gold tree.

    Attributes:
        number: The sentence's number, from 1.
        length: Words of the gold tree, without those in `delete_labels_for_length`.
        status: Whether it counts.
        matched: Brackets of the parse that are in the gold tree.
        gold: Brackets of the gold tree.
        parsed: Brackets of the parse.
        crossing: Brackets of the parse that overlap with one of the gold tree without one being in the other.
        words: Words of the gold tree that are not deleted.
        correct_tags: Words whose tags match.
        problem: Why it is an error, if it is.
    """

    number: int
    length: int
    status: Status
    matched: int = 0
    gold: int = 0
    parsed: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0
    problem: str = ""

    @property
    def recall(self) -> float:
        """Percentage of the gold tree's brackets that the parse has; 0 if there are none."""
        return _percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percentage of the parse's brackets that are right; 0 if there are none."""
        return _percentage(self.matched, self.parsed)

    @property
    def tag_accuracy(self) -> float:
        """Percentage of words whose tags match."""
        return _percentage(self.correct_tags, self.words)

    @property
    def complete(self) -> bool:
        """Whether all brackets match."""
        return self.matched == self.gold == self.parsed


@dataclass(frozen=True)
class BracketingSummary:
    """Sums over sentences; all but the first three are over those that were scored.

    Attributes:
        sentences: How many there are.
        errors: How many of them have the status ERROR.
        skipped: How many of them have the status SKIPPED.
        matched: Brackets of parses that are in the gold trees.
        gold: Brackets of gold trees.
        parsed: Brackets of parses.
        crossing: Brackets of parses that cross one of the gold tree.
        words: Words that are not deleted.
        correct_tags: Words whose tags match.
        complete: Sentences all of whose brackets match.
        without_crossing: Sentences without a crossing bracket.
        at_most_two_crossing: Sentences with at most two crossing brackets.
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
    def recall(self) -> float:
        """Percentage of the gold trees' brackets that parses have; like all of these 0 where there is nothing."""
        return _percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percentage of the parses' brackets that are right."""
        return _percentage(self.matched, self.parsed)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where EVALB, dividing by zero, prints `nan`."""
        return _percentage(2 * self.matched, self.gold + self.parsed)

    @property
    def complete_match(self) -> float:
        """Percentage of scored sentences all of whose brackets match."""
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

    @property
    def tag_accuracy(self) -> float:
        """Percentage of words whose tags match."""
        return _percentage(self.correct_tags, self.words)


_SUMS = ("matched", "gold", "parsed", "crossing", "words", "correct_tags", "complete")


@dataclass(frozen=True)
class BracketingScores:
    """All that EVALB prints.

    Attributes:
        sentences: The score of each sentence, in order.
        overall: The summary of all.
        short: The summary of sentences of at most `cutoff_length` words.
        cutoff_length: As the parameters have it.
    """

    sentences: tuple[SentenceScore, ...]
    overall: BracketingSummary
    short: BracketingSummary
    cutoff_length: int


def score_trees(gold: Sequence[str], parsed: Sequence[str], parameters: EvalbParameters = COLLINS) -> BracketingScores:
    """Scores parses against gold trees as EVALB does.

    Departures from EVALB, none of which changes the score of a well-formed parse: a parse that is not well-formed is an
    error with nothing counted, where EVALB may count what it has understood, or stop; labels and words may be long.

    Args:
        gold: The right trees in brackets, one string per sentence. A bracket without a label around a tree counts like
            any other, so let both sides have it or neither.
        parsed: The parser's trees in the same order. A string without words (an empty one, say) is a sentence that was
            skipped; one that cannot be read, or has other words than the gold tree, is an error.
        parameters: What is counted.

    Raises:
        ValueError: If there is nothing to score, the numbers of trees differ, a gold tree is malformed or has no words,
            or there are more errors than `parameters.max_error` allows. The message names the line, from 1.
        TypeError: If either is a single string, which would be taken apart into characters.
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
        if scores[-1].status == Status.ERROR:
            errors.append(scores[-1])
            _check_errors(errors, parameters.max_error)
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


def _check_errors(errors: list[SentenceScore], max_error: int | None) -> None:
    if max_error is not None and len(errors) > max_error + 1:
        raise ValueError(
            f"{len(errors)} parses up to line {errors[-1].number} are errors, more than MAX_ERROR {max_error} allows; "
            f"mend them or raise it. The first is line {errors[0].number}: {errors[0].problem}"
        )


def _score(number: int, gold_trees: Iterable[Tree], parsed_text: str, parameters: EvalbParameters) -> SentenceScore:
    gold = SentenceView(gold_trees, parameters)

    def without_numbers(status: Status, problem: str = "") -> SentenceScore:
        return SentenceScore(number, gold.length, status, words=len(gold.words), problem=problem)

    try:
        parsed = SentenceView(read_trees(parsed_text), parameters)
    except ValueError as error:
        return without_numbers(Status.ERROR, f"the parse is malformed: {error}")
    if not parsed.words:
        return without_numbers(Status.SKIPPED)
    if len(gold.words) != len(parsed.words):
        keep_quotes(gold, parsed, parameters.delete_labels)
    if len(gold.words) != len(parsed.words):
        problem = f"the gold tree has {len(gold.words)} words and the parse {len(parsed.words)}"
        return without_numbers(Status.ERROR, problem)
    for (gold_word, _), (parsed_word, _) in zip(gold.words, parsed.words, strict=True):
        if not parameters.same_word(gold_word, parsed_word):
            return without_numbers(Status.ERROR, f"the parse has {parsed_word!r} for the word {gold_word!r}")
    gold_brackets, parsed_brackets = gold.counted_brackets(parameters), parsed.counted_brackets(parameters)
    tags = [(tag, other) for (_, tag), (_, other) in zip(gold.words, parsed.words, strict=True)]
    return SentenceScore(
        number,
        gold.length,
        Status.SCORED,
        matched=_matches(gold_brackets, parsed_brackets, parameters),
        gold=len(gold_brackets),
        parsed=len(parsed_brackets),
        crossing=_crossings(gold_brackets, parsed_brackets, len(gold.words)),
        words=len(tags),
        correct_tags=sum(parameters.same_label(*pair) for pair in tags),
    )


def _matches(gold: list[Bracket], parsed: list[Bracket], parameters: EvalbParameters) -> int:
    """How many brackets have a partner of their own, given out in the order in which they open."""
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


def _crossings(gold: list[Bracket], parsed: list[Bracket], words: int) -> int:
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


def _percentage(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
