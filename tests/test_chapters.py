"""Rules for chapters, and that their references are theirs."""

import ast
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml
from jupyter_cache import get_cache

from gdd.base.checks import GddError
from gdd.model import spec
from gdd_book.pages import notebooks

REFERENCE = Path(__file__).resolve().parent / "reference"
CHAPTERS = notebooks.chapters()
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
VERSION = re.compile(r"^ *jupytext_version:.*\n", re.MULTILINE)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, tag):
    return [cell for cell in code_cells(notebook) if tag in cell.metadata.get("tags", [])]


def faults(notebook):
    """Rules of the house that a chapter breaks, in words."""
    cells = code_cells(notebook)
    found = [f"{len(cells)} code cells, at most 25"] if len(cells) > 25 else []
    for number, cell in enumerate(cells, 1):
        lines = len(cell.source.splitlines())
        if lines > 15:
            found.append(f"cell {number}: {lines} lines, at most 15")
        if not HIDDEN & {*cell.metadata.get("tags", [])} and max(map(len, cell.source.splitlines())) > 96:
            found.append(f"cell {number}: a line too long for the page, at most 96 characters are seen")
        tree = ast.parse(cell.source)
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) for node in ast.walk(tree)):
            found.append(f"cell {number}: defines a function or a class; it belongs in the package")
        found += [f"cell {number}: path {text!r}" for text in paths_in(tree)]
    parameters = tagged(notebook, "parameters")
    if len(parameters) != 1:
        found.append(f"{len(parameters)} parameters cells, exactly 1")
    for cell in parameters:
        names = [node for node in ast.parse(cell.source).body if isinstance(node, ast.Assign)]
        if not 1 <= len(names) <= 6 or len(names) != len(ast.parse(cell.source).body):
            found.append(f"parameters cell: {len(names)} names, 1 to 6 plain assignments")
    return found


def paths_in(tree):
    """Strings that name a file by a path: the kernel's folder differs between the book, nbval and papermill."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if re.match(r"(\.{1,2}/|~|/\w)", text) or re.search(r"\.(nc|yml|md|py|ipynb|csv|npz|png)$", text):
                yield text


@pytest.mark.parametrize("page", CHAPTERS)
def test_chapter_keeps_the_rules(page):
    assert faults(jupytext.read(notebooks.text_path(page))) == []


@pytest.mark.parametrize("page", CHAPTERS)
def test_text_is_canonical(page):
    """Reading and writing by jupytext changes nothing, so that no tool rewrites a chapter behind one's back."""
    text = notebooks.text_path(page).read_text(encoding="utf-8")
    written = jupytext.writes(jupytext.reads(text, fmt="md:myst"), fmt="md:myst")
    assert VERSION.sub("", written) == VERSION.sub("", text)


@pytest.mark.parametrize("page", notebooks.pages())
def test_files_that_a_page_names_exist(page):
    path = notebooks.text_path(page)
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"\{download\}`[^`]*<([^>]+)>`|^```\{(?:literalinclude|figure)\} (\S+)", text, re.MULTILINE)
    missing = [name for names in named for name in names if name and not (path.parent / name).is_file()]
    assert missing == []


def test_every_text_of_the_book_is_in_the_table_of_contents():
    found = {path.relative_to(notebooks.BOOK).with_suffix("").as_posix() for path in notebooks.BOOK.rglob("*.md")}
    assert found == set(notebooks.pages())


@pytest.mark.parametrize("page", CHAPTERS)
def test_reference_has_the_code_of_its_chapter(page):
    reference = nbformat.read(REFERENCE / f"{page}.ipynb", 4)
    injected = tagged(reference, "injected-parameters")
    code = [cell.source for cell in code_cells(reference) if cell not in injected]
    assert code == [cell.source for cell in code_cells(jupytext.read(notebooks.text_path(page)))], (
        f"make it again: python tests/make_reference.py {page}"
    )


@pytest.mark.parametrize("page", CHAPTERS)
def test_reference_has_something_to_compare(page):
    """nbval passes a notebook without outputs whatever it does."""
    reference = nbformat.read(REFERENCE / f"{page}.ipynb", 4)
    assert code_cells(reference) == reference.cells, "prose in a reference goes out of date unseen"
    compared = [cell for cell in reference.cells if cell.outputs]
    assert compared
    assert not any("nbval-ignore-output" in cell.metadata.get("tags", []) for cell in compared)
    assert "image/png" not in (REFERENCE / f"{page}.ipynb").read_text(encoding="utf-8")
    assert [cell.id for cell in reference.cells] == [f"cell-{n}" for n in range(len(reference.cells))]


