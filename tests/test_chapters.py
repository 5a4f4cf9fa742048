"""Rules for chapters, that their references are theirs, and when they are executed again."""

import ast
import re

import jupytext
import nbformat
import pytest
import yaml
from jupyter_cache import get_cache
from make_reference import REFERENCE

from gdd.base.checks import GddError
from gdd_book.pages import chapter, notebooks

CHAPTERS = notebooks.chapters()
#: what learns or encodes, on a device of the reader's choice
CHAINS = {"gdd.DeepDeconvolution", "gdd.infer", "gdd.pretrain", "gdd.refine"}
#: what names a file
PATH = re.compile(r"^(\.{1,2}/|~|/\w)|\.(nc|yml|md|py|ipynb|csv|npz|png)$")
VERSION = re.compile(r"^ *jupytext_version:.*\n", re.MULTILINE)
PAGE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# One

```{code-cell} ipython3
:tags: [parameters]

n = 1
pool = (3, 3)
```

```{code-cell} ipython3
print(f"n is {n}, pool {tuple(pool)}")
```
"""


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, tag):
    return [cell for cell in code_cells(notebook) if tag in cell.metadata.get("tags", [])]


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_runs_in_every_folder_on_every_device_at_a_readers_parameters(page):
    """The kernel's folder differs between the book, nbval and papermill."""
    notebook = chapter.read(notebooks.text_path(page))
    cells = code_cells(notebook)
    assert len(cells) <= 25 and max(len(cell.source.splitlines()) for cell in cells) <= 15
    for node in (node for cell in cells for node in ast.walk(ast.parse(cell.source))):
        assert not isinstance(node, ast.FunctionDef | ast.ClassDef)  # it belongs in the package
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not PATH.search(node.value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CHAINS:
            assert "device" in [word.arg for word in node.keywords], ast.unparse(node)
    (parameters,) = tagged(notebook, "parameters")
    names = ast.parse(parameters.source).body
    assert 1 <= len(names) <= 7 and all(isinstance(node, ast.Assign) for node in names)


@pytest.mark.parametrize("page", CHAPTERS)
def test_opened_and_saved_in_jupyter_a_page_is_the_same(page):
    text = notebooks.text_path(page).read_text(encoding="utf-8")
    opened = nbformat.reads(nbformat.writes(jupytext.reads(text, fmt="md:myst")), 4)
    assert VERSION.sub("", jupytext.writes(opened, fmt="md:myst")) == VERSION.sub("", text)


def test_every_text_of_the_book_is_in_the_table_of_contents():
    found = {path.relative_to(notebooks.BOOK).with_suffix("").as_posix() for path in notebooks.BOOK.rglob("*.md")}
    assert found == set(notebooks.pages())


@pytest.mark.parametrize("page", CHAPTERS)
def test_reference_has_the_code_of_its_chapter_and_something_to_compare(page):
    """nbval passes a notebook without outputs whatever it does."""
    path = REFERENCE / f"{page}.ipynb"
    reference = nbformat.read(path, 4)
    injected = tagged(reference, "injected-parameters")
    code = [cell.source for cell in code_cells(reference) if cell not in injected]
    assert code == [cell.source for cell in code_cells(chapter.read(notebooks.text_path(page)))], (
        f"make it again: python tests/make_reference.py {page}"
    )
    assert code_cells(reference) == reference.cells, "prose in a reference goes out of date unseen"
    compared = [cell for cell in reference.cells if cell.outputs]
    assert compared and not any("nbval-ignore-output" in cell.metadata.get("tags", []) for cell in compared)
    assert "image/png" not in path.read_text(encoding="utf-8")


def test_no_reference_is_left_over():
    found = {path.relative_to(REFERENCE).with_suffix("").as_posix() for path in REFERENCE.rglob("*.ipynb")}
    quick = yaml.safe_load((REFERENCE / "parameters.yml").read_text(encoding="utf-8"))
    assert found == set(CHAPTERS) >= set(quick)


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one chapter in a folder of its own."""
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/one\n")
    (tmp_path / "book" / "one.md").write_text(PAGE)
    for name, path in {"ROOT": "", "BOOK": "book", "CACHE": "cache"}.items():
        monkeypatch.setattr(notebooks, name, tmp_path / path)
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "results"))
    (tmp_path / "results").mkdir()
    return tmp_path / "book"


def test_stamp_follows_everything_that_pages_show(book, monkeypatch, tmp_path):
    stamps = [notebooks.stamp()]
    for change in (
        lambda: (tmp_path / "results" / "toy--demo.nc").write_bytes(b"1"),
        lambda: (tmp_path / "results" / "toy--demo.nc").write_bytes(b"2"),
        lambda: (book / "claims.yml").write_text("{a: 1}"),
        lambda: monkeypatch.setattr(notebooks.records, "code_checksum", lambda: "changed"),
    ):
        assert notebooks.stamp() == stamps[-1]
        change()
        stamps.append(notebooks.stamp())
    assert len(set(stamps)) == len(stamps)


def test_only_stale_chapters_are_executed_and_the_cache_holds_the_last_outputs(book, capsys):
    def cached():
        store = get_cache(str(notebooks.CACHE))
        found = store.match_cache_notebook(chapter.read(book / "one.md"))
        return code_cells(store.get_cache_bundle(found.pk).nb)[1].outputs[0].text

    counted = f"import os\nn = len(os.listdir({str(book.parent / 'results')!r}))\nprint"
    for count in (0, 1):
        (book / "one.md").write_text(PAGE.replace("print", counted))
        notebooks.refresh()
        assert capsys.readouterr().out == "executed one\n" and cached() == f"n is {count}, pool (3, 3)\n"
        (book / "one.md").write_text(PAGE.replace("print", counted).replace("# One", "# Another title"))
        notebooks.refresh()
        assert capsys.readouterr().out == "" and cached()
        (book.parent / "results" / f"toy--{count}.nc").write_bytes(b"1")  # the text as it was, and a record is new
    (book / "one.md").write_text(PAGE.replace("print(", "1 / 0 and print("))
    with pytest.raises(GddError, match="book: one failed"):
        notebooks.refresh()
    with pytest.raises(KeyError):
        cached()  # nothing is better than the outputs of another state
