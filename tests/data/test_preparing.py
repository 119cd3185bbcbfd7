"""A prepared corpus equals the encoded corpus, whatever interrupted its preparation."""

import json
import multiprocessing
import os
import random
import signal
import time
from contextlib import nullcontext
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from datasets import Dataset, load_from_disk

from tests.warm_python import PACKAGE, WarmProcess
from vanilla_transformer.data.corpora import PairStream, open_stream, read_corpus
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.prepared import load_prepared
from vanilla_transformer.data.preparing import prepare
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer, load_tokenizer
from vanilla_transformer.files import alone_in


LIMITS = PairLimits(40, 40, 1.5)
AS_SCRIPT = {"limits": LIMITS, "workers": 2, "shard_pairs": 250}

# Prepares the corpus and prints its progress to standard output.
SCRIPT = """
import multiprocessing, sys
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.preparing import prepare
from vanilla_transformer.data.corpora import open_stream
from vanilla_transformer.data.tokenizer import load_tokenizer

folder, output, start_method = sys.argv[1:]
multiprocessing.set_start_method(start_method)
stream = open_stream(["c.en", "c.de"], "en", "de", folder=folder)
prepare(
    stream, load_tokenizer(folder + "/vocabulary"), output, limits=PairLimits(40, 40, 1.5), workers=2, shard_pairs=250,
    on_progress=lambda step, pairs: print(step, pairs, flush=True),
)
"""


