"""The site builds from docs/ without a warning, is complete, and fails to build if there are mistakes."""

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from subprocess import CompletedProcess
from urllib.parse import unquote

import pytest

import vanilla_transformer
from vanilla_transformer import _HOMES
from vanilla_transformer.command_line import COMMANDS
from vanilla_transformer.evaluation.metrics import METRICS
from vanilla_transformer.run.recipe import _OPEN_SECTIONS

from ..warm_python import PACKAGE


pytest.importorskip("furo")
pytest.importorskip("myst_nb")
ROOT = Path(__file__).resolve().parents[2]
STRICT = ("-W", "-n", "--keep-going")


def build(docs: Path, out: Path, builder: str) -> CompletedProcess:
    code = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    return PACKAGE.run(code, *STRICT, "-q", "-b", builder, docs, out, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("documents") / "site"
    built = build(ROOT / "docs", out, "html")
    assert built.returncode == 0, built.stderr
    return out


class Page(HTMLParser):
    """The links and the link targets of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}


def test_front_page_links_to_every_section(site):
    links = Page(site / "index.html").links
    for page in ("tutorial", "how-to/own-data", "reference/commands", "explanation/paper"):
        assert f"{page}.html" in links


def test_internal_links_are_not_broken(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 30
    broken = set()
    for path, page in pages.items():
        for link in page.links:
            place, _, anchor = unquote(link).partition("#")
            place = place.partition("?")[0]
            if re.match(r"\w+:|//", place):
                continue
            target = (path.parent / place).resolve() if place else path
            lost = target in pages and anchor and anchor not in pages[target].ids
            if not target.is_file() or lost:
                broken.add((path.relative_to(site).as_posix(), link))
    assert broken == set()


def test_pages_load_nothing_from_other_sites(site):
    """Scripts, styles and pictures are the site's own: it works offline, and tells nobody who reads it."""
    for path in site.rglob("*.html"):
        assert not re.search(
            r'(?:<script[^>]+src|<link[^>]+href|<img[^>]+src(?:set)?)="(?:https?:)?//', path.read_text("utf-8")
        )
    sheets = list(site.rglob("*.css"))
    assert sheets
    for path in sheets:
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text("utf-8")), path


def test_search_index_covers_reference_and_explanation(site):
    index = json.loads(re.fullmatch(r"Search\.setIndex\((.*)\)\s*", (site / "searchindex.js").read_text("utf-8"))[1])
    names = index["docnames"]
    assert {"index", "tutorial", "reference/recipe", "explanation/paper"} <= set(names)

    def pages_with(term: str) -> set[str]:
        found = index["terms"][term]
        return {names[number] for number in (found if isinstance(found, list) else [found])}

    assert "reference/recipe" in pages_with("label_smoothing_factor")
    assert "explanation/questions" in pages_with("softmax")


def test_reference_pages_cover_commands_settings_and_metrics(site):
    commands = Page(site / "reference" / "commands.html").ids
    assert {command.__name__ for command in COMMANDS} <= commands
    recipe = (site / "reference" / "recipe.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", recipe)
    assert [name for name in _OPEN_SECTIONS["training"]() if not re.search(rf"\b{name}\b", text)] == []
    assert [name for name in _OPEN_SECTIONS["model"]() if f"{name}: " not in text] == []
    metrics = (site / "reference" / "metrics.html").read_text(encoding="utf-8")
    assert set(METRICS) <= set(map(unescape, re.findall(r"<h2>(.*?)<a", metrics)))
    assert "case:mixed|eff:no|tok:13a|smooth:exp" in re.sub(r"<[^>]+>", "", metrics)


def test_every_public_name_has_an_entry(site):
    public = {*vanilla_transformer.__all__, *(name for names in _HOMES.values() for name in names)}
    entries = Page(site / "reference" / "python.html").ids
    assert {name for name in public if f"vanilla_transformer.{name}" not in entries} == set()


def test_linked_source_code_is_shown(site):
    links = Page(site / "explanation" / "paper.html").links
    modeling = "../source/vanilla_transformer/model/modeling_vanilla_transformer.py.html"
    assert modeling in links
    assert "questions.html" in links
    shown = re.sub(r"<[^>]+>", "", (site / "explanation" / modeling).resolve().read_text(encoding="utf-8"))
    assert "def sinusoids(" in shown


@pytest.mark.slow
def test_mistakes_in_documents_fail_the_build(tmp_path):
    """An orphan page, broken links to a page, a heading and a file, and a missing docstring are all reported."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in ROOT.iterdir():
        if path.name != "docs" and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "docs" / "orphan.md").write_text("# In no table of contents\n")
    with (tmp_path / "docs" / "tutorial.md").open("a", encoding="utf-8") as page:
        page.write(
            "\n[one](how-to/not-there.md), [two](reference/commands.md#not-there), [three](../scripts/not_there.py)\n"
        )
    with (tmp_path / "docs" / "generated.py").open("a", encoding="utf-8") as code:
        code.write("\n\nvanilla_transformer.noam.__doc__ = None\n")
    built = build(tmp_path / "docs", tmp_path / "out", "dummy")
    assert built.returncode != 0
    told = built.stderr
    assert re.search(r"orphan\.md: WARNING: document isn't included in any toctree", told)
    assert "vanilla_transformer.noam is public and has no docstring" in told
    for target in ("how-to/not-there.md", "not-there", "../scripts/not_there.py"):
        assert f"'{target}'" in told
