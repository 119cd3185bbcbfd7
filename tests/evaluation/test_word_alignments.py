"""Alignments of people, and the rate of errors against them."""

import pytest

from vanilla_transformer.evaluation.word_alignments import AlignmentError, GoldAlignment, read_alignments


def test_sure_and_possible_links(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1?2 2p1  3P3\n\n10-11\n", encoding="utf-8")
    assert list(read_alignments(path)) == [
        GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2), (2, 1), (3, 3)})),
        GoldAlignment(frozenset(), frozenset()),
        GoldAlignment(frozenset({(10, 11)}), frozenset({(10, 11)})),
    ]


@pytest.mark.parametrize("link", ["1", "1-", "1-2-3", "a-b", "-1-2", "1:2", "1-٣"])
def test_anything_else_is_refused_with_its_place(tmp_path, link):
    path = tmp_path / "gold.txt"
    path.write_text(f"0-0\n0-0 {link}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"gold\.txt, line 2: .* is no link"):
        list(read_alignments(path))


def test_rate_by_hand():
    """Of A = {00, 11, 21, 32}, S = {00, 12} and P = S + {11, 32}: 1 - (1 + 3) / (4 + 2)."""
    error = AlignmentError()
    assert error.rate is None
    gold = GoldAlignment(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (1, 1), (3, 2)}))
    error.add({(0, 0), (1, 1), (2, 1), (3, 2)}, gold)
    assert error.rate == pytest.approx(1 - 4 / 6)
    error.add({(0, 0)}, GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0)})))
    assert error.rate == pytest.approx(1 - 6 / 8)  # over all sentences, not a mean of theirs


def test_best_and_worst():
    sure = frozenset({(0, 0), (1, 1)})
    for links, rate in ((set(sure), 0), ({(0, 1)}, 1), (set(), 1)):
        error = AlignmentError()
        error.add(links, GoldAlignment(sure, sure))
        assert error.rate == rate
