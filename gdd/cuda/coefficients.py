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
from gdd.sampler.kernels import coefficients, random
from gdd.sampler.kernels.coefficients import LOG_MIN_ODDS, REFRESH, VISIT_ALWAYS, Chains, Problem, Run
from gdd.sampler.kernels.operations import ROUNDING_MARGIN
from gdd.sampler.kernels.random import STREAM_SIZE

_known = on_device([
    random._high_word, random._refill, random.fill_key, random.next_uniform, random.next_normal,
    coefficients.log_ratio, coefficients.draw_weight, coefficients.draw_gap, coefficients.folded_mean,
    coefficients.add_expected,
])
fill_key, log_ratio, draw_weight = _known["fill_key"], _known["log_ratio"], _known["draw_weight"]
draw_gap, add_expected = _known["draw_gap"], _known["add_expected"]

#: in place of a coefficient's number: none was found
_NONE = -1


@cuda.jit(device=True)
def correlate(image, atoms, planes, stride, cols, start, stop, out):
    """Inner products of an image (row, col * plane) with placed atoms ``start`` to ``stop``, into ``out``."""
    rows, length, number = atoms.shape
    for i in range(start + cuda.threadIdx.x, stop, THREADS):
        k, place = i % number, i // number
        top, left = (place // cols) * stride[0], (place % cols) * stride[1] * planes
        out[i] = 0
        total = out[i]
        for a in range(min(rows, image.shape[0] - top)):
            for b in range(min(length, image.shape[1] - left)):
                total += image[top + a, left + b] * atoms[a, b, k]
        out[i] = total
    cuda.syncthreads()


@cuda.jit(device=True)
def explain(correlation, delta, i, gram, row_slab, col_slab):
    """Subtract ``delta`` times row ``i`` of the Gram matrix from ``correlation``."""
    number, cols = gram.shape[3], col_slab.shape[0]
    k, row, col = i % number, i // number // cols, i // number % cols
    for j in range(cuda.threadIdx.x, correlation.shape[0], THREADS):
        place = j // number
        slab = gram[k, row_slab[row, place // cols], col_slab[col, place % cols]]
        correlation[j] -= delta * slab[j % number]


@cuda.jit(device=True)
def add_placed(residual, mask, amount, i, atoms, planes, stride, cols):
    """Add ``amount`` times placed atom ``i`` to a residual (row, col * plane), at observed pixels."""
    rows, length, number = atoms.shape
    k, place = i % number, i // number
    top, left = (place // cols) * stride[0], (place % cols) * stride[1] * planes
    wide = min(length, residual.shape[1] - left)
    for p in range(cuda.threadIdx.x, min(rows, residual.shape[0] - top) * wide, THREADS):
        a, b = p // wide, p % wide
        if mask[top + a, left + b]:
            residual[top + a, left + b] += amount * atoms[a, b, k]
    cuda.syncthreads()


@cuda.jit(device=True)
def refresh(image, mask, weight, problem, residual):
    """Recompute a residual from the image and the weights; twin of `refresh_residual`."""
    cols = problem.col_slab.shape[0]
    for p in range(cuda.threadIdx.x, residual.size, THREADS):
        row, col = p // residual.shape[1], p % residual.shape[1]
        residual[row, col] = image[row, col] if mask[row, col] else 0
    cuda.syncthreads()
    for i in range(weight.shape[0]):
        if weight[i] != 0:
            add_placed(residual, mask, -weight[i], i, problem.atoms, problem.planes, problem.stride, cols)


@cuda.jit(device=True)
def most_probable(weight, correlation, variance, log_odds, highest, which):
    """Idle coefficient most probably active given the rest, the first of such; -1 if none is more probable than not.

    Changes ``highest``, ``which`` (thread,).
    """
    t, best = cuda.threadIdx.x, 0
    highest[t], which[t] = 0.0, _NONE
    for j in range(t, weight.shape[0], THREADS):
        ratio = log_ratio(float64(correlation[j]), variance[j], log_odds[j])
        if ratio > highest[t] and weight[j] == 0:
            highest[t], which[t] = ratio, j
    cuda.syncthreads()
    for other in range(THREADS):
        if highest[other] > highest[best] or (highest[other] == highest[best] and which[other] < which[best]):
            best = other
    found = which[best]
    cuda.syncthreads()
    return found


@cuda.jit(device=True)
def set_bound(i, weight, variance, log_odds, bound):
    """Squared correlation below which a coefficient is drawn only if proposed."""
    limit = 2.0 * (LOG_MIN_ODDS - log_odds[i]) / variance[i] / ROUNDING_MARGIN
    bound[i] = limit if weight[i] == 0 and limit > 0.0 else VISIT_ALWAYS


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
def energy_of(image, partial):
    """Sum of squares of an image (row, col * plane)."""
    energy = 0.0
    for p in range(cuda.threadIdx.x, image.size, THREADS):
        value = float64(image[p // image.shape[1], p % image.shape[1]])
        energy += value * value
    return total_of(energy, partial)


class Terms(NamedTuple):
    """Norms and `Odds` of placed atoms, arrays (image, coefficient); one row serves all images without a mask."""

    norm: np.ndarray
    variance: np.ndarray
    log_odds: np.ndarray


class State(NamedTuple):
    """State of the chains on the device, with images in front."""

    weight: np.ndarray  # (image, coefficient), see `Chain`; so are the next two
    correlation: np.ndarray
    bound: np.ndarray
    image_correlation: np.ndarray  # (image, coefficient): of the placed atom with the image
    residual: np.ndarray  # (image, row, col * plane), 0 where hidden; (0, ...) without a mask
    change: np.ndarray  # (image,): of the weight just drawn


@cuda.jit
def run_images(images, masks, squares, problem, terms, run, greedy_start, state, chains):
    """The chains of images (image, row, col * plane), one to a block; changes all arrays of the last two.

    masks : (image, row, col * plane) of bool, with ``squares``, those of the problem's atoms; both empty without a mask
    terms : under a mask they are computed here
    chains : as of `Chains`, but its averages are sums in double precision
    """
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    which = cuda.shared.array(THREADS, int32)
    place = cuda.shared.array(2, int32)
    n, t, number, masked = cuda.blockIdx.x, cuda.threadIdx.x, state.weight.shape[1], masks.size > 0
    atoms, planes, stride, cols = problem.atoms, problem.planes, problem.stride, problem.col_slab.shape[0]
    gram, row_slab, col_slab, change = problem.gram, problem.row_slab, problem.col_slab, state.change
    own, c, limit, base = state.weight[n], state.correlation[n], state.bound[n], state.image_correlation[n]
    best, added, trace, row = chains.best, chains.averages[n], chains.trace, n if masked else 0
    norm, variance, log_odds = terms.norm[row], terms.variance[row], terms.log_odds[row]
    if masked:
        correlate(masks[n], squares, planes, stride, cols, 0, number, norm)
        for j in range(t, number, THREADS):
            variance[j] = 1.0 / (norm[j] + problem.gamma_w)
            log_odds[j] = problem.log_prior_odds + 0.5 * math.log(problem.gamma_w * variance[j])
    correlate(images[n], atoms, planes, stride, cols, 0, number, base)
    for j in range(t, number, THREADS):
        own[j], c[j] = best[n, j], base[j]
    cuda.syncthreads()
    while greedy_start:
        if masked:
            refresh(images[n], masks[n], own, problem, state.residual[n])
            correlate(state.residual[n], atoms, planes, stride, cols, 0, number, c)
        i = most_probable(own, c, variance, log_odds, partial, which)
        if i == _NONE:
            break
        if t == 0:
            own[i] = float64(c[i]) * variance[i]
        cuda.syncthreads()
        if not masked:
            explain(c, own[i], i, gram, row_slab, col_slab)
            cuda.syncthreads()
    for j in range(t, number, THREADS):
        set_bound(j, own, variance, log_odds, limit)
    energy, least = energy_of(images[n], partial), np.inf
    span = atoms.shape[2] if masked else number  # coefficients whose correlations are current at the same time
    for step in range(run.burn_in + run.collect):
        collected = step >= run.burn_in
        if step % REFRESH == 0 and masked:
            refresh(images[n], masks[n], own, problem, state.residual[n])
        elif step % REFRESH == 0:
            for j in range(t, number, THREADS):
                c[j] = base[j]
            for i in range(number):
                if own[i] != 0:
                    explain(c, own[i], i, gram, row_slab, col_slab)
        if t == 0:
            fill_key(stream, (run.seed, TEST, 0, step), run.first + n * run.stream_step)
            place[1] = draw_gap(stream)
        cuda.syncthreads()
        for first in range(0, number, span):
            start, last = first, first + span
            if masked:
                correlate(state.residual[n], atoms, planes, stride, cols, first, last, c)
            while True:
                proposed = place[1]
                cuda.syncthreads()
                i = next_visit(c, limit, start, min(proposed, last), place)
                if collected:
                    for j in range(start + t, i, THREADS):
                        add_expected(j, float64(c[j]), variance, log_odds, added)
                if i >= last:
                    break
                if t == 0:
                    old = own[i]
                    value = float64(c[i]) + float64(old) * norm[i]
                    if collected:
                        add_expected(i, value, variance, log_odds, added)
                    own[i] = draw_weight(value, variance[i], log_odds[i], i == proposed, stream)
                    change[n] = own[i] - old
                    set_bound(i, own, variance, log_odds, limit)
                    if i == proposed:
                        place[1] += 1 + draw_gap(stream)
                cuda.syncthreads()
                if change[n] != 0 and masked:
                    add_placed(state.residual[n], masks[n], -change[n], i, atoms, planes, stride, cols)
                    correlate(state.residual[n], atoms, planes, stride, cols, i + 1, last, c)
                elif change[n] != 0:
                    explain(c, change[n], i, gram, row_slab, col_slab)
                cuda.syncthreads()
                start = i + 1
        cuda.syncthreads()
        if collected or trace.shape[1] > 0:
            if masked:
                left = energy_of(state.residual[n], partial)
            else:
                explained = 0.0
                for j in range(t, number, THREADS):
                    explained += float64(own[j]) * (float64(base[j]) + float64(c[j]))
                left = energy - total_of(explained, partial)
            if t == 0 and trace.shape[1] > 0:
                trace[n, step] = left
            if collected and left < least:
                least = left
                for j in range(t, number, THREADS):
                    best[n, j] = own[j]
    if t == 0:
        chains.residual[n] = least


def run_chains(
    images: np.ndarray, masks: np.ndarray | None, problem: Problem, run: Run, chains: Chains, greedy_start: bool
) -> None:
    """Run the chains of images (image, row, col * plane) on the device; arguments as of the compiled `run_chains`.

    masks : (image, row, col * plane) of bool, True where observed; None: all observed

    GddError if the device's memory does not hold the problem and one image.
    """
    number, odds = problem.norm.size, coefficients.make_odds(problem)
    coefficients.fill_odds(problem, problem.gamma_w, odds)
    terms = Terms(*(values[None] for values in (problem.norm, *odds)))
    if masks is None:
        masks, squares = np.empty((0, *images.shape[1:]), bool), problem.atoms[:0]
    else:
        squares, terms = problem.atoms**2, None
    kind, sweeps = images.dtype, run.burn_in + run.collect
    fixed = sum(value.nbytes for value in problem if isinstance(value, np.ndarray)) + squares.nbytes
    each = images[0].size * (2 * kind.itemsize + 1) + number * (5 * kind.itemsize + 48) + 8 * sweeps
    many = images_at_once("images, atoms, stride", len(images), fixed, each)
    problem, squares = to_device(problem), cuda.to_device(squares)
    for low in range(0, len(images), many):
        where = slice(low, low + many)
        batch, hidden, part = images[where], masks[where], chains.slice(where)
        shape = len(batch), number
        state = State(
            *(cuda.device_array(shape, kind) for _ in range(4)),
            cuda.device_array(batch.shape if hidden.size else hidden.shape, kind), cuda.device_array(len(batch), kind),
        )
        own_terms = Terms(*(cuda.device_array(shape, float) for _ in Terms._fields)) if terms is None else terms
        results = to_device(part._replace(averages=np.zeros((len(batch), 3, number))))
        run_images[len(batch), THREADS](
            cuda.to_device(batch), cuda.to_device(hidden), squares, problem, to_device(own_terms),
            run._replace(first=run.first + low * run.stream_step), greedy_start, state, results,
        )
        for name in ("best", "residual", "trace"):
            getattr(results, name).copy_to_host(getattr(part, name))
        part.averages[:] = results.averages.copy_to_host() / run.collect
