"""How lines are read: changes made to them before translation, and undone in their translations."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..data.context import Context
from .casing import Casing
from .decoding import Hypothesis
from .punctuation import Punctuation
from .spelling import Spelling


if TYPE_CHECKING:
    from .markup import Markup


@dataclass(frozen=True)
class ReadLine:
    """A line as the model reads it.

    Attributes:
        text: The text to translate: without markup, in sentence case, with its spelling corrected and a full stop
            added, each if asked for.
        words: The same with the line's own spelling and end: some of its words the model may not know.
        respelled: Its mistyped words, and the word that each is read as.
        form: The form that its capitals had, `"upper"` or `"title"`; None if they stay as they are.
        got_stop: Whether a full stop was added.
    """

    text: str
    words: str
    respelled: dict[str, str] = field(default_factory=dict)
    form: str | None = None
    got_stop: bool = False


@dataclass(frozen=True)
class Reading:
    """How lines are read.

    Raises:
        ValueError: Some of the ways to read do not go together.
    """

    markup: "Markup | None"
    casing: Casing | None
    spelling: Spelling | None
    punctuation: Punctuation | None
    align: bool

    def __post_init__(self):
        for name in ("casing", "punctuation"):
            if getattr(self, name) is not None and (self.markup is not None or self.align):
                raise ValueError(
                    f"{name} changes the words that were aligned: leave out {name}, or markup and alignments."
                )
        if self.spelling is not None and self.markup is not None:
            raise ValueError("Correcting the spelling would change markup, too: leave out one of them.")

    @classmethod
    def of(cls, markup: str | None, keep_numbers: bool, *ways) -> "Reading":
        """The reading for this kind of markup, if any; `ways` are the other fields."""
        if markup is None:
            if keep_numbers:
                raise ValueError('Numbers are kept as placeholders are: ask for markup="placeholders" too, or another.')
            return cls(None, *ways)
        from .markup import Markup  # only now: few need it

        return cls(Markup(markup, keep_numbers), *ways)

    def line(self, line: str) -> ReadLine:
        """The next line in order as it is read."""
        if self.markup is None:
            return self._read(line.strip())
        text = self.markup.take_out(line)
        return ReadLine(text, text)

    def context(self, sentences: Context) -> Context:
        """The sentences before a line as they are read; they have no markup."""
        return tuple(self._read(sentence).text for sentence in sentences)

    def _read(self, line: str) -> ReadLine:
        form, respelled, got_stop = None, {}, False
        if self.casing is not None:
            line, form = self.casing.take_off(line)
        words = line
        if self.spelling is not None:
            line, respelled = self.spelling.read(line)
        if self.punctuation is not None:
            line, got_stop = self.punctuation.put_on(line)
        return ReadLine(line, words, respelled, form, got_stop)

    def undone(self, hypotheses: list[Hypothesis], read: ReadLine) -> list[Hypothesis]:
        """The translations of the next line in order: with its markup, in its form, without an added full stop."""
        hypotheses = [replace(each, read=read, written=each.text) for each in hypotheses]
        if self.markup is not None:
            hypotheses = self.markup.put_back(hypotheses, self.align)
        if read.got_stop:
            hypotheses = [self._without_stop(each) for each in hypotheses]
        return hypotheses if read.form is None else [self._in_form(each, read.form) for each in hypotheses]

    def _without_stop(self, hypothesis: Hypothesis) -> Hypothesis:
        text, likelihood = hypothesis.text, hypothesis.likelihood
        if likelihood is not None:
            likelihood = replace(likelihood, words=self.punctuation.take_off_words(likelihood.words, text))
        return replace(hypothesis, text=self.punctuation.take_off(text), likelihood=likelihood)

    def _in_form(self, hypothesis: Hypothesis, form: str) -> Hypothesis:
        text, likelihood = hypothesis.text, hypothesis.likelihood
        if likelihood is not None:
            words = self.casing.put_on_words((each.word for each in likelihood.words), text, form)
            words = [replace(each, word=word) for each, word in zip(likelihood.words, words, strict=True)]
            likelihood = replace(likelihood, words=words)
        return replace(hypothesis, text=self.casing.put_on(text, form), likelihood=likelihood)