def test_no_reference_is_left_over():
    found = {path.relative_to(REFERENCE).with_suffix("").as_posix() for path in REFERENCE.rglob("*.ipynb")}
    assert found <= set(CHAPTERS)
    quick = yaml.safe_load((REFERENCE / "parameters.yml").read_text(encoding="utf-8"))
    assert set(quick) <= set(CHAPTERS)


def test_papermill_runs_a_text_chapter_with_parameters(tmp_path):
    """What a re-runner types, from the root of the checkout; through the entry point of the installed package."""
    output = tmp_path / "out.ipynb"
    papermill = Path(sys.executable).with_name("papermill")
    command = [papermill, "book/notation.md", output, "-p", "model_name", "CALTECH101"]
    done = subprocess.run(command, cwd=notebooks.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = nbformat.read(output, 4)
    assert 'model_name = "CALTECH101"' in tagged(ran, "injected-parameters")[0].source
    printed = "".join(output.get("text", "") for cell in code_cells(ran) for output in cell.outputs)
    assert f"a projected top atom is {spec.CALTECH101.projected_size}" in printed


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one chapter in a folder of its own."""
    text = """\
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
        ```

        ```{code-cell} ipython3
        print(f"n is {n}")
        ```
        """
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/one\n")
    (tmp_path / "book" / "one.md").write_text(re.sub("^ {8}", "", text, flags=re.MULTILINE))
    for name, path in {"ROOT": "", "BOOK": "book", "EXECUTED": "executed", "CACHE": "cache"}.items():
        monkeypatch.setattr(notebooks, name, tmp_path / path)
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "results"))
    return tmp_path / "book"


def test_stamp_follows_everything_that_a_page_shows(book, monkeypatch, tmp_path):
    (tmp_path / "results").mkdir()
    lists = []
    for module in (notebooks.paper_values, notebooks.claims, notebooks.elements, notebooks.errata, notebooks.index):
        lists.append(tmp_path / module.PATH.name)
        lists[-1].write_text("{}")
        monkeypatch.setattr(module, "PATH", lists[-1])
    stamps = [notebooks.stamp("one")]
    for change in (
        lambda: (tmp_path / "results" / "toy--demo.nc").write_bytes(b"1"),
        lambda: (tmp_path / "results" / "toy--demo.nc").write_bytes(b"2"),
        *(lambda path=path: path.write_text("{a: 1}") for path in lists),
        lambda: (book / "one.md").write_text((book / "one.md").read_text() + "more\n"),
        lambda: monkeypatch.setattr(notebooks.records, "code_checksum", lambda: "changed"),
    ):
        assert notebooks.stamp("one") == stamps[-1]
        change()
        stamps.append(notebooks.stamp("one"))
    assert len(set(stamps)) == len(stamps)


def test_outputs_join_the_chapter_as_written(book):
    first, second = code_cells(notebooks.with_outputs("one", notebooks.execute("one")))
    assert (first.outputs, second.outputs[0].text) == ([], "n is 1\n")
    assert first.metadata == code_cells(jupytext.read(book / "one.md"))[0].metadata


def test_only_stale_chapters_are_executed_and_the_cache_holds_the_last_outputs(book, monkeypatch):
    """One thread stands for the pool of processes, which would not see this test's folders."""
    monkeypatch.setattr(notebooks, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1))

    def cached():
        store = get_cache(str(notebooks.CACHE))
        found = store.match_cache_notebook(jupytext.read(book / "one.md"))
        return code_cells(store.get_cache_bundle(found.pk).nb)[1].outputs[0].text

    assert notebooks.refresh() == ["one"]
    assert cached() == "n is 1\n"
    assert notebooks.refresh() == []
    (book.parent / "results").mkdir()
    text = (book / "one.md").read_text()
    counted = f"import os\nn = len(os.listdir({str(book.parent / 'results')!r}))\nprint"
    (book / "one.md").write_text(text.replace("print", counted))
    for count in (0, 1):  # the second time the text is as it was, and a record is new
        assert notebooks.refresh() == ["one"]
        assert cached() == f"n is {count}\n"
        (book.parent / "results" / f"toy--{count}.nc").write_bytes(b"1")
    monkeypatch.setattr(notebooks, "execute", lambda page: notebooks.no_such_name)
    with pytest.raises(AttributeError):
        notebooks.refresh()
    with pytest.raises(KeyError):
        cached()  # nothing is better than the outputs of another state


def test_failing_chapter_is_named(book):
    text = (book / "one.md").read_text().replace('print(f"n is {n}")', "1 / (n - 1)")
    (book / "one.md").write_text(text)
    with pytest.raises(GddError, match="chapter one: cell 2 failed: ZeroDivisionError"):
        notebooks.execute("one")
