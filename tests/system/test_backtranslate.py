"""`backtranslate` as a process: which pairs it writes, how it resumes, and what it rejects."""

import gzip
import random
import shutil
import signal
import time
from itertools import islice
from pathlib import Path

import pytest
import torch

from vanilla_transformer import translate
from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.run.loading import load_model

from ..export.conftest import EOS, ending_model
from ..warm_python import CLI, PACKAGE
from .conftest import command, finished, json_of, refused, written


LANGUAGES = ("--source-language", "de", "--target-language", "en")
NAMES = {"text.de.gz", "text.en.gz", "text.report.json"}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    """Two models with the same vocabulary. Their translations are gibberish; some end, and some are cut off."""
    folder = tmp_path_factory.mktemp("models")
    rows = islice(phrasebook("train"), 200)
    tokenizer = learn_tokenizer((text for row in rows for text in row.values()), TokenizerSettings(vocab_size=300))
    for seed in (5, 6):
        model = ending_model(ends=1.5, seed=seed)
        model.generation_config = paper_generation_config(model.config, num_beams=2, max_length_offset=8)
        model.save_pretrained(folder / str(seed))
        tokenizer.save_pretrained(folder / str(seed))
    return [folder / "5", folder / "6"]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """German lines, gzipped, some of them blank."""
    lines = [row["de"] for row in islice(phrasebook("train"), 600)]
    lines[7] = lines[100] = ""
    lines[300:340] = ["  "] * 40  # more than a chunk
    path = tmp_path_factory.mktemp("text") / "text.de.gz"
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def words(model, text, output, *options) -> list:
    return ["backtranslate", "--model", model, "--input", text, "--output", output, *LANGUAGES, *options]


