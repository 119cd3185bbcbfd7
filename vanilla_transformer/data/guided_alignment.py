"""Guided alignment: which source tokens each target token is a translation of, for the attention to learn from.

A model soon learns to write the target language, and only after thousands of updates where in the source to look. A
word aligner knows that after some seconds. So one head of the attention on the encoder is trained to look there (Chen
et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation", https://arxiv.org/abs/1607.01628;
in the Transformer Garg et al. 2019, https://arxiv.org/abs/1909.02074):

    some pairs of the training text as ids -> fast_align in both directions -> t(target | source), t(source | target)
    batch of ids -> p(i | j) p(j | i), the probability of a link in both directions -> loss

With two tables of probabilities, not every pair has to be aligned. So streams, prepared corpora, augmentation and
BPE-dropout work, and there is no state to save.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import torch

from .terms import MOST_PAIRS
from .word_aligner import MOST_CELLS, NO_WORD, TENSION, learn


_LONGEST = 500  # tokens on a side of a pair to learn from
_LEAST = 1e-6  # probabilities below this in both directions are left out, most of all that were found
_TINY = 1e-30  # what is divided by, where there is nothing to divide


class GuidedAlignment:
    """The alignment of batches of ids, learned from pairs of ids.

    Args:
        pairs: Ids of sources and targets, `</s>` included. They are read until they have five million pairs of a source
            and a target token, up to the 200,000th; those of more than 500 tokens on a side are skipped.
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
        for source, target in islice(pairs, MOST_PAIRS):
            source, target = (np.asarray(ids, dtype=np.int64) for ids in (source, target))
            if separator is not None and separator in source:
                source = source[np.flatnonzero(source == separator)[-1] + 1 :]
            if 0 < len(source) <= _LONGEST and 0 < len(target) <= _LONGEST:
                found.append((source, target))
                cells += len(source) * len(target)
            if cells >= MOST_CELLS:
                break
        if not found:
            raise ValueError(
                f"guided_alignment has nothing to learn from: no pair has at most {_LONGEST} tokens on either side. "
                "Set it to 0."
            )
        # Tokens are numbered from 1, because 0 is no token.
        self._tokens = size = 1 + max(int(ids.max()) for pair in found for ids in pair)
        keys, t, counts = learn([(source + 1, target) for source, target in found], size)[:3]
        other_keys, other, other_counts = learn([(target + 1, source) for source, target in found], size)[:3]
        of_none, others_of_none = (int(np.searchsorted(each, size)) for each in (keys, other_keys))
        alone = np.zeros((2, size), dtype=np.float32)  # t(token | no token)
        alone[0, keys[:of_none]], alone[1, other_keys[:others_of_none]] = t[:of_none], other[:others_of_none]
        target, source = np.divmod(other_keys[others_of_none:] - size, size)
        order = np.lexsort((target, source))  # the order of `keys`
        both = np.stack((t[of_none:], other[others_of_none:][order]))
        kept = both.max(axis=0) >= _LEAST
        kept[-1] = True  # so that there is one
        self._keys = torch.from_numpy(keys[of_none:][kept] - size)  # source times `size`, plus target
        self._t, self._alone = torch.from_numpy(both[:, kept].astype(np.float32)), torch.from_numpy(alone)
        counts = np.sqrt(counts[of_none:] * other_counts[others_of_none:][order])
        self._counts = torch.from_numpy(counts[kept].astype(np.float32))

    def vectors(self, tokens: int, size: int, seed: int = 0) -> torch.Tensor:
        """(tokens, size) float32, vectors of tokens by their translations: those that are linked point the same way.

        From c(s, t), how often s and t are linked (the geometric mean of both directions),

            a(s, t) = log(1 + c(s, t) c(., .) / ((1 + c(s, .)) (1 + c(., t)))),   A = U S V^T,

        and the vector of a token is the sum of its rows of U S^1/2 and V S^1/2, in the `size` largest dimensions of S.
        The product of the rows of s and t is near a(s, t), a smoothed form of pointwise mutual information (Levy and
        Goldberg 2014, "Neural Word Embedding as Implicit Matrix Factorization"). Then vectors are turned at random, so
        that no dimension is larger than the others, and get the length 1. A token without links has the vector 0.

        Args:
            tokens: How many there are; more than the largest id.
            size: Of a vector.
            seed: For the random numbers.
        """
        links, c = torch.stack((self._keys.cpu() // self._tokens, self._keys.cpu() % self._tokens)), self._counts
        of_source, of_target = (torch.zeros(tokens).index_add_(0, ids, c) for ids in links)
        a = torch.log1p(c * c.sum() / ((1 + of_source[links[0]]) * (1 + of_target[links[1]])))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # and not those of GPUs, whose state would be lost
            matrix = torch.sparse_coo_tensor(links, a, (tokens, tokens), check_invariants=False)
            u, s, v = torch.svd_lowrank(matrix, q=min(size, tokens), niter=4)
            turned, _ = torch.linalg.qr(torch.randn(size, size))
        found = torch.nn.functional.normalize(((u + v) * s.sqrt()) @ turned[: u.shape[1]])
        return found * ((of_source + of_target) > 0)[:, None]

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(batch, target, source) float32: for each target token the weights of its links.

        They sum to at most `weight`: tokens whose translation is uncertain, and those that have none, weigh less.

        Args:
            input_ids: (batch, source) ids.
            attention_mask: (batch, source), 1 for tokens and 0 for padding.
            labels: (batch, target) ids, -100 for padding.
        """
        self._keys, self._t, self._alone = (each.to(labels.device) for each in (self._keys, self._t, self._alone))
        of_source, of_target = attention_mask.bool(), labels != -100
        if self.separator is not None:
            of_source = of_source & ((input_ids == self.separator).flip(1).cumsum(1).flip(1) == 0)
        i, j = (self._places(real) for real in (of_source, of_target))
        near = torch.exp(-TENSION * (i[:, None, :] - j[:, :, None]).abs())
        near *= of_source[:, None, :] & of_target[:, :, None]
        # What was never seen has no links.
        source, target = (ids.clamp(0, self._tokens - 1) for ids in (input_ids, labels))
        known = (source == input_ids)[:, None, :] & (target == labels)[:, :, None]
        keys = source[:, None, :] * self._tokens + target[:, :, None]
        at = torch.searchsorted(self._keys, keys).clamp_(max=len(self._keys) - 1)
        known &= self._keys[at] == keys
        links = self.weight * known.float()
        for t, alone, axis in ((0, self._alone[0][target][:, :, None], 2), (1, self._alone[1][source][:, None, :], 1)):
            p = self._t[t][at] * known * near / near.sum(axis, keepdim=True).clamp_(min=_TINY) * (1 - NO_WORD)
            links *= p / (p.sum(axis, keepdim=True) + NO_WORD * alone).clamp_(min=_TINY)
        return links

    @staticmethod
    def _places(real: torch.Tensor) -> torch.Tensor:
        """Where each token stands in its text, from above 0 to 1."""
        return real.cumsum(1) / real.sum(1, keepdim=True).clamp_(min=1)
