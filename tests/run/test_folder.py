"""The run folder: only whole checkpoints count, and damaged records are named. (Checkpoints here have no digests.)"""

import itertools
import json
import os
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
from safetensors.torch import save_file

from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.run.loading import find_model

from ..warm_python import PACKAGE


def checkpoint(run, step, state=None):
    folder = run / "checkpoints" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    save_file({"weight": torch.zeros(100)}, folder / "model.safetensors")
    torch.save({"step": torch.zeros(100)}, folder / "optimizer.pt")
    torch.save({"cpu": torch.zeros(100)}, folder / "rng_state.pth")
    torch.save({"step": torch.zeros(100)}, folder / "optimizer.bin")  # of a sharded run
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}) if state is None else state)
    return folder


def test_checkpoints_are_sorted_by_number(tmp_path):
    expected = [checkpoint(tmp_path, step) for step in (9, 10, 100, 1000)]
    checkpoint(tmp_path, "1-backup", '{"global_step": 1}')  # somebody's copy does not count
    assert RunFolder(tmp_path).good_checkpoints() == RunFolder(tmp_path).checkpoint_folders() == expected


def test_incomplete_checkpoints_are_ignored(tmp_path):
    good = checkpoint(tmp_path, 1)
    for step, state in enumerate(("", '{"global_step": 2', '{"epoch": 1}', "\0\0\0", "[]", "null"), start=2):
        checkpoint(tmp_path, step, state)
    for step, name in enumerate(("model.safetensors", "optimizer.pt", "rng_state.pth", "optimizer.bin"), start=10):
        cut = checkpoint(tmp_path, step) / name
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (checkpoint(tmp_path, 20) / "model.safetensors").unlink()
    (checkpoint(tmp_path, 21) / "trainer_state.json").unlink()
    run = RunFolder(tmp_path)
    assert run.good_checkpoints() == [good]
    assert len(run.checkpoint_folders()) == 13
    assert RunFolder(tmp_path / "missing").good_checkpoints() == []


def test_find_model_prefers_final_then_averaged_then_best(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"no model in {tmp_path}: give a run folder, a checkpoint"):
        find_model(tmp_path)
    for folder in (tmp_path / "best", tmp_path / "averaged", tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        assert find_model(str(tmp_path)) == find_model(folder) == folder


def test_invalid_log_line_is_named_unfinished_one_ignored(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"step": 1, "loss": 2.5, "note": "a\xe2\x80\xa8b"}\n{"step": 2, "lo')
    assert RunFolder(tmp_path).log_records() == [{"step": 1, "loss": 2.5, "note": "a\u2028b"}]
    no_records = (b"", b"[1, 2]", b"null", b'{"step": "a"}', b'{"step": 1, "loss": [2]}', b'{"step": 1', b"\0")
    for line in (*no_records, b'{"a": "\xff"}', b'{"step": 1' + b"0" * 400 + b"}"):
        log.write_bytes(b'{"step": 1, "loss": null}\n' + line + b"\n")
        with pytest.raises(ValueError, match=r"log\.jsonl, line 2: no record of a training log"):
            RunFolder(tmp_path).log_records()


BROKEN = ["", "{", "[]", "null", "7", "\0\0", '"\\ud800"', "[" * 100_000, '{"a":' * 100_000]


def test_a_damaged_record_is_named_with_a_remedy(tmp_path):
    run = RunFolder(tmp_path)
    run.environment.write_text('{"python": "3.11"}')
    with pytest.raises(ValueError, match="is not the record of a run"):
        run.began()
    for path, read, remedy, more in (
        (run.environment, run.began, "Restore it, or choose another output folder", []),
        (run.data, run.data_record, "Restore it, or remove it", ['{"train": 1}', '{"train": {"corpus": []}}']),
        (run.finished, run.finished_after, "Remove it", ["{}"]),
    ):
        for content in (*BROKEN, *more):
            path.write_text(content)
            with pytest.raises(ValueError, match=rf"{path} is damaged \(.*\)\. {remedy}"):
                read()


def test_unreadable_file_is_not_reported_as_damage(tmp_path):
    """Runs as another user, because root may read everything."""
    folder = checkpoint(tmp_path, 1)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "optimizer.pt").chmod(0)
    code = (
        "import os, sys; from vanilla_transformer.run.folder import RunFolder; "
        "os.geteuid() or os.seteuid(65534); RunFolder(sys.argv[1]).good_checkpoints()"
    )
    if os.geteuid() == 0:  # other users may not enter pytest's folders
        for folder in (tmp_path, *itertools.takewhile(lambda each: each != Path(gettempdir()), tmp_path.parents)):
            folder.chmod(0o755)
    done = PACKAGE.run(code, tmp_path)
    assert done.stderr.splitlines()[-1].startswith("PermissionError")
    assert "checkpoint-1/optimizer.pt" in done.stderr.splitlines()[-1]
