"""The words of a training text, kept with its vocabulary: `translate` warns of words that it did not have.

Any text can be spelt in pieces, so a model translates every word, but a word that it has never read mostly becomes
nonsense. The list is made while the vocabulary is learned from the same text: a packed file of sorted lines, each with
a word, a tab, and how often the word occurred.
"""

import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase

from .scripts import WORD, is_unspaced
from .tokenizer import CONTINUATION


KNOWN_WORDS = "known_words.txt.gz"
# No list is kept for a text with more different strings between blanks: its model has learned to compose new words.
MOST_WORDS = 1_000_000
MOST_BYTES = 64_000_000  # unpacked; a list may come from strangers
RARE = 10  # a word that occurs less often is rare
_NUMBER = "0"  # stands for all numbers, which are spelt in digits


class WordList:
    """Counts the strings between blanks of the texts read so far. With more than `most`, no list is kept."""

    def __init__(self, most: int = MOST_WORDS):
        self.most = most
        self.strings: Counter[str] | None = Counter()
        self.known: Mapping[str, int] = {}  # words of an earlier list, cut already

    def read(self, text: str) -> None:
        """Adds a text."""
        if self.strings is not None:
            self.strings.update(text.split())
            if len(self.strings) > self.most:
                self.strings = None

    def reading(self, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
        """The texts of the pairs, source and target in turn; adds the sources."""
        for source, target in pairs:
            self.read(source)
            yield source
            yield target

    def save(self, folder: str | PathLike[str], tokenizer: PreTrainedTokenizerBase) -> None:
        """Writes the words, as the tokenizer cuts them, into a folder; nothing if there were too many.

        The same text gives the same bytes, in whatever order it was read.
        """
        if self.strings is None:
            return
        counts = Counter(self.known)
        for string, count in self.strings.items():
            for word in words_of(tokenizer, string):
                counts[word] += count
        words = sorted(counts.items())
        content = "".join(f"{word}\t{count}\n" for word, count in words).encode()
        if len(content) <= MOST_BYTES:
            (Path(folder) / KNOWN_WORDS).write_bytes(gzip.compress(content, mtime=0))


def words_of(tokenizer: PreTrainedTokenizerBase, text: str) -> Iterator[str]:
    """The words and marks of a text as the tokenizer cuts and writes them. All numbers count as the same word.

    In scripts without spaces between words, each letter is a word. Otherwise everything between two punctuation marks
    in Thai or Japanese would be a new word.
    """
    for word, _, _ in cut_words(tokenizer, text)[1]:
        if not any(map(str.isalnum, word)):
            yield from word  # each mark by itself: they combine in any way
        elif is_unspaced(word):
            yield from WORD.findall(word)
        else:
            yield _NUMBER if word.isdecimal() else word


def cut_words(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[str, list[tuple[str, int, int]]]:
    """A text as the tokenizer normalizes it, and the words it is cut into, each with its begin and end."""
    backend = tokenizer.backend_tokenizer
    normalized = backend.normalizer.normalize_str(text) if backend.normalizer else text
    words = []
    for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(normalized):
        cut = normalized[start:end]
        start += len(cut) - len(cut.lstrip())
        words.append((cut.strip(), start, start + len(cut.strip())))
    return normalized, words


def load_known_words(folder: str | PathLike[str]) -> frozenset[str] | None:
    """The list in the folder of a model or tokenizer; None if there is none. Raises ValueError if it is damaged."""
    counts = load_word_counts(folder)
    return None if counts is None else frozenset(counts)


def load_word_counts(folder: str | PathLike[str]) -> dict[str, int] | None:
    """The list with how often each word came. A word without a number, as in older lists, counts as `RARE`.

    Returns None and raises errors as `load_known_words` does.
    """
    path = Path(folder) / KNOWN_WORDS
    if not path.is_file():
        return None
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} bytes")
        if not content:
            raise ValueError("it is empty")
        lines = (line.partition("\t") for line in content.decode().removesuffix("\n").split("\n"))
        return {word: int(count or RARE) for word, _, count in lines}
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a list of words ({error}): remove it.") from error


def count_words(known: frozenset[str]) -> int:
    """How many words with a letter in them a list has; `The` and `the` are one."""
    return len({word.casefold() for word in known if any(map(str.isalpha, word))})


class UnknownWords:
    """Finds the words of a line that a model cannot know: those that are not in `known`, the list of its training text.

    Without a list it finds only words that the tokenizer spells in the bytes of a character, or not at all.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, known: Collection[str] | None):
        self.tokenizer, self.known = tokenizer, known
        self.odd = {tokenizer.unk_token_id} | (_byte_ids(tokenizer) if tokenizer.is_fast else set())

    def __call__(self, line: str) -> list[str]:
        """The words in order, each once; in scripts without spaces, runs of unknown letters."""
        if self.known is not None:
            found, joins = [], False
            for word in words_of(self.tokenizer, line):
                if word in self.known:
                    joins = False
                elif joins and is_unspaced(word):
                    found[-1] += word
                else:
                    found.append(word)
                    joins = is_unspaced(word)
            return list(dict.fromkeys(found))
        if not self._is_odd(line):
            return []
        return [word for word in dict.fromkeys(line.split()) if self._is_odd(word)]

    def _is_odd(self, text: str) -> bool:
        return not self.odd.isdisjoint(self.tokenizer(text, add_special_tokens=False).input_ids)


def _byte_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Ids of the pieces that are single bytes, several of which make a character."""
    ascii_signs = {chr(byte) for byte in range(33, 127)} | {chr(256 + byte) for byte in range(34)}  # 0 to 32, and 127
    high = [sign for sign in pre_tokenizers.ByteLevel.alphabet() if sign not in ascii_signs]
    pieces = [f"{prefix}{sign}" for prefix in ("", CONTINUATION) for sign in high]
    vocabulary = tokenizer.get_vocab()
    return {vocabulary[piece] for piece in pieces if piece in vocabulary}
