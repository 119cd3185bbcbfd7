"""Token-budget batches from a stream that is never held as a whole and resumes where it stopped."""

import copy
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import IterableDataset

from .batching import TokenBatchSampler
from .encoding import EncodingReport, PairLimits, encode_pairs
from .languages import tag_ids
from .rewriting import rewritten_windows


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from .corpora import Pair, PairStream
    from .rewriting import Rewriter

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Place:
    """A place in the stream of a process: pass, unit in the order of that pass, row of the unit."""

    epoch: int = 0
    unit: int = 0
    row: int = 0


# A change in how pools are cut into batches gets a new number: a stream must resume with the same batches.
_BATCHING = 2


@dataclass
class _Pool:
    """The pairs between two places, in batches."""

    begin: _Place
    end: _Place
    sources: list[np.ndarray]
    targets: list[np.ndarray]
    batches: list[list[int]]
    report: EncodingReport


class TokenBatchStream(IterableDataset):
    """Endless batches of at most `max_tokens` padded tokens on either side, from a stream of pairs (section 5.1).

    The stream is read a pool of pairs at a time. A pool is sorted by both lengths, cut as [`TokenBatchSampler`] does,
    and its batches come in random order; meanwhile the next pool is read and encoded. In every pass the units of the
    stream come in another order, so that a pool has pieces from all over the corpus. Every pair occurs exactly once in
    a pass. The order depends only on `seed`, the pass and the processes, not on the number of readers.

    Its state is a place in the stream and a number of batches: a new stream that loads it reads one pool again and
    continues with the next batch.

    Args:
        pairs, tokenizer: The stream, and the tokenizer of its text.
        max_tokens: As for [`TokenBatchSampler`].
        limits: Which pairs are kept.
        buffer_pairs: Pairs per pool. Two pools are in memory, at some 500 bytes per pair.
        seed: The random seed of the order.
        rank: Number of this process, of the `world_size` processes; in a pass each pair goes to one process.
        readers: How many units are read at the same time.
        passes: After how many passes to end; None: never.
        collate: Makes the item to yield from the pairs of a batch; None: lists of `{"input_ids": ..., "labels": ...}`.

    Attributes:
        rewriters: Functions that rewrite the pairs, which are then cut into batches again; to be set before iteration.

    Raises:
        ValueError: A number is not in its range, or the tokenizer lacks a tag of the stream; while reading, no pair is
            left in a pass, or one is too long.
    """

    def __init__(
        self,
        pairs: "PairStream",
        tokenizer: "PreTrainedTokenizerFast",
        max_tokens: int,
        *,
        limits: PairLimits | None = None,
        buffer_pairs: int = 200_000,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        readers: int = 4,
        passes: int | None = None,
        collate: Callable | None = None,
    ):
        if min(buffer_pairs, world_size, readers, max_tokens) < 1 or not 0 <= rank < world_size:
            raise ValueError(
                f"buffer_pairs ({buffer_pairs}), world_size ({world_size}), readers ({readers}) and max_tokens "
                f"({max_tokens}) must be at least 1, and rank ({rank}) from 0 to world_size - 1."
            )
        tag_ids(tokenizer, pairs.tags)  # checks that it has them all
        self.pairs, self.max_tokens, self.limits = pairs, max_tokens, limits
        self.tokenizer = copy.deepcopy(tokenizer)  # it works in another thread
        pieces = json.dumps(tokenizer.get_vocab(), sort_keys=True)  # many vocabularies have the same size
        self._vocabulary = hashlib.sha256(pieces.encode()).hexdigest()
        self.buffer_pairs, self.seed, self.rank, self.world_size = buffer_pairs, seed, rank, world_size
        self.readers, self.passes, self.collate = readers, passes, collate
        self.rewriters: Sequence[Rewriter] = ()
        self.report = EncodingReport()  # of the pools that have been used up
        self._begin, self._used = _Place(), 0  # where the pool in use begins; how many of its batches have been given
        self._end, self._batches = self._begin, 1  # where it ends; how many batches it has, once it is read

    # ------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict:
        """The position of the stream after the batches yielded: plain numbers and strings, a few hundred bytes."""
        return {"begin": asdict(self._begin), "used": self._used, "report": asdict(self.report), **self._identity()}

    def load_state_dict(self, state: dict) -> None:
        """Moves to the position at which another stream returned this state; running iterators do not move.

        Raises:
            ValueError: The state is another stream's: of another corpus or vocabulary, or with other batches or
                processes.
        """
        now = self._identity()
        if state.get("batching") != _BATCHING:
            raise ValueError(
                "The stream cannot go on from where it was: another version of this package cut its batches "
                "differently. Resume with that version, or begin in another output folder."
            )
        for name in dict.fromkeys((*now, *state)):
            before, value = state.get(name), now.get(name)
            if name not in ("begin", "used", "report") and before != value:
                raise ValueError(
                    f"The stream cannot go on from where it was: {name} was {before!r} and is {value!r} now. "
                    "Resume with the same settings."
                )
        self._begin, self._used = _Place(**state["begin"]), state["used"]
        self._end, self._batches = self._begin, 1
        self.report = EncodingReport(**state["report"])

    def _identity(self) -> dict:
        """Everything that determines the batches."""
        return {
            "corpus": self.pairs.fingerprint,
            "vocabulary": self._vocabulary,
            "limits": None if self.limits is None else asdict(self.limits),
            "batching": _BATCHING,
            **{name: getattr(self, name) for name in ("max_tokens", "buffer_pairs", "seed", "rank", "world_size")},
            **dict(entry for each in self.rewriters for entry in each.identity.items()),
        }

    @property
    def passes_done(self) -> float:
        """Passes of this process up to its last batch, with the share of the current one: 1.5 after one and a half.

        Pairs within a unit count only where the corpus knows how many it has: for a text file as a stream, the share is
        0 until the last pool of the pass.
        """
        begin, end = self._passes_at(self._begin), self._passes_at(self._end)
        return begin + (end - begin) * self._used / self._batches

    def _passes_at(self, place: _Place) -> float:
        units = self.pairs.units if self._shares_rows else len(range(self.rank, self.pairs.units, self.world_size))
        share = min(1.0, place.row * self.pairs.units / self.pairs.pairs) if self.pairs.pairs else 0.0
        return place.epoch + (place.unit + share) / units if units else float(place.epoch)

    @property
    def _shares_rows(self) -> bool:
        """Whether every process reads all units and takes its rows: few units cannot be shared out evenly."""
        return self.world_size > 1 and self.pairs.units < 20 * self.world_size

    def first_pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids of sources and targets as `pairs.texts` has them, without tags, whatever the place of the stream."""
        texts = self.pairs.texts()
        while part := list(islice(texts, 1000)):
            sources, targets, _ = encode_pairs(self.tokenizer, part, self.limits)
            yield from zip(sources, targets, strict=True)

    # ----------------------------------------------------------------------------------------------------- batches

    def __iter__(self) -> Iterator:
        self.pairs.stop.clear()
        with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(self.readers) as readers:
            rows = self._rows(self._begin, readers)
            waiting = ahead.submit(self._next_pool, rows, self._begin)
            try:
                while (pool := waiting.result()) is not None:
                    self._begin, self._end, self._batches = pool.begin, pool.end, max(1, len(pool.batches))
                    waiting = ahead.submit(self._next_pool, rows, pool.end)
                    for found in self._batches_left(pool):
                        self._used += 1
                        yield found if self.collate is None else self.collate(found)
                    self._begin, self._used, self.report = pool.end, 0, self.report + pool.report
                    if pool.end.epoch > pool.begin.epoch:
                        self._end_pass(pool.end.epoch)
            finally:
                self.pairs.stop.set()
                readers.shutdown(wait=False, cancel_futures=True)
                ahead.shutdown(wait=True, cancel_futures=True)
                rows.close()

    def _batches_left(self, pool: _Pool) -> Iterator[list[dict]]:
        batches = ([{"input_ids": pool.sources[i], "labels": pool.targets[i]} for i in each] for each in pool.batches)
        if not self.rewriters:
            return islice(batches, self._used, None)
        key = (self.seed, self.rank, pool.begin.epoch, pool.begin.unit, pool.begin.row)
        return rewritten_windows(self.rewriters, batches, key, self.max_tokens, self._used)

    def _end_pass(self, passes: int) -> None:
        logger.info("Pass %d over %s has ended; so far %s.", passes, self.pairs.name, self.report)
        if not self.report.kept:
            share = f" in process {self.rank} of {self.world_size}" if self.world_size > 1 else ""
            raise ValueError(f"No pair of {self.pairs.name} is left to use{share}: {self.report}.")

    def _next_pool(self, rows: "Iterator[tuple[_Place, Pair | None]]", begin: _Place) -> _Pool | None:
        """The pool from `begin`, where `rows` is, to the end of the pass or the buffer; None after the last pass."""
        pairs, end = [], None
        while len(pairs) < self.buffer_pairs:
            end, pair = next(rows, (None, None))
            if pair is None:  # a pass has ended
                break
            pairs.append(pair)
        if end is None:
            return None
        sources, targets, report = encode_pairs(self.tokenizer, pairs, self.limits)
        batches = []
        if sources:
            drawn = np.random.SeedSequence((self.seed, self.rank, begin.epoch, begin.unit, begin.row)).generate_state(1)
            lengths = [len(source) for source in sources], [len(target) for target in targets]
            batches = list(TokenBatchSampler(*lengths, self.max_tokens, seed=int(drawn[0]), coarse=True))
        return _Pool(begin, end, sources, targets, batches, report)

    def _rows(self, begin: _Place, readers: Executor) -> "Iterator[tuple[_Place, Pair | None]]":
        """Every pair of this process from a place on, with the place after it; None at the end of each pass."""
        epoch, first, start = begin.epoch, begin.unit, begin.row
        while self.passes is None or epoch < self.passes:
            order = np.random.default_rng((self.seed, epoch)).permutation(self.pairs.units).tolist()
            if not self._shares_rows:
                order = order[self.rank :: self.world_size]
            for unit, pairs in zip(count(first), self._units(order[first:], start, readers), strict=False):
                for row, pair in enumerate(pairs, start=start):
                    if not self._shares_rows or row % self.world_size == self.rank:
                        yield _Place(epoch, unit, row + 1), pair
                start = 0
            epoch, first, start = epoch + 1, 0, 0
            yield _Place(epoch), None

    def _units(self, order: list[int], start: int, readers: Executor) -> "Iterator[Iterator[Pair]]":
        """The pairs of each unit, in the first one from `start` on; several small units are read ahead."""
        if not self.pairs.bounded:
            for unit in order:
                yield self.pairs.read(unit, start)
                start = 0
            return
        waiting: deque = deque()
        todo = iter(order)
        while True:
            for unit in islice(todo, self.readers - len(waiting)):
                waiting.append(readers.submit(lambda unit, start: list(self.pairs.read(unit, start)), unit, start))
                start = 0
            if not waiting:
                return
            yield iter(waiting.popleft().result())
