"""From the pieces of a tokenizer to what people read: characters, words, and attention between words."""

from collections.abc import Sequence

import torch
from tokenizers import pre_tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..data.tokenizer import CONTINUATION


_BROKEN = "�"  # what bytes that are no character decode to
_LONGEST_CHAIN = 8  # pieces that may share characters: four bytes each, and pieces may end inside the next one
_BLANK = "␣"


def piece_labels(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Something to read for every piece of a text.

    A piece is shown as its text without blanks, one of nothing but blanks as `␣`. Pieces that only together make
    characters (a vocabulary of bytes spells a rare one with up to four) are shown as these and counted: `日 1/3`,
    `日 2/3`, `日 3/3`. Bytes that make no character at all are written in hexadecimal: `<E6>`.
    """
    labels: list[str] = []
    while len(labels) < len(ids):
        start = len(labels)
        for length in range(1, min(_LONGEST_CHAIN, len(ids) - start) + 1):
            text = tokenizer.decode(ids[start : start + length])
            if _BROKEN not in text:
                text = "".join(text.split()) or _BLANK
                labels += [text] if length == 1 else [f"{text} {i}/{length}" for i in range(1, length + 1)]
                break
        else:
            labels.append(_in_hexadecimal(tokenizer.convert_ids_to_tokens(ids[start])))
    return labels


def _in_hexadecimal(piece: str) -> str:
    """`<E6 97>` of a piece that is spelt in the characters of byte-level vocabularies; others can be read."""
    alphabet = sorted(
        pre_tokenizers.ByteLevel.alphabet()
    )  # printable bytes are themselves, the rest follows from 256 on
    rest = iter(sorted(set(range(256)) - {ord(character) for character in alphabet}))
    spelt = piece.removeprefix(CONTINUATION)
    byte_of = {character: ord(character) if ord(character) < 256 else next(rest) for character in alphabet}
    if not all(character in byte_of for character in spelt):
        return piece
    return f"<{' '.join(f'{byte_of[character]:02X}' for character in spelt)}>"


def words(tokenizer: PreTrainedTokenizerBase, encoded: BatchEncoding, row: int) -> list[tuple[str, list[int]]]:
    """The words of a text of a batch, punctuation marks apart, each with the places of its pieces."""
    ids, found = encoded.input_ids[row], []
    if tokenizer.is_fast:
        numbers = encoded.word_ids(row)
    else:  # sentencepiece marks where words begin
        tokens, numbers = tokenizer.convert_ids_to_tokens(ids), []
        for token, i in zip(tokens, ids, strict=True):
            begins = token.startswith("▁") or not numbers
            last = next((n for n in reversed(numbers) if n is not None), -1)
            numbers.append(None if i in tokenizer.all_special_ids else last + begins)
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        if number is not None:
            places.setdefault(number, []).append(place)
    for each in places.values():
        if word := "".join(tokenizer.decode([ids[place] for place in each]).split()):
            found.append((word, each))
    return found


def words_between_blanks(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str) -> list[list[int]]:
    """The places of the pieces of every word of a text, where words are what blanks separate.

    A piece belongs to the word that the text up to its end ends with. The special symbols at the end belong to none.

    Args:
        tokenizer: What made the pieces.
        ids: The pieces of the text.
        text: The text.

    Raises:
        ValueError: The pieces do not make as many words as the text has.
    """
    places: list[list[int]] = [[] for _ in text.split()]
    end = len(ids)
    while end and ids[end - 1] in tokenizer.all_special_ids:
        end -= 1
    for place in range(end):
        number = len(tokenizer.decode(ids[: place + 1]).split())
        if number > len(places):
            break
        if number:  # a blank before the first word is nobody's
            places[number - 1].append(place)
    if not all(places) or (end and number != len(places)):
        raise ValueError(f"the tokenizer does not keep the {len(places)} words of {text!r:.80} apart")
    return places


def merged(weights: torch.Tensor, rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]]) -> torch.Tensor:
    """Attention between words from that between their pieces.

    A word's attention on another is summed over the pieces of the other and averaged over its own, so that what sums to
    1 over pieces does so over words.

    Args:
        weights: (..., queries, keys) between pieces.
        rows: The places of the pieces of each word that looks.
        columns: The places of the pieces of each word that is looked at.

    Returns:
        (..., words that look, words that are looked at)
    """
    by_key = torch.stack([weights[..., list(places)].sum(dim=-1) for places in columns], dim=-1)
    return torch.stack([by_key[..., list(places), :].mean(dim=-2) for places in rows], dim=-2)
