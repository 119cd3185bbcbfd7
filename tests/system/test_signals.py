"""SIGTERM, as schedulers and containers send it, ends a command like Ctrl-C does, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from vanilla_transformer.signals import ENDING

from ..warm_python import CLI, PACKAGE, PIPE, WarmProcess
from .conftest import finished


pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

SAID = {signal.SIGINT: "Interrupted.\n", signal.SIGTERM: "Terminated.\n"}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def children_of(process: WarmProcess) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def are_gone(workers: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(workers, timeout=10)[1]


def until(condition, process) -> None:
    """Waits until the condition holds or the process has ended."""
    deadline = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < deadline and not condition():
        time.sleep(0.002)


def translating(run: Path, output: Path) -> WarmProcess:
    """A `translate` in the middle of its work, with two workers and an incomplete file."""
    words = ["translate", "--model", run, "--workers", "2", "--device", "cpu", "--output", output]
    process = PACKAGE.start(CLI, *words, stdin=PIPE, new_session=True)
    process.stdin.write("The dog is old.\n")
    process.stdin.flush()
    process.until(lambda: len(children_of(process)) == 2 and names(output.parent))
    return process


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["alone", "with its workers"])
@pytest.mark.parametrize("number", ENDING, ids=["INT", "TERM"])
def test_interrupted_translate_leaves_no_file_or_worker(run, tmp_path, number, send):
    with translating(run, tmp_path / "out") as process:
        workers = children_of(process)
        assert len(names(tmp_path)) == 1
        send(process.pid, number)
        assert process.wait(20) == 128 + number
        assert process.stderr.read() == SAID[number]
    assert names(tmp_path) == []
    assert are_gone(workers)


def test_only_leftovers_of_killed_translate_are_removed(run, tmp_path):
    with translating(run, tmp_path / "out") as killed:
        workers = children_of(killed)
        killed.kill()
        killed.wait(20)
    assert are_gone(workers)
    with translating(run, tmp_path / "other") as another:
        left, other = sorted(names(tmp_path), key=lambda name: name.startswith(".other"))
        finished("translate", "A dog.", "--model", run, "--output", tmp_path / "out")
        assert names(tmp_path) == sorted([other, "out"])
        finished("translate", "A dog.", "--model", run, "--output", tmp_path / "other")
        assert names(tmp_path) == sorted([other, "other", "out"])
        assert left.startswith(".out.")
        another.kill()


def test_commands_terminated_while_writing_leave_nothing(run, corpus, tmp_path):
    commands = {
        "prepared": ["prepare", corpus / "recipe.yaml", "--data.folder", corpus, "--workers", "2"],
        "vocabulary": ["tokenizer", corpus / "train.en", "--vocab-size", "300"],
        "exported": ["export", run],
        "model": ["average", run, "--last", "2"],
        "curves.png": ["plot", "curves", run],
        "trees": ["translate", "--model", run, "--input", corpus / "test.en", "--workers", "2", "--device", "cpu"],
    }
    stopped = []
    for name, words in commands.items():
        place = tmp_path / name
        place.mkdir()
        process = PACKAGE.start(CLI, *words, "--output", place / name, new_session=True)
        until(lambda place=place: any(path.name.startswith(".") for path in place.rglob("*")), process)
        process.send_signal(signal.SIGSTOP)  # so that it cannot finish before the other signal
        done = (place / name).exists()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=100)
        assert "Traceback" not in errors, errors
        assert process.returncode == 143 or (process.returncode == 0 and done), errors
        if process.returncode:
            stopped.append(name)
            assert errors.endswith(SAID[signal.SIGTERM])
            assert not (place / name).is_file()
        assert not [path for path in place.rglob("*") if path.name.startswith(".")], name
    assert stopped  # some may be quicker than the signal


def handles_signals(pid: int) -> bool:
    [caught] = re.findall(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", ENDING, ids=["INT", "TERM"])
def test_signal_during_imports_ends_cleanly(run, tmp_path, number):
    words = [sys.executable, "-m", "vanilla_transformer.cli", "translate", "A dog.", "--model", run]
    for wait in (0, 0.05, 0.4, 1):
        started = [*words, "--output", tmp_path / "out"]
        with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            until(lambda process=process: handles_signals(process.pid), process)
            time.sleep(wait)
            process.send_signal(number)
            output, errors = process.communicate(timeout=100)
        assert (output, errors, process.returncode) == ("", SAID[number], 128 + number)
        assert names(tmp_path) == []
