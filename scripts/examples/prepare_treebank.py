"""Makes the training data of the recipes parsing_sample and parsing_wsj from a treebank.

For each set: NAME.words (one sentence per line), NAME.linear (its tree as a sequence) and NAME.trees (the tree in
brackets, for `vanilla-transformer evalb --gold`), all without traces and function tags. In the paper's sequences tags
stand for the words; --with-words writes both, which a small treebank needs. The sets can be given in two ways:

    python scripts/examples/prepare_treebank.py --trees wsj_sample.mrg.txt.gz --table files.tsv --with-words \\
        --output treebank
    python scripts/examples/prepare_treebank.py --train wsj/{02..21}/*.mrg --validation wsj/22/*.mrg \\
        --test wsj/23/*.mrg --output wsj
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from vanilla_transformer.files import text_lines, write_text
from vanilla_transformer.parsing.linearised_trees import ROOT, linearise
from vanilla_transformer.parsing.trees import Tree, read_trees


SETS = ("train", "validation", "test")
TRACE = "-NONE-"
"""The Penn Treebank's tag for what is understood but not said."""


def plain_tree(tree: Tree) -> Tree | None:
    """A treebank's tree as parsers are trained and scored on: without traces, function tags and indices, under TOP.

    `(NP-SBJ-1 (-NONE- *T*))` is dropped, and `(NP-SBJ (PRP I))` becomes `(NP (PRP I))`. Words keep their tags.

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
            label = node.label if node.label.startswith("-") else re.split("[-=]", node.label)[0]
            opened[-1].append(Tree(label, tuple(children)))
    [*children] = opened[0]
    if children and children[0].label in ("", ROOT) and children[0].word is None:
        children = children[0].children
    return Tree(ROOT, tuple(children)) if children else None


def trees_of(path: str | PathLike[str]) -> Iterator[tuple[int, Tree]]:
    """The trees of a file (plain or .gz), each with the number of the line where it ends; a tree may span many lines.

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
    """Splits the trees of one file by the files they came from.

    Args:
        trees: The result of `trees_of`.
        table: One line per file, in order: name, first and last line, separated by tabs; the first line may be a
            heading.
        last: This many files at the end are for testing, and as many before them for validation.

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
    """How many trees of a set were written, with how many words, and how many were left out for lack of words."""

    trees: int = 0
    words: int = 0
    without_words: int = 0


def write_treebank(
    sets: Mapping[str, Iterable[Tree]], folder: str | PathLike[str], *, with_words: bool = False
) -> dict[str, TreebankReport]:
    """Writes for each set `NAME.words`, `NAME.linear` (what a recipe trains on) and `NAME.trees` (what EVALB reads).

    Args:
        sets: The treebank's own trees, by the set's name.
        folder: Where to write; made if it is missing.
        with_words: Whether the sequences include the words.

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--trees", type=Path, help="all trees in one file, plain or .gz")
    parser.add_argument("--table", type=Path, help="with --trees: name, first and last line of each original file")
    parser.add_argument("--last", type=int, default=20, help="files for the test, and before them for validation")
    for name in SETS:
        parser.add_argument(f"--{name}", type=Path, nargs="+", help=f"files of the {name} set")
    parser.add_argument("--with-words", action="store_true", help="write the words into the sequences too")
    options = parser.parse_args()
    files = {name: getattr(options, name) for name in SETS}
    in_one_file = options.trees and options.table and not any(files.values())
    if not in_one_file and (options.trees or options.table or not all(files.values())):
        parser.error("give --trees and --table, or --train, --validation and --test")
    try:
        if in_one_file:
            sets = split_by_file(trees_of(options.trees), options.table, options.last)
        else:
            sets = {name: [tree for path in paths for _, tree in trees_of(path)] for name, paths in files.items()}
        reports = write_treebank(sets, options.output, with_words=options.with_words)
    except (ValueError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    for name, report in reports.items():
        left_out = f"; {report.without_words} without words left out" if report.without_words else ""
        print(f"{name}: {report.trees:,} trees, {report.words:,} words{left_out}")


if __name__ == "__main__":
    main()
