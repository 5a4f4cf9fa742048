"""Figures of the sampler: texts apart and inside, and every trace that is asked for is drawn."""

import numpy as np
import pytest
import xarray as xr
from test_flowchart import overlaps

from gdd.base.axes import CHAIN, DRAW
from gdd.base.checks import GddError
from gdd_book.figures import gibbs


def traces(names=tuple(gibbs.TRACES)):
    return xr.Dataset({name: ((CHAIN, DRAW), np.linspace(1.0, 2.0, 5)[None]) for name in names})


def test_texts_of_the_image_pass_are_apart_and_inside():
    figure = gibbs.draw_image_pass()
    assert len(figure.axes[0].texts) >= 2 * len(gibbs.CHUNKS) + 5
    assert overlaps(figure) == []


def test_every_chain_has_a_line_in_every_panel():
    names = ["one", "two", "three", "four", "five"]
    figure = gibbs.show_regimes({name: traces() for name in names})
    for panel in figure.axes:
        assert [line.get_label() for line in panel.lines] == names
        for line in panel.lines:
            np.testing.assert_array_equal(line.get_xydata(), np.c_[np.arange(1, 6), np.linspace(1.0, 2.0, 5)])
        assert len({(line.get_color(), line.get_linestyle()) for line in panel.lines[:4]}) == 4


@pytest.mark.parametrize(
    ("runs", "fault"),
    [({}, "runs: none given"), ({"one": traces(("active", "residual"))}, "chain 'one' has no trace 'log_joint'")],
)
def test_bad_chains_are_refused(runs, fault):
    with pytest.raises(GddError, match=fault):
        gibbs.show_regimes(runs)
