"""The run folder: only whole checkpoints count."""

import json

import pytest
import torch
from safetensors.torch import save_file

from vanilla_transformer.run_folder import RunFolder, find_model


def checkpoint(run, step, state=None):
    folder = run / "checkpoints" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    save_file({"weight": torch.zeros(100)}, folder / "model.safetensors")
    torch.save({"step": torch.zeros(100)}, folder / "optimizer.pt")
    torch.save({"cpu": torch.zeros(100)}, folder / "rng_state.pth")
    torch.save({"step": torch.zeros(100)}, folder / "optimizer.bin")  # of a sharded run
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}) if state is None else state)
    return folder


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


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "rng_state.pth", "optimizer.bin"])
def test_checkpoint_with_a_truncated_file_is_left_out(name, tmp_path):
    good, bad = checkpoint(tmp_path, 1), checkpoint(tmp_path, 2)
    content = (bad / name).read_bytes()
    (bad / name).write_bytes(content[: len(content) // 2])
    assert RunFolder(tmp_path).good_checkpoints() == [good]
    assert RunFolder(tmp_path).bad_checkpoints() == [bad]


def test_checkpoint_without_weights_is_left_out(tmp_path):
    (checkpoint(tmp_path, 1) / "model.safetensors").unlink()
    assert RunFolder(tmp_path).good_checkpoints() == []


def test_somebodys_copy_is_no_checkpoint(tmp_path):
    good = checkpoint(tmp_path, 1)
    checkpoint(tmp_path, "1-backup", '{"global_step": 1}')
    assert RunFolder(tmp_path).good_checkpoints() == [good]
    assert RunFolder(tmp_path).bad_checkpoints() == []


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


# ------------------------------------------------------------------------------------------------------------- log


def test_a_line_that_has_no_end_is_not_read(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1, "loss": 2.5, "note": "a\xe2\x80\xa8b"}\n{"step": 2, "lo')
    assert RunFolder(tmp_path).log_records() == [{"step": 1, "loss": 2.5, "note": "a\u2028b"}]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1, 2]",
        "null",
        '{"step": "a"}',
        '{"step": 1, "loss": [2]}',
        '{"step": 1',
        "\0",
        f'{{"step": 1{"0" * 400}}}',
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    (tmp_path / "log.jsonl").write_text(f'{{"step": 1, "loss": null}}\n{line}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: no record of a training log"):
        RunFolder(tmp_path).log_records()


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n{"a": "\xff"}\n')
    with pytest.raises(ValueError, match="line 2: no record"):
        RunFolder(tmp_path).log_records()
