"""The chains of test time on a graphics processor: `gdd.sampler.kernels.coefficients`, an image to a block.

The chain is the processor's own: the same coefficients in the same order, from the same random numbers. One thread
draws; all threads of a block look for the next coefficient to be visited, and subtract what a change explains.
Results differ by single precision's rounding, where sums are taken in another order.

`run_images` is the twin of both `run_chains` and `run_masked_chain`. Under a mask the correlations of one position of
the grid at a time are computed from the residual, and again after a change there. Arrays are in the device's memory
and its caches, so no size is too large for the memory that a block shares.

*Checked:* tests/test_cuda.py (the compiled chains; in numba's simulator, and compiled to PTX, without hardware).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import cuda, float64, int32, uint64

from gdd.cuda.device import THREADS, first_of, images_at_once, on_device, to_device, total_of
from gdd.reference.random import TEST
from gdd.sampler.kernels import coefficients, operations, random
from gdd.sampler.kernels.coefficients import LOG_MIN_ODDS, REFRESH, VISIT_ALWAYS, Chains, Problem, Run
from gdd.sampler.kernels.operations import ROUNDING_MARGIN
from gdd.sampler.kernels.random import STREAM_SIZE

_known = on_device([
    random._high_word, random._refill, random.fill_key, random.next_uniform, random.next_normal,
    operations.slab_log_odds, coefficients.draw_weight, coefficients.draw_gap, coefficients.folded_mean,
    coefficients.add_expected,
])
fill_key, slab_log_odds, draw_weight = _known["fill_key"], _known["slab_log_odds"], _known["draw_weight"]
draw_gap, add_expected = _known["draw_gap"], _known["add_expected"]

#: in place of a coefficient's number: none was found
_NONE = -1


class State(NamedTuple):
    """State of the chains on the device: arrays with images in front. The functions below get those of one image.

    Without a mask one row of ``mask``, ``norm``, ``variance`` and ``log_odds`` serves all images.
    """

    image: np.ndarray  # (row, col * plane)
    mask: np.ndarray  # (row, col * plane) of bool, True where observed
    residual: np.ndarray  # (row, col * plane), 0 where hidden; not used without a mask
    weight: np.ndarray  # (coefficient,), see `Chain`; so are the next two
    correlation: np.ndarray
    bound: np.ndarray
    image_correlation: np.ndarray  # (coefficient,): of the placed atom with the image
    norm: np.ndarray  # (coefficient,), see `Problem`, and `Odds` for the next two
    variance: np.ndarray
    log_odds: np.ndarray
    change: np.ndarray  # (1,): of the weight just drawn


@cuda.jit(device=True)
def correlate(image, atoms, problem, start, stop, out):
    """Twin of `correlate_image` for placed atoms ``start`` to ``stop``; ``atoms`` of the problem, or their squares."""
    (rows, length, number), cols = atoms.shape, problem.col_offset.shape[0]
    for i in range(start + cuda.threadIdx.x, stop, THREADS):
        k, place = i % number, i // number
        top, left = (place // cols) * problem.stride[0], (place % cols) * problem.stride[1] * problem.planes
        out[i] = 0
        total = out[i]
        for a in range(min(rows, image.shape[0] - top)):
            for b in range(min(length, image.shape[1] - left)):
                total += image[top + a, left + b] * atoms[a, b, k]
        out[i] = total
    cuda.syncthreads()


@cuda.jit(device=True)
def explain(correlation, delta, i, problem):
    """Subtract ``delta`` times row ``i`` of the Gram matrix from ``correlation``."""
    number, cols = problem.gram.shape[3], problem.col_offset.shape[0]
    k, row, col = i % number, i // number // cols, i // number % cols
    for j in range(cuda.threadIdx.x, correlation.shape[0], THREADS):
        place = j // number
        products = problem.gram[k, problem.row_offset[row, place // cols], problem.col_offset[col, place % cols]]
        correlation[j] -= delta * products[j % number]
    cuda.syncthreads()


@cuda.jit(device=True)
def explain_observed(residual, mask, delta, i, problem):
    """Subtract ``delta`` times placed atom ``i`` from a residual at observed pixels; twin of `add_to_window`."""
    (rows, length, number), cols = problem.atoms.shape, problem.col_offset.shape[0]
    k, place = i % number, i // number
    top, left = (place // cols) * problem.stride[0], (place % cols) * problem.stride[1] * problem.planes
    wide = min(length, residual.shape[1] - left)
    for p in range(cuda.threadIdx.x, min(rows, residual.shape[0] - top) * wide, THREADS):
        a, b = p // wide, p % wide
        if mask[top + a, left + b]:
            residual[top + a, left + b] -= delta * problem.atoms[a, b, k]
    cuda.syncthreads()


@cuda.jit(device=True)
def refresh(chain, problem, masked):
    """Recompute the residual, or the correlations with it, from the weights; twin of `refresh_residual`."""
    image, weight, cols = chain.image, chain.weight, chain.image.shape[1]
    if masked:
        for p in range(cuda.threadIdx.x, image.size, THREADS):
            i, j = p // cols, p % cols
            chain.residual[i, j] = image[i, j] if chain.mask[i, j] else 0
    else:
        for j in range(cuda.threadIdx.x, weight.shape[0], THREADS):
            chain.correlation[j] = chain.image_correlation[j]
    cuda.syncthreads()
    for i in range(weight.shape[0]):
        if weight[i] != 0 and masked:
            explain_observed(chain.residual, chain.mask, weight[i], i, problem)
        elif weight[i] != 0:
            explain(chain.correlation, weight[i], i, problem)


@cuda.jit(device=True)
def most_probable(chain, highest, which):
    """Idle coefficient most probably active given the rest, the first of such; -1 if none is more probable than not.

    Changes ``highest``, ``which`` (thread,).
    """
    t, best = cuda.threadIdx.x, 0
    highest[t], which[t] = 0.0, _NONE
    for j in range(t, chain.weight.shape[0], THREADS):
        ratio = slab_log_odds(float64(chain.correlation[j]), chain.variance[j], chain.log_odds[j])
        if ratio > highest[t] and chain.weight[j] == 0:
            highest[t], which[t] = ratio, j
    cuda.syncthreads()
    for other in range(THREADS):
        if highest[other] > highest[best] or (highest[other] == highest[best] and which[other] < which[best]):
            best = other
    found = which[best]
    cuda.syncthreads()
    return found


@cuda.jit(device=True)
def pursue(chain, problem, masked, highest, which):
    """Twin of `pursue` and `pursue_masked`; changes weights and correlations, and the last two as `most_probable`."""
    while True:
        if masked:
            refresh(chain, problem, masked)
            correlate(chain.residual, problem.atoms, problem, 0, chain.weight.shape[0], chain.correlation)
        i = most_probable(chain, highest, which)
        if i == _NONE:
            return
        if cuda.threadIdx.x == 0:
            chain.weight[i] = float64(chain.correlation[i]) * chain.variance[i]
        cuda.syncthreads()
        if not masked:
            explain(chain.correlation, chain.weight[i], i, problem)


@cuda.jit(device=True)
def set_bound(i, chain):
    """Squared correlation below which a coefficient is drawn only if proposed; twin of `inactive_bounds`."""
    limit = 2.0 * (LOG_MIN_ODDS - chain.log_odds[i]) / chain.variance[i] / ROUNDING_MARGIN
    chain.bound[i] = limit if chain.weight[i] == 0 and limit > 0.0 else VISIT_ALWAYS


@cuda.jit(device=True)
def next_visit(correlation, bound, start, stop, found):
    """First coefficient from ``start`` whose squared correlation passes its bound; ``stop`` if there is none."""
    for base in range(start, stop, THREADS):
        j = base + cuda.threadIdx.x
        first = first_of(j < stop and correlation[j] * correlation[j] > bound[j], j, stop, found)
        if first < stop:
            return first
    return stop


@cuda.jit(device=True)
def sweep(chain, problem, masked, collected, added, stream, place):
    """Twin of `sweep_coefficients` and `sweep_masked`; changes the chain, and the sums ``added`` if ``collected``.

    ``place`` (2,) : scratch that all threads share
    """
    number, c, residual = chain.weight.shape[0], chain.correlation, chain.residual
    if cuda.threadIdx.x == 0:
        place[1] = draw_gap(stream)
    cuda.syncthreads()
    span = problem.atoms.shape[2] if masked else number  # coefficients whose correlations are current together
    for first in range(0, number, span):
        start, last = first, first + span
        if masked:
            correlate(residual, problem.atoms, problem, first, last, c)
        while True:
            proposed = place[1]
            cuda.syncthreads()
            i = next_visit(c, chain.bound, start, min(proposed, last), place)
            if collected:
                for j in range(start + cuda.threadIdx.x, i, THREADS):
                    add_expected(j, float64(c[j]), chain.variance, chain.log_odds, added)
            if i >= last:
                break
            if cuda.threadIdx.x == 0:
                old = chain.weight[i]
                value = float64(c[i]) + float64(old) * chain.norm[i]
                if collected:
                    add_expected(i, value, chain.variance, chain.log_odds, added)
                chain.weight[i] = draw_weight(value, chain.variance[i], chain.log_odds[i], i == proposed, stream)
                chain.change[0] = chain.weight[i] - old
                set_bound(i, chain)
                if i == proposed:
                    place[1] += 1 + draw_gap(stream)
            cuda.syncthreads()
            change, start = chain.change[0], i + 1
            if change != 0 and masked:
                explain_observed(residual, chain.mask, change, i, problem)
                correlate(residual, problem.atoms, problem, start, last, c)
            elif change != 0:
                explain(c, change, i, problem)


@cuda.jit(device=True)
def energy_of(image, partial):
    """Sum of squares of an image (row, col * plane)."""
    energy = 0.0
    for p in range(cuda.threadIdx.x, image.size, THREADS):
        value = float64(image[p // image.shape[1], p % image.shape[1]])
        energy += value * value
    return total_of(energy, partial)


@cuda.jit(device=True)
def squared_residual(energy, chain, masked, partial):
    """Twin of `squared_residual`, and of `energy_of` under a mask."""
    if masked:
        return energy_of(chain.residual, partial)
    explained = 0.0
    for j in range(cuda.threadIdx.x, chain.weight.shape[0], THREADS):
        explained += float64(chain.weight[j]) * (float64(chain.image_correlation[j]) + float64(chain.correlation[j]))
    return energy - total_of(explained, partial)


@cuda.jit
def run_images(state, squares, problem, run, masked, greedy_start, chains):
    """Twin of `run_chains` and `run_masked_chain`, an image to a block; changes all arrays of ``state``, ``chains``.

    squares : of the problem's atoms, if ``masked``; norms and odds are computed here then
    chains : as of `Chains`, but its averages are sums in double precision
    """
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    which = cuda.shared.array(THREADS, int32)
    place = cuda.shared.array(2, int32)
    n, t, number, best = cuda.blockIdx.x, cuda.threadIdx.x, state.weight.shape[1], chains.best
    row = n if masked else 0
    chain = State(
        state.image[n], state.mask[row], state.residual[n], state.weight[n], state.correlation[n], state.bound[n],
        state.image_correlation[n], state.norm[row], state.variance[row], state.log_odds[row], state.change[n],
    )
    if masked:
        correlate(chain.mask, squares, problem, 0, number, chain.norm)
        for j in range(t, number, THREADS):
            chain.variance[j] = 1.0 / (chain.norm[j] + problem.gamma_w)
            chain.log_odds[j] = problem.log_prior_odds + 0.5 * math.log(problem.gamma_w * chain.variance[j])
    correlate(chain.image, problem.atoms, problem, 0, number, chain.image_correlation)
    for j in range(t, number, THREADS):
        chain.weight[j], chain.correlation[j] = best[n, j], chain.image_correlation[j]
    cuda.syncthreads()
    if greedy_start:
        pursue(chain, problem, masked, partial, which)
    for j in range(t, number, THREADS):
        set_bound(j, chain)
    energy, least = energy_of(chain.image, partial), np.inf
    for step in range(run.burn_in + run.collect):
        collected = step >= run.burn_in
        if step % REFRESH == 0:
            refresh(chain, problem, masked)
        if t == 0:
            fill_key(stream, (run.seed, TEST, 0, step), run.first + n * run.stream_step)
        sweep(chain, problem, masked, collected, chains.averages[n], stream, place)
        if collected or chains.trace.shape[1] > 0:
            left = squared_residual(energy, chain, masked, partial)
            if t == 0 and chains.trace.shape[1] > 0:
                chains.trace[n, step] = left
            if collected and left < least:
                least = left
                for j in range(t, number, THREADS):
                    best[n, j] = chain.weight[j]
    if t == 0:
        chains.residual[n] = least


def run_chains(
    images: np.ndarray, masks: np.ndarray | None, problem: Problem, run: Run, chains: Chains, greedy_start: bool
) -> None:
    """Run the chains of images (image, row, col * plane) on the device; arguments as of the compiled `run_chains`.

    masks : (image, row, col * plane) of bool, True where observed; None: all observed

    GddError if the device's memory does not hold the problem and one image.
    """
    masked, number, kind, odds = masks is not None, problem.norm.size, images.dtype, coefficients.make_odds(problem)
    squares = problem.atoms**2 if masked else problem.atoms[:0]
    fixed = sum(value.nbytes for value in problem if isinstance(value, np.ndarray)) + squares.nbytes
    each = images[0].size * (2 * kind.itemsize + 1) + number * (5 * kind.itemsize + 48) + 8 * chains.trace.shape[1]
    many = images_at_once("images, atoms, stride", len(images), fixed, each)
    whole, moved, squares = np.ones((1, *images.shape[1:]), bool), to_device(problem), cuda.to_device(squares)
    for low in range(0, len(images), many):
        where = slice(low, low + many)
        batch, part = images[where], chains.slice(where)
        shape, mask = (len(batch), number), masks[where] if masked else whole
        terms = (cuda.device_array(shape, float) if masked else value[None] for value in (problem.norm, *odds))
        state = to_device(State(
            batch, mask, cuda.device_array(batch.shape, kind), *(cuda.device_array(shape, kind) for _ in range(4)),
            *terms, cuda.device_array((len(batch), 1), kind),
        ))
        results = to_device(part._replace(averages=np.zeros((len(batch), 3, number))))
        part_run = run._replace(first=run.first + low * run.stream_step)
        run_images[len(batch), THREADS](state, squares, moved, part_run, masked, greedy_start, results)
        for name in ("best", "residual", "trace"):
            getattr(results, name).copy_to_host(getattr(part, name))
        part.averages[:] = results.averages.copy_to_host() / run.collect
