"""Batches from a stream: every pair once, always in the same order, resumed exactly, in bounded memory."""

import itertools
import json
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.data.augmentation import Augmentation
from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.batching import TokenBatchSampler
from vanilla_transformer.data.corpora import PairStream, open_stream
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.subword_dropout import BPEDropout
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.hub import StreamLostError


ROWS = 40
REWRITTEN = {"augmentation": {"noise": 0.2, "upper": 0.3}, "bpe_dropout": 0.3}


def unit_of(number: int):
    """Pairs of very different lengths that say where they come from."""
    rng = np.random.default_rng(number)
    for row in range(ROWS):
        yield f"{number} {row}" + " a" * int(rng.integers(0, 30)), f"{number} {row}" + " b" * int(rng.integers(0, 30))


def made_up(units: int = 12, bounded: bool = True, **more) -> PairStream:
    return PairStream("made up", units, unit_of, {"units": units}, bounded, **more)


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer((side for pair in unit_of(0) for side in pair), TokenizerSettings(vocab_size=270))


@pytest.fixture(scope="module")
def new(tokenizer):
    def build(pairs=None, **choices):
        choices = {"buffer_pairs": 150, "seed": 3, "passes": 2, **choices}
        makes = {"augmentation": Augmentation, "bpe_dropout": BPEDropout}
        rewriters = [makes[name](tokenizer, choices.pop(name)) for name in makes if name in choices]
        stream = TokenBatchStream(pairs or made_up(), tokenizer, choices.pop("max_tokens", 200), **choices)
        stream.rewriters = rewriters
        return stream

    return build


def as_text(batch) -> tuple:
    return tuple((tuple(pair["input_ids"]), tuple(pair["labels"])) for pair in batch)


@pytest.fixture(scope="module")
def whole(new):
    return [as_text(batch) for batch in new()]


def with_stops(make, stops):
    """The batches of a stream that stops after each of these counts and is resumed in a new one; and the last one."""
    found, state = [], None
    for stop in [*stops, None]:
        stream = make()
        if state is not None:
            stream.load_state_dict(json.loads(state))
        batches = iter(stream)
        found += map(as_text, itertools.islice(batches, stop))
        state = json.dumps(stream.state_dict())
        batches.close()
        assert len(state) < 1000
    return found, stream


def test_no_batch_is_over_its_budget(whole):
    for batch in whole:
        for side in (0, 1):
            assert len(batch) * max(len(pair[side]) for pair in batch) <= 200


def test_order_differs_between_passes_seeds_and_pools(new, whole):
    assert whole == [as_text(batch) for batch in new()]
    half = len(whole) // 2
    assert set(whole[:half]) != set(whole[half:])
    assert whole != [as_text(batch) for batch in new(seed=4)]
    first_of_each = [batch[0] for batch in whole[:8]]
    assert len({len(pair[1]) for pair in first_of_each}) > 4  # not sorted by length, as within a pool


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("readers", [1, 7])
def test_the_number_of_readers_changes_nothing(new, whole, readers, bounded):
    assert [as_text(batch) for batch in new(made_up(bounded=bounded), readers=readers)] == whole


@pytest.fixture(scope="module")
def dropped(new):
    return [as_text(batch) for batch in new(bpe_dropout=0.3)]


@pytest.fixture(scope="module")
def rewritten(new):
    return [as_text(batch) for batch in new(**REWRITTEN)]


