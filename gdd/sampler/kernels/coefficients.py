"""Coefficients of placed atoms, drawn one at a time: the image pass of a top layer, and the chains of test time.

Atoms almost as large as the image overlap at all positions. So the correlations of all placed atoms are computed once
per image, and rows of the atoms' Gram matrix keep them current: a change of one coefficient costs atoms x positions
multiply-adds. Coefficients are numbered with the atom fastest, ``i = (row * cols + col) * atoms + atom``.

`pass_top` is the counterpart of `gdd.sampler.kernels.layer.pass_unmasked` for a layer without pooling whose atoms
almost fill their input, such as a top layer.

`run_chains` runs the chains of test time, all sweeps of one image before the next image, so that its arrays stay in
cache. Images and weights are in units in which the noise has precision 1. The conditional, and the proposals of
coefficients that are rarely active, are those of `gdd.reference.deconvolution`; both use the same random numbers in the
same order. Under a mask there is no common Gram matrix: `run_masked_chain` keeps only the residual, which is 0 at
hidden pixels. Each visit computes its coefficient's correlation from the residual and updates the residual at once.

*Checked:* tests/test_deconvolution.py, tests/test_kernels.py (same chain as the plain conditionals, exact ratio,
enumeration).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erf

from gdd.base.compiling import borrowed, kernel, subkernel
from gdd.reference.deconvolution import MIN_PROPOSAL_PROBABILITY
from gdd.reference.random import TEST
from gdd.sampler.kernels.layer import initialise_image, make_work
from gdd.sampler.kernels.operations import (
    CHUNK,
    ROUNDING_MARGIN,
    Block,
    add_sums,
    certainly_empty,
    draw_block,
    energy_of,
    fill_residual,
    list_active,
    set_outcome,
    slab_log_factor,
    slab_log_odds,
    slab_of,
)
from gdd.sampler.kernels.random import STREAM_SIZE, fill_key, next_normal, next_uniform
from gdd.sampler.kernels.windows import add_observed, window_dot

#: sweeps after which the running correlations are recomputed, so that single-precision rounding does not accumulate
REFRESH = 16

LOG_MIN_ODDS = math.log(MIN_PROPOSAL_PROBABILITY / (1 - MIN_PROPOSAL_PROBABILITY))
LOG_NOT_PROPOSED = math.log(1 - MIN_PROPOSAL_PROBABILITY)
#: bound of an active coefficient, which every squared correlation passes
VISIT_ALWAYS = -1.0

#: coefficients examined together; pixels of an atom's row multiplied together
_RUN, _TAPS = 16, 4

#: E|x + N(0, 1)| for x from 0 to _PIECES / 4 as polynomials in 4 x mod 1 on pieces of length 1/4; beyond, it is x
_PIECES, _DEGREE = 36, 8


def _folded_pieces() -> np.ndarray:
    def exact(x):
        return np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x) + x * erf(x / np.sqrt(2))

    fits = [Chebyshev.interpolate(lambda r, k=k: exact((k + r) / 4), _DEGREE, [0, 1]) for k in range(_PIECES)]
    return np.array([fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef for fit in fits])


_FOLDED = _folded_pieces()


class Problem(NamedTuple):
    """Placed atoms, their inner products, and the prior of their coefficients, the same for all images."""

    atoms: np.ndarray  # (atom_row, atom_col * plane, atom)
    planes: int
    stride: np.ndarray  # (2,): pixels between positions along rows, along cols
    gram: np.ndarray  # (atom, row offset, col offset, atom), see `gdd.sampler.placement.gram_by_offset`
    row_offset: np.ndarray  # (rows, rows): entry of a pair of positions
    col_offset: np.ndarray  # (cols, cols)
    norm: np.ndarray  # (coefficient,): squared norm of a placed atom, in double precision
    gamma_w: float
    log_prior_odds: float  # of being active

    @property
    def grid(self) -> tuple[int, int]:
        """Positions (row, col) of an atom."""
        return len(self.row_offset), len(self.col_offset)


class Odds(NamedTuple):
    """Terms of a coefficient's conditional that do not depend on its correlation, arrays (coefficient,)."""

    variance: np.ndarray  # of its weight if active, 1 / (norm + gamma_w)
    log_factor: np.ndarray  # see `gdd.sampler.kernels.operations.slab_log_factor`


