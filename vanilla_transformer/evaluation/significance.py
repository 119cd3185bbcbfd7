"""How far chance alone moves a score: the bootstrap, and two paired tests of the difference between systems.

Report approximate randomisation: for equally good systems it finds p <= 0.05 in one case of 20. The bootstrap's p-value
stands beside it because Moses and sacreBLEU print it.

Samples, seed and numbers are those of sacreBLEU (2.x), with two exceptions. sacreBLEU holds all samples at once, a
number for each statistic of each segment of each sample: tens of gigabytes for 100,000 segments; here they come in
blocks. And a sample whose difference equals the observed one counts as equally large: sacreBLEU counts only larger
ones, and so finds that a system differs significantly from itself, or from one that differs in a single sentence.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np


if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

_CELLS = 2**21  # segments x samples at a time: some 100 MB at most
_AS_LARGE = 1e-9  # differences of scores (0 to 100) this close differ only by rounding


def segment_statistics(
    metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[list[float]]:
    """The metric's counts in each segment; the score of a set of segments is a function of the sum of its rows."""
    # One row per segment, counted with all references known. sacreBLEU has no public function for this.
    return metric._extract_corpus_statistics(list(hypotheses), references)


def bootstrap_scores(
    metric: "Metric", statistics: Sequence[Sequence[float]], samples: int, start: int | None = None
) -> np.ndarray:
    """Scores of sets of as many segments, drawn with replacement: the same sets for all systems on these segments.

    Args:
        metric: The metric of `statistics`.
        statistics: Those of `segment_statistics`, of shape (segments, statistics).
        samples: How many sets: the scores have the shape (samples,).
        start: Seed of the sets; None: that of `seed`, with new sets each time if SACREBLEU_SEED is "none".
    """
    table = np.asarray(statistics, dtype=np.float64)
    segments = len(table)
    random = np.random.default_rng(seed() if start is None else start)
    scores: list[float] = []
    for rows in _blocks(samples, segments):
        drawn = random.choice(segments, size=(rows, segments), replace=True)
        drawn += segments * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * segments).reshape(rows, segments)
        scores += _scores(metric, times.astype(np.float64) @ table)
    return np.array(scores)


def bootstrap_p(baseline: np.ndarray, system: np.ndarray, difference: float) -> float:
    """One-sided p-value of a difference by paired bootstrap resampling (Koehn, 2004), as in Moses' script.

    It says how often |d| - mean |d| is as large as the observed difference, d being that of a sample: about half of
    `randomization_p`. For equally good systems it is at most 0.05 in 10 % of cases, 0.18 in half of them, and hardly
    ever above 0.45. Compare it with 0.025 for a two-sided test at 0.05.

    Args:
        baseline, system: The `bootstrap_scores` of both systems, on the same samples.
        difference: Of the scores on all segments.
    """
    differences = np.abs(system - baseline)
    return _p_value(differences - differences.mean(), difference)


def randomization_p(
    metric: "Metric",
    baseline: Sequence[Sequence[float]],
    system: Sequence[Sequence[float]],
    difference: float,
    trials: int,
) -> float:
    """Two-sided p-value of a difference by approximate randomisation (Riezler and Maxwell, 2005).

    It says how often systems whose translations are swapped at random differ as much, in either direction. For equally
    good systems it is at most 0.05 in 5 % of cases, and every value is equally likely.

    Args:
        metric: The metric of the statistics.
        baseline, system: The `segment_statistics` of both systems.
        difference: Of the scores on all segments.
        trials: How many times the two translations of each segment are swapped, or not, at random.
    """
    table, other = (np.asarray(each, dtype=np.float64) for each in (baseline, system))
    segments, total, gains = len(table), table.sum(0) + other.sum(0), table - other
    random = np.random.default_rng(seed())
    differences: list[float] = []
    # numpy draws 32 coins at a time, and throws the rest away at the end of a block.
    for rows in _blocks(trials, segments, step=32):
        kept = random.integers(2, size=(rows, segments), dtype=bool)
        mixed = other.sum(0) + kept.astype(np.float64) @ gains
        pairs = zip(_scores(metric, mixed), _scores(metric, total - mixed), strict=True)
        differences += [abs(one - another) for one, another in pairs]
    return _p_value(np.array(differences), difference)


def seed() -> int | None:
    """The seed of all samples: SACREBLEU_SEED, as in sacreBLEU; None, for new samples each time, if it is "none".

    Raises:
        ValueError: It is not a number.
    """
    given = os.environ.get("SACREBLEU_SEED", "12345")
    if given.lower() == "none":
        return None
    if not (given.isascii() and given.isdigit()):
        raise ValueError(f"the environment's SACREBLEU_SEED must be a whole number or 'none', not {given!r}")
    return int(given)


def _blocks(samples: int, segments: int, step: int = 1) -> Iterator[int]:
    """Sizes that add up to `samples`: each as large as fits, and all but the last a multiple of `step`."""
    size = max(_CELLS // segments // step * step, step)
    for done in range(0, samples, size):
        yield min(size, samples - done)


def _scores(metric: "Metric", sums: np.ndarray) -> list[float]:
    return [float(metric._compute_score_from_stats(row).score) for row in sums]


def _p_value(differences: np.ndarray, observed: float) -> float:
    """How often chance does as much; the observed order itself is one of the samples."""
    as_large = int(np.count_nonzero(differences >= abs(observed) - _AS_LARGE))
    return (as_large + 1) / (len(differences) + 1)
