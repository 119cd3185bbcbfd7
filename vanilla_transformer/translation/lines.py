"""Lines on their way in: in blocks, as they come, in pieces, in batches, and with words that a model cannot know."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import Empty, Queue
from threading import Thread

from transformers import PreTrainedTokenizerFast

from ..data.scripts import is_mark


logger = logging.getLogger(__name__)

MOST_LINES, MOST_WORDS, LONGEST = 20, 8, 40  # named in warnings: lines, words of a line, characters of a word


def in_blocks(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of `size` lines; the last may be shorter."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def as_they_come(lines: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    """Lists of the lines that have arrived, up to `size`: a line never waits for the next one.

    Raises:
        Exception: An error from reading `lines`, raised after the lines before it.
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


class Pieces:
    """Cuts lines into the pieces that are translated, and counts the lines.

    Args:
        tokenizer: The model's tokenizer.
        split: Language whose sentences are translated one by one, say "en"; None: lines are not split.
        longest: Tokens of a piece, `</s>` included. A longer sentence is cut, with a warning. None: any number.

    Raises:
        ImportError: Lines are to be split, and `sentencex` is not installed.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, split: str | None, longest: int | None):
        self.tokenizer, self.split, self.longest, self.lines = tokenizer, split, longest, 0
        if split:
            try:
                from sentencex import segment
            except ImportError as error:
                message = 'Splitting sentences needs sentencex: pip install "vanilla-transformer[split]"'
                raise ImportError(message) from error
            self._segment = segment

    def __call__(self, line: str) -> list[str]:
        """The pieces of the next line, without white space around them, as in training; a blank line is one piece."""
        self.lines += 1
        if not line.strip():
            return [line]
        sentences = [line.strip()]
        if self.split:
            sentences = [each.strip() for each in self._segment(self.split, line) if each.strip()] or sentences
        return sentences if self.longest is None else [piece for each in sentences for piece in self._short(each)]

    def _short(self, sentence: str) -> list[str]:
        if self._most_tokens(sentence) <= self.longest:
            return [sentence]
        pieces = in_pieces(sentence, self._tokens_of, self.longest)
        if len(pieces) > 1:
            tokens = self._tokens_of(sentence)
            logger.warning(
                f"Line {self.lines:,} has {tokens:,} tokens at a stretch, more than {self.longest:,}: "
                f"translated in {len(pieces)} pieces."
            )
        return pieces

    def _most_tokens(self, text: str) -> int:
        """A quick upper limit: a token is a byte or more of the normalized text, which may be longer than the text."""
        normalizer = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "normalizer", None)
        return 2 + len((text if normalizer is None else normalizer.normalize_str(text)).encode())

    def _tokens_of(self, text: str) -> int:
        return len(self.tokenizer(text).input_ids)


def in_pieces(text: str, tokens_of: Callable[[str], int], longest: int) -> list[str]:
    """Cuts a text of more than `longest` tokens into pieces that have no more.

    It is halved until it fits: at the end of a sentence if there is one in its middle half, else at a space or at a
    comma that needs no space, else in the middle, but not in front of a combining mark. Spaces between pieces are left
    out.

    Args:
        text: A line.
        tokens_of: How many tokens a text has.
        longest: Tokens of a piece, 1 or more. (A single character stays one piece.)
    """
    if len(text) < 2 or tokens_of(text) <= longest:
        return [text]
    middle = len(text) // 2
    for boundary in (r"[.!?…。！？؟۔।॥။።][\"'”“»)\]]*\s+|(?<=[。！？])", r"\s+|(?<=[、，])"):
        ends = [found.end() for found in re.finditer(boundary, text) if middle / 2 < found.end() < 3 * middle / 2]
        if ends:
            middle = min(ends, key=lambda end: abs(end - len(text) // 2))
            break
    else:
        middle = min(range(1, len(text)), key=lambda end: (is_mark(text[end]), abs(end - middle)))
    halves = [half for half in (text[:middle].strip(), text[middle:].strip()) if half]
    return [piece for half in halves for piece in in_pieces(half, tokens_of, longest)]


def batches_by_length(chosen: Iterable[int], lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of the chosen texts, of similar length, longest first: memory runs out early or never.

    Args:
        chosen: Numbers of texts.
        lengths: The length of every text, in tokens.
        batch_tokens: Padded tokens of a batch, at most; a longer text is a batch of its own.
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


def one_line(text: str) -> str:
    """A text, which may have line ends, as a line of a file."""
    return " ".join(re.split(r"[\r\n]+", text))


class UnknownWordsWarnings:
    """Warns of the first lines in which `unknown` finds words, as [`UnknownWords`] does; it only counts the others."""

    def __init__(self, unknown: Callable[[str], list[str]]):
        self.unknown = unknown
        self.lines = self.with_unknown = 0

    def look_at(self, line: str, read_as: Mapping[str, str] | None = None) -> None:
        """Warns of the next line if it has such words, or words that a [`Spelling`] has `read_as` others."""
        self.lines += 1
        read_as = read_as or {}
        words = list(dict.fromkeys([*self.unknown(line), *read_as]))
        if not words:
            return
        self.with_unknown += 1
        if self.with_unknown <= MOST_LINES:
            more = f" and {len(words) - MOST_WORDS:,} more" if len(words) > MOST_WORDS else ""
            named = ", ".join(
                _quoted(word) + (f" (read as {_quoted(read_as[word])})" if word in read_as else "")
                for word in words[:MOST_WORDS]
            )
            logger.warning(
                f"Line {self.lines:,}: the model has not learned {named}{more}: the translation may be wrong."
            )
        if self.with_unknown == MOST_LINES:
            logger.warning("Further lines with words that the model has not learned are only counted.")

    def sum_up(self) -> None:
        """Says how many lines had such words, if not all were named."""
        if self.with_unknown > MOST_LINES:
            logger.warning(
                f"{self.with_unknown:,} of {self.lines:,} lines have words that the model has not learned: their "
                "translations may be wrong."
            )


def _quoted(word: str) -> str:
    word = word if len(word) <= LONGEST else f"{word[:LONGEST]}…"
    return f'"{word}"' if word.isprintable() else ascii(word)  # otherwise it could control the terminal
