"""The files beside the package agree with it on its version, requirements and folders."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml

import vanilla_transformer


ROOT = Path(__file__).resolve().parents[1]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_citation_matches_this_version():
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "abstract", "references"} <= citation.keys()
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert str(citation["version"]) == vanilla_transformer.__version__
    assert f'license = "{citation["license"]}"' in text_of("pyproject.toml")
    [paper] = citation["references"]
    assert (paper["title"], paper["year"], len(paper["authors"])) == ("Attention Is All You Need", 2017, 8)


def test_changelog_follows_keep_a_changelog():
    """This version comes first, each version has a date or is unreleased, and changes are of six kinds."""
    versions = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert versions[0][0] == vanilla_transformer.__version__
    kinds = re.findall(r"^### (.+)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert len(re.findall(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)) == len(versions)


def test_contributing_lists_every_folder():
    [table] = re.findall(r"^\| folder \|.*\n((?:\|.*\n)+)", text_of("CONTRIBUTING.md"), flags=re.MULTILINE)
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`([\w.]+)/?`", row.split("|")[1])}
    package = ROOT / "vanilla_transformer"
    assert {path.parent.name for path in package.glob("*/__init__.py")} <= named
    assert [name for name in named if not (package / name).exists() and not (ROOT / name).exists()] == []


def test_paths_in_contributing_exist():
    typed = re.findall(r"(?<![./\w-])((?:scripts|tests|docs)/[\w./-]*\w)", text_of("CONTRIBUTING.md"))
    assert {"scripts/test.sh", "tests/test_import.py"} <= set(typed)
    assert [name for name in typed if not (ROOT / name).exists()] == []


def test_every_imported_package_is_declared():
    """By name, even if another library brings it: any new version of that library may stop doing so."""
    asked, _, _ = text_of("pyproject.toml").partition("\ntest = [")  # not what only the tests need
    names = {name.lower() for name in re.findall(r'"([\w-]+)(?:\[\w+\])?>=', asked)}
    imported = set()
    for path in (ROOT / "vanilla_transformer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.partition(".")[0])
    brought_by = packages_distributions()
    found = {
        name: {each.lower().replace("_", "-") for each in brought_by[name]}
        for name in imported - sys.stdlib_module_names - {"vanilla_transformer"}
    }
    assert {name for name, packages in found.items() if not packages & names} == set()
