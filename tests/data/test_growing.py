"""Growing a vocabulary: it learns the right merges, and text without new pieces is segmented as before."""

from itertools import islice

import pytest
from tokenizers import Tokenizer

from vanilla_transformer.data.growing import grow_tokenizer, parts_of
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer, load_tokenizer


OLD = [row["en"] for row in islice(phrasebook("train"), 200)]


def grown(folder, new, growth, *, old=OLD, **settings):
    """A tokenizer learned from old text, the same tokenizer grown, and its new pieces."""
    tags = settings.pop("tags", ())
    before = learn_tokenizer(old, TokenizerSettings(**{"vocab_size": 300, **settings}), tags=tags)
    before.save_pretrained(folder)
    pieces = grow_tokenizer(folder, new, growth)
    return before, load_tokenizer(folder), pieces


def test_new_merges_continue_after_the_old_ones(tmp_path):
    new = ["zyzy"] * 5 + ["qqzyzy"] * 3  # z y occurs 16 times, then zy zy 8 times; q q wins its tie
    before, after, pieces = grown(tmp_path, new, 4)
    assert pieces == ["zy", "zyzy", "Ġzyzy", "qq"]
    first = len(before)
    assert after.convert_tokens_to_ids(pieces) == [first, first + 1, first + 2, first + 3]
    assert after.tokenize("zyzy qqzyzy zy") == ["Ġzyzy", "Ġ", "qq", "zyzy", "Ġ", "zy"]
    old = before.get_vocab()
    parts = parts_of(before.backend_tokenizer, pieces)
    assert parts[0] == [old["z"], old["y"]]
    assert parts[2] == [old["Ġ"], old["z"], old["y"], old["z"], old["y"]]


def test_growing_from_bytes_matches_learning_from_scratch(tmp_path):
    """Both start from single bytes and read the same text."""
    _, after, pieces = grown(tmp_path, OLD, 90, old=["x"], vocab_size=260)
    whole = learn_tokenizer(OLD, TokenizerSettings(vocab_size=350))
    assert pieces == whole.convert_ids_to_tokens(range(260, 350))
    assert [after.tokenize(text) for text in OLD] == [whole.tokenize(text) for text in OLD]


def test_text_without_new_pieces_keeps_its_ids(tmp_path):
    new = [row["de"] for row in islice(phrasebook("train"), 300)]
    before, after, pieces = grown(tmp_path, new, 80, tags=["<bt>"])
    assert len(pieces) == 80
    assert len(after) == len(before) + 80 == len(set(after.get_vocab().values()))
    assert before.get_vocab().items() < after.get_vocab().items()
    assert after.get_added_vocab() == before.get_added_vocab()  # so does the tag after the old pieces
    kept = 0
    for text in [*OLD, *new, "<bt> </s> 日本\tü"]:
        ids = after(text).input_ids
        assert after.decode(ids[:-1]) == text
        if max(ids) < len(before):
            assert ids == before(text).input_ids
            kept += 1
    assert kept > 20
    total = [sum(len(tokenizer(text).input_ids) for text in new) for tokenizer in (before, after)]
    assert total[1] < 0.7 * total[0]


def test_auto_growth_stops_at_rare_pieces(tmp_path):
    _, _, pieces = grown(tmp_path, ["zyw"] * 99 + ["qv"] * 100, "auto")
    assert pieces == ["qv", "Ġqv"]


def test_file_does_not_depend_on_text_order(tmp_path):
    new = [row["de"] for row in islice(phrasebook("train"), 300)]
    files = []
    for number, texts in enumerate((new, new[::-1])):
        grown(tmp_path / str(number), texts, 50)
        files.append((tmp_path / str(number) / "tokenizer.json").read_bytes())
    assert files[0] == files[1]
    Tokenizer.from_str(files[0].decode())


def test_invalid_tokenizer_or_growth_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"of the kind WordPiece.*set grow_vocabulary to 0"):
        grown(tmp_path, ["zyzy"], 5, kind="wordpiece", vocab_size=560)
    for growth in (-1, "much"):
        with pytest.raises(ValueError, match=f"grow_vocabulary is {growth!r}; choose a number of pieces, 'auto'"):
            grow_tokenizer(tmp_path, [], growth)
