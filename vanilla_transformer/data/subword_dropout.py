"""BPE-dropout: in every pass the words of a training text come in other pieces (Provilkov et al. 2020).

Algorithm 1 of "BPE-Dropout: Simple and Effective Subword Regularization", https://aclanthology.org/2020.acl-main.170:

    split the word into characters
    repeat
        merges = all pairs of neighbours that the merge table has, each left out with probability p
        if there are any, apply the one that was learned first
    until there are none

With p = 0 this is BPE. With merges ranked 1 to n, merge k is applied with probability (1 - p) p^(k-1), and with p^n the
word stays as it is.

The dropout of `tokenizers` is not used, because its random numbers cannot be seeded, and because its queue keeps merges
that are no longer possible. Whenever one of those survives, merges that were left out get another chance. For a b c
with the merges ab, abc and bc, it leaves ab c with probability 0.017 for p = 0.1, and Algorithm 1 with 0.9 p = 0.09.

Dropout works on ids, so that it can also be used on corpora without text. All random numbers of a batch come from a
key that says where the batch stands, so there is no state to save.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import decoders, pre_tokenizers


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PURPOSE = 1910_13267  # first number of every key, so that nothing else draws from the same key
_MOST_SEGMENTS = 100_000  # the words of this many segments are kept, in about 500 bytes each
_NONE = 1 << 62  # rank of two neighbours that no merge joins
_SPACE = "Ġ"  # how byte-level BPE spells the blank
_BROKEN = "\ufffd"  # bytes that form no character decode to this


class _Word(NamedTuple):
    """A word as characters and as BPE has it, and ranks of the merges of its characters (see `_cut`)."""

    characters: tuple[int, ...]
    pieces: tuple[int, ...]
    ranks: tuple[int, ...]


class BPEDropout:
    """Cuts the words of pairs of ids into pieces with BPE-dropout; their text stays the same.

    Args:
        tokenizer: The tokenizer that made the ids: byte-level BPE, as `learn_tokenizer` makes it.
        p: Probability that a merge is left out, above 0 and below 1; 0.1 in the paper.
        max_source_length, max_target_length: A text that would have more tokens than this keeps its ids; None: no
            limit.

    Raises:
        ValueError: `p` is out of range, or the tokenizer is of another kind.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        p: float,
        *,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
    ):
        if not 0 < p < 1:
            raise ValueError(f"The probability of BPE-dropout must be above 0 and below 1, not {p}.")
        backend, vocabulary = tokenizer.backend_tokenizer, tokenizer.get_vocab()
        content = json.loads(backend.to_str())
        model, alphabet = content["model"], pre_tokenizers.ByteLevel.alphabet()
        if model["type"] != "BPE" or model["continuing_subword_prefix"] or not vocabulary.keys() >= set(alphabet):
            raise ValueError(
                f"bpe_dropout needs a tokenizer of kind bpe, of bytes, and this one ({model['type']}) is none: set "
                "tokenizer.kind to bpe, or leave bpe_dropout out."
            )
        self.p, self.limits = p, (max_source_length, max_target_length)
        self._pre_tokenizer, self._decoder = backend.pre_tokenizer, decoders.ByteLevel()
        self._character = {sign: vocabulary[sign] for sign in alphabet}
        merges = [(vocabulary[left], vocabulary[right]) for left, right in model["merges"]]
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._merge = [vocabulary[left + right] for left, right in model["merges"]]
        self._tokens = {number: token for token, number in vocabulary.items()}
        self._facts_of_pieces({token["id"] for token in content["added_tokens"]})
        self._segments: dict[tuple[int, ...], list[_Word]] = {}

    def _facts_of_pieces(self, special: set[int]) -> None:
        """Makes the tables of `_cut_anew`, each (largest id + 1,)."""
        size = max(self._tokens) + 1
        self._special, self._begins, self._ends = (np.zeros(size, bool) for _ in range(3))
        self._merged = np.zeros(size, np.int64)  # merges that made a piece
        self._special[list(special)] = True
        for number, token in self._tokens.items():
            if number not in special:
                last = self._decoder.decode([token])[-1]
                self._begins[number] = token.startswith(_SPACE)
                self._ends[number] = not (last.isspace() or last == _BROKEN)
                self._merged[number] = len(token) - 1

    @property
    def identity(self) -> dict[str, float]:
        """The settings that determine the resulting ids, by the name of the training argument."""
        return {"bpe_dropout": self.p}

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]], key: tuple[int, ...]) -> list[dict]:
        """The pairs of a batch, `input_ids` and `labels` in other pieces; the same for the same pairs and key.

        Args:
            pairs: Each has `input_ids` and `labels`, ids as the tokenizer gives them.
            key: Whole numbers, 0 or more, that no other batch has.
        """
        texts = [pair[side] for side in ("input_ids", "labels") for pair in pairs]
        limits = [limit for limit in self.limits for _ in pairs]
        found = self._cut_anew(texts, np.random.default_rng((_PURPOSE, *key)))
        kept = [
            old if limit is not None and len(new) > limit else new
            for old, new, limit in zip(texts, found, limits, strict=True)
        ]
        sides = zip(kept[: len(pairs)], kept[len(pairs) :], strict=True)
        return [{"input_ids": source, "labels": target} for source, target in sides]

    def _cut_anew(self, texts: list[Sequence[int]], generator: np.random.Generator) -> list[Sequence[int]]:
        """Applies Algorithm 1 to each text.

        Each merge that is considered is left out or not in an independent trial, so the number that survive before the
        next is left out has a geometric distribution. A segment with no more merges than that stays as it is, and is
        not looked at.
        """
        lengths = np.array([len(text) for text in texts])
        ends = lengths.cumsum()
        ids = np.concatenate(texts, dtype=np.int64)
        starts = self._segment_starts(ids, ends - lengths)
        survivors = generator.geometric(self.p, len(starts)) - 1
        [touched] = np.nonzero(survivors < np.add.reduceat(self._merged[ids], starts))
        more = self._more_survivors(generator)
        text_of = np.searchsorted(ends, starts[touched], side="right")
        stops = np.append(starts, len(ids))[touched + 1]
        places = zip(*(each.tolist() for each in (text_of, starts[touched], stops, survivors[touched])), strict=True)
        old, new, done = ids.tolist(), [], 0
        for text, start, stop, first in places:
            new += old[done:start]
            segment = self._walk(tuple(old[start:stop]), first, more)
            new += segment
            lengths[text] += len(segment) - (stop - start)
            done = stop
        new += old[done:]
        return [
            new[end - length : end] for length, end in zip(lengths.tolist(), lengths.cumsum().tolist(), strict=True)
        ]

    def _segment_starts(self, ids: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Where segments begin that can be cut on their own: at texts, special tokens, and white space.

        A run of white space begins a word whatever is in front of it; where that word ends depends on what follows. So
        a text is cut at a blank if the piece before it is certainly not white space. A piece that ends within a
        character may be white space: there the text is not cut.
        """
        special = self._special[ids]
        cut = special | self._begins[ids]
        cut[1:] &= special[1:] | self._ends[ids[:-1]]
        cut[1:] |= special[:-1]
        cut[texts] = True
        return np.flatnonzero(cut)

    def _more_survivors(self, generator: np.random.Generator) -> Iterator[int]:
        while True:
            yield from (generator.geometric(self.p, 256) - 1).tolist()

    def _walk(self, segment: tuple[int, ...], survivors: int, more: Iterator[int]) -> list[int]:
        """Ids of a segment cut anew. Of the merges considered, the first `survivors` survive."""
        found: list[int] = []
        if (words := self._segments.get(segment)) is None:
            words = self._words(segment)
        for word in words:
            if survivors >= (merges := len(word.characters) - len(word.pieces)):
                survivors -= merges
                found += word.pieces
            else:
                pieces, survivors = self._cut(word, survivors, more)
                found += pieces
        return found

    def _cut(self, word: _Word, survivors: int, more: Iterator[int]) -> tuple[list[int], int]:
        """Algorithm 1; also returns how many merges survive next."""
        ids, ranks, rank_of = list(word.characters), list(word.ranks), self._ranks.get
        while (best := min(ranks)) != _NONE:
            at = ranks.index(best)
            if survivors:
                survivors -= 1
            else:
                possible = sorted((rank, at) for at, rank in enumerate(ranks) if rank != _NONE)
                chosen = 0
                while not survivors and chosen < len(possible):
                    survivors = next(more)
                    chosen += 1
                if chosen == len(possible):
                    break
                survivors -= 1
                best, at = possible[chosen]
            ids[at : at + 2] = [self._merge[best]]
            del ranks[at]
            if at:
                ranks[at - 1] = rank_of((ids[at - 1], ids[at]), _NONE)
            if at + 1 < len(ids):
                ranks[at] = rank_of((ids[at], ids[at + 1]), _NONE)
        return ids, survivors

    def _words(self, segment: tuple[int, ...]) -> list[_Word]:
        """The words of a segment; no piece spans two of them."""
        if len(self._segments) >= _MOST_SEGMENTS:
            self._segments.clear()
        spelt = "".join(self._tokens[number] for number in segment)
        words, at = [], 0
        for text, _ in self._pre_tokenizer.pre_tokenize_str(self._decoder.decode([spelt])):
            characters = tuple(self._character.get(sign, -1) for sign in spelt[at : at + len(text)])
            ranks = (*(self._ranks.get(pair, _NONE) for pair in pairwise(characters)), _NONE)
            pieces, _ = self._cut(_Word(characters, (), ranks), len(characters), iter(()))
            words.append(_Word(characters, tuple(pieces), ranks))
            at += len(text)
        if tuple(chain.from_iterable(word.pieces for word in words)) != segment:  # BPE would not have cut it this way
            words = [_Word(segment, segment, ())]
        self._segments[segment] = words
        return words
