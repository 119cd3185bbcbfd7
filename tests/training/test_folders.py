"""The run folder: only whole checkpoints count, and nothing is ever half-written."""

import json

import pytest

from vanilla_transformer.training.folders import RunFolder, find_model, write_json, write_text, written_beside


def checkpoint(run, step, state=None):
    folder = run / "checkpoints" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}) if state is None else state)
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ----------------------------------------------------------------------------------------------------- checkpoints


def test_checkpoints_are_sorted_by_number(tmp_path):
    expected = [checkpoint(tmp_path, step) for step in (10, 9, 100, 1000)]
    expected = [expected[1], expected[0], *expected[2:]]
    assert RunFolder(tmp_path).good_checkpoints() == expected


@pytest.mark.parametrize("state", ["", '{"global_step": 2', '{"epoch": 1}', "\0\0\0", "[]", "null"])
def test_checkpoint_with_a_broken_state_is_left_out(state, tmp_path):
    good = checkpoint(tmp_path, 1)
    checkpoint(tmp_path, 2, state)
    assert RunFolder(tmp_path).good_checkpoints() == [good]


def test_checkpoint_without_a_state_is_left_out(tmp_path):
    (checkpoint(tmp_path, 1) / "trainer_state.json").unlink()
    assert RunFolder(tmp_path).good_checkpoints() == []


def test_run_that_never_began_has_no_checkpoints(tmp_path):
    assert RunFolder(tmp_path / "missing").good_checkpoints() == []


# ------------------------------------------------------------------------------------------------------ find_model


def model_in(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_model_folder_is_found_as_it_is(tmp_path):
    assert find_model(model_in(tmp_path)) == tmp_path


def test_averaged_model_comes_before_the_best(tmp_path):
    best = model_in(tmp_path / "best")
    assert find_model(tmp_path) == best
    averaged = model_in(tmp_path / "averaged")
    assert find_model(str(tmp_path)) == averaged


def test_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"no model in {tmp_path}: give a run folder, a checkpoint"):
        find_model(tmp_path)


# --------------------------------------------------------------------------------------------------------- writing


def test_written_text_is_there_alone(tmp_path):
    write_text(tmp_path / "a.txt", "größer\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert names(tmp_path) == ["a.txt"]


def test_failed_write_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "new\ud800")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_json_is_readable_and_comes_back(tmp_path):
    content = {"b": [1, 2.5, None], "a": "größer"}
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "größer" in text
    assert text.startswith('{\n  "b"')


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert (tmp_path / "a.json").read_text() == "1\n"
    assert names(tmp_path) == ["a.json"]


def test_folder_appears_only_when_it_is_complete(tmp_path):
    with written_beside(tmp_path / "new") as beside:
        (beside / "file").write_text("x")
        assert not (tmp_path / "new").exists()
        assert beside.parent == tmp_path  # on the same disk, so that renaming is one step
    assert names(tmp_path) == ["new"]
    assert names(tmp_path / "new") == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_folder_vanishes(error, tmp_path):
    def fail():
        with written_beside(tmp_path / "new") as beside:
            (beside / "file").write_text("x")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


def test_existing_folder_is_not_touched(tmp_path):
    model_in(tmp_path / "old")
    with pytest.raises(FileExistsError, match=r"old exists already: remove it"), written_beside(tmp_path / "old"):
        pass
    assert names(tmp_path) == ["old"]
    assert names(tmp_path / "old") == ["config.json"]
