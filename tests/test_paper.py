"""Every file, name, test and heading that PAPER.md and the model's contract point to exists, and nothing is missing."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import yaml


ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "vanilla_transformer" / "PAPER.md"
CONTRACT = ROOT / "docs" / "explanation" / "model-contract.md"
TEXT = PAPER.read_text(encoding="utf-8")
PLACES = dict(re.findall(r"^\[(\w+)\]: (\S+)$", TEXT, flags=re.MULTILINE))


def pointers() -> set[tuple[str, str]]:
    """(label of a file, name in it) for every name in the text; a name belongs to the file before it."""
    found = set()
    for paragraph in re.split(r"\n\n|\||;", TEXT):
        label = None
        for reference, name in re.findall(r"\[(\w+)\](?![(:])|`([^`]+)`", paragraph):
            label = reference or label
            if name and label:
                found.add((label, name))
    return found


@cache
def definitions(path: Path) -> set[str]:
    """Functions, classes, assigned names and methods ("Class.method") of a Python file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def is_there(path: Path, name: str) -> bool:
    if not path.is_file():
        return False
    if path.suffix == ".md":
        return f"\n## {name}\n" in path.read_text(encoding="utf-8")
    if path.suffix == ".py" and not path.is_relative_to(ROOT / "vanilla_transformer"):
        return name in definitions(path)
    if path.suffix == ".yaml":
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    else:
        found = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    try:
        for part in name.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
    except (KeyError, AttributeError):
        return False
    return True


def test_every_pointer_resolves():
    assert set(PLACES) == {label for label, _ in pointers()}
    paths = {label: (PAPER.parent / place).resolve() for label, place in PLACES.items()}
    assert [(PLACES[label], name) for label, name in sorted(pointers()) if not is_there(paths[label], name)] == []


def test_every_proof_is_a_test_or_an_experiment():
    """A row's last cell names a test, an experiment, or nothing where there is nothing to prove."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| the", "| ---"))]
    assert len(rows) > 50
    for row in rows:
        _, _, code, proof, _ = row.split("|")
        assert re.search(r"`test_\w+|`Test\w+|\[paper_questions\]", proof) or code.startswith(" not here"), row


def test_every_numbered_part_of_the_paper_is_covered():
    sections = re.findall(r"^#+ (.*)", TEXT, flags=re.MULTILINE)
    assert [heading[0] for heading in sections[1:]] == list("13333456")
    wanted = [f"**Table {number}**" for number in range(1, 5)] + [f"**equation {number}**" for number in range(1, 4)]
    wanted += ["**Figure 1**", "**Figure 2** left", "**Figure 2** right", "**Figures 3 to 5**"]
    assert [each for each in wanted if each not in TEXT] == []
    for section in ("5.1", "5.2", "5.3", "5.4", "6.1", "6.2", "6.3"):
        assert f"{section}, " in TEXT or f"{section}:" in TEXT
    assert '"PAPER.md"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # it is part of the package


def test_contract_names_only_existing_tests():
    """`test_file::test_name`, or `…rest_of_a_name` of the file named before."""
    missing, found = [], 0
    for row in re.findall(r"^\| *\d* *\|.*\| (.+) \|$", CONTRACT.read_text(encoding="utf-8"), flags=re.MULTILINE):
        names: set[str] = set()
        for folder, file, name in re.findall(r"`(?:tests/)?(?:(\w+)/)?(?:(test_\w+)::)?(…?\w+)`", row):
            found += 1
            if file:
                [path] = (ROOT / "tests").glob(f"{folder or 'model'}/{file}.py")
                names = {each.rpartition(".")[2] for each in definitions(path)}
            if file and name not in names:
                missing.append(name)
            if name.startswith("…") and not any(each.endswith(name[1:]) for each in names):
                missing.append(name)
    assert missing == []
    assert found > 80
