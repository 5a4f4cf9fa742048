"""Correlations of an image, and of what a chain leaves of it, with every placed atom; compiled.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``; ``gram`` is that of
`gdd.placement.gram_slabs`, with its row slabs and column slabs. *Checked:* tests/test_deconvolution.py.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: pixels of an atom's row multiplied together; changes caught up with together
_TAPS, _TOGETHER = 4, 4


@njit(cache=True, error_model="numpy")
def correlate_image(image, atoms, stride, grid, out):
    """Inner products of one image with every placed atom, (coefficient,). Changes ``out``.

    A loop and not a matrix product, so that an image gives the same bits alone and among others.

    image : (plane, row, col), atoms : (plane, atom_row, atom_col, atom)
    """
    planes, rows, cols, number = atoms.shape
    whole = np.zeros((planes, (grid[0] - 1) * stride[0] + rows, (grid[1] - 1) * stride[1] + cols), image.dtype)
    whole[:, : image.shape[1], : image.shape[2]] = image
    places = out.reshape(grid[0] * grid[1], number)
    places[:] = 0
    for plane in range(planes):
        for a in range(rows):
            for b in range(0, cols, _TAPS):
                taps = atoms[plane, a, b : b + _TAPS]
                for p in range(len(places)):
                    left = (p % grid[1]) * stride[1] + b
                    add_taps(whole[plane, (p // grid[1]) * stride[0] + a, left : left + len(taps)], taps, places[p])


@njit(cache=True, error_model="numpy")
def add_taps(pixels, taps, line):
    """Add a few pixels times their taps of every atom, (tap, atom), to ``line`` (atom,), which changes."""
    if len(pixels) == _TAPS:
        x0, x1, x2, x3 = pixels[0], pixels[1], pixels[2], pixels[3]
        if x0 != 0 or x1 != 0 or x2 != 0 or x3 != 0:
            for k in range(len(line)):
                line[k] += x0 * taps[0, k] + x1 * taps[1, k] + x2 * taps[2, k] + x3 * taps[3, k]
    else:
        for t in range(len(pixels)):
            for k in range(len(line)):
                line[k] += pixels[t] * taps[t, k]


@njit(cache=True, error_model="numpy")
def explain(correlation, delta, row, col, atom, gram, row_slab, col_slab):
    """Subtract ``delta`` times one row of the Gram matrix. Changes ``correlation``."""
    atoms = gram.shape[3]
    base = 0
    for a in range(row_slab.shape[0]):
        for b in range(col_slab.shape[0]):
            line, here = gram[atom, row_slab[row, a], col_slab[col, b]], correlation[base : base + atoms]
            for k in range(atoms):
                here[k] -= delta * line[k]
            base += atoms


@njit(cache=True, error_model="numpy")
def catch_up(here, place, indices, deltas, gram, row_slab, col_slab):
    """Bring one place's correlations up to date with changes of coefficients anywhere. Changes ``here`` (atom,).

    indices, deltas : (change,)   which coefficient changed, by how much
    """
    atoms, cols, n = gram.shape[3], col_slab.shape[0], 0
    to_row, to_col = row_slab[:, place // cols], col_slab[:, place % cols]
    while n + _TOGETHER <= len(indices):
        l0 = row_of_gram(indices[n], to_row, to_col, gram)
        l1 = row_of_gram(indices[n + 1], to_row, to_col, gram)
        l2 = row_of_gram(indices[n + 2], to_row, to_col, gram)
        l3 = row_of_gram(indices[n + 3], to_row, to_col, gram)
        d0, d1, d2, d3 = deltas[n], deltas[n + 1], deltas[n + 2], deltas[n + 3]
        for k in range(atoms):
            here[k] -= d0 * l0[k] + d1 * l1[k] + d2 * l2[k] + d3 * l3[k]
        n += _TOGETHER
    while n < len(indices):
        line = row_of_gram(indices[n], to_row, to_col, gram)
        for k in range(atoms):
            here[k] -= deltas[n] * line[k]
        n += 1


@njit(cache=True, error_model="numpy")
def row_of_gram(i, to_row, to_col, gram):
    """Inner products of coefficient i's picture with those of all atoms at one place, (atom,)."""
    atoms, cols = gram.shape[3], len(to_col)
    place = i // atoms
    return gram[i % atoms, to_row[place // cols], to_col[place % cols]]


@njit(cache=True, error_model="numpy")
def refresh(correlation, given, weight, gram, row_slab, col_slab, indices, deltas):
    """Form the correlations with the residual from those with the image. Changes ``correlation`` and the scratch
    ``indices``, ``deltas`` (coefficient,).
    """
    atoms, active = gram.shape[3], 0
    for i in range(len(weight)):
        indices[active], deltas[active] = i, weight[i]
        active += weight[i] != 0
    correlation[:] = given
    for place in range(len(weight) // atoms):
        here = correlation[place * atoms : (place + 1) * atoms]
        catch_up(here, place, indices[:active], deltas[:active], gram, row_slab, col_slab)


@njit(cache=True, error_model="numpy")
def squared_residual(energy, weight, given, correlation):
    """Squared norm of image minus reconstruction, from correlations alone: ||x||^2 - s.(c0 + c)."""
    explained = 0.0
    for i in range(weight.size):
        explained += np.float64(weight[i]) * (np.float64(given[i]) + np.float64(correlation[i]))
    return energy - explained
