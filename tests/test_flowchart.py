"""Flow charts: nothing is cut off or written over, and every module that is named exists."""

from importlib.util import find_spec
from itertools import combinations

import matplotlib.pyplot as plt
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gdd_book import figures
from gdd_book.figures.flowchart import STEPS


def overlaps(figure):
    """Pairs of texts that lie on each other, and texts that leave the axes."""
    FigureCanvasAgg(figure).draw()
    boxes = {t.get_text(): t.get_window_extent() for t in figure.axes[0].texts if t.get_text()}
    found = [pair for pair in combinations(boxes, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]
    frame = figure.axes[0].bbox
    return found + [t for t, b in boxes.items() if not (frame.contains(b.x0, b.y0) and frame.contains(b.x1, b.y1))]


@pytest.mark.parametrize("draw", [figures.draw_algorithm, figures.draw_deconvolution])
def test_texts_are_apart_and_inside(draw):
    before = plt.get_fignums()
    figure = draw()
    assert plt.get_fignums() == before
    assert len(figure.axes[0].texts) > 10
    assert overlaps(figure) == []


def test_an_overlap_would_be_seen():
    figure = figures.draw_algorithm()
    figure.axes[0].text(3.6, 10.2, "on top")
    assert any("on top" in pair for pair in overlaps(figure))
    figure.axes[0].text(-3.0, 5.0, "outside")
    assert "outside" in overlaps(figure)


def test_modules_of_the_algorithm_exist():
    assert [module for _, module, _ in STEPS if find_spec(module) is None] == []
