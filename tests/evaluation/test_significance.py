"""Resampling: the same in blocks as all at once, repeatable, in bounded memory, and with correct p-values."""

import tracemalloc
from random import Random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.significance import PairedTest

from vanilla_transformer.evaluation import significance
from vanilla_transformer.evaluation.metrics import build_metric
from vanilla_transformer.evaluation.scores import compare_systems
from vanilla_transformer.evaluation.significance import (
    bootstrap_p,
    bootstrap_scores,
    randomization_p,
    segment_statistics,
)


@pytest.fixture
def rows():
    """BLEU statistics as two systems might have them; 37 segments, odd so that blocks do not fit evenly."""
    random = Random(1)

    def row():
        totals = [random.randint(9, 15) - n for n in range(4)]
        return [totals[0], random.randint(9, 15), *(random.randint(0, 6 - n) for n in range(4)), *totals]

    return [row() for _ in range(37)], [row() for _ in range(37)]


class TestBlocks:
    @pytest.mark.parametrize("cells", [1, 37 * 33, 37 * 70])
    def test_block_size_does_not_change_results(self, rows, monkeypatch, cells):
        metric = BLEU()
        at_once = bootstrap_scores(metric, rows[0], 100), randomization_p(metric, *rows, 1.0, 100)
        monkeypatch.setattr(significance, "_CELLS", cells)
        assert bootstrap_scores(metric, rows[0], 100).tolist() == at_once[0].tolist()
        assert randomization_p(metric, *rows, 1.0, 100) == at_once[1]
        assert 0.01 < at_once[1] < 1

    def test_memory_is_bounded_for_many_segments(self):
        # 20,000 segments: sacreBLEU would hold 20,000 x 10 numbers for each of 300 samples, 240 MB or more.
        rows = np.tile([[10, 10, 8, 6, 4, 2, 10, 9, 8, 7]], (20_000, 1))
        tracemalloc.start()
        try:
            bootstrap_scores(BLEU(), rows, 300)
            randomization_p(BLEU(), rows, rows[::-1], 1.0, 300)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 120e6


class TestPValues:
    def test_bootstrap_by_hand(self):
        # The absolute differences 1, 2, 3, 6 have the mean 3. One of -2, -1, 0, 3 is at least 2.5;
        # the observed difference itself counts as one more.
        baseline, system = np.zeros(4), np.array([1, -2, 3, 6])
        assert bootstrap_p(baseline, system, 2.5) == 2 / 5
        assert bootstrap_p(baseline, system, -2.5) == 2 / 5
        assert bootstrap_p(baseline, system, 3.0) == 2 / 5  # equal counts as large enough

    def test_randomisation_by_hand(self):
        # Each has one right and one wrong: after random swaps they differ by 100 % or not at all, equally often.
        metric = build_metric("exact_match")
        statistics = [[1, 1], [0, 1]], [[0, 1], [1, 1]]
        assert randomization_p(metric, *statistics, 100.0, 4000) == pytest.approx(0.5, abs=0.04)
        assert randomization_p(metric, *statistics, 0.0, 100) == 1


class MeanGain(Metric):
    """A metric whose score is the mean of one number per segment: quick enough to compute thousands of times."""

    def _compute_score_from_stats(self, stats):
        return Score("mean", stats[0] / stats[1])

    def _aggregate_and_compute(self, stats):
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


@pytest.fixture(scope="module")
def of_equals():
    """Both p-values, for 600 pairs of systems that differ only by chance."""
    random, metric, found = np.random.default_rng(0), MeanGain(), []
    for _ in range(600):
        one, two = (np.stack([random.normal(size=50), np.ones(50)], axis=1) for _ in range(2))
        difference = metric._aggregate_and_compute(two).score - metric._aggregate_and_compute(one).score
        samples = [bootstrap_scores(metric, each, 200) for each in (one, two)]
        by_bootstrap = bootstrap_p(*samples, difference)
        found.append((randomization_p(metric, one, two, difference, 200), by_bootstrap))
    return np.array(found).T


