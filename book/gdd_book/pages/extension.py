"""The book's Sphinx extension: what it adds to pages and to docstrings."""

import re
from html import escape

from docutils import nodes
from sphinx.application import Sphinx

from gdd_book.pages import glossary, index, rerun

#: of Sphinx: what reads docstrings, and pages of source that entries of the reference lead to
NEEDED = ("autodoc", "autosummary", "napoleon", "viewcode")
#: our docstrings have words where numpy's have a type, which go below the name; their closing lines are paragraphs
OURS = [(r"^(\*{0,2}[A-Za-z_][\w, *]*?) : (.*)$", r"\1\n    \2"), (r"^\*?(Source|Departs|Checked):\*?", r"\n*\1:*")]


def adapt(app: Sphinx, what: str, name: str, found: object, options: dict, lines: list[str]) -> None:
    """Put one docstring into the form that napoleon reads; in place, as autodoc wants it."""
    text = "\n".join(lines)
    for pattern, theirs in OURS:
        text = re.sub(pattern, theirs, text, flags=re.MULTILINE)
    lines[:] = text.split("\n")


def caption_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Put the ``caption`` of a cell's metadata, one or a list of them, above its tables; CSS counts their numbers."""
    for cell in doctree.findall(nodes.container):
        captions = cell.get("cell_metadata", {}).get("caption", [])
        captions = [captions] if isinstance(captions, str) else captions
        tables = [one for one in cell.findall(nodes.raw) if "<table" in one.astext()]
        for caption, table in zip(captions, tables, strict=False):
            html = f'<figure class="table"><figcaption>{escape(caption)}</figcaption>{table.astext()}</figure>'
            table.replace_self(nodes.raw("", html, format="html", classes=table["classes"]))


def without_thebe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Leave out what would run cells in the browser: no page has a button for it, and listed twice it is an error."""
    context["script_files"] = [file for file in context["script_files"] if "thebe" not in str(file)]


def setup(app: Sphinx) -> dict:
    """Connect to Sphinx; work for one event is done in this order, the lowest priority first (500 by default)."""
    for name in NEEDED:
        app.setup_extension(f"sphinx.ext.{name}")
    app.connect("autodoc-process-docstring", adapt, priority=400)  # before napoleon
    app.connect("doctree-read", index.show_code)  # below an equation, its function and its test
    app.connect("doctree-read", caption_tables)
    app.connect("doctree-read", rerun.offer_code)  # a switch for the code that is folded
    app.connect("doctree-read", rerun.show_command, priority=900)  # after what stands below equations
    app.connect("doctree-resolved", glossary.explain_words)
    app.connect("html-page-context", rerun.offer_notebook, priority=100)  # before the theme makes its buttons
    app.connect("html-page-context", without_thebe)
    app.connect("build-finished", rerun.write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
