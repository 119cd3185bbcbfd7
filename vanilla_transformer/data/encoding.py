"""From sentence pairs to token ids, in one process or several, with an account of the pairs that are left out."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..worker_processes import in_order, worker_processes
from .context import SEPARATOR, context_settings, joined
from .languages import tag_ids


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class PairLimits:
    """Limits on pairs to keep, in tokens with `</s>`; `max_length_ratio` is that of the longer side to the shorter."""

    max_source_length: int = 256
    max_target_length: int = 256
    max_length_ratio: float | None = None

    def reason_to_drop(self, source_length: int, target_length: int, tags: int = 0) -> str | None:
        """Why a pair of these lengths in tokens is left out, or None if it is kept.

        `tags` is the number of extra tokens in front of the source. They count towards its limit, but are not text.
        """
        if min(source_length, target_length) <= 1:
            return "empty side"
        if source_length + tags > self.max_source_length:
            return f"source over {self.max_source_length} tokens"
        if target_length > self.max_target_length:
            return f"target over {self.max_target_length} tokens"
        longer, shorter = max(source_length, target_length), min(source_length, target_length)
        if self.max_length_ratio is not None and longer > self.max_length_ratio * shorter:
            return f"length ratio over {self.max_length_ratio}"
        return None


def is_within(pair: Mapping[str, Sequence[int]], most_source: int | None, most_target: int | None) -> bool:
    """Whether a pair of ids has at most this many `input_ids` and `labels`; None: any number."""
    sides = ((pair["input_ids"], most_source), (pair["labels"], most_target))
    return all(most is None or len(ids) <= most for ids, most in sides)


@dataclass
class EncodingReport:
    """Counts for a corpus: pairs read, kept, and left out by reason; tokens of all kept sides, with `</s>`."""

    pairs: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    source_tokens: int = 0
    target_tokens: int = 0

    def __add__(self, other: "EncodingReport") -> "EncodingReport":
        """The report of two parts of a corpus together."""
        numbers = ("pairs", "kept", "source_tokens", "target_tokens")
        dropped = dict(Counter(self.dropped) + Counter(other.dropped))
        return EncodingReport(dropped=dropped, **{name: getattr(self, name) + getattr(other, name) for name in numbers})

    def __str__(self) -> str:
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in self.dropped.items()) or "none"
        return (
            f"{self.kept:,} of {self.pairs:,} pairs kept ({self.source_tokens:,} source and {self.target_tokens:,} "
            f"target tokens); dropped: {dropped}"
        )


def encode_pairs(
    tokenizer: "PreTrainedTokenizerFast", pairs: Sequence[tuple[str, ...]], limits: PairLimits | None = None
) -> tuple[list[np.ndarray], list[np.ndarray], EncodingReport]:
    """Turns (source, target) texts into ids, without the white space around them.

    For (source, target, tag) the source's ids begin with the tag's; ValueError if the tokenizer has no such tag. A pair
    may also have the sentences before its source, as a tuple: as many as fit are put in front of it, each with a
    separator after it (see `context`). `limits` apply to the source alone.

    Returns:
        Sources and targets that `limits` keeps (None keeps all), int32 ids ending in `</s>`, and the report.
    """
    dropped: Counter = Counter()
    kept_sources, kept_targets = [], []
    for start in range(0, len(pairs), 10_000):
        part = pairs[start : start + 10_000]
        sources, targets = (_ids(tokenizer, [pair[side].strip() for pair in part]) for side in (0, 1))
        ids_of = tag_ids(tokenizer, {tag for pair in part for tag in pair[2:] if isinstance(tag, str)})
        in_context = _joining(tokenizer, part, sources, limits)
        for pair, source, target in zip(part, sources, targets, strict=True):
            tags = [ids_of[tag] for tag in pair[2:] if isinstance(tag, str)]
            if limits and (reason := limits.reason_to_drop(len(source), len(target), len(tags))):
                dropped[reason] += 1
                continue
            if in_context is not None:
                source = in_context(pair, source, len(tags))
            kept_sources.append(np.array(tags + source, dtype=np.int32))
            kept_targets.append(np.array(target, dtype=np.int32))
    tokens = (sum(map(len, texts)) for texts in (kept_sources, kept_targets))
    return kept_sources, kept_targets, EncodingReport(len(pairs), len(kept_targets), dict(dropped), *tokens)


def _joining(
    tokenizer: "PreTrainedTokenizerFast",
    pairs: Sequence[tuple],
    sources: Sequence[list[int]],
    limits: PairLimits | None,
) -> Callable[[tuple, list[int], int], list[int]] | None:
    """A function that puts a pair's context before its source's ids, after some tags; None if no pair has context.

    A sentence of context is usually the source of another pair, and so is tokenised only once.
    """
    texts = {text for pair in pairs for context in pair[2:] if isinstance(context, tuple) for text in context}
    if not texts:
        return None
    ids = {text: found for pair, found in zip(pairs, sources, strict=True) if (text := pair[0].strip()) in texts}
    others = sorted(texts - ids.keys())
    ids |= zip(others, _ids(tokenizer, others), strict=True)
    [separator] = tag_ids(tokenizer, [SEPARATOR]).values()
    longest = context_settings(tokenizer).max_source_length if limits is None else limits.max_source_length

    def in_context(pair: tuple, source: list[int], tags: int) -> list[int]:
        context = [ids[text][:-1] for each in pair[2:] if isinstance(each, tuple) for text in each]
        return joined(context, source, separator, None if longest is None else longest - tags)

    return in_context


def _ids(tokenizer: "PreTrainedTokenizerFast", texts: list[str]) -> list[list[int]]:
    """`tokenizer(texts).input_ids` in three quarters of the time: without offsets into the text."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    # Copies and saved files of a backend lack this setting: unless it is set, a "</s>" in a text would end it.
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return [encoding.ids for encoding in backend.encode_batch_fast(texts)]


