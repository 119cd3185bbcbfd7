"""Constituency trees as sequences that a translator can learn to write (section 6.3; Vinyals et al. 2015).

    (TOP (S (NP (PRP I)) (VP (VBP am)) (. .)))   is   (S (NP PRP )NP (VP VBP )VP . )S
                                      with words      (S (NP I /PRP )NP (VP am /VBP )VP . /. )S

A symbol opens a constituent, closes one, or is the tag of the next word. The words themselves are left out, as in the
paper: the reader has the sentence. The outermost TOP is left out too, since every tree has it.

With words, each word stands before its tag, which begins with a slash. That is longer, but the writer need not count
words, which is hard to learn from few trees: the next word is the one after the last written one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from .trees import Tree


ROOT = "TOP"
"""The label of every tree's outermost bracket. EVALB's rules for the Wall Street Journal do not count it."""
UNKNOWN_TAG = "XX"
"""The Penn Treebank's tag for a word of unknown kind."""

_BRACKET = re.compile(r"[()][^\s()]+", re.ASCII)
_OTHER = re.compile(r"[^\s()]+", re.ASCII)
_TAG_AFTER_WORD = re.compile(r"/[^\s()]+", re.ASCII)
_LIKE_A_TAG = re.compile(r"\\*/[^\s()]+", re.ASCII)
_SPACE = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True)
class ReadTree:
    """A tree read from a sequence, with the label TOP and all words, and a line on each repair that was needed."""

    tree: Tree
    repairs: tuple[str, ...] = ()


def linearise(tree: Tree, with_words: bool = False) -> str:
    """The symbols of a tree with the label TOP, with a space between them.

    Args:
        tree: The tree.
        with_words: Whether to write the words too. A word that looks like a tag gets a backslash: `/NN` becomes
            `\\/NN`.

    Raises:
        ValueError: `read_linearised` would not give the tree back: its label is not TOP, a constituent has no label or
            no words, or a tag begins with a slash and the words are not written.
    """
    if tree.label != ROOT or tree.word is not None:
        raise ValueError(f"the outermost bracket of a tree must be {ROOT}, not {tree.label!r}, and around something")
    symbols = []
    for node, down in tree.walk():
        if not node.label or (node.word is None and not node.children):
            raise ValueError(f"a constituent without a label or without words cannot be linearised: {node}")
        if node.word is None:
            symbols.append(f"{'(' if down else ')'}{node.label}")
        elif down and with_words:
            symbols += [_written(node.word), f"/{node.label}"]
        elif down and _TAG_AFTER_WORD.fullmatch(node.label):
            raise ValueError(f"a tag that begins with a slash cannot be linearised without words: {node}")
        elif down:
            symbols.append(node.label)
    return " ".join(symbols[1:-1])


def has_words(text: str) -> bool:
    """Whether a sequence has words: then half of all symbols but brackets are tags with a slash, else none are."""
    others = [symbol for symbol in _symbols(text) if _OTHER.fullmatch(symbol)]
    # A quarter is enough, since a model may have written the sequence.
    return 0 < len(others) <= 4 * sum(map(bool, map(_TAG_AFTER_WORD.fullmatch, others)))


def read_linearised(text: str, words: Sequence[str], with_words: bool | None = None) -> ReadTree:
    """Makes a tree from any symbols and the sentence's words.

    A closing bracket also closes what is still open inside its constituent, and is dropped if nothing with its label is
    open. What is open at the end is closed. Constituents without words, and anything that is not a symbol, are dropped.

    In a sequence without words, tags beyond the last word are dropped. Words in a sequence are aligned with those of
    the sentence: a wrong one is replaced by the right one, or dropped, and a missing one is put before the next. Words
    left over go to the end of the outermost constituent. Words without a tag get XX.

    Args:
        text: The symbols, with white space between them.
        words: The words of the sentence, without spaces or brackets in them.
        with_words: Whether the sequence should have words in it; by default, whether it looks as if it has.
    """
    if with_words is None:
        with_words = has_words(text)
    reader = _Reader()
    symbols = list(reader.read(_symbols(text), with_words))
    leaves = [symbol for symbol in symbols if isinstance(symbol, _Leaf)]
    if with_words:
        places, rest = _placed_by_word(leaves, words)
    else:
        places = [(word, ()) for _, word in zip_longest(leaves, words[: len(leaves)])]
        rest = words[len(leaves) :]
    waiting = iter(places)
    for symbol in symbols:
        if isinstance(symbol, _Leaf):
            reader.add(symbol, *next(waiting))
        elif symbol.startswith("("):
            reader.open(symbol[1:])
        else:
            reader.close(symbol[1:])
    return reader.finish(rest)


