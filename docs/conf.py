"""How Sphinx makes the site: `sphinx-build -W -n --keep-going -b html docs site`.

Pages are Markdown. A link to a file of the repository that is not a page leads to one that shows the file, so that the
same link works in the repository and on the site. What is wrong (a broken link, a page in no table of contents, a
public name without a docstring) is a warning, and by -W an error.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx import addnodes
from sphinx.util import logging


DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import generated  # noqa: E402

import vanilla_transformer  # noqa: E402


project = "vanilla_transformer"
version = release = vanilla_transformer.__version__
copyright = "the authors of vanilla_transformer, Apache-2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["**/.ipynb_checkpoints"]
highlight_language = "none"
smartquotes = False  # quotes in docstrings are those of code
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are stored with their outputs, which a test compares

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False  # a method without a docstring is the library's that prescribes it
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
# Names of other libraries, and those of ours that only types mention: no page has them.
nitpick_ignore_regex = [("py:.*", r"(?!vanilla_transformer\.).*")]

html_theme = "furo"
html_title = "vanilla_transformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

_SHOWN = {".css", ".md", ".py", ".pyi", ".sh", ".toml", ".yaml"}  # files of the repository that get a page
_log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------- what is made of the code


def _fill_in(app, docname: str, source: list[str]) -> None:
    source[0] = re.sub(r"^<!-- generated: (\w+) -->$", lambda found: generated.PARTS[found[1]](), source[0], flags=re.M)
    # Markdown outside docs/ is not a page; as a path it is a file like any other.
    source[0] = re.sub(r"\]\(((?:\.\./)+model_cards/[^)#]+\.md)\)", r"](path:\1)", source[0])


def _always_read(app, env, added, changed, removed) -> list[str]:
    """The pages that are made of code are read again in every build: their files do not say when the code changed."""
    return [name for name in env.found_docs if "<!-- generated:" in Path(env.doc2path(name)).read_text("utf-8")]


def _ask_for_docstrings(app) -> None:
    for name in generated.lacking_docstrings():
        _log.warning("%s is public and has no docstring", name)


def _restructured(app, what, name, thing, options, lines: list[str]) -> None:
    lines[:] = generated.restructured("\n".join([*lines, ""])).splitlines()


def _signature(app, what, name, thing, options, signature: str | None, returns: str | None):
    """All fields of transformers' training arguments, 140 of them, say less than none; the recipe's page has them."""
    return ("(**fields)" if signature and len(signature) > 2000 else signature), returns


def _dashes(app, doctree, docname: str) -> None:
    """What stands between an argument and its explanation. Sphinx writes --, and leaves the rest to smart quotes."""
    for text in list(doctree.findall(lambda node: isinstance(node, nodes.Text) and node.astext() == " -- ")):
        text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def _breakable_names(app, page: str, template: str, context: dict, doctree) -> None:
    """Lets long names in code break after `_` and before capitals, where narrow columns and screens need it."""
    for part in ("body", "toc"):
        context[part] = re.sub(
            r'(?<=<span class="pre">)[^<]+',
            lambda found: re.sub(r"(?<=[a-z.])(?=[A-Z])|(?<=_)(?=\w)", "<wbr>", found[0]),
            context.get(part) or "",
        )


def _formula(translator, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw by themselves: MathJax would be fetched from elsewhere."""
    as_block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=as_block)
    translator.body.append(f'<div class="math">{formula}</div>\n' if as_block else formula)
    raise nodes.SkipNode


def _left_out(app, what, name, thing, skip, options) -> bool | None:
    return True if inspect.isclass(thing) else None  # `config_class` and such


# ---------------------------------------------------------------------------------------------- files of the repository


def _links_of_an_included_page(app, path: Path, parent: str, content: list[str]) -> None:
    """Makes the links of a page from elsewhere, relative to its own folder, relative to the page that includes it."""
    here, there = DOCS / Path(app.env.docname).parent, (DOCS / path).resolve().parent
    content[0] = re.sub(
        r"^(\[\w+\]: )(?!https?:)(\S+)$",
        lambda found: f"{found[1]}{os.path.relpath(there / found[2], here)}",
        content[0],
        flags=re.M,
    )


def _page_of(env, path: Path) -> str | None:
    """The name of the page that shows a file of the repository; it will be made."""
    if path.suffix not in _SHOWN or not path.is_relative_to(ROOT):
        return None
    name = f"source/{path.relative_to(ROOT).as_posix()}"
    _shown_files(env)[name] = path
    return name


def _shown_files(env) -> dict[str, Path]:
    if not hasattr(env, "shown_files"):
        env.shown_files = {}
    return env.shown_files


def _link_to_files(app, doctree) -> None:
    """A link that MyST would make a download becomes one to the page that shows the file."""
    docname = app.env.docname
    for link in list(doctree.findall(addnodes.download_reference)):
        path = Path(os.path.normpath(DOCS / Path(docname).parent / link["reftarget"]))
        if (name := _page_of(app.env, path)) is None:
            continue
        uri = os.path.relpath(f"{name}.html", Path(docname).parent)
        link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


def _pages_of_files(app) -> Iterator[tuple[str, dict, str]]:
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, wrapcode=True)
    for name, path in sorted(_shown_files(app.env).items()):
        if not path.is_file():  # a build before this one showed it
            continue
        code = highlight(path.read_text("utf-8"), get_lexer_for_filename(path.name), formatter)
        title = path.relative_to(ROOT).as_posix()
        yield name, {"title": title, "body": f"<h1><code>{title}</code></h1>\n{code}"}, "page.html"


def linkcode_resolve(domain: str, info: dict) -> str | None:
    """Where the code of a documented name is shown; all of them stand on one page, reference/python."""
    thing = sys.modules.get(info["module"])
    for part in info["fullname"].split("."):
        thing = getattr(thing, part, None)
    thing = inspect.unwrap(getattr(thing, "fget", thing))
    try:
        path, (_, line) = Path(inspect.getsourcefile(thing)), inspect.getsourcelines(thing)
    except TypeError:  # no function and no class: the version
        return None
    name = _page_of(_app.env, path)
    return name and f"../{name}.html#L-{line}"


def setup(app) -> None:
    global _app  # linkcode hands it to nobody
    _app = app
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    app.connect("builder-inited", _ask_for_docstrings)
    app.connect("env-get-outdated", _always_read)
    app.connect("source-read", _fill_in)
    app.connect("include-read", _links_of_an_included_page)
    app.connect("autodoc-process-docstring", _restructured, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _left_out)
    app.connect("doctree-read", _link_to_files, priority=100)  # before downloads are collected
    app.connect("doctree-resolved", _dashes)
    app.connect("html-page-context", _breakable_names)
    app.connect("html-collect-pages", _pages_of_files)
