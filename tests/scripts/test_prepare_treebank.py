"""Treebanks: traces and function tags are dropped, the sample's trees round-trip, and splits are by file."""

import re
from functools import partial

import prepare_treebank
import pytest
from prepare_treebank import plain_tree, split_by_file, trees_of, write_treebank

from vanilla_transformer.parsing.bracketing import score_trees
from vanilla_transformer.parsing.linearised_trees import linearise, read_linearised
from vanilla_transformer.parsing.trees import Tree, read_tree


def test_plain_tree_drops_traces_and_function_tags():
    for text, plain in (
        ("((S (NP-SBJ-1 (PRP I)) (VP (VBP am))))", "(TOP (S (NP (PRP I)) (VP (VBP am))))"),
        ("(S (NP=2 (NN a)))", "(TOP (S (NP (NN a))))"),
        ("(TOP (S (NN a)))", "(TOP (S (NN a)))"),
        ("( (S (NP (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))", "(TOP (S (VP (VB go))))"),
        ("((S (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))", "(TOP (S (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))"),
        ("((NP (JJ|NN a)))", "(TOP (NP (JJ|NN a)))"),
        ("((NN a))", "(TOP (NN a))"),
        ("((S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
    ):
        assert str(plain_tree(read_tree(text))) == plain
    for text in ("((S (-NONE- *)))", "()", "((S))"):  # trees without words
        assert plain_tree(read_tree(text)) is None


def test_sample_trees_round_trip_through_linearisation(shared):
    before, after = [], []
    for number, (_, tree) in enumerate(trees_of(shared / "treebank_sample" / "wsj_sample.mrg.txt.gz")):
        plain = plain_tree(tree)
        for with_words in (False, True) if number % 4 == 0 else ():
            found = read_linearised(linearise(plain, with_words), [leaf.word for leaf in plain.leaves()])
            assert (found.tree, found.repairs) == (plain, ())
        assert not re.search(r"-NONE-|\((?!-)[^ ]*[-=]", str(plain))
        before.append(str(tree).replace("( ", "(TOP ", 1))
        after.append(str(plain))
    assert len(after) == 3914
    # EVALB's rules ignore traces, function tags and TOP, so by them the plain trees equal the treebank's.
    overall = score_trees(before[::10], after[::10]).overall
    assert (overall.f1, overall.tag_accuracy, overall.valid) == (100, 100, 392)


def test_multiline_trees_are_numbered_by_last_line(tmp_path):
    (tmp_path / "wsj.mrg").write_text("\n( (S\n   (NP (PRP I))\n (VP (VBP am)) ))\n( (NP (NN a)) )\n", encoding="utf-8")
    found = [(number, str(tree)) for number, tree in trees_of(tmp_path / "wsj.mrg")]
    assert found == [(4, "( (S (NP (PRP I)) (VP (VBP am))))"), (5, "( (NP (NN a)))")]


def test_malformed_tree_error_names_file_and_line(tmp_path):
    for text, message in (
        ("(S (NN a)\n", "line 2: the tree that begins here is malformed: "),
        ("(S (NN a)))\n", "line 2: the tree that begins here is malformed: "),
        ("(S (NN a b))\n", "line 2: the tree that begins here is malformed: "),
        ("\n(S (NN b)\n(S (NN c))\n", r"line 3: the tree that begins here is malformed \(read up to line 4\)"),
    ):
        (tmp_path / "bad.mrg").write_text("(S (NN a))\n" + text, encoding="utf-8")
        with pytest.raises(ValueError, match=f"bad.mrg, {message}"):
            list(trees_of(tmp_path / "bad.mrg"))


def test_invalid_file_tables_are_rejected(tmp_path):
    for files, last, message in (
        (["a\t1\t1", "b\t5\t3", "c\t6\t7"], 1, "line 2: b cannot be lines 5 to 3"),
        (["a\t1\t2", "b\t2\t3", "c\t4\t5"], 1, "line 2: b cannot be lines 2 to 3"),
        (["a\t1\t1", "b\t2\t2", "c\t3\t3"], 1, "ends with line 3, but there is a tree in line 4"),
        (["a\t1\t1", "b\t2\t2", "c\t3\t4"], 0, "give 1 or more"),
        (["a\t1\t1", "b\t2\t4"], 1, "names 2 files"),
        (["a\t1\t2"], 1, "1 files"),
        (["n", "1"], 1, "line 2"),
    ):
        (tmp_path / "files.tsv").write_text("\n".join(files), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            split_by_file(((number, Tree("TOP")) for number in range(1, 5)), tmp_path / "files.tsv", last)


def test_sample_is_split_by_file(shared):
    table = shared / "treebank_sample" / "files.tsv"
    sets = split_by_file(((number, Tree("TOP")) for number in range(1, 3915)), table, 20)
    assert {name: len(trees) for name, trees in sets.items()} == {"train": 3396, "validation": 273, "test": 245}
    lines = dict(line.split("\t")[:2] for line in table.read_text(encoding="utf-8").splitlines())
    assert int(lines["wsj_0180"]) == 3396 + 273 + 1  # the first of the last 20 of 199 files


def test_treebank_files_are_written_and_kept_on_failure(tmp_path):
    trees = [read_tree("((S (NP-SBJ (PRP I)) (VP (VBP am))))"), read_tree("((S (-NONE- *)))")]

    def found():
        return {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}

    reports = write_treebank({"train": trees}, tmp_path / "out")
    assert (reports["train"].trees, reports["train"].words, reports["train"].without_words) == (1, 2, 1)
    assert found() == {
        "train.words": "I am\n",
        "train.linear": "(S (NP PRP )NP (VP VBP )VP )S\n",
        "train.trees": "(TOP (S (NP (PRP I)) (VP (VBP am))))\n",
    }
    write_treebank({"train": trees}, tmp_path / "out", with_words=True)
    before = found()
    assert before["train.linear"] == "(S (NP I /PRP )NP (VP am /VBP )VP )S\n"
    with pytest.raises(ValueError, match=r"The set test, tree 1: a tag that begins with a slash"):
        write_treebank({"train": trees, "test": [read_tree("((/NN a))")]}, tmp_path / "out")
    assert found() == before
    with pytest.raises(ValueError, match="no trees for the set test"):
        write_treebank({"test": trees[1:]}, tmp_path / "out")


def test_script_writes_files_and_reports_errors(tmp_path, printed_by, capsys):
    run = partial(printed_by, prepare_treebank)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"( (NP (NN {name})) )\n", encoding="utf-8")
    sets = ["--train", tmp_path / "a", tmp_path / "b", "--validation", tmp_path / "b", "--test", tmp_path / "c"]
    assert run(*sets, "--output", tmp_path / "out").splitlines()[0] == "train: 2 trees, 2 words"
    assert (tmp_path / "out" / "train.words").read_text(encoding="utf-8") == "a\nb\n"
    assert (tmp_path / "out" / "test.linear").read_text(encoding="utf-8") == "(NP NN )NP\n"
    run(*sets, "--with-words", "--output", tmp_path / "out")
    assert (tmp_path / "out" / "test.linear").read_text(encoding="utf-8") == "(NP c /NN )NP\n"
    with pytest.raises(SystemExit, match="2"):
        run("--train", tmp_path / "a", "--output", tmp_path / "out")
    assert "give --trees and --table" in capsys.readouterr().err
    (tmp_path / "c").write_text("(NP", encoding="utf-8")
    with pytest.raises(SystemExit, match="1"):
        run(*sets, "--output", tmp_path / "out")
    assert "c, line 1: the tree that begins here is malformed" in capsys.readouterr().err
