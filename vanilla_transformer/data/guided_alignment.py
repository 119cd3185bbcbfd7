"""Guided alignment: which source tokens each target token is a translation of, for the attention to learn from.

A model soon learns to write the target language, and only after thousands of updates where in the source to look. A
word aligner knows that after some seconds. So one head of the attention on the encoder is trained to look there (Chen,
Matusov, Khadivi and Peter 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation"; in the
Transformer Garg et al. 2019, https://arxiv.org/abs/1909.02074):

    first pairs of the training text as ids -> fast_align in both directions -> t(target | source), t(source | target)
    batch of ids -> p(i | j) p(j | i), the probability of a link in both directions -> collator -> loss

With two tables of probabilities, not every pair has to be aligned. So streams, prepared corpora, augmentation and
BPE-dropout work, and there is no state to save.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from .word_aligner import MOST_CELLS, MOST_WORDS, NO_WORD, TENSION, learn


_LEAST = 1e-4  # probabilities below this in both directions are left out, most of all that were found


class GuidedAlignment:
    """The alignment of batches of ids, learned from pairs of ids.

    Args:
        pairs: Ids of sources and targets, `</s>` included. They are read until they have five million pairs of a source
            and a target token; those of more than 100 tokens on a side are skipped.
        weight: The weights of links are multiplied by this.
        separator: The id after each sentence of context, if sources have any: only tokens behind the last one are
            aligned.

    Raises:
        ValueError: There is no such pair.
    """

    def __init__(
        self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], weight: float, separator: int | None = None
    ):
        self.weight, self.separator = weight, separator
        found: list[tuple[np.ndarray, np.ndarray]] = []
        cells = 0
        for source, target in pairs:
            source, target = (np.asarray(ids, dtype=np.int64) for ids in (source, target))
            source = source[self._begin_of(source) :]
            if 0 < len(source) <= MOST_WORDS and 0 < len(target) <= MOST_WORDS:
                found.append((source, target))
                cells += len(source) * len(target)
            if cells >= MOST_CELLS:
                break
        if not found:
            raise ValueError(
                f"guided_alignment has nothing to learn from: no pair has at most {MOST_WORDS} tokens on either side. "
                "Set it to 0."
            )
        # Tokens are numbered from 1, because 0 is no token.
        self._tokens = 1 + max(int(ids.max()) for pair in found for ids in pair)
        forward = learn([(source + 1, target) for source, target in found], self._tokens)
        backward = learn([(target + 1, source) for source, target in found], self._tokens)
        of_none = [int(np.searchsorted(each.kinds, self._tokens)) for each in (forward, backward)]
        self._alone = np.zeros((2, self._tokens))  # t(token | no token)
        for alone, each, count in zip(self._alone, (forward, backward), of_none, strict=True):
            alone[each.kinds[:count]] = each.t[:count]
        keys, t = forward.kinds[of_none[0] :] - self._tokens, forward.t[of_none[0] :]
        target, source = np.divmod(backward.kinds[of_none[1] :] - self._tokens, self._tokens)
        other = backward.t[of_none[1] :][np.lexsort((target, source))]  # in the order of `keys`
        kept = np.maximum(t, other) >= _LEAST
        self._keys, self._t = keys[kept], np.stack((t[kept], other[kept])).astype(np.float32)

    def __call__(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> np.ndarray:
        """(batch, longest target, longest source) float32: for each target token the weights of its links.

        They sum to at most `weight`: tokens whose translation is uncertain, and those that have none, weigh less.

        Args:
            sources, targets: Ids of each pair.
        """
        begins = np.array([self._begin_of(np.asarray(source)) for source in sources])
        source, i, m = self._padded([source[begin:] for source, begin in zip(sources, begins, strict=True)])
        target, j, n = self._padded(targets)
        near = np.exp(-TENSION * np.abs((i / m)[:, None, :] - (j / n)[:, :, None])).astype(np.float32)
        near *= (i <= m)[:, None, :] & (j <= n)[:, :, None]
        t = self._probabilities(source, target)
        links = np.full_like(near, self.weight)
        for of_pair, alone, axis in zip(t, (self._of_none(0, target), self._of_none(1, source)), (2, 1), strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):  # padding, and tokens that were never seen
                p = (1 - NO_WORD) * of_pair * near / near.sum(axis, keepdims=True)
                links *= np.nan_to_num(p / (p.sum(axis, keepdims=True) + NO_WORD * np.expand_dims(alone, axis)))
        if not begins.any():
            return links
        whole = np.zeros((*links.shape[:2], max(map(len, sources))), dtype=np.float32)
        for row, found, begin, length in zip(whole, links, begins, m[:, 0], strict=True):
            row[:, begin : begin + length] = found[:, :length]
        return whole

    def _begin_of(self, source: np.ndarray) -> int:
        """The place behind the context."""
        if self.separator is None:
            return 0
        [places] = np.nonzero(source == self.separator)
        return int(places[-1]) + 1 if len(places) else 0

    @staticmethod
    def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ids (rows, longest), -1 for padding; the places (1, longest), from 1; the lengths (rows, 1)."""
        lengths = np.array([len(row) for row in rows])[:, None]
        places = np.arange(1, lengths.max() + 1)[None]
        padded = np.full((len(rows), places.shape[1]), -1, dtype=np.int64)
        padded[places <= lengths] = np.concatenate(rows)
        return padded, places, lengths

    def _probabilities(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(2, batch, target, source): t(target | source) and t(source | target), 0 for what was never seen."""
        known = self._known(source)[:, None, :] & self._known(target)[:, :, None]
        keys = source[:, None, :] * self._tokens + target[:, :, None]
        at = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return self._t[:, at] * (known & (self._keys[at] == keys))

    def _of_none(self, direction: int, ids: np.ndarray) -> np.ndarray:
        return np.where(self._known(ids), self._alone[direction][ids * self._known(ids)], 0)

    def _known(self, ids: np.ndarray) -> np.ndarray:
        return (ids >= 0) & (ids < self._tokens)