def test_rewriting_differs_by_pass_and_dropout_keeps_texts(new, tokenizer, whole, dropped, rewritten):
    def texts(batches):
        return sorted(tokenizer.decode(ids) for batch in batches for pair in batch for ids in pair)

    assert texts(dropped) == texts(whole)
    changed = Counter(texts(rewritten)) - Counter(texts(whole))
    assert 0.3 < changed.total() / len(texts(whole)) < 0.6
    assert any("A" in text for text in changed)
    for choices, found in (({"bpe_dropout": 0.3}, dropped), (REWRITTEN, rewritten)):
        assert len(found) == len(whole)
        pairs = list(itertools.chain(*found))
        first, second = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
        assert Counter(first) != Counter(second)
        assert [as_text(batch) for batch in new(**choices)] == found
        assert [as_text(batch) for batch in new(**choices, rank=1, world_size=2)] != found


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_stream_stopped_anywhere_repeatedly_resumes_exactly(new, whole, dropped, rewritten, data):
    cases = ({}, whole), ({"bpe_dropout": 0.3}, dropped), (REWRITTEN, rewritten)
    choices, expected = data.draw(st.sampled_from(cases))
    stops = data.draw(st.lists(st.integers(0, len(whole) // 3), min_size=1, max_size=3))
    found, last = with_stops(lambda: new(readers=data.draw(st.integers(1, 3)), **choices), stops)
    assert found == expected
    assert last.report.pairs == 2 * 12 * ROWS


def test_passes_done_is_exact_and_survives_resuming(new):
    # A pool has 150 pairs, and nothing is dropped: in every pass pools end after 150, 300, 450 and 480.
    ends = [*range(150, 480, 150), *range(480, 960, 150), 960]
    for pairs, at_ends in (
        (12 * ROWS, [pairs / 480 for pairs in ends]),
        (None, [(pairs // 480) + (pairs % 480 - 1) // ROWS / 12 if pairs % 480 else pairs / 480 for pairs in ends]),
    ):
        stream, given, passes = new(made_up(pairs=pairs)), 0, {}
        for batch in stream:
            given += len(batch)
            passes[given] = stream.passes_done
        assert [passes[pairs] for pairs in ends] == pytest.approx(at_ends)
        assert sorted(passes.values()) == [*passes.values()]
        first = new(made_up(pairs=pairs))
        for _ in zip(range(len(passes) // 3), first, strict=False):
            state = first.state_dict()
        resumed = new(made_up(pairs=pairs))
        resumed.load_state_dict(state)
        assert [resumed.passes_done for _ in resumed] == [*passes.values()][len(passes) // 3 :]


def corpora():
    """Units of pairs that are all different, with sides of any length; some units are empty."""
    length = st.integers(0, 40)
    return st.lists(st.lists(st.tuples(length, length), max_size=12), max_size=6).map(
        lambda units: [
            [(f"{u} {r}{' a' * source}", f"{u} {r}{' b' * target}") for r, (source, target) in enumerate(unit)]
            for u, unit in enumerate(units)
        ]
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data(), units=corpora(), bounded=st.booleans())
def test_any_corpus_stopped_anywhere_resumes_exactly(tokenizer, new, data, units, bounded):
    """Every pair comes once per pass for any corpus, buffer and number of processes, with or without stops."""
    stream = PairStream("any", len(units), lambda unit: iter(units[unit]), {"units": len(units)}, bounded)
    world_size = data.draw(st.integers(1, 3), label="processes")
    choices = {
        "buffer_pairs": data.draw(st.sampled_from([1, 2, 5, 12, 100]), label="buffer"),
        "max_tokens": data.draw(st.sampled_from([90, 400]), label="tokens"),
        "limits": data.draw(st.sampled_from([None, PairLimits(20, 30), PairLimits(90, 90, 1.5)]), label="limits"),
        "seed": data.draw(st.integers(0, 3), label="seed"),
        "passes": 2,
        "world_size": world_size,
    }
    whole = {}
    for rank in range(world_size):
        unbroken = new(stream, rank=rank, **choices)
        try:
            whole[rank] = [as_text(batch) for batch in unbroken]
        except ValueError:  # nothing usable is left in its share
            if unbroken.report.kept:
                raise
            whole[rank] = []
    kept = Counter()
    for pair in itertools.chain(*units):
        ids = tuple(tuple(tokenizer(side).input_ids) for side in pair)
        if choices["limits"] is None or choices["limits"].reason_to_drop(*map(len, ids)) is None:
            kept[ids] += 2
    assert Counter(itertools.chain(*itertools.chain(*whole.values()))) == kept

    rank = data.draw(st.integers(0, world_size - 1), label="process")
    if not whole[rank]:
        return
    places = sorted(data.draw(st.lists(st.integers(0, len(whole[rank])), max_size=4), label="places"))
    stops = [end - begin for begin, end in itertools.pairwise([0, *places])]
    found, _ = with_stops(lambda: new(stream, rank=rank, readers=data.draw(st.integers(1, 3)), **choices), stops)
    assert found == whole[rank]


@pytest.mark.parametrize("bounded", [True, False])
def test_bad_pairs_raise_and_leave_no_threads(new, tmp_path, bounded):
    rows = [{"en": f"a {n}", "de": f"b {n}"} for n in range(2000)]
    rows[1234]["de"] = None
    Dataset.from_list(rows).to_parquet(tmp_path / "c.parquet", batch_size=10)
    stream = replace(open_stream("c.parquet", "en", "de", folder=tmp_path), bounded=bounded)
    before = threading.active_count()
    with pytest.raises(ValueError, match=r"c.parquet, row 1235 has no text for 'de'"):
        list(new(stream))
    with pytest.raises(ValueError, match="more than max_tokens = 10 allows"):
        list(new(max_tokens=10))
    assert threading.active_count() == before


def test_invalid_files_and_languages_raise_on_opening(tmp_path):
    (tmp_path / "c.en").write_text("one\n")
    for missing in (["c.en", "c.de"], ["c.de", "c.en"], "c.tsv", "c.parquet"):
        with pytest.raises(FileNotFoundError, match=r"c\."):
            open_stream(missing, "en", "de", folder=tmp_path)
    with pytest.raises(ValueError, match="as source and as target"):
        open_stream(["c.en", "c.en"], "en", "de", folder=tmp_path)
    with pytest.raises(ValueError, match="are both 'en'"):
        open_stream(["c.en", "c.de"], "en", "en", folder=tmp_path)


def test_state_distinguishes_files_of_equal_name_and_size(new, tmp_path):
    states = []
    for text in ("one\ntwo\n", "one\nTWO\n", "one\ntwo\n"):
        for language in ("en", "de"):
            (tmp_path / f"c.{language}").write_text(f"{language} {text}")
        stream = new(open_stream(["c.en", "c.de"], "en", "de", folder=tmp_path))
        states.append(stream.state_dict())
        stream.load_state_dict(states[0]) if len(states) != 2 else None
    assert states[0] == states[2] != states[1]
    with pytest.raises(ValueError, match="cannot go on from where it was: corpus was"):
        new(stream.pairs).load_state_dict(states[1])


def test_resuming_does_not_reread_the_corpus(new):
    read = []

    def counted(number):
        for pair in unit_of(number):
            read.append(pair)
            yield pair

    pairs = PairStream("counted", 100, counted, {}, bounded=False)
    stream = new(pairs, passes=1)
    batches = iter(stream)
    for _ in itertools.takewhile(lambda _: stream.report.pairs < 3000, batches):
        pass
    state = stream.state_dict()
    batches.close()
    read.clear()
    again = new(pairs, passes=1)
    again.load_state_dict(state)
    next(batches := iter(again))
    batches.close()
    assert len(read) <= 2 * (150 + ROWS)  # this pool, the next one, and the start of the units they begin in


@pytest.mark.parametrize(("units", "world_size"), [(90, 3), (90, 4), (5, 2), (1, 3)])
def test_each_pair_belongs_to_one_process(new, units, world_size):
    shares = [
        list(itertools.chain(*map(as_text, new(made_up(units), rank=rank, world_size=world_size, passes=1))))
        for rank in range(world_size)
    ]
    assert Counter(itertools.chain(*shares)).most_common(1)[0][1] == 1
    assert sum(map(len, shares)) == units * ROWS
    assert max(map(len, shares)) - min(map(len, shares)) <= max(ROWS, units)


def test_process_with_its_own_units_resumes_exactly(new):
    """With many units, each process gets whole ones; only few units are shared row by row."""
    choices = {"rank": 1, "world_size": 2, "passes": 1}
    expected = [as_text(batch) for batch in new(made_up(90), **choices)]
    assert with_stops(lambda: new(made_up(90), **choices), [len(expected) // 2])[0] == expected


def test_state_of_a_different_stream_is_rejected(new, tokenizer):
    state, limits = new().state_dict(), PairLimits(50, 50)
    vocabulary = learn_tokenizer(["zebra quagga " * 9], TokenizerSettings(vocab_size=len(tokenizer)))
    choices = (
        {"seed": 4}, {"buffer_pairs": 151}, {"max_tokens": 201}, {"world_size": 2}, {"limits": limits},
        {"bpe_dropout": 0.3}, {"augmentation": {"upper": 0.1}},
    )  # fmt: skip
    others = {next(iter(choice)): new(**choice) for choice in choices}
    others["corpus"] = new(made_up(13))
    others["vocabulary"] = TokenBatchStream(made_up(), vocabulary, 200, buffer_pairs=150, seed=3)
    for what, other in others.items():
        with pytest.raises(ValueError, match=f"cannot go on from where it was: {what} was"):
            other.load_state_dict(state)
    for choice, was in (({"bpe_dropout": 0.3}, "bpe_dropout was 0.3"), (REWRITTEN, "augmentation was {'noise'")):
        with pytest.raises(ValueError, match=f"cannot go on from where it was: {was}.* and is None now"):
            new().load_state_dict(new(**choice).state_dict())


def test_dropped_pairs_are_counted(new):
    stream = new(limits=PairLimits(20, 256), passes=1)
    kept = sum(map(len, stream))
    assert stream.report.pairs == 12 * ROWS
    assert stream.report.kept == kept < 12 * ROWS
    assert stream.report.dropped == {"source over 20 tokens": 12 * ROWS - kept}


def test_corpus_with_every_pair_dropped_raises(new):
    with pytest.raises(ValueError, match=f"No pair of made up is left to use: 0 of {12 * ROWS} pairs kept"):
        next(iter(new(limits=PairLimits(1, 1), passes=None)))


def test_broken_stream_continues_after_the_last_pair(new, whole):
    failures = iter([3, 0, 39, 12] * 20)
    left = {"times": 60}

    def breaking(number):
        at = next(failures, None)
        for row, pair in enumerate(unit_of(number)):
            if row == at and left["times"]:
                left["times"] -= 1
                raise ConnectionResetError("gone")
            yield pair

    stream = PairStream("breaking", 12, breaking, {"units": 12}, patience=60)
    stream.stop.wait = lambda seconds: None  # no pauses
    assert [as_text(batch) for batch in new(stream)] == whole
    assert left["times"] < 60


def test_permanently_broken_stream_raises(new):
    def broken(number):
        yield from itertools.islice(unit_of(number), 5)
        raise ConnectionResetError("gone")

    with pytest.raises(StreamLostError, match="made of glass cannot be read any more"):
        list(new(PairStream("made of glass", 12, broken, {}, patience=0.1)))


def test_closing_does_not_wait_for_a_broken_stream(new):
    def broken(number):
        if number == 0:
            yield from unit_of(number)
        else:
            raise ConnectionResetError("gone")

    pairs = PairStream("broken", 2, broken, {}, bounded=False, patience=3600)
    unit_0_first = next(seed for seed in range(99) if np.random.default_rng((seed, 0)).permutation(2)[0] == 0)
    batches = iter(new(pairs, buffer_pairs=10, seed=unit_0_first))
    next(batches)
    closing = threading.Thread(target=batches.close)
    closing.start()
    closing.join(timeout=20)
    assert not closing.is_alive()


def test_coarse_batches_pad_less_when_batches_are_few():
    rng = np.random.default_rng(0)
    source = rng.integers(5, 80, size=20_000)
    target = np.clip(source + rng.integers(-15, 16, size=20_000), 2, None)
    fine, coarse = (TokenBatchSampler(source, target, 25_000, coarse=choice) for choice in (False, True))
    assert coarse.real_share() > fine.real_share() + 0.03
    assert sorted(itertools.chain(*coarse)) == list(range(20_000))
