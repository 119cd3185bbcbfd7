"""Which checkpoints a run has after a kill, and after a save that failed."""

import json
import os
import shutil

import pytest

from vanilla_transformer.run_folder import RunFolder
from vanilla_transformer.training.checkpoints import finish_what_was_cut_short, saving


@pytest.fixture
def run(make_trainer, tmp_path):
    """Makes a run folder with these checkpoints, the last one's state naming the best."""
    make_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()
    made = (tmp_path / "checkpoints").rename(tmp_path / "made") / "checkpoint-1"

    def run(*steps, best=None):
        folder = RunFolder(tmp_path)
        for age, step in enumerate(reversed(steps)):
            path = shutil.copytree(made, folder.checkpoints / f"checkpoint-{step}")
            state = json.loads((path / "trainer_state.json").read_bytes())
            state |= {"global_step": step, "best_model_checkpoint": best and f"elsewhere/checkpoint-{best}"}
            (path / "trainer_state.json").write_text(json.dumps(state))
            os.utime(path, (2e9 - 100 * age,) * 2)
        return folder

    return run


def steps(folder):
    return sorted(int(path.name.split("-")[1]) for path in folder.checkpoints.iterdir())


def changed_last(folder):
    return [path.name for path in sorted(folder.checkpoints.iterdir(), key=os.path.getmtime)]


def test_what_was_half_written_goes(run):
    folder = run(10, 20, 30)
    (folder.checkpoints / "checkpoint-30" / "trainer_state.json").unlink()
    finish_what_was_cut_short(folder, 10, 3)
    assert steps(folder) == [10, 20]


def test_what_was_half_removed_is_removed(run):
    folder = run(10, 20, 30)
    (folder.checkpoints / "checkpoint-10" / "optimizer.pt").unlink()
    finish_what_was_cut_short(folder, 10, 2)
    assert steps(folder) == [20, 30]


def test_the_best_stays_and_another_goes(run):
    folder = run(10, 20, 30, best=10)
    finish_what_was_cut_short(folder, 10, 2)
    assert steps(folder) == [10, 30]


def test_what_was_saved_on_request_makes_none_of_the_others_go(run):
    folder = run(10, 20, 25)
    finish_what_was_cut_short(folder, 10, 2)
    assert steps(folder) == [10, 20, 25]


def test_the_newest_is_the_one_of_most_updates(run):
    folder = run(90, 100, 110)
    os.utime(folder.checkpoints / "checkpoint-90")  # as removing a file from it does
    os.utime(folder.checkpoints / "checkpoint-110", (1e9, 1e9))
    finish_what_was_cut_short(folder, 10, 3)
    assert changed_last(folder) == ["checkpoint-90", "checkpoint-100", "checkpoint-110"]


def test_no_checkpoint_is_no_trouble(run):
    folder = run()
    finish_what_was_cut_short(folder, 10, 2)
    assert folder.good_checkpoints() == folder.bad_checkpoints() == []


def test_a_save_that_failed_leaves_nothing(tmp_path):
    checkpoint = tmp_path / "checkpoint-10"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text('{"global_st')
    said = r"checkpoint-10 could not be saved: no room\. Those before it are whole"
    with pytest.raises(OSError, match=said), saving(checkpoint):
        raise RuntimeError("no room")
    assert not checkpoint.exists()


def test_what_fails_once_a_checkpoint_is_saved_leaves_it(run):
    checkpoint = run(10).checkpoints / "checkpoint-10"
    with pytest.raises(ConnectionError, match="no Hub"), saving(checkpoint):
        raise ConnectionError("no Hub")
    assert (checkpoint / "model.safetensors").exists()