def words_of(text: str) -> list[str]:
    """The words in a sequence; in one without, a stand-in for each."""
    leaves = [symbol for symbol in _Reader().read(_symbols(text), has_words(text)) if isinstance(symbol, _Leaf)]
    return [f"word{number}" if leaf.word is None else _read(leaf.word) for number, leaf in enumerate(leaves, start=1)]


def retagged(tree: Tree, tags: Iterable[str]) -> Tree:
    """The same tree with other tags, one for each word."""
    waiting = iter(tags)
    opened: list[list[Tree]] = [[]]
    for node, down in tree.walk():
        if node.word is not None:
            if down:
                opened[-1].append(Tree(next(waiting), word=node.word))
        elif down:
            opened.append([])
        else:
            children = tuple(opened.pop())
            opened[-1].append(Tree(node.label, children))
    return opened[0][0]


def _symbols(text: str) -> list[str]:
    return [symbol for symbol in _SPACE.split(text) if symbol]


def _written(word: str) -> str:
    return f"\\{word}" if _LIKE_A_TAG.fullmatch(word) else word


def _read(word: str) -> str:
    return word.removeprefix("\\") if _LIKE_A_TAG.fullmatch(word) else word


@dataclass(frozen=True)
class _Leaf:
    """A place for a word: the word and the tag that the sequence has for it, if any."""

    word: str | None
    tag: str | None


def _placed_by_word(
    leaves: Sequence[_Leaf], words: Sequence[str]
) -> tuple[list[tuple[str | None, Sequence[str]]], Sequence[str]]:
    """For each leaf, the word that it gets, if any, and those left out before it; then the words left at the end."""
    found, waiting = [], []
    matcher = SequenceMatcher(None, [leaf.word for leaf in leaves], [*map(_written, words)], autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        here = words[first:last]
        for word, _ in zip_longest(here[: end - start], range(start, end)):
            found.append((word, waiting))
            waiting = []
        waiting = [*waiting, *here[end - start :]]
    return found, waiting


class _Reader:
    """The open constituents, each a label with its children so far; the first is TOP."""

    def __init__(self):
        self.opened: list[tuple[str, list[Tree]]] = [(ROOT, [])]
        self.repairs: list[str] = []

    def read(self, symbols: Iterable[str], with_words: bool) -> Iterator[str | _Leaf]:
        """Yields brackets and leaves; anything else is dropped."""
        word = None
        for symbol in symbols:
            if with_words and _TAG_AFTER_WORD.fullmatch(symbol):
                yield _Leaf(word or "", symbol[1:])
                word = None
                continue
            if word is not None:
                yield _Leaf(word, None)
                word = None
            if _BRACKET.fullmatch(symbol):
                yield symbol
            elif not _OTHER.fullmatch(symbol) or _TAG_AFTER_WORD.fullmatch(symbol):
                self.repairs.append(f"dropped {symbol!r}, which is not a symbol")
            elif with_words:
                word = symbol
            else:
                yield _Leaf(None, symbol)
        if word is not None:
            yield _Leaf(word, None)

    def open(self, label: str) -> None:
        self.opened.append((label, []))

    def close(self, label: str) -> None:
        if label not in (name for name, _ in self.opened[1:]):
            self.repairs.append(f"dropped ){label}, which closes nothing")
            return
        while self.opened[-1][0] != label:
            self.repairs.append(f"closed ({self.opened[-1][0]} before ){label}")
            self._close_last()
        self._close_last()

    def _close_last(self) -> None:
        label, children = self.opened.pop()
        if children:
            self.opened[-1][1].append(Tree(label, tuple(children)))
        else:
            self.repairs.append(f"dropped ({label}, which has no words")

    def add(self, leaf: _Leaf, word: str | None, left_out: Sequence[str]) -> None:
        self.opened[-1][1].extend(self._without_tag(left_out))
        if word is None:
            self.repairs.append(f"dropped {leaf.word or leaf.tag}, for which there is no word")
            return
        if leaf.word is not None and leaf.word != _written(word):
            self.repairs.append(f"put the word {word!r} in the place of {leaf.word!r}")
        found = self._without_tag([word]) if leaf.tag is None else [Tree(leaf.tag, word=word)]
        self.opened[-1][1].extend(found)

    def _without_tag(self, words: Iterable[str]) -> Iterator[Tree]:
        for word in words:
            self.repairs.append(f"added the word {word!r}, which has no tag")
            yield Tree(UNKNOWN_TAG, word=word)

    def finish(self, words: Iterable[str]) -> ReadTree:
        rest = tuple(self._without_tag(words))
        while len(self.opened) > 1:
            self.repairs.append(f"closed ({self.opened[-1][0]} at the end")
            self._close_last()
        children = self.opened[0][1]
        if rest and children and children[-1].word is None:
            children[-1] = Tree(children[-1].label, (*children[-1].children, *rest))
        else:
            children.extend(rest)
        return ReadTree(Tree(ROOT, tuple(children)), tuple(self.repairs))
