"""In Sphinx: a switch for a chapter's folded code, and how to run it: as a notebook, or changed (rerun.yml)."""

import shlex
from pathlib import Path

import jupytext
import nbformat
import yaml
from docutils import nodes
from sphinx.application import Sphinx

from gdd_book import checkout
from gdd_book.pages import chapter, notebooks
from gdd_book.parameters import written

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


def offer_code(app: Sphinx, doctree: nodes.document) -> None:
    """Put the switch below the title of a page that has folded code."""
    if any("tag_hide-input" in one.get("classes", ()) for one in doctree.findall(nodes.container)):
        next(doctree.findall(nodes.section)).insert(1, nodes.raw("", SWITCH, format="html"))


def show_command(app: Sphinx, doctree: nodes.document) -> None:
    """Append to a chapter its notebook, and a line that runs it with one value changed."""
    page = app.env.docname.removeprefix("book/")
    if page in notebooks.chapters():
        link = nodes.reference("", "as a notebook", refuri=f"{Path(page).name}.ipynb", classes=["download"])
        words = nodes.paragraph(
            "", "Run this page ", link, nodes.Text(", or with a value changed (in the top folder, after "),
            nodes.literal("", "make book"), nodes.Text("):"))
        section, line = next(doctree.findall(nodes.section)), command(page)
        section += nodes.container("", words, nodes.literal_block(line, line, language="text"),
                                   nodes.paragraph("", effect(page)), classes=["rerun"])


def command(page: str) -> str:
    """The line that runs a chapter with one of its parameters changed, a list as YAML."""
    ((name, value),) = _changed(page)["change"].items()
    given = f"-y {shlex.quote(yaml.safe_dump({name: value}, default_flow_style=None, width=1000).strip())}"
    if not isinstance(value, list):
        given = f"-p {name} {written(value)}"
    return f".venv/bin/gdd chapter book/{page}.md _build/{Path(page).name}.ipynb {given}"


def effect(page: str) -> str:
    """What that line changes, how long it takes, what else can be changed."""
    ((name, _),), known = _changed(page)["change"].items(), chapter.defaults(chapter.read(notebooks.text_path(page)))
    what, takes, others = _changed(page)["what"], _changed(page)["takes"], [one for one in known if one != name]
    text = f"Then {what}. It takes about {takes}."
    if others:
        text += f" Other parameters: {', '.join(others)}"
        text += "; lists by -y." if any(isinstance(known[one], list | tuple) for one in others) else "."
    return text


def _changed(page: str) -> dict:
    """Entry of a chapter in rerun.yml."""
    return yaml.safe_load(checkout.text(checkout.BOOK / "rerun.yml"))[page]


def offer_notebook(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Let the download button of a chapter offer its notebook, beside its text."""
    if page.removeprefix("book/") in notebooks.chapters():
        context["ipynb_source"] = f"../{page}.ipynb"  # the theme looks in _sources


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write every chapter, as a notebook without outputs, beside its page."""
    for page in notebooks.chapters() if exception is None and app.builder.format == "html" else ():
        notebook = chapter.for_jupyter(chapter.read(notebooks.text_path(page)))
        notebook.cells.insert(0, nbformat.v4.new_code_cell(NEEDED))
        jupytext.write(notebook, Path(app.outdir) / "book" / f"{page}.ipynb")
