"""Every figure in the documents was printed by a recorded command."""

import json
import sys

import pytest

from .conftest import load_script


figures = load_script("figures")

PAGE = """# A page

Measured by `python scripts/benchmarks/speed.py`: 12.3 % more, 1.5 times as fast as section 3.2 says; 7 of them.

| what | took |
| --- | ---: |
| 3 runs | 1,024 |

    99.9 in code
"""


def test_every_figure_in_the_documents_is_traced():
    assert figures.untraced() == []


def test_figures_are_found_on_a_page():
    assert list(figures.figures_in(PAGE)) == [(3, "12.3%"), (3, "1.5"), (7, "1,024")]


@pytest.mark.parametrize(
    ("figure", "number", "same"),
    [
        ("12.3%", "0.1234", True),
        ("12.3%", "12.34", True),
        ("12.3", "0.1234", False),
        ("1,024", "1024.4", True),
        ("1,024", "1,025", False),
        ("0.6", "0.55", True),
        ("2.1e-06", "2.14e-6", True),
        ("2.1e-06", "2.2e-6", False),
    ],
)
def test_figure_matches_number_at_its_own_precision(figure, number, same):
    assert figures.is_in(figure, [number]) is same


def test_untraced_figure_is_reported_with_page_and_line(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(PAGE, encoding="utf-8")
    measured = {"speed": {"command": "python scripts/benchmarks/speed.py", "output": ["0.123 1.5", "1025"]}}
    stated = {"measured": measured, "stated": {}}
    (tmp_path / "docs/figures.json").write_text(json.dumps(stated), encoding="utf-8")
    assert figures.untraced(tmp_path) == ["README.md:7: 1,024"]
    stated["stated"] = {"README.md": ["1,024"]}
    (tmp_path / "docs/figures.json").write_text(json.dumps(stated), encoding="utf-8")
    assert figures.untraced(tmp_path) == []


def test_command_output_is_recorded_unless_it_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures.json")
    figures.record("three", [sys.executable, "-c", "print(3)"])
    kept = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert kept["measured"]["three"]["output"] == ["3"]
    assert capsys.readouterr().out == "3\n"
    figures.record("bytes", [sys.executable, "-c", r"import os; os.write(1, b'caf\xe9 1.5')"])
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["measured"]["bytes"]["output"]
    kept = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    with pytest.raises(SystemExit, match="cannot be run"):
        figures.record("none", [str(tmp_path / "no such command")])
    with pytest.raises(SystemExit, match="nothing is kept"):
        figures.record("three", [sys.executable, "-c", "print(4); raise SystemExit(1)"])
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8")) == kept
    (tmp_path / "figures.json").write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"figures\.json cannot be read"):  # before the command is run
        figures.record("four", [sys.executable, "-c", "print(4)"])
