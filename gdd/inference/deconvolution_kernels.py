"""Compiled chains of test-time deconvolution: one image at a time, all of its sweeps in cache.

`run_chains` serves whole images, by their correlations with all placed atoms and the atoms' Gram matrix. No Gram matrix
holds under a mask: `run_masked_chain` keeps nothing but the residual. It is 0 at hidden pixels; each coefficient reads
its correlation off it at the visit, and a change of a weight is written back at once. All of a place's atoms cover the
same window, which is kept flat while they are visited.

Coefficients are numbered with the atom running fastest, ``i = (row * cols + col) * atoms + atom``. Images and atoms
come scaled by the square root of the noise precision, so that here the noise has precision 1. The plain twin is
`gdd.reference.deconvolution`; all use the same random numbers in the same order.

Nearly all coefficients are idle and almost surely stay so. They are not drawn one by one: each is *proposed* with
probability `RARE`, the gaps between proposals being geometric numbers, and a proposed one becomes active with
probability p / RARE. Only where p is `RARE` or more is there a draw at every visit. Both ways the probability is p.
What a visit calls is inlined; a sweep takes 1.2 times as long without.

*Checked:* tests/test_deconvolution.py (same chain as the plain conditionals, exact ratio, enumeration).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erf

from gdd.base.compiling import FAST, borrowed, kernel
from gdd.reference.deconvolution import MIN_PROPOSAL_PROBABILITY
from gdd.reference.random import TEST
from gdd.sampler.kernels.gram import explain_unfused
from gdd.sampler.kernels.random import WORDS, fill_key, next_normal, next_uniform

#: sweeps after which the running correlations are formed afresh, so that single-precision rounding cannot pile up
REFRESH = 16

RARE = MIN_PROPOSAL_PROBABILITY
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
    stream_step: int  # from one image's stream to the next's: 1, or 0 if all images share their random numbers
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


@kernel(forceinline=True)
def explain(correlation, delta, i, gram, row_slab, col_slab):
    """Subtract ``delta`` times row ``i`` of the Gram matrix from ``correlation``."""
    atoms, cols = gram.shape[3], len(col_slab)
    place = i // atoms
    explain_unfused(correlation, delta, i % atoms, place // cols, place % cols, gram, row_slab, col_slab)


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


@kernel(forceinline=True)
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


@kernel(forceinline=True)
def draw_gap(stream):
    """How many coefficients in a row are not proposed."""
    return int(math.log(next_uniform(stream)) / LOG_NOT_PROPOSED)


@kernel(forceinline=True)
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


@kernel(forceinline=True)
def log_ratio(c, inverse, log_odds):
    """Log odds of a coefficient being active, see `gdd.reference.deconvolution.coefficient_given_rest`."""
    return log_odds + 0.5 * c * c * inverse


@kernel(forceinline=True)
def add_expected(i, c, inverse, log_odds, sums):
    """Add a coefficient's conditional mean, probability of being active and mean magnitude to ``sums``."""
    p = 1.0 / (1.0 + math.exp(-log_ratio(c, inverse[i], log_odds[i])))
    sd = math.sqrt(inverse[i])
    sums[0, i] += p * c * inverse[i]
    sums[1, i] += p
    sums[2, i] += p * sd * folded_mean(abs(c) * sd)


@kernel(forceinline=True)
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
    """Run the chains of several images (image, plane, row, col), all of whose pixels are observed.

    Changes all arrays of ``chains``. ``pursued`` : whether to begin with a greedy pursuit from ``chains.best``, which
    is then all zeros
    """
    images, problem, chains = borrowed((images, problem, chains))
    for n in range(images.shape[0]):
        run_chain(n, images[n], problem, run, chains, pursued)


@kernel()
def run_chain(n, image, problem, run, chains, pursued):
    """Run the chain of one image."""
    best, stream = chains.best, np.empty(WORDS, np.uint64)
    weight, given, sums = best[n].copy(), np.empty_like(best[n]), np.zeros((3, best.shape[1]))
    correlate_image(image, problem, given)
    correlation, bound = given.copy(), np.empty_like(given)
    if pursued:
        pursue(weight, correlation, problem)
    idle_bounds(problem.inverse, problem.log_odds, weight, bound)
    energy = energy_of(image)
    chains.residual[n] = np.inf
    for t in range(run.burn_in + run.collect):
        fill_key(stream, (run.seed, TEST, 0, t), run.first + n * run.stream_step)
        if t % REFRESH == 0:
            refresh(correlation, given, weight, problem)
        sweep(weight, correlation, bound, problem, stream, sums, t >= run.burn_in)
        if t >= run.burn_in or chains.trace.shape[1] > 0:
            keep_sample(n, t, weight, squared_residual(energy, weight, given, correlation), run, chains)
    chains.averages[n] = sums / run.collect


@kernel()
def energy_of(array):
    """Sum of squares, in double precision."""
    energy = 0.0
    for value in array.flat:
        energy += np.float64(value) ** 2
    return energy


@kernel()
def keep_sample(n, t, weight, residual, run, chains):
    """Keep the squared residual after sweep t, if asked for, and the collected sample of least residual."""
    if chains.trace.shape[1] > 0:
        chains.trace[n, t] = residual
    if t >= run.burn_in and residual < chains.residual[n]:
        chains.residual[n] = residual
        chains.best[n] = weight


# Missing pixels


class Masked(NamedTuple):
    """What a chain keeps of an image, with a margin of 0 where atoms stick out; and flat, what those of a place cover.

    Axes (plane, row, col), or (pixel,).
    """

    residual: np.ndarray  # 0 where hidden
    observed: np.ndarray  # 1 where observed, 0 elsewhere


