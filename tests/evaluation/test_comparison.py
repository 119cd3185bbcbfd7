"""Where systems differ, worked out by hand on a few sentences."""

import pytest
import sacrebleu

from vanilla_transformer.evaluation.comparison import (
    frequency_groups,
    largest_differences,
    length_groups,
    scores_by_group,
)


REFERENCES = ["the cat sat on the mat", "a dog ran", "birds sing in the old trees", "it rains"]
SYSTEMS = {
    "first": ["the cat sat on the mat", "a cat ran", "birds sing in the trees", "it rains"],
    "second": ["the cat sat on a mat", "a dog ran", "fish swim", "it rains"],
}


class TestLargestDifferences:
    def test_gains_first_then_losses_by_size(self):
        found = largest_differences(SYSTEMS, [REFERENCES], "chrf", target_language="en")
        assert list(found) == ["second"]
        assert [each.segment for each in found["second"]] == [2, 3, 1]  # the gain, then the larger and smaller loss
        gain = found["second"][0]
        assert gain.values["second"] == pytest.approx(100)
        assert gain.values["first"] == sacrebleu.sentence_chrf("a cat ran", ["a dog ran"]).score

    def test_count_limits_gains_and_losses(self):
        for metric, count, segments in (("chrf", 1, [2, 3]), ("chrf", 0, []), ("ter", 1, [2, 3])):  # TER: low is good
            found = largest_differences(SYSTEMS, [REFERENCES], metric, target_language="en", count=count)
            assert [each.segment for each in found["second"]] == segments


class TestGroups:
    def test_length_groups_by_hand(self):
        sources = [" ".join("w" * length) for length in (1, 2, 2, 3, 5, 8, 8, 9)]
        labels, order = length_groups(sources, groups=4)
        assert order == ["1", "2–4", "5–7", "8–9"]
        assert labels == ["1", "2–4", "2–4", "2–4", "5–7", "8–9", "8–9", "8–9"]
        assert length_groups(["a b", "c d"]) == (["2", "2"], ["2"])
        assert length_groups(["猫が寝る。", "ที่นี่"], groups=2)[0] == ["4", "2–3"]  # letters, with their marks

    def test_frequency_groups_by_hand(self):
        training = ["the cat"] * 12 + ["The dog"] * 9 + ["mat"]
        labels, order = frequency_groups(["The cat", "the DOG", "cat, mat!", "the bird", "..."], iter(training))
        assert labels == ["10–99", "1–9", "1–9", "never", "never"]
        assert order == ["never", "1–9", "10–99", "100–999", "1,000–9,999", "10,000 or more"]
        labels, _ = frequency_groups(["बच्चा", "बच्चे", "g\u0303a \u00e3"], ["बच्चा g\u0303a a\u0303"] * 12)
        assert labels == ["10–99", "never", "10–99"]

    def test_group_scores_use_only_their_sentences(self):
        groups = scores_by_group(
            SYSTEMS, [REFERENCES], "chrf", ["long", "short", "long", "short"], ["short", "middle", "long"],
            target_language="en",
        )  # fmt: skip
        assert [(each.label, each.segments) for each in groups] == [("short", 2), ("long", 2)]
        expected = sacrebleu.corpus_chrf(SYSTEMS["second"][::2], [REFERENCES[::2]]).score
        assert groups[1].values["second"] == pytest.approx(expected)
