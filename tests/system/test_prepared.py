"""Training from a prepared folder: wherever it lies, and not if it is not what the recipe says."""

import shutil
import subprocess

import pytest

from vanilla_transformer.files import write_text

from .conftest import command


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepare") / "prepared"
    done = command("prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


def train(corpus, prepared, output, *more):
    options = ("--data.folder", corpus, "--data.train", f"{{prepared: {prepared}}}", "--output", output)
    return command("train", corpus / "recipe.yaml", *options, *more)


@pytest.fixture
def read_only(prepared, tmp_path):
    """The folder on a disk that nobody may write to."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    shutil.copytree(prepared, place / "prepared")
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    yield place / "prepared"
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.slow
def test_it_may_be_moved_and_read_only(corpus, run, prepared, read_only, tmp_path):
    first = ("--training.max_steps", "8")
    assert train(corpus, prepared, tmp_path / "run", *first).returncode == 0
    done = train(corpus, read_only, tmp_path / "run", "--resume")
    assert done.returncode == 0, done.stderr
    weights = "averaged/model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (run / weights).read_bytes()  # of the same text in files
    again = command("prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--output", read_only)
    assert again.returncode == 0, again.stderr
    assert "is complete already" in again.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tokenizer.vocab_size", "300"), "was prepared with the tokenizer {'kind': 'bpe', 'vocab_size': 400"),
        (("--data.max_source_length", "30"), "was prepared with the limits {'max_source_length': 256"),
        (("--data.target_language", "fr"), "was prepared with the languages ['en', 'de']"),
        (("--training.max_tokens", "5"), "more than max_tokens = 5"),
    ],
)
def test_a_recipe_that_says_otherwise(corpus, prepared, tmp_path, more, message):
    done = train(corpus, prepared, tmp_path / "run", *more)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_damaged_folder_is_told_before_training(corpus, prepared, tmp_path):
    damaged = shutil.copytree(prepared, tmp_path / "prepared")
    content = bytearray((damaged / "data-00000.arrow").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "data-00000.arrow").write_bytes(content)
    done = train(corpus, damaged, tmp_path / "run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        f"data-00000.arrow is missing or damaged: remove {damaged} and prepare the corpus again."
    )


def test_a_corpus_of_nothing(corpus, tmp_path):
    for language in ("en", "de"):
        write_text(tmp_path / f"train.{language}", "")
    options = ("--data.folder", tmp_path, "--data.stream", "true", "--output", tmp_path / "prepared")
    done = command("prepare", corpus / "recipe.yaml", *options)
    assert done.returncode == 1
    assert "no text to learn a tokenizer from" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_pairs_that_no_batch_could_hold_are_refused_before_training(corpus, tmp_path):
    options = ("--data.folder", corpus, "--data.stream", "true", "--training.max_tokens", "200")
    done = command("train", corpus / "recipe.yaml", *options, "--output", tmp_path / "run")
    assert done.returncode == 1
    assert "let pairs of 256 tokens through, and a batch has training.max_tokens = 200" in done.stderr
