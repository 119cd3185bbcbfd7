"""How far a text lies outside what a model has seen: its words, and how well the model predicts it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from transformers import PreTrainedTokenizerBase

from ..data.known_words import RARE, words_of


@dataclass(frozen=True)
class Domain:
    """One text, as a model sees it.

    Attributes:
        text: Its name.
        words: How many words its sources have, without numbers and marks.
        unknown: Share of them that the model's training text did not have, from 0 to 1; None if the model has no list
            of its words.
        rare: Share of them that the training text had, but fewer than ten times; None where `unknown` is None, and for
            a list without counts.
        perplexity: The model's, on the references, per token.
        most_unknown: The most frequent unknown words, and how often each occurs.
    """

    text: str
    words: int
    unknown: float | None
    rare: float | None
    perplexity: float
    most_unknown: dict[str, int]


def domain_of(
    text: str,
    sources: Sequence[str],
    perplexity: float,
    counts: Mapping[str, int] | None,
    tokenizer: PreTrainedTokenizerBase,
    *,
    shown: int = 10,
) -> Domain:
    """Looks up the words of a text.

    Args:
        text: Its name.
        sources: Its lines in the source language.
        perplexity: The model's, on this text.
        counts: How often the model's training text had each word, as `load_word_counts` returns them; None if unknown.
        tokenizer: The model's tokenizer, which says what a word is.
        shown: How many unknown words to name.
    """
    if counts is None:
        words = sum(any(map(str.isalpha, word)) for line in sources for word in line.split())
        return Domain(text, words, None, None, perplexity, {})
    found = Counter(chain.from_iterable(words_of(tokenizer, line) for line in sources))
    found = Counter({word: count for word, count in found.items() if any(map(str.isalpha, word))})
    unknown = Counter({word: count for word, count in found.items() if word not in counts})
    has_numbers = any(count != RARE for count in counts.values())  # an old list has no numbers
    rare = sum(count for word, count in found.items() if counts.get(word, RARE) < RARE)
    total = found.total()
    most = dict(sorted(unknown.items(), key=lambda each: (-each[1], each[0]))[:shown])
    return Domain(
        text, total, unknown.total() / (total or 1), rare / (total or 1) if has_numbers else None, perplexity, most
    )
