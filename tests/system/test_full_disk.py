"""A disk that fills up during a save ends the run with one clear line, and nothing is lost."""

import os
import resource
import shutil

import pytest

from vanilla_transformer.run.folder import RunFolder

from .conftest import assert_same_run, finished, refused


def train(corpus, folder):
    return ["train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder, "--resume"]


def unsaved(checkpoint):
    return f"vanilla-transformer: The checkpoint {checkpoint} could not be saved: "


def contents(checkpoint):
    return {path.name: path.read_bytes() for path in checkpoint.iterdir()}


# Room for less than half the weights, for the weights but not the optimizer's state, and for all but the end.
@pytest.mark.parametrize(
    "share", [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.95, marks=pytest.mark.slow)]
)
def test_run_resumes_once_there_is_room(share, disk, corpus, run):
    folder, filler = disk / "run", disk / "filler"
    finished(*train(corpus, folder), "--training.max_steps", 8)
    checkpoint = folder / "checkpoints" / "checkpoint-8"
    before = contents(checkpoint)
    size = sum(map(len, before.values()))
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - int(share * size)))

    assert refused(*train(corpus, folder)).startswith(unsaved(checkpoint.with_name("checkpoint-16")))
    assert [*checkpoint.parent.iterdir()] == [checkpoint]
    assert contents(checkpoint) == before

    filler.unlink()
    finished(*train(corpus, folder))
    assert_same_run(folder, run)


@pytest.mark.slow
def test_file_size_limit_acts_like_a_full_disk(corpus, run, tmp_path):
    state, weights = (run / "checkpoints" / "checkpoint-24" / name for name in ("optimizer.pt", "model.safetensors"))
    limit = (state.stat().st_size + weights.stat().st_size) // 2
    folder = tmp_path / "run"
    said = refused(*train(corpus, folder), largest_file=limit)
    assert said.startswith(unsaved(folder / "checkpoints" / "checkpoint-8"))
    assert RunFolder(folder).good_checkpoints() == []
    finished(*train(corpus, folder))
    assert_same_run(folder, run)


def test_full_disk_error_names_the_folder(disk, corpus):
    folder = disk / "run"
    finished(*train(corpus, folder), "--training.max_steps", 8)
    (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))
    with (folder / "log.jsonl").open("ab") as log:
        log.write(bytes(-os.stat(log.fileno()).st_size % resource.getpagesize()))  # no room in its last page either
    said = refused(*train(corpus, folder))
    assert "No space left on device" in said
    assert str(folder) in said
    assert [path.name for path in RunFolder(folder).good_checkpoints()] == ["checkpoint-8"]
