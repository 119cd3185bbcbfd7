"""Constituency trees in brackets, as the Penn Treebank writes them: `(S (NP (PRP I)) (VP (VBP am)))`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


# Only ASCII white space separates words, as in C: a no-break space may be part of one.
_TOKEN = re.compile(r"\((?P<label>[^\s()]*)|\)|(?P<word>[^\s()]+)", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[\s()]", re.ASCII)


@dataclass(frozen=True, repr=False, eq=False)
class Tree:
    """A constituent with its children, or a tag with its word.

    `str(tree)` is the tree in brackets, which `read_tree` can read. Trees may have any depth: no method recurses.
    Labels keep function tags and indices as written (`NP-SBJ-1`).

    Raises:
        ValueError: A label or word would not be read back unchanged, or there are both a word and children.
    """

    label: str  # empty for the Penn Treebank's outermost bracket
    children: tuple["Tree", ...] = ()
    word: str | None = None  # its brackets written as -LRB- and -RRB-

    def __post_init__(self):
        if self.word is not None and self.children:
            raise ValueError(f"a constituent has either children or a word, but {self.label!r} has both")
        for name in (self.label, self.word or ""):
            if _NOT_IN_NAMES.search(name):
                raise ValueError(f"no space or bracket can be in a label or a word; write -LRB- for '(', not {name!r}")
        if self.word == "":
            raise ValueError(f"the word of {self.label!r} is empty: use None if there is none")

    def walk(self) -> Iterator[tuple["Tree", bool]]:
        """Walks around the tree from left to right: each constituent, with True going down and with False coming up."""
        waiting = [(self, True)]
        while waiting:
            tree, down = waiting.pop()
            yield tree, down
            if down:
                waiting.append((tree, False))
                waiting.extend((child, True) for child in reversed(tree.children))

    def leaves(self) -> list["Tree"]:
        """The tags with their words, from left to right."""
        return [tree for tree, down in self.walk() if down and tree.word is not None]

    def __str__(self) -> str:
        pieces = []
        for tree, down in self.walk():
            pieces.append(f" ({tree.label}" if down else ")")
            if down and tree.word is not None:
                pieces.append(f" {tree.word}")
        return "".join(pieces)[1:]

    def __repr__(self) -> str:
        return f"read_tree({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def read_tree(text: str) -> Tree:
    """Reads one tree in brackets. Raises ValueError as `read_trees` does, and if there is not exactly one."""
    trees = read_trees(text)
    if len(trees) != 1:
        raise ValueError(f"there are {len(trees)} trees, not one")
    return trees[0]


def read_trees(text: str) -> tuple[Tree, ...]:
    """Reads any number of trees in brackets, one after another; white space between brackets does not matter.

    Raises:
        ValueError: Brackets are not balanced, or a word stands outside brackets or beside a bracket or another word;
            the message names the character, counted from 1.
    """
    done: list[Tree] = []
    opened: list[_Opened] = []
    for token in _TOKEN.finditer(text):
        label, word, place = token["label"], token["word"], f"at character {token.start() + 1}"
        beside = opened[-1] if opened else None
        if label is not None:
            if beside and beside.word is not None:
                raise ValueError(f"a bracket beside the word {beside.word!r} {place}")
            opened.append(_Opened(label, []))
        elif word is not None:
            if beside is None:
                raise ValueError(f"the word {word!r} outside brackets {place}")
            if beside.children or beside.word is not None:
                raise ValueError(f"the word {word!r} has no bracket of its own {place}")
            beside.word = word
        else:
            if beside is None:
                raise ValueError(f"nothing is open that is closed {place}")
            opened.pop()
            tree = Tree(beside.label, tuple(beside.children), beside.word)
            (opened[-1].children if opened else done).append(tree)
    if opened:
        raise ValueError(f"{len(opened)} of the brackets are not closed")
    return tuple(done)


@dataclass
class _Opened:
    """A constituent whose closing bracket is not read yet."""

    label: str
    children: list[Tree]
    word: str | None = None
