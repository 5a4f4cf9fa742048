"""Figures show what they were given: places and scales of pixels; a drawing names what exists and is shown once."""

import re
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec

import numpy as np
import pytest
import xarray as xr
from matplotlib.text import Text

from gdd.base.axes import DICTIONARY
from gdd.projection import render_projected
from gdd_book.figures import story, style
from gdd_book.figures.model import show_atoms
from gdd_book.pages import notebooks

DRAWINGS = sorted(path for path in (notebooks.BOOK / "_static").glob("*.svg") if path.stem != "favicon")


def pixels(figure):
    """What the first picture of a figure shows."""
    return np.asarray(figure.axes[0].images[0].get_array(), float)


def test_pieces_add_up_to_the_picture_the_strongest_first():
    rng = np.random.default_rng(0)
    atoms, code = rng.normal(size=(3, 1, 4, 4)), np.where(rng.random((3, 2, 2)) < 0.5, rng.normal(size=(3, 2, 2)), 0)
    found = story.pieces_of(atoms, code, (2, 2), (6, 6))
    np.testing.assert_allclose(found.sum(axis=0), render_projected(atoms, code[None], (2, 2), (6, 6))[0, 0], atol=1e-12)
    assert len(found) == np.count_nonzero(code) > 1 and (np.diff((found**2).sum(axis=(1, 2))) <= 0).all()


def test_grey_scale_is_symmetric_and_says_its_unit():
    atoms = np.array([[[[0.0, -1.0]]], [[[4.0, 2.0]]]])
    figure = show_atoms(xr.DataArray(atoms, dims=DICTIONARY), columns=1)
    np.testing.assert_allclose(pixels(figure)[[0, 2]], [[0, -1], [1, 0.5]])
    assert figure.axes[0].images[0].get_clim() == (-1, 1)
    assert "its largest" in figure.axes[1].get_ylabel()


def test_a_table_has_means_with_intervals_few_values_as_they_are_and_blanks_where_there_is_nothing():
    nan = np.nan
    each = [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0], [1.0, nan, -1.25], [nan] * 3]
    values = xr.DataArray(each, {"kind": [*"abcd"]}, ("kind", "trial"))
    alone = xr.DataArray([1234.5], {"kind": ["b"]}, "kind")
    found = style.table("kind", {"mean": (values, 1, "trial"), "change": (values - 4, 0, "trial", "+"),
                                 "alone": (alone, ",.0f")}, "what")
    assert found.index.name == "what" and found.to_dict("index") == {
        "a": {"mean": "2.0 ± 2.5", "change": "-2 ± 2", "alone": ""},
        "b": {"mean": "4.0 ± 0.0", "change": "+0 ± 0", "alone": "1,234"},
        "c": {"mean": "1.0, -1.2", "change": "-3, -5", "alone": ""}, "d": dict.fromkeys(found, ""),
    }
    both = style.table(("kind", "trial"), {("x", "y"): (values,), ("x", "z"): (values.mean("trial"),)}, [None, None])
    assert both.loc[("a", 1), ("x", "y")] == "2.00"
    assert both["x", "z"].tolist() == [*np.repeat(["2.00", "4.00", "-0.12", ""], 3)]


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_drawing_is_small_and_names_modules_that_exist(path):
    assert path.stat().st_size < 50e3
    words = "".join(ElementTree.parse(path).getroot().itertext())
    assert [module for module in re.findall(r"gdd(?:\.\w+)+", words) if find_spec(module) is None] == []


def test_a_figure_of_the_wrong_variable_is_another_output():
    """Notebooks compare figures by what they say of themselves: the numbers that they draw."""
    values = xr.DataArray(np.random.default_rng(0).normal(size=(2, 8)), {"kind": ["one", "two"]}, ("kind", "x"))

    def drawn(kind: str, shift: float = 0.0, picture: bool = False) -> str:
        figure, axes = style.new_figure(1, 2)
        axes[0].plot(values.sel(kind=kind))
        axes[0].scatter(values.x, values.sel(kind=kind) + shift)
        axes[1].bar(range(8), values.sel(kind="two"))
        axes[1].fill_between(range(8), -1 + shift, 1)
        if picture:
            axes[1].imshow(values)
        return repr(style.finish(figure))

    right = drawn("one")
    assert drawn("one") == right
    assert len({right, drawn("two"), drawn("one", 0.01), drawn("one", picture=True)}) == 4


def test_a_chart_is_the_same_svg_each_time_and_a_picture_png():
    def drawn():
        figure, axes = style.new_figure()
        axes.plot([1, 2, 4], label="line")
        style.legend_outside(figure)
        return style.finish(figure)

    assert drawn().svg() == drawn().svg() and drawn().svg().startswith("<?xml") and drawn().png() is None
    picture = show_atoms(np.ones((1, 1, 2, 2)))
    assert picture.svg() is None and picture.png().startswith(b"\x89PNG")


def test_names_at_the_ends_of_lines_keep_their_order_and_do_not_collide():
    figure, axes = style.new_figure()
    axes.set(xlim=(0, 1), ylim=(0, 100))
    ends = {"far": (1, 10, "red"), "up": (1, 70.2, "blue"), "two\nlines": (0.5, 70.1, "grey"), "low": (1, 70, "green")}
    style.label_ends(axes, ends)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(label) for label in axes.texts]  # without the line to it
    assert [label.get_text() for label in axes.texts] == [*ends]
    by_height = sorted(boxes, key=lambda box: box.y0)
    assert by_height == [boxes[0], boxes[3], boxes[2], boxes[1]]
    assert all(below.y1 <= above.y0 for below, above in zip(by_height, by_height[1:], strict=False))
    assert axes.texts[0].xyann[1] == pytest.approx(0.1)
