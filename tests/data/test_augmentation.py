"""Augmentation applies each form at its share, changes only the sides that form changes, and keeps tags and limits."""

import copy
from collections import Counter

import numpy as np
import pytest

from vanilla_transformer.data.augmentation import Augmentation
from vanilla_transformer.data.forms import FORMS
from vanilla_transformer.data.languages import tag_ids
from vanilla_transformer.data.tokenizer import TokenizerSettings, ids_of_tags, learn_tokenizer


TEXTS = [("The cats sleep </s> here.", "Die Kätzchen schlafen hier."), ("Two dogs, a man!", "Zwei Hunde, ein Mann!")]


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def tokenizer(request):
    texts = [side for pair in TEXTS for side in pair]
    return learn_tokenizer(
        texts, TokenizerSettings(request.param, 560 if request.param != "bpe" else 310), tags=["<bt>"]
    )


def encoded(tokenizer, pairs, tag=()):
    ids = [[tokenizer(side).input_ids for side in pair] for pair in pairs]
    return [{"input_ids": np.array([*tag, *source]), "labels": target} for source, target in ids]


def decoded(tokenizer, pairs):
    return [tuple(tokenizer.decode(pair[side][:-1]) for side in ("input_ids", "labels")) for pair in pairs]


def test_upper_matches_result_by_hand_and_keeps_tags(tokenizer):
    [bt] = tag_ids(tokenizer, ["<bt>"]).values()
    for tag in ((), (bt,)):
        found = Augmentation(tokenizer, {"upper": 1.0})(encoded(tokenizer, TEXTS, tag), (5,))
        expected = encoded(tokenizer, [(source.upper(), target.upper()) for source, target in TEXTS], tag)
        for pair, by_hand in zip(found, expected, strict=True):
            assert pair["input_ids"] == by_hand["input_ids"].tolist()
            assert pair["labels"] == by_hand["labels"]


def test_added_words_are_no_tags(tokenizer):
    grown = copy.deepcopy(tokenizer)
    grown.add_tokens(["Zorblax"])
    [pair] = encoded(grown, [("Zorblax runs.", "Zorblax läuft.")])
    found = decoded(grown, Augmentation(grown, {"no_end_punctuation": 1.0})([pair], (1,)))
    assert found == [("Zorblax runs", "Zorblax läuft")]
    assert ids_of_tags(grown) == ids_of_tags(tokenizer)


def test_forms_occur_in_their_shares(tokenizer):
    shares = {"upper": 0.1, "lower": 0.2, "no_end_punctuation": 0.3, "noise": 0.15}
    times = 5_000
    pairs = encoded(tokenizer, TEXTS[1:] * times)
    found = Counter(decoded(tokenizer, Augmentation(tokenizer, shares)(pairs, (3, 1))))
    source, target = TEXTS[1]
    expected = {
        (source.upper(), target.upper()): 0.1,
        (source.lower(), target): 0.2,  # the source only
        (source.rstrip("!"), target.rstrip("!")): 0.3,
        (source, target): 0.25,
    }
    for pair, share in expected.items():
        assert found.pop(pair) / times == pytest.approx(share, abs=4 * (share / times) ** 0.5)
    assert found.total() / times == pytest.approx(0.15, abs=0.02)  # with many kinds of noise
    assert len(found) > 50


def test_every_form_changes_the_sides_it_declares(tokenizer):
    for form in FORMS.values():
        found = decoded(tokenizer, Augmentation(tokenizer, {form.name: 1.0})(encoded(tokenizer, TEXTS * 20), (1,)))
        originals = TEXTS * 20
        assert (
            any(new != old for (new, _), (old, _) in zip(found, originals, strict=True)) or form.name == "no_diacritics"
        )
        assert form.both_sides == any(new != old for (_, new), (_, old) in zip(found, originals, strict=True))


def test_result_depends_on_key_not_order_of_shares(tokenizer):
    pairs, shares = encoded(tokenizer, TEXTS * 30), {"upper": 0.2, "typos": 0.3, "noise": 0.4}
    [first, again, other, swapped] = (
        decoded(tokenizer, Augmentation(tokenizer, each)(pairs, key))
        for each, key in (
            (shares, (0, 5)),
            (shares, (0, 5)),
            (shares, (1, 5)),
            (dict(reversed(shares.items())), (0, 5)),
        )
    )
    assert first == again == swapped != other


def test_pair_growing_past_its_limit_stays_unchanged(tokenizer):
    pairs = encoded(tokenizer, TEXTS * 50)
    free = Augmentation(tokenizer, {"upper": 0.7})(pairs, (1,))
    for limits in ({"max_source_length": 20}, {"max_target_length": 24}):
        limited, kept = Augmentation(tokenizer, {"upper": 0.7}, **limits)(pairs, (1,)), 0
        [[name, limit]] = limits.items()
        for pair, old, new in zip(limited, pairs, free, strict=True):
            too_long = len(new["input_ids" if name == "max_source_length" else "labels"]) > limit
            kept += too_long
            for side, ids in pair.items():
                assert list(ids) == list((old if too_long else new)[side])
        assert 0 < kept < 100


def test_unknown_form_raises_and_zero_share_is_ignored(tokenizer):
    with pytest.raises(ValueError, match="there is no form 'capitals': choose from upper"):
        Augmentation(tokenizer, {"capitals": 0.1})
    assert Augmentation(tokenizer, {"upper": 0, "title": 0.1}).identity == {"augmentation": {"title": 0.1}}
    assert Augmentation(tokenizer, {"upper": 0.5, "title": 0.3, "lower": 0.2})([], (1,)) == []


def test_each_position_draws_its_own_typos(tokenizer):
    """Identical texts next to each other get different typos."""
    found = decoded(tokenizer, Augmentation(tokenizer, {"typos": 1.0})(encoded(tokenizer, TEXTS[:1] * 50), (2,)))
    assert len({source for source, _ in found}) > 15