# ------------------------------------------------------------------------------------------------- in several processes


@dataclass
class Chunk:
    """Some consecutive pairs of a stream, for one shard.

    `end` is the place after the last of them: a unit of the stream, and a row in it.
    """

    pairs: list[tuple[str, ...]]
    end: tuple[int, int]
    shard_ends: bool


@dataclass
class EncodedChunk:
    """The kept pairs of a chunk: ids of the sources and of the targets, (tokens,), one text after another; lengths."""

    ids: tuple[np.ndarray, np.ndarray]
    lengths: tuple[np.ndarray, np.ndarray]
    report: EncodingReport


@contextmanager
def encoded_in_workers(
    chunks: Iterable[Chunk], tokenizer: "PreTrainedTokenizerFast", limits: PairLimits | None, workers: int
) -> Iterator[Iterator[tuple[Chunk, EncodedChunk]]]:
    """Encodes chunks in several processes, and gives them in order; at most four per worker are under way.

    Raises:
        ChildProcessError: A worker died. Raised while the chunks are iterated over.
    """
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers inherit this: one thread each
    try:
        # Objects loaded by the parent are frozen: searching them for garbage would take a tenth of the time.
        with worker_processes(partial(_encode_chunk, tokenizer, limits), workers, begin=gc.freeze) as submit:
            yield in_order(chunks, lambda chunk: submit(chunk.pairs), 4 * workers)
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _encode_chunk(tokenizer: "PreTrainedTokenizerFast", limits: PairLimits | None, pairs: list) -> EncodedChunk:
    *sides, report = encode_pairs(tokenizer, pairs, limits)
    ids = tuple(np.concatenate(texts) if texts else np.empty(0, np.int32) for texts in sides)
    return EncodedChunk(ids, tuple(np.array([len(text) for text in texts], np.int32) for texts in sides), report)
