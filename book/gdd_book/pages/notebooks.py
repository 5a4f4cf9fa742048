"""Chapters (MyST text notebooks) through papermill into jupyter-cache, and from there into the book.

`jupyter-book build` takes its outputs from jupyter-cache, which looks at the text of the code cells only. What else a
page shows (the package, the records, the paper's numbers) is watched here: a chapter whose stamp
differs from that of its last execution is executed again, all others are left alone.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jupytext
import nbformat
import papermill
import yaml
from jupyter_cache import get_cache
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from gdd.base.checks import GddError
from gdd_book import checkout, paper_values, records
from gdd_book.pages import claims, elements, errata, finished, index
from gdd_book.pages.expected import UNLIKE

BOOK = checkout.BOOK
ROOT = BOOK.parent
EXECUTED = ROOT / "_build" / "executed"
CACHE = ROOT / "_build" / ".jupyter_cache"  # where jupyter-book looks
LIBRARIES = ("numpy", "scipy", "matplotlib", "xarray", "pandas")


def pages() -> list[str]:
    """Pages of ``_toc.yml`` in order, without the leading ``book/``."""
    toc = yaml.safe_load(checkout.text(ROOT / "_toc.yml"))
    found = [toc["root"]]
    for part in [toc, *toc.get("parts", [])]:
        found += [entry["file"] for entry in part.get("chapters", [])]
    return [name.removeprefix("book/") for name in found]


def chapters() -> list[str]:
    """Pages that have code to execute."""
    return [page for page in pages() if "```{code-cell}" in text_path(page).read_text(encoding="utf-8")]


def text_path(page: str) -> Path:
    """File of a page."""
    return BOOK / f"{page}.md"


def stamp(page: str) -> str:
    """SHA-256 of everything that a page shows or depends on."""
    versions = [platform.python_version(), *(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)]
    digest = hashlib.sha256("\n".join([records.code_checksum(), *versions]).encode())
    lists = [paper_values.PATH, claims.PATH, elements.PATH, errata.PATH, index.PATH]
    for path in [text_path(page), *lists, *sorted(checkout.results().glob("*.nc"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def execute(page: str, changes: dict | None = None) -> NotebookNode:
    """Execute a chapter through papermill with these parameters; a GddError names chapter, cell and error."""
    options = {"cwd": BOOK, "progress_bar": False, "coalesce_streams": True}
    try:
        ran = papermill.execute_notebook(jupytext.read(text_path(page)), None, parameters=changes, **options)
    except PapermillExecutionError as error:
        raise GddError(f"chapter {page}: cell {error.exec_count} failed: {error.ename}: {error.evalue}") from error
    printed = "".join(output.get("text", "") for cell in ran.cells for output in cell.get("outputs", []))
    if not changes and UNLIKE in printed:
        raise GddError(f"chapter {page}: {UNLIKE}{printed.partition(UNLIKE)[2].splitlines()[0]}")
    return ran


def with_outputs(page: str, executed: NotebookNode) -> NotebookNode:
    """Chapter as written, with the outputs of an execution, and without papermill's marks on its cells."""
    chapter = jupytext.read(text_path(page))
    code = ([cell for cell in one.cells if cell.cell_type == "code"] for one in (chapter, executed))
    for count, (cell, ran) in enumerate(zip(*code, strict=True), 1):
        cell.outputs, cell.execution_count = ran.outputs, count
    return chapter


def refresh(only: Iterable[str] | None = None) -> list[str]:
    """Execute the stale chapters, two at a time, and put their outputs where jupyter-book looks; return their names.

    If some fail, a GddError names them at the end; those that succeeded are kept.
    """
    store = get_cache(str(CACHE))
    stale = [page for page in only or chapters() if not _is_fresh(page, store)]
    for page in stale:
        _forget(page, store)
    failures = []
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for page, job in [(page, pool.submit(_execute_to_file, page)) for page in stale]:
            try:
                job.result()
                _remember(page, store)
                print(f"executed {page}", flush=True)
            except GddError as error:
                failures.append(str(error))
    if failures:
        raise GddError("; ".join(failures))
    return stale


def build() -> Path:
    """Execute what is stale and build the book; return the path of its first page.

    Strictly: a warning is an error, and so is whatever `gdd_book.pages.finished` finds wrong with the pages.
    """
    refresh()
    # --all: Sphinx looks at the chapters' text only, and new outputs or styles would stay unseen
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT, "--all", "-W", "-n", "--keep-going"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise GddError("book: the strict build failed; the warnings above say where")
    html = ROOT / "_build" / "html"
    finished.lighten(html)
    wrong = finished.problems(html, [f"book/{page}.html" for page in pages()])
    if wrong:
        raise GddError("book: " + "; ".join(wrong))
    return html / "index.html"


def _execute_to_file(page: str) -> None:
    target = EXECUTED / f"{page}.ipynb"
    before = stamp(page)
    executed = execute(page)
    executed.metadata["gdd_stamp"] = before
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed, target)


def _cached(page: str, store) -> list[int]:
    """Number of the page's outputs in the cache, if there are any."""
    try:
        return [store.match_cache_notebook(jupytext.read(text_path(page))).pk]
    except KeyError:
        return []


def _is_fresh(page: str, store) -> bool:
    path = EXECUTED / f"{page}.ipynb"
    executed = path.exists() and nbformat.read(path, 4).metadata.get("gdd_stamp") == stamp(page)
    return executed and bool(_cached(page, store))


def _forget(page: str, store) -> None:
    """Drop the outputs of an earlier execution, so that no build can show them."""
    (EXECUTED / f"{page}.ipynb").unlink(missing_ok=True)
    for number in _cached(page, store):
        store.remove_cache(number)


def _remember(page: str, store) -> None:
    notebook = with_outputs(page, nbformat.read(EXECUTED / f"{page}.ipynb", 4))
    path = EXECUTED / f"{page}.cached.ipynb"
    nbformat.write(notebook, path)
    store.cache_notebook_file(str(path), uri=str(text_path(page)), overwrite=True)
    path.unlink()
