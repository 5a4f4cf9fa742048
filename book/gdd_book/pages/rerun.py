"""In Sphinx: a chapter's code. Above, a switch for what is folded; below, how to run it: as a notebook, or changed.

Notebook and command are made from the chapter when the book is built, so that they cannot differ from it.
"""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import jupytext
import nbformat
from docutils import nodes
from sphinx.application import Sphinx

from gdd_book.pages import notebooks

#: first cell of a notebook that is read elsewhere than in its book
NEEDED = """\
# This page of a book needs the packages gdd and gdd_book. Once, in the top folder of the book's repository:
#     pip install ".[book]"
# Pages with results show those of the repository, if it was installed by: pip install -e ".[book]"
from importlib.util import find_spec

if find_spec("gdd_book") is None:
    raise ModuleNotFoundError("gdd_book is not installed; the lines above say how, then start the kernel anew")"""


#: a box that is ticked shows all code of the page, by ``companion.css`` alone
SWITCH = '<label class="code-switch"><input type="checkbox" autocomplete="off"> Show all code</label>'
FOLDED = "tag_hide-input"


def offer_code(app: Sphinx, doctree: nodes.document) -> None:
    """Put the switch below the title of a page that has folded code."""
    section = next(doctree.findall(nodes.section), None)
    if section is not None and any(FOLDED in one.get("classes", ()) for one in doctree.findall(nodes.container)):
        section.insert(1, nodes.raw("", SWITCH, format="html"))


def show_command(app: Sphinx, doctree: nodes.document) -> None:
    """Append link and command to a chapter."""
    page = app.env.docname.removeprefix("book/")
    if page in notebooks.chapters():
        link = nodes.reference("", "as a notebook", refuri=f"{Path(page).name}.ipynb", internal=True)
        link["classes"].append("download")
        words = nodes.paragraph("", "Run this page yourself: ", link, nodes.Text(
            " (its first cell says what it needs), or at other parameters from the top folder of the repository:"))
        section = next(doctree.findall(nodes.section), doctree)
        line = command(page)
        section += nodes.container("", words, nodes.literal_block(line, line, language="text"), classes=["rerun"])


def command(page: str) -> str:
    """The line that runs a chapter with its own parameters, to be changed; of numbers and words alone."""
    cells = [cell for cell in _chapter(page).cells if "parameters" in cell.metadata.get("tags", [])]
    values = {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cells[0].source).body}
    plain = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    given = [f"-p {name} {shlex.quote(str(value))}" for name, value in plain.items()]
    return " ".join(["papermill", f"book/{page}.md", "out.ipynb", *given])


def offer_notebook(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Let the download button of a chapter offer its notebook, beside its text."""
    if page.removeprefix("book/") in notebooks.chapters():
        context["ipynb_source"] = f"../{page}.ipynb"  # the theme looks in _sources


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write every chapter, as a notebook without outputs, beside its page."""
    if exception is None and app.builder.format == "html":
        for page in notebooks.chapters():
            notebook = _chapter(page)
            notebook.cells.insert(0, nbformat.v4.new_code_cell(NEEDED))
            jupytext.write(notebook, Path(app.outdir) / "book" / f"{page}.ipynb")


def _chapter(page: str):
    return jupytext.read(notebooks.text_path(page))
