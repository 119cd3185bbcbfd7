"""Bracketing scores: worked out by hand, as EVALB itself prints them, and by properties that hold for any trees."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.commands.evalb import evalb_table
from vanilla_transformer.parsing.bracketing import BracketingSummary, Status, score_trees
from vanilla_transformer.parsing.evalb_parameters import COLLINS, EvalbParameters
from vanilla_transformer.parsing.trees import Tree


PLAIN = EvalbParameters()
# EVALB's other parameter file, new.prm: it knows the parsers' own top label, and marks with wrong tags.
NEW = replace(
    COLLINS,
    delete_labels=COLLINS.delete_labels | {"S1", "?", "!"},
    quote_labels=frozenset({"``", "''", "POS", "NN", "CD", "VBZ", ":"}),
)
SENTENCE = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))"


def score(gold, parsed, parameters=COLLINS):
    [result] = score_trees([gold], [parsed], parameters).sentences
    return result


def brackets(gold, parsed, parameters=COLLINS):
    found = score(gold, parsed, parameters)
    return found.matched, found.gold, found.parsed


class TestByHand:
    def test_wrong_attachment_lowers_recall_not_precision(self):
        # Gold: S 0-7, NP 0-1, VP 1-7, NP 2-7, NP 2-4, PP 4-7, NP 5-7.
        gold = "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN with) (NP (DT a) (NN dog))))))"
        # Parse: S 0-7, NP 0-1, VP 1-7, NP 2-4, PP 4-7, NP 5-7, all of them right.
        parsed = "(S (NP (PRP I)) (VP (VBP saw) (NP (DT a) (NN man)) (PP (IN with) (NP (DT a) (NN dog)))))"
        found = score_trees([gold], [parsed])
        [sentence] = found.sentences
        assert (sentence.matched, sentence.gold, sentence.parsed, sentence.crossing) == (6, 7, 6, 0)
        assert (sentence.recall, sentence.precision) == (pytest.approx(600 / 7), 100)
        assert (sentence.words, sentence.length, sentence.correct_tags) == (7, 7, 6)
        assert sentence.tag_accuracy == pytest.approx(600 / 7)
        assert found.overall.f1 == pytest.approx(100 * 12 / 13)
        assert found.overall.complete_match == 0

    def test_crossing_brackets_are_counted_in_the_parse(self):
        gold = "(S (A (X a) (X b)) (B (X c) (X d)))"  # A 0-2, B 2-4
        parsed = "(S (X a) (C (D (X b) (X c)) (X d)))"  # C 1-4 crosses A, D 1-3 crosses A and B
        assert score(gold, parsed).crossing == 2
        assert score(parsed, gold).crossing == 2
        assert score("(S (X a) (B (X b) (X c)) (X d))", gold).crossing == 2
        assert score(gold, "(S (X a) (B (X b) (X c)) (X d))").crossing == 1

    def test_each_bracket_matches_at_most_once(self):
        twice, once = "(S (NP (NP (NN a))) (X b))", "(S (NP (NN a)) (X b))"
        assert brackets(twice, once) == (2, 3, 2)
        assert brackets(once, twice) == (2, 2, 3)
        assert brackets(twice, twice) == (3, 3, 3)
        other = once.replace("NP", "VP")
        assert brackets(once, other) == (1, 2, 2)
        assert brackets(once, other, replace(COLLINS, labeled=False)) == (2, 2, 2)

    def test_totals_sum_brackets_not_sentences(self):
        gold = [SENTENCE, "(S (X a))"]
        parsed = [SENTENCE, "(A (B (C (X a))))"]
        overall = score_trees(gold, parsed).overall
        assert (overall.matched, overall.gold, overall.parsed) == (4, 5, 7)
        assert (overall.recall, overall.precision) == (80, pytest.approx(400 / 7))
        assert overall.complete_match == 50

    def test_summary_leaves_out_skipped_and_failed_sentences(self):
        gold = [SENTENCE] * 4
        parsed = [SENTENCE, "", SENTENCE.replace("dog", "god"), SENTENCE.replace("(NN dog)", "")]
        found = score_trees(gold, parsed)
        assert [each.status.name for each in found.sentences] == ["SCORED", "SKIPPED", "ERROR", "ERROR"]
        overall = found.overall
        assert (overall.sentences, overall.errors, overall.skipped, overall.valid) == (4, 2, 1, 1)
        assert (found.overall.recall, found.overall.f1, found.overall.complete_match) == (100, 100, 100)
        assert (found.sentences[1].length, found.sentences[1].words) == (5, 5)
        assert "'god' for the word 'dog'" in found.sentences[2].problem
        assert "5 words and the parse 4" in found.sentences[3].problem
        nothing = score_trees([SENTENCE], [""]).overall
        assert (nothing.recall, nothing.precision, nothing.f1, nothing.average_crossing) == (0, 0, 0, 0)


class TestParameters:
    def test_function_tags_are_cut_from_phrases_only(self):
        found = score("(S (NP-SBJ-1 (NN-X a)) (VP=2 (X b)))", "(S (NP (NN a)) (VP (X b)))")
        assert (found.matched, found.gold, found.correct_tags) == (3, 3, 1)

    def test_collins_deletes_traces_punctuation_and_top(self):
        gold = "(TOP (S (NP (-NONE- *)) (, ,) (VP (VB go)) (. !)))"  # S 0-1 and VP 0-1; an empty NP does not count
        found = score(gold, "(S (VP (VB go) (. !)))")
        assert (found.matched, found.gold, found.parsed, found.words) == (2, 2, 2, 1)
        assert found.length == 3  # all but the trace
        assert brackets(gold, gold, PLAIN) == (4, 4, 4)

    def test_equivalent_labels_and_words_match(self):
        parameters = EvalbParameters(
            equivalent_labels=frozenset({frozenset("AB"), frozenset("BC")}),
            equivalent_words=frozenset({frozenset({"This", "this"})}),
        )
        found = score("(A (A This))", "(B (B this))", parameters)
        assert (found.matched, found.correct_tags) == (1, 1)
        assert brackets("(A (X x))", "(C (X x))", parameters) == (0, 1, 1)
        assert score("(A (X this))", "(A (X THIS))", parameters).status == Status.ERROR
        parameters = EvalbParameters(delete_labels=frozenset("A"), equivalent_labels=frozenset({frozenset("AB")}))
        assert brackets("(B (S (X x)))", "(S (X x))", parameters) == (1, 1, 1)  # B is equivalent to a deleted label

    def test_cutoff_length_is_inclusive(self):
        for length, sentences in ((4, 0), (5, 1)):
            found = score_trees([SENTENCE], [SENTENCE], replace(COLLINS, cutoff_length=length))
            assert (found.short.sentences, found.overall.sentences, found.cutoff_length) == (sentences, 1, length)

    def test_mark_deleted_on_one_side_is_kept(self):
        gold, parsed = '(S (A (X a) (`` ")) (B (X b)))', '(S (A (X a) (NN ")) (B (X b)))'
        assert score(gold, parsed).status == Status.ERROR
        for one, other in ((gold, parsed), (parsed, gold)):
            found = score(one, other, NEW)
            assert (found.status, found.matched, found.words, found.correct_tags) == (Status.SCORED, 3, 3, 2)
        # Only marks are kept, and only if both trees then have the same number of words.
        assert score(gold.replace('"', "b"), parsed.replace('"', "b"), NEW).status == Status.ERROR
        gold = "(S (A (X a)) (B (`` ') (X b)) (C (X c)))"  # A 0-1, B 1-3, C 3-4
        assert brackets(gold, gold.replace("``", "NN"), NEW) == (4, 4, 4)
        assert brackets(gold, "(S (A (X a) (NN ')) (B (X b)) (C (X c)))", NEW) == (2, 4, 4)

    def test_adjacent_marks_are_handled_like_evalb(self):
        gold = "(S (A (X a)) (B ('' ') ('' \") (X b)))"
        parsed = "(S (A (X a)) (B (POS ') (NN \") (X b)))"
        # EVALB keeps the first of the gold tree's marks twice and the second never.
        assert score(gold, parsed, NEW).problem == "the parse has '\"' for the word \"'\""
        assert brackets(parsed, gold, NEW) == (3, 3, 3)

    def test_from_file_reads_the_parameters(self, tmp_path):
        path = tmp_path / "own.prm"
        path.write_text(
            "##----##\nDEBUG 0\n\nMAX_ERROR 3\nCUTOFF_LEN 70\nLABELED 0   \nDELETE_LABEL TOP\nDELETE_LABEL #\n"
            "DELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL POS\nEQ_LABEL ADVP PRT\nEQ_WORD  This this\n# EQ_WORD a b\n"
            "DISC_ONLY 0\n",
            encoding="utf-8",
        )
        assert EvalbParameters.from_file(path) == EvalbParameters(
            delete_labels=frozenset({"TOP", "#"}),
            delete_labels_for_length=frozenset({"-NONE-"}),
            quote_labels=frozenset({"POS"}),
            equivalent_labels=frozenset({frozenset({"ADVP", "PRT"})}),
            equivalent_words=frozenset({frozenset({"This", "this"})}),
            labeled=False,
            cutoff_length=70,
            max_error=3,
        )

    def test_from_file_names_the_bad_line(self, tmp_path):
        path = tmp_path / "own.prm"
        for line, message in (
            ("DELETE_LABELS TOP", "DELETE_LABELS is unknown; known are LABELED,"),
            ("DELETE_LABEL", "DELETE_LABEL takes 1 value, not 0"),
            ("EQ_LABEL ADVP", "EQ_LABEL takes 2 values, not 1"),
            ("CUTOFF_LEN forty", "CUTOFF_LEN takes a whole number from 0 upwards, not 'forty'"),
            ("MAX_ERROR -1", "MAX_ERROR takes a whole number"),
            ("DISC_ONLY 1", "set it to 0"),
        ):
            path.write_text(f"LABELED 1\n{line}\n", encoding="utf-8")
            with pytest.raises(ValueError, match=rf"own\.prm, line 2: .*{message}"):
                EvalbParameters.from_file(path)


class TestHostileInput:
    def test_bad_parses_are_counted_and_bad_gold_raises(self):
        for parsed in ("(S (NN a)", "(S (NN a)))", "a", "(S a b)", "(S (NN a) b)", ")(", "(S"):
            found = score("(S (NN a))", parsed)
            assert (found.status, found.words, found.gold, found.recall) == (Status.ERROR, 1, 0, 0)
            assert "malformed" in found.problem
        for parsed in ("", "   ", "(())", "( )", "(S (. .))"):
            assert score("(S (NN a))", parsed).status == Status.SKIPPED
        for gold in ("(S (NN a)", "(S (NN a)))", "a", "(S a b)", "", "(())"):
            with pytest.raises(ValueError, match="line 2 of the gold trees"):
                score_trees([SENTENCE, gold], [SENTENCE, "(S (NN a))"])
        # A gold tree may have deleted words only.
        assert score("(S (. .))", "(S (. .))").status == Status.SKIPPED
        assert score("(S (. .))", "(S (X .))").status == Status.ERROR

    def test_unusual_words_and_labels_match_themselves(self):
        tree = "(S (NP (-LRB- -LRB-) (NN Größe) (-RRB- -RRB-)) (VP (VB 走\u00a0る)))"
        found = score(tree, tree)
        assert (found.matched, found.words, found.correct_tags) == (3, 4, 4)

    def test_unlabelled_brackets_and_several_trees_are_scored(self):
        assert brackets("( (S (X a)) )", "(S (X a))") == (1, 2, 1)
        assert brackets("( (S (X a)) )", "((S (X a)))") == (2, 2, 2)
        assert brackets("(S (X a) (X b))", "(X a) (X b)") == (0, 1, 0)
        assert brackets("(A (X a)) (B (X b))", "(A (X a)) (B (X b))") == (2, 2, 2)

    def test_very_deep_and_long_trees_are_scored(self):
        depth = 20_000
        deep = "(A " * depth + "(X a)" + ")" * depth
        assert brackets(deep, deep) == (depth, depth, depth)
        left = "(A " * 2_000 + "(X a)" + " (X a))" * 2_000
        right = "(A (X a) " * 2_000 + "(X a)" + ")" * 2_000
        found = score(left, right)
        # Left: 0-2, 0-3 ... 0-2001; right: 0-2001, 1-2001 ... 1999-2001. All on the right but the whole cross.
        assert (found.matched, found.gold, found.parsed, found.crossing) == (1, 2_000, 2_000, 1_999)

    def test_empty_or_unequal_input_raises(self):
        for gold, parsed, error, message in (
            ([], [], ValueError, "nothing to score"),
            ([SENTENCE] * 2, [SENTENCE], ValueError, "2 gold trees and 1 parses"),
            (SENTENCE, [SENTENCE], TypeError, "one string"),
        ):
            with pytest.raises(error, match=message):
                score_trees(gold, parsed)

    def test_too_many_errors_raise_like_evalb(self):
        parameters = replace(COLLINS, max_error=2)
        assert score_trees([SENTENCE] * 3, ["(S"] * 3, parameters).overall.errors == 3
        with pytest.raises(ValueError, match=r"4 parses up to line 5 .* MAX_ERROR 2 .* line 2: the parse is malformed"):
            score_trees([SENTENCE] * 6, [SENTENCE, *["(S"] * 5], parameters)
        assert score_trees([SENTENCE] * 6, ["(S"] * 6, replace(COLLINS, max_error=None)).overall.errors == 6


def as_of_2006(line):
    """A line of sample.rsl, printed by an older EVALB, in the format of the evalb.c that also prints F-measure.

    The newer one prints zeros for the words of a sentence that it does not score. Its line of sums has all crossing
    brackets (one in the sample) in place of the sentences without any, and other spacing.
    """
    fields = line.split()
    if len(fields) == 12 and fields[2] in ("1", "2"):
        return re.sub(r" 4     0     0\.00$", " 0     0     0.00", line)
    return re.sub(r" {5}86 {5}98 {3}95 {5}16 ", "     86    98    95      1 ", line)


class TestAgainstEvalbItself:
    """On the files that come with EVALB: its sample, in the public domain, lies here; the rest is treebank text."""

    SAMPLE = Path(__file__).with_name("evalb_sample")

    @staticmethod
    def trees(path):
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")

    def test_sample_table_equals_evalbs(self):
        parameters = EvalbParameters.from_file(self.SAMPLE / "sample.prm")
        gold, parsed = (self.trees(self.SAMPLE / f"sample.{kind}") for kind in ("gld", "tst"))
        table = evalb_table(score_trees(gold, parsed, parameters))
        older = (self.SAMPLE / "sample.rsl").read_text(encoding="utf-8").splitlines()
        expected = list(map(as_of_2006, older))
        # These differ: seven errors and skips, and the sums.
        assert sum(one != other for one, other in zip(expected, older, strict=True)) == 8
        # Equal down to the spaces.
        assert [line for line in table.splitlines() if "FMeasure" not in line] == expected
        assert re.findall(r"FMeasure += +([\d.]+)", table) == ["89.12", "83.20"]  # from 86, 98, 95 and 52, 64, 61

    def test_bug_sample_table_equals_evalbs(self, shared):
        sample = shared / "metric_refs" / "evalb_sample"
        table = evalb_table(score_trees(self.trees(sample / "bug.gld"), self.trees(sample / "bug.tst"), NEW))
        # That file does not sum the crossing brackets of its five sentences: 5, 2, 4, 8 and 17.
        expected = (sample / "bug.rsl-new").read_text(encoding="utf-8")
        expected = expected.replace("123      0    161", "123     36    161")
        # Column widths differ between versions of EVALB.
        assert [line.split() for line in table.splitlines()] == [line.split() for line in expected.splitlines()]

    def test_table_handles_no_scores_and_crossing_brackets(self):
        lines = evalb_table(score_trees([SENTENCE], [""])).splitlines()
        # As evalb.c prints it if there are no brackets: no words, and only the sums of tags.
        assert lines[3] == "   1    5    2    0.00   0.00     0      0    0      0      0     0     0.00"
        assert lines[5:7] == ["      0     0     0.00", "=== Summary ==="]
        # All crossing brackets are summed.
        gold, parsed = "(S (A (X a) (X b)) (B (X c) (X d)))", "(S (X a) (C (D (X b) (X c)) (X d)))"
        [sums] = evalb_table(score_trees([gold] * 3, [parsed] * 3)).splitlines()[7:8]
        assert sums.split() == ["33.33", "33.33", "3", "9", "9", "6", "12", "12", "100.00"]

    def test_built_in_parameters_equal_collins_prm(self, shared):
        assert EvalbParameters.from_file(shared / "metric_refs" / "evalb_sample" / "COLLINS.prm") == COLLINS


LABELS = st.sampled_from(["S", "NP-SBJ", "NP", "ADVP", "PRT", "TOP", "VP=2", ""])
TAGS = st.sampled_from(["NN", "VB", ",", "-NONE-", "''", "POS"])


@st.composite
def trees_over(draw, words):
    """A bracketed tree over tagged words: neighbours are joined until one constituent is left."""
    constituents = list(words)
    while len(constituents) > 1:
        start = draw(st.integers(0, len(constituents) - 2))
        end = draw(st.integers(start + 2, len(constituents)))
        constituents[start:end] = [Tree(draw(LABELS), tuple(constituents[start:end]))]
    return str(Tree("TOP", tuple(constituents)))


@st.composite
def pairs_of_trees(draw):
    tags = draw(st.lists(TAGS, min_size=1, max_size=8))
    words = [Tree(tag, word=draw(st.sampled_from("ab'"))) for tag in tags]
    return draw(trees_over(words)), draw(trees_over(words))


PAIRS = pairs_of_trees()
PARAMETERS = st.sampled_from([COLLINS, PLAIN, NEW])


class TestProperties:
    @settings(deadline=None)
    @given(PAIRS, PARAMETERS)
    def test_tree_scores_perfectly_against_itself(self, pair, parameters):
        found = score_trees([pair[0]], [pair[0]], parameters)
        [sentence] = found.sentences
        assert sentence.matched == sentence.gold == sentence.parsed
        assert sentence.crossing == 0
        if sentence.gold:
            assert (found.overall.f1, found.overall.complete_match, sentence.tag_accuracy) == (100, 100, 100)
        else:
            assert sentence.status == Status.SKIPPED or sentence.recall == 0

    @settings(deadline=None)
    @given(PAIRS, PARAMETERS)
    def test_swapping_sides_swaps_precision_and_recall(self, pair, parameters):
        there, back = score(*pair, parameters), score(*reversed(pair), parameters)
        assert (there.matched, there.recall, there.precision) == (back.matched, back.precision, back.recall)
        assert there.status == back.status
        assert (there.crossing == 0) == (back.crossing == 0)

    @settings(deadline=None)
    @given(PAIRS)
    def test_labels_never_add_matches_and_matches_never_cross(self, pair):
        found = score(*pair, replace(COLLINS, labeled=False))
        assert brackets(*pair)[0] <= found.matched
        assert found.matched <= min(found.gold, found.parsed)
        assert found.crossing <= found.parsed - found.matched

    @settings(deadline=None)
    @given(st.lists(PAIRS | st.tuples(st.just(SENTENCE), st.sampled_from(["", "(S", SENTENCE])), min_size=1), st.data())
    def test_sentence_order_does_not_change_the_summary(self, pairs, data):
        parameters = replace(COLLINS, max_error=None, cutoff_length=4)
        shuffled = data.draw(st.permutations(pairs))
        one, other = (score_trees(*zip(*each, strict=True), parameters) for each in (pairs, shuffled))
        assert (one.overall, one.short) == (other.overall, other.short)
        assert one.overall.sentences == len(pairs)

    @settings(deadline=None)
    @given(st.lists(PAIRS, min_size=2, max_size=6))
    def test_summary_is_the_sum_of_its_parts(self, pairs):
        sentences = score_trees(*zip(*pairs, strict=True)).sentences
        whole, first, rest = (BracketingSummary.of(part) for part in (sentences, sentences[:1], sentences[1:]))
        assert vars(whole) == {name: vars(first)[name] + vars(rest)[name] for name in vars(whole)}
