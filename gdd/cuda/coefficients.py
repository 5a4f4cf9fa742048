"""The chains of test time on a graphics processor: `gdd.sampler.kernels.coefficients.run_chains`, an image to a block.

The chain is the processor's own: the same coefficients in the same order, from the same random numbers. One thread
draws; all threads of a block look for the next coefficient to be visited, and subtract what a change explains.
Results differ by single precision's rounding, where sums are taken in another order.

*Checked:* tests/test_cuda.py (the compiled chains; in numba's simulator, and compiled to PTX, without hardware).
"""

from __future__ import annotations

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


@cuda.jit
def run_images(
    images, atoms, planes, stride, gram, row_slab, col_slab, norm, variance, log_odds, seed, first, stream_step,
    burn_in, collect, greedy_start, weight, correlation, given, bound, sums, change, best, residual, trace,
):
    """The chains of images, one to a block; arrays as of `Problem`, `Odds`, `Chain`, `Chains`, with images in front.

    ``change`` (image,) : of the weight just drawn, in the images' type
    """
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    which = cuda.shared.array(THREADS, int32)
    place = cuda.shared.array(2, int32)
    n, t, number = cuda.blockIdx.x, cuda.threadIdx.x, norm.shape[0]
    own, c, base, limit, added = weight[n], correlation[n], given[n], bound[n], sums[n]
    correlate(images[n], atoms, planes, stride, col_slab.shape[0], base)
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
    for step in range(burn_in + collect):
        if step % REFRESH == 0:
            for j in range(t, number, THREADS):
                c[j] = base[j]
            for i in range(number):
                if own[i] != 0:
                    explain(c, own[i], i, gram, row_slab, col_slab)
        if t == 0:
            fill_key(stream, (seed, TEST, 0, step), first + n * stream_step)
            place[1] = draw_gap(stream)
        cuda.syncthreads()
        start = 0
        while True:
            proposed = place[1]
            cuda.syncthreads()
            i = next_visit(c, limit, start, min(proposed, number), place)
            if step >= burn_in:
                for j in range(start + t, i, THREADS):
                    add_expected(j, float64(c[j]), variance, log_odds, added)
            if i >= number:
                break
            if t == 0:
                old = own[i]
                value = float64(c[i]) + float64(old) * norm[i]
                if step >= burn_in:
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
        if step >= burn_in or trace.shape[1] > 0:
            explained = 0.0
            for j in range(t, number, THREADS):
                explained += float64(own[j]) * (float64(base[j]) + float64(c[j]))
            left = energy - total_of(explained, partial)
            if t == 0 and trace.shape[1] > 0:
                trace[n, step] = left
            if step >= burn_in and left < least:
                least = left
                for j in range(t, number, THREADS):
                    best[n, j] = own[j]
    if t == 0:
        residual[n] = least


def run_chains(images: np.ndarray, problem: Problem, run: Run, chains: Chains, greedy_start: bool) -> None:
    """Run the chains of images (image, row, col * plane) on the device; arguments as of the compiled `run_chains`."""
    odds, kind = coefficients.make_odds(problem), images.dtype
    coefficients.fill_odds(problem, problem.gamma_w, odds)
    shared = [cuda.to_device(problem.atoms), problem.planes, cuda.to_device(problem.stride), *map(cuda.to_device, (
        problem.gram, problem.row_slab, problem.col_slab, problem.norm, *odds))]
    many = max(1, AT_ONCE // problem.norm.size)
    for low in range(0, len(images), many):
        some = images[low : low + many]
        part, shape = chains.slice(slice(low, low + len(some))), (len(some), problem.norm.size)
        state = [cuda.device_array(shape, kind) for _ in range(4)]
        sums, change = cuda.to_device(np.zeros((len(some), 3, shape[1]))), cuda.device_array(len(some), kind)
        left = [cuda.to_device(array) for array in (part.best, part.residual, part.trace)]
        names = run.seed, run.first + low * run.stream_step, run.stream_step, run.burn_in, run.collect, greedy_start
        run_images[len(some), THREADS](cuda.to_device(some), *shared, *names, *state, sums, change, *left)
        for array, values in zip((part.best, part.residual, part.trace), left, strict=True):
            values.copy_to_host(array)
        part.averages[:] = sums.copy_to_host() / run.collect
