"""Compiled chains of test-time deconvolution: an image per loop turn, all of its sweeps in cache.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``. Images and atoms
come scaled by the square root of the noise precision, so that here the noise has precision 1. The plain twin is
`gdd.deconvolution_plain`; both use the same random numbers in the same order.

A change of one coefficient changes the correlations of all. They are brought up to date when a sweep comes to a place
of the grid: by then many changes wait, and several rows of the Gram matrix are read side by side, while the place's own
correlations stay in the first cache.

Nearly all coefficients are idle, and all but surely stay so. They are not drawn one by one: each is *proposed* with
probability `RARE`, the gaps between proposals being geometric numbers, and a proposed one becomes active with
probability p / RARE. Only where p is `RARE` or more is there a draw at every visit. Both ways the probability is p.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erf

from gdd.deconvolution_correlations import catch_up, correlate_image, explain, refresh, squared_residual
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

#: coefficients looked at together
_RUN = 16

#: E|x + N(0, 1)| for x from 0 to _PIECES / 4, piece by piece of length 1/4 as polynomials in 4 x mod 1; beyond it is x
_PIECES, _DEGREE = 36, 8


def _folded_pieces() -> np.ndarray:
    def exact(x):
        return np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x) + x * erf(x / np.sqrt(2))

    fits = [Chebyshev.interpolate(lambda r, k=k: exact((k + r) / 4), _DEGREE, [0, 1]) for k in range(_PIECES)]
    return np.array([fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef for fit in fits])


_FOLDED = _folded_pieces()


@njit(cache=True, error_model="numpy")
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


@njit(cache=True)
def draw_gap(stream):
    """How many coefficients in a row are not proposed."""
    return int(math.log(next_uniform(stream)) / LOG_NOT_PROPOSED)


@njit(cache=True)
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


@njit(cache=True, error_model="numpy")
def add_expected(i, c, inverse, log_odds, sums):
    """Add a coefficient's conditional mean, probability of being active and mean absolute value. Changes ``sums``."""
    p = 1.0 / (1.0 + math.exp(-log_odds[i] - 0.5 * c * c * inverse[i]))
    sd = math.sqrt(inverse[i])
    sums[0, i] += p * c * inverse[i]
    sums[1, i] += p
    sums[2, i] += p * sd * folded_mean(abs(c) * sd)


@njit(cache=True, error_model="numpy")
def draw_weight(c, inverse, log_odds, proposed, stream):
    """New weight of one coefficient given c, see `gdd.deconvolution_plain.coefficient_given_rest`; 0 if idle."""
    log_ratio = log_odds + 0.5 * c * c * inverse
    share = RARE if log_ratio < LOG_RARE else 1.0
    if share == RARE and not proposed:
        return 0.0
    if next_uniform(stream) * share * (1.0 + math.exp(-log_ratio)) >= 1.0:
        return 0.0
    return c * inverse + next_normal(stream) * math.sqrt(inverse)


@njit(cache=True)
def idle_bounds(inverse, log_odds, weight, bound):
    """Squared correlations below which an idle coefficient is drawn only if proposed. Changes ``bound``."""
    for i in range(len(weight)):
        limit = 2.0 * (LOG_RARE - log_odds[i]) / inverse[i] * SLACK
        bound[i] = limit if weight[i] == 0 and limit > 0.0 else ALWAYS


