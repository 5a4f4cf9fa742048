"""The progress bar of an estimator: in a notebook as in a terminal, and nowhere else."""

import nbformat
import pytest
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


@pytest.mark.parametrize("verbose", [True, False])
def test_a_notebook_has_a_bar_where_it_is_asked_for(verbose):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.format(verbose=verbose))])
    NotebookClient(notebook, kernel_name="python3").execute()
    said = str(notebook.cells[0].outputs)
    assert ("layer 1" in said or "application/vnd.jupyter.widget-view" in said) == verbose
    assert "IProgress" not in said


def test_there_is_none_where_nobody_looks(capsys):
    with Bar(2, verbose=True) as bar:
        bar.step()
    assert capsys.readouterr() == ("", "")
