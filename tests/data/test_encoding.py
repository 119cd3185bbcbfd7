"""From text to ids: dropped pairs are counted by reason, and kept pairs decode to the same text."""

import copy
from functools import cache

import numpy as np
import pytest
from datasets import List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.corpora import TextCorpus
from vanilla_transformer.data.encoding import EncodingReport, PairLimits, encode_pairs
from vanilla_transformer.data.tokenizer import EOS_ID, TokenizerSettings, learn_tokenizer


@cache
def bytes_tokenizer():
    """One token per byte, plus the leading blank and `</s>`, so that lengths can be counted by hand."""
    return learn_tokenizer(["x"], TokenizerSettings(vocab_size=260))


def encode(*pairs, limits=None):
    return TextCorpus("made up", list(pairs), {"languages": ["en", "de"]}).encoded(bytes_tokenizer(), limits)


def test_ids_end_with_eos_and_decode_to_the_text():
    encoded, _ = encode(("Two dogs.", "Zwei Hunde – größer!"))
    row = encoded[0]
    assert row["input_ids"][-1] == row["labels"][-1] == EOS_ID
    assert bytes_tokenizer().decode(row["input_ids"], skip_special_tokens=True) == "Two dogs."
    assert bytes_tokenizer().decode(row["labels"], skip_special_tokens=True) == "Zwei Hunde – größer!"
    assert encoded.features == {"input_ids": List(Value("int32")), "labels": List(Value("int32"))}


# Lengths are bytes + 2: "abc" has five tokens, including the leading blank and </s>.
@pytest.mark.parametrize(
    ("pair", "limits", "reason"),
    [
        (("abc", "abc"), PairLimits(5, 5), None),
        (("abcd", "abc"), PairLimits(5, 9), "source over 5 tokens"),
        (("abc", "abcd"), PairLimits(9, 5), "target over 5 tokens"),
        (("abcdefgh", "abc"), PairLimits(max_length_ratio=2), None),
        (("abcdefghi", "abc"), PairLimits(max_length_ratio=2), "length ratio over 2"),
        (("abc", "abcdefghi"), PairLimits(max_length_ratio=2), "length ratio over 2"),
        (("", "abc"), PairLimits(), "empty side"),
        (("abc", " \t\u3000"), PairLimits(), "empty side"),
    ],
)
def test_pair_is_dropped_only_beyond_its_limit(pair, limits, reason):
    encoded, report = encode(("ok", "ok"), pair, limits=limits)
    assert report.dropped == ({} if reason is None else {reason: 1})
    assert len(encoded) == 1 + (reason is None)


def test_without_limits_every_pair_is_kept():
    # A test set must keep every pair, even empty and very long ones.
    encoded, report = encode(("", ""), ("a", "b" * 2000), (" ", "c"))
    assert report.kept == len(encoded) == 3
    assert report.dropped == {}


def test_report_reads_well_and_appears_in_errors():
    report = EncodingReport(1200, 1000, {"empty side": 150, "source over 9 tokens": 50}, 5000, 6000)
    assert str(report) == (
        "1,000 of 1,200 pairs kept (5,000 source and 6,000 target tokens); dropped: 150 empty side; "
        "50 source over 9 tokens"
    )
    with pytest.raises(ValueError, match=r"No pair is left to use: 0 of 2 pairs kept .* dropped: 2 empty side"):
        encode(("", "a"), ("b", " "), limits=PairLimits())


text = st.text("abé ", max_size=8)
limit = st.integers(2, 12)


special = ["</s>", "a <pad></s> b", "<s><unk>", " </s> ", "  blanks around \u00a0", "\tare no text\u2028"]
any_text = st.text() | st.text("ab <>/spdnku") | st.sampled_from(special)


@pytest.mark.parametrize("special_tokens_are_text", [True, False])
@settings(deadline=None, max_examples=100)
@given(texts=st.lists(any_text, min_size=1, max_size=6))
def test_ids_equal_those_of_the_tokenizer(special_tokens_are_text, texts):
    tokenizer = copy.deepcopy(bytes_tokenizer())
    tokenizer.split_special_tokens = special_tokens_are_text
    copied = copy.deepcopy(tokenizer)  # copying makes the backend forget the setting
    sources, targets, _ = encode_pairs(copied, [(text, text[::-1]) for text in texts])
    assert [ids.tolist() for ids in sources] == tokenizer([text.strip() for text in texts]).input_ids
    assert [ids.tolist() for ids in targets] == tokenizer([text[::-1].strip() for text in texts]).input_ids
    assert {ids.dtype for ids in sources + targets} == {np.dtype("int32")}


def test_earlier_padding_and_truncation_settings_are_ignored():
    tokenizer = copy.deepcopy(bytes_tokenizer())
    tokenizer(["a", "b" * 9], padding=True, truncation=True, max_length=4)
    [first, second], _, _ = encode_pairs(tokenizer, [("a", "a"), ("b" * 9, "b")])
    assert (len(first), len(second)) == (3, 11)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(text, text), min_size=1, max_size=12),
    st.builds(PairLimits, limit, limit, st.none() | st.floats(1, 4)),
)
def test_exactly_the_forbidden_pairs_are_dropped_and_counted(pairs, limits):
    def tokens(side):
        return len(side.strip().encode()) + 2 if side.strip() else 1

    def fits(source, target):
        longer, shorter = max(source, target), min(source, target)
        ratio = limits.max_length_ratio is None or longer <= limits.max_length_ratio * shorter
        return shorter > 1 and source <= limits.max_source_length and target <= limits.max_target_length and ratio

    lengths = [(tokens(source), tokens(target)) for source, target in pairs]
    kept = [pair for pair in lengths if fits(*pair)]
    if not kept:
        with pytest.raises(ValueError, match="No pair is left"):
            encode(*pairs, limits=limits)
        return
    encoded, report = encode(*pairs, limits=limits)
    assert [(len(row["input_ids"]), len(row["labels"])) for row in encoded] == kept
    assert (report.pairs, report.kept) == (len(pairs), len(kept))
    assert report.kept + sum(report.dropped.values()) == report.pairs
    assert (report.source_tokens, report.target_tokens) == tuple(map(sum, zip(*kept, strict=True)))