@njit(cache=True, error_model="numpy")
def sweep(weight, correlation, gram, row_slab, col_slab, bound, norm, inverse, log_odds, stream, late, sums, collected):
    """Redraw every coefficient once; return the change of the squared residual.

    Changes ``weight``, ``correlation``, ``bound``, ``stream``, ``late`` and, if ``collected``, ``sums``. After it each
    place's correlations lack the changes at later places, which the next sweep makes up for, or `refresh`.

    bound : (coefficient,)                     see `idle_bounds`
    norm, inverse, log_odds : (coefficient,)   ||d||^2, 1 / lambda, log of prior odds times sqrt(gamma_w / lambda)
    late : changes of the last sweep and scratch for those of this one: indices, deltas (2, coefficient), and how many
        there were up to and with each place, ends (2, place); all zero if nothing is late
    sums : (3, coefficient)   of the conditional mean, the probability of being active, the mean absolute value
    """
    indices, deltas, ends = late
    atoms, cols, made, gain = gram.shape[3], col_slab.shape[0], 0, 0.0
    proposed = draw_gap(stream)
    for place in range(ends.shape[1]):
        first, own = place * atoms, (row_slab[place // cols, place // cols], col_slab[place % cols, place % cols])
        here = correlation[first : first + atoms]
        waiting = slice(ends[0, place], ends[0, -1])
        catch_up(here, place, indices[0, waiting], deltas[0, waiting], gram, row_slab, col_slab)
        catch_up(here, place, indices[1, :made], deltas[1, :made], gram, row_slab, col_slab)
        start, stop = first, first + atoms
        while True:
            i = next_visit(correlation, bound, start, min(proposed, stop))
            if collected:
                for j in range(start, i):
                    add_expected(j, np.float64(correlation[j]), inverse, log_odds, sums)
            if i >= stop:
                break
            old, left = weight[i], np.float64(correlation[i])
            c = left + np.float64(old) * np.float64(norm[i])
            if collected:
                add_expected(i, c, inverse, log_odds, sums)
            weight[i] = draw_weight(c, inverse[i], log_odds[i], i == proposed, stream)
            if weight[i] != old:
                delta = weight[i] - old
                line = gram[i - first, own[0], own[1]]
                for k in range(atoms):
                    here[k] -= delta * line[k]
                indices[1, made], deltas[1, made] = i, delta
                made += 1
                gain += np.float64(delta) * (np.float64(delta) * norm[i] - 2.0 * left)
                if old == 0 or weight[i] == 0:
                    idle_bounds(inverse[i : i + 1], log_odds[i : i + 1], weight[i : i + 1], bound[i : i + 1])
            if i == proposed:
                proposed += 1 + draw_gap(stream)
            start = i + 1
        ends[1, place] = made
    indices[0, :made], deltas[0, :made], ends[0] = indices[1, :made], deltas[1, :made], ends[1]
    return gain


@njit(cache=True, error_model="numpy")
def most_probable(weight, correlation, inverse, log_odds):
    """Idle coefficient most probably active given the rest; -1 if none is more probable than not."""
    found, highest = -1, 0.0
    for i in range(len(weight)):
        c = np.float64(correlation[i])
        log_ratio = log_odds[i] + 0.5 * c * c * inverse[i]
        if log_ratio > highest and weight[i] == 0:
            found, highest = i, log_ratio
    return found


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, parallel=True, nogil=True, error_model="numpy")
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
        indices, deltas = np.empty((2, given.size), np.int64), np.empty((2, given.size), given.dtype)
        ends = np.zeros((2, grid[0] * grid[1]), np.int64)
        energy, residual = 0.0, 0.0
        for pixel in images[n].flat:
            energy += np.float64(pixel) ** 2
        best_residual[n] = np.inf
        for t in range(burn_in + collect):
            if t % REFRESH == 0:
                refresh(correlation, given, weight, gram, row_slab, col_slab, indices[0], deltas[0])
                residual, ends[0] = squared_residual(energy, weight, given, correlation), 0
            fill_stream(stream, seed, TEST, 0, t, first + n)
            collected = t >= burn_in
            residual += sweep(
                weight, correlation, gram, row_slab, col_slab, bound, norm, inverse, log_odds, stream,
                (indices, deltas, ends), sums, collected,
            )  # fmt: skip
            if trace.shape[1] > 0:
                trace[n, t] = residual
            if collected and residual < best_residual[n]:
                best_residual[n] = residual
                best[n] = weight
        averages[n] = sums / collect
