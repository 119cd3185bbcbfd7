"""Finds pairs that came before, exactly or almost, and targets that recur too often, from hashes on the disk.

Ten 64-bit numbers are kept for each pair: a hash of the pair, one of its target, and eight of its likeness. The eight
are bands of a MinHash signature (Broder 1997). Let J be the Jaccard similarity of two pairs' sets of three letters in a
row. Then each value of the signature agrees with probability J, a band of 20 with J^20, and one band or more with

    1 - (1 - J^20)^8        J = 0.7: 0.6 %    0.8: 9 %    0.9: 65 %    0.95: 97 %    1: all

Each kind of number is sorted by itself, and for many pairs in parts, one after the other: memory does not grow.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .rules import NUMBERED, CleaningSettings, plain


BANDS, ROWS = 8, 20
# For each row of `keys_of` (of whole pairs, of targets, of each band), why a pair is dropped whose key came before.
_REASON_OF_ROW = ("repeated_pair", "repeated_target", *["near_duplicate"] * BANDS)
KEYS = len(_REASON_OF_ROW)
_SORTED_AT_A_TIME = 1 << 24  # keys; half a gigabyte
_SHINGLE = 3  # characters
_SEED = 42

# The verdict on a pair: the number of the reason in `NUMBERED`, and the line that it repeats, from 1; 0: none.
VERDICT = np.dtype([("reason", "u1"), ("first", "<i8")])


def keys_of(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """The numbers of pairs: uint64 (KEYS, pairs), with the rows of `_REASON_OF_ROW`."""
    from rensa import RMinHash

    keys = np.empty((KEYS, len(sources)), np.uint64)
    pairs = list(zip(sources, targets, strict=True))
    keys[0] = [_hash(f"{source}\n{target}") for source, target in pairs]
    keys[1] = [_hash(plain(target) or target) for target in targets]
    shingles = [_shingles(f"{plain(source)}\n{plain(target)}") for source, target in pairs]
    if shingles:
        found = RMinHash.digest_matrix_from_token_sets(shingles, num_perm=BANDS * ROWS, seed=_SEED)
        signatures = np.array(found.to_rows(), np.uint32)  # (pairs, BANDS * ROWS)
        for band in range(BANDS):
            part = np.ascontiguousarray(signatures[:, band * ROWS : (band + 1) * ROWS])
            keys[2 + band] = [_hash(row.tobytes()) for row in part]
    return keys


def _hash(content: str | bytes) -> int:
    content = content if isinstance(content, bytes) else content.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _shingles(text: str) -> list[str]:
    return [text[start : start + _SHINGLE] for start in range(max(1, len(text) - _SHINGLE + 1))]


def find_repeats(shards: Sequence[Path], verdicts: np.ndarray, settings: CleaningSettings) -> Iterator[int]:
    """Decides which pairs repeat others, and yields how many of the `KEYS` kinds of numbers are done.

    A pair repeats an earlier one that has not been dropped by then: of those that are alike the first one stays.

    Args:
        shards: Files of `keys_of` pairs that follow each other.
        verdicts: `VERDICT` (pairs,), on the pairs that other rules have dropped; changed in place.
        settings: Says how often a target may come, and which rules to skip.
    """
    parts = -(-len(verdicts) // _SORTED_AT_A_TIME)
    for row, reason in enumerate(_REASON_OF_ROW):
        allowed = settings.max_target_repeats if reason == "repeated_target" else 1  # pairs with the same key
        for part in range(parts if reason not in settings.skip else 0):
            keys, numbers = _gathered(shards, verdicts, row, part, parts)
            order = np.argsort(keys, kind="stable")
            keys, numbers = keys[order], numbers[order]
            # Equal keys now stand in runs, earlier pairs first; `first` is for each place the one where its run begins.
            begins = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))  # no key is equal to its complement
            first = np.repeat(begins, np.diff(begins, append=len(keys)))
            too_often = np.arange(len(keys)) - first >= allowed
            verdicts["reason"][numbers[too_often]] = NUMBERED.index(reason)
            verdicts["first"][numbers[too_often]] = numbers[first[too_often]] + 1
        yield row + 1


def _gathered(
    shards: Sequence[Path], verdicts: np.ndarray, row: int, part: int, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """The keys of one row that belong to a part, of the pairs that are left, and these pairs' numbers from 0."""
    keys, numbers, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for path in shards:
        of_shard = np.load(path, mmap_mode="r")[row]
        left = verdicts["reason"][start : start + len(of_shard)] == 0
        chosen = left & (of_shard % np.uint64(parts) == np.uint64(part))
        keys.append(of_shard[chosen])
        numbers.append(start + np.flatnonzero(chosen))
        start += len(of_shard)
    return np.concatenate(keys), np.concatenate(numbers)
