"""Makes of a treebank what the recipes parsing_sample and parsing_wsj train on.

For each set: NAME.words (a sentence a line), NAME.linear (its tree as a sequence) and NAME.trees (the tree in brackets,
for `vanilla-transformer evalb --gold`), all without traces and function tags. In the paper's sequences tags stand for
the words; --with-words writes both, which is what little data needs. Two ways to say what the sets are:

    python scripts/prepare_treebank.py --trees wsj_sample.mrg.txt.gz --table files.tsv --with-words --output treebank
    python scripts/prepare_treebank.py --train wsj/{02,...,21}/*.mrg --validation wsj/22/*.mrg --test wsj/23/*.mrg \
        --output wsj
"""

import argparse
from pathlib import Path

from vanilla_transformer.tasks.treebank import split_by_file, trees_of, write_treebank


SETS = ("train", "validation", "test")


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
