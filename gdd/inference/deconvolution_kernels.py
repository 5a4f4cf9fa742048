"""Compiled chains of test-time deconvolution: one image at a time, all of its sweeps in cache.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``. Images and atoms
come scaled by the square root of the noise precision, so that here the noise has precision 1. The plain twin is
`gdd_book.checks.deconvolution_plain`; both use the same random numbers in the same order.

Nearly all coefficients are idle and almost surely stay so. They are not drawn one by one: each is *proposed* with
probability `RARE`, the gaps between proposals being geometric numbers, and a proposed one becomes active with
probability p / RARE. Only where p is `RARE` or more is there a draw at every visit. Both ways the probability is p.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erf

from gdd.base.compiling import borrowed, kernel
from gdd.sampler.random import TEST, WORDS, fill_stream, next_normal, next_uniform

#: sweeps after which the running correlations are formed afresh, so that single-precision rounding cannot pile up
REFRESH = 16

#: probability below which a coefficient is drawn only if proposed
RARE = 1 / 64
LOG_RARE = math.log(RARE / (1 - RARE))
LOG_NOT_PROPOSED = math.log(1 - RARE)
#: bound of an active coefficient: below any squared correlation
ALWAYS = -1.0
#: makes up for the rounding of squares in single precision where a bound is wanted
SLACK = 1.0 - 1e-5

#: coefficients examined together; pixels of an atom's row multiplied together
_RUN, _TAPS = 16, 4

#: E|x + N(0, 1)| for x from 0 to _PIECES / 4, piece by piece of length 1/4 as polynomials in 4 x mod 1; beyond it is x
_PIECES, _DEGREE = 36, 8


class Problem(NamedTuple):
    """What the chains of all images share. Atoms are scaled to noise precision 1."""

    atoms: np.ndarray  # (plane, atom_row, atom_col, atom)
    stride: np.ndarray  # (2,): pixels between positions along rows, along cols
    gram: np.ndarray  # (atom, row slab, col slab, atom), see `gdd.model.placement.gram_slabs`
    row_slab: np.ndarray  # (rows, rows): slab of a pair of positions
    col_slab: np.ndarray  # (cols, cols)
    norm: np.ndarray  # (coefficient,): squared norm of a placed atom
    inverse: np.ndarray  # (coefficient,): variance of its weight if active, 1 / (norm + gamma_w)
    log_odds: np.ndarray  # (coefficient,): log of prior odds times sqrt(gamma_w * inverse)
    gamma_w: float

    @property
    def grid(self) -> tuple[int, int]:
        """Positions (row, col) of an atom."""
        return len(self.row_slab), len(self.col_slab)


class Run(NamedTuple):
    """Names of the random numbers, and lengths."""

    seed: int
    first: int  # number of the first image's stream
    apart: int  # from one image's stream to the next's: 1, or 0 if all images share their random numbers
    burn_in: int
    collect: int


class Chains(NamedTuple):
    """What the chains of several images leave."""

    best: np.ndarray  # (image, coefficient): weights of least residual; given: those to start from
    residual: np.ndarray  # (image,): squared residual of the former
    averages: np.ndarray  # (image, 3, coefficient): conditional mean, probability of being active, mean magnitude
    trace: np.ndarray  # (image, sweep): squared residual after each sweep; an empty axis keeps none

    def some(self, where: slice) -> Chains:
        """Views of these of the images'."""
        return Chains(*(array[where] for array in self))


def _folded_pieces() -> np.ndarray:
    def exact(x):
        return np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x) + x * erf(x / np.sqrt(2))

    fits = [Chebyshev.interpolate(lambda r, k=k: exact((k + r) / 4), _DEGREE, [0, 1]) for k in range(_PIECES)]
    return np.array([fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef for fit in fits])


_FOLDED = _folded_pieces()


