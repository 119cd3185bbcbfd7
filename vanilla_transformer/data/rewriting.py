"""Training pairs that are rewritten in every pass: by `Augmentation`, `TermAnnotation` and `BPEDropout` in turn.

A rewriter is called with pairs of ids and a key, and returns as many pairs. All its draws come from the key. Its
`identity` gives, by the name of the training argument, everything that determines the new ids.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch.utils.data import Dataset, Sampler

from .batching import cut_again


if TYPE_CHECKING:
    import datasets

    from .batching import TokenBatchSampler

_PURPOSE = 1910_13267  # first number of every key; BPE-dropout's too, so that runs begun with it keep their order
_WINDOW_TOKENS = 131_072  # a second of work, and enough pairs for batches of similar lengths


class Rewriter(Protocol):
    """Rewrites pairs of ids."""

    identity: dict[str, Any]

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]], key: tuple[int, ...]) -> list[dict]:
        """Returns as many pairs; the same for the same pairs and key."""


def rewritten_windows(
    rewriters: Sequence[Rewriter],
    batches: Iterable[Sequence],
    key: tuple[int, ...],
    max_tokens: int,
    start: int = 0,
    read: Callable[[Sequence], Sequence[Mapping]] = list,
) -> Iterator[list[dict]]:
    """Rewrites batches: the pairs of a window are cut into as many batches again, by their new lengths.

    If batches kept their pairs, the texts of a batch would no longer have similar lengths: with BPE-dropout there would
    be 1.27 times the tokens, but 1.72 times the padded tokens. Windows of 128 batches of 1,024 tokens bring the latter
    down to 1.34 times.

    Args:
        rewriters: Rewrite the pairs, one after another.
        batches: Batches of pairs, or of what `read` makes pairs of.
        key: Whole numbers, 0 or more, that no other batches have.
        max_tokens: The budget of the batches: the smaller they are, the more of them a window has.
        start: Number of the batch to begin with. It does not change the windows.
        read: Makes the pairs of a batch. Those of windows before `start` are not read.
    """
    size = max(4, _WINDOW_TOKENS // max_tokens)
    number, skip = divmod(start, size)
    batches = map(read, islice(batches, number * size, None))
    while window := list(islice(batches, size)):
        pairs = list(chain.from_iterable(window))
        for rewrite in rewriters:
            pairs = rewrite(pairs, (*key, number))
        order = int(np.random.default_rng((_PURPOSE, *key, number)).integers(2**32))
        yield from cut_again(pairs, len(window), order)[skip:]
        number, skip = number + 1, 0


class _Pass:
    """The batches of a process in one pass, rewritten in turn; those before the first one asked for are not."""

    def __init__(self, batches: Callable[[int], Iterator[list[dict]]]):
        self.batches = batches  # those from a number on
        self.left, self.next = iter(()), -1

    def batch(self, number: int) -> list[dict]:
        if number != self.next:
            self.left = self.batches(number)
        self.next = number + 1
        return next(self.left)


@dataclass
class _Later:
    """A batch that is rewritten when it is loaded: those that a resumed run skips never are."""

    of: _Pass
    number: int


class RewrittenBatches(Sampler):
    """The batches of a sampler, rewritten. They stand for pairs, not row numbers, so `GivenPairs` is the dataset.

    A process rewrites only its own batches; in place of those that accelerate gives to others, it yields empty lists.

    Args:
        batches, pairs: The sampler, and what it chooses from.
        rewriters: As for [`rewritten_windows`].
        seed, rank, world_size: Of the order of batches, and of the process.
        later: Whether a batch is rewritten only when it is loaded, which must then be in this process.
    """

    def __init__(
        self,
        batches: "TokenBatchSampler",
        pairs: "datasets.Dataset",
        rewriters: Sequence[Rewriter],
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        later: bool = True,
    ):
        self.batches, self.pairs, self.rewriters, self.later = batches, pairs, rewriters, later
        self.seed, self.rank, self.world_size = seed, rank, world_size

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0, of the next iteration."""
        self.batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[_Later] | list[dict]]:
        every, key = list(self.batches), (self.seed, self.rank, self.batches.epoch)
        own, read = every[self.rank :: self.world_size], self.pairs.__getitems__
        these = _Pass(partial(rewritten_windows, self.rewriters, own, key, self.batches.max_tokens, read=read))
        for number in range(len(every)):
            of, place = divmod(number, self.world_size)
            if place != self.rank:
                yield []
            else:
                yield [_Later(these, of)] if self.later else these.batch(of)


class GivenPairs(Dataset):
    """Gives the pairs of a batch of [`RewrittenBatches`]."""

    def __init__(self, pairs: int):
        self.pairs = pairs

    def __len__(self) -> int:
        return self.pairs

    def __getitems__(self, batch: list[_Later] | list[dict]) -> list[dict]:
        first = batch[0]
        return first.of.batch(first.number) if isinstance(first, _Later) else batch
