"""Runs of pairs whose sides do not belong together, as when a line is missing on one side.

Each of some thousand consecutive pairs has three features: how far the ratio of its lengths is from the usual, whether
both sides end in the same sign, and how well the words of one side go with those of the other. How often each
combination x comes in pairs as they stand, and in pairs of sources and targets that are far from each other, gives

    r(x) = log p(x | as they stand) / p(x | far apart)

The sum of r is lowest in runs of pairs that do not belong together. A model of two states finds these runs (Viterbi): a
pair in the state "together" gains r(x), a pair in the state "apart" gains nothing, and a change of state costs
`_CHANGE`. All of this is counted in the text itself, including which words go together. So it needs no other model, and
fits any two languages.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..data.scripts import LETTERS


LEAST_PAIRS = 500  # fewer do not show which words go together
_CHANGE = 4.0  # nats, to enter and again to leave: more than two unusual pairs gain, less than four mismatched ones
_MOST_WORDS = 8  # of a side, the rarest ones: content words show which sides belong together


def misaligned_runs(sources: Sequence[str], targets: Sequence[str]) -> list[bool]:
    """Says of each pair whether it is in a run of pairs that do not belong together.

    Args:
        sources, targets: Some thousand consecutive texts; with fewer than `LEAST_PAIRS` nothing is found.
    """
    count = len(sources)
    if count < LEAST_PAIRS:
        return [False] * count
    lexicon = _Lexicon(sources, targets)
    together, apart = (_features(sources, targets, lexicon, shift) for shift in (0, count // 2))
    size = max(together.max(), apart.max()) + 1
    counts = [np.bincount(each, minlength=size) + 1.0 for each in (together, apart)]
    ratio = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
    return _apart(ratio[together].tolist())


def _apart(gains: list[float]) -> list[bool]:
    """The likeliest sequence of states: whether each pair is apart."""
    best = (0.0, -_CHANGE)  # of the paths that end together, and apart
    changed: list[tuple[bool, bool]] = []
    for gain in gains:
        changed.append((best[1] - _CHANGE > best[0], best[0] - _CHANGE > best[1]))
        best = (max(best[0], best[1] - _CHANGE) + gain, max(best[1], best[0] - _CHANGE))
    state, states = best[1] > best[0], []
    for change in reversed(changed):
        states.append(state)
        state ^= change[state]
    return states[::-1]


def _features(sources: Sequence[str], targets: Sequence[str], lexicon: "_Lexicon", shift: int) -> np.ndarray:
    """A number (pairs,) for each source and the target `shift` after it, the same where all three features are."""
    source_lengths, target_lengths = (np.log([len(text) + 1 for text in side]) for side in (sources, targets))
    source_signs, target_signs = (np.array([_sign(text) for text in side]) for side in (sources, targets))
    usual = np.median(target_lengths - source_lengths)
    unlike = np.abs(np.roll(target_lengths, -shift) - source_lengths - usual)
    length_class = np.minimum(unlike / 0.15, 4).astype(int)  # 0 to 4
    same_sign = source_signs == np.roll(target_signs, -shift)
    word_class = np.minimum(np.array(lexicon.agreement(shift)) * 16, 7).astype(int)  # 0 to 7
    return (length_class * 2 + same_sign) * 8 + word_class


def _sign(text: str) -> str:
    last = text[-1:]
    return "" if LETTERS.match(last) else last


class _Lexicon:
    """Which words of sources come with which words of targets."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]):
        self.sources, self.source_counts = _rarest_words(sources)
        self.targets, self.target_counts = _rarest_words(targets)
        pairs = zip(self.sources, self.targets, strict=True)
        self.together = Counter((word, other) for words, others in pairs for word in words for other in others)

    def agreement(self, shift: int) -> list[float]:
        """The mean Dice coefficient of each source's words with their best match in the target `shift` after it.

        A pair does not count for itself, or its rare words would always agree.
        """
        own, found = 0 if shift else 1, []
        for number, words in enumerate(self.sources):
            others = self.targets[(number + shift) % len(self.targets)]
            total = 0.0
            for word in words:
                best = 0.0
                for other in others:
                    count = self.together.get((word, other), 0) - own
                    if count > 0:
                        among = self.source_counts[word] + self.target_counts[other] + 2 - 2 * own
                        best = max(best, 2 * count / among)
                total += best
            found.append(total / max(1, len(words)))
        return found


def _rarest_words(texts: Sequence[str]) -> tuple[list[list[str]], Counter]:
    """The rarest words of each text that occur in others too, and how many texts each occurs in."""
    words = [sorted({word.casefold() for word in LETTERS.findall(text)}) for text in texts]
    frequency = Counter(word for each in words for word in each)
    again = [[word for word in each if frequency[word] > 1] for each in words]
    return [sorted(each, key=frequency.__getitem__)[:_MOST_WORDS] for each in again], frequency
