"""The mathematics of confidence: its fit, its calibration error, and its use."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


BINS = 10


@dataclass(frozen=True)
class Bin:
    """Sentences of similar confidence: how sure the model was of them on average, and the share that was good."""

    confidence: float
    good: float
    sentences: int


def fit_logistic(signals: np.ndarray, good: Sequence[bool]) -> tuple[float, np.ndarray]:
    """The intercept b and weights w for which sigmoid(b + w x) best fits how often translations are good.

    Platt (1999, "Probabilistic Outputs for Support Vector Machines"): the maximum of the likelihood of targets t, where
    t is (N+ + 1) / (N+ + 2) for the N+ good ones and 1 / (N- + 2) for the N- others, so that it exists even where a
    signal separates them. It is found by Newton's method with halved steps (Lin, Lin & Weng 2007).

    Args:
        signals: (sentences, signals). One that never changes gets the weight 0.
        good: (sentences,).

    Raises:
        ValueError: All are good, or none is, so there is nothing to learn.
    """
    signals, good = np.asarray(signals, dtype=np.float64), np.asarray(good, dtype=bool)
    positive, negative = int(good.sum()), int((~good).sum())
    if not positive or not negative:
        raise ValueError(
            f"{'all' if positive else 'none'} of the {len(good):,} translations {'are' if positive else 'is'} good"
        )
    targets = np.where(good, (positive + 1) / (positive + 2), 1 / (negative + 2))
    means, deviations = signals.mean(axis=0), signals.std(axis=0)
    varies = deviations > 1e-12 * (1 + np.abs(means))
    scales = np.where(varies, deviations, 1.0)
    design = np.column_stack([np.ones(len(signals)), np.where(varies, (signals - means) / scales, 0.0)])

    def loss(weights: np.ndarray) -> float:
        z = design @ weights
        return float(np.sum(np.logaddexp(0, z) - targets * z))

    weights = np.zeros(design.shape[1])
    for _ in range(100):
        fitted = _sigmoid(design @ weights)
        gradient = design.T @ (fitted - targets)
        hessian = design.T @ (design * (fitted * (1 - fitted))[:, None])
        step = np.linalg.lstsq(hessian, -gradient, rcond=None)[0]  # the smallest one, where signals say the same
        size = 1.0
        while size > 1e-10 and loss(weights + size * step) > loss(weights) + 1e-4 * size * float(gradient @ step):
            size /= 2
        weights = weights + size * step
        if np.abs(size * step).max() < 1e-10:
            break
    found = np.where(varies, weights[1:] / scales, 0.0)
    return float(weights[0] - found @ means), found


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -z))


def reliability(confidences: Sequence[float], good: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """Bins of equal mass, from the least to the most confident: their sizes differ by at most one sentence."""
    confidences, good = np.asarray(confidences, dtype=np.float64), _shared(confidences, good)
    order = np.argsort(confidences, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [Bin(float(confidences[part].mean()), float(good[part].mean()), len(part)) for part in parts]


def _shared(confidences: Sequence[float], good: Sequence[bool]) -> np.ndarray:
    """The outcomes; those of equal confidence share their mean, for the order of such sentences says nothing."""
    _, places, counts = np.unique(np.asarray(confidences), return_inverse=True, return_counts=True)
    return (np.bincount(places, weights=np.asarray(good, dtype=np.float64)) / counts)[places]


def calibration_error(bins: Sequence[Bin]) -> float:
    """The expected calibration error: sum over bins b of n_b / n |mean confidence - share of good ones|.

    Naeini et al. (2015), with bins of equal mass (Nguyen & O'Connor 2015), none of which is empty or nearly so.
    """
    sentences = sum(each.sentences for each in bins)
    return sum(each.sentences * abs(each.confidence - each.good) for each in bins) / sentences


def bins_by_chance(confidences: Sequence[float], bins: int = BINS, draws: int = 1000) -> tuple[float, np.ndarray]:
    """How perfect calibration looks on so few sentences: outcomes are drawn from the confidences.

    The error of few sentences is never 0: compare it with this (Bröcker & Smith 2007).

    Returns:
        The mean of the expected calibration error; and (2, bins): the shares of good ones between which 95 % of the
        draws lie in each bin.
    """
    confidences = np.sort(np.asarray(confidences, dtype=np.float64))
    drawn = np.random.default_rng(0).random((draws, len(confidences))) < confidences
    parts = [part for part in np.array_split(np.arange(len(confidences)), bins) if len(part)]
    shares = np.stack([drawn[:, part].mean(axis=1) for part in parts], axis=1)  # (draws, bins)
    gaps = np.abs(shares - np.array([confidences[part].mean() for part in parts]))
    masses = np.array([len(part) for part in parts]) / len(confidences)
    return float((gaps @ masses).mean()), np.quantile(shares, [0.025, 0.975], axis=0)


def pearson(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Pearson's correlation; None if one of the two never changes."""
    if not np.ptp(left) or not np.ptp(right):
        return None
    left, right = (np.asarray(each, dtype=np.float64) - np.mean(each) for each in (left, right))
    spread = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / spread if spread > 0 else None


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's correlation: Pearson's of the ranks; equal values share their mean rank."""
    return pearson(_ranks(left), _ranks(right))


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def most_confident(confidences: Sequence[float], coverage: float) -> list[int]:
    """The numbers of this share of the sentences, the most confident first, at least one."""
    order = np.argsort(-np.asarray(confidences, dtype=np.float64), kind="stable")
    return order[: max(1, round(coverage * len(order)))].tolist()


def risk_coverage(confidences: Sequence[float], good: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Coverages k / n and risks: the share that is not good among the k most confident (El-Yaniv & Wiener 2010)."""
    bad = 1 - _shared(confidences, good)[most_confident(confidences, 1.0)]
    counts = np.arange(1, len(bad) + 1)
    return counts / len(bad), np.cumsum(bad) / counts
