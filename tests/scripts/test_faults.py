"""The scripts that kill runs, damage them, send signals or try markup do so, and report what they find."""

from pathlib import Path

import pytest

from .conftest import figures_of


pytestmark = pytest.mark.slow


def test_kills_script_finds_all_runs_equal(tmp_path):
    figures, output = figures_of("faults/kills", tmp_path, "--kills", "3")
    assert figures["kills"] == len(figures["each_kill"]) == sum(figures["kills_while"].values()) == 3
    assert figures["equal_runs"] == figures["runs"] == len(figures["each_run"])
    for run in figures["each_run"]:
        assert run["kills"] == len(run["restarts_from"])
        assert f"| {run['run']} | {run['kills']} |" in output


def test_damages_script_finds_no_faults(tmp_path):
    figures, output = figures_of("faults/damages", tmp_path, "--damages", "4", "--folders", "3")
    assert figures["damages"] == len(figures["each_of_damages"]) == sum(figures["damages_by_status"].values()) == 4
    assert figures["folders"] == len(figures["each_of_folders"]) == 3
    assert figures["faults"] == 0
    assert "faults: 0" in output


def test_markup_script_finds_no_faults(tmp_path):
    figures, output = figures_of("faults/markup", tmp_path, "--lines", "90")
    assert sum(row["lines"] for row in figures["random"]["rows"].values()) == 90
    assert figures["random"]["faults"] == 0
    assert "| all | 90 |" in output


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_signals_script_finds_no_faults(tmp_path):
    figures, output = figures_of("faults/signals", tmp_path, "--commands", "translate", "export", "--signals", "4")
    assert figures["signals"] == len(figures["each_signal"]) == sum(figures["came"].values()) == 4
    assert figures["faults"] == 0
    assert figures["equal_to_the_undisturbed"] == figures["run_to_the_end"] == len(figures["each_end"])
    assert {each["command"] for each in figures["each_end"]} == {"translate", "export"}
    assert "signals: 4\n" in output
