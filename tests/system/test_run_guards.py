"""How a run protects others' files and its own: every state in which it may find its folder."""

import dataclasses
import fcntl
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from vanilla_transformer.run.digests import write_digests
from vanilla_transformer.run.folder import WEIGHTS, RunFolder
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.training.checkpoints import trainer_state
from vanilla_transformer.training.opening import check_same_rates
from vanilla_transformer.training.run import train
from vanilla_transformer.training.trial import tried_arguments

from .conftest import finished, losses, refused


@pytest.fixture
def recipe(corpus):
    """Makes the tests' recipe with other training settings."""

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


def test_foreign_files_are_left_alone(recipe, run, tmp_path):
    began = {name: (run / name).read_text() for name in ("environment.json", "recipe.yaml")}
    hidden = f".notes.{'0' * 32}"
    for said, files in (
        ("is not a run folder, it holds .git:", {".git/config": "of value"}),
        ("is not a run folder, it holds recipe.yaml:", {"recipe.yaml": "of value"}),
        (
            "is not a run folder, it holds data.json:",
            {"data.json": "of value", "tokenizer/tokenizer.json": "of value"},
        ),
        ("is not a run folder, it holds environment.json:", {"environment.json": "of value", "x": "of value"}),
        (
            "is not a run folder, it holds environment.json:",
            {"environment.json": "{}", "tokenizer/precious": "of value", "checkpoints/notes.txt": "of value"},
        ),
        ("is not a run folder, it holds tokenizer/precious:", {**began, "tokenizer/precious": "of value"}),
        ("is not a run folder, it holds checkpoints/notes.txt:", {**began, "checkpoints/notes.txt": "of value"}),
        ("is not a run folder, it holds checkpoints/.notes:", {**began, "checkpoints/.notes/x": "of value"}),
        (
            f"is not a run folder, it holds checkpoints/{hidden}:",
            {**began, f"checkpoints/{hidden}/model.safetensors": "of value"},
        ),
        (f"is not a run folder, it holds {hidden}:", {**began, hidden: "of value"}),
        ("is not a run folder, it holds data.json:", {**began, "data.json": "of value"}),
        ("is not a run folder, it holds recipe.yaml:", {**began, "recipe.yaml": "of value"}),
        ("log.jsonl is a folder, where a run has a file:", {**began, "log.jsonl/notes.txt": "of value"}),
        ("tokenizer is a file, where a run has a folder:", {**began, "tokenizer": "of value"}),
        (
            "is not a run folder, it holds tokenizer/tokenizer.json:",
            {**began, "tokenizer/tokenizer.json/notes.txt": "of value"},
        ),
        (
            "is not a run folder, it holds checkpoints/checkpoint-40-good:",
            {**began, "checkpoints/checkpoint-40-good/model.safetensors": "of value"},
        ),
        (
            ("holds a run already: add --resume", "no whole checkpoint to go on from"),
            {**began, "checkpoints/checkpoint-8/newstest.pt": "of value"},
        ),
    ):
        folder = tmp_path / "run"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        before = contents(folder)
        for resume in (False, True):
            with pytest.raises((OSError, ValueError), match=re.escape(said if isinstance(said, str) else said[resume])):
                train(recipe(), folder, resume=resume)
        assert contents(folder) == before
        shutil.rmtree(folder)


def test_second_process_in_a_folder_is_rejected(recipe, copy):
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


# --------------------------------------------------------------------------------------------- good and bad checkpoints


def test_finished_run_without_good_checkpoints_is_left_alone(recipe, copy):
    for checkpoint in RunFolder(copy).good_checkpoints():
        (checkpoint / "rng_state.pth").write_bytes(b"")
    damaged = r"no whole checkpoint to go on from \(.*checkpoint-24/rng_state\.pth is damaged"
    for error, said in ((ValueError, damaged), (FileExistsError, "is finished and its checkpoints are gone")):
        before = contents(copy)
        with pytest.raises(error, match=said):
            train(recipe(), copy, resume=True)
        assert contents(copy) == before
        shutil.rmtree(copy / "checkpoints", ignore_errors=True)


def test_lost_log_is_restored(recipe, run, copy):
    (copy / "log.jsonl").unlink()
    train(recipe(), copy, resume=True)
    assert RunFolder(copy).log_records() == [each for each in RunFolder(run).log_records() if "train_loss" not in each]


