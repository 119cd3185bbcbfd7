"""Pairs to ids in several processes, in order, with a bounded number of pairs under way."""

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..worker_processes import worker_processes
from .encoding import EncodingReport, PairLimits, encode_pairs
from .streams import Pair


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass
class Chunk:
    """Some pairs that follow each other in a stream.

    Attributes:
        pairs: The pairs.
        end: Unit of the stream, and the row in it, behind the last of them.
        shard_ends: Whether they are the last of their shard.
    """

    pairs: list[Pair]
    end: tuple[int, int]
    shard_ends: bool


@dataclass
class Side:
    """The sources or the targets of a chunk: ids (tokens,) int32, one text behind the other; lengths (pairs,) int32."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def offsets(self) -> np.ndarray:
        """Where each text begins in `ids`, and the end: (pairs + 1,) int32."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)


@dataclass
class EncodedChunk:
    """What is kept of a chunk."""

    sides: tuple[Side, Side]
    report: EncodingReport


@contextmanager
def encoded_in_workers(
    chunks: Iterable[Chunk], tokenizer: "PreTrainedTokenizerFast", limits: PairLimits | None, workers: int
) -> Iterator[Iterator[tuple[Chunk, EncodedChunk]]]:
    """Gives the chunks in their order, with their ids; four a worker are under way at most.

    Args:
        chunks: What to encode; read in this thread.
        tokenizer: What makes ids of text.
        limits: Which pairs are kept; None keeps all.
        workers: Number of processes; they start as is usual on the system (or as `multiprocessing` has been told to).

    Raises:
        ChildProcessError: A worker died, while the chunks are iterated over.
    """
    # What the parent has loaded is not searched for garbage again and again: a tenth of the time.
    with _one_thread_each(), worker_processes(partial(_encode, tokenizer, limits), workers, begin=gc.freeze) as submit:
        yield _in_order(chunks, submit, 4 * workers)


def _in_order(
    chunks: Iterable[Chunk], submit: Callable[[list[Pair]], Future], most: int
) -> Iterator[tuple[Chunk, EncodedChunk]]:
    waiting: deque = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, submit(chunk.pairs)))
            if len(waiting) == most:
                chunk, encoding = waiting.popleft()
                yield chunk, encoding.result()
        for chunk, encoding in waiting:
            yield chunk, encoding.result()
    except ChildProcessError as error:
        raise ChildProcessError(f"{error} The same command goes on from what is complete.") from error


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Has the tokenizers of this process's children, which inherit it, work in one thread."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _encode(tokenizer: "PreTrainedTokenizerFast", limits: PairLimits | None, pairs: list[Pair]) -> EncodedChunk:
    *sides, report = encode_pairs(tokenizer, pairs, limits)
    return EncodedChunk(tuple(_side(texts) for texts in sides), report)


def _side(texts: list[np.ndarray]) -> Side:
    return Side(
        np.concatenate(texts) if texts else np.empty(0, np.int32),
        np.array([len(text) for text in texts], dtype=np.int32),
    )
