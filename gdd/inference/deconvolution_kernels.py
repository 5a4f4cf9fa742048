"""Compiled chains of test-time deconvolution: an image per loop turn, all of its sweeps in cache.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``. Images and atoms
come scaled by the square root of the noise precision, so that here the noise has precision 1. The plain twin is
`gdd.testing.deconvolution_plain`; both use the same random numbers in the same order.

Nearly all coefficients are idle, and all but surely stay so. They are not drawn one by one: each is *proposed* with
probability `RARE`, the gaps between proposals being geometric numbers, and a proposed one becomes active with
probability p / RARE. Only where p is `RARE` or more is there a draw at every visit. Both ways the probability is p.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erf

from gdd.base.compiling import kernel
from gdd.sampler.random import TEST, WORDS, fill_stream, next_normal, next_uniform

#: sweeps after which the running correlations are formed afresh, so that single-precision rounding cannot pile up
REFRESH = 16

#: probability below which a coefficient is drawn only if proposed
RARE = 1 / 64
LOG_RARE = math.log(RARE / (1 - RARE))
LOG_NOT_PROPOSED = math.log(1 - RARE)
#: bound of an active coefficient, which any squared correlation passes
ALWAYS = -1.0
#: makes up for the rounding of squares in single precision where a bound is wanted
SLACK = 1.0 - 1e-5

#: coefficients looked at together; pixels of an atom's row multiplied together
_RUN, _TAPS = 16, 4

#: E|x + N(0, 1)| for x from 0 to _PIECES / 4, piece by piece of length 1/4 as polynomials in 4 x mod 1; beyond it is x
_PIECES, _DEGREE = 36, 8


def _folded_pieces() -> np.ndarray:
    def exact(x):
        return np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x) + x * erf(x / np.sqrt(2))

    fits = [Chebyshev.interpolate(lambda r, k=k: exact((k + r) / 4), _DEGREE, [0, 1]) for k in range(_PIECES)]
    return np.array([fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef for fit in fits])


_FOLDED = _folded_pieces()


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
def refresh(correlation, given, weight, gram, row_slab, col_slab):
    """Form the correlations with the residual from those with the image. Changes ``correlation``."""
    for q in range(len(given)):
        correlation[q] = given[q]
    i = 0
    for row in range(row_slab.shape[0]):
        for col in range(col_slab.shape[0]):
            for atom in range(gram.shape[3]):
                if weight[i] != 0:
                    explain(correlation, weight[i], row, col, atom, gram, row_slab, col_slab)
                i += 1


@kernel(error_model="numpy")
def squared_residual(energy, weight, given, correlation):
    """Squared norm of image minus reconstruction, from correlations alone: ||x||^2 - s.(c0 + c)."""
    explained = 0.0
    for i in range(weight.size):
        explained += np.float64(weight[i]) * (np.float64(given[i]) + np.float64(correlation[i]))
    return energy - explained


@kernel(error_model="numpy")
def folded_mean(x):
    """Mean of |x + N(0, 1)|, for x from 0."""
    k = int(4.0 * x) if x < _PIECES / 4 else _PIECES
    if k >= _PIECES:
        return x
    r, piece = 4.0 * x - k, _FOLDED[k]
    total = piece[_DEGREE]
    for t in range(_DEGREE - 1, -1, -1):
        total = total * r + piece[t]
    return total


@kernel()
def draw_gap(stream):
    """How many coefficients in a row are not proposed."""
    return int(math.log(next_uniform(stream)) / LOG_NOT_PROPOSED)


@kernel()
def next_visit(correlation, bound, start, stop):
    """First coefficient from ``start`` whose squared correlation passes its bound; ``stop`` if there is none."""
    i = start
    while i + _RUN <= stop:
        passed = 0
        for t in range(_RUN):
            passed += correlation[i + t] * correlation[i + t] > bound[i + t]
        if passed:
            break
        i += _RUN
    while i < stop and not correlation[i] * correlation[i] > bound[i]:
        i += 1
    return i


@kernel(error_model="numpy")
def add_expected(i, c, inverse, log_odds, sums):
    """Add a coefficient's conditional mean, probability of being active and mean absolute value. Changes ``sums``."""
    p = 1.0 / (1.0 + math.exp(-log_odds[i] - 0.5 * c * c * inverse[i]))
    sd = math.sqrt(inverse[i])
    sums[0, i] += p * c * inverse[i]
    sums[1, i] += p
    sums[2, i] += p * sd * folded_mean(abs(c) * sd)


@kernel(error_model="numpy")
def draw_weight(c, inverse, log_odds, proposed, stream):
    """New weight of one coefficient given c, see `gdd.testing.deconvolution_plain.coefficient_given_rest`; 0 if
    idle.
    """
    log_ratio = log_odds + 0.5 * c * c * inverse
    share = RARE if log_ratio < LOG_RARE else 1.0
    if share == RARE and not proposed:
        return 0.0
    if next_uniform(stream) * share * (1.0 + math.exp(-log_ratio)) >= 1.0:
        return 0.0
    return c * inverse + next_normal(stream) * math.sqrt(inverse)


