"""The logistic fit, calibration error, correlations and risk: equal to scipy, or worked out by hand.

Where outcomes are drawn from known probabilities, a calibration must recover these.
"""

import math

import numpy as np
import pytest

from vanilla_transformer.evaluation import confidence


optimize, stats = (
    pytest.importorskip(f"scipy.{name}", reason="it comes with evaluate") for name in ("optimize", "stats")
)


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signals (count, 2), the true probability that each row is good, and whether it is."""
    random = np.random.default_rng(seed)
    signals = random.normal(size=(count, 2)) * [2.0, 30.0] + [-1.0, 100.0]
    probabilities = 1 / (1 + np.exp(-(0.5 + 1.2 * signals[:, 0] - 0.02 * (signals[:, 1] - 100))))
    return signals, probabilities, random.random(count) < probabilities


def test_fit_equals_scipys_minimum():
    """Platt's loss as the paper writes it, term by term, minimised by a method that does not use our derivatives."""
    signals, _, good = drawn(300)
    high, low = (good.sum() + 1) / (good.sum() + 2), 1 / ((~good).sum() + 2)

    def loss(parameters):
        total = 0.0
        for row, is_good in zip(signals, good, strict=True):
            p = 1 / (1 + math.exp(-(parameters[0] + float(row @ parameters[1:]))))
            target = high if is_good else low
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        return total

    intercept, weights = confidence.fit_logistic(signals, good)
    best = optimize.minimize(loss, [0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-5})
    assert loss([intercept, *weights]) <= best.fun + 1e-9
    assert [intercept, *weights] == pytest.approx(best.x, rel=1e-3, abs=1e-4)


def test_fit_recovers_the_true_weights_and_probabilities():
    signals, probabilities, good = drawn(40_000)
    intercept, weights = confidence.fit_logistic(signals, good)
    assert weights == pytest.approx([1.2, -0.02], rel=0.05)
    assert intercept == pytest.approx(0.5 + 0.02 * 100, rel=0.05)
    found = 1 / (1 + np.exp(-(intercept + signals @ weights)))
    assert np.abs(found - probabilities).max() < 0.02


def test_degenerate_signals_are_fitted_and_constant_outcomes_raise():
    signals, _, good = drawn(200)
    expected = confidence.fit_logistic(signals, good)
    constant = np.column_stack([signals, np.full(200, -7.25)])
    intercept, weights = confidence.fit_logistic(constant, good)  # a signal that never changes
    assert (intercept, weights[2]) == (pytest.approx(expected[0]), 0)
    twice = np.column_stack([signals, signals[:, 0]])
    intercept, weights = confidence.fit_logistic(twice, good)  # two identical signals
    assert weights[0] == pytest.approx(weights[2])
    assert weights[0] + weights[2] == pytest.approx(expected[1][0])
    separable = np.arange(20.0)[:, None]
    intercept, [weight] = confidence.fit_logistic(separable, np.arange(20) >= 12)  # a signal that separates them
    assert 0 < weight < 100
    assert -(intercept / weight) == pytest.approx(11.5, abs=0.5)
    for outcome, message in ((True, "all of the .* are good"), (False, "none of the .* is good")):
        with pytest.raises(ValueError, match=message):
            confidence.fit_logistic(signals, [outcome] * 200)


def test_calibration_error_is_the_mean_miscalibration():
    random = np.random.default_rng(1)
    true = random.random(200_000)
    good = random.random(200_000) < true

    def error(confidences):
        return confidence.calibration_error(confidence.reliability(confidences, good))

    assert error(true) < 0.005
    assert error(true**2) == pytest.approx(1 / 6, abs=0.005)  # the integral of p - p^2
    assert error(np.full(200_000, 0.5)) < 0.01
    assert error(np.full(200_000, 0.9)) == pytest.approx(0.4, abs=0.01)


def test_calibration_error_by_hand():
    """Five sentences in two bins: 0.1, 0.3 and 0.4, of which one is good; 0.8 and 0.9, both good."""
    bins = confidence.reliability([0.9, 0.1, 0.4, 0.8, 0.3], [True, False, True, True, False], bins=2)
    assert [each.sentences for each in bins] == [3, 2]
    assert [each.good for each in bins] == pytest.approx([1 / 3, 1])
    assert [each.confidence for each in bins] == pytest.approx([0.8 / 3, 0.85])
    assert confidence.calibration_error(bins) == pytest.approx(3 / 5 * (1 / 3 - 0.8 / 3) + 2 / 5 * 0.15)
    assert [each.sentences for each in confidence.reliability([0.5] * 3, [True] * 3, bins=10)] == [1, 1, 1]


def test_bins_by_chance_match_the_binomial_distribution():
    for p in (0.5, 0.9):
        mean, (low, high) = confidence.bins_by_chance([p] * 100, bins=1, draws=20_000)
        counts = np.arange(101)
        expected = float(stats.binom.pmf(counts, 100, p) @ np.abs(counts / 100 - p))
        assert mean == pytest.approx(expected, rel=0.02)
        assert [low[0], high[0]] == pytest.approx(stats.binom.ppf([0.025, 0.975], 100, p) / 100, abs=0.011)


def test_correlations_equal_scipys():
    random = np.random.default_rng(2)
    left = random.integers(0, 20, 300) / 7  # with many ties
    right = left + random.normal(size=300)
    assert confidence.pearson(left, right) == pytest.approx(stats.pearsonr(left, right)[0])
    assert confidence.spearman(left, right) == pytest.approx(stats.spearmanr(left, right)[0])
    assert confidence.spearman(left, np.exp(left)) == pytest.approx(1)
    for constant in (3.0, 0.1):  # the mean of many 0.1 is not 0.1
        assert confidence.pearson(left, [constant] * 300) is None


def test_risk_and_coverage_by_hand():
    confidences, good = [0.2, 0.9, 0.6, 0.8], [False, True, True, False]
    coverage, risk = confidence.risk_coverage(confidences, good)
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk == pytest.approx([0, 1 / 2, 1 / 3, 2 / 4])
    assert confidence.most_confident(confidences, 0.5) == [1, 3]
    for good in ([True] * 20 + [False] * 20, [True, False] * 20):  # no order in equal confidences
        assert confidence.risk_coverage([0.5] * 40, good)[1] == pytest.approx([0.5] * 40)
        assert confidence.calibration_error(confidence.reliability([0.5] * 40, good)) == pytest.approx(0)
    assert confidence.most_confident(confidences, 0.01) == [1]
