"""Several corpora as one: pairs repeat by weight, tags go where they belong, and the order is reproducible."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice, zip_longest

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data import corpora, mixture
from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.mixture import CorpusSettings, copies_of, difference, open_mixture
from vanilla_transformer.data.prepared import load_prepared
from vanilla_transformer.data.preparing import prepare
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


SIZES = {"real": 230, "made": 145, "more": 40}
SETTINGS = [
    CorpusSettings(["real.en", "real.de"]),
    CorpusSettings("made.parquet", weight=0.5, tag="<bt>"),
    CorpusSettings("more.tsv", weight=1.5, tag="<more>", vocabulary=False),
]
COPIES = {"real": 2, "made": 1, "more": 3}
TAGS = {"made": "<bt>", "more": "<more>"}


def pairs_of(name: str) -> list[tuple[str, str]]:
    """Some sources begin with text that is spelt like a tag."""
    return [(f"{'<bt> ' * (i % 7 == 0)}{name} {i}", f"{name} {i} <bt>") for i in range(SIZES[name])]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(mixture, "UNIT_PAIRS", 10)
    monkeypatch.setattr(corpora, "ROWS_PER_UNIT", 20)
    for side, language in enumerate(("en", "de")):
        (tmp_path / f"real.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs_of("real")))
    (tmp_path / "more.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs_of("more")))
    rows = Dataset.from_list([dict(zip(("en", "de"), pair, strict=True)) for pair in pairs_of("made")])
    rows.to_parquet(tmp_path / "made.parquet", batch_size=10)
    return tmp_path


def opened(folder, settings=SETTINGS, **options):
    return open_mixture(settings, "en", "de", folder=folder, **options)


def vocabulary(mixed):
    texts = (text for pair in mixed.texts() for text in pair)
    return learn_tokenizer(texts, TokenizerSettings(vocab_size=300), tags=mixed.tags)


def batches(mixed, tokenizer, **choices):
    return TokenBatchStream(mixed, tokenizer, 200, **{"buffer_pairs": 100, "seed": 5, "passes": 2, **choices})


def as_text(batch, tokenizer):
    """(tag, source, target) of each pair; tags are recognised by their ids."""
    tags = {len(tokenizer) - 2 + i: tag for i, tag in enumerate(("<bt>", "<more>"))}
    for row in batch:
        source, target = row["input_ids"].tolist(), row["labels"].tolist()
        tag = tags.get(source[0])
        assert not tags.keys() & {*source[1:], *target}  # only in front
        yield tag, tokenizer.decode(source, skip_special_tokens=True), tokenizer.decode(target[:-1])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("world_size", [1, 2])
def test_each_pair_repeats_according_to_its_weight(folder, stream, world_size):
    tokenizer = vocabulary(opened(folder, stream=stream))
    found: Counter = Counter()
    for rank in range(world_size):
        of_process = batches(opened(folder, stream=stream), tokenizer, rank=rank, world_size=world_size)
        found.update(pair for batch in of_process for pair in as_text(batch, tokenizer))
    expected = {(TAGS.get(name), *pair): 2 * COPIES[name] for name in SIZES for pair in pairs_of(name)}  # two passes
    assert found == expected


def test_order_follows_the_seed_and_resumes_anywhere(folder):
    tokenizer = vocabulary(opened(folder))

    def order(**choices):
        return [tuple(as_text(batch, tokenizer)) for batch in batches(opened(folder), tokenizer, **choices)]

    whole = order()
    assert whole == order(readers=1)
    assert whole != order(seed=6)
    assert len({tag for batch in whole[:12] for tag, _, _ in batch}) == 3  # a pool mixes all corpora
    for stop in range(0, len(whole), 7):
        before = batches(opened(folder), tokenizer)
        iterator = iter(before)
        found = [tuple(as_text(batch, tokenizer)) for batch in islice(iterator, stop)]
        after = batches(opened(folder), tokenizer)
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        iterator.close()
        assert found + [tuple(as_text(batch, tokenizer)) for batch in after] == whole


def test_mixture_of_one_corpus_equals_that_corpus(folder):
    mixed = opened(folder, [CorpusSettings("more.tsv")])
    tokenizer = learn_tokenizer((text for pair in pairs_of("more") for text in pair), TokenizerSettings(vocab_size=270))
    rows = [row for batch in batches(mixed, tokenizer, passes=1) for row in batch]
    found = sorted(tuple(tokenizer.decode(row[side][:-1]) for side in ("input_ids", "labels")) for row in rows)
    assert found == sorted(mixed.texts()) == sorted(pairs_of("more"))
    assert mixed.tags == ()


def test_vocabulary_reads_each_text_once_and_appends_tags(folder, caplog):
    mixed = opened(folder)
    turns = zip_longest(pairs_of("real"), pairs_of("made"))  # so that reading only the beginning covers both
    assert list(mixed.texts()) == [pair for both in turns for pair in both if pair is not None]
    caplog.set_level("INFO")
    tokenizer = vocabulary(mixed)
    assert caplog.messages == ["Learned a bpe vocabulary of 300 pieces, followed by the tags <bt>, <more>."]
    without = learn_tokenizer((text for pair in mixed.texts() for text in pair), TokenizerSettings(vocab_size=300))
    assert tokenizer.get_vocab() == {**without.get_vocab(), "<bt>": 300, "<more>": 301}
    with pytest.raises(ValueError, match="the vocabulary has no tag <bt>"):
        batches(mixed, without)


def test_tag_counts_towards_length_but_not_as_text(folder):
    (folder / "short.tsv").write_text("\ta\nb\tb\n")
    settings = [CorpusSettings("short.tsv", tag="<bt>")]
    tokenizer = vocabulary(opened(folder))
    for limits, kept, why in (
        (PairLimits(), 1, {"empty side": 1}),
        (PairLimits(4, 4), 1, {"empty side": 1}),
        (PairLimits(3, 4), 0, {"empty side": 1, "source over 3 tokens": 1}),
    ):
        stream = batches(opened(folder, settings), tokenizer, limits=limits, passes=1)
        length = len(tokenizer("b").input_ids) + 1
        assert length == 4
        if kept:
            assert [len(row["input_ids"]) for batch in stream for row in batch] == [length]
        else:
            with pytest.raises(ValueError, match="is left to use"):
                list(stream)
        assert stream.report.dropped == why


def test_fingerprint_depends_on_texts_weights_and_tags(folder):
    first, second, third = SETTINGS
    same = opened(folder).fingerprint
    assert opened(folder, [replace(each, weight=2 * each.weight) for each in SETTINGS]).fingerprint == same
    (folder / "real.en").rename(folder / "moved.en")
    assert opened(folder, [replace(first, corpus=["moved.en", "real.de"]), second, third]).fingerprint == same
    (folder / "moved.en").rename(folder / "real.en")
    others = [
        opened(folder, settings).fingerprint
        for settings in (
            [second, first, third],
            [first, replace(second, weight=1), third],
            [first, replace(second, tag="<other>"), third],
            [first, replace(second, vocabulary=False), third],
            [first, second],
        )
    ]
    (folder / "more.tsv").write_text((folder / "more.tsv").read_text() + "one\tmore\n")
    others.append(opened(folder).fingerprint)
    assert len({same, *others}) == 7


def test_other_direction_is_a_difference(folder):
    """The fingerprint of a text does not depend on which side is the source."""
    first, *others = SETTINGS
    reversed_too = replace(first, source_language="de", target_language="en")
    before, now = (opened(folder, [each, *others]).identity for each in (first, reversed_too))
    assert difference(json.loads(json.dumps(before)), now) == "data from en to de, not from de to en"
    before, now = (opened(folder, [*others, each]).identity for each in (first, reversed_too))
    assert difference(json.loads(json.dumps(before)), now) == "data.train[2] from en to de, not from de to en"
    assert difference(json.loads(json.dumps(before)), before) is None


def test_prepared_mixture_may_move_and_have_several_source_languages(folder):
    first, second, _ = SETTINGS
    (folder / "moved").mkdir()
    for name in ("real.en", "real.de", "made.parquet"):
        shutil.copy(folder / name, folder / "moved")
    settings = [replace(first, source_language="fr"), second]
    (folder / "real.en").rename(folder / "real.fr")
    (folder / "moved" / "real.en").rename(folder / "moved" / "real.fr")
    settings[0] = replace(settings[0], corpus=["real.fr", "real.de"])
    vocabulary = TokenizerSettings(vocab_size=300)
    found = []
    for place in (folder, folder / "moved"):
        made = opened(place, settings, stream=True)  # the second time the folder is complete
        found.append(prepare(made, vocabulary, folder / "prepared", limits=PairLimits(), workers=1))
        prepare(opened(place, settings, stream=True), vocabulary, place / "apart", limits=PairLimits(), workers=1)
        prepared = load_prepared(place / "apart")
        prepared.check("it", ["en", "de"], PairLimits(), vocabulary, 0)
        found.append(prepared.fingerprint)
    assert found[:2] == found[2:]
    with pytest.raises(ValueError, match=r"with the languages \['fr', 'de'\], and the recipe has \['es', 'de'\]"):
        prepared.check("it", ["es", "de"], PairLimits(), vocabulary, 0)


def test_missing_tag_leaves_no_folder_behind(folder):
    mixed = opened(folder, stream=True)
    tokenizer = learn_tokenizer((text for pair in mixed.texts() for text in pair), TokenizerSettings(vocab_size=300))
    with pytest.raises(ValueError, match="has no tag <bt>"):
        prepare(mixed, tokenizer, folder / "prepared", workers=1)
    prepare(opened(folder, stream=True), vocabulary(mixed), folder / "prepared", workers=1)


def test_prepared_mixture_has_the_rows_of_one_pass(folder):
    report = prepare(opened(folder, stream=True), TokenizerSettings(vocab_size=300), folder / "prepared", workers=1)
    prepared = load_prepared(folder / "prepared")
    assert report.kept == len(prepared.rows) == sum(COPIES[name] * SIZES[name] for name in SIZES)
    found = Counter(as_text(prepared.rows.with_format("numpy"), prepared.tokenizer))
    assert found == {(TAGS.get(name), *pair): COPIES[name] for name in SIZES for pair in pairs_of(name)}


def test_copies_match_the_ratio_of_weights():
    for weights, copies in (
        ([1], [1]),
        ([7.5], [1]),
        ([1, 0.5], [2, 1]),
        ([1, 1, 1], [1, 1, 1]),
        ([0.1, 0.2, 0.3], [1, 2, 3]),
        ([1, 0.333], [3, 1]),
        ([3, 2, 1.5], [6, 4, 3]),
        ([100, 1], [100, 1]),
    ):
        assert copies_of(weights) == copies
    for weights in ([102, 1], [1, 0.001], [1, 0.006], [1 / 7, 1 / 11, 1 / 13], [1e300, 1e-300]):
        with pytest.raises(ValueError, match=r"data.train: the weights .* are not a ratio of whole numbers up to 100"):
            copies_of(weights)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=3), st.sampled_from([0.001, 0.3, 1, 1e6]))
def test_whole_number_ratios_are_recovered_at_any_scale(numbers, scale):
    copies = copies_of([number * scale for number in numbers])
    assert {Fraction(a, b) for a, b in zip(copies, numbers, strict=True)} == {Fraction(copies[0], numbers[0])}
