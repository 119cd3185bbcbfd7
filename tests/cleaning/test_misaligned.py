"""Runs of misaligned pairs are found where they are, and almost nowhere else."""

import itertools
import random

from vanilla_transformer.cleaning.misaligned import _CHANGE, LEAST_PAIRS, _apart, misaligned_runs
from vanilla_transformer.data.phrasebook import phrasebook


def test_misaligned_runs_are_found_with_few_errors():
    rows = list(itertools.islice(phrasebook("train"), 3000))
    sources, targets = [row["en"] for row in rows], [row["de"] for row in rows]
    assert sum(misaligned_runs(sources, targets)) <= 3
    runs = [range(100, 112), range(1500, 1600), range(2980, 3000)]
    for run in runs:  # the targets are shifted by one line
        targets[run.start : run.stop] = [*targets[run.start + 1 : run.stop], targets[run.start]]
    found = misaligned_runs(sources, targets)
    for run in runs:
        assert sum(found[run.start : run.stop]) >= 0.8 * len(run), run
    assert sum(found) - sum(found[place] for run in runs for place in run) <= 6
    few = slice(0, LEAST_PAIRS - 1)
    assert not any(misaligned_runs(sources[few], sources[few][::-1]))


def test_chosen_states_are_the_most_likely_sequence():
    """Compared with every possible sequence of states."""
    draw = random.Random(0)
    for _ in range(30):
        gains = [draw.gauss(0, 5) for _ in range(9)]
        best = max(
            itertools.product((False, True), repeat=9),
            key=lambda states: (
                sum(gain for gain, apart in zip(gains, states, strict=True) if not apart)
                - _CHANGE * sum(a != b for a, b in itertools.pairwise((False, *states)))
            ),
        )
        assert _apart(gains) == list(best)