class Chain(NamedTuple):
    """State of the chain of one image."""

    weight: np.ndarray  # (coefficient,), 0 if inactive
    correlation: np.ndarray  # (coefficient,): of the placed atom with the residual
    bound: np.ndarray  # (coefficient,): squared correlation below which an inactive one is drawn only if proposed
    sums: np.ndarray  # (3, coefficient): sums of conditional mean, probability of being active, mean magnitude
    stream: np.ndarray


# One coefficient


@kernel()
def make_odds(problem):
    """`Odds` of all coefficients."""
    odds = Odds(np.empty(len(problem.norm)), np.empty(len(problem.norm)))
    for i in range(len(problem.norm)):
        odds.variance[i] = 1.0 / (problem.norm[i] + problem.gamma_w)
        odds.log_factor[i] = slab_log_factor(problem.log_prior_odds, problem.gamma_w, odds.variance[i])
    return odds


@kernel()
def make_chain(weight):
    """Allocate the chain of one image that starts from ``weight`` (coefficient,)."""
    sums, stream = np.zeros((3, weight.size)), np.empty(STREAM_SIZE, np.uint64)
    return Chain(weight.copy(), np.zeros_like(weight), np.empty_like(weight), sums, stream)


@kernel(forceinline=True)
def draw_weight(c, variance, log_factor, proposed, stream):
    """Draw the weight of one coefficient given c; 0 if inactive."""
    ratio = slab_log_odds(c, variance, log_factor)
    proposal_probability = MIN_PROPOSAL_PROBABILITY if ratio < LOG_MIN_ODDS else 1.0
    if proposal_probability < 1.0 and not proposed:
        return 0.0
    if next_uniform(stream) * proposal_probability * (1.0 + math.exp(-ratio)) >= 1.0:
        return 0.0
    return c * variance + next_normal(stream) * math.sqrt(variance)


@kernel(forceinline=True)
def draw_gap(stream):
    """Number of coefficients up to the next proposal."""
    return int(math.log(next_uniform(stream)) / LOG_NOT_PROPOSED)


@kernel(forceinline=True)
def folded_mean(x):
    """Mean of |x + N(0, 1)| for x >= 0."""
    k = int(4.0 * x) if x < _PIECES / 4 else _PIECES
    if k >= _PIECES:
        return x
    r, piece = 4.0 * x - k, _FOLDED[k]
    total = piece[_DEGREE]
    for t in range(_DEGREE - 1, -1, -1):
        total = total * r + piece[t]
    return total


@kernel(forceinline=True)
def add_expected(i, c, variance, log_factor, sums):
    """Add a coefficient's conditional mean, probability of being active and mean magnitude to ``sums``."""
    p, sd = 1.0 / (1.0 + math.exp(-slab_log_odds(c, variance[i], log_factor[i]))), math.sqrt(variance[i])
    sums[0, i] += p * c * variance[i]
    sums[1, i] += p
    sums[2, i] += p * sd * folded_mean(abs(c) * sd)


# All coefficients of an image


