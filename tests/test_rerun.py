"""How to run a page oneself: the line names its parameters, the notebook is the one that the tests run, with a first
cell that says what it needs.
"""

from types import SimpleNamespace

import nbformat
import papermill
import pytest
from docutils import nodes

from gdd_book.pages import notebooks, rerun


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folder of a built book with its notebooks."""
    folder = tmp_path_factory.mktemp("html")
    for page in notebooks.chapters():
        (folder / "book" / page).parent.mkdir(parents=True, exist_ok=True)
    rerun.write_notebooks(SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=folder), None)
    return folder


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


@pytest.mark.parametrize("page", ["book/model/pooling", "book/references", "genindex"])
def test_button_offers_the_notebook_of_a_chapter(page):
    context = {}
    rerun.offer_notebook(None, page, "page.html", context, None)
    assert context == ({"ipynb_source": "../book/model/pooling.ipynb"} if page == "book/model/pooling" else {})


def test_a_download_runs_in_a_folder_of_its_own(written, tmp_path):
    downloaded = nbformat.read(written / "book" / "model" / "pooling.ipynb", 4)
    ran = papermill.execute_notebook(downloaded, None, cwd=tmp_path, progress_bar=False)
    assert any("blocks active before data" in str(cell.outputs) for cell in ran.cells if "outputs" in cell)


def test_notebooks_are_those_that_are_tested(written):
    for page in notebooks.chapters():
        download, tested = (nbformat.read(folder / f"{page}.ipynb", 4).cells
                            for folder in (written / "book", notebooks.ROOT / "tests" / "reference"))
        own = [cell.source for cell in tested if "injected-parameters" not in cell.metadata.get("tags", [])]
        assert [cell.source for cell in download if cell.cell_type == "code"] == [rerun.NEEDED, *own], page


def test_a_notebook_says_what_it_needs(monkeypatch):
    exec(rerun.NEEDED, {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="gdd_book is not installed"):
        exec(rerun.NEEDED, {})