class TestEquallyGoodSystems:
    def test_randomisation_p_values_are_uniform(self, of_equals):
        by_randomisation, _ = of_equals
        for level in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9):
            spread = (level * (1 - level) / 600) ** 0.5
            assert abs((by_randomisation <= level).mean() - level) < 3.5 * spread

    def test_bootstrap_p_values_are_one_sided(self, of_equals):
        by_randomisation, by_bootstrap = of_equals
        assert 0.07 < (by_bootstrap <= 0.05).mean() < 0.14
        assert 0.03 < (by_bootstrap <= 0.025).mean() < 0.08
        assert 0.14 < np.median(by_bootstrap) < 0.22
        assert by_bootstrap.max() < 0.55
        clear = by_randomisation <= 0.2
        assert 0.4 < (by_bootstrap / by_randomisation)[clear].mean() < 0.75


def test_seed_comes_from_the_environment(rows, monkeypatch):
    def samples():
        return bootstrap_scores(BLEU(), rows[0], 10).tolist()

    usual = samples()
    assert samples() == usual
    monkeypatch.setenv("SACREBLEU_SEED", "0")
    other = samples()
    assert samples() == other != usual
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert samples() != samples()
    texts = {"one": ["a b c d e", "f g h i j", "k l m n o"], "the same": ["a b c d e", "f g h i j", "k l m n o"]}
    [found] = compare_systems(texts, [["a b c d x", "f g h y j", "k l z n o"]], ["chrf"], target_language="en")
    assert found.interval == (0.0, 0.0)  # both were scored on the same samples
    monkeypatch.setenv("SACREBLEU_SEED", "twelve")
    with pytest.raises(ValueError, match="SACREBLEU_SEED must be a whole number or 'none', not 'twelve'"):
        samples()


def test_interval_of_a_difference_is_that_of_its_samples():
    references, systems = [["a b c d", "e f g h", "i j k l"]], {"one": ["a b x x", "e x x x", "i j k x"]}
    systems["two"] = ["a b c d", "e f x x", "i x x x"]
    one, two = (
        bootstrap_scores(build_metric("chrf"), segment_statistics(build_metric("chrf"), texts, references), 200)
        for texts in systems.values()
    )
    [found] = compare_systems(systems, references, ["chrf"], target_language="en", resamples=200)
    assert found.interval == pytest.approx(tuple(np.percentile(two - one, [2.5, 97.5])))
    assert found.interval[0] < found.difference < found.interval[1]


@pytest.mark.parametrize("metric", ["chrf", "ter", "nist", "bleu_pretokenized"])
def test_p_values_equal_sacrebleus_except_for_ties(metric):
    random = Random(2)
    references = [[" ".join(random.choices("abcdefgh", k=random.randint(5, 12))) for _ in range(40)] for _ in range(2)]
    systems = [
        (name, [" ".join(w if random.random() < 0.8 else "x" for w in text.split()) for text in references[0]])
        for name in ("one", "two")
    ]
    ours = build_metric(metric, "de")
    statistics = [segment_statistics(ours, texts, references) for _, texts in systems]
    one, two = (ours._aggregate_and_compute(each).score for each in statistics)
    samples = [bootstrap_scores(ours, each, 100) for each in statistics]
    found = {"bs": bootstrap_p(*samples, two - one), "ar": randomization_p(ours, *statistics, two - one, 100)}
    for kind, p in found.items():
        _, results = PairedTest(systems, {metric: build_metric(metric, "de")}, references, kind, 100)()
        [expected] = [each[1] for column, each in results.items() if column != "System"]
        # TER counts whole edits, so only its trials tie with the observed difference; sacreBLEU does not count ties.
        assert (p > expected.p_value) if (metric, kind) == ("ter", "ar") else (p == expected.p_value)
