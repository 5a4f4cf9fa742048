"""Pictures of atoms, of one layer or projected to the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, DICTIONARY, PLANE
from gdd.base.checks import GddError, as_finite, check_sequence, check_whole
from gdd_book.figures.style import FONT, FULL, bare, finish, new_figure

GAP = 1  # pixels between atoms


def show_atoms(
    dictionary: np.ndarray | xr.DataArray,
    columns: int | None = None,
    each: bool = True,
    title: str = "",
    labels: Sequence | None = None,
    plane: int | None = None,
    width: float = FULL,
) -> Figure:
    """All atoms in one grid, on a grey scale that is symmetric about zero: 0 is mid grey.

    Parameters
    ----------
    dictionary : (atom, plane, atom_row, atom_col)     of 1 plane, or 3 (red, green, blue)
    columns : atoms in a row; by default about twice as many as rows
    each : divide every atom by its own largest magnitude (the colour bar says so); otherwise all by the same
    title : above the grid
    labels : a word or number under each atom, for instance its index
    plane : which plane to show, where there are other than 1 or 3
    width : inches

    Raises
    ------
    GddError
        If there are no atoms, a value is not finite, or the number of planes needs a choice that was not made.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Fig. 2a, 3, 4 and 5 show dictionaries in this way.
    Departs: the paper does not say how it scaled them; here the scale is written beside the grid.
    Checked: tests/test_figures.py.
    """
    atoms = _chosen_planes(as_finite(dictionary, DICTIONARY, "dictionary").astype(float), plane)
    columns = None if columns is None else check_whole("columns", columns, 1)
    if labels is not None:
        check_sequence("labels", labels)
        if len(labels) != len(atoms):
            raise GddError(f"labels: {len(labels)} given for {len(atoms)} atoms along axis '{ATOM}'")
    largest = np.abs(atoms).max(axis=(1, 2, 3), keepdims=True) if each else np.abs(atoms).max()
    scaled = np.divide(atoms, largest, out=np.zeros(atoms.shape), where=largest > 0)
    columns = min(len(atoms), columns or ceil((2 * len(atoms)) ** 0.5))
    picture = atom_mosaic(scaled, columns)
    high, wide = picture.shape[:2]
    figure, axes = new_figure(width=width, height=(width - 0.9) * high / wide + (0.35 if title else 0.1))
    grey = axes.imshow((picture + 1) / 2 if picture.ndim == 3 else picture, cmap="gray", vmin=-1, vmax=1)
    bare(axes).set_title(title)
    if labels is not None:
        for number, label in enumerate(labels):
            top, left = _corner(number, columns, atoms.shape)
            axes.text(
                left, top, str(label), fontsize=FONT - 4, color="black", va="top", ha="left",
                bbox={"facecolor": "white", "pad": 0.6, "linewidth": 0},
            )  # fmt: skip
    unit = "each atom over its largest |value|" if each else f"all atoms over {float(largest):.3g}"
    source = ScalarMappable(Normalize(-1, 1), "gray") if picture.ndim == 3 else grey
    bar = figure.colorbar(source, ax=axes, ticks=[-1, 0, 1], fraction=0.03, pad=0.01, aspect=30)
    bar.ax.set_yticklabels(["\N{MINUS SIGN}1", "0", "1"])
    bar.set_label(unit, fontsize=FONT - 2 if high > wide / 2 else FONT - 4)
    return finish(figure)


def atom_mosaic(atoms: np.ndarray, columns: int) -> np.ndarray:
    """Atoms (atom, plane, row, col) beside one another, (row, col) or (row, col, 3); NaN between them."""
    count, planes, height, width = atoms.shape
    shape = (ceil(count / columns) * (height + GAP) - GAP, columns * (width + GAP) - GAP, planes)
    picture = np.full(shape, np.nan)
    for number, atom in enumerate(atoms):
        top, left = _corner(number, columns, atoms.shape)
        picture[top : top + height, left : left + width] = np.moveaxis(atom, 0, -1)
    return picture[..., 0] if planes == 1 else np.where(np.isnan(picture), 1.0, picture)


def _corner(number: int, columns: int, shape: tuple[int, ...]) -> tuple[int, int]:
    return number // columns * (shape[2] + GAP), number % columns * (shape[3] + GAP)


def _chosen_planes(dictionary: np.ndarray, plane: int | None) -> np.ndarray:
    count, planes = dictionary.shape[:2]
    if count == 0:
        raise GddError(f"dictionary: axis '{ATOM}' has size 0; at least 1 is needed")
    if plane is None and planes not in (1, 3):
        raise GddError(f"dictionary: axis '{PLANE}' has size {planes}; choose one with plane=0 .. {planes - 1}")
    if plane is not None and check_whole("plane", plane, 0) >= planes:
        raise GddError(f"plane: {plane} given; 0 .. {planes - 1} are there")
    return dictionary if plane is None else dictionary[:, plane : plane + 1]
