"""A killed or interrupted run that is resumed equals one that was never stopped, batch for batch."""

import json
import shlex
import shutil
import signal
from subprocess import CompletedProcess

import pytest

from vanilla_transformer.run.folder import RunFolder

from ..warm_python import CLI, PACKAGE
from .conftest import assert_same_run, finished, losses


UPDATES = 60
# An epoch of the corpus has about 25 batches, so checkpoints and the stop fall in the middle of one.
SLOWER = ["--training.max_steps", str(UPDATES), "--training.eval_steps", "10", "--training.save_steps", "10"]


def arguments(corpus, folder) -> list[str]:
    return ["train", str(corpus / "recipe.yaml"), "--data.folder", str(corpus), "--output", str(folder), *SLOWER]


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    finished(*arguments(corpus, folder))
    return folder


def stopped_by(which: signal.Signals, corpus, folder, after: int) -> CompletedProcess:
    """Starts the run and sends it a signal once it has logged `after` updates."""
    log = folder / "log.jsonl"
    with PACKAGE.start(CLI, *arguments(corpus, folder)) as process:
        process.until(lambda: log.exists() and log.read_bytes().count(b"\n") >= after)
        process.send_signal(which)
        return process.completed(timeout=120)


def assert_resumes_like(unbroken, corpus, folder, *typed):
    finished(*(typed or (*arguments(corpus, folder), "--resume")))
    assert_same_run(folder, unbroken)
    there, expected = ([path.name for path in RunFolder(each).good_checkpoints()] for each in (folder, unbroken))
    assert there == expected


def test_killed_run_resumes_exactly(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    stopped_by(signal.SIGKILL, corpus, folder, after=17)
    assert not (folder / "scores.json").exists()
    assert_resumes_like(unbroken, corpus, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "gone"), [("trainer_state.json", "optimizer.pt"), ("model.safetensors", None)])
def test_run_with_half_written_checkpoint_resumes_exactly(unbroken, corpus, tmp_path, cut, gone):
    folder = tmp_path / "run"
    stopped_by(signal.SIGKILL, corpus, folder, after=27)
    last = RunFolder(folder).good_checkpoints()[-1]
    (last / cut).write_bytes((last / cut).read_bytes()[:100])
    if gone:
        (last / gone).unlink()
    assert_resumes_like(unbroken, corpus, folder)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_interrupted_run_resumes_exactly(unbroken, corpus, tmp_path, number):
    folder = tmp_path / "run"
    done = stopped_by(number, corpus, folder, after=14)
    assert done.returncode == 128 + number
    stopped_at = RunFolder(folder).good_checkpoints()[-1]
    assert int(stopped_at.name.split("-")[1]) == max(losses(folder))
    # The message ends with the whole command, which needs none of the original arguments.
    _, _, typed = done.stderr.splitlines()[-1].partition(" Go on with: vanilla-transformer ")
    assert typed == f"train --resume {folder}"
    assert_resumes_like(unbroken, corpus, folder, *shlex.split(typed))


def test_finished_run_is_scored_without_more_training(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "scores.json").unlink()
    assert_resumes_like(unbroken, corpus, folder)
    assert (folder / "scores.json").exists()


@pytest.mark.slow
def test_early_stopped_run_stays_stopped(corpus, tmp_path):
    # At this rate nothing is learned: the second evaluation is not better than the first.
    typed = [*arguments(corpus, tmp_path / "run"), "--training.early_stopping_patience", "1"]
    typed += ["--training.noam_factor", "1e-9"]
    finished(*typed)
    before = losses(tmp_path / "run")
    assert max(before) == 20
    (tmp_path / "run" / "finished.json").unlink()  # as if the run had been killed just before writing it
    finished(*typed, "--resume")
    assert losses(tmp_path / "run") == before


def test_killed_run_resumes_exactly_with_a_moved_corpus(unbroken, corpus, tmp_path):
    stopped_by(signal.SIGKILL, corpus, tmp_path / "run", after=17)
    shutil.copytree(corpus, tmp_path / "moved")
    assert_resumes_like(unbroken, tmp_path / "moved", tmp_path / "run")


def test_changed_decoding_needs_no_retraining(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    typed = [*arguments(corpus, folder), "--decoding.num_beams", "1", "--training.average_last", "1", "--resume"]
    finished(*typed)
    assert losses(folder) == losses(unbroken)
    decoding = json.loads((folder / "averaged" / "generation_config.json").read_text(encoding="utf-8"))
    assert decoding["num_beams"] == 1
    last = RunFolder(folder).good_checkpoints()[-1] / "model.safetensors"
    assert (folder / "averaged" / "model.safetensors").read_bytes() == last.read_bytes()
    assert "num_beams: 1" in (folder / "averaged" / "recipe.yaml").read_text(encoding="utf-8")


def test_run_killed_before_averaging_resumes(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "finished.json").unlink()
    shutil.rmtree(folder / "averaged")
    shutil.rmtree(folder / "best")
    assert_resumes_like(unbroken, corpus, folder)
