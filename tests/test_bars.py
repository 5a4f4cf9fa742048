"""The progress bar of an estimator: in a notebook as in a terminal, and nowhere else."""

import nbformat
from nbclient import NotebookClient

from gdd.estimator import Bar

CELL = """
import time
from gdd.estimator import Bar
with Bar(3, verbose={verbose}) as bar:
    bar.begin("layer 1", 3)
    for _ in range(3):
        time.sleep(0.15)
        bar.step(residual=0.5)
"""


def test_a_notebook_has_a_bar_where_it_is_asked_for():
    cells = [nbformat.v4.new_code_cell(CELL.format(verbose=verbose)) for verbose in (True, False)]
    NotebookClient(notebook := nbformat.v4.new_notebook(cells=cells), kernel_name="python3").execute()
    for cell, verbose in zip(notebook.cells, (True, False), strict=True):
        said = str(cell.outputs)
        assert ("layer 1" in said or "application/vnd.jupyter.widget-view" in said) == verbose
        assert "IProgress" not in said


def test_there_is_none_where_nobody_looks(capsys):
    with Bar(2, verbose=True) as bar:
        bar.step()
    assert capsys.readouterr() == ("", "")
