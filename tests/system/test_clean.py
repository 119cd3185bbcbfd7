"""`clean` as a process: what it writes, that workers and kills do not change it, and what it rejects."""

import gzip
import json
import random
import shutil
import signal
import time
from itertools import islice
from pathlib import Path

import pytest

from vanilla_transformer.data.phrasebook import phrasebook

from ..warm_python import CLI, PACKAGE
from .conftest import finished, json_of, refused, write_small_model, written


NAMES = {"clean.en.gz", "clean.de.gz", "dropped.jsonl.gz", "report.json", "report.md", "report.png"}
LANGUAGES = ("--source-language", "en", "--target-language", "de")


@pytest.fixture(scope="module")
def dirty(tmp_path_factory) -> list[Path]:
    """Two files of 2,400 lines, some with every kind of fault, including bytes that are not UTF-8."""
    rows = list(islice(phrasebook("train"), 2400))
    sources, targets = [row["en"].encode() for row in rows], [row["de"].encode() for row in rows]
    sources[3], targets[700] = b"", b" "
    targets[5] = sources[5]
    targets[6] = "Grüße schön".encode("latin-1")
    sources[6] = b"Kind regards"
    targets[7] = b"\x81\xff\x8d " + targets[7]
    sources[1200], targets[1200] = sources[9], targets[9]
    sources[20], targets[20] = b"a" * 50_000, b"b" * 50_000
    targets[600:620] = [*targets[601:620], targets[600]]
    folder = tmp_path_factory.mktemp("corpus")
    for name, lines in (("dirty.en", sources), ("dirty.de", targets)):
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return [folder / "dirty.en", folder / "dirty.de"]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    for name, language in (("forward", "en"), ("backward", "de")):
        write_small_model(folder / name, [row[language] for row in islice(phrasebook("train"), 200)])
    return [folder / "forward", folder / "backward"]


def words(dirty, output, *options) -> list:
    return ["clean", *dirty, "--output", output, *LANGUAGES, "--shard-pairs", "600", *options]


