"""Trees as sequences: they round-trip exactly, and any text becomes a tree over all words, with its repairs listed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.parsing.linearised_trees import (
    has_words,
    linearise,
    read_linearised,
    retagged,
    words_of,
)
from vanilla_transformer.parsing.trees import Tree, read_tree


SYMBOLS = ["(S", "(NP", "(VP", ")S", ")NP", ")VP", "DT", "NN", "-LRB-", ".", "''"]
WORDS_AND_TAGS = ["a", "b", "/DT", "/NN", "/.", "/"]
RUBBISH = ["(", ")", "N(P", "((S", ")NP)", "(S)"]


def trees(words: bool):
    """Trees under TOP; without `words`, some leaves have no word, and those trees cannot be linearised."""
    leaves = st.builds(
        Tree,
        st.sampled_from(["DT", "NN", "''", "PRP$"]),
        word=st.sampled_from(["a", "-RRB-", "%", "/", "/NN", "\\/NN"]),
    )
    if not words:
        leaves |= st.builds(Tree, st.sampled_from(["NP", ""]))
    nodes = st.recursive(
        leaves,
        lambda each: st.builds(Tree, st.sampled_from(["S", "NP"]), st.lists(each, min_size=1, max_size=4).map(tuple)),
    )
    return st.lists(nodes, min_size=1, max_size=3).map(lambda children: Tree("TOP", tuple(children)))


def leaves_of(tree: Tree) -> list[str]:
    return [leaf.word for leaf in tree.leaves()]


def test_linearised_tree_by_hand():
    tree = read_tree("(TOP (S (NP (PRP I)) (VP (VBP am)) (. .)))")
    assert linearise(tree) == "(S (NP PRP )NP (VP VBP )VP . )S"
    assert linearise(tree, with_words=True) == "(S (NP I /PRP )NP (VP am /VBP )VP . /. )S"
    for words in (False, True):
        assert read_linearised(linearise(tree, words), ["I", "am", "."]).tree == tree
    assert str(retagged(tree, ["X", "Y", "Z"])) == "(TOP (S (NP (X I)) (VP (Y am)) (Z .)))"


@settings(deadline=None)
@given(trees(words=True), st.booleans())
def test_linearised_trees_round_trip(tree, words):
    text = linearise(tree, words)
    found = read_linearised(text, leaves_of(tree))
    assert (found.tree, found.repairs) == (tree, ())
    assert has_words(text) == words
    # The sequence can also be read on its own: with the words in it, or with placeholders.
    assert not words or words_of(text) == leaves_of(tree)
    alone = read_linearised(text, words_of(text))
    assert (linearise(alone.tree, words), alone.repairs) == (text, ())


@settings(deadline=None)
@given(trees(words=False).filter(lambda tree: any(node.word is None and not node.children for node, _ in tree.walk())))
def test_trees_with_empty_nodes_are_rejected(tree):
    with pytest.raises(ValueError, match="without a label or without words"):
        linearise(tree)


def test_slash_tags_and_roots_besides_top_are_rejected():
    tree = read_tree("(TOP (S (/NN a)))")
    with pytest.raises(ValueError, match="begins with a slash"):
        linearise(tree)
    assert read_linearised(linearise(tree, with_words=True), ["a"]).tree == tree
    with pytest.raises(ValueError, match="must be TOP, not 'S'"):
        linearise(read_tree("(S (NP (PRP I)))"))


@settings(deadline=None, max_examples=800)
@given(
    st.lists(st.sampled_from([*SYMBOLS, *RUBBISH])).map(" ".join)
    | st.lists(st.sampled_from([*SYMBOLS, *WORDS_AND_TAGS, *RUBBISH])).map(" ".join)
    | st.text(),
    st.lists(st.sampled_from(["a", "b", "/", "/NN"]), min_size=1, max_size=6),
)
def test_any_text_becomes_a_tree_over_all_words(text, words):
    found = read_linearised(text, words)
    assert found.tree.label == "TOP"
    assert leaves_of(found.tree) == words
    # There are repairs if and only if the text was not the sequence of the resulting tree.
    assert (linearise(found.tree, has_words(text)).split() == text.split()) == (not found.repairs)


@pytest.mark.parametrize(
    ("words", "text", "tree", "repairs"),
    [
        ("ab", "(S (NP DT NN", "(S (NP (DT a) (NN b)))", ["closed (NP at the end", "closed (S at the end"]),
        ("ab", "(S (NP DT )S NN", "(S (NP (DT a))) (NN b)", ["closed (NP before )S"]),
        ("ab", "(S DT )NP NN )S", "(S (DT a) (NN b))", ["dropped )NP, which closes nothing"]),
        ("ab", "(S (NP )NP DT NN )S", "(S (DT a) (NN b))", ["dropped (NP, which has no words"]),
        ("ab", "(S DT NN NN )S", "(S (DT a) (NN b))", ["dropped NN, for which there is no word"]),
        ("ab", "(S (NP DT )NP )S", "(S (NP (DT a)) (XX b))", ["added the word 'b', which has no tag"]),
        ("ab", "(S ( DT NN )S", "(S (DT a) (NN b))", ["dropped '(', which is not a symbol"]),
        ("ab", "", "(XX a) (XX b)", ["added the word 'a', which has no tag", "added the word 'b', which has no tag"]),
        ("ab", "(S NN /VBZ DT DT DT )S", "(S (NN a) (DT b))",
         ["dropped '/VBZ', which is not a symbol", *["dropped DT, for which there is no word"] * 2]),
        ("ab", "(S DT )S (S NN )S", "(S (DT a)) (S (NN b))", []),
        ("abc", "(S a /DT b /NN c /. )S", "(S (DT a) (NN b) (. c))", []),
        ("abc", "(S a /DT (NP c /NN )NP )S", "(S (DT a) (NP (XX b) (NN c)))", ["added the word 'b', which has no tag"]),
        ("abc", "(S a /DT )S", "(S (DT a) (XX b) (XX c))",
         [f"added the word {word!r}, which has no tag" for word in "bc"]),
        ("abc", "(S a /DT x /JJ b /NN c /. )S", "(S (DT a) (NN b) (. c))", ["dropped x, for which there is no word"]),
        ("abc", "(S a /DT x /JJ c /. )S", "(S (DT a) (JJ b) (. c))", ["put the word 'b' in the place of 'x'"]),
        ("abc", "(S a /DT /JJ c /. )S", "(S (DT a) (JJ b) (. c))", ["put the word 'b' in the place of ''"]),
        ("abc", "(S a b /NN c /. )S", "(S (XX a) (NN b) (. c))", ["added the word 'a', which has no tag"]),
    ],
)  # fmt: skip
def test_malformed_sequences_are_repaired(words, text, tree, repairs):
    found = read_linearised(text, [*words])
    assert (str(found.tree), list(found.repairs)) == (f"(TOP {tree})", repairs)


def test_very_deep_trees_round_trip():
    text = " ".join(["(S"] * 5000 + ["NN"] + [")S"] * 5000)
    assert linearise(read_linearised(text, ["a"]).tree) == text
