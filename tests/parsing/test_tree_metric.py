"""F1 of linearised trees by EVALB's rules: where it equals EVALB's and where not; confidence and significance."""

import random

import pytest

from vanilla_transformer.evaluation.scores import compare_systems, score_translations
from vanilla_transformer.parsing.bracketing import score_trees
from vanilla_transformer.parsing.linearised_trees import read_linearised


GOLD = ["(S (NP PRP )NP (VP VBP (NP DT NN )NP )VP . )S", "(S (NP NNP , NNP )NP (VP VBZ )VP . )S"]


def evalb(hypotheses, references=GOLD, **options):
    [score] = score_translations(hypotheses, references, ["evalb"], target_language="en_tree", **options)
    return score


def test_f1_by_hand():
    found = evalb(["(S (NP PRP )NP (VP VBP (NP DT )NP NN )VP . )S", GOLD[1]])
    # In the first tree 3 of 4 brackets match, in the second all 3. Tags do not count.
    assert found.value == pytest.approx(100 * 6 / 7)
    assert found.detail == "recall=85.71 precision=85.71 well-formed=2 of 2 (100.0 %)"
    assert "rules:collins|malformed:mended|punctuation:reference|" in found.signature


def test_scores_0_to_100_ignoring_tags_and_punctuation():
    assert evalb(GOLD).value == 100
    assert evalb(["", ""]).value == 0
    assert "well-formed=0 of 2" in evalb(["", ""]).detail
    # Tags and punctuation are ignored.
    assert evalb(["(S (NP NN )NP (VP , (NP . NN )NP )VP NN )S", GOLD[1]]).value == 100
    found = evalb(["(S (NP PRP )NP (VP VBP (NP DT NN", GOLD[1]])
    # The full stop moves to the end of S, so nothing is lost.
    assert found.value == 100
    assert "well-formed=1 of 2 (50.0 %)" in found.detail


def test_sequences_with_words_are_scored():
    gold = "(S (NP I /PRP )NP (VP saw /VBD (NP a /DT dog /NN )NP )VP . /. )S"
    assert evalb([gold], [gold]).value == 100
    assert evalb([gold.replace(" a /DT", "")], [gold]).value == 100  # `a` is put back before `dog`
    found = evalb([gold.replace("(NP a", "a (NP")], [gold])  # `a` has no tag and stands outside the NP
    assert found.value == pytest.approx(75)
    assert "well-formed=0 of 1" in found.detail
    # The reference decides whether sequences have words.
    for without in ("(S (NP PRP )NP (VP VBD (NP DT NN )NP )VP . )S", "(S (NP I )NP (VP saw (NP a dog )NP )VP . )S"):
        assert "well-formed=0 of 1" in evalb([without], [gold]).detail
    assert "well-formed=0 of 1" in evalb([gold], ["(S (NP PRP )NP (VP VBD (NP DT NN )NP )VP . )S"]).detail


def test_equals_evalb_on_bracketed_trees():
    generator = random.Random(0)
    symbols = ["(S", ")S", "(NP", ")NP", "(ADVP", ")PRT", "NN", ",", "."]
    gold, parses, hypotheses = [], [], []
    for reference in GOLD * 20:
        words = [f"w{n}" for n, each in enumerate(reference.split()) if each[0] not in "()"]
        mutated = [each if generator.random() < 0.8 else generator.choice(symbols) for each in reference.split()]
        hypotheses.append(" ".join(mutated))
        right = read_linearised(reference, words).tree
        gold.append(str(right))
        read = str(read_linearised(hypotheses[-1], words).tree)
        for leaf, tag in zip(words, (each.label for each in right.leaves()), strict=True):  # all tags are right
            found = next(part for part in read.split("(") if part.split(")")[0].endswith(f" {leaf}"))
            read = read.replace(f"({found.split(')')[0]})", f"({tag} {leaf})")
        parses.append(read)
    expected = score_trees(gold, parses).overall
    assert expected.valid == 40
    found = evalb(hypotheses, GOLD * 20)
    assert 0 < found.value < 100
    assert found.value == pytest.approx(expected.f1)


def test_counts_sentences_that_evalb_leaves_out():
    # A comma tagged as a noun, a noun as a full stop: EVALB finds different numbers of words, and leaves both out.
    hypotheses = ["(S (NP NNP NN NNP )NP (VP VBZ )VP . )S", "(S (NP PRP )NP (VP VBP (NP DT . )NP )VP . )S"]
    hypotheses.append("(S (NP PRP )NP (VP VBP )VP (NP DT NN )NP . )S")  # 4 brackets, 3 of them right
    references = [GOLD[1], GOLD[0], GOLD[0]]
    found = evalb(hypotheses, references)
    assert found.value == pytest.approx(100 * 10 / 11)  # 3, 4 and 4 brackets
    sentences = [f"a{n} b{n} c{n} d{n} e{n}".split() for n in range(3)]
    trees = [
        [str(read_linearised(text, words).tree) for text, words in zip(texts, sentences, strict=True)]
        for texts in (references, hypotheses)
    ]
    by_evalb = score_trees(*trees).overall
    assert (by_evalb.errors, by_evalb.valid) == (2, 1)
    assert by_evalb.f1 == pytest.approx(75)
    assert evalb(hypotheses[2:], references[2:]).value == by_evalb.f1  # without mistagged punctuation they agree


def test_reports_confidence_and_significant_differences():
    worse = ["(S (NP PRP VBP )NP (VP (NP DT NN )NP )VP . )S", GOLD[1]] * 20
    assert evalb(worse, GOLD * 20, resamples=100).confidence > 0
    systems, samples = {"a": GOLD * 20, "b": worse}, {"resamples": 100, "trials": 100}
    [found] = compare_systems(systems, GOLD * 20, ["evalb"], target_language="en_tree", **samples)
    assert found.difference < 0
    assert found.randomization_p < 0.05


def test_invalid_references_are_rejected():
    assert evalb(["A man."], ["A man."]).value == 0  # two tags, no brackets
    assert evalb(["(S NN )S"], ["(S  NN\t)S"]).value == 100
    for reference in ("(S NN", "(S )S", "", "/NN", "(S a /NN /NN )S"):
        with pytest.raises(ValueError, match="not a linearised tree"):
            evalb(["(S NN )S"], [reference])
    with pytest.raises(ValueError, match="one reference, not with 2"):
        score_translations(GOLD, [GOLD, GOLD], ["evalb"], target_language="en_tree")