def test_killed_run_without_good_checkpoints_restarts(recipe, run, copy):
    for name in ("averaged", "best", "translations"):
        shutil.rmtree(copy / name)
    for path in copy.iterdir():
        if path.is_file() and path not in RunFolder(copy).files_of_a_start:
            path.unlink()
    assert (copy / "learning_curve.png").exists()  # a longer run draws it before its first checkpoint
    (copy / "not_finite.jsonl").write_text("{}\n")
    for checkpoint in (copy / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    for name in ("config.json", "modeling_vanilla_transformer.py", "runs/a/events.out"):  # for pushes; of TensorBoard
        (checkpoint.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint.parent / name).write_text("{}")
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"its beginn")
    (checkpoint / ".tmpuF9UX4").write_bytes(b"its beginn")  # where safetensors writes it first
    train(recipe(), copy, resume=True)
    assert json.loads((copy / "scores.json").read_bytes()) == json.loads((run / "scores.json").read_bytes())
    assert not (copy / "not_finite.jsonl").exists()  # nothing is left of the earlier start


@pytest.mark.slow
def test_extended_run_matches_a_longer_run(recipe, tmp_path):
    train(recipe(max_steps=20), tmp_path / "longer")
    train(recipe(max_steps=32), tmp_path / "longer", resume=True)
    train(recipe(max_steps=32), tmp_path / "straight")
    weights = [(tmp_path / name / "averaged" / "model.safetensors").read_bytes() for name in ("longer", "straight")]
    assert weights[0] == weights[1]


def test_run_in_cooldown_cannot_be_extended(recipe, tmp_path):
    train(recipe(max_steps=16, cooldown_steps=4, average_last=1), tmp_path / "run")
    before = contents(tmp_path / "run")
    depends = (
        r"max_steps was 16 and cannot become {}: the rate of update {} depends on it, and .*checkpoint-16 is after"
    )
    for steps in (20, 24):
        said = (
            f"{depends.format(steps, 14)} 16 updates. Resume with 16, .* move the checkpoints after update 12 elsewhere"
        )
        with pytest.raises(ValueError, match=said):
            train(recipe(max_steps=steps, cooldown_steps=4, average_last=1), tmp_path / "run", resume=True)
        assert contents(tmp_path / "run") == before
    with pytest.raises(ValueError, match="max_steps was 16 and cannot become 8: the rate of update 6 depends on it"):
        train(recipe(max_steps=8, cooldown_steps=4, average_last=1), tmp_path / "run", resume=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "checkpoint-16")
    train(recipe(max_steps=24, cooldown_steps=4, average_last=1), tmp_path / "run", resume=True)
    train(recipe(max_steps=24, cooldown_steps=4, average_last=1), tmp_path / "straight")
    assert losses(tmp_path / "run") == losses(tmp_path / "straight")


def test_decaying_transformers_schedules_cannot_be_extended(recipe, run, copy):
    last = RunFolder(copy).good_checkpoints()[-1]
    schedules = {"linear": 12, "cosine": 12, "constant": None, "inverse_sqrt": None, "reduce_lr_on_plateau": None}
    for name, first in schedules.items():
        arguments = tried_arguments(str(copy), {}, {"noam_factor": None, "lr_scheduler_type": name, "warmup_steps": 10,
                                                    "max_steps": 32, "eval_steps": 8, "save_steps": 8})  # fmt: skip
        if first is None:
            check_same_rates(last, arguments)
            arguments.max_steps = 8
            with pytest.raises(ValueError, match=r"max_steps was 24 and cannot become 8: .* is after 24 updates"):
                check_same_rates(last, arguments)
            continue
        with pytest.raises(ValueError, match=f"cannot become 32: the rate of update {first} depends on it"):
            check_same_rates(last, arguments)


