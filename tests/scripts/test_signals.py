"""The script that sends random signals does send them, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_few_signals(tmp_path):
    script = [sys.executable, ROOT / "scripts" / "faults" / "signals.py", "--commands", "translate", "export"]
    script += ["--signals", "4", "--json", tmp_path / "figures.json"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["signals"] == len(figures["each_signal"]) == sum(figures["came"].values()) == 4
    assert figures["faults"] == 0
    assert figures["equal_to_the_undisturbed"] == figures["run_to_the_end"] == len(figures["each_end"])
    assert {each["command"] for each in figures["each_end"]} == {"translate", "export"}
    assert "signals: 4\n" in done.stdout