def contents(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found.keys() == NAMES
    return found


def lines_in(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]


@pytest.fixture(scope="module")
def made(dirty, models, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "out"
    options = ("--workers", "1", "--score-models", *models, "--keep-best", "0.9")
    finished(*words(dirty, folder, *options))
    return folder


def test_every_pair_is_kept_or_dropped_with_its_reason(dirty, made):
    report = json_of(made / "report.json")
    dropped = {row["line"]: row for row in map(json.loads, lines_in(made / "dropped.jsonl.gz"))}
    kept = [lines_in(made / f"clean.{language}.gz") for language in ("en", "de")]
    read = [path.read_bytes().decode(errors="surrogateescape").split("\n")[:-1] for path in dirty]
    assert len(kept[0]) == len(kept[1]) == report["kept"] == 2400 - len(dropped)
    left = [pair for line, pair in enumerate(zip(*read, strict=True), start=1) if line not in dropped]
    differ = [pair for pair, found in zip(left, zip(*kept, strict=True), strict=True) if pair != found]
    assert differ == [("Kind regards", "Gr\udcfc\udcdfe sch\udcf6n")] or dropped[7]["reason"] == "score"
    for line, row in dropped.items():
        assert (row["source"], row["target"]) == (read[0][line - 1], read[1][line - 1])
    reasons = {line: row["reason"] for line, row in dropped.items()}
    expected = {4: "empty", 701: "empty", 6: "identical", 8: "broken_encoding", 21: "too_long", 1201: "repeated_pair"}
    assert {line: reasons[line] for line in expected} == expected
    assert dropped[1201]["repeats_line"] == 10
    assert [reasons[line] for line in range(604, 618)].count("misaligned") > 10
    counts = {name: list(reasons.values()).count(name) for name in report["dropped"]}
    assert counts == report["dropped"]
    scored = report["kept"] + counts["score"]
    assert report["kept"] == pytest.approx(0.9 * scored, abs=1)
    assert all(row["score"] <= report["least_score"] + 1e-4 for row in dropped.values() if row["reason"] == "score")
    page = (made / "report.md").read_text(encoding="utf-8")
    for name, count in counts.items():
        assert f"| {name} |" in page
        assert (f"\n## {name}\n" in page) == (count > 0)


def test_kills_and_worker_counts_do_not_change_files(dirty, models, made, tmp_path):
    options = ["--score-models", *models, "--keep-best", "0.9"]
    output, moments, ends = tmp_path / "out", random.Random(0), 0
    seen, number = 0, signal.SIGKILL
    while not (output / "report.json").exists() and ends < 7:
        given = words(dirty, output, *options, "--workers", str(1 + ends % 2))
        with PACKAGE.start(CLI, *given) as process:
            process.until(lambda seen=seen: len(list(output.glob(".unfinished/*.npy"))) > seen)
            time.sleep(moments.random() * 0.1)
            process.send_signal(number)
            process.wait(20)
        assert process.returncode in ({-9} if number == signal.SIGKILL else {143})
        assert not NAMES & {path.name for path in output.iterdir()}
        seen, ends = len(list(output.glob(".unfinished/[0-9]*.npy"))), ends + 1
        number = signal.SIGTERM if ends == 3 else signal.SIGKILL
        if seen >= 12:  # all pairs are scored: the rest takes no time
            break
    assert ends > 2
    finished(*words(dirty, output, *options, "--workers", "2"))
    assert contents(output) == contents(made)
    assert "is complete already" in finished(*words(dirty, output, *options)).stderr


def test_kill_between_last_steps_is_recovered(dirty, models, made, tmp_path):
    """Every file but the report has its final name, and the record of the start is still there."""
    output = shutil.copytree(made, tmp_path / "out")
    (output / ".unfinished").mkdir()
    begun_with = json_of(output / "report.json")["begun_with"]
    (output / ".unfinished" / "begun.json").write_text(json.dumps({"begun_with": begun_with}), encoding="utf-8")
    (output / "report.json").unlink()
    finished(*words(dirty, output, "--score-models", *models, "--keep-best", "0.9"))
    assert contents(output) == contents(made)


def test_work_of_which_nobody_knows_the_beginning_is_not_used(dirty, tmp_path):
    other = written(tmp_path / "other.tsv", [f"{row['en']}\t{row['de']}" for row in islice(phrasebook("train"), 700)])
    output = tmp_path / "out"
    with PACKAGE.start(CLI, *words(dirty, output, "--workers", "1")) as process:
        process.until(lambda: len(list(output.glob(".unfinished/*.npy"))) > 1)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    (output / ".unfinished" / "begun.json").unlink()
    finished(*words([other], output))
    finished(*words([other], tmp_path / "anew"))
    assert contents(output) == contents(tmp_path / "anew")


def test_all_corpus_formats_give_the_same_files(dirty, tmp_path):
    """Except for text that only some formats can hold."""
    rows = list(islice(phrasebook("train"), 700))
    rows[3]["en"] = ""
    tsv = written(tmp_path / "a.tsv", [f"{row['en']}\t{row['de']}" for row in rows])
    lines = written(tmp_path / "a.jsonl", [json.dumps({"translation": row}) for row in rows])
    pair = [written(tmp_path / f"a.{code}", [row[code] for row in rows]) for code in ("en", "de")]
    found = []
    for number, given in enumerate(([tsv], [lines], pair)):
        finished(*words(given, tmp_path / str(number)))
        files = contents(tmp_path / str(number))
        found.append({name: files[name] for name in NAMES - {"report.json"}})
    assert found[0] == found[1] == found[2]


def test_bytes_that_are_no_text_can_be_kept_and_scored(models, tmp_path):
    text = tmp_path / "text.tsv"
    text.write_bytes(b"The dog is old.\tDer Hund ist alt. \x81\x9d\n")
    options = ("--skip", "broken_encoding", "--workers", "1", "--score-models", *models, "--min-score", "1e-9")
    finished("clean", text, "--output", tmp_path / "out", *LANGUAGES, *options)
    assert lines_in(tmp_path / "out" / "clean.de.gz") == ["Der Hund ist alt. ??"]
    assert lines_in(tmp_path / "out" / "dropped.jsonl.gz") == []  # but it is a gzip file


def test_invalid_text_and_options_are_rejected(dirty, models, made, run, tmp_path):
    output, good = tmp_path / "out", ["The dog is old."]
    short = [dirty[0], written(tmp_path / "short.de", good)]
    tsv = written(tmp_path / "bad.tsv", ["a\tb", "a\tb\tc"])
    empty = written(tmp_path / "empty.tsv", [])
    blank = written(tmp_path / "blank.tsv", [" \t "])
    for given, message in (
        (words([tmp_path / "none.tsv"], output), "There is no corpus"),
        (words([*short], output), "short.de ends after line 1, but "),
        (words([tsv], tmp_path / "out2"), "bad.tsv, line 2 has 3 columns: expected source TAB target"),
        (words([empty], tmp_path / "out3"), "empty.tsv is empty"),
        (words([blank], tmp_path / "out4"), "is left to use: 0 of 1 pairs kept; dropped: 1 empty"),
        (words(dirty, made, "--skip", "empty"), "report.json was begun with settings.skip.1 = None, not empty"),
        (words([tsv], made), "report.json was begun with corpus.files.1 = "),
        (words(dirty, output, "--score-models", run, run, "--min-score", "0.1"), "translates from 'en' into 'de'"),
    ):
        assert message in refused(*given)
    foreign = written(tmp_path / "out5" / "clean.en.gz", []) if (tmp_path / "out5").mkdir() is None else None
    assert f"{foreign} exists already: move it elsewhere" in refused(*words(dirty, foreign.parent))
    for folder in ("out2", "out3", "out4", "out5"):
        assert {path.name for path in (tmp_path / folder).iterdir()} <= {"clean.en.gz"}
    for options, message in (
        (["--keep-best", "0.5"], "are for --score-models"),
        (["--score-models", *models], "give either --keep-best, a share, or --min-score, a score"),
        (["--score-models", models[0], "--keep-best", "0.5"], "--score-models must be two"),
        (["--score-models", *models, "--keep-best", "nan"], "--keep-best must be above 0 and at most 1, not nan"),
        (["--skip", "lenght"], "There is no rule 'lenght': choose from empty"),
        (["--max-length-ratio", "0.5"], "max_length_ratio must be at least 1"),
        (["--workers", "0"], "--workers must be at least 1"),
    ):
        assert message in refused(*words(dirty, output, *options), status=2)
    assert "{hub: [ is not a mapping as recipes have it" in refused(*words(["{hub: ["], output), status=2)
    damaged = shutil.copytree(made, tmp_path / "damaged")
    (damaged / "clean.en.gz").write_bytes(b"")
    options = ("--score-models", *models, "--keep-best", "0.9")
    assert "clean.en.gz is damaged" in refused(*words(dirty, damaged, *options))
    assert "Empty the folder to begin anew" in refused(*words(dirty, damaged, *options))
