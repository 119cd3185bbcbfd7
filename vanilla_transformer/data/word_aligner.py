"""Aligns the words of parallel text with one another, without a translation model.

IBM Model 2 with a prior that favours the diagonal, learned by variational EM (Dyer, Chahuneau and Smith 2013, "A
Simple, Fast, and Effective Reparameterization of IBM Model 2", known as fast_align). Word j of n target words comes
from word i of m source words with probability

    p(i | j) t(target_j | source_i),   p(0 | j) = 0.08,   p(i | j) = 0.92 exp(-4 |i/m - j/n|) / Z_j

where word 0 stands for no word. Both directions are learned, and their alignments combined.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch


NO_WORD, TENSION, CONCENTRATION = 0.08, 4.0, 0.01  # fast_align's p0, lambda, and alpha of the Dirichlet prior of t

MOST_CELLS = 5_000_000  # source words times target words aligned at a time, in some 400 MB
MOST_WORDS = 100  # per side of a pair that is aligned

Links = set[tuple[int, int]]
Word = TypeVar("Word")


def parts_to_align(
    pairs: Iterable[tuple[str, ...]], words_of: Callable[[str], list[Word]]
) -> Iterator[list[tuple[list[Word], list[Word]]]]:
    """The words of the pairs, some thousand pairs at a time, as many as `align_corpus` is to align at once.

    Args:
        pairs: Source and target of each; what follows them is ignored. Pairs without a word on a side, or with more
            than 100, are left out.
        words_of: Returns the words of a text. It is given NFC, as text decoded from ids is.
    """
    part: list[tuple[list[Word], list[Word]]] = []
    cells = 0
    for source, target, *_ in pairs:
        words = words_of(unicodedata.normalize("NFC", source)), words_of(unicodedata.normalize("NFC", target))
        if all(words) and max(map(len, words)) <= MOST_WORDS:
            part.append(words)
            cells += len(words[0]) * len(words[1])
        if cells >= MOST_CELLS:
            yield part
            part, cells = [], 0
    if part:
        yield part


def align_corpus(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], *, iterations: int = 5
) -> list[Links]:
    """Links (source word, target word), counted from 0, of each pair of a corpus.

    They are the links of both directions, and those of one direction that stand beside them and link a word without a
    link (grow-diag, Koehn et al. 2005). Memory: about 60 bytes for each source word of each target word.

    Args:
        sources, targets: The words of each sentence.
        iterations: Rounds of EM.

    Raises:
        ValueError: There are not as many sources as targets.
    """
    if len(sources) != len(targets):
        raise ValueError(f"There are {len(sources):,} sources and {len(targets):,} targets: they must agree.")
    forward = _one_direction(sources, targets, iterations)
    backward = [{(i, j) for j, i in links} for links in _one_direction(targets, sources, iterations)]
    return [grow_diag(*each) for each in zip(forward, backward, strict=True)]


def grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection of two alignments, grown by those links of their union that touch it at sides or corners."""
    links, rest = forward & backward, sorted(forward ^ backward)
    grown = True
    while grown:
        grown = False
        for i, j in rest:
            beside = any((i + x, j + y) in links for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y)
            free = all(i != other for other, _ in links) or all(j != other for _, other in links)
            if beside and free and (i, j) not in links:
                links.add((i, j))
                grown = True
    return links


def _numbers(sentences: Sequence[Sequence[str]], known: dict[str, int]) -> list[np.ndarray]:
    return [np.array([known.setdefault(word, len(known)) for word in each], dtype=np.int64) for each in sentences]


def _prior(m: int, n: int) -> np.ndarray:
    """p(i | j) of shape (n, 1 + m)."""
    near = np.exp(-TENSION * np.abs((np.arange(m) + 1) / m - (np.arange(n)[:, None] + 1) / n))
    return np.concatenate([np.full((n, 1), NO_WORD), (1 - NO_WORD) * near / near.sum(axis=1, keepdims=True)], axis=1)


class Learned(NamedTuple):
    """What EM has learned from pairs of sentences of numbered words, in one direction.

    Attributes:
        kinds: (kinds,) the pairs of words that occur, in order: the source word (0: none) times the number of target
            words, plus the target word.
        t: (kinds,) t(target | source) of each.
        counts: (kinds,) how often each is linked, as expected in the last round.
        kind: (cells,) the place in `kinds` of each target word with no word, and with each source word of its sentence.
        prior: (cells,) p(i | j).
    """

    kinds: np.ndarray
    t: np.ndarray
    counts: np.ndarray
    kind: np.ndarray
    prior: np.ndarray


def learn(pairs: Sequence[tuple[np.ndarray, np.ndarray]], target_words: int, *, iterations: int = 5) -> Learned:
    """EM in one direction.

    Args:
        pairs: The words of each source, numbered from 1, and of each target, numbered from 0; no side is empty.
        target_words: How many different target words there are.
        iterations: Rounds of EM.
    """
    shapes = {(len(source), len(target)) for source, target in pairs}
    priors = {shape: _prior(*shape).ravel() for shape in shapes}
    cells = [np.add.outer(target, np.append(0, source) * target_words).ravel() for source, target in pairs]
    prior = np.concatenate([priors[len(source), len(target)] for source, target in pairs])
    widths = np.concatenate([np.full(len(target), len(source) + 1) for source, target in pairs])
    starts = np.append(0, np.cumsum(widths)[:-1])  # by target word
    kinds, kind = np.unique(np.concatenate(cells), return_inverse=True)
    source_of_kind = kinds // target_words
    # The first round has only the prior.
    t = np.ones(len(kinds))
    for _ in range(iterations):
        p = t[kind] * prior
        p /= np.repeat(np.add.reduceat(p, starts), widths)
        counts = np.bincount(kind, p)
        totals = np.bincount(source_of_kind, counts) + CONCENTRATION * np.bincount(source_of_kind)
        t = np.exp(_digamma(counts + CONCENTRATION) - _digamma(totals)[source_of_kind])
    return Learned(kinds, t, counts, kind, prior)


def _digamma(x: np.ndarray) -> np.ndarray:
    return torch.digamma(torch.from_numpy(x)).numpy()


def _one_direction(sources, targets, iterations: int) -> list[Links]:
    """For every target word, the source word that it most likely comes from."""
    source_words, target_words = {"": 0}, {}
    pairs = list(zip(_numbers(sources, source_words), _numbers(targets, target_words), strict=True))
    used = [number for number, (source, target) in enumerate(pairs) if len(source) and len(target)]
    found: list[Links] = [set() for _ in pairs]
    if not used:
        return found
    learned = learn([pairs[i] for i in used], len(target_words), iterations=iterations)
    p, at = learned.t[learned.kind] * learned.prior, 0
    for i in used:
        source, target = pairs[i]
        size = (len(source) + 1) * len(target)
        best = p[at : at + size].reshape(len(target), -1).argmax(axis=1)
        found[i] = {(int(word) - 1, j) for j, word in enumerate(best) if word}
        at += size
    return found
