"""The script that kills runs does kill them, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_few_kills(tmp_path):
    script = ROOT / "scripts" / "faults" / "kills.py"
    words = [sys.executable, script, "--kills", "3", "--json", tmp_path / "figures.json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["kills"] == len(figures["each_kill"]) == sum(figures["kills_while"].values()) == 3
    assert figures["equal_runs"] == figures["runs"] == len(figures["each_run"])
    for run in figures["each_run"]:
        assert run["kills"] == len(run["restarts_from"])
        assert f"| {run['run']} | {run['kills']} |" in done.stdout