@kernel()
def idle_bounds(inverse, log_odds, weight, bound):
    """Squared correlations below which an idle coefficient is drawn only if proposed. Changes ``bound``."""
    for i in range(len(weight)):
        limit = 2.0 * (LOG_RARE - log_odds[i]) / inverse[i] * SLACK
        bound[i] = limit if weight[i] == 0 and limit > 0.0 else ALWAYS


@kernel(error_model="numpy")
def sweep(weight, correlation, gram, row_slab, col_slab, bound, norm, inverse, log_odds, stream, sums, collected):
    """Redraw every coefficient once. Changes ``weight``, ``correlation``, ``bound``, ``stream`` and, if ``collected``,
    ``sums``.

    bound : (coefficient,)                     see `idle_bounds`
    norm, inverse, log_odds : (coefficient,)   ||d||^2, 1 / lambda, log of prior odds times sqrt(gamma_w / lambda)
    sums : (3, coefficient)   of the conditional mean, the probability of being active, the mean absolute value
    """
    atoms, cols = gram.shape[3], col_slab.shape[0]
    start, proposed = 0, draw_gap(stream)
    while True:
        i = next_visit(correlation, bound, start, min(proposed, len(weight)))
        if collected:
            for j in range(start, i):
                add_expected(j, np.float64(correlation[j]), inverse, log_odds, sums)
        if i >= len(weight):
            return
        old = weight[i]
        c = np.float64(correlation[i]) + np.float64(old) * np.float64(norm[i])
        if collected:
            add_expected(i, c, inverse, log_odds, sums)
        weight[i] = draw_weight(c, inverse[i], log_odds[i], i == proposed, stream)
        if weight[i] != old:
            place = i // atoms
            explain(correlation, weight[i] - old, place // cols, place % cols, i % atoms, gram, row_slab, col_slab)
            if old == 0 or weight[i] == 0:
                idle_bounds(inverse[i : i + 1], log_odds[i : i + 1], weight[i : i + 1], bound[i : i + 1])
        if i == proposed:
            proposed += 1 + draw_gap(stream)
        start = i + 1


@kernel(error_model="numpy")
def most_probable(weight, correlation, inverse, log_odds):
    """Idle coefficient most probably active given the rest; -1 if none is more probable than not."""
    found, highest = -1, 0.0
    for i in range(len(weight)):
        c = np.float64(correlation[i])
        log_ratio = log_odds[i] + 0.5 * c * c * inverse[i]
        if log_ratio > highest and weight[i] == 0:
            found, highest = i, log_ratio
    return found


@kernel(error_model="numpy")
def pursue(weight, correlation, gram, row_slab, col_slab, inverse, log_odds):
    """Make one coefficient after the other active at its conditional mean. Changes ``weight``, ``correlation``."""
    atoms, cols = gram.shape[3], col_slab.shape[0]
    while True:
        i = most_probable(weight, correlation, inverse, log_odds)
        if i < 0:
            return
        weight[i] = np.float64(correlation[i]) * inverse[i]
        place = i // atoms
        explain(correlation, weight[i], place // cols, place % cols, i % atoms, gram, row_slab, col_slab)


@kernel(parallel=True, nogil=True, error_model="numpy")
def run_chains(
    images, atoms, stride, pursued, gram, row_slab, col_slab, norm, inverse, log_odds,
    seed, first, burn_in, collect, best, best_residual, averages, trace,
):  # fmt: skip
    """Run the chains of several images. Changes ``best``, ``best_residual``, ``averages`` and ``trace``.

    images : (image, plane, row, col), atoms : (plane, atom_row, atom_col, atom), stride : (row, col)
    pursued : whether to begin with a greedy pursuit
    best : (image, coefficient)                 weights to begin with (zeros before a pursuit); kept ones on return
    best_residual : (image,)                    squared residual of the kept weights
    gram : (atom, row slab, col slab, atom), row_slab : (rows, rows), col_slab : (cols, cols)
    averages : (image, 3, coefficient)          see `sweep`
    trace : (image, sweep)                      squared residual after every sweep; an empty axis keeps none
    """
    grid = (row_slab.shape[0], col_slab.shape[0])
    for n in prange(images.shape[0]):
        stream = np.empty(WORDS, np.uint64)
        sums = np.zeros((3, best.shape[1]))
        weight, given = best[n].copy(), np.empty_like(best[n])
        correlate_image(images[n], atoms, stride, grid, given)
        correlation, bound = given.copy(), np.empty_like(given)
        if pursued:
            pursue(weight, correlation, gram, row_slab, col_slab, inverse, log_odds)
        idle_bounds(inverse, log_odds, weight, bound)
        energy = 0.0
        for pixel in images[n].flat:
            energy += np.float64(pixel) ** 2
        best_residual[n] = np.inf
        for t in range(burn_in + collect):
            if t % REFRESH == 0:
                refresh(correlation, given, weight, gram, row_slab, col_slab)
            fill_stream(stream, seed, TEST, 0, t, first + n)
            collected = t >= burn_in
            sweep(
                weight, correlation, gram, row_slab, col_slab, bound, norm, inverse, log_odds, stream, sums, collected
            )
            if collected or trace.shape[1] > 0:
                residual = squared_residual(energy, weight, given, correlation)
                if trace.shape[1] > 0:
                    trace[n, t] = residual
                if collected and residual < best_residual[n]:
                    best_residual[n] = residual
                    best[n] = weight
        averages[n] = sums / collect
