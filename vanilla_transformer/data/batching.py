"""Batches of pairs alike in both lengths, cut by a budget of tokens (section 5.1), as padded tensors for the model."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch.utils.data import Sampler

from .tokenizer import BOS_ID, PAD_ID


class TokenBatchSampler(Sampler[list[int]]):
    """Cuts a corpus into batches of at most `max_tokens` padded tokens on either side.

    Pairs are sorted by both lengths and cut where the next pair would not fit the budget; pairs of equal lengths
    change places in every epoch, and so do the batches. The sorted lengths are the same in every epoch, and so is the
    number of batches; every pair occurs exactly once. The order depends on (seed, epoch) alone.

    Args:
        source_lengths, target_lengths: (pairs,) tokens of each text, `</s>` included.
        max_tokens: Budget of a batch: pairs times longest source, and pairs times longest target, are at most this
            (section 5.1: about 25,000 source and 25,000 target tokens).
        seed: The random seed of the order, together with the epoch.
        coarse: For batches of many pairs: neighbouring target lengths are put together, so that there are enough pairs
            of similar target length to cut into batches of similar source length.
        shuffle: False gives the sorted order in every epoch, for evaluation.

    Raises:
        ValueError: There are no pairs, the lengths do not match, or a pair is longer than the budget.
    """

    def __init__(
        self,
        source_lengths: Sequence[int],
        target_lengths: Sequence[int],
        max_tokens: int,
        *,
        seed: int = 0,
        coarse: bool = False,
        shuffle: bool = True,
    ):
        self.source_lengths = np.asarray(source_lengths, dtype=np.int64)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int64)
        self._check(max_tokens)
        self.max_tokens, self.seed, self.shuffle, self.epoch = max_tokens, seed, shuffle, 0
        self._band_of = np.arange(self.target_lengths.max() + 1)  # by target length; here each has its own
        if coarse:
            self._band_of = _bands(self.source_lengths, self.target_lengths, max_tokens)
        order = self._sorted(np.arange(len(self.source_lengths)))
        self._bounds = _cut(self.source_lengths[order], self.target_lengths[order], max_tokens)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, counted from 0, whose order the next iteration has. Trainer calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __iter__(self) -> Iterator[list[int]]:
        pairs, batches = np.arange(len(self.source_lengths)), np.arange(len(self))
        if self.shuffle:
            generator = np.random.default_rng((self.seed, self.epoch))
            generator.shuffle(pairs)
            generator.shuffle(batches)
        order = self._sorted(pairs)
        for batch in batches:
            yield order[self._bounds[batch] : self._bounds[batch + 1]].tolist()

    def real_share(self) -> float:
        """Share of the cells of all padded batches, source and target together, that hold a real token."""
        order = self._sorted(np.arange(len(self.source_lengths)))
        sizes = np.diff(self._bounds)
        longest_source = np.maximum.reduceat(self.source_lengths[order], self._bounds[:-1])
        longest_target = np.maximum.reduceat(self.target_lengths[order], self._bounds[:-1])
        cells = int((sizes * (longest_source + longest_target)).sum())
        return float(self.source_lengths.sum() + self.target_lengths.sum()) / cells

    def _check(self, max_tokens: int) -> None:
        source, target = self.source_lengths, self.target_lengths
        if source.shape != target.shape or source.ndim != 1:
            raise ValueError(f"Lengths of {source.shape} sources and {target.shape} targets do not belong together.")
        if not len(source):
            raise ValueError("There are no pairs to make batches of.")
        longest = int(np.maximum(source, target).argmax())
        if max(source[longest], target[longest]) > max_tokens:
            raise ValueError(
                f"Pair {longest} has {source[longest]} source and {target[longest]} target tokens, more than "
                f"max_tokens = {max_tokens} allows for a whole batch: raise max_tokens, and update_tokens if it is "
                "set, or lower max_source_length and max_target_length so that such pairs are dropped."
            )

    def _sorted(self, pairs: np.ndarray) -> np.ndarray:
        """Sorts by band of target lengths, then by source length, up and down in turn, so that neighbours are alike.

        The target length comes last: without it, pairs of one band and source length would change places from epoch to
        epoch, and batches cut for short targets would get long ones.
        """
        source, target = self.source_lengths[pairs], self.target_lengths[pairs]
        band = self._band_of[target]
        return pairs[np.lexsort((target, np.where(band % 2, -source, source), band))]


def _bands(source_lengths: np.ndarray, target_lengths: np.ndarray, max_tokens: int) -> np.ndarray:
    """For each target length the number of its band: bands of about as many tokens each, (longest target + 1,)."""
    tokens = np.bincount(target_lengths, weights=np.maximum(source_lengths, target_lengths))
    # About as many bands as each will have batches, or a few more: measured to be best for 50,000 to 400,000 pairs of
    # WMT14's lengths in batches of 4,000 to 25,000 tokens.
    bands = max(1, round(1.4 * (tokens.sum() / max_tokens) ** 0.5))
    return ((tokens.cumsum() - tokens) * bands / tokens.sum()).astype(int)


def _cut(source_lengths: np.ndarray, target_lengths: np.ndarray, max_tokens: int) -> np.ndarray:
    """Where batches begin in the sorted corpus, and its end: (batches + 1,)."""
    bounds, longest_source, longest_target = [0], 0, 0
    for i, (source, target) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        if (i + 1 - bounds[-1]) * max(longest_source, longest_target) > max_tokens:
            bounds.append(i)
            longest_source, longest_target = source, target
    return np.array([*bounds, len(source_lengths)])


def cut_again(
    pairs: Sequence[Mapping[str, Sequence[int]]], count: int, seed: int
) -> list[list[Mapping[str, Sequence[int]]]]:
    """Cuts pairs into exactly `count` batches of similar lengths, with the smallest budget for that, in random order.

    Args:
        pairs: With `input_ids` and `labels`, at least `count` of them.
        count: How many batches.
        seed: What their order is drawn from.
    """
    lengths = [[len(pair[side]) for pair in pairs] for side in ("input_ids", "labels")]
    longest = max(map(max, lengths))
    budgets = range(longest, longest * len(pairs) + 1)
    budget = budgets[bisect_left(budgets, -count, key=lambda tokens: -len(TokenBatchSampler(*lengths, tokens)))]
    batches = [[pairs[i] for i in batch] for batch in TokenBatchSampler(*lengths, budget, seed=seed)]
    while len(batches) < count:  # one more batch does not always fit in between
        largest = batches.index(max(batches, key=len))
        half = len(batches[largest]) // 2
        batches[largest : largest + 1] = [batches[largest][:half], batches[largest][half:]]
    return batches


class TranslationCollator:
    """Pads a batch of pairs to its longest source and its longest target; other columns are left out.

    It is called with a list of pairs with `input_ids` and `labels`, both ending in `</s>`, and returns int64 tensors:

        input_ids (batch, source)          padded with <pad>
        attention_mask (batch, source)     1 for tokens, 0 for padding
        labels (batch, target)             padded with -100, which no loss counts
        decoder_input_ids (batch, target)  <s> and the labels but the last (Figure 1: "outputs, shifted right")
    """

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        input_ids = _padded([pair["input_ids"] for pair in pairs], PAD_ID)
        labels = _padded([pair["labels"] for pair in pairs], -100)
        start = np.full((len(pairs), 1), BOS_ID)
        shifted = np.concatenate([start, np.where(labels == -100, PAD_ID, labels)[:, :-1]], axis=1)
        lengths = np.array([len(pair["input_ids"]) for pair in pairs])
        batch = {
            "input_ids": input_ids,
            "attention_mask": (np.arange(input_ids.shape[1]) < lengths[:, None]).astype(np.int64),
            "labels": labels,
            "decoder_input_ids": shifted,
        }
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def _padded(rows: Sequence[Sequence[int]], padding: int) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded
