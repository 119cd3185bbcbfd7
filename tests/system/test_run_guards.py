"""What a run refuses to do, to others' files and to its own: every state of a folder it may find."""

import fcntl
import json
import os
import shutil

import pytest

from vanilla_transformer.run_folder import RunFolder
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.run import train


@pytest.fixture
def recipe(corpus):
    """Makes the recipe of the tests with other settings."""

    def recipe(**settings):
        overrides = {f"training.{name}": str(value) for name, value in settings.items()}
        return load_recipe(corpus / "recipe.yaml", {"data.folder": str(corpus), **overrides})

    return recipe


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(run, tmp_path / "run")


def contents(folder):
    return {str(p.relative_to(folder)): p.is_file() and p.read_bytes() for p in folder.rglob("*")}


# ------------------------------------------------------------------------------------------------- whose folder it is


@pytest.mark.parametrize(
    "files", [[".git/config"], ["recipe.yaml"], ["data.json", "tokenizer/tokenizer.json"], ["environment.json", "x"]]
)
def test_others_files_are_left_alone(files, recipe, tmp_path):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("of value")
    before = contents(tmp_path)
    for resume in (False, True):
        with pytest.raises(FileExistsError, match="is no run folder, it holds"):
            train(recipe(), tmp_path, resume=resume)
    assert contents(tmp_path) == before


def test_one_process_per_folder(recipe, copy):
    before = contents(copy)
    descriptor = os.open(copy, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(FileExistsError, match="Another process is at work in"):
            train(recipe(), copy, resume=True)
    finally:
        os.close(descriptor)
    assert contents(copy) == before
    train(recipe(), copy, resume=True)


# ------------------------------------------------------------------------------------------ whole and other checkpoints


def test_a_finished_run_whose_checkpoints_went_is_not_begun_anew(recipe, copy):
    shutil.rmtree(copy / "checkpoints")
    before = contents(copy)
    with pytest.raises(FileExistsError, match="is no run folder, it holds"):
        train(recipe(), copy, resume=True)
    assert contents(copy) == before


def test_a_killed_run_without_a_whole_checkpoint_begins_anew(recipe, run, copy):
    for name in ("averaged", "best", "translations"):
        shutil.rmtree(copy / name)
    for name in ("finished.json", "scores.json", "attention.png"):
        (copy / name).unlink()
    assert (copy / "learning_curve.png").exists()  # it is drawn after an evaluation, before the checkpoint
    (copy / "not_finite.jsonl").write_text("{}\n")
    for checkpoint in (copy / "checkpoints").iterdir():
        (checkpoint / "trainer_state.json").unlink()
    train(recipe(), copy, resume=True)
    assert json.loads((copy / "scores.json").read_bytes()) == json.loads((run / "scores.json").read_bytes())
    assert not (copy / "not_finite.jsonl").exists()  # nothing of the run that was begun before


@pytest.mark.slow
def test_a_run_that_is_made_longer_is_one_that_was_longer_from_the_start(recipe, tmp_path):
    train(recipe(max_steps=20), tmp_path / "longer")
    train(recipe(max_steps=32), tmp_path / "longer", resume=True)
    train(recipe(max_steps=32), tmp_path / "straight")
    weights = [(tmp_path / name / "averaged" / "model.safetensors").read_bytes() for name in ("longer", "straight")]
    assert weights[0] == weights[1]


def test_a_best_checkpoint_that_went_is_replaced_by_the_last(recipe, copy):
    (copy / "finished.json").unlink()
    shutil.rmtree(copy / "best")
    last = RunFolder(copy).good_checkpoints()[-1]
    state = json.loads((last / "trainer_state.json").read_bytes())
    state["best_model_checkpoint"] = "checkpoints/checkpoint-8888"
    (last / "trainer_state.json").write_text(json.dumps(state))
    train(recipe(), copy, resume=True)
    assert (copy / "best" / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_training_does_not_go_on_without_a_part_of_its_state(name, recipe, copy):
    (RunFolder(copy).good_checkpoints()[-1] / name).unlink()
    with pytest.raises(ValueError, match=f"checkpoint-24 has no {name}: training cannot go on"):
        train(recipe(max_steps=40), copy, resume=True)


# -------------------------------------------------------------------------------------------------- senseless settings


@pytest.mark.parametrize(
    "settings",
    [{"save_strategy": "epoch"}, {"save_strategy": "'no'"}, {"save_strategy": "best"}, {"save_steps": 0.5}],
)
def test_a_run_without_numbered_checkpoints_is_refused(settings, recipe, tmp_path):
    with pytest.raises(ValueError, match=r"(?i)sav(e|ing)"):
        train(recipe(**settings), tmp_path / "run")


# --------------------------------------------------------------------------------------------------------- old results


def test_scores_of_a_model_that_is_trained_on_do_not_stay(recipe, copy, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("vanilla_transformer.training.run.keep_models", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe(max_steps=32), copy, resume=True)
    assert not (copy / "scores.json").exists()
