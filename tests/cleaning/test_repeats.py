"""Repeated pairs, near duplicates and targets that repeat too often are found, however the pairs are sharded."""

import random
import string

import numpy as np

from vanilla_transformer.cleaning import repeats
from vanilla_transformer.cleaning.repeats import VERDICT, find_repeats, keys_of
from vanilla_transformer.cleaning.rules import NUMBERED, CleaningSettings


def text(draw: random.Random, words: int) -> str:
    return " ".join("".join(draw.choices(string.ascii_lowercase, k=6)) for _ in range(words))


def found_in(pairs, folder, sizes, *, dropped=(), **settings) -> list[tuple[str, int]]:
    """Reason and line of each pair, with the pairs in shards of these sizes."""
    paths, start = [], 0
    for number, size in enumerate(sizes):
        paths.append(folder / f"{number}.npy")
        np.save(paths[-1], keys_of(*map(list, zip(*pairs[start : start + size], strict=True))))
        start += size
    verdicts = np.zeros(len(pairs), VERDICT)
    verdicts["reason"][list(dropped)] = NUMBERED.index("empty")
    assert list(find_repeats(paths, verdicts, CleaningSettings("en", "de", **settings))) == list(range(1, 11))
    return [(NUMBERED[reason], int(first)) for reason, first in verdicts]


def test_repeats_are_found_across_any_shards(tmp_path, monkeypatch):
    draw = random.Random(0)
    pairs = [(text(draw, 12), text(draw, 12)) for _ in range(60)]
    pairs[20] = pairs[30] = pairs[5]
    pairs[21] = pairs[6][0].upper(), f"{pairs[6][1]} !"
    pairs[22] = pairs[7][0].replace("a", "b", 1), pairs[7][1]
    pairs[23] = pairs[8][0], text(draw, 12)  # only half of it is the same
    for place in range(40, 50):
        pairs[place] = text(draw, 12), "Alle Rechte vorbehalten."
    expected = [("", 0)] * 60
    expected[20] = expected[30] = "repeated_pair", 6
    expected[21], expected[22] = ("near_duplicate", 7), ("near_duplicate", 8)
    expected[45:50] = [("repeated_target", 41)] * 5
    assert found_in(pairs, tmp_path, [60]) == found_in(pairs, tmp_path, [7, 20, 33]) == expected
    monkeypatch.setattr(repeats, "_SORTED_AT_A_TIME", 13)  # the keys in five parts
    assert found_in(pairs, tmp_path, [25, 35]) == expected
    expected[5], expected[20], expected[30] = ("empty", 0), ("", 0), ("repeated_pair", 21)
    expected[45], expected[46] = ("", 0), ("repeated_target", 41)
    assert found_in(pairs, tmp_path, [60], dropped=[5], max_target_repeats=6) == expected
    skip = ("repeated_pair", "near_duplicate", "repeated_target")
    assert found_in(pairs, tmp_path, [60], skip=skip) == [("", 0)] * 60


def test_near_duplicates_are_found_at_the_expected_rate():
    """The rate is 1 - (1 - J^20)^8, where J is the Jaccard similarity of the shingles."""
    draw, hits, expected = random.Random(1), 0, 0.0
    for _ in range(400):
        words = text(draw, 40).split()
        changed = [word if draw.random() > 0.04 else text(draw, 1) for word in words]
        sets = [set(repeats._shingles(f"x\n{' '.join(some)}")) for some in (words, changed)]
        alike = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        expected += 1 - (1 - alike**20) ** 8
        keys = keys_of(["x", "x"], [" ".join(words), " ".join(changed)])
        hits += bool((keys[2:, 0] == keys[2:, 1]).any())
    assert 50 < expected < 350
    assert abs(hits - expected) < 30  # three standard deviations
