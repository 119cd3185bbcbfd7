"""Input lines: blocks, lines that arrive one by one, pieces, and warnings about words unknown to the model."""

import itertools
import queue

import pytest
from tokenizers import normalizers

from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.translation.lines import (
    Pieces,
    UnknownWordsWarnings,
    as_they_come,
    in_blocks,
    in_pieces,
)


def test_blocks_keep_all_lines_in_order():
    assert list(in_blocks(iter("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(in_blocks([], 2)) == []
    found = list(as_they_come([str(i) for i in range(1000)], 100))  # all lines are there already
    assert list(itertools.chain(*found)) == [str(i) for i in range(1000)]
    assert max(map(len, found)) <= 100


def test_a_line_is_not_held_back_for_the_next():
    lines = queue.Queue()
    blocks = as_they_come(iter(lines.get, None), 3)
    for line in ("one", "two"):
        lines.put(line)
        assert next(blocks) == [line]
    for line in ("three", None):
        lines.put(line)
    assert list(blocks) == [["three"]]


def test_lines_are_read_lazily_and_errors_in_order():
    read = []

    def endless():
        for i in itertools.count():
            read.append(i)
            yield str(i)

    blocks = as_they_come(endless(), 10)
    next(blocks)
    next(blocks)
    assert len(read) < 100  # of an endless stream

    def bad():
        yield "good"
        raise ValueError("line 2 is bad")

    blocks = as_they_come(bad())
    assert next(blocks) == ["good"]
    with pytest.raises(ValueError, match="line 2 is bad"):
        next(blocks)


@pytest.mark.parametrize(
    "text", ["One two. Three four five! Six?", "word " * 50, "x" * 99, "猫は寝る。犬は走る。" * 5, "a"]
)
def test_pieces_are_short_and_nothing_is_lost(text):
    for longest in (1, 2, 7, 30, 1000):
        pieces = in_pieces(text, len, longest)
        assert "".join("".join(pieces).split()) == "".join(text.split())
        assert all(0 < len(piece) <= longest or piece == text for piece in pieces)


def test_text_is_cut_at_sentence_end_or_space():
    for text, longest, pieces in (
        ('He said "no." And she went. Then they sang.', 30, ['He said "no."', "And she went. Then they sang."]),
        ("猫は寝る。犬は走る。", 6, ["猫は寝る。", "犬は走る。"]),
        ("one two three four", 12, ["one two", "three four"]),
        ("abcdef", 3, ["abc", "def"]),
        ("वह घर गया। बच्चा सो गया।", 14, ["वह घर गया।", "बच्चा सो गया।"]),
        ("أين أنت؟ أنا هنا.", 10, ["أين أنت؟", "أنا هنا."]),
        ("猫が寝て、犬が走る", 6, ["猫が寝て、", "犬が走る"]),
        ("กินที่นี่", 6, ["กิน", "ที่นี่"]),  # the middle is a combining mark
    ):
        assert in_pieces(text, len, longest) == pieces


def warned(caplog, lines, unknown=lambda line: [word for word in line.split() if word.isupper()]) -> list[str]:
    caplog.clear()
    warnings = UnknownWordsWarnings(unknown)
    for line in lines:
        warnings.look_at(line)
    warnings.sum_up()
    return [record.getMessage() for record in caplog.records]


def test_line_with_unknown_words_is_warned_about_once(caplog):
    named = warned(caplog, ["a b", "a HERE b THERE", "", "X"])
    assert named == [
        'Line 2: the model has not learned "HERE", "THERE": the translation may be wrong.',
        'Line 4: the model has not learned "X": the translation may be wrong.',
    ]
    [named] = warned(caplog, [" ".join(f"W{n}" for n in range(1000)), "a"])
    assert named.endswith('"W7" and 992 more: the translation may be wrong.')
    [named] = warned(caplog, ["X" * 10_000])
    assert len(named) < 150
    [named] = warned(caplog, ["\x1b[31mRED"], unknown=lambda line: [line])
    assert r"'\x1b[31mRED'" in named  # a word cannot control the terminal


def test_many_lines_with_unknown_words_are_counted(caplog):
    named = warned(caplog, (word for n in range(50_000) for word in ("a", "HERE")))
    assert len(named) == 22
    assert named[19].startswith("Line 40: ")
    assert named[20] == "Further lines with words that the model has not learned are only counted."
    assert named[21].startswith("50,000 of 100,000 lines have words that the model has not learned")
    assert len(warned(caplog, ["HERE"] * 20)) == 21  # no summary, because there were no more


def test_piece_is_short_enough_after_normalization():
    """A sign of three bytes may become eighteen letters, and then more tokens than bytes."""
    for form, sign in (("NFKC", "\ufdfa"), ("NFC", "\u0958")):
        tokenizer = learn_tokenizer(["a b"], TokenizerSettings(vocab_size=260))
        tokenizer.backend_tokenizer.normalizer = getattr(normalizers, form)()
        pieces = Pieces(tokenizer, None, 64)(f"{sign * 10} {sign * 10}")
        assert len(pieces) > 1
        assert max(len(tokenizer(piece).input_ids) for piece in pieces) <= 64
