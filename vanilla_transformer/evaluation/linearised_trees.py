"""Constituency trees as sequences that a translator can learn to write (section 6.3; Vinyals et al. 2015).

    (TOP (S (NP (PRP I)) (VP (VBP am)) (. .)))   is   (S (NP PRP )NP (VP VBP )VP . )S

A symbol opens a constituent, closes one, or is the tag of the next word. The words themselves are left out: whoever
reads the sequence has the sentence. The outermost TOP is left out too, since every tree has it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .trees import Tree


ROOT = "TOP"
"""The label of every tree's outermost bracket, which EVALB's rules for the Wall Street Journal do not count."""
UNKNOWN_TAG = "XX"
"""The Penn Treebank's tag for a word of unknown kind."""

_SYMBOL = re.compile(r"(?P<opening>\([^\s()]+)|(?P<closing>\)[^\s()]+)|(?P<tag>[^\s()]+)", re.ASCII)
_SPACE = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True)
class ReadTree:
    """A tree that was read from a sequence.

    Attributes:
        tree: The tree, with the label TOP and with all words.
        repairs: What had to be done to make it one, a description each; nothing if the sequence is well-formed.
    """

    tree: Tree
    repairs: tuple[str, ...] = ()


def linearise(tree: Tree) -> str:
    """The symbols of a tree with the label TOP, with a space between them.

    Raises:
        ValueError: The tree is not one that `read_linearised` would give back: its label is not TOP, or a constituent
            has no label or no words.
    """
    if tree.label != ROOT:
        raise ValueError(f"the outermost bracket of a tree must be {ROOT}, not {tree.label!r}")
    symbols = []
    for node, down in tree.walk():
        if not node.label or (node.word is None and not node.children):
            raise ValueError(f"a constituent without a label or without words cannot be linearised: {node}")
        if node.word is None:
            symbols.append(f"{'(' if down else ')'}{node.label}")
        elif down:
            symbols.append(node.label)
    return " ".join(symbols[1:-1])


def read_linearised(text: str, words: Sequence[str]) -> ReadTree:
    """Makes a tree of symbols and the sentence's words, whatever the symbols are.

    A closing bracket closes what is still open inside of its constituent, and is dropped if nothing of its label is
    open. What is open at the end is closed. Tags beyond the last word are dropped; words beyond the last tag go to the
    end of the outermost constituent, with the tag XX. Constituents without words are dropped, and so is what is no
    symbol.

    Args:
        text: The symbols, with white space between them.
        words: The words of the sentence, without spaces or brackets in them.
    """
    reader = _Reader(words)
    for symbol in filter(None, _SPACE.split(text)):
        found = _SYMBOL.fullmatch(symbol)
        if found is None:
            reader.repairs.append(f"dropped {symbol!r}, which is no symbol")
        elif found["opening"]:
            reader.open(symbol[1:])
        elif found["closing"]:
            reader.close(symbol[1:])
        else:
            reader.add_word(symbol)
    return reader.finish()


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


class _Reader:
    """The constituents that are open, each a label with the children it has so far; the first of them is TOP."""

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self.used = 0
        self.opened: list[tuple[str, list[Tree]]] = [(ROOT, [])]
        self.repairs: list[str] = []

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

    def add_word(self, tag: str) -> None:
        if self.used == len(self.words):
            self.repairs.append(f"dropped {tag}, for which there is no word")
            return
        self.opened[-1][1].append(Tree(tag, word=self.words[self.used]))
        self.used += 1

    def finish(self) -> ReadTree:
        rest = [Tree(UNKNOWN_TAG, word=word) for word in self.words[self.used :]]
        self.repairs += [f"added the word {leaf.word!r}, which has no tag" for leaf in rest]
        while len(self.opened) > 1:
            self.repairs.append(f"closed ({self.opened[-1][0]} at the end")
            self._close_last()
        children = self.opened[0][1]
        if rest and children and children[-1].word is None:
            children[-1] = Tree(children[-1].label, (*children[-1].children, *rest))
        else:
            children.extend(rest)
        return ReadTree(Tree(ROOT, tuple(children)), tuple(self.repairs))
