"""Where systems differ: on which sentences, at which lengths, on which words."""

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..data.scripts import LETTERS, is_unspaced
from .metrics import METRICS
from .scores import score_segments, score_translations


FREQUENCY_EDGES = (1, 10, 100, 1000, 10_000)


@dataclass(frozen=True)
class Difference:
    """A sentence that one system translates better than another: its number, from 1, and its score by system."""

    segment: int
    values: dict[str, float]


@dataclass(frozen=True)
class Group:
    """How many sentences have something in common, say a length of "11–15" words, and their score by system."""

    label: str
    segments: int
    values: dict[str, float]


def largest_differences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metric: str,
    *,
    target_language: str,
    count: int = 5,
) -> dict[str, list[Difference]]:
    """The sentences on which the first system and each of the others differ most.

    Args:
        systems: Translations of the same segments by the name of the system.
        references: Lists of references, each with one for every segment.
        metric, target_language: As for `score_translations`.
        count: This many sentences that the first system translates better, and this many that the other does.

    Returns:
        By the other system's name, first the sentences it translates better, the largest gain first; then those it
        translates worse, the largest loss first. Sentences of equal score are left out.
    """
    scores = {
        name: [each[metric] for each in score_segments(texts, references, [metric], target_language=target_language)]
        for name, texts in systems.items()
    }
    first, *others = systems
    sign = -1 if METRICS[metric].lower_is_better else 1
    found = {}
    for other in others:
        gains = [sign * (b - a) for a, b in zip(scores[first], scores[other], strict=True)]
        order = sorted(range(len(gains)), key=lambda i: -gains[i])
        better = [i for i in order[:count] if gains[i] > 0]
        worse = [i for i in reversed(order[-count:]) if gains[i] < 0] if count else []
        found[other] = [
            Difference(i + 1, {name: scores[name][i] for name in (first, other)}) for i in [*better, *worse]
        ]
    return found


def scores_by_group(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metric: str,
    labels: Sequence[str],
    order: Sequence[str],
    *,
    target_language: str,
) -> list[Group]:
    """Scores the sentences of each group on their own.

    Args:
        systems, references, metric, target_language: As for `largest_differences`.
        labels: Which group each segment belongs to.
        order: The labels in the desired order; groups without segments are left out.
    """

    def score(translations: Sequence[str], members: list[int]) -> float:
        """The score of the segments with these numbers."""
        hypotheses, *chosen_references = ([texts[i] for i in members] for texts in (translations, *references))
        [found] = score_translations(hypotheses, chosen_references, [metric], target_language=target_language)
        return found.value

    members_of = {label: [i for i, own in enumerate(labels) if own == label] for label in order}
    return [
        Group(label, len(members), {name: score(translations, members) for name, translations in systems.items()})
        for label, members in members_of.items()
        if members
    ]


def length_groups(sources: Sequence[str], groups: int = 6) -> tuple[list[str], list[str]]:
    """Groups of about as many sentences each, by how many words they have, or letters in scripts without spaces.

    Returns:
        The label of each sentence, and the labels from short to long.
    """
    lengths = [len(LETTERS.findall(source) if is_unspaced(source) else source.split()) for source in sources]
    ordered = sorted(lengths)
    edges = sorted({ordered[len(ordered) * i // groups] for i in range(groups)})
    ends = [edge - 1 for edge in edges[1:]] + [ordered[-1]]
    names = [f"{start}" if start == end else f"{start}–{end}" for start, end in zip(edges, ends, strict=True)]
    return [names[bisect_right(edges, length) - 1] for length in lengths], names


def frequency_groups(sources: Sequence[str], training_text: Iterable[str]) -> tuple[list[str], list[str]]:
    """Groups by how often the rarest word of a sentence occurs in the training text, whatever its case.

    `training_text` is the source side of what the systems were trained on, line by line; it is read once, never held.

    Returns:
        The label of each sentence, and the labels from rare to frequent.
    """
    words = [_words(source) for source in sources]
    wanted = {word for each in words for word in each}
    counts: Counter = Counter()
    for line in training_text:
        counts.update(word for word in _words(line) if word in wanted)
    between = [f"{low:,}–{high - 1:,}" for low, high in pairwise(FREQUENCY_EDGES)]
    names = ["never", *between, f"{FREQUENCY_EDGES[-1]:,} or more"]
    rarest = [min((counts[word] for word in each), default=0) for each in words]
    return [names[bisect_right(FREQUENCY_EDGES, count)] for count in rarest], names


def _words(text: str) -> list[str]:
    return LETTERS.findall(unicodedata.normalize("NFC", text.casefold()))
