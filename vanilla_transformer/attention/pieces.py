"""From a tokenizer's pieces to units that people read: characters, words, and attention between words."""

from collections.abc import Iterator, Sequence

import torch
from tokenizers import pre_tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..data.scripts import is_mark, is_unspaced
from ..data.tokenizer import CONTINUATION


_BROKEN = "�"  # bytes that form no character decode to this
_LONGEST_CHAIN = 8  # pieces that may share characters: four bytes each, and a piece may end inside the next character
_BLANK = "␣"


def piece_labels(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """A readable label for every piece of a text.

    A piece is shown as its text without blanks, and one with only blanks as `␣`. Pieces that make characters only
    together (a byte vocabulary spells a rare one with up to four) are shown as these characters and counted:
    `日 1/3`, `日 2/3`, `日 3/3`. Bytes that do not make a character are written in hexadecimal: `<E6>`.
    """
    labels: list[str] = []
    for text, length in _characters(tokenizer, ids):
        if text is None:
            labels.append(_in_hexadecimal(tokenizer.convert_ids_to_tokens(ids[len(labels)])))
        else:
            text = "".join(text.split()) or _BLANK
            labels += [text] if length == 1 else [f"{text} {i}/{length}" for i in range(1, length + 1)]
    return labels


def _characters(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> Iterator[tuple[str | None, int]]:
    """The shortest runs of pieces that make whole characters: their text, None if they make none, and their number."""
    start = 0
    while start < len(ids):
        found: tuple[str | None, int] = (None, 1)
        for length in range(1, min(_LONGEST_CHAIN, len(ids) - start) + 1):
            text = tokenizer.decode(ids[start : start + length])
            if _BROKEN not in text:
                found = (text, length)
                break
        yield found
        start += found[1]


def _in_hexadecimal(piece: str) -> str:
    """`<E6 97>` for a piece spelt in the characters of byte-level vocabularies; other pieces are readable."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())  # printable bytes, then characters from 256 on for the rest
    rest = iter(sorted(set(range(256)) - {ord(character) for character in alphabet}))
    spelt = piece.removeprefix(CONTINUATION)
    byte_of = {character: ord(character) if ord(character) < 256 else next(rest) for character in alphabet}
    if not all(character in byte_of for character in spelt):
        return piece
    return f"<{' '.join(f'{byte_of[character]:02X}' for character in spelt)}>"


def words(tokenizer: PreTrainedTokenizerBase, encoded: BatchEncoding, row: int) -> list[tuple[str, list[int]]]:
    """The words of a text of a batch, with punctuation marks separate, each with the places of its pieces.

    In scripts without spaces between words, pieces that begin with a letter are words.
    """
    ids, found = encoded.input_ids[row], []
    places_of: dict[int, list[int]] = {}
    for place, number in enumerate(encoded.word_ids(row) if tokenizer.is_fast else _word_numbers(tokenizer, ids)):
        if number is not None:
            places_of.setdefault(number, []).append(place)
    for places in places_of.values():
        for part in _parts(tokenizer, ids, places):
            if text := "".join(tokenizer.decode([ids[place] for place in part]).split()):
                found.append((text, part))
    return found


def _word_numbers(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[int | None]:
    """For each piece of sentencepiece, which marks where words begin, its word's number; None for special tokens."""
    numbers: list[int | None] = []
    number = -1
    for token, i in zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True):
        special = i in tokenizer.all_special_ids
        if not special and (token.startswith("▁") or not numbers):
            number += 1
        numbers.append(None if special else number)
    return numbers


def _parts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], places: list[int]) -> list[list[int]]:
    """A word's places; in a text without spaces, cut where a piece begins with a letter."""
    own = [ids[place] for place in places]
    if not is_unspaced(tokenizer.decode(own)):
        return [places]
    parts: list[list[int]] = [[]]
    start, blank = 0, True  # so far the part is empty, or has only the blank in front
    for text, length in _characters(tokenizer, own):
        text = None if text is None else text.strip()
        if not (blank or text is None or is_mark(text[:1])):
            parts.append([])
        parts[-1] += places[start : start + length]
        start, blank = start + length, blank and text == ""
    return parts


def merged(weights: torch.Tensor, rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]]) -> torch.Tensor:
    """Attention between words, from the attention between their pieces.

    A word's attention to another is summed over the other's pieces and averaged over its own, so that what sums to 1
    over pieces also sums to 1 over words.

    Args:
        weights: (..., queries, keys) between pieces.
        rows, columns: For each word that looks, and for each that is looked at, the places of its pieces.

    Returns:
        (..., words that look, words that are looked at)
    """
    by_key = torch.stack([weights[..., list(places)].sum(dim=-1) for places in columns], dim=-1)
    return torch.stack([by_key[..., list(places), :].mean(dim=-2) for places in rows], dim=-2)
