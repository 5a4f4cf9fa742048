"""Figures show what they were given: positions and scales of pixels, numbers of cells; bad input is named."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import DICTIONARY
from gdd.base.checks import GddError
from gdd_book import figures
from gdd_book.figures.dictionaries import atom_mosaic


def pixels(figure):
    """What the only picture of a figure shows."""
    return np.asarray(figure.axes[0].images[0].get_array(), float)


def texts(figure):
    """Every text in the first axes."""
    return [text.get_text() for text in figure.axes[0].texts]


def test_mosaic_puts_each_atom_in_its_place():
    atoms = np.arange(3 * 2 * 2.0).reshape(3, 1, 2, 2)
    picture = atom_mosaic(atoms, 2)
    assert picture.shape == (5, 5)
    np.testing.assert_array_equal(picture[:2, :2], atoms[0, 0])
    np.testing.assert_array_equal(picture[:2, 3:], atoms[1, 0])
    np.testing.assert_array_equal(picture[3:, :2], atoms[2, 0])
    assert np.isnan(picture[2]).all() and np.isnan(picture[:, 2]).all() and np.isnan(picture[3:, 3:]).all()


@pytest.mark.parametrize(("each", "largest"), [(True, [1, 1]), (False, [0.25, 1])])
def test_grey_scale_is_symmetric_and_says_its_unit(each, largest):
    atoms = np.array([[[[0.0, -1.0]]], [[[4.0, 2.0]]]])
    figure = figures.show_atoms(xr.DataArray(atoms, dims=DICTIONARY), columns=1, each=each)
    shown = pixels(figure)
    np.testing.assert_allclose([np.nanmax(abs(shown[0])), np.nanmax(abs(shown[2]))], largest)
    assert shown[0, 0] == 0
    assert figure.axes[0].images[0].get_clim() == (-1, 1)
    assert ("its largest" if each else "over 4") in figure.axes[1].get_ylabel()


def test_colour_atoms_have_zero_in_the_middle():
    atoms = np.zeros((1, 3, 2, 2))
    atoms[0, 0, 0, 0], atoms[0, 2, 1, 1] = 2.0, -2.0
    shown = pixels(figures.show_atoms(atoms))
    np.testing.assert_allclose(shown[0, 0], [1, 0.5, 0.5])
    np.testing.assert_allclose(shown[1, 1], [0.5, 0.5, 0])


def test_an_unused_atom_is_grey_and_labels_are_written():
    figure = figures.show_atoms(np.zeros((2, 1, 3, 3)), labels=["a", "b"])
    assert np.nanmax(abs(pixels(figure))) == 0
    assert texts(figure) == ["a", "b"]


def test_one_plane_of_many():
    atoms = np.random.default_rng(0).normal(size=(1, 5, 2, 2))
    shown = pixels(figures.show_atoms(atoms, plane=3))
    np.testing.assert_allclose(shown, atoms[0, 3] / abs(atoms[0, 3]).max())


def test_grids_write_every_number():
    figure = figures.show_grids([np.array([[1, -2]]), np.array([[3.5], [0]])], ["left", "right"], ["="], [None, (1, 1)])
    assert texts(figure) == ["1", "\N{MINUS SIGN}2", "left", "=", "3.5", "0", "right"]


def test_pictures_have_scales_of_their_own_about_zero():
    figure = figures.show_pictures(["a", "b", "c"], [np.eye(2), -5 * np.eye(2), np.zeros((2, 2))], columns=2)
    assert [panel.get_title() for panel in figure.axes] == ["a", "b", "c", ""]
    assert [panel.images[0].get_clim() for panel in figure.axes[:3]] == [(-1, 1), (-5, 5), (-1, 1)]
    assert not figure.axes[3].images


def test_schematic_names_both_directions():
    shown = texts(figures.draw_generative_process())
    for word in ("Pretraining", "Refinement", "one of $B+1$ a block", "one of $B$ a block"):
        assert word in shown


def test_a_notebook_shows_a_figure_once():
    for figure in (figures.draw_generative_process(), figures.show_atoms(np.ones((1, 1, 2, 2)))):
        assert isinstance(figure, Figure)
        assert figure.number not in plt.get_fignums()


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: figures.show_atoms(np.ones((2, 4, 3, 3))), ["dictionary", "plane", "4"]),
        (lambda: figures.show_atoms(np.ones((2, 4, 3, 3)), plane=4), ["plane", "4", "3"]),
        (lambda: figures.show_atoms(np.ones((0, 1, 3, 3))), ["dictionary", "atom", "0"]),
        (lambda: figures.show_atoms(np.full((1, 1, 3, 3), np.nan)), ["dictionary", "is nan"]),
        (lambda: figures.show_atoms(np.ones((2, 1, 3, 3)), labels=["a"]), ["labels", "1", "2"]),
        (lambda: figures.show_atoms(np.ones((3, 3))), ["dictionary", "2 axes"]),
        (lambda: figures.show_pictures(["a"], []), ["titles", "1", "0"]),
        (lambda: figures.show_pictures(["a"], np.array(3.0)), ["pictures", "without an axis"]),
        (lambda: figures.show_atoms(np.ones((1, 1, 3, 3)), labels=np.array(3.0)), ["labels", "without an axis"]),
        (lambda: figures.show_pictures(["a"], [np.full((2, 2), np.inf)]), ["pictures", "number 0"]),
        (lambda: figures.show_grids([np.ones(3)], ["a"]), ["grids", "1 axes"]),
        (lambda: figures.show_grids([np.ones((2, 2))], ["a", "b"]), ["titles", "2", "1 grids"]),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(GddError) as error:
        call()
    for name in names:
        assert name in str(error.value)
