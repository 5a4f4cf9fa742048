"""Compiled chains of test-time deconvolution: an image per loop turn, all of its sweeps in cache.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``. Images and atoms
come scaled by the square root of the noise precision, so that here the noise has precision 1. The plain twin is
`gdd.deconvolution.sweep_plain`; both use the same random numbers in the same order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from gdd.sampler.random import TEST, WORDS, fill_stream, next_normal, next_uniform

#: sweeps after which the running correlations are formed afresh, so that single-precision rounding cannot pile up
REFRESH = 16

#: below this log odds the chance of a coefficient being active is under 1/100, and most draws need no exponential
_RARE = -4.6


@njit(cache=True, error_model="numpy")
def correlate_image(image, atoms, stride, grid, out):
    """Inner products of one image with every placed atom, (coefficient,). Changes ``out``.

    A loop and not a matrix product, so that an image gives the same bits alone and among others.

    image : (plane, row, col), atoms : (plane, atom_row, atom_col, atom)
    """
    out[:] = 0
    base = 0
    for row in range(grid[0]):
        for col in range(grid[1]):
            top, left = row * stride[0], col * stride[1]
            for plane in range(atoms.shape[0]):
                for a in range(min(atoms.shape[1], image.shape[1] - top)):
                    for b in range(min(atoms.shape[2], image.shape[2] - left)):
                        pixel = image[plane, top + a, left + b]
                        if pixel != 0:
                            for k in range(atoms.shape[3]):
                                out[base + k] += pixel * atoms[plane, a, b, k]
            base += atoms.shape[3]


@njit(cache=True, error_model="numpy")
def explain(correlation, delta, row, col, atom, gram, row_slab, col_slab):
    """Subtract ``delta`` times one row of the Gram matrix. Changes ``correlation``."""
    rows, cols, atoms = row_slab.shape[0], col_slab.shape[0], gram.shape[3]
    base = 0
    for a in range(rows):
        for b in range(cols):
            p, q = row_slab[row, a], col_slab[col, b]
            for k in range(atoms):
                correlation[base + k] -= delta * gram[p, q, atom, k]
            base += atoms


@njit(cache=True, error_model="numpy")
def refresh(correlation, given, weight, gram, row_slab, col_slab):
    """Form the correlations with the residual from those with the image. Changes ``correlation``."""
    correlation[:] = given
    i = 0
    for row in range(row_slab.shape[0]):
        for col in range(col_slab.shape[0]):
            for atom in range(gram.shape[3]):
                if weight[i] != 0:
                    explain(correlation, weight[i], row, col, atom, gram, row_slab, col_slab)
                i += 1


@njit(cache=True, error_model="numpy")
def squared_residual(energy, weight, given, correlation):
    """Squared norm of image minus reconstruction, from correlations alone: ||x||^2 - s.(c0 + c)."""
    explained = 0.0
    for i in range(weight.size):
        explained += np.float64(weight[i]) * (np.float64(given[i]) + np.float64(correlation[i]))
    return energy - explained


@njit(cache=True, error_model="numpy")
def folded_mean(mean, sd, gain):
    """Mean of the absolute value of a normal number; ``gain`` is mean^2 / (2 sd^2)."""
    return sd * math.sqrt(2.0 / math.pi) * math.exp(-gain) + mean * math.erf(mean / (sd * math.sqrt(2.0)))


@njit(cache=True, error_model="numpy")
def sweep(weight, correlation, gram, row_slab, col_slab, norm, inverse, log_odds, stream, sums, collected):
    """Redraw every coefficient once. Changes ``weight``, ``correlation``, ``stream`` and, if ``collected``, ``sums``.

    norm, inverse, log_odds : (coefficient,)   ||d||^2, 1 / lambda, log of prior odds times sqrt(gamma_w / lambda)
    sums : (3, coefficient)   of the conditional mean, the probability of being active, the mean absolute value
    """
    i = 0
    for row in range(row_slab.shape[0]):
        for col in range(col_slab.shape[0]):
            for atom in range(gram.shape[3]):
                old = weight[i]
                target = next_uniform(stream)
                c = np.float64(correlation[i]) + np.float64(old) * np.float64(norm[i])
                gain = 0.5 * c * c * inverse[i]
                log_ratio = log_odds[i] + gain
                active = False
                if collected or log_ratio > _RARE or target > 0.99:
                    idle = 1.0 / (1.0 + math.exp(log_ratio))
                    active = target >= idle
                    if collected:
                        mean = c * inverse[i]
                        sums[0, i] += (1.0 - idle) * mean
                        sums[1, i] += 1.0 - idle
                        sums[2, i] += (1.0 - idle) * folded_mean(mean, math.sqrt(inverse[i]), gain)
                if active:
                    weight[i] = c * inverse[i] + next_normal(stream) * math.sqrt(inverse[i])
                else:
                    weight[i] = 0
                if weight[i] != old:
                    explain(correlation, weight[i] - old, row, col, atom, gram, row_slab, col_slab)
                i += 1


@njit(cache=True, parallel=True, nogil=True, error_model="numpy")
def run_chains(
    images, atoms, stride, start, gram, row_slab, col_slab, norm, inverse, log_odds,
    seed, first, burn_in, collect, best, best_residual, averages, trace,
):  # fmt: skip
    """Run the chains of several images. Changes ``best``, ``best_residual``, ``averages`` and ``trace``.

    images : (image, plane, row, col), atoms : (plane, atom_row, atom_col, atom), stride : (row, col)
    start, best : (image, coefficient)          first and kept weights
    best_residual : (image,)                    squared residual of the kept weights
    gram : (2 rows, 2 cols, atom, atom), row_slab : (rows, rows), col_slab : (cols, cols)
    averages : (image, 3, coefficient)          see `sweep`
    trace : (image, sweep)                      squared residual after every sweep; an empty axis keeps none
    """
    grid = (row_slab.shape[0], col_slab.shape[0])
    for n in prange(images.shape[0]):
        stream = np.empty(WORDS, np.uint64)
        sums = np.zeros((3, start.shape[1]))
        weight, given, correlation = start[n].copy(), np.empty_like(start[n]), np.empty_like(start[n])
        correlate_image(images[n], atoms, stride, grid, given)
        energy = 0.0
        for pixel in images[n].flat:
            energy += np.float64(pixel) ** 2
        best_residual[n] = np.inf
        for t in range(burn_in + collect):
            if t % REFRESH == 0:
                refresh(correlation, given, weight, gram, row_slab, col_slab)
            fill_stream(stream, seed, TEST, 0, t, first + n)
            collected = t >= burn_in
            sweep(weight, correlation, gram, row_slab, col_slab, norm, inverse, log_odds, stream, sums, collected)
            if collected or trace.shape[1] > 0:
                residual = squared_residual(energy, weight, given, correlation)
                if trace.shape[1] > 0:
                    trace[n, t] = residual
                if collected and residual < best_residual[n]:
                    best_residual[n] = residual
                    best[n] = weight
        averages[n] = sums / collect
