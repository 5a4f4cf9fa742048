"""Make the reference notebooks that nbval compares with: ``python tests/make_reference.py [PAGE ...]``.

Run it after an intended change of a chapter, and look at the difference before keeping it. A chapter runs with its own
parameters, changed by those in ``tests/reference/parameters.yml`` so that a comparison takes seconds. A
reference holds the code cells and what they print, no prose.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import yaml

from gdd_book.pages import chapter, notebooks

REFERENCE = Path(__file__).resolve().parent / "reference"
TEXT = ("text/plain", "text/html", "text/markdown")


def small(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Code cells of a notebook without images, times and whatever else changes from run to run, numbered in order."""
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        tags = cell.metadata.get("tags", [])
        cell.metadata = {"tags": tags} if tags else {}
        ignored = "nbval-ignore-output" in tags
        cell.outputs = [] if ignored else [_text_only(output) for output in cell.outputs]
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec}
    return notebook


def main(pages: list[str]) -> None:
    """Write ``tests/reference/<page>.ipynb`` for these pages, or for every chapter."""
    quick = yaml.safe_load((REFERENCE / "parameters.yml").read_text(encoding="utf-8"))
    for page in pages or notebooks.chapters():
        path = REFERENCE / f"{page}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = chapter.read(notebooks.text_path(page))
        nbformat.write(small(chapter.execute(text, page, quick.get(page))), path)
        print(f"{page}: {path.stat().st_size / 1000:.0f} kB")


def _text_only(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if "data" in output:
        output.data = {kind: content for kind, content in output.data.items() if kind in TEXT}
        output.metadata = {}
    return output


if __name__ == "__main__":
    main(sys.argv[1:])
