"""Lines on their way in: in blocks, as they come, in pieces, in batches."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from queue import Empty, Queue
from threading import Thread


def in_blocks(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of `size` lines; the last may be shorter."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def as_they_come(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of the lines that have arrived, up to `size`: a line is never held back for the next one.

    Raises:
        Exception: What reading `lines` raised, after the lines before it.
    """
    arrived: Queue = Queue(maxsize=2 * size)
    over = object()

    def read():
        try:
            for line in lines:
                arrived.put(line)
        except Exception as error:
            arrived.put(error)
        arrived.put(over)

    Thread(target=read, daemon=True).start()
    last = None
    while last is None:
        block, waiting = [], arrived.get()
        while isinstance(waiting, str):
            block.append(waiting)
            try:
                waiting = arrived.get_nowait() if len(block) < size else None
            except Empty:
                waiting = None
        last = waiting
        if block:
            yield block
    if last is not over:
        raise last


def in_pieces(text: str, tokens_of: Callable[[str], int], longest: int) -> list[str]:
    """A text that has more than `longest` tokens, in pieces that do not.

    It is halved as long as need be: behind the end of a sentence if there is one in its middle half, else at a space
    there, else in the middle. Spaces between pieces are left out.

    Args:
        text: A line.
        tokens_of: How many tokens a text has.
        longest: Tokens of a piece, at most; at least 1. (A single character stays one piece.)
    """
    if len(text) < 2 or tokens_of(text) <= longest:
        return [text]
    middle = len(text) // 2
    for boundary in (r"[.!?…。！？][\"'”“»)\]]*\s+|(?<=[。！？])", r"\s+"):
        ends = [found.end() for found in re.finditer(boundary, text) if middle / 2 < found.end() < 3 * middle / 2]
        if ends:
            middle = min(ends, key=lambda end: abs(end - len(text) // 2))
            break
    halves = [half for half in (text[:middle].strip(), text[middle:].strip()) if half]
    return [piece for half in halves for piece in in_pieces(half, tokens_of, longest)]


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """A function that splits a text of a language into its sentences.

    Args:
        language: Its ISO 639-1 code, say "en".

    Raises:
        ImportError: `sentencex` is not installed.
    """
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError('Splitting sentences needs sentencex: pip install "vanilla-transformer[split]"') from error
    return lambda text: [sentence.strip() for sentence in segment(language, text) if sentence.strip()] or [text]


def batches_by_length(chosen: Iterable[int], lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Puts what is chosen together by length, longest first: memory runs out early or never.

    Args:
        chosen: Numbers of texts.
        lengths: The length of every text, in tokens.
        batch_tokens: Padded tokens of a batch, at most; a longer text is a batch of its own.

    Raises:
        ValueError: A batch is to have no tokens.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be 1 or more, not {batch_tokens}.")
    batch: list[int] = []
    for i in sorted(chosen, key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