@kernel(fastmath=FAST)
def dot(one, other):
    """Inner product."""
    total = one[0] * 0
    for t in range(len(one)):
        total += one[t] * other[t]
    return total


@kernel()
def subtract_observed(window, atom, weight):
    """Subtract ``weight`` times an atom (pixel,) from the residual, where observed."""
    residual, observed = window
    for t in range(len(residual)):
        residual[t] -= weight * observed[t] * atom[t]


@kernel()
def copy_window(whole, flat, place, problem, out):
    """Copy the window of a place from (plane, row, col) into (pixel,), or if ``out`` the other way."""
    planes, rows, cols = problem.atoms.shape[:3]
    across = problem.col_slab.shape[0]
    top, left = (place // across) * problem.stride[0], (place % across) * problem.stride[1]
    t = 0
    for plane in range(planes):
        for a in range(rows):
            here, line = whole[plane, top + a, left : left + cols], flat[t : t + cols]
            for b in range(cols):
                if out:
                    here[b] = line[b]
                else:
                    line[b] = here[b]
            t += cols


@kernel()
def enter(masked, window, place, problem):
    """Fill the window of a place."""
    copy_window(masked.residual, window.residual, place, problem, False)
    copy_window(masked.observed, window.observed, place, problem, False)


@kernel()
def refresh_residual(image, weight, problem, masked):
    """Form the residual afresh."""
    rows, cols = image.shape[1:]
    inside, observed = masked.residual[:, :rows, :cols], masked.observed
    picture(weight, problem, inside)
    for place in np.ndindex(image.shape):
        inside[place] = image[place] - inside[place] if observed[place] > 0 else 0.0


@kernel()
def correlate_near(masked, window, place, problem, atoms, correlation):
    """Form afresh the correlations of all atoms that overlap those of a place."""
    across, (down, right) = problem.col_slab.shape[0], problem.stride
    rows, cols = problem.atoms.shape[1:3]
    for other in range(problem.row_slab.shape[0] * across):
        lag = abs(other // across - place // across) * down, abs(other % across - place % across) * right
        if lag[0] < rows and lag[1] < cols:
            copy_window(masked.residual, window.residual, other, problem, False)
            for k in range(len(atoms)):
                correlation[other * len(atoms) + k] = dot(window.residual, atoms[k])


@kernel()
def pursue_masked(weight, masked, window, problem, atoms):
    """`pursue` on the observed pixels. Changes ``weight`` and the residual."""
    correlation = np.empty_like(weight)
    correlate_image(masked.residual, problem, correlation)
    while True:
        i = most_probable(weight, correlation, problem)
        if i < 0:
            return
        weight[i] = np.float64(correlation[i]) * problem.inverse[i]
        place = i // len(atoms)
        enter(masked, window, place, problem)
        subtract_observed(window, atoms[i % len(atoms)], weight[i])
        copy_window(masked.residual, window.residual, place, problem, True)
        correlate_near(masked, window, place, problem, atoms, correlation)


@kernel()
def sweep_masked(weight, masked, window, problem, atoms, stream, sums, collected):
    """Redraw every coefficient once. Changes ``weight``, the residual, and if ``collected`` the ``sums``."""
    norm, inverse, log_odds, number = problem.norm, problem.inverse, problem.log_odds, len(atoms)
    proposed = draw_gap(stream)
    for place in range(len(weight) // number):
        enter(masked, window, place, problem)
        for k in range(number):
            i = place * number + k
            old = weight[i]
            c = np.float64(dot(window.residual, atoms[k])) + np.float64(old) * norm[i]
            if collected:
                add_expected(i, c, inverse, log_odds, sums)
            weight[i] = draw_weight(c, inverse[i], log_odds[i], i == proposed, stream)
            if weight[i] != old:
                subtract_observed(window, atoms[k], weight[i] - old)
            if i == proposed:
                proposed += 1 + draw_gap(stream)
        copy_window(masked.residual, window.residual, place, problem, True)


@kernel()
def run_masked_chain(image, observed, problem, atoms, run, chains, pursued):
    """Run the chain of one image (plane, row, col), 0 where hidden; changes all arrays of ``chains``, of that image.

    problem : with norms and odds under the mask, see `gdd.inference.deconvolution.under_mask`
    atoms : (atom, pixel)
    run, chains, pursued : as of `run_chains`
    """
    image, observed, problem, atoms, chains = borrowed((image, observed, problem, atoms, chains))
    planes, rows, cols = problem.atoms.shape[:3]
    tall = max(image.shape[1], (problem.row_slab.shape[0] - 1) * problem.stride[0] + rows)
    wide = max(image.shape[2], (problem.col_slab.shape[0] - 1) * problem.stride[1] + cols)
    masked = Masked(np.zeros((planes, tall, wide), image.dtype), np.zeros((planes, tall, wide), image.dtype))
    masked.observed[:, : image.shape[1], : image.shape[2]] = observed
    window = Masked(np.empty(atoms.shape[1], image.dtype), np.empty(atoms.shape[1], image.dtype))
    stream, weight, sums = np.empty(WORDS, np.uint64), chains.best[0].copy(), np.zeros((3, chains.best.shape[1]))
    if pursued:
        refresh_residual(image, weight, problem, masked)
        pursue_masked(weight, masked, window, problem, atoms)
    chains.residual[0] = np.inf
    for t in range(run.burn_in + run.collect):
        fill_key(stream, (run.seed, TEST, 0, t), run.first)
        if t % REFRESH == 0:
            refresh_residual(image, weight, problem, masked)
        sweep_masked(weight, masked, window, problem, atoms, stream, sums, t >= run.burn_in)
        if t >= run.burn_in or chains.trace.shape[1] > 0:
            keep_sample(0, t, weight, energy_of(masked.residual), run, chains)
    chains.averages[0] = sums / run.collect
