"""An endless English-German phrasebook: sentence pairs from a small grammar of both languages.

The phrasebook is the corpus that needs no download. Its sentences are made of the words in its lexicon, and the German
has what makes German hard: gender, case and three declensions of the adjective, verb-second and verb-final order,
separable verbs, *nicht* and *kein*, relative clauses. Every English sentence has exactly one German translation, so
that a small Transformer can learn the whole mapping.

The modules go from words to sentences, and each imports only from those before it: lexicon, numbers, declension,
phrases, nominals (nouns as phrases), conjugation, verbs, times, clauses, and at last the constructions.

Spaces follow one rule: a piece that may be empty (a right bracket, a remainder) brings its leading blank with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any
from zlib import crc32

from .constructions import CONSTRUCTIONS
from .numbers import number_in_english, number_in_german, year_in_english, year_in_german


__all__ = ["number_in_english", "number_in_german", "phrasebook", "split_of", "year_in_english", "year_in_german"]

# Of four English sentences one is for validation, one for test and two are for training.
SPLIT_OF_REMAINDER = ("validation", "test", "train", "train")


def split_of(english: str) -> str:
    """Returns the split that an English sentence belongs to, which nothing but the sentence itself decides."""
    return SPLIT_OF_REMAINDER[crc32(english.encode()) % 4]


def phrasebook(split: str = "train", *, seed: int = 0) -> Iterator[dict[str, str]]:
    """Endless stream of English-German sentence pairs.

    The same split and seed give the same sentences in every process. No sentence is in two splits, whatever their
    seeds, because the sentence itself decides where it belongs; so a stream leaves out the sentences of the others.

    Args:
        split: "train", "validation" or "test".
        seed: Which of the streams of the split.

    Returns:
        An iterator over pairs such as ``{"en": "Anna is sleeping.", "de": "Anna schläft."}``.

    Raises:
        ValueError: If there is no such split.
    """
    if split not in SPLIT_OF_REMAINDER:
        raise ValueError(f'split must be "train", "validation" or "test", got {split!r}')
    return (
        {"en": english, "de": german[0].upper() + german[1:]}
        for english, german in sentences(seed)
        if split_of(english) == split
    )


def sentences(seed: int) -> Iterator[tuple[str, str]]:
    """Yields the sentences of all splits; the German still begins with a small letter."""
    random = Random(f"phrasebook {seed}").random

    def draw(pool: Sequence[Any]) -> Any:
        return pool[int(random() * len(pool))]

    while True:
        english, german = draw(CONSTRUCTIONS)(draw)
        if english[-1] != "?":
            english, german = f"{english}.", f"{german}."
        yield english[0].upper() + english[1:], german
