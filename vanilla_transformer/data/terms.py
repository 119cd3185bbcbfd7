"""Soft terms: a source says how to translate some of its words, and a model learns to follow that.

    The <src> dog <trg> Hund <done> runs.    ->    Der Hund rennt.

Source and translation stand side by side after markers, which are tokens of their own (OpusTrainer's tags, Bogoychev et
al. 2023, https://arxiv.org/abs/2311.14838; the idea is that of Dinu et al. 2019, https://aclanthology.org/P19-1294).

    training text -> word alignment -> lexicon of word pairs, a file beside the vocabulary
    pair of ids -> words of the lexicon that stand on both sides -> some of them annotated -> ids

With a lexicon, not every pair has to be aligned. It needs little memory: streams, prepared corpora and several
processes use the same one. The draws depend on the place of a pair, so there is no state to save.

If annotations always gave what the model would have written anyway, the model could ignore them. So in a share of them
another word replaces the translation, on the target side too: a word of the lexicon, the halves of two, or the source's
own word. (OpusTrainer's `replace` takes random characters.)
"""

import gzip
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..files import text_lines
from .context import SEPARATOR, texts_in_context
from .encoding import encode_pairs, is_within
from .languages import tags_in_front
from .scripts import WORD, is_unspaced
from .tokenizer import as_read_by, ids_of_tags
from .word_aligner import align_corpus, parts_to_align


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TERM_MARKERS = ("<src>", "<trg>", "<done>")
"""The tokens before a term, between it and its translation, and after that."""
TERMS = "terms"  # what a recipe calls their share, beside the shares of forms
TERM_LEXICON = "term_lexicon.tsv.gz"

MOST_PAIRS = 200_000  # from the beginning of the text; the lexicon is learned from them
_LEAST_LINKS, _LEAST_SHARE = 2, 0.05  # least number, and least share of the links of either word

_PURPOSE = 2311_14839  # first number of every key, so that nothing else draws from the same key
_MOST_TERMS = 3  # per pair; one, two or three are equally likely
_LONGER = 0.3  # probability that a term takes in the next word
_REPLACED = 0.3  # share of the terms that get another word as their translation


