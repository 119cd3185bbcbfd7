"""The script that damages runs does so, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_few_damages_and_folders(tmp_path):
    script = [sys.executable, ROOT / "scripts" / "faults" / "damages.py", "--damages", "4", "--folders", "3"]
    done = subprocess.run(
        [*script, "--json", tmp_path / "figures.json"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["damages"] == len(figures["each_of_damages"]) == 4
    assert figures["folders"] == len(figures["each_of_folders"]) == 3
    assert sum(figures["damages_by_status"].values()) == 4
    assert figures["faults"] == 0
    assert "faults: 0" in done.stdout
