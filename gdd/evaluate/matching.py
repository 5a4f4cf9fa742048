"""Atoms of two dictionaries paired up: the best sign and whole-pixel shift of every pair, then one partner each."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, DICTIONARY, PLANE
from gdd.base.checks import GddError, as_finite, check_memory, check_whole

REACH = 2  # pixels; the widest shift tried by default


def match_atoms(found: np.ndarray | xr.DataArray, true: np.ndarray | xr.DataArray, reach: int = REACH) -> xr.Dataset:
    """Pair every true atom with at most one found atom so that the sum of their correlations is largest.

    The correlation of two atoms is the inner product over the norms, both taken on the pixels where the two overlap
    after a whole-pixel shift; of all shifts up to ``reach`` in each axis the one with the largest magnitude counts.

    Parameters
    ----------
    found : (atom, plane, atom_row, atom_col)     any number of atoms
    true : the same axes, the same planes and sizes
    reach : int                                   pixels, 0 or more, less than the atom's size

    Returns
    -------
    Dataset
        For every true atom (``atom``): ``correlation`` in -1..1, 0 without a partner; ``partner``, index of the found
        atom, -1 for none; ``row``, ``col``, the shift in pixels that puts the true atom under its partner:
        found[a + row, b + col] is compared with true[a, b].

    Raises
    ------
    GddError
        Planes or sizes that differ, a value that is not finite, a reach outside 0..size - 1.

    Notes
    -----
    Source: not in the paper; the measure of the planted-data experiment.
    Departs: not applicable.
    Checked: tests/test_matching.py (signs, shifts, permutation, fewer and more atoms, the overlap alone counts).
    """
    found, true = (as_finite(a, DICTIONARY, name).astype(float) for a, name in ((found, "found"), (true, "true")))
    for axis, size, wanted in zip((PLANE, ATOM_ROW, ATOM_COL), found.shape[1:], true.shape[1:], strict=True):
        if size != wanted:
            raise GddError(f"found: axis '{axis}' has size {size}, true atoms have {wanted}")
    reach = check_whole("reach", reach, least=0)
    if reach >= min(true.shape[2:]):
        raise GddError(f"reach: {reach} given; atoms of {true.shape[2:]} allow at most {min(true.shape[2:]) - 1}")
    check_memory("reach, found, true", (2 * reach + 1) ** 2 * len(found) * len(true))
    shifts = [(i, j) for i in range(-reach, reach + 1) for j in range(-reach, reach + 1)]
    each = np.stack([correlations(found, true, *shift) for shift in shifts])  # (shift, found, true)
    best = np.abs(each).argmax(axis=0)
    strongest = np.take_along_axis(each, best[None], axis=0)[0]  # (found, true)
    rows, columns = linear_sum_assignment(-np.abs(strongest))
    partner = np.full(len(true), -1)
    partner[columns] = rows
    has = partner >= 0
    out = {"correlation": np.where(has, strongest[partner, np.arange(len(true))], 0.0), "partner": partner}
    chosen = np.array(shifts)[best[partner, np.arange(len(true))]] * has[:, None]
    out |= {"row": chosen[:, 0], "col": chosen[:, 1]}
    return xr.Dataset({name: (ATOM, value) for name, value in out.items()})


def correlations(found: np.ndarray, true: np.ndarray, row: int, col: int) -> np.ndarray:
    """Inner products over norms of found[a + row, b + col] and true[a, b] on their overlap: (found atom, true atom)."""
    over = [_overlap(size, shift) for size, shift in zip(true.shape[2:], (row, col), strict=True)]
    left = found[:, :, over[0][0], over[1][0]].reshape(len(found), -1)
    right = true[:, :, over[0][1], over[1][1]].reshape(len(true), -1)
    norms = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)
    return np.divide(left @ right.T, norms, out=np.zeros(norms.shape), where=norms > 0)


def _overlap(size: int, shift: int) -> tuple[slice, slice]:
    return slice(max(0, shift), size + min(0, shift)), slice(max(0, -shift), size + min(0, -shift))
