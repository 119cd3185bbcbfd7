"""A disk that is full while a checkpoint is saved ends the run with one clear line, and nothing is lost."""

import os
import resource
import shutil
import subprocess

import pytest

from vanilla_transformer.run.folder import RunFolder

from .conftest import command
from .test_resume import losses


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, of 32 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "none", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def train(corpus, folder, *more, **options):
    recipe = corpus / "recipe.yaml"
    return command("train", recipe, "--data.folder", corpus, "--output", folder, *more, "--resume", **options)


def assert_one_clear_line(done, checkpoint):
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"vanilla-transformer: The checkpoint {checkpoint} could not be saved: ")
    assert "Traceback" not in done.stderr


def assert_equal(folder, run):
    assert losses(folder) == losses(run)
    for model in ("averaged", "best"):
        weights = f"{model}/model.safetensors"
        assert (folder / weights).read_bytes() == (run / weights).read_bytes()


def whole(folder):
    return [path.name for path in RunFolder(folder).good_checkpoints()]


# Room for less than half the weights, for the weights but not the optimizer's state, and for all but the end.
@pytest.mark.parametrize(
    "share", [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.95, marks=pytest.mark.slow)]
)
def test_a_run_goes_on_once_there_is_room(share, disk, corpus, run):
    folder, filler = disk / "run", disk / "filler"
    assert train(corpus, folder, "--training.max_steps", 8).returncode == 0
    before = {path.name: path.read_bytes() for path in (folder / "checkpoints" / "checkpoint-8").iterdir()}
    size = sum(map(len, before.values()))
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - int(share * size)))

    done = train(corpus, folder)
    assert_one_clear_line(done, folder / "checkpoints" / "checkpoint-16")
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["checkpoint-8"]
    assert {path.name: path.read_bytes() for path in (folder / "checkpoints" / "checkpoint-8").iterdir()} == before

    filler.unlink()
    done = train(corpus, folder)
    assert done.returncode == 0, done.stderr
    assert_equal(folder, run)


@pytest.mark.slow
def test_files_that_may_not_grow_are_as_bad_as_a_full_disk(corpus, run, tmp_path):
    state, weights = (run / "checkpoints" / "checkpoint-24" / name for name in ("optimizer.pt", "model.safetensors"))
    limit = (state.stat().st_size + weights.stat().st_size) // 2
    done = train(corpus, tmp_path / "run", largest_file=limit)
    assert_one_clear_line(done, tmp_path / "run" / "checkpoints" / "checkpoint-8")
    assert whole(tmp_path / "run") == []
    done = train(corpus, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert_equal(tmp_path / "run", run)


def test_the_file_that_there_is_no_room_for_is_named(disk, corpus):
    folder = disk / "run"
    assert train(corpus, folder, "--training.max_steps", 8).returncode == 0
    (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))
    with (folder / "log.jsonl").open("ab") as log:
        log.write(bytes(-os.stat(log.fileno()).st_size % resource.getpagesize()))  # no room in its last page either
    done = train(corpus, folder)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert str(folder) in done.stderr.splitlines()[-1]
    assert whole(folder) == ["checkpoint-8"]