def lines_in(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def contents(folder: Path) -> list:
    """The two files, and the report without its times. The folder must hold nothing else."""
    assert {path.name for path in folder.iterdir()} == NAMES
    report = json_of(folder / "text.report.json")
    del report["seconds"], report["lines_per_second"]
    return [(folder / "text.de.gz").read_bytes(), (folder / "text.en.gz").read_bytes(), report]


@torch.no_grad()
def test_pairs_and_drop_counts_match_plain_generate(models, text, tmp_path):
    """Recomputes every line with `generate()` and the rules of the report."""
    model, tokenizer = load_model(models[0], "cpu")
    expected, dropped = [], {}
    lines = [*lines_in(text)[:60], "ja " * 300]
    for line in lines:
        ids = tokenizer([line], return_tensors="pt").input_ids
        made = model.generate(ids)[0].tolist() if 1 < ids.shape[1] <= 256 else None
        source = None if made is None else tokenizer.decode(made, skip_special_tokens=True)
        if made is None:
            reason = "given line over 256 tokens" if line else "blank line"
        elif not source.strip():
            reason = "empty translation"
        elif EOS not in made:
            reason = "translation cut at its limit"
        else:
            counts = [ids.shape[1], len(tokenizer(source).input_ids)]
            reason = "length ratio over 1.2" if max(counts) > 1.2 * min(counts) else None
        if reason is None:
            expected.append((source, line))
        else:
            dropped[reason] = dropped.get(reason, 0) + 1
    assert len(expected) > 5
    assert min(dropped.get(f"{name}", 0) for name in ("translation cut at its limit", "length ratio over 1.2")) > 2

    path = written(tmp_path / "text.de", lines)
    finished(*words(models[0], path, tmp_path / "out", "--max-length-ratio", "1.2", "--chunk-lines", "25"))
    found = [lines_in(tmp_path / "out" / f"text.{language}.gz") for language in ("en", "de")]
    assert list(zip(*found, strict=True)) == expected
    report = json_of(tmp_path / "out" / "text.report.json")
    assert (report["lines"], report["kept"], report["dropped"]) == (61, len(expected), dropped)
    assert list(report["files"]) == ["text.en.gz", "text.de.gz"]  # source, target
    finished(*words(models[0], path, tmp_path / "forward", "--max-length-ratio", "1.2", "--forward"))
    assert [lines_in(tmp_path / "forward" / f"text.{language}.gz") for language in ("en", "de")] == found
    assert list(json_of(tmp_path / "forward" / "text.report.json")["files"]) == ["text.de.gz", "text.en.gz"]


def test_bfloat16_matches_the_library_and_is_kept(models, text, tmp_path):
    model, tokenizer = load_model(models[0], "cpu")
    lines = [line for line in lines_in(text)[:60] if line]
    exact = translate(model, tokenizer, lines)
    rounded = translate(model.to(torch.bfloat16), tokenizer, lines)
    same = words(models[0], written(tmp_path / "text.de", lines), tmp_path / "out", "--device", "cpu")
    finished(*same, "--precision", "bfloat16")
    sources, targets = (lines_in(tmp_path / "out" / f"text.{language}.gz") for language in ("en", "de"))
    pairs = dict(zip(lines, rounded, strict=True))
    assert sources == [pairs[target] for target in targets]
    assert len(sources) > 5
    assert rounded != exact
    assert "begun with precision = bfloat16, not None" in refused(*same)


@pytest.mark.parametrize("how", [pytest.param("beam", marks=pytest.mark.slow), "sample"])
def test_repeated_kills_do_not_change_the_files(models, text, tmp_path, how):
    options = ["--chunk-lines", "30"]
    if how == "sample":  # with an ensemble
        options += ["--model", models[1], "--sample", "--top-k", "50", "--seed", "3", "--device", "cpu"]
        options += ["--workers", "2"]
    finished(*words(models[0], text, tmp_path / "unbroken", *options))
    unbroken = contents(tmp_path / "unbroken")
    assert unbroken[2]["kept"] > 100
    moments, output, done = random.Random(0), tmp_path / "killed", []
    report = output / "text.report.json"
    number = signal.SIGKILL
    while len(done) < 6:
        before = done[-1] if done else -1
        with PACKAGE.start(CLI, *words(models[0], text, output, *options)) as process:
            process.until(lambda before=before: report.exists() and json_of(report)["lines"] > before)
            time.sleep(moments.random() * 0.05)
            process.send_signal(number)
            process.wait(20)
        assert process.returncode == (-9 if number == signal.SIGKILL else 143)
        done.append(json_of(report)["lines"])
        number = signal.SIGTERM if len(done) == 4 else signal.SIGKILL
        assert not (output / "text.en.gz").exists()
    assert done[-1] < 600
    if how == "sample":
        options[-1] = "1"  # the number of workers may change
    said = finished(*words(models[0], text, output, *options)).stderr
    assert f"continues after {done[-1]} lines" in said
    assert contents(output) == unbroken
    if how == "sample":
        options[options.index("--seed") + 1] = "4"
        finished(*words(models[0], text, tmp_path / "other", *options))
        assert lines_in(tmp_path / "other" / "text.en.gz") != lines_in(output / "text.en.gz")


@pytest.fixture(scope="module")
def made(models, text, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "out"
    finished(*words(models[0], text, folder, "--chunk-lines", "200"))
    return folder


def test_kill_between_last_two_steps_is_recovered(models, text, made, tmp_path):
    """The files get their final names one by one; then the report is marked as complete."""
    whole, options = contents(made), ("--chunk-lines", "200")
    for unnamed in ((), ("text.de.gz",), ("text.de.gz", "text.en.gz")):
        output = shutil.copytree(made, tmp_path / f"out{len(unnamed)}")
        for name in unnamed:
            (output / name).rename(output / f".{name}.unfinished")
        report = (output / "text.report.json").read_text(encoding="utf-8")
        (output / "text.report.json").write_text(report.replace('"complete": true', '"complete": false'))
        finished(*words(models[0], text, output, *options))
        assert contents(output) == whole
    assert "is complete already" in finished(*words(models[0], text, output, *options)).stderr


def test_changed_arguments_and_damaged_files_are_rejected(models, text, made, tmp_path):
    output = shutil.copytree(made, tmp_path / "out")
    same = words(models[0], text, output, "--chunk-lines", "200")
    changed = written(tmp_path / "text.de", ["Der Hund ist alt."])
    moved = shutil.copytree(models[0], tmp_path / "moved")
    for given, message in (
        (
            words(models[0], changed, output, "--chunk-lines", "200"),
            "begun with text.lines = 600, not 1: give the same",
        ),
        (words(models[1], text, output, "--chunk-lines", "200"), "begun with models.1.sha256 = "),
        ([*same, "--model", models[1]], "begun with models.2.sha256 = None, not "),
        ([*same, "--num-beams", "3"], "begun with decoding.num_beams = 2, not 3"),
        ([*same, "--sample"], "begun with decoding.num_beams = 2, not 1"),
        ([*same, "--forward"], "begun with text_is_the = target, not source"),
        ([*same, "--quantize", "int8"], "begun with quantize = None, not int8"),
        ([*same, "--precision", "bfloat16"], "begun with precision = None, not bfloat16"),
        ([*same, "--max-length-ratio", "2"], "begun with limits.max_length_ratio = 3.0, not 2.0"),
        ([*same, "--batch-tokens", "99"], "begun with batch_tokens = 4096, not 99"),
    ):
        assert message in refused(*given)
    assert "is complete already" in command(*words(moved, text, output, "--chunk-lines", "200")).stderr
    assert contents(output) == contents(made)
    damaged = bytearray((output / "text.en.gz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (output / "text.en.gz").write_bytes(damaged)
    assert "text.en.gz is damaged: its content is not what was written. Remove both files and" in refused(*same)
    (output / "text.report.json").unlink()
    assert "exists already: move it elsewhere" in refused(*same)
    (output / "text.report.json").write_text("{}")
    assert "is not a report of synthetic text" in refused(*same)


def test_hostile_lines_are_kept_unchanged_or_dropped(models, tmp_path):
    lines = [
        "x" * 100_000,
        "</s>",
        "<pad> <s> <unk>",
        "a\u2028b\x85c",
        "\x00\x07",
        "\r",
        "\u3000",
        "\ufeff",
        "Ja.\r\rNein.",
    ]
    path = tmp_path / "text.de"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    finished(*words(models[0], path, tmp_path / "out", "--sample", "--max-length-ratio", "100"))
    source, target = (lines_in(tmp_path / "out" / f"text.{language}.gz") for language in ("en", "de"))
    assert len(source) == len(target)
    assert set(target) <= set(lines)
    assert {"</s>", "<pad> <s> <unk>"} & set(target)
    report = json_of(tmp_path / "out" / "text.report.json")
    assert report["dropped"]["given line over 256 tokens"] == 1
    assert report["kept"] + sum(report["dropped"].values()) == len(lines)


def test_invalid_text_and_options_are_rejected(models, run, tmp_path):
    english = written(tmp_path / "text.en", ["The dog is old."])
    (tmp_path / "latin.de").write_bytes("gut\nschön\n".encode("latin-1"))
    (tmp_path / "empty.de").write_text("\n\n")
    output = tmp_path / "out"
    for given, message in (
        (words(models[0], english, output), "is en according to its name, but the model translates from de to en"),
        (words(models[0], tmp_path / "latin.de", output), f"{tmp_path / 'latin.de'}, line 2 is not UTF-8"),
        (words(models[0], tmp_path / "none.de", output), "there is no text file"),
        (words(models[0], Path("/dev/null"), output), "cannot be read twice: give a file, not a pipe"),
        (words(run, english, output), "translates from 'en' into 'de'; the source language is to be 'de'"),
    ):
        assert message in refused(*given)
    assert not output.exists()
    assert "No pair of" in refused(*words(models[0], tmp_path / "empty.de", output))
    assert "No pair of" in refused(*words(models[0], tmp_path / "empty.de", output, "--longest", "9"))  # starts over
    for options, message in (
        (["--seed", "1"], "are for --sample"),
        (["--chunk-lines", "0"], "--chunk-lines must be at least 1"),
        (["--max-length-ratio", "0.5"], "--max-length-ratio must be at least 1 and finite, not 0.5"),
        (["--max-length-ratio", "nan"], "--max-length-ratio must be at least 1 and finite, not nan"),
        (["--length-penalty", "nan"], "--length-penalty must be finite, not nan"),
        (["--sample", "--temperature", "nan"], "--temperature must be above 0 and finite"),
        (["--sample", "--seed", "-1"], "--seed must be from 0 to 4294967295, not -1"),
        (["--target-language", "de"], "Source and target language are both 'de'"),
        (["--quantize", "int7"], "no quantization 'int7'"),
        (["--precision", "auto"], "no precision 'auto' to translate in: choose float32 or bfloat16"),
        (["--target-language", "../x"], "'../x' is not a language code"),
    ):
        assert message in refused(*words(models[0], english, output, *options), status=2)
    assert "give --source-language" in refused(*words(models[0], english, output)[:7], status=2)