@cache
def all_pairs() -> list[tuple[str, str]]:
    pairs = [(row["en"], row["de"]) for row in islice(phrasebook("train"), 5_000)]
    pairs[3:5] = [("", "leer"), ("a special </s> token", "ein <pad> Zeichen")]
    return pairs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A folder with the corpus as text and a vocabulary."""
    folder = tmp_path_factory.mktemp("corpus")
    for side, language in enumerate(("en", "de")):
        (folder / f"c.{language}").write_text("".join(f"{pair[side]}\n" for pair in all_pairs()), encoding="utf-8")
    texts = (text for pair in all_pairs() for text in pair)
    learn_tokenizer(texts, TokenizerSettings(vocab_size=300)).save_pretrained(folder / "vocabulary")
    return folder


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return load_tokenizer(corpus / "vocabulary")


@pytest.fixture(scope="module")
def unbroken(corpus, tokenizer, tmp_path_factory) -> dict[str, bytes]:
    """The Arrow files of the corpus in shards of 250 pairs."""
    output = tmp_path_factory.mktemp("unbroken")
    prepare(text_stream(corpus), tokenizer, output, limits=LIMITS, workers=1, shard_pairs=250)
    return arrow_files(output)


def text_stream(folder) -> PairStream:
    return open_stream(["c.en", "c.de"], "en", "de", folder=folder)


def stream_of(pairs, *unit_sizes) -> PairStream:
    """A stream with units of these sizes, and one more with the rest."""
    bounds = [0]
    for size in unit_sizes:
        bounds.append(bounds[-1] + size)
    bounds.append(max(bounds[-1], len(pairs)))
    return PairStream(
        "the list", len(bounds) - 1, lambda unit: iter(pairs[bounds[unit] : bounds[unit + 1]]), {"pairs": len(pairs)}
    )


def arrow_files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).rglob("*.arrow"))}


def start(corpus, output, start_method="fork", **options) -> WarmProcess:
    return PACKAGE.start(SCRIPT, corpus, output, start_method, **options)


def finish(corpus, output, start_method="fork"):
    """Starts or resumes preparing, and returns the Arrow files."""
    process = start(corpus, output, start_method)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return arrow_files(output)


class Stop(Exception):  # noqa: N818
    """Raised to interrupt."""


def stop_after(calls):
    """A progress callback that raises after this many calls."""
    left = [calls]

    def on_progress(step, pairs):
        left[0] -= 1
        if left[0] < 0:
            raise Stop

    return on_progress


class TestOutput:
    @pytest.mark.parametrize(
        ("unit_sizes", "shard_pairs", "workers"),
        [((), 10_000, 2), ((0, 1, 0, 700, 3_100, 0), 4_500, 3), ((2_000, 2_000), 2_000, 1), ((4_999,), 333, 2)],
    )
    def test_rows_equal_those_encoded_in_memory(self, corpus, tokenizer, tmp_path, unit_sizes, shard_pairs, workers):
        loaded = read_corpus(["c.en", "c.de"], "en", "de", folder=corpus)
        expected, expected_report = loaded.encoded(tokenizer, LIMITS)
        stream = stream_of(all_pairs(), *unit_sizes)
        report = prepare(stream, tokenizer, tmp_path, limits=LIMITS, workers=workers, shard_pairs=shard_pairs)
        assert report == expected_report
        assert len(report.dropped) > 1
        found = load_from_disk(str(tmp_path))
        assert found.select_columns(["input_ids", "labels"])[:] == expected[:]
        assert found["source_length"][:] == [len(ids) for ids in expected["input_ids"]]
        assert found["target_length"][:] == [len(ids) for ids in expected["labels"]]
        assert len(arrow_files(tmp_path)) == -(-len(all_pairs()) // shard_pairs)

    def test_output_matches_what_datasets_would_write(self, corpus, tokenizer, tmp_path):
        prepare(stream_of(all_pairs()[:300]), tokenizer, tmp_path / "ours", workers=1)
        found = load_from_disk(str(tmp_path / "ours"))
        found.save_to_disk(str(tmp_path / "theirs"))
        again = load_from_disk(str(tmp_path / "theirs"))
        assert (again.features, again[:]) == (found.features, found[:])
        state, their_state = (json.loads((tmp_path / name / "state.json").read_text()) for name in ("ours", "theirs"))
        assert state.keys() == their_state.keys()

    @pytest.mark.parametrize("start_method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
    def test_bytes_do_not_depend_on_the_workers(self, corpus, unbroken, tmp_path, start_method):
        assert finish(corpus, tmp_path, start_method) == unbroken

    def test_folder_records_how_it_was_made(self, corpus, tokenizer, tmp_path):
        report = prepare(text_stream(corpus), tokenizer, tmp_path, limits=LIMITS, shard_pairs=3_000)
        loaded = load_prepared(tmp_path)
        record = loaded.record
        assert loaded.tokenizer.get_vocab() == tokenizer.get_vocab()
        assert loaded.tokenizer.split_special_tokens
        assert len(loaded.rows) == report.kept == sum(shard["rows"] for shard in record["shards"])
        assert record["report"]["dropped"] == report.dropped
        assert record["corpus"]["languages"] == ["en", "de"]
        assert record["limits"] == {"max_source_length": 40, "max_target_length": 40, "max_length_ratio": 1.5}
        assert set(record["versions"]) == {"vanilla-transformer", "tokenizers", "transformers", "datasets"}
        assert {path.name for path in tmp_path.iterdir()} == {
            "data-00000.arrow", "data-00001.arrow", "dataset_info.json", "preparation.json", "state.json", "tokenizer",
        }  # fmt: skip

    def test_single_pair_is_prepared(self, tokenizer, tmp_path):
        assert prepare(stream_of(all_pairs()[:1]), tokenizer, tmp_path, limits=LIMITS).kept == 1
        assert len(load_prepared(tmp_path).rows) == 1

    def test_shard_with_every_pair_dropped_has_no_file(self, tokenizer, tmp_path):
        pairs = [("a", "a"), *[("", "a")] * 5, ("b", "b")]
        prepare(stream_of(pairs), tokenizer, tmp_path, limits=LIMITS, shard_pairs=2)
        assert list(arrow_files(tmp_path)) == ["data-00000.arrow", "data-00001.arrow"]
        assert list(load_prepared(tmp_path).texts()) == [("a", "a"), ("b", "b")]

    @pytest.mark.parametrize("pairs", [[], [("", "a"), ("b", " ")] * 3])
    def test_corpus_without_usable_pairs_raises(self, tokenizer, tmp_path, pairs):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"No pair of the list is left to use: 0 of {len(pairs)} pairs kept"):
                prepare(stream_of(pairs), tokenizer, tmp_path, limits=LIMITS, shard_pairs=2)
            assert list(tmp_path.iterdir()) == []
        assert prepare(stream_of([("a", "b")]), tokenizer, tmp_path, limits=None).kept == 1  # not bound to LIMITS

    def test_reading_ahead_of_writing_is_bounded(self, tokenizer, tmp_path):
        read, ahead = [0], []

        def pairs(unit):
            for pair in all_pairs()[:1_000]:
                read[0] += 1
                yield pair

        options = {"shard_pairs": 10, "on_progress": lambda step, pairs: ahead.append(read[0] - pairs)}
        prepare(PairStream("counted", 1, pairs), tokenizer, tmp_path, workers=2, **options)
        assert 10 < max(ahead) <= 4 * 2 * 10


class TestVocabulary:
    def test_vocabulary_is_learned_only_once(self, corpus, tmp_path):
        given, steps = (text_stream(corpus), TokenizerSettings(vocab_size=300), tmp_path), []
        with pytest.raises(Stop):
            prepare(*given, shard_pairs=250, on_progress=stop_after(5 + 3))
        prepare(*given, shard_pairs=250, on_progress=lambda step, pairs: steps.append(step))
        assert set(steps) == {"tokenising"}
        assert load_prepared(tmp_path).tokenizer.get_vocab() == load_tokenizer(corpus / "vocabulary").get_vocab()

    def test_failed_vocabulary_settings_can_be_changed(self, corpus, tmp_path):
        with pytest.raises(ValueError, match="at most"):
            prepare(text_stream(corpus), TokenizerSettings(vocab_size=30_000), tmp_path)
        prepare(text_stream(corpus), TokenizerSettings(vocab_size=300), tmp_path)
        assert len(load_prepared(tmp_path).tokenizer) == 300


class TestInterruptions:
    @pytest.mark.parametrize("calls", [0, 1, 2, 7, 20])
    def test_interrupted_preparation_resumes_to_the_same_bytes(self, corpus, tokenizer, unbroken, tmp_path, calls):
        with pytest.raises(Stop):
            prepare(text_stream(corpus), tokenizer, tmp_path, **AS_SCRIPT, on_progress=stop_after(calls))
        with pytest.raises(ValueError, match="is not finished, it has"):
            load_prepared(tmp_path)
        places = []
        prepare(text_stream(corpus), tokenizer, tmp_path, **AS_SCRIPT, on_progress=lambda _, n: places.append(n))
        assert arrow_files(tmp_path) == unbroken
        assert places == list(range(250 * calls, 5_001, 250))

    def test_interruption_within_a_shard_resumes_exactly(self, tokenizer, tmp_path):
        arguments = {"limits": LIMITS, "workers": 2, "shard_pairs": 4_500}
        stream = stream_of(all_pairs() * 2, 2_500, 0, 3_000)
        prepare(stream, tokenizer, tmp_path / "unbroken", **arguments)
        for calls in (2, 4, 2):  # chunks end at 2,000, 4,000, 4,500, 6,500 ...
            with pytest.raises(Stop):
                prepare(stream, tokenizer, tmp_path / "broken", **arguments, on_progress=stop_after(calls))
            assert not list((tmp_path / "broken").glob(".*"))
        prepare(stream, tokenizer, tmp_path / "broken", **arguments)
        assert arrow_files(tmp_path / "broken") == arrow_files(tmp_path / "unbroken")

    def test_interrupt_while_opening_file_leaves_no_temporary_files(self, tokenizer, tmp_path, monkeypatch):
        def interrupted(**options):
            raise KeyboardInterrupt

        monkeypatch.setattr("datasets.arrow_writer.ArrowWriter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(stream_of(all_pairs()[:50]), tokenizer, tmp_path, workers=1)
        assert not list(tmp_path.glob(".*"))

    def test_preparation_killed_at_any_moment_resumes_exactly(self, corpus, unbroken, tmp_path):
        seed = random.randrange(10**6)
        draw = random.Random(seed)
        for _ in range(3):
            process = start(corpus, tmp_path / "output")
            for _ in range(draw.randrange(0, 7)):
                process.stdout.readline()
            time.sleep(draw.random() / 50)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL, f"seed {seed}"
            assert not (tmp_path / "output" / "state.json").exists(), f"seed {seed}"
        assert finish(corpus, tmp_path / "output") == unbroken, f"seed {seed}"
        assert not list((tmp_path / "output").glob(".*")), f"seed {seed}"

    def test_ctrl_c_stops_cleanly_and_resumes_exactly(self, corpus, unbroken, tmp_path):
        process = start(corpus, tmp_path, new_session=True)
        for _ in range(4):
            process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # like a terminal, which signals the workers too
        _, errors = process.communicate(timeout=60)
        assert errors.count("Traceback") == 1
        assert errors.endswith("KeyboardInterrupt\n")
        assert not list(tmp_path.glob(".*"))
        assert finish(corpus, tmp_path) == unbroken

    @pytest.mark.slow
    def test_disk_too_full_for_the_vocabulary_is_reported(self, corpus, tmp_path):
        process = start(corpus, tmp_path, largest_file=2000)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        told = f"{tmp_path} cannot be written (the tokenizer could not be saved: "
        assert errors.splitlines()[-1].startswith(f"OSError: {told}")
        assert [path.name for path in tmp_path.iterdir()] == ["preparation.json"]

    def test_dead_worker_raises_and_preparation_resumes(self, corpus, tokenizer, unbroken, tmp_path):
        def kill_a_worker(step, pairs):
            if pairs == 1_000:
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

        with pytest.raises(ChildProcessError, match=r"has died.*Run the same command again"):
            prepare(text_stream(corpus), tokenizer, tmp_path, **AS_SCRIPT, on_progress=kill_a_worker)
        assert not multiprocessing.active_children()
        prepare(text_stream(corpus), tokenizer, tmp_path, **AS_SCRIPT)
        assert arrow_files(tmp_path) == unbroken

    @pytest.mark.slow
    def test_full_disk_is_reported_and_preparation_resumes(self, corpus, unbroken, tmp_path):
        # The vocabulary just fits, a shard does not.
        largest = (corpus / "vocabulary" / "tokenizer.json").stat().st_size + 100
        assert largest < len(unbroken["data-00000.arrow"])
        process = start(corpus, tmp_path, largest_file=largest)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "cannot be written ([Errno 27]" in errors.splitlines()[-1]
        assert "Exception ignored" not in errors
        assert not list(tmp_path.glob("*.arrow")) + list(tmp_path.glob(".*"))
        assert finish(corpus, tmp_path) == unbroken

    def test_interrupted_corpus_is_resumed(self, tokenizer, tmp_path):
        broken = [True]

        def pairs(unit):
            yield from all_pairs()[:700]
            if broken[0]:
                raise ValueError("line 701 is not UTF-8")
            yield from all_pairs()[700:1000]

        stream = PairStream("c", 1, pairs, {"c": 1})
        with pytest.raises(ValueError, match="line 701"):
            prepare(stream, tokenizer, tmp_path, workers=1, shard_pairs=100)
        broken[0] = False
        assert prepare(stream, tokenizer, tmp_path, workers=1, shard_pairs=100).pairs == 1000
        prepare(stream_of(all_pairs()[:1000]), tokenizer, tmp_path / "unbroken", workers=1, shard_pairs=100)
        assert load_prepared(tmp_path).rows[:] == load_prepared(tmp_path / "unbroken").rows[:]


class TestFolders:
    def test_complete_folder_is_left_unchanged(self, tokenizer, tmp_path, caplog):
        caplog.set_level("INFO")
        report = prepare(stream_of(all_pairs()[:50]), tokenizer, tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        unreadable = PairStream("the list", 1, lambda unit: 1 / 0, {"pairs": 50})
        assert prepare(unreadable, tokenizer, tmp_path) == report
        assert "is complete already: 50 of 50 pairs kept" in caplog.text
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    @pytest.mark.parametrize("finished", [True, False])
    def test_changed_settings_are_rejected(self, corpus, tokenizer, tmp_path, tmp_path_factory, finished):
        begun = {"limits": LIMITS, "shard_pairs": 1_000}
        if finished:
            prepare(text_stream(corpus), tokenizer, tmp_path, **begun)
        else:
            with pytest.raises(Stop):
                prepare(text_stream(corpus), tokenizer, tmp_path, **begun, on_progress=stop_after(1))
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
        other = tmp_path_factory.mktemp("other")
        for language in ("en", "de"):  # the same names, in another folder
            (other / f"c.{language}").write_text(f"{language}\n")
        another = learn_tokenizer(["x"], TokenizerSettings(vocab_size=260))
        for what, text, given, more in (
            ("corpus", other, tokenizer, {}),
            ("vocabulary", corpus, another, {}),
            ("limits", corpus, tokenizer, {"limits": None}),
            ("shard_pairs", corpus, tokenizer, {"shard_pairs": 999}),
        ):
            with pytest.raises(ValueError, match=f"was begun with {what}.* give the same again"):
                prepare(text_stream(text), given, tmp_path, **{**begun, **more})
            assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before

    def test_foreign_files_are_left_alone(self, tokenizer, tmp_path):
        Dataset.from_dict({"a": [1]}).save_to_disk(str(tmp_path / "dataset"))
        (tmp_path / "file").write_text("mine")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(FileExistsError, match=r"is not a prepared corpus, it holds data.*: choose another"):
            prepare(stream_of(all_pairs()[:5]), tokenizer, tmp_path / "dataset")
        with pytest.raises(FileExistsError, match="is a file"):
            prepare(stream_of(all_pairs()[:5]), tokenizer, tmp_path / "file")
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    def test_folder_in_use_is_rejected(self, tokenizer, tmp_path):
        with alone_in(tmp_path), pytest.raises(FileExistsError, match="Another process is at work"):
            prepare(stream_of(all_pairs()[:5]), tokenizer, tmp_path)
        assert prepare(stream_of(all_pairs()[:5]), tokenizer, tmp_path).kept == 5

    @pytest.mark.slow
    def test_concurrent_processes_do_not_corrupt_the_folder(self, corpus, unbroken, tmp_path):
        processes = [start(corpus, tmp_path) for _ in range(2)]
        errors = [process.communicate(timeout=120)[1] for process in processes]
        assert 0 in [process.returncode for process in processes]
        for process, error in zip(processes, errors, strict=True):  # the second may start after the first has finished
            assert process.returncode == 0 or "Another process is at work in" in error.splitlines()[-1]
        assert arrow_files(tmp_path) == unbroken

    def test_missing_folders_and_invalid_numbers_raise(self, tokenizer, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"There is no folder .*prepare RECIPE --output"):
            load_prepared(tmp_path / "none")
        with pytest.raises(ValueError, match=r"is not a prepared corpus, it has no preparation.json"):
            load_prepared(tmp_path)
        for arguments in ({"workers": 0}, {"shard_pairs": 0}):
            with pytest.raises(ValueError, match="must be at least 1"):
                prepare(stream_of(all_pairs()[:5]), tokenizer, tmp_path / "output", **arguments)
        assert not list(tmp_path.iterdir())

    def test_damaged_file_is_neither_loaded_nor_resumed(self, tokenizer, tmp_path):
        def one_bit(file):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 4
            file.write_bytes(content)

        prepare(stream_of(all_pairs()[:50]), tokenizer, tmp_path, shard_pairs=20)
        state = (tmp_path / "state.json").read_bytes()
        for name in ("data-00001.arrow", "tokenizer/tokenizer.json"):
            for damage in (lambda file: os.truncate(file, 100), lambda file: file.unlink(), one_bit):
                before = (tmp_path / name).read_bytes()
                damage(tmp_path / name)
                with pytest.raises(ValueError, match=rf"{name} is missing or damaged: remove"):
                    load_prepared(tmp_path)
                (tmp_path / "state.json").unlink()
                with pytest.raises(ValueError, match=rf"{name} is missing or damaged: remove"):
                    prepare(stream_of(all_pairs()[:50]), tokenizer, tmp_path, shard_pairs=20)
                (tmp_path / name).write_bytes(before)
                (tmp_path / "state.json").write_bytes(state)
        for name in ("preparation.json", "state.json", "dataset_info.json"):
            before = (tmp_path / name).read_bytes()
            for content in ("", "{", "[]", "null"):
                (tmp_path / name).write_text(content)
                with pytest.raises(ValueError, match=f"remove (it|{tmp_path})"):
                    load_prepared(tmp_path)
            (tmp_path / name).write_bytes(before)
        assert len(load_prepared(tmp_path).rows) == 50


def test_parquet_with_many_row_groups_is_resumed(tokenizer, unbroken, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = {"en": [pair[0] for pair in all_pairs()], "de": [pair[1] for pair in all_pairs()]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "c.parquet", batch_size=700)
    assert open_stream("c.parquet", "en", "de", folder=tmp_path).pairs == len(all_pairs())  # known before it is read
    assert open_stream("phrasebook:train:5", "en", "de").pairs is None
    for calls in (9, 4, 1_000):
        stream = open_stream("c.parquet", "en", "de", folder=tmp_path)
        with nullcontext() if calls == 1_000 else pytest.raises(Stop):
            prepare(stream, tokenizer, tmp_path / "output", **AS_SCRIPT, on_progress=stop_after(calls))
    assert arrow_files(tmp_path / "output") == unbroken
