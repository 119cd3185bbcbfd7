"""Some thousand consecutive pairs, which one worker checks and later writes where they belong."""

import gzip
import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..files import replaced_path
from .misaligned import misaligned_runs
from .repeats import KEYS, keys_of
from .rules import NUMBERED, CleaningSettings, check_pair


EXAMPLES = 5


@dataclass(frozen=True)
class ShardFiles:
    """The paths of a shard's files while the work is under way.

    Attributes:
        pairs: Packed lines of JSON: source and target as read, then as mended, if they were.
        reasons: uint8 (pairs,), by the rules that need no other shard. It is written last: with it the shard is done.
        keys: uint64 (KEYS, pairs), see `keys_of`; zeros for dropped pairs.
        scores: float32 (pairs,), with NaN for those that have none.
    """

    pairs: Path
    reasons: Path
    keys: Path
    scores: Path

    @classmethod
    def of(cls, folder: Path, number: int) -> "ShardFiles":
        """Those of the shard of this number, from 0."""
        endings = ("pairs.gz", "reasons.npy", "keys.npy", "scores.npy")
        return cls(*(folder / f"{number:07}.{ending}" for ending in endings))

    def read_pairs(self) -> Iterator[tuple[str, str, str, str, bool]]:
        """Source and target as read, both as mended, and whether they differ."""
        with gzip.open(self.pairs, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield *row[:2], *row[-2:], len(row) > 2


def check_shard(settings: CleaningSettings, folder: Path, shard: tuple[int, list[tuple[str, str]]]) -> None:
    """Mends and checks the pairs of a shard, and saves the results."""
    number, pairs = shard
    checked = [check_pair(source, target, settings) for source, target in pairs]
    reasons = np.array([NUMBERED.index(each["reason"] or "") for each in checked], np.uint8)
    left = np.flatnonzero(reasons == 0)
    if "misaligned" not in settings.skip:
        sides = [[checked[place][side] for place in left] for side in ("source", "target")]
        reasons[left[np.array(misaligned_runs(*sides), bool)]] = NUMBERED.index("misaligned")
    rows = []
    for (source, target), each in zip(pairs, checked, strict=True):
        mended = [] if (source, target) == (each["source"], each["target"]) else [each["source"], each["target"]]
        rows.append(_json_line([source, target, *mended]))
    files = ShardFiles.of(folder, number)
    with replaced_path(files.pairs) as path:
        path.write_bytes(gzip.compress(b"".join(rows), compresslevel=1, mtime=0))
    left, keys = np.flatnonzero(reasons == 0), np.zeros((KEYS, len(pairs)), np.uint64)
    keys[:, left] = keys_of(*([checked[place][side] for place in left] for side in ("source", "target")))
    with replaced_path(files.keys) as path, path.open("wb") as file:
        np.save(file, keys)
    with replaced_path(files.reasons) as path, path.open("wb") as file:
        np.save(file, reasons)


def _json_line(content) -> bytes:
    """Half a surrogate pair, which UTF-8 has no bytes for, is written as an escape of JSON."""
    return f"{json.dumps(content, ensure_ascii=False)}\n".encode(errors="backslashreplace")


@dataclass
class WrittenShard:
    """A shard's part of the files (kept sources, kept targets and dropped pairs, packed) and of the report.

    `kept` and `mended` count pairs, `dropped` does so by reason. `examples` has some of each reason, and of "mended".
    """

    parts: tuple[bytes, bytes, bytes]
    kept: int
    mended: int
    dropped: Counter
    examples: dict[str, list[dict]] = field(default_factory=dict)


def write_shard(folder: Path, least_score: float | None, shard: tuple[int, int, np.ndarray]) -> WrittenShard:
    """Packs a shard's pairs for the files that they belong to.

    Args:
        folder: That of the shard's files.
        least_score: The least score of a kept pair; None: there are no scores.
        shard: Its number, how many pairs are before it, and the verdict on each of its pairs (`VERDICT`).
    """
    number, before, verdicts = shard
    files = ShardFiles.of(folder, number)
    scores = None if least_score is None else np.load(files.scores).tolist()
    sources, targets, dropped, counts, mended, examples = [], [], [], Counter(), 0, {}
    for place, (source, target, new_source, new_target, differs) in enumerate(files.read_pairs()):
        verdict, facts = verdicts[place], {"line": before + place + 1}
        reason = NUMBERED[verdict["reason"]]
        if scores is not None and not reason:
            facts["score"] = round(scores[place], 4)
            reason = "score" if scores[place] < least_score else ""
        if reason:
            if verdict["first"]:
                facts["repeats_line"] = int(verdict["first"])
            dropped.append(_json_line({"reason": reason, **facts, "source": source, "target": target}))
            counts[reason] += 1
        else:
            sources.append(f"{new_source}\n".encode(errors="replace"))
            targets.append(f"{new_target}\n".encode(errors="replace"))
            if differs and (source.strip(), target.strip()) != (new_source, new_target):
                mended += 1
                reason, facts = "mended", facts | {"mended_source": new_source, "mended_target": new_target}
        if reason:
            texts = {"source": source, "target": target}
            shown = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
            examples.setdefault(reason, []).append({**facts, **shown})
    parts = tuple(gzip.compress(b"".join(part), 6, mtime=0) if part else b"" for part in (sources, targets, dropped))
    return WrittenShard(parts, len(sources), mended, counts, {name: chosen(some) for name, some in examples.items()})


def chosen(examples: list[dict]) -> list[dict]:
    """A few of them, from anywhere in the text, the same ones in whatever order they come."""
    few = heapq.nsmallest(EXAMPLES, examples, key=lambda each: hashlib.sha256(str(each["line"]).encode()).digest())
    return sorted(few, key=lambda each: each["line"])
