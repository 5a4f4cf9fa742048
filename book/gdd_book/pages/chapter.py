"""One chapter, run through papermill at parameters of one's own: ``gdd chapter PAGE.md OUT.ipynb -p NAME VALUE``."""

import ast
import base64
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from gdd.base.checks import GddError
from gdd.base.files import user_path
from gdd_book import checkout, parameters

#: of MyST's text, what Jupyter does not read, and what it reads in its place: labels, links, drawings, other directives
PLAIN = [
    (r"^\([\w-]+\)=\n", ""), (r"^\$\$ \([\w-]+\)$", "$$"), (r"\{[\w:]+\}`([^`<]+?)(?: *<[^>]*>)?`", r"\1"),
    (r"^(`{3,})\{figure\} *(\S+)\n(?::[\w-]+:.*\n)*\n?([\s\S]*?)^\1$", r"![](\2)\n\n*\3*"),
    *[(r"^(`{3,}|:{3,})\{[\w:-]+\}.*\n(?::[\w-]+:.*\n)*\n?([\s\S]*?)^\1$", r"\2")] * 2,  # one in another
    (r"\n\*$", "*"),
]
HIDDEN = {"hide-input", "remove-input", "remove-cell"}


def run(page: str, output: str, given: Iterable[Sequence[str]] = ()) -> Path:
    """Run a chapter and write it with its outputs; return the path of the notebook.

    ``page`` : path of its text, or - for the standard input; ``output`` : a notebook that is not there, in a folder
    that is; ``given`` : see `gdd_book.parameters.parse`. A GddError refuses these before any work, or names the cell
    that fails.
    """
    target = user_path("output", output)
    if target.suffix != ".ipynb":
        raise GddError(f"output {output}: the name of a notebook (.ipynb) is needed")
    if target.exists():
        raise GddError(f"output {output}: is there already; remove it, or name another")
    if not target.parent.is_dir():
        raise GddError(f"output {output}: there is no folder {target.parent}; make it first")
    chapter = read(page)
    changes = parameters.parse(f"chapter {page}", defaults(chapter), given)
    nbformat.write(for_jupyter(execute(chapter, page, changes)), target)
    return target


def read(page: str | Path) -> NotebookNode:
    """A chapter as a notebook without outputs; GddError for what is none."""
    try:
        text = sys.stdin.read() if page == "-" else Path(page).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise GddError(f"chapter {page}: cannot be read ({error}); name a page such as book/mnist/error.md") from error
    chapter = jupytext.reads(text, fmt="md:myst")
    if not any(cell.cell_type == "code" for cell in chapter.cells):
        raise GddError(f"chapter {page}: no page with code of this book; name one such as book/mnist/error.md")
    return chapter


def defaults(chapter: NotebookNode) -> dict[str, Any]:
    """Parameters of a chapter, as it has them."""
    cells = [cell.source for cell in chapter.cells if "parameters" in cell.metadata.get("tags", ())]
    return {line.targets[0].id: ast.literal_eval(line.value) for cell in cells for line in ast.parse(cell).body}


def execute(chapter: NotebookNode, name: str, changes: Mapping[str, Any] | None = None) -> NotebookNode:
    """Execute a chapter with these changes of its parameters; a GddError names chapter, cell and error."""
    changes = {key: list(value) if isinstance(value, tuple) else value for key, value in (changes or {}).items()}
    try:  # papermill writes no tuple
        return papermill.execute_notebook(chapter, None, changes, cwd=checkout.BOOK, coalesce_streams=True)
    except PapermillExecutionError as error:
        raise GddError(f"chapter {name}: cell {error.exec_count} failed: {error.ename}: {error.evalue}") from error


def for_jupyter(chapter: NotebookNode) -> NotebookNode:
    """The same chapter as Jupyter shows it: drawings inside, captions below figures, code folded as in the book."""
    cells = []
    for cell in chapter.cells:
        cells.append(cell)
        if HIDDEN & {*cell.metadata.get("tags", ())}:
            cell.metadata["jupyter"] = {"source_hidden": True}
        caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption") or cell.metadata.get("caption")
        if caption:
            words = caption if isinstance(caption, str) else " ".join(caption)
            cells.append(nbformat.v4.new_markdown_cell(f"*{words}*"))
    for cell in cells:
        if cell.cell_type == "markdown":
            for pattern, plain in PLAIN:
                cell.source = re.sub(pattern, plain, cell.source, flags=re.MULTILINE)
            for path, name in re.findall(r"!\[\]\((\S*?(_static/\S+))\)", cell.source):
                cell.source = cell.source.replace(path, _inside(cell, name))
    return nbformat.from_dict({**chapter, "cells": cells})


def _inside(cell: NotebookNode, name: str) -> str:
    """Put a drawing of the book into the cell that shows it; its address there."""
    file = checkout.BOOK / name
    kind = "image/svg+xml" if file.suffix == ".svg" else f"image/{file.suffix[1:]}"
    cell.setdefault("attachments", {})[file.name] = {kind: base64.b64encode(file.read_bytes()).decode()}
    return f"attachment:{file.name}"
