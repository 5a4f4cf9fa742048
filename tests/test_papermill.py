"""Papermill finds a chapter however its file is named, and other notebooks as it does without us."""

import tomllib
from pathlib import Path

import nbformat
import pytest
from papermill.exceptions import PapermillException
from papermill.iorw import LocalHandler, PapermillIO

from gdd.base.checks import GddError
from gdd_book.pages import notebooks
from gdd_book.pages.papermill_io import ChapterHandler

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"root": (ROOT, "book/"), "./": (ROOT, "./book/"), "inside": (ROOT / "book", ""),
          "deeper": (ROOT / "book" / "mnist", "../"), "absolute": (ROOT.parent, f"{ROOT}/book/")}


@pytest.fixture
def papermill_io():
    """As papermill sets it up, with the entry points of this checkout in place of those installed."""
    registered = PapermillIO()
    registered.register("local", LocalHandler())
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    for beginning in points["papermill.io"]:
        registered.register(beginning, ChapterHandler)
    return registered


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.filterwarnings("ignore:The specified file")
def test_chapters_are_found_from_everywhere(place, papermill_io, monkeypatch):
    folder, before = PLACES[place]
    monkeypatch.chdir(folder)
    for page in notebooks.chapters():
        text = papermill_io.read(f"{before}{page}.md")
        assert nbformat.reads(text, 4).cells, page


def test_other_notebooks_are_read_and_written_as_ever(papermill_io, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = nbformat.writes(nbformat.v4.new_notebook())
    (tmp_path / "model").mkdir()
    for name in ("a.ipynb", "./b.ipynb", "model/c.ipynb", f"{tmp_path}/d.ipynb", "e.json"):
        papermill_io.write(text, name)
        assert papermill_io.read(name) == text == (tmp_path / name).read_text()
    with pytest.raises(FileNotFoundError, match="output folder"):
        papermill_io.write(text, "./nowhere/a.ipynb")
    with pytest.raises(GddError, match="output ./model/c.md: the name of a notebook"):
        papermill_io.write(text, "./model/c.md")
    with pytest.raises(PapermillException):
        PapermillIO().get_handler("book/intro.md")


@pytest.mark.filterwarnings("ignore:The specified file")
def test_a_chapter_that_is_not_there_is_one_sentence(papermill_io):
    with pytest.raises(GddError, match="chapter: .*nothing.md cannot be read .*; name a page of book/"):
        papermill_io.read("./book/nothing.md")