@kernel()
def correlate_image(image, problem, out):
    """Inner products of one image (plane, row, col) with every placed atom, (coefficient,), into ``out``.

    A loop and not a matrix product, so that an image gives the same bits alone and among others.
    """
    atoms, grid = problem.atoms, (len(problem.row_slab), len(problem.col_slab))
    down, right = problem.stride[0], problem.stride[1]
    planes, rows, cols, number = atoms.shape
    reach = max(image.shape[1], (grid[0] - 1) * down + rows), max(image.shape[2], (grid[1] - 1) * right + cols)
    whole = np.zeros((planes, *reach), image.dtype)  # atoms may stick out of the image, or not reach its far edge
    whole[:, : image.shape[1], : image.shape[2]] = image
    places = out.reshape(grid[0] * grid[1], number)
    places[:] = 0
    for plane in range(planes):
        for a in range(rows):
            for b in range(0, cols, _TAPS):
                taps = atoms[plane, a, b : b + _TAPS]
                for p in range(len(places)):
                    left = (p % grid[1]) * right + b
                    add_taps(whole[plane, (p // grid[1]) * down + a, left : left + len(taps)], taps, places[p])


@kernel()
def add_taps(pixels, taps, line):
    """Add a few pixels times their taps of every atom, (tap, atom), to ``line`` (atom,)."""
    if len(pixels) == _TAPS:
        x0, x1, x2, x3 = pixels[0], pixels[1], pixels[2], pixels[3]
        if x0 != 0 or x1 != 0 or x2 != 0 or x3 != 0:
            for k in range(len(line)):
                line[k] += x0 * taps[0, k] + x1 * taps[1, k] + x2 * taps[2, k] + x3 * taps[3, k]
    else:
        for t in range(len(pixels)):
            for k in range(len(line)):
                line[k] += pixels[t] * taps[t, k]


@kernel()
def explain(correlation, delta, i, gram, row_slab, col_slab):
    """Subtract ``delta`` times row ``i`` of the Gram matrix from ``correlation``."""
    atoms, cols = gram.shape[3], col_slab.shape[0]
    place, atom = i // atoms, i % atoms
    row, col, base = place // cols, place % cols, 0
    for a in range(row_slab.shape[0]):
        for b in range(cols):
            line, here = gram[atom, row_slab[row, a], col_slab[col, b]], correlation[base : base + atoms]
            for k in range(atoms):
                here[k] -= delta * line[k]
            base += atoms


@kernel()
def refresh(correlation, given, weight, problem):
    """Form the correlations with the residual from ``given``, those with the image."""
    for i in range(len(given)):
        correlation[i] = given[i]
    for i in range(len(weight)):
        if weight[i] != 0:
            explain(correlation, weight[i], i, problem.gram, problem.row_slab, problem.col_slab)


@kernel()
def squared_residual(energy, weight, given, correlation):
    """Squared norm of image minus reconstruction, from correlations alone: ||x||^2 - s.(c0 + c)."""
    explained = 0.0
    for i in range(weight.size):
        explained += np.float64(weight[i]) * (np.float64(given[i]) + np.float64(correlation[i]))
    return energy - explained


@kernel()
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


@kernel()
def log_ratio(c, inverse, log_odds):
    """Log odds of a coefficient being active, see `gdd_book.checks.deconvolution_plain.coefficient_given_rest`."""
    return log_odds + 0.5 * c * c * inverse


@kernel()
def add_expected(i, c, inverse, log_odds, sums):
    """Add a coefficient's conditional mean, probability of being active and mean magnitude to ``sums``."""
    p = 1.0 / (1.0 + math.exp(-log_ratio(c, inverse[i], log_odds[i])))
    sd = math.sqrt(inverse[i])
    sums[0, i] += p * c * inverse[i]
    sums[1, i] += p
    sums[2, i] += p * sd * folded_mean(abs(c) * sd)


@kernel()
def draw_weight(c, inverse, log_odds, proposed, stream):
    """Draw the weight of one coefficient given c; 0 if idle."""
    ratio = log_ratio(c, inverse, log_odds)
    share = RARE if ratio < LOG_RARE else 1.0
    if share == RARE and not proposed:
        return 0.0
    if next_uniform(stream) * share * (1.0 + math.exp(-ratio)) >= 1.0:
        return 0.0
    return c * inverse + next_normal(stream) * math.sqrt(inverse)


@kernel()
def idle_bounds(inverse, log_odds, weight, bound):
    """Squared correlations below which an idle coefficient is drawn only if proposed, into ``bound``."""
    for i in range(len(weight)):
        limit = 2.0 * (LOG_RARE - log_odds[i]) / inverse[i] * SLACK
        bound[i] = limit if weight[i] == 0 and limit > 0.0 else ALWAYS


@kernel()
def sweep(weight, correlation, bound, problem, stream, sums, collected):
    """Redraw every coefficient once. Changes all arrays but the problem's; ``sums`` only if ``collected``.

    weight, correlation, bound : (coefficient,)   correlations with the residual; `idle_bounds`
    sums : (3, coefficient)                       of what `add_expected` adds
    """
    norm, inverse, log_odds = problem.norm, problem.inverse, problem.log_odds
    gram, row_slab, col_slab = problem.gram, problem.row_slab, problem.col_slab
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
            explain(correlation, weight[i] - old, i, gram, row_slab, col_slab)
            if old == 0 or weight[i] == 0:
                idle_bounds(inverse[i : i + 1], log_odds[i : i + 1], weight[i : i + 1], bound[i : i + 1])
        if i == proposed:
            proposed += 1 + draw_gap(stream)
        start = i + 1


@kernel()
def most_probable(weight, correlation, problem):
    """Idle coefficient most probably active given the rest; -1 if none is more probable than not."""
    i, highest = -1, 0.0
    for j in range(len(weight)):
        ratio = log_ratio(np.float64(correlation[j]), problem.inverse[j], problem.log_odds[j])
        if ratio > highest and weight[j] == 0:
            i, highest = j, ratio
    return i


@kernel()
def pursue(weight, correlation, problem):
    """Activate the idle coefficient most probably active given the rest at its conditional mean, until none is more
    probable than not. Changes ``weight``, ``correlation``.
    """
    while True:
        i = most_probable(weight, correlation, problem)
        if i < 0:
            return
        weight[i] = np.float64(correlation[i]) * problem.inverse[i]
        explain(correlation, weight[i], i, problem.gram, problem.row_slab, problem.col_slab)


@kernel()
def picture(weight, problem, out):
    """Image (plane, row, col) that the coefficients add up to, into ``out``."""
    atoms, cols = problem.atoms, problem.col_slab.shape[0]
    out[:] = 0
    for i in range(len(weight)):
        if weight[i] != 0:
            place, k = i // atoms.shape[3], i % atoms.shape[3]
            top, left = (place // cols) * problem.stride[0], (place % cols) * problem.stride[1]
            for plane in range(out.shape[0]):
                for a in range(min(atoms.shape[1], out.shape[1] - top)):
                    for b in range(min(atoms.shape[2], out.shape[2] - left)):
                        out[plane, top + a, left + b] += weight[i] * atoms[plane, a, b, k]


@kernel()
def run_chains(images, problem, run, chains, pursued):
    """Run the chains of several images (image, plane, row, col), all of whose pixels are seen.

    Changes all arrays of ``chains``. ``pursued`` : whether to begin with a greedy pursuit from ``chains.best``, which
    is then all zeros
    """
    images, problem, chains = borrowed((images, problem, chains))
    for n in range(images.shape[0]):
        run_chain(n, images[n], problem, run, chains, pursued)


@kernel()
def run_chain(n, image, problem, run, chains, pursued):
    """Run the chain of one image."""
    best, best_residual, averages, trace = chains
    stream = np.empty(WORDS, np.uint64)
    sums = np.zeros((3, best.shape[1]))
    weight, given = best[n].copy(), np.empty_like(best[n])
    correlate_image(image, problem, given)
    correlation, bound = given.copy(), np.empty_like(given)
    if pursued:
        pursue(weight, correlation, problem)
    idle_bounds(problem.inverse, problem.log_odds, weight, bound)
    energy = 0.0
    for pixel in image.flat:
        energy += np.float64(pixel) ** 2
    best_residual[n] = np.inf
    for t in range(run.burn_in + run.collect):
        fill_stream(stream, run.seed, TEST, 0, t, run.first + n * run.apart)
        if t % REFRESH == 0:
            refresh(correlation, given, weight, problem)
        collected = t >= run.burn_in
        sweep(weight, correlation, bound, problem, stream, sums, collected)
        if collected or trace.shape[1] > 0:
            residual = squared_residual(energy, weight, given, correlation)
            if trace.shape[1] > 0:
                trace[n, t] = residual
            if collected and residual < best_residual[n]:
                best_residual[n] = residual
                best[n] = weight
    averages[n] = sums / run.collect
