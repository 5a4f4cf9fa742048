"""``gdd chapter``: a page runs at a reader's parameters however it is named, or one line says what is wrong."""

import io
import re
import shlex
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from test_chapters import PAGE, code_cells

from gdd_book import parameters, run
from gdd_book.pages import chapter, notebooks, rerun

ROOT = notebooks.ROOT


@pytest.fixture
def one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.md").write_text(PAGE)
    return tmp_path


@pytest.mark.parametrize("page", ["one.md", "-"])
def test_a_page_runs_at_parameters_as_people_write_them(one, capsys, monkeypatch, page):
    """From its file, or from a pipe."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(PAGE))
    assert run.main(["chapter", page, "out.ipynb", "-p", "n=5", "-p", "pool", "[2,", "4]"]) == 0
    assert capsys.readouterr().out == "out.ipynb\n"
    assert code_cells(nbformat.read("out.ipynb", 4))[-1].outputs[0].text == "n is 5, pool (2, 4)\n"


@pytest.mark.parametrize(("words", "said"), [
    (["two.md", "out.ipynb"], "chapter two.md: cannot be read ([Errno 2]"),
    (["README.md", "out.ipynb"], "README.md: no page with code of this book; name one such as book/mnist/error.md"),
    (["a.ipynb", "out.ipynb"], "chapter a.ipynb: no page with code of this book"),
    (["one.md", "a.ipynb"], "output a.ipynb: is there already; remove it, or name another"),
    (["one.md", "out.md"], "output out.md: the name of a notebook (.ipynb) is needed"),
    (["one.md", "no/out.ipynb"], "output no/out.ipynb: there is no folder no; make it first"),
    (["one.md", "out.ipynb", "-p", "m", "5"], "chapter one.md has no parameter m; it has n, pool"),
    (["one.md", "out.ipynb", "-y", "n: 1", "-p", "n=6"], "parameter n: given twice"),
    (["one.md", "out.ipynb", "-y", "pool: [2"], "-y: 'pool: [2' given, names and values needed"),
])
def test_one_line_says_what_is_wrong_before_any_work(one, capsys, monkeypatch, words, said):
    Path("README.md").write_text("# Words\n\n    code\n")
    nbformat.write(nbformat.v4.new_notebook(), "a.ipynb")
    monkeypatch.setattr(chapter, "execute", None)
    assert run.main(["chapter", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize("page", notebooks.chapters())
def test_the_line_at_the_end_of_a_page_changes_one_value(page, monkeypatch):
    found = []
    monkeypatch.setattr(chapter, "run", lambda path, output, given: found.extend([path, given]))
    assert run.main(shlex.split(rerun.command(page))[1:]) == 0
    known = chapter.defaults(chapter.read(notebooks.text_path(page)))
    ((name, value),) = parameters.parse(page, known, found[1]).items()
    assert found[0] == f"book/{page}.md" and value != known[name]
    assert {*known} - {name} <= {*re.findall(r"\w+", rerun.effect(page))}


def test_every_page_has_such_a_line_and_no_other_has():
    assert {*yaml.safe_load((notebooks.BOOK / "rerun.yml").read_text())} == {*notebooks.chapters()}


@pytest.mark.parametrize("page", notebooks.chapters())
def test_jupyter_reads_all_of_a_page(page):
    read = chapter.for_jupyter(chapter.read(notebooks.text_path(page)))
    nbformat.validate(read)
    for cell in read.cells:
        if cell.cell_type == "markdown":
            left = re.findall(r"^(?:`{3,}\{|:{3,}).*|^\([\w-]+\)=|\{[\w:-]+\}`.*|^\$\$ .*", cell.source, re.MULTILINE)
            assert not left
            assert {*re.findall(r"attachment:([^)]+)", cell.source)} == {*cell.get("attachments", {})}
