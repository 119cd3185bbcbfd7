"""A run that is killed or interrupted and goes on is the run that was never stopped, batch for batch."""

import json
import shlex
import shutil
import signal
import time

import pytest

from vanilla_transformer.run.folder import RunFolder

from ..warm_python import CLI, PACKAGE, WarmProcess
from .conftest import command


UPDATES = 60
# An epoch of the corpus has about 25 batches: checkpoints and the stop fall into the middle of one.
SLOWER = ["--training.max_steps", str(UPDATES), "--training.eval_steps", "10", "--training.save_steps", "10"]


def losses(folder) -> dict[int, float]:
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def checkpoints(folder) -> list[str]:
    return [path.name for path in RunFolder(folder).good_checkpoints()]


def arguments(corpus, folder) -> list[str]:
    return ["train", str(corpus / "recipe.yaml"), "--data.folder", str(corpus), "--output", str(folder), *SLOWER]


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    done = command(*arguments(corpus, folder))
    assert done.returncode == 0, done.stderr
    return folder


def stopped_by(which: signal.Signals, corpus, folder, after: int) -> WarmProcess:
    """Starts the run and sends it a signal once it has logged `after` updates."""
    process = PACKAGE.start(CLI, *arguments(corpus, folder))
    until = time.monotonic() + 120
    try:
        while time.monotonic() < until and process.poll() is None:
            log = folder / "log.jsonl"
            if log.exists() and len(losses_so_far := log.read_bytes().splitlines()) >= after and losses_so_far:
                break
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it was stopped"
        process.send_signal(which)
        _, process.stderr_text = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process


def assert_goes_on_like(unbroken, corpus, folder, *typed):
    done = command(*(typed or (*arguments(corpus, folder), "--resume")))
    assert done.returncode == 0, done.stderr
    assert losses(folder) == losses(unbroken)
    assert checkpoints(folder) == checkpoints(unbroken)
    for model in ("averaged", "best"):
        weights = f"{model}/model.safetensors"
        assert (folder / weights).read_bytes() == (unbroken / weights).read_bytes()


def test_after_sigkill(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    stopped_by(signal.SIGKILL, corpus, folder, after=17)
    assert not (folder / "scores.json").exists()
    assert_goes_on_like(unbroken, corpus, folder)


@pytest.mark.slow
def test_after_sigkill_and_a_checkpoint_that_was_half_written(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    stopped_by(signal.SIGKILL, corpus, folder, after=27)
    last = RunFolder(folder).good_checkpoints()[-1]
    state = last / "trainer_state.json"
    state.write_bytes(state.read_bytes()[:100])
    (last / "optimizer.pt").unlink()
    assert_goes_on_like(unbroken, corpus, folder)


@pytest.mark.slow
def test_after_a_crash_that_cut_the_last_weights(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    stopped_by(signal.SIGKILL, corpus, folder, after=27)
    weights = RunFolder(folder).good_checkpoints()[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert_goes_on_like(unbroken, corpus, folder)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_after_an_interrupt(unbroken, corpus, tmp_path, number):
    folder = tmp_path / "run"
    process = stopped_by(number, corpus, folder, after=14)
    assert process.returncode == 128 + number
    stopped_at = RunFolder(folder).good_checkpoints()[-1]
    assert int(stopped_at.name.split("-")[1]) == max(losses(folder))
    # The message ends in the whole command, which needs none of what was typed in the beginning.
    said = process.stderr_text.splitlines()[-1]
    _, _, typed = said.partition(" Go on with: vanilla-transformer ")
    assert typed == f"train --resume {folder}"
    assert_goes_on_like(unbroken, corpus, folder, *shlex.split(typed))


def test_a_finished_run_is_not_trained_on(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "scores.json").unlink()
    assert_goes_on_like(unbroken, corpus, folder)
    assert (folder / "scores.json").exists()


@pytest.mark.slow
def test_a_run_that_stopped_early_stays_stopped(corpus, tmp_path):
    # At such a rate nothing is learned: the second evaluation is no better than the first.
    typed = [*arguments(corpus, tmp_path / "run"), "--training.early_stopping_patience", "1"]
    typed += ["--training.noam_factor", "1e-9"]
    assert command(*typed).returncode == 0
    before = losses(tmp_path / "run")
    assert max(before) == 20
    (tmp_path / "run" / "finished.json").unlink()  # as if it had been killed just before it was written
    assert command(*typed, "--resume").returncode == 0
    assert losses(tmp_path / "run") == before


def test_the_same_text_may_lie_elsewhere_when_the_run_goes_on(unbroken, corpus, tmp_path):
    shutil.copytree(unbroken, tmp_path / "run")
    shutil.copytree(corpus, tmp_path / "moved")
    typed = arguments(tmp_path / "moved", tmp_path / "run")
    done = command(*typed, "--resume")
    assert done.returncode == 0, done.stderr


def test_another_decoding_needs_no_other_training(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    typed = [*arguments(corpus, folder), "--decoding.num_beams", "1", "--training.average_last", "1", "--resume"]
    done = command(*typed)
    assert done.returncode == 0, done.stderr
    assert losses(folder) == losses(unbroken)
    decoding = json.loads((folder / "averaged" / "generation_config.json").read_text(encoding="utf-8"))
    assert decoding["num_beams"] == 1
    last = RunFolder(folder).good_checkpoints()[-1] / "model.safetensors"
    assert (folder / "averaged" / "model.safetensors").read_bytes() == last.read_bytes()
    assert "num_beams: 1" in (folder / "averaged" / "recipe.yaml").read_text(encoding="utf-8")


def test_killed_between_training_and_averaging(unbroken, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "finished.json").unlink()
    shutil.rmtree(folder / "averaged")
    shutil.rmtree(folder / "best")
    assert_goes_on_like(unbroken, corpus, folder)
