"""Where the book's own files are: beside this package in a checkout, nowhere after ``pip install`` of a wheel."""

import os
from pathlib import Path

import platformdirs

from gdd.base.checks import GddError
from gdd.base.files import user_path

#: folder of the chapters and of the records that they show
BOOK = Path(__file__).resolve().parents[1]
#: how to come by these
REMEDY = "clone the repository, and `make book` there (or `pip install -e '.[book]'`)"


def is_here() -> bool:
    """Whether this package lies in a checkout."""
    return (BOOK / "paper_values.yml").is_file()


def results() -> Path:
    """Folder of records and models: ``GDD_RESULTS``, else ``book/results`` of the checkout, else the user's own."""
    chosen = os.environ.get("GDD_RESULTS")
    if chosen:
        return user_path("GDD_RESULTS", chosen, folder=True)
    return (BOOK if is_here() else platformdirs.user_data_path("gdd")) / "results"


def need(what: str) -> None:
    """Refuse what only a checkout has."""
    if not is_here():
        raise GddError(f"{what}: not in the installed package; {REMEDY}")


def text(path: Path) -> str:
    """Text of one of the book's files; GddError if this is no checkout, which has none."""
    if not path.is_file():
        need(path.name)
    return path.read_text(encoding="utf-8")
