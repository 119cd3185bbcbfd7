"""Training on two real processes (gloo): the same as one with the same updates, exact after a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .conftest import command


STREAM = ("--data.stream", "true", "--data.buffer_pairs", "100", "--training.max_tokens", "300")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(*arguments) -> subprocess.Popen:
    """`vanilla-transformer ARGUMENTS` on two processes."""
    launcher = ["--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "vanilla_transformer.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen) -> str:
    """Waits; whatever goes wrong, no process stays."""
    try:
        output, _ = process.communicate(timeout=200)
    finally:
        kill(process)
    return output


def kill(process: subprocess.Popen) -> None:
    for number in group_of(process):
        os.kill(number, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def group_of(process: subprocess.Popen) -> list[int]:
    """torchrun gives every worker a session of its own; these are they and it."""
    found = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split()[2:]
    parents = dict(zip(map(int, found[::2]), map(int, found[1::2]), strict=True))
    return [number for number in parents if process.pid in (number, parents[number])]


def on_two(*arguments) -> str:
    process = start(*map(str, arguments))
    output = end(process)
    assert process.returncode == 0, output
    return output


def records(run: Path, name: str) -> list[float]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [record[name] for record in map(json.loads, lines) if name in record]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "averaged" / "model.safetensors")


def test_two_processes_are_one_with_the_same_updates(corpus, tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    same = ("--training.update_tokens", "600", "--training.max_tokens", "300", "--model.dropout", "0")
    output = on_two("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", two, *same)
    assert "(2 processes x 1 batches of 300)" in output
    assert output.count("Everything is in") == 1
    done = command("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", one, *same)
    assert "(1 processes x 2 batches of 300)" in done.stderr
    assert records(two, "loss") == pytest.approx(records(one, "loss"), rel=1e-4)
    assert records(two, "eval_loss") == pytest.approx(records(one, "eval_loss"), rel=1e-4)
    assert records(two, "step") == records(one, "step")
    expected = weights(one)
    for name, found in weights(two).items():
        torch.testing.assert_close(found, expected[name], atol=1e-3, rtol=1e-3)
    assert json.loads((two / "environment.json").read_text())["processes"] == 2


@pytest.mark.parametrize("data", [pytest.param((), marks=pytest.mark.slow), STREAM], ids=["files", "stream"])
def test_killed_and_resumed_on_two_processes_is_exact(corpus, tmp_path, data):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    on_two("train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", whole, *data)
    arguments = (
        "train",
        str(corpus / "recipe.yaml"),
        "--data.folder",
        str(corpus),
        "--output",
        str(broken),
        "--resume",
        *data,
    )
    process = start(*arguments)
    while not (broken / "checkpoints" / "checkpoint-8" / "trainer_state.json").exists():
        assert process.poll() is None, end(process)
        time.sleep(0.02)
    kill(process)
    if not (broken / "finished.json").exists():
        refused = command(*arguments)
        assert refused.returncode == 1
        assert "was begun with 2 processes, not 1" in refused.stderr
    on_two(*arguments)
    assert records(broken, "loss") == records(whole, "loss")
    expected = weights(whole)
    assert all(torch.equal(found, expected[name]) for name, found in weights(broken).items())
