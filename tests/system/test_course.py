"""The notebooks of docs/course are stored with their output, and reproduce it."""

import json
import re
import time
from pathlib import Path

import pytest

from ..scripts.conftest import load_script


ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "course").glob("*.ipynb"))
VARIES = "varies"  # the tag of cells whose output may depend on the processor or the number of threads
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict) -> str:
    """A cell's printed text and its last value as text, without pictures and HTML."""
    told = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        is_text = output["output_type"] == "stream" or data.keys() == {"text/plain"}
        told.append("".join(output.get("text") or data.get("text/plain", "")) if is_text else "")
    return "".join(told)


def differs(stored: str, now: str) -> bool:
    """Whether they differ by more than whitespace and 10 % of a number; differences below 1e-5 are rounding."""
    words = [NUMBER.sub("0", text).split() for text in (stored, now)]
    numbers = [[float(found.replace(",", "")) for found in NUMBER.findall(text)] for text in (stored, now)]
    return words[0] != words[1] or numbers[1] != pytest.approx(numbers[0], rel=0.1, abs=1e-5)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_with_clean_output(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom, once"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any(printed(cell) for cell in cells)
    failed = [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert failed == []
    assert [cell["metadata"] for cell in notebook["cells"] if "execution" in cell["metadata"]] == []  # times
    assert re.findall(r"/(?:home|Users|root|tmp|work)/\S+", text) == []
    assert path.stat().st_size < 600_000


def test_comparison_ignores_rounding_and_sees_changes():
    assert not differs("d_k = 64: 8.02\n", "d_k =  64: 8.1")
    assert not differs("largest difference: 2e-07", "largest difference: 5e-07")
    for other in ("d_k = 64: 9.1", "d_v = 64: 8.02", "d_k = 64: 8.02 1"):
        assert differs("d_k = 64: 8.02", other)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_reproduces_its_stored_output(path, tmp_path):
    pytest.importorskip("nbclient")
    executed = load_script("experiments/course").executed
    began = time.monotonic()
    again = code_cells(executed(path, tmp_path))
    assert time.monotonic() - began < 600  # three minutes on two quiet cores
    stored = code_cells(json.loads(path.read_text(encoding="utf-8")))
    pairs = [
        (printed(before), printed(now))
        for before, now in zip(stored, again, strict=True)
        if VARIES not in before["metadata"].get("tags", [])
    ]
    assert sum(bool(before) for before, _ in pairs) >= 3
    assert [(before, now) for before, now in pairs if differs(before, now)] == []
