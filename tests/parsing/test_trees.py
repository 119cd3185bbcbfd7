"""Bracketed trees: read and written without loss at any depth; malformed trees raise."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.parsing.trees import Tree, read_tree, read_trees


# Names end at ASCII white space and brackets; a no-break space, for example, is part of a name.
NAMES = st.text(st.characters(exclude_characters="() \t\n\r\f\v", exclude_categories=["Cs"]), max_size=5)
TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, word=word), NAMES, NAMES.filter(bool)),
    lambda trees: st.builds(Tree, NAMES, st.lists(trees, max_size=4).map(tuple)),
)


def test_tree_by_hand():
    tree = read_tree("(S (NP-SBJ (PRP I))\t(VP (VBP am)\n))")
    noun, verb = Tree("PRP", word="I"), Tree("VBP", word="am")
    assert tree == Tree("S", (Tree("NP-SBJ", (noun,)), Tree("VP", (verb,))))
    assert tree.leaves() == [noun, verb]
    assert str(tree) == "(S (NP-SBJ (PRP I)) (VP (VBP am)))"
    assert repr(noun) == "read_tree('(PRP I)')"
    walk = read_tree("(S (A a) (B (C c)))").walk()  # down and up, around the tree
    assert "".join(each.label.upper() if down else each.label.lower() for each, down in walk) == "SAaBCcbs"


@settings(deadline=None)
@given(TREES)
def test_written_trees_round_trip(tree):
    again = read_tree(str(tree))
    assert again == tree
    walks = [[(each.label, each.word, down) for each, down in one.walk()] for one in (again, tree)]
    assert walks[0] == walks[1]


@settings(deadline=None)
@given(st.text(alphabet="()a \n"))
def test_any_text_round_trips_or_raises(text):
    try:
        trees = read_trees(text)
    except ValueError:
        return
    assert read_trees(" ".join(map(str, trees))) == trees


def test_unusual_trees_are_read_and_written():
    for text, written in (
        ("( (S (A a)) )", "( (S (A a)))"),
        ("((S (A a)))", "( (S (A a)))"),
        ("(-LRB- -LRB-)", "(-LRB- -LRB-)"),
        ("(NN Ünïcödé)(NN 語)", "(NN Ünïcödé) (NN 語)"),
        ("(NN 10\u00a0000)", "(NN 10\u00a0000)"),
        ("(())", "( ())"),
        ("( a)", "( a)"),
        ("", ""),
    ):
        assert " ".join(map(str, read_trees(text))) == written


def test_malformed_trees_raise():
    for text, message in (
        ("(S (A a)", "1 of the brackets are not closed"),
        ("(S (A a)))", "nothing is open that is closed at character 10"),
        ("(A a) b", "the word 'b' outside brackets at character 7"),
        ("(A a b)", "the word 'b' has no bracket of its own at character 6"),
        ("(S (A a) b)", "the word 'b' has no bracket of its own at character 10"),
        ("(S a (B b))", "a bracket beside the word 'a' at character 6"),
        ("( S (A a))", "a bracket beside the word 'S' at character 5"),
    ):
        with pytest.raises(ValueError, match=message):
            read_trees(text)
    for text, number in (("", 0), ("(A a) (B b)", 2)):
        with pytest.raises(ValueError, match=f"there are {number} trees"):
            read_tree(text)


def test_invalid_tree_arguments_are_rejected():
    for arguments in (("A", (), "("), ("A", (), "a b"), ("A", (), ""), ("A B", ()), (")", ())):
        with pytest.raises(ValueError, match=r"no space or bracket|is empty"):
            Tree(*arguments)
    with pytest.raises(ValueError, match="either children or a word"):
        Tree("A", (Tree("B", word="b"),), "a")


def test_operations_work_on_very_deep_trees():
    text = "(X " * 50_000 + "(A a)" + ")" * 50_000
    tree = read_tree(text)
    assert str(tree) == text
    assert tree == read_tree(text)
    assert hash(tree) == hash(read_tree(text))
    assert tree != tree.children[0]
    assert tree.leaves() == [Tree("A", word="a")]


def test_treebank_sample_round_trips(shared):
    with gzip.open(shared / "treebank_sample" / "wsj_sample.mrg.txt.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) == 3914
    trees = [read_tree(line) for line in lines]
    # The sample lacks the space after its outermost brackets.
    assert [str(tree).replace("( (", "((") for tree in trees] == lines
    leaves = [leaf for tree in trees for leaf in tree.leaves()]
    assert (len(leaves), sum(leaf.label != "-NONE-" for leaf in leaves)) == (100_676, 94_084)
