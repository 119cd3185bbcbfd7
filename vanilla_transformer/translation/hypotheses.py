"""What is translated at a time, and what comes of it."""

from dataclasses import dataclass

from ..evaluation.attention import WordAlignment


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    `score` is its log-probability divided by the length penalty, the higher the better; None where the search has none
    (greedy search, samples). `alignment` says which words it was made from, if that was asked for.
    """

    text: str
    score: float | None = None
    alignment: WordAlignment | None = None

    def __add__(self, other: "Hypothesis") -> "Hypothesis":
        """The translation of two sentences one behind the other; its score is the sum of theirs."""
        score = None if self.score is None or other.score is None else self.score + other.score
        alignment = None if self.alignment is None or other.alignment is None else self.alignment + other.alignment
        return Hypothesis(f"{self.text} {other.text}", score, alignment)


@dataclass
class Batch:
    """Sentences that are translated together: their numbers, texts and token ids."""

    numbers: list[int]
    texts: list[str]
    sources: list[list[int]]
    begins: bool  # with the prefix
    seed: int | None = None
