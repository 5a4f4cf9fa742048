"""How to run a page oneself: the line names its parameters, the notebook is the one that the tests run."""

from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes

from gdd_book.pages import notebooks, rerun


def test_line_has_the_numbers_and_words_of_the_parameters_cell():
    line = rerun.command("model/pooling")  # whose parameters are pairs, too
    assert line == "papermill book/model/pooling.md out.ipynb -p seed 0 -p n_maps 20000 -p digit 6"
    assert rerun.command("mnist/error").startswith("papermill book/mnist/error.md out.ipynb -p data digits -p n_train ")


@pytest.mark.parametrize("page", notebooks.chapters())
def test_every_chapter_ends_with_its_line(page):
    document = nodes.document(None, None)
    document += nodes.section("", nodes.title("", "A"))
    rerun.show_command(SimpleNamespace(env=SimpleNamespace(docname=f"book/{page}")), document)
    assert document[0][-1][-1].astext() == rerun.command(page)
    assert next(document.findall(nodes.reference))["refuri"] == f"{page.rpartition('/')[2]}.ipynb"


def test_a_page_without_code_has_no_line():
    document = nodes.document(None, None)
    rerun.show_command(SimpleNamespace(env=SimpleNamespace(docname="book/references")), document)
    assert not document.children


def test_notebooks_are_those_that_are_tested(tmp_path):
    for page in notebooks.chapters():
        (tmp_path / "book" / page).parent.mkdir(parents=True, exist_ok=True)
    rerun.write_notebooks(SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path), None)
    for page in notebooks.chapters():
        written, tested = (nbformat.read(folder / f"{page}.ipynb", 4).cells
                           for folder in (tmp_path / "book", notebooks.ROOT / "tests" / "reference"))
        own = [cell.source for cell in tested if "injected-parameters" not in cell.metadata.get("tags", [])]
        assert [cell.source for cell in written if cell.cell_type == "code"] == own, page
