"""Pairs that came before, exactly or almost, and targets that come again and again: from hashes on the disk.

Ten 64-bit numbers are kept for each pair: a hash of the pair, one of its target, and eight of its likeness. The eight
are bands of a MinHash signature (Broder 1997). Let J be the Jaccard similarity of two pairs' sets of three letters in a
row. Then each value of the signature agrees with probability J, a band of 20 with J^20, and one band or more with

    1 - (1 - J^20)^8        J = 0.7: 0.6 %    0.8: 9 %    0.9: 65 %    0.95: 97 %    1: all

Each kind of number is sorted by itself, and with many pairs one part of the numbers after the other: memory does not
grow.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .rules import NUMBERED, CleaningSettings, plain


BANDS, ROWS = 8, 20
KEYS = 2 + BANDS
_SORTED_AT_A_TIME = 1 << 24  # keys; half a gigabyte
_SHINGLE = 3  # characters
_SEED = 42

# What is decided about a pair: the number of the reason in `NUMBERED`, and the line that it repeats, from 1; 0: none.
VERDICT = np.dtype([("reason", "u1"), ("first", "<i8")])


def keys_of(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """The numbers of pairs: uint64 (KEYS, pairs)."""
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
        verdicts: `VERDICT` (pairs,), on the pairs that other rules have dropped. It is changed.
        settings: Says how often a target may come, and which rules are not to be used.
    """
    kinds = [("repeated_pair", 1), ("repeated_target", settings.max_target_repeats), *[("near_duplicate", 1)] * BANDS]
    parts = -(-len(verdicts) // _SORTED_AT_A_TIME)
    for kind, (reason, most) in enumerate(kinds):
        for part in range(parts if reason not in settings.skip else 0):
            keys, lines = _gathered(shards, verdicts, kind, part, parts)
            order = np.argsort(keys, kind="stable")
            keys, lines = keys[order], lines[order]
            begins = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
            first = np.repeat(begins, np.diff(begins, append=len(keys)))
            again = np.arange(len(keys)) - first >= most
            verdicts["reason"][lines[again]] = NUMBERED.index(reason)
            verdicts["first"][lines[again]] = lines[first[again]] + 1
        yield kind + 1


def _gathered(
    shards: Sequence[Path], verdicts: np.ndarray, kind: int, part: int, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """The keys of one kind that belong to a part, of the pairs that are left, and these pairs' numbers from 0."""
    keys, lines, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for path in shards:
        found = np.load(path, mmap_mode="r")[kind]
        left = verdicts["reason"][start : start + len(found)] == 0
        chosen = left & (found % np.uint64(parts) == np.uint64(part))
        keys.append(found[chosen])
        lines.append(start + np.flatnonzero(chosen))
        start += len(found)
    return np.concatenate(keys), np.concatenate(lines)