@kernel()
def correlate_image(image, problem, out):
    """Inner products of an image (row, col * plane) with every placed atom, into ``out`` (coefficient,).

    A loop rather than a matrix product, so that an image gives the same bits alone and in a batch.
    """
    rows, length, number = problem.atoms.shape
    grid, step_row, step_col = (len(problem.row_offset), len(problem.col_offset)), problem.stride[0], problem.stride[1]
    step_col *= problem.planes
    padded_rows = max(image.shape[0], (grid[0] - 1) * step_row + rows)
    padded_cols = max(image.shape[1], (grid[1] - 1) * step_col + length)
    padded = np.zeros((padded_rows, padded_cols), image.dtype)  # atoms may overhang the image, or not reach its edge
    padded[: image.shape[0], : image.shape[1]] = image
    places = out.reshape(grid[0] * grid[1], number)
    places[:] = 0
    for a in range(rows):
        for b in range(0, length, _TAPS):
            taps = problem.atoms[a, b : b + _TAPS]
            for p in range(len(places)):
                col = (p % grid[1]) * step_col + b
                add_taps(padded[(p // grid[1]) * step_row + a, col : col + len(taps)], taps, places[p])


@kernel()
def add_taps(pixels, taps, line):
    """Add pixels (tap,) times taps (tap, atom) to ``line`` (atom,)."""
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
def explain(correlation, delta, i, gram, row_offset, col_offset):
    """Subtract ``delta`` times row ``i`` of the Gram matrix from ``correlation``."""
    atoms, cols, base = gram.shape[3], len(col_offset), 0
    k, row, col = i % atoms, i // atoms // cols, i // atoms % cols
    for a in range(len(row_offset)):
        for b in range(cols):
            products = gram[k, row_offset[row, a], col_offset[col, b]]
            line = correlation[base : base + atoms]
            for t in range(atoms):
                line[t] -= delta * products[t]
            base += atoms


@kernel()
def explain_all(correlation, weight, problem):
    """Turn correlations with the image into those with the residual under the weights. Changes ``correlation``."""
    for i in range(len(weight)):
        if weight[i] != 0:
            explain(correlation, weight[i], i, problem.gram, problem.row_offset, problem.col_offset)


@kernel()
def inactive_bounds(odds, weight, bound):
    """Squared correlations below which an inactive coefficient is drawn only if proposed, into ``bound``."""
    for i in range(len(weight)):
        limit = 2.0 * (LOG_MIN_ODDS - odds.log_factor[i]) / odds.variance[i] / ROUNDING_MARGIN
        bound[i] = limit if weight[i] == 0 and limit > 0.0 else VISIT_ALWAYS


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


@kernel()
def sweep_coefficients(chain, problem, odds, collected):
    """Redraw every coefficient once. Changes the chain; its sums only if ``collected``.

    All functions of a visit are inlined, and arrays are taken out of their tuples before the loop, which avoids
    reference counting; otherwise a sweep takes 1.2 times as long.
    """
    weight, correlation, bound, sums, stream = chain
    variance, log_factor = odds
    gram, row_offset, col_offset, norm = problem.gram, problem.row_offset, problem.col_offset, problem.norm
    start, proposed = 0, draw_gap(stream)
    while True:
        i = next_visit(correlation, bound, start, min(proposed, len(weight)))
        if collected:
            for j in range(start, i):
                add_expected(j, np.float64(correlation[j]), variance, log_factor, sums)
        if i >= len(weight):
            return
        old = weight[i]
        c = np.float64(correlation[i]) + np.float64(old) * norm[i]
        if collected:
            add_expected(i, c, variance, log_factor, sums)
        weight[i] = draw_weight(c, variance[i], log_factor[i], i == proposed, stream)
        if weight[i] != old:
            explain(correlation, weight[i] - old, i, gram, row_offset, col_offset)
            if old == 0 or weight[i] == 0:
                coefficient = Odds(variance[i : i + 1], log_factor[i : i + 1])
                inactive_bounds(coefficient, weight[i : i + 1], bound[i : i + 1])
        if i == proposed:
            proposed += 1 + draw_gap(stream)
        start = i + 1


# The top layer in pretraining


#: `explain` with fused multiply-adds allowed
explain_fused = subkernel()(explain.py_func)


@kernel()
def pass_top(images, problem, constants, key, sums):
    """`gdd.sampler.kernels.layer.pass_unmasked` for a top layer, whose atoms come placed, as a `Problem`.

    Both passes visit blocks in the same order and use the same random numbers.
    """
    images, problem, constants, sums = borrowed((images, problem, constants, sums))
    work = make_work(images.z[0], images.pixels[0], constants.layer)
    correlation = np.empty(len(problem.norm), images.pixels.dtype)
    for n in range(len(images.pixels)):
        fill_key(work.stream, key, images.first + n)
        update_top(n, images, problem, constants, work, correlation, sums, n // CHUNK)


@subkernel()
def update_top(n, images, problem, constants, work, correlation, sums, chunk):
    """One image of `pass_top`."""
    image, z, w, layer = images.pixels[n], images.z[n], images.w[n], constants.layer
    correlate_sparse(image.reshape(image.size // layer.width, layer.width), problem, correlation)
    count = list_active(z, w, layer, work.active)
    for e in range(count):
        k, i, j = work.active.places[e, 0], work.active.places[e, 1], work.active.places[e, 2]
        index = (i * layer.map_col + j) * layer.atoms + k
        explain_fused(correlation, w[k, i, j], index, problem.gram, problem.row_offset, problem.col_offset)
    gamma_e = images.gamma_e[n if images.gamma_e.size > 1 else 0]
    if constants.prior.noise_drawn:
        gamma_e = initialise_image(n, images, image[:0], constants, work)
    sweep_top(z, w, gamma_e, correlation, problem, constants, work)
    count = list_active(z, w, layer, work.active)
    # from the pixels, not from the correlations: where the fit is close, the difference of two large numbers would have
    # no digits left in single precision
    fill_residual(image, image[:0], work.active, count, layer, constants.static, work.residual)
    add_sums(image, count, gamma_e, constants, work, sums, chunk)


@subkernel()
def correlate_sparse(image, problem, out):
    """`correlate_image` over nonzero pixels only: nearly all entries of the pooled maps below are zero."""
    rows, length, number = problem.atoms.shape
    grid, planes = (len(problem.row_offset), len(problem.col_offset)), problem.planes
    out[:] = 0
    for r in range(image.shape[0]):
        for t in range(image.shape[1]):
            pixel = image[r, t]
            if pixel == 0:
                continue
            for i in range(max(0, r - rows + 1), min(grid[0], r + 1)):
                for j in range(max(0, (t - length) // planes + 1), min(grid[1], t // planes + 1)):
                    first, taps = (i * grid[1] + j) * number, problem.atoms[r - i, t - j * planes]
                    line = out[first : first + number]
                    for k in range(number):
                        line[k] += pixel * taps[k]


@subkernel()
def sweep_top(z, w, gamma_e, correlation, problem, constants, work):
    """Redraw every coefficient of an image, atom by atom, and keep its correlations current."""
    layer, prior, outcomes, stream = constants.layer, constants.prior, work.outcomes, work.stream
    for k in range(layer.atoms):
        norm = problem.norm[k]  # the same at all positions
        slab = slab_of(gamma_e, norm, prior.gamma_w)
        for i in range(layer.map_row):
            for j in range(layer.map_col):
                uniform, at = next_uniform(stream), (i * layer.map_col + j) * layer.atoms + k
                old, c = w[k, i, j], np.float64(correlation[at])
                if z[k, i, j] < 0:
                    gain = ROUNDING_MARGIN * slab.gain * c * c
                    if certainly_empty(gain, prior.empty, slab.factor * prior.active, uniform):
                        continue
                else:
                    c += np.float64(old) * norm
                outcomes.weight[0] = prior.active
                set_outcome(outcomes, 0, c, slab)
                block = Block(i, j, i, j, 1, 1, 0)
                z[k, i, j], w[k, i, j] = draw_block(block, outcomes, prior.empty, layer, uniform, stream)
                change = w[k, i, j] - old  # as stored: the correlations must agree with the state to rounding
                if change != 0:
                    explain_fused(correlation, change, at, problem.gram, problem.row_offset, problem.col_offset)


# Test time


#: `energy_of` without reordering of its terms
energy_in_order = kernel()(energy_of)


class Run(NamedTuple):
    """Keys of the random numbers, and numbers of sweeps."""

    seed: int
    first: int  # number of the first image's stream
    stream_step: int  # between the streams of successive images: 1, or 0 if all images share their random numbers
    burn_in: int
    collect: int


class Chains(NamedTuple):
    """Results of the chains of a batch of images."""

    best: np.ndarray  # (image, coefficient): start weights on entry, the collected sample of least residual on return
    residual: np.ndarray  # (image,): squared residual of that sample
    averages: np.ndarray  # (image, 3, coefficient): conditional mean, probability of being active, mean magnitude
    trace: np.ndarray  # (image, sweep): squared residual after each sweep; (image, 0) for no trace

    def slice(self, where: slice) -> Chains:
        """Views of a slice of the images."""
        return Chains(*(array[where] for array in self))


@kernel()
def squared_residual(energy, weight, image_correlation, correlation):
    """Squared norm of the residual from correlations: ||x||^2 - s.(c0 + c), c0 with the image, c with the residual."""
    explained = 0.0
    for i in range(weight.size):
        explained += np.float64(weight[i]) * (np.float64(image_correlation[i]) + np.float64(correlation[i]))
    return energy - explained


@kernel()
def most_probable(chain, odds):
    """Inactive coefficient of highest probability of being active given the rest; -1 if none exceeds 1/2."""
    i, highest = -1, 0.0
    for j in range(len(chain.weight)):
        ratio = slab_log_odds(np.float64(chain.correlation[j]), odds.variance[j], odds.log_factor[j])
        if ratio > highest and chain.weight[j] == 0:
            i, highest = j, ratio
    return i


@kernel()
def pursue(chain, problem, odds):
    """Greedy pursuit: activate the `most_probable` coefficient at its conditional mean until there is none.

    Changes weights and correlations of the chain.
    """
    while True:
        i = most_probable(chain, odds)
        if i < 0:
            return
        chain.weight[i] = np.float64(chain.correlation[i]) * odds.variance[i]
        explain(chain.correlation, chain.weight[i], i, problem.gram, problem.row_offset, problem.col_offset)


@kernel()
def keep_sample(n, t, weight, residual, run, chains):
    """Record the squared residual after sweep t in the trace; keep the collected sample of least residual."""
    if chains.trace.shape[1] > 0:
        chains.trace[n, t] = residual
    if t >= run.burn_in and residual < chains.residual[n]:
        chains.residual[n] = residual
        chains.best[n] = weight


@kernel()
def run_chains(images, problem, run, chains, greedy_start):
    """Run the chains of fully observed images (image, row, col * plane). Changes all arrays of ``chains``.

    greedy_start : whether each chain starts with a greedy pursuit; ``chains.best`` must then be zero
    """
    images, problem, chains = borrowed((images, problem, chains))
    odds, image_correlation = make_odds(problem), np.empty_like(chains.best[0])
    for n in range(images.shape[0]):
        chain = make_chain(chains.best[n])
        correlate_image(images[n], problem, image_correlation)
        chain.correlation[:] = image_correlation
        if greedy_start:
            pursue(chain, problem, odds)
        inactive_bounds(odds, chain.weight, chain.bound)
        energy = energy_in_order(images[n].ravel(), images.shape[2])
        chains.residual[n] = np.inf
        for t in range(run.burn_in + run.collect):
            fill_key(chain.stream, (run.seed, TEST, 0, t), run.first + n * run.stream_step)
            if t % REFRESH == 0:
                chain.correlation[:] = image_correlation
                explain_all(chain.correlation, chain.weight, problem)
            sweep_coefficients(chain, problem, odds, t >= run.burn_in)
            if t >= run.burn_in or chains.trace.shape[1] > 0:
                residual = squared_residual(energy, chain.weight, image_correlation, chain.correlation)
                keep_sample(n, t, chain.weight, residual, run, chains)
        chains.averages[n] = chain.sums / run.collect


# Test time with hidden pixels


class AtomSize(NamedTuple):
    """Size of an atom for the window operations, which read these fields; all its pixels form one row."""

    height: int
    length: int
    width: int


class MaskedResidual(NamedTuple):
    """Residual and mask of an image, padded with 0 where atoms reach beyond it, and their windows at one position."""

    residual: np.ndarray  # (row, col * plane), 0 where hidden
    observed: np.ndarray  # (row, col * plane), 1 where observed, else 0
    window: np.ndarray  # (atom_row * atom_col * plane,): of the residual
    mask: np.ndarray  # (atom_row * atom_col * plane,): of ``observed``
    atoms: np.ndarray  # (atom * atom_row * atom_col * plane,)
    size: AtomSize


@kernel()
def make_masked_residual(image, observed, problem, atoms):
    """Allocate a `MaskedResidual` for an image (row, col * plane) and its mask."""
    rows, length, _ = problem.atoms.shape
    tall = max(image.shape[0], (len(problem.row_offset) - 1) * problem.stride[0] + rows)
    wide = max(image.shape[1], (len(problem.col_offset) - 1) * problem.stride[1] * problem.planes + length)
    padded, size = np.zeros((2, tall, wide), image.dtype), rows * length
    padded[1, : image.shape[0], : image.shape[1]] = observed
    windows = np.empty((2, size), image.dtype)
    return MaskedResidual(padded[0], padded[1], windows[0], windows[1], atoms, AtomSize(1, size, size))


@kernel()
def copy_window(padded, flat, place, problem, out):
    """Copy the window at a position of the grid from ``padded`` (row, col * plane) to ``flat``, or back if ``out``."""
    rows, length, _ = problem.atoms.shape
    cols = len(problem.col_offset)
    top, left = (place // cols) * problem.stride[0], (place % cols) * problem.stride[1] * problem.planes
    for a in range(rows):
        row, line = padded[top + a, left : left + length], flat[a * length : (a + 1) * length]
        for b in range(length):
            if out:
                row[b] = line[b]
            else:
                line[b] = row[b]


@kernel()
def load_windows(masked, place, problem):
    """Load the windows at a position of the grid."""
    copy_window(masked.residual, masked.window, place, problem, False)
    copy_window(masked.observed, masked.mask, place, problem, False)


@kernel()
def add_to_window(masked, k, amount):
    """Add ``amount`` times atom k to the residual's window, at observed pixels."""
    add_observed(masked.window, masked.mask, 0, masked.atoms, k * masked.size.length, amount, masked.size)


@kernel()
def refresh_residual(image, weight, masked, problem):
    """Recompute the residual from the image and the weights."""
    rows, cols = image.shape
    for i in range(rows):
        for j in range(cols):
            masked.residual[i, j] = image[i, j] if masked.observed[i, j] > 0 else 0.0
    number = problem.atoms.shape[2]
    for i in range(len(weight)):
        if weight[i] != 0:
            load_windows(masked, i // number, problem)
            add_to_window(masked, i % number, -weight[i])
            copy_window(masked.residual, masked.window, i // number, problem, True)


@kernel()
def pursue_masked(image, chain, masked, problem, odds):
    """`pursue` on the observed pixels. Changes weights and correlations of the chain, and the residual."""
    while True:
        refresh_residual(image, chain.weight, masked, problem)
        correlate_image(masked.residual, problem, chain.correlation)
        i = most_probable(chain, odds)
        if i < 0:
            return
        chain.weight[i] = np.float64(chain.correlation[i]) * odds.variance[i]


@kernel()
def sweep_masked(chain, masked, problem, odds, collected):
    """`sweep_coefficients` on the observed pixels. Changes weights and sums of the chain, and the residual."""
    weight, stream, sums, (variance, log_factor) = chain.weight, chain.stream, chain.sums, odds
    window, atoms, size, number, norm = masked.window, masked.atoms, masked.size, problem.atoms.shape[2], problem.norm
    proposed = draw_gap(stream)
    for place in range(len(weight) // number):
        load_windows(masked, place, problem)
        for k in range(number):
            i = place * number + k
            old = weight[i]
            c = np.float64(window_dot(window, 0, atoms, k * size.length, size)) + np.float64(old) * norm[i]
            if collected:
                add_expected(i, c, variance, log_factor, sums)
            weight[i] = draw_weight(c, variance[i], log_factor[i], i == proposed, stream)
            if weight[i] != old:
                add_to_window(masked, k, old - weight[i])
            if i == proposed:
                proposed += 1 + draw_gap(stream)
        copy_window(masked.residual, masked.window, place, problem, True)


@kernel()
def run_masked_chain(image, observed, problem, atoms, run, chains, greedy_start):
    """Run the chain of one image (row, col * plane), 0 where hidden; changes all arrays of ``chains``, of that image.

    problem : with norms under the mask, see `gdd.inference.deconvolution.under_mask`
    atoms : (atom * atom_row * atom_col * plane,)
    """
    image, observed, problem, atoms, chains = borrowed((image, observed, problem, atoms, chains))
    masked, odds = make_masked_residual(image, observed, problem, atoms), make_odds(problem)
    chain, residual = make_chain(chains.best[0]), masked.residual.reshape(masked.residual.size)
    if greedy_start:
        pursue_masked(image, chain, masked, problem, odds)
    chains.residual[0] = np.inf
    for t in range(run.burn_in + run.collect):
        fill_key(chain.stream, (run.seed, TEST, 0, t), run.first)
        if t % REFRESH == 0:
            refresh_residual(image, chain.weight, masked, problem)
        sweep_masked(chain, masked, problem, odds, t >= run.burn_in)
        if t >= run.burn_in or chains.trace.shape[1] > 0:
            keep_sample(0, t, chain.weight, energy_in_order(residual, image.shape[1]), run, chains)
    chains.averages[0] = chain.sums / run.collect