def test_missing_best_checkpoint_is_replaced_by_last(recipe, copy):
    (copy / "finished.json").unlink()
    shutil.rmtree(copy / "best")
    last = RunFolder(copy).good_checkpoints()[-1]
    state = json.loads((last / "trainer_state.json").read_bytes())
    state["best_model_checkpoint"] = "checkpoints/checkpoint-8888"
    (last / "trainer_state.json").write_text(json.dumps(state))
    write_digests(last, run=RunFolder(copy).began()["run"], step=24)
    train(recipe(), copy, resume=True)
    assert (copy / "best" / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()


def test_run_with_damaged_checkpoint_ends_the_same(run, copy):
    """Each checkpoint is damaged in turn. (The first one, which is the best, has none before it.)"""
    for checkpoint in RunFolder(copy).good_checkpoints():
        damaged = checkpoint / "optimizer.pt"
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        (checkpoint / "newstest.pt").write_text("of value")
        done = finished("train", "--resume", copy)
        assert f"{damaged} is damaged" in done.stderr
        assert (copy / "checkpoints" / f"{checkpoint.name}.damaged" / "newstest.pt").exists()
        names = ["averaged/model.safetensors", "best/model.safetensors", "model.safetensors", "scores.json"]
        if checkpoint.name == "checkpoint-8":
            assert "There is no checkpoint before update 8" in done.stderr
            names = names[:1]
        for name in names:
            assert (copy / name).read_bytes() == (run / name).read_bytes(), (checkpoint, name)
        shutil.rmtree(copy)
        shutil.copytree(run, copy)


def test_damaged_vocabulary_or_record_prevents_resume(recipe, copy):
    for name in ("environment.json", "data.json", "finished.json", "tokenizer/tokenizer.json", "recipe.yaml"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(b'{"a":' * 5000)
        before = contents(copy)
        with pytest.raises(ValueError, match=rf"{name.rpartition('/')[2]}"):
            train(recipe(), copy, resume=True)
        assert contents(copy) == before, name
        (copy / name).write_bytes(content)


def test_run_keeps_the_vocabulary_of_its_checkpoints(recipe, run, copy, tmp_path):
    """Also if it is lost, and the initial model has another one by now."""
    first = shutil.copytree(run, tmp_path / "first")
    begun = train(replace(recipe(), initial_model=str(first)), tmp_path / "second")
    vocabulary = json.loads((first / "tokenizer.json").read_text())
    ids = vocabulary["model"]["vocab"]
    one, other = list(ids)[-2:]
    ids[one], ids[other] = ids[other], ids[one]
    (first / "tokenizer.json").write_text(json.dumps(vocabulary))
    shutil.rmtree(begun.tokenizer)
    begun.scores.unlink()
    with pytest.raises(
        ValueError, match="first gives another vocabulary now than when the run was begun: restore one of them"
    ):
        train(replace(recipe(), initial_model=str(first)), begun.path, resume=True)
    assert not begun.tokenizer.exists()


def test_records_of_another_run_are_not_trusted(recipe, copy):
    """The recipe and the vocabulary are compared with the checkpoints', and finished.json with the last checkpoint."""
    vocabulary = copy / "tokenizer" / "tokenizer.json"
    for path, old, new in ((copy / "recipe.yaml", "warmup_steps: 10", "warmup_steps: 11"), (vocabulary, "##", "#%")):
        content = path.read_text()
        path.write_text(content.replace(old, new) if old in content else content.replace("e", "f", 1))
        (path.parent / "digests.json").unlink()
        before = contents(copy)
        said = refused("train", "--resume", copy)
        assert path.name in said
        assert "checkpoint-24" in said
        assert contents(copy) == before
        path.write_text(content)
    (copy / "finished.json").write_text('{"max_steps": 28, "step": 28}')
    train(recipe(max_steps=28), copy, resume=True)
    assert (copy / "checkpoints" / "checkpoint-28").exists()


def test_obstacles_are_named_before_anything_changes(recipe, copy, tmp_path):
    for name, make, said in (
        ("averaged", lambda path: path.symlink_to(tmp_path), "averaged is a symbolic link"),
        ("best", lambda path: path.write_text("of value"), "best is a file"),
        ("scores.json", lambda path: path.mkdir(), r"scores\.json is a folder"),
        ("config.json", lambda path: path.mkdir(), r"config\.json is a folder"),
    ):
        path = copy / name
        path.rename(tmp_path / "before")
        make(path)
        before = contents(copy)
        with pytest.raises(OSError, match=said):
            train(recipe(max_steps=32), copy, resume=True)
        assert contents(copy) == before
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (tmp_path / "before").rename(path)


def test_user_files_among_models_are_kept(recipe, copy):
    """As in a run of version 0.1.0, which had neither its own model nor digests."""
    for path in copy.rglob("digests.json"):
        if "checkpoints" not in path.parts:
            path.unlink()
    for name in ("averaged/mine.txt", "best/deep/mine.txt", "config.json"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("of value")
    train(recipe(average_last=0), copy, resume=True)
    for name in ("averaged/mine.txt", "best/deep/mine.txt", "config.json.kept"):
        assert (copy / name).read_text() == "of value"
    assert not (copy / "averaged" / "model.safetensors").exists()


def test_incomplete_or_non_finite_checkpoint_is_not_resumed(recipe, copy):
    last = RunFolder(copy).good_checkpoints()[-1]
    weights = load_file(last / "model.safetensors")
    name = "model.encoder.layers.0.fc1.weight"
    not_finite = {**weights, name: weights[name] * float("nan")}
    lacking = {key: weight for key, weight in weights.items() if key != name}
    for change, said in (
        (lambda: save_file(not_finite, last / WEIGHTS, metadata={"format": "pt"}), "is not finite in"),
        (lambda: save_file(lacking, last / WEIGHTS, metadata={"format": "pt"}), "lacks"),
        ((last / "rng_state.pth").unlink, r"has no rng_state\.pth"),
        # As in a run with `save_only_model`.
        ((last / "scheduler.pt").unlink, r"checkpoint-24 has no scheduler\.pt: training cannot go on"),
    ):
        change()
        write_digests(last, run=RunFolder(copy).began()["run"], step=24)
        with pytest.raises(ValueError, match=said):
            train(recipe(max_steps=32), copy, resume=True)
        assert (copy / "scores.json").exists()


def test_non_finite_validation_loss_raises(recipe, tmp_path):
    """The run is too short for ten skipped updates in a row."""
    with pytest.raises(FloatingPointError, match="The validation loss after update 2 is not finite"):
        train(recipe(max_steps=2, save_steps=2, eval_steps=2, noam_factor="1e39"), tmp_path / "run")


# ---------------------------------------------------------------------------------------------------- invalid settings


def test_unusable_sets_and_examples_are_rejected_before_training(recipe, tmp_path):
    settings = recipe(max_steps=2)
    reversed_pairs = {"corpus": settings.data.validation, "source_language": "de", "target_language": "en"}
    japanese = {"corpus": settings.data.validation, "target_language": "ja"}
    learned = {"position_embedding_type": "learned", "max_position_embeddings": 256}
    data, evaluation = settings.data, dataclasses.replace(settings.evaluation, examples=["I am a dog. " * 99])
    for changes, message in (
        ({"data": dataclasses.replace(data, test={"back": reversed_pairs})}, "back: no training corpus has the target"),
        (
            {"data": dataclasses.replace(data, test={"other": japanese})},
            "(BLEU into 'ja' needs|no training corpus)",
        ),
        ({"model": settings.model | learned, "evaluation": evaluation}, "evaluation.examples: the first has .* tokens"),
    ):
        with pytest.raises((ValueError, ImportError), match=message):
            train(dataclasses.replace(settings, **changes), tmp_path / "run")
        assert not (tmp_path / "run" / "checkpoints").exists()


def test_run_without_a_logged_loss_is_finished(recipe, tmp_path):
    options = {"eval_strategy": "'no'", "load_best_model_at_end": False, "metric_for_best_model": "null"}
    folder = train(recipe(max_steps=2, logging_steps=10, save_steps=2, average_last=1, **options), tmp_path / "run")
    assert folder.scores.exists()
    assert not folder.learning_curve.exists()


def test_early_stopping_saves_its_last_update(recipe, tmp_path):
    settings = recipe(early_stopping_patience=1, eval_steps=2, save_steps=12, noam_factor="1e-9")  # nothing is learned
    folder = train(settings, tmp_path / "run")
    last = json.loads(folder.finished.read_bytes())["step"]
    assert last % 12
    assert folder.good_checkpoints()[-1].name == f"checkpoint-{last}"


def test_run_ends_without_a_model_if_the_best_above_its_floors_is_gone(recipe, tmp_path):
    floors = {"floors": "{small: 0.0}", "average_last": 0}
    folder = train(recipe(**floors), tmp_path / "run")
    best = Path(trainer_state(folder.good_checkpoints()[-1])["best_model_checkpoint"]).name
    assert best == "checkpoint-8"
    shutil.rmtree(folder.checkpoints / best)
    folder.scores.unlink()
    for more in ({}, {"max_steps": 32}):  # also if training goes on
        with pytest.raises(ValueError, match=r"The checkpoint of update 8 of .*, the best above its floors, is gone"):
            train(recipe(**floors, **more), folder.path, resume=True)


def test_checkpoints_that_cannot_be_resumed_are_rejected(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"training\.save_only_model: no run could be resumed"):
        train(recipe(save_only_model=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_save_settings_without_numbered_checkpoints_are_rejected(recipe, tmp_path):
    for name, value in (("strategy", "epoch"), ("strategy", "'no'"), ("strategy", "best"), ("steps", 0.5)):
        # Without the best model at the end transformers has nothing against them.
        settings = {f"save_{name}": value, "load_best_model_at_end": False}
        with pytest.raises(ValueError, match=r"A run saves checkpoints every training\.save_steps updates"):
            train(recipe(**settings), tmp_path / "run")


# --------------------------------------------------------------------------------------------------------- old results


def test_old_scores_are_removed_when_training_continues(recipe, copy, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("vanilla_transformer.training.run.keep_models", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe(max_steps=32), copy, resume=True)
    assert not (copy / "scores.json").exists()
    assert list((copy / "translations").iterdir()) == []
