"""Atoms placed on a grid of the image, and their Gram matrix: what the kernels of single coefficients need.

A projected atom is placed at pixels ``(row, col) * stride``. With ragged pooling blocks an atom in the last row or
column of the grid reaches beyond the image and is cropped. `gdd.projection.render_projected` sums placed atoms.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from gdd.model.pooling import Size
from gdd.sampler.kernels.coefficients import Problem


def placement_grid(image_size: Size, atom_size: Size, stride: Size) -> Size:
    """Number of positions (rows, cols) of an atom; at ragged edges the last one reaches beyond the image.

    A position entirely outside the image, possible at a stride wider than the atom, does not count.
    """
    along = zip(image_size, atom_size, stride, strict=True)
    return tuple(min(ceil((n - a) / s) + 1, ceil(n / s)) for n, a, s in along)


def place_atoms(
    atoms: np.ndarray, image_size: Size, stride: Size, gamma_w: float, log_prior_odds: float
) -> Problem:
    """Placed atoms, their Gram matrix and the prior of their coefficients.

    atoms : (atom, plane, atom_row, atom_col), in units in which the noise has precision 1, or in those of a layer
    """
    number, planes, rows, cols = atoms.shape
    grid, gram = placement_grid(image_size, (rows, cols), stride), gram_by_offset(atoms, image_size, stride)
    offsets = [offset_index(*sizes) for sizes in zip(grid, image_size, (rows, cols), stride, strict=True)]
    row, col = (np.diagonal(index) for index in offsets)
    norm = np.diagonal(gram, axis1=0, axis2=3)[row[:, None], col[None, :]].ravel().astype(np.float64)
    atoms_last = np.ascontiguousarray(atoms.transpose(2, 3, 1, 0)).reshape(rows, cols * planes, number)
    return Problem(atoms_last, planes, np.array(stride), gram, *offsets, norm, gamma_w, log_prior_odds)


def gram_by_offset(atoms: np.ndarray, image_size: Size, stride: Size) -> np.ndarray:
    """Inner products of all pairs of placed atoms by the offset of the second: (atom, row offset, col offset, atom).

    Entry ``[:, o + rows - 1]`` is for a second atom ``o`` positions below the first. Only atoms in the last row can
    reach beyond the image, and only the overlap of two such atoms is cropped: it has an extra entry, the last.
    `offset_index` gives the entry of a pair of positions. The entries for a change of one coefficient are contiguous.
    """
    grid = placement_grid(image_size, atoms.shape[2:], stride)
    cuts = []
    for positions, size, reach, step in zip(grid, image_size, atoms.shape[2:], stride, strict=True):
        offsets = [o * step for o in range(1 - positions, positions)]
        shared = [max(reach - abs(o), 0) for o in offsets]  # pixels in which the two overlap
        starts = [(max(o, 0), max(-o, 0), n) for o, n in zip(offsets, shared, strict=True)]
        pairs = [(slice(first, first + n), slice(second, second + n)) for first, second, n in starts]
        edge = size - (positions - 1) * step
        cuts.append(pairs + [(slice(0, edge), slice(0, edge))] * (edge < reach))
    gram = np.empty((len(atoms), len(cuts[0]), len(cuts[1]), len(atoms)), atoms.dtype)
    for a, (row_1, row_2) in enumerate(cuts[0]):
        for b, (col_1, col_2) in enumerate(cuts[1]):
            opposite = _opposite(a, grid[0]), _opposite(b, grid[1])
            if opposite < (a, b):
                gram[:, a, b] = gram[:, *opposite].T
            else:
                first, second = atoms[:, :, row_1, col_1], atoms[:, :, row_2, col_2]
                gram[:, a, b] = first.reshape(len(atoms), -1) @ second.reshape(len(atoms), -1).T
    return gram


def _opposite(entry: int, positions: int) -> int:
    """Return the entry with the two atoms exchanged."""
    return entry if entry == 2 * positions - 1 else 2 * positions - 2 - entry


def offset_index(positions: int, size: int, reach: int, step: int) -> np.ndarray:
    """Entry of `gram_by_offset` for each pair of positions along one axis: (positions, positions)."""
    index = np.arange(positions)[None, :] - np.arange(positions)[:, None] + positions - 1
    if size - (positions - 1) * step < reach:
        index[-1, -1] = 2 * positions - 1
    return index
