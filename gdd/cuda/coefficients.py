"""The chains of test time on a graphics processor: `gdd.sampler.kernels.coefficients.run_chains`, an image to a block.

The chain is the processor's own: the same coefficients in the same order, from the same random numbers. One thread
draws; all threads of a block look for the next coefficient to be visited, and subtract what a change explains.
Results differ by single precision's rounding, where sums are taken in another order.

*Checked:* tests/test_cuda.py (the compiled chains; in numba's simulator, and compiled to PTX, without hardware).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import cuda, float64, int32, uint64

from gdd.cuda.device import THREADS, on_device
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

#: coefficients, of all images together, that are on the device at once: 36 bytes each
AT_ONCE = 2**27
#: in place of a coefficient's number: none was found
_NONE = -1


@cuda.jit(device=True)
def correlate(image, atoms, planes, stride, cols, out):
    """Inner products of an image (row, col * plane) with every placed atom, into ``out`` (coefficient,)."""
    rows, length, number = atoms.shape
    for i in range(cuda.threadIdx.x, out.shape[0], THREADS):
        k, place = i % number, i // number
        top, left = (place // cols) * stride[0], (place % cols) * stride[1] * planes
        out[i] = 0
        total = out[i]
        for a in range(min(rows, image.shape[0] - top)):
            for b in range(min(length, image.shape[1] - left)):
                total += image[top + a, left + b] * atoms[a, b, k]
        out[i] = total


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
def total_of(value, partial):
    """Sum of one number of every thread, in their order; for all of them. Changes ``partial`` (thread,)."""
    partial[cuda.threadIdx.x] = value
    cuda.syncthreads()
    total = 0.0
    for t in range(THREADS):
        total += partial[t]
    cuda.syncthreads()
    return total


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
    base = start
    while base < stop:
        j = base + cuda.threadIdx.x
        passed = j < stop and correlation[j] * correlation[j] > bound[j]
        if cuda.syncthreads_or(int32(passed)):
            if cuda.threadIdx.x == 0:
                found[0] = stop
            cuda.syncthreads()
            if passed:
                cuda.atomic.min(found, 0, j)
            cuda.syncthreads()
            first = found[0]
            cuda.syncthreads()
            return first
        base += THREADS
    return stop


class State(NamedTuple):
    """State of the chains on the device, with images in front."""

    weight: np.ndarray  # (image, coefficient), see `Chain`; so are the next two
    correlation: np.ndarray
    bound: np.ndarray
    image_correlation: np.ndarray  # (image, coefficient): of the placed atom with the image
    change: np.ndarray  # (image,): of the weight just drawn


@cuda.jit
def run_images(images, problem, odds, run, greedy_start, state, chains):
    """The chains of images (image, row, col * plane), one to a block; changes all arrays of ``state`` and ``chains``.

    ``chains`` : as of `Chains`, but its averages are sums in double precision
    """
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    which = cuda.shared.array(THREADS, int32)
    place = cuda.shared.array(2, int32)
    gram, row_slab, col_slab, norm = problem.gram, problem.row_slab, problem.col_slab, problem.norm
    n, t, number, (variance, log_odds), change = cuda.blockIdx.x, cuda.threadIdx.x, norm.shape[0], odds, state.change
    own, c, limit, base = state.weight[n], state.correlation[n], state.bound[n], state.image_correlation[n]
    best, added, trace = chains.best, chains.averages[n], chains.trace
    correlate(images[n], problem.atoms, problem.planes, problem.stride, col_slab.shape[0], base)
    for j in range(t, number, THREADS):
        own[j], c[j] = best[n, j], base[j]
    cuda.syncthreads()
    while greedy_start:
        i = most_probable(own, c, variance, log_odds, partial, which)
        if i == _NONE:
            break
        if t == 0:
            own[i] = float64(c[i]) * variance[i]
        cuda.syncthreads()
        explain(c, own[i], i, gram, row_slab, col_slab)
        cuda.syncthreads()
    for j in range(t, number, THREADS):
        set_bound(j, own, variance, log_odds, limit)
    energy = 0.0
    for pixel in range(t, images[n].size, THREADS):
        value = float64(images[n, pixel // images.shape[2], pixel % images.shape[2]])
        energy += value * value
    energy = total_of(energy, partial)
    least = np.inf
    for step in range(run.burn_in + run.collect):
        if step % REFRESH == 0:
            for j in range(t, number, THREADS):
                c[j] = base[j]
            for i in range(number):
                if own[i] != 0:
                    explain(c, own[i], i, gram, row_slab, col_slab)
        if t == 0:
            fill_key(stream, (run.seed, TEST, 0, step), run.first + n * run.stream_step)
            place[1] = draw_gap(stream)
        cuda.syncthreads()
        start = 0
        while True:
            proposed = place[1]
            cuda.syncthreads()
            i = next_visit(c, limit, start, min(proposed, number), place)
            if step >= run.burn_in:
                for j in range(start + t, i, THREADS):
                    add_expected(j, float64(c[j]), variance, log_odds, added)
            if i >= number:
                break
            if t == 0:
                old = own[i]
                value = float64(c[i]) + float64(old) * norm[i]
                if step >= run.burn_in:
                    add_expected(i, value, variance, log_odds, added)
                own[i] = draw_weight(value, variance[i], log_odds[i], i == proposed, stream)
                change[n] = own[i] - old
                set_bound(i, own, variance, log_odds, limit)
                if i == proposed:
                    place[1] += 1 + draw_gap(stream)
            cuda.syncthreads()
            if change[n] != 0:
                explain(c, change[n], i, gram, row_slab, col_slab)
            cuda.syncthreads()
            start = i + 1
        cuda.syncthreads()
        if step >= run.burn_in or trace.shape[1] > 0:
            explained = 0.0
            for j in range(t, number, THREADS):
                explained += float64(own[j]) * (float64(base[j]) + float64(c[j]))
            left = energy - total_of(explained, partial)
            if t == 0 and trace.shape[1] > 0:
                trace[n, step] = left
            if step >= run.burn_in and left < least:
                least = left
                for j in range(t, number, THREADS):
                    best[n, j] = own[j]
    if t == 0:
        chains.residual[n] = least


def run_chains(images: np.ndarray, problem: Problem, run: Run, chains: Chains, greedy_start: bool) -> None:
    """Run the chains of images (image, row, col * plane) on the device; arguments as of the compiled `run_chains`."""
    odds, kind = coefficients.make_odds(problem), images.dtype
    coefficients.fill_odds(problem, problem.gamma_w, odds)
    problem, odds = _to_device(problem), _to_device(odds)
    many = max(1, AT_ONCE // problem.norm.size)
    for low in range(0, len(images), many):
        batch = images[low : low + many]
        part, shape = chains.slice(slice(low, low + len(batch))), (len(batch), problem.norm.size)
        sums, part_run = np.zeros((len(batch), 3, shape[1])), run._replace(first=run.first + low * run.stream_step)
        state = State(*(cuda.device_array(shape, kind) for _ in range(4)), cuda.device_array(len(batch), kind))
        results = _to_device(part._replace(averages=sums))
        run_images[len(batch), THREADS](
            cuda.to_device(batch), problem, odds, part_run, greedy_start, state, results
        )
        for name in ("best", "residual", "trace"):
            getattr(results, name).copy_to_host(getattr(part, name))
        part.averages[:] = results.averages.copy_to_host() / run.collect


def _to_device(values: tuple) -> tuple:
    """The same with every array on the device."""
    return values._replace(**{
        name: cuda.to_device(value) for name, value in values._asdict().items() if isinstance(value, np.ndarray)
    })
