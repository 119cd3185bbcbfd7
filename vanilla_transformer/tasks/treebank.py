"""From a treebank's files to what a parser is trained on: words and linearised trees, a sentence a line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..evaluation.linearised_trees import ROOT, linearise
from ..evaluation.trees import Tree, read_trees
from ..files import text_lines, write_text


TRACE = "-NONE-"
"""The Penn Treebank's tag of what is understood and not said."""


def plain_tree(tree: Tree) -> Tree | None:
    """A treebank's tree as parsers are trained and scored on: without traces, function tags and indices, under TOP.

    `(NP-SBJ-1 (-NONE- *T*))` is gone, and `(NP-SBJ (PRP I))` is `(NP (PRP I))`. Tags stay as they are.

    Returns:
        The tree, or None if it has no words.
    """
    opened: list[list[Tree]] = [[]]
    for node, down in tree.walk():
        if node.word is not None:
            if down and node.label != TRACE:
                opened[-1].append(node)
        elif down:
            opened.append([])
        elif children := opened.pop():
            opened[-1].append(Tree(_without_function(node.label), tuple(children)))
    [*children] = opened[0]
    if children and children[0].label in ("", ROOT) and children[0].word is None:
        children = children[0].children
    return Tree(ROOT, tuple(children)) if children else None


def _without_function(label: str) -> str:
    return label if label.startswith("-") else re.split("[-=]", label)[0]


def trees_of(path: str | PathLike[str]) -> Iterator[tuple[int, Tree]]:
    """The trees of a file (plain text or .gz) with the number of the line where each ends; one may have many lines.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is malformed; the message names file and line.
    """
    waiting, depth, number = [], 0, 0
    for number, line in enumerate(text_lines(path), start=1):
        if waiting or line.strip():
            waiting.append(line)
        depth += line.count("(") - line.count(")")
        if depth > 0:
            continue
        yield from ((number, tree) for tree in _read(waiting, path, number))
        waiting, depth = [], 0
    yield from ((number, tree) for tree in _read(waiting, path, number))


def _read(lines: list[str], path: str | PathLike[str], number: int) -> tuple[Tree, ...]:
    try:
        return read_trees("\n".join(lines))
    except ValueError as error:
        first = number - len(lines) + 1
        read = "" if len(lines) == 1 else f" (read up to line {number})"
        raise ValueError(f"{path}, line {first}: the tree that begins here is malformed{read}: {error}.") from error


def split_by_file(trees: Iterable[tuple[int, Tree]], table: str | PathLike[str], last: int) -> dict[str, list[Tree]]:
    """Splits trees that stand in one file by the files they came from.

    Args:
        trees: What `trees_of` gives.
        table: A line per file, in order: name, first and last line, with tabs between them; a heading may stand above.
        last: The last so many files are for the test, as many before them for validation.

    Raises:
        ValueError: The table is malformed, does not fit the trees, or has too few files.
    """
    ends = []
    for number, line in enumerate(text_lines(table), start=1):
        name, *lines = line.split("\t")
        if len(lines) == 2 and all(each.isdecimal() for each in lines):
            first, end = map(int, lines)
            if not (ends[-1] if ends else 0) < first <= end:
                raise ValueError(f"{table}, line {number}: {name} cannot be lines {first} to {end}, after those above.")
            ends.append(end)
        elif number > 1:
            raise ValueError(f"{table}, line {number}: expected NAME, first and last line, with tabs between them.")
    if last < 1:
        raise ValueError(f"{last} files cannot be for the test: give 1 or more.")
    if not last < len(ends) / 2:
        raise ValueError(f"{table} names {len(ends)} files: {last} for the test and {last} for validation leave none.")
    train_end, validation_end = ends[-2 * last - 1], ends[-last - 1]
    found: dict[str, list[Tree]] = {"train": [], "validation": [], "test": []}
    for number, tree in trees:
        if number > ends[-1]:
            raise ValueError(f"{table} ends with line {ends[-1]}, but there is a tree in line {number}: which file's?")
        name = "train" if number <= train_end else "validation" if number <= validation_end else "test"
        found[name].append(tree)
    return found


@dataclass
class TreebankReport:
    """What became of a set of trees: those written, their words, and those left out because they have no words."""

    trees: int = 0
    words: int = 0
    without_words: int = 0


def write_treebank(
    sets: Mapping[str, Iterable[Tree]], folder: str | PathLike[str], *, with_words: bool = False
) -> dict[str, TreebankReport]:
    """Writes for each set `NAME.words`, `NAME.linear` (what a recipe trains on) and `NAME.trees` (what EVALB reads).

    Args:
        sets: Trees as they stand in the treebank, by the set's name.
        folder: Where to; made if it is not there.
        with_words: Whether the sequences have the words in them.

    Raises:
        ValueError: A set has no trees, or a tree cannot be linearised; nothing is written then.
    """
    reports, files = {}, {}
    for name, trees in sets.items():
        reports[name] = report = TreebankReport()
        lines: dict[str, list[str]] = {"words": [], "linear": [], "trees": []}
        for tree in map(plain_tree, trees):
            if tree is None:
                report.without_words += 1
                continue
            words = [leaf.word for leaf in tree.leaves()]
            report.trees += 1
            report.words += len(words)
            try:
                linear = linearise(tree, with_words)
            except ValueError as error:
                raise ValueError(f"The set {name}, tree {report.trees + report.without_words}: {error}.") from error
            for kind, line in (("words", " ".join(words)), ("linear", linear), ("trees", str(tree))):
                lines[kind].append(f"{line}\n")
        if not report.trees:
            raise ValueError(f"There are no trees for the set {name}.")
        files |= {f"{name}.{kind}": "".join(of_kind) for kind, of_kind in lines.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_text(Path(folder) / name, text)
    return reports
