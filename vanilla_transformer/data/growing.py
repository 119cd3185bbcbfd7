"""Grows a byte-pair vocabulary by pieces that new text needs: learning merges resumes where it ended.

The new merges rank after all old ones. So every text is first cut as before, and only then are its pieces joined into
new ones: text without a new piece keeps its ids.
"""

import heapq
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path

from tokenizers import Tokenizer


logger = logging.getLogger(__name__)

AUTO = "auto"
# A new piece has a row of numbers to learn, so `auto` makes no piece that occurs less often than this.
FEWEST_OF_AUTO = 100


def check_growth(growth: int | str) -> None:
    """Raises ValueError for anything but a number of pieces or `auto`."""
    if growth != AUTO and (isinstance(growth, str) or growth < 0):
        raise ValueError(f"grow_vocabulary is {growth!r}; choose a number of pieces, {AUTO!r}, or 0 for none")


def check_can_grow(tokenizer: Tokenizer) -> None:
    """Raises ValueError if the vocabulary is not one of byte-pair encoding."""
    kind = type(tokenizer.model).__name__
    if kind != "BPE":
        raise ValueError(
            f"The vocabulary is of the kind {kind}, in which new pieces would split old words differently. "
            "Only one of byte-pair encoding can grow: set grow_vocabulary to 0."
        )


def grow_tokenizer(folder: str | PathLike[str], texts: Iterable[str], growth: int | str) -> list[str]:
    """Adds pieces to the tokenizer saved in a folder, after all its old ones, and returns them.

    Again and again, the most frequent pair of neighbours a and b in the new text is merged. A pair is skipped if the
    vocabulary already has the piece ab: old merges could build on it, and would then split old text differently.

    Args:
        folder: Where `save_pretrained` has saved it; its `tokenizer.json` is replaced.
        texts: The new text, source and target alike; read once.
        growth: Maximum number of pieces; or `auto`: all that occur at least 100 times, at most as many as it has.

    Raises:
        ValueError: The vocabulary is not one of byte-pair encoding.
    """
    check_growth(growth)
    path = Path(folder) / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    model = content["model"]
    tokenizer = Tokenizer.from_file(str(path))
    check_can_grow(tokenizer)
    counts = _counted_words(tokenizer, texts)
    words = [[token.id for token in tokenizer.model.tokenize(word)] for word in counts]
    names = {number: piece for piece, number in tokenizer.get_vocab().items()}
    most, fewest = (len(names), FEWEST_OF_AUTO) if growth == AUTO else (growth, 2)
    for added in content["added_tokens"]:  # tags come after the pieces, and keep their ids: new pieces come after them
        model["vocab"].setdefault(added["content"], added["id"])
    pieces = []
    for first, second in _more_merges(words, list(counts.values()), names, most, fewest):
        pieces.append(names[first] + names[second])
        model["vocab"][pieces[-1]] = len(model["vocab"])
        model["merges"].append([names[first], names[second]])
    Tokenizer.from_str(json.dumps(content)).save(str(path))
    logger.info("The vocabulary has grown by %s pieces.", f"{len(pieces):,}")
    return pieces


def parts_of(old: Tokenizer, pieces: Sequence[str]) -> list[list[int]]:
    """The ids of the old vocabulary's pieces that make up each new one."""
    return [[token.id for token in old.model.tokenize(piece)] for piece in pieces]


def _counted_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """The words of the texts as the tokenizer cuts and spells them, counted."""
    words: Counter[str] = Counter()
    for text in texts:
        normalized = tokenizer.normalizer.normalize_str(text)
        words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized))
    return words


def _more_merges(
    words: list[list[int]], counts: Sequence[int], names: dict[int, str], most: int, fewest: int
) -> Iterator[tuple[int, int]]:
    """Merges the most frequent pair of neighbours again and again (Sennrich et al. 2016); the lower ids win ties.

    Args:
        words: Different words as ids; changed in place.
        counts: How often each occurs.
        names: The pieces by their ids, without gaps; the new ones are added.
        most: How many merges.
        fewest: How often a pair must occur.
    """
    known, found = set(names.values()), Counter()
    places = defaultdict(set)  # by pair: the words that have it, or had it
    for number, (word, count) in enumerate(zip(words, counts, strict=True)):
        for pair in pairwise(word):
            found[pair] += count
            places[pair].add(number)
    waiting = [(-count, pair) for pair, count in found.items()]
    heapq.heapify(waiting)
    while waiting and most:
        count, pair = heapq.heappop(waiting)
        piece = names[pair[0]] + names[pair[1]]
        if -count != found[pair] or piece in known:  # the count has changed since, and the pair waits with the new one
            continue
        if -count < fewest:
            return
        new = len(names)
        names[new] = piece
        known.add(piece)
        yield pair
        most -= 1
        changed = set()
        for number in places.pop(pair):
            before, words[number] = words[number], _merged(words[number], pair, new)
            for each in pairwise(before):
                found[each] -= counts[number]
                changed.add(each)
            for each in pairwise(words[number]):
                found[each] += counts[number]
                places[each].add(number)
                changed.add(each)
        for each in changed:
            heapq.heappush(waiting, (-found[each], each))


def _merged(word: Sequence[int], pair: tuple[int, int], new: int) -> list[int]:
    """The word with every occurrence of the pair, from the left, merged into one piece."""
    merged: list[int] = []
    place = 0
    while place < len(word):
        together = tuple(word[place : place + 2]) == pair
        merged.append(new if together else word[place])
        place += 1 + together
    return merged