def knows_soft_terms(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the tokenizer has `TERM_MARKERS`, so that its model has learned soft terms."""
    return tokenizer.get_added_vocab().keys() >= set(TERM_MARKERS)


def marker_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The ids of `TERM_MARKERS`. Raises ValueError if the tokenizer's model has not learned soft terms."""
    if not knows_soft_terms(tokenizer):
        raise ValueError(
            f"The vocabulary has no {', '.join(TERM_MARKERS)}, so the model knows no soft terms: train one, vocabulary "
            "and all, with training.augmentation: {terms: 0.1} in its recipe, or use hard terms."
        )
    added = tokenizer.get_added_vocab()
    return [added[marker] for marker in TERM_MARKERS]


def annotated_ids(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[tuple[str, Sequence[tuple[int, int, str]]]]
) -> list[list[int]]:
    """Token ids of texts with annotated terms, `</s>` at the end. Outside of annotations they are those of the text.

    Args:
        tokenizer: The tokenizer of a model that knows soft terms.
        texts: Each a text and its terms in order: the characters where a term begins and ends, and its translation.

    Raises:
        ValueError: The tokenizer has no markers.
    """
    src, trg, done = marker_ids(tokenizer)
    front = tokenizer("").input_ids[:-1]  # a tag of the target language, or none
    parts: list[list[str | int]] = []
    for text, terms in texts:
        spaced, at, found = f" {text}", 0, list(front)  # the tokenizer also puts a blank in front
        for start, end, target in terms:
            begin = start + (spaced[start] != " ")  # a word and the blank before it are one piece
            blank = "" if is_unspaced(target[:1]) else " "
            found += [spaced[at:begin], src, spaced[begin : end + 1], trg, blank + target, done]
            at = end + 1
        parts.append([*found, spaced[at:], tokenizer.eos_token_id])
    pieces = list(dict.fromkeys(part for found in parts for part in found if part and isinstance(part, str)))
    ids_of = {"": [], **_ids_of_pieces(tokenizer, pieces)}
    return [[i for part in found for i in (ids_of[part] if isinstance(part, str) else [part])] for found in parts]


def _ids_of_pieces(tokenizer: "PreTrainedTokenizerBase", pieces: Sequence[str]) -> dict[str, list[int]]:
    """Ids of pieces of text, each with the blank in front of it if it has one.

    Without a blank, a sign is put in front and its ids are taken away again; the sign must not become part of the word.
    Where no sign works, there is a blank after all.
    """
    found: dict[str, list[int]] = {}
    ways = (("", lambda piece: piece[0] == " "), (">", lambda piece: piece[0].isalnum()))
    for sign, fits in (*ways, ("x", bool), (">", bool), ("", bool)):
        if todo := [piece for piece in pieces if piece not in found and fits(piece)]:
            texts = [sign, *(sign + piece if sign else piece.removeprefix(" ") for piece in todo)]
            front, *ids = tokenizer(texts, add_special_tokens=False).input_ids
            size = len(front) if sign else 0
            found |= {piece: each[size:] for piece, each in zip(todo, ids, strict=True) if each[:size] == front[:size]}
    return found


# ---------------------------------------------------------------------------------------------------------- lexicon


@dataclass(frozen=True)
class TermLexicon:
    """Pairs of words that are aligned with each other in a training text.

    Attributes:
        links: How often each pair of a source word, in small letters, and a target word, as it is usually written, is
            aligned.
    """

    links: Mapping[tuple[str, str], int]

    @cached_property
    def targets(self) -> dict[str, dict[str, int]]:
        """The target words of each source word, all in small letters, with their links."""
        found: dict[str, dict[str, int]] = {}
        for (source, target), links in self.links.items():
            found.setdefault(source, {})[target.lower()] = links
        return found

    @cached_property
    def target_words(self) -> list[str]:
        """All target words, each once, in an order that depends on them alone."""
        return sorted({target for _, target in self.links})

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the lexicon."""
        return hashlib.sha256(self._content()).hexdigest()

    def _content(self) -> bytes:
        return "".join(f"{source}\t{target}\t{n}\n" for (source, target), n in sorted(self.links.items())).encode()

    def save(self, folder: str | PathLike[str]) -> None:
        """Writes the lexicon into a folder; the same text gives the same bytes."""
        (Path(folder) / TERM_LEXICON).write_bytes(gzip.compress(self._content(), mtime=0))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "TermLexicon":
        """Reads a folder's lexicon. Raises FileNotFoundError if there is none, and ValueError if it is damaged."""
        path = Path(folder) / TERM_LEXICON
        try:
            rows = [line.split("\t") for line in text_lines(path)]
            return cls({(source, target): int(links) for source, target, links in rows})
        except (ValueError, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is not a lexicon of terms ({error}): restore it.") from error


def learn_lexicon(pairs: Iterable[tuple[str, ...]], as_read: Callable[[str], str] = str) -> TermLexicon:
    """The lexicon of a training text, from the alignment of the words of its first 200,000 pairs.

    It has every pair of words that is aligned at least twice, and in at least 5 % of the links of either word.

    Args:
        pairs: Source and target of each; read up to the 200,000th.
        as_read: How the tokenizer reads a text (`as_read_by`): a word may have apostrophes.

    Raises:
        ValueError: There is no such pair of words.
    """
    counts: Counter[tuple[str, str]] = Counter()
    spellings: dict[str, Counter[str]] = {}
    for some in parts_to_align(islice(pairs, MOST_PAIRS), lambda text: WORD.findall(as_read(text))):
        lower = [[[word.lower() for word in text] for text in side] for side in zip(*some, strict=True)]
        for (_, target), *words, links in zip(some, *lower, align_corpus(*lower), strict=True):
            for i, j in links:
                pair = words[0][i], words[1][j]
                if all(any(map(str.isalnum, word)) for word in pair):
                    counts[pair] += 1
                    spellings.setdefault(pair[1], Counter())[target[j]] += 1
    totals: list[Counter[str]] = [Counter(), Counter()]
    for pair, links in counts.items():
        for total, word in zip(totals, pair, strict=True):
            total[word] += links
    spelling = {word: min(each, key=lambda text: (-each[text], text)) for word, each in spellings.items()}
    kept = {
        (pair[0], spelling[pair[1]]): links
        for pair, links in sorted(counts.items())
        if links >= _LEAST_LINKS
        and all(links >= _LEAST_SHARE * total[word] for total, word in zip(totals, pair, strict=True))
    }
    if not kept:
        raise ValueError("No words of the training text are aligned with each other: leave augmentation.terms out.")
    return TermLexicon(kept)


# ------------------------------------------------------------------------------------------------------- annotation


class DrawnTerm(NamedTuple):
    """A term to annotate, by the characters where it begins and ends, and those of the target that it replaces."""

    start: int
    end: int
    translation: str
    target_start: int
    target_end: int


class TermAnnotation:
    """Annotates terms in a share of the pairs of ids; a tag in front of a source stays.

    An annotated pair has one to three terms: words that occur once in the source, with a translation of the lexicon
    that occurs once in the target, or several neighbours whose translations are neighbours. Rare words are more
    likely: one with n links has the weight n^-0.5.

    Args:
        tokenizer: The tokenizer that made the ids; it has the markers.
        lexicon: The lexicon of the training text.
        share: Share of the pairs that are annotated, if they have words of the lexicon.
        max_source_length, max_target_length: A pair stays as it is if a side would have more tokens than this; None: no
            limit.

    Raises:
        ValueError: The tokenizer has no markers.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        lexicon: TermLexicon,
        share: float,
        *,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
    ):
        marker_ids(tokenizer)  # checks that it has them
        self.tokenizer, self.lexicon, self.share = tokenizer, lexicon, share
        self.limits = (max_source_length, max_target_length)
        self._tags, self._as_read = ids_of_tags(tokenizer), as_read_by(tokenizer)
        self._separator = tokenizer.get_added_vocab().get(SEPARATOR)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that determine the resulting ids."""
        identity = {"share": self.share, "lexicon": self.lexicon.fingerprint}
        return {TERMS: identity if self._as_read is str else {**identity, "apostrophes": "letters"}}

    def __call__(self, pairs: Sequence[Mapping[str, Sequence[int]]], key: tuple[int, ...]) -> list[dict]:
        """The pairs, some of them with annotated sources; the same for the same pairs and key.

        Args:
            pairs: Each has `input_ids` and `labels`, ids as the tokenizer gives them.
            key: Whole numbers, 0 or more, that no other pairs have.
        """
        generator = np.random.default_rng((_PURPOSE, *key))
        [chosen] = np.nonzero(generator.random(len(pairs)) < self.share)
        seeds = generator.integers(2**63, size=len(pairs)).tolist()
        found = [{"input_ids": pair["input_ids"], "labels": pair["labels"]} for pair in pairs]
        texts = [
            texts_in_context(self.tokenizer, [pairs[i][side] for i in chosen])[0] for side in ("input_ids", "labels")
        ]
        annotated = {}
        for i, source, target in zip(chosen, *texts, strict=True):
            source, target = source.strip(), target.strip()
            if terms := self.terms_of(source, target, Random(seeds[i])):
                annotations = [(term.start, term.end, term.translation) for term in terms]
                annotated[i] = (source, annotations), (source, _with(target, terms))
        sources = annotated_ids(self.tokenizer, [each for each, _ in annotated.values()])
        _, targets, _ = encode_pairs(self.tokenizer, [each for _, each in annotated.values()])
        for i, source, target in zip(annotated, sources, targets, strict=True):
            before = list(map(int, pairs[i]["input_ids"]))
            tags = tags_in_front(before, self._tags)
            if self._separator in before:  # with the context; tags stand in front of that
                tags = before[: len(before) - before[::-1].index(self._separator)]
            pair = {"input_ids": [*tags, *source], "labels": target.tolist()}
            if is_within(pair, *self.limits):
                found[i] = pair
        return found

    def terms_of(self, source: str, target: str, generator: Random) -> list[DrawnTerm]:
        """Terms of a pair of texts in their order."""
        words = [list(WORD.finditer(self._as_read(text))) for text in (source, target)]  # as long as before
        lower = [[word.group().lower() for word in side] for side in words]
        links = self._links(*lower)
        frequency = {i: sum(self.lexicon.targets[lower[0][i]].values()) for i in links}
        # Exponential variates with the weights as rates: their order is a draw without replacement.
        order = sorted(links, key=lambda i: -math.log(1 - generator.random()) * frequency[i] ** 0.5)
        wanted, chosen = 1 + int(_MOST_TERMS * generator.random()), []
        for i in order:
            end, j, last = i + 1, links[i], links[i]
            while generator.random() < _LONGER and links.get(end) in (last, last + 1):
                last, end = links[end], end + 1
            apart = all(
                (end <= other or other_end <= i) and (last < other_j or other_last < j)
                for other, other_end, other_j, other_last in chosen
            )  # from the words of other terms, on either side
            if apart and len(chosen) < wanted:
                chosen.append((i, end, j, last))
        found = []
        for i, end, j, last in sorted(chosen):
            start, stop = words[0][i].start(), words[0][end - 1].end()
            begin, behind = words[1][j].start(), words[1][last].end()
            said = target[begin:behind]
            if generator.random() < _REPLACED:
                said = self._another(source[start:stop], generator)
                said = said[0].upper() + said[1:] if begin == 0 else said
            found.append(DrawnTerm(start, stop, said, begin, behind))
        return found

    def _links(self, source: Sequence[str], target: Sequence[str]) -> dict[int, int]:
        """For source words that occur once: the target word, occurring once, that they are most often aligned with."""
        once = [{word: i for i, word in enumerate(side) if side.count(word) == 1} for side in (source, target)]
        found = {}
        for word, i in once[0].items():
            there = [(n, other) for other, n in self.lexicon.targets.get(word, {}).items() if other in once[1]]
            if there:
                found[i] = once[1][max(there)[1]]
        return found

    def _another(self, source: str, generator: Random) -> str:
        """A replacement for a translation."""
        words = self.lexicon.target_words
        first, second = (words[int(generator.random() * len(words))] for _ in range(2))
        return (source, first, first[: (len(first) + 1) // 2] + second[len(second) // 2 :])[int(3 * generator.random())]


def _with(target: str, terms: Sequence[DrawnTerm]) -> str:
    """A target with the translations of its terms in their places."""
    for term in sorted(terms, key=lambda term: -term.target_start):
        target = target[: term.target_start] + term.translation + target[term.target_end :]
    return target
