"""Loads the files of scripts/ as modules, and runs them."""

import gzip
import importlib.util
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from vanilla_transformer.data.phrasebook import phrasebook


SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Some import others from their own folder, as they can when they are run.
sys.path += [str(SCRIPTS / room) for room in ("benchmarks", "examples", "experiments", "faults")]


def load_script(path: str):
    name = Path(path).name
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, SCRIPTS / f"{path}.py")
        sys.modules[name] = importlib.util.module_from_spec(found)  # where dataclasses look their module up
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def figures_of(path: str, folder: Path, *words) -> tuple[dict, str]:
    """Runs a script as a process; returns the figures that it writes with `--json`, and its output."""
    words = [sys.executable, SCRIPTS / f"{path}.py", *words, "--json", folder / "figures.json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=SCRIPTS.parent)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "figures.json").read_text(encoding="utf-8")), done.stdout


def write_files_like_multi30ks(folder: Path, sizes: dict[str, int]) -> Path:
    """Writes the phrasebook to files that are named and compressed like Multi30k's."""
    folder.mkdir()
    for name, count in sizes.items():
        pairs = list(islice(phrasebook({"train": "train", "val": "validation"}.get(name, "test")), count))
        for language in ("en", "de"):
            text = "".join(f"{pair[language]}\n" for pair in pairs)
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture
def printed_by(monkeypatch, capsys):
    """Runs a script in this process with these arguments; returns its output."""

    def printed_by(script, *words) -> str:
        monkeypatch.setattr("sys.argv", [f"{script.__name__}.py", *map(str, words)])
        capsys.readouterr()
        script.main()
        return capsys.readouterr().out

    return printed_by


@pytest.fixture(autouse=True)
def same_settings_of_torch():
    """Restores the settings of torch that scripts change for their process."""
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
