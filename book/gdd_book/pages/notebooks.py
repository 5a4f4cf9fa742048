"""The pages of the book, executed once and built: text by MyST-NB, code by jupyter-cache, two at a time.

jupyter-cache looks at code cells only; where anything else that pages show has changed, all are executed again.
"""

import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from jupyter_cache.executors.base import ExecutorRunResult

from gdd.base.checks import GddError
from gdd_book import checkout, records
from gdd_book.pages import finished

BOOK = checkout.BOOK
ROOT = BOOK.parent
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


def stamp() -> str:
    """SHA-256 of everything that pages show or depend on, but for their own text."""
    versions = [platform.python_version(), *(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)]
    digest = hashlib.sha256("\n".join([records.code_checksum(), *versions]).encode())
    for path in [*sorted(BOOK.glob("*.yml")), *sorted(checkout.results().glob("*.nc"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def refresh() -> None:
    """Execute the chapters that are not in the cache, or all if what they show has changed; GddError for failures."""
    mark, now = CACHE / "stamp", stamp()
    if not mark.is_file() or mark.read_text() != now:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        mark.write_text(now)
    store, failed = get_cache(str(CACHE)), []
    for page in chapters():
        store.add_nb_to_project(str(text_path(page)), read_data={"name": "myst_nb_md", "type": "plugin"})
    with ThreadPoolExecutor(2) as pool:  # threads that only wait, each for a kernel
        for page, ran in zip(chapters(), pool.map(_execute, chapters()), strict=True):
            failed += [] if ran.succeeded == ran.all() else [page]
    if failed:
        raise GddError(f"book: {', '.join(failed)} failed; the lines above say why")


def build() -> Path:
    """Execute what is stale and build the book, strictly; return the path of its first page."""
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


def _execute(page: str) -> ExecutorRunResult:
    """Execute a page that is not in the cache."""
    ran = load_executor("local-serial", get_cache(str(CACHE))).run_and_cache(
        filter_uris=[str(text_path(page))], timeout=None)
    if ran.succeeded:
        print(f"executed {page}", flush=True)
    return ran
