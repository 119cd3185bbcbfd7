"""Training from a prepared folder: wherever it lies, but only if it is whole and matches the recipe."""

import json
import shutil
import subprocess

import pytest

from vanilla_transformer.files import write_text

from .conftest import finished, refused


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepare") / "prepared"
    finished("prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder)
    return folder


def train(corpus, prepared, output):
    options = ("--data.folder", corpus, "--data.train", f"{{prepared: {prepared}}}", "--output", output)
    return "train", corpus / "recipe.yaml", *options


@pytest.mark.slow
def test_prepared_folder_works_moved_and_read_only(corpus, run, prepared, disk, tmp_path):
    finished(*train(corpus, prepared, tmp_path / "run"), "--training.max_steps", "8")
    read_only = shutil.copytree(prepared, disk / "prepared")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    finished(*train(corpus, read_only, tmp_path / "run"), "--resume")
    weights = "averaged/model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (run / weights).read_bytes()  # trained on the text itself
    again = finished("prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--output", read_only)
    assert "is complete already" in again.stderr


def test_mismatched_recipe_is_rejected(corpus, prepared, tmp_path):
    for more, message in (
        (("--tokenizer.vocab_size", "300"), "was prepared with the tokenizer {'kind': 'bpe', 'vocab_size': 400"),
        (("--data.max_source_length", "30"), "was prepared with the limits {'max_source_length': 256"),
        (("--data.target_language", "fr"), "was prepared with the languages ['en', 'de']"),
        (("--training.max_tokens", "5"), "more than max_tokens = 5"),
    ):
        assert message in refused(*train(corpus, prepared, tmp_path / "run"), *more)


def test_unusable_recipe_is_not_prepared(corpus, tmp_path):
    pairs = "[train.en, train.de]"
    for more, message in (
        (("--data.train", f"[{{corpus: {pairs}}}, {{corpus: {pairs}, target_language: fr}}]"), "several target lang"),
        (("--initial_model", tmp_path), "give that model's to --tokenizer"),
    ):
        options = ("--data.folder", corpus, "--output", tmp_path / "prepared", *more)
        assert message in refused("prepare", corpus / "recipe.yaml", *options)
    assert not (tmp_path / "prepared").exists()


def test_temperature_of_sampling_is_prepared(corpus, tmp_path):
    for language in ("en", "de"):
        write_text(tmp_path / f"few.{language}", "".join((corpus / f"train.{language}").open().readlines()[:20]))
    both = f"[{{corpus: [train.en, train.de]}}, {{corpus: [{tmp_path}/few.en, {tmp_path}/few.de]}}]"
    options = ("--data.folder", corpus, "--data.train", both, "--data.sampling_temperature", "5")
    finished("prepare", corpus / "recipe.yaml", *options, "--output", tmp_path / "prepared")
    record = json.loads((tmp_path / "prepared" / "preparation.json").read_text(encoding="utf-8"))
    assert [each["copies"] for each in record["corpus"]["mixture"]] == [1, 15]  # 300 pairs, and 20


def test_damaged_folder_is_rejected(corpus, prepared, tmp_path):
    damaged = shutil.copytree(prepared, tmp_path / "prepared")
    content = bytearray((damaged / "data-00000.arrow").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "data-00000.arrow").write_bytes(content)
    said = refused(*train(corpus, damaged, tmp_path / "run"))
    assert said.endswith(f"data-00000.arrow is missing or damaged: remove {damaged} and prepare the corpus again.")


def test_empty_corpus_is_rejected(corpus, tmp_path):
    for language in ("en", "de"):
        write_text(tmp_path / f"train.{language}", "")
    options = ("--data.folder", tmp_path, "--data.stream", "true", "--output", tmp_path / "prepared")
    assert "no text to learn a tokenizer from" in refused("prepare", corpus / "recipe.yaml", *options)
