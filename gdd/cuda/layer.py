"""The image pass of a layer on a graphics processor, an image to a block of threads.

`redraw_layer` is the twin of `gdd.sampler.kernels.layer.pass_unmasked` and `pass_masked`, `redraw_top` of
`gdd.sampler.kernels.coefficients.pass_top`. The chain is the processor's own: the same blocks in the same order, from
the same random numbers. Most blocks are empty and stay so, and take one random number each. So every thread looks at a
block of its own, with the random number that this block would get. One thread draws the first block that is not
certainly empty; all threads then update the residual and the correlations, and look on from the next block.

`sum_up` adds the images of a chunk in index order: every entry of the sums belongs to one thread.

Arrays are in the device's memory and its caches, so no size is too large for the memory that a block shares. Results
differ from the processor's by rounding, where sums are taken in another order.

*Checked:* tests/test_cuda.py (the compiled passes; in numba's simulator, and compiled to PTX, without hardware).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import cuda, float64, int32, uint64

from gdd.cuda.coefficients import correlate as correlate_placed
from gdd.cuda.coefficients import energy_of, explain
from gdd.cuda.device import THREADS, first_of, on_device, to_device
from gdd.sampler.kernels import operations, random
from gdd.sampler.kernels.coefficients import Problem
from gdd.sampler.kernels.layer import LayerConstants
from gdd.sampler.kernels.operations import CHUNK, SAFE_EXPONENT, ImageArrays, Outcomes, Sums
from gdd.sampler.kernels.random import STREAM_SIZE

_known = on_device([
    random._high_word, random._refill, random.fill_key, random.next_uniform, random.next_normal, random.next_gamma,
    operations.block_at, operations.place_in_map, operations.window_start, operations.collapsed_prior_weights,
    operations.prior_weights, operations.log_counts, operations.slab_of, operations.set_outcome,
    operations.apply_gains, operations.sample_outcome, operations.draw_block, operations.draw_noise,
])
_refill, fill_key, next_uniform = _known["_refill"], _known["fill_key"], _known["next_uniform"]
block_at, place_in_map, window_start = _known["block_at"], _known["place_in_map"], _known["window_start"]
prior_weights, log_counts, slab_of = _known["prior_weights"], _known["log_counts"], _known["slab_of"]
set_outcome, draw_block, draw_noise = _known["set_outcome"], _known["draw_block"], _known["draw_noise"]


class Scratch(NamedTuple):
    """What a pass keeps of every image, arrays on the device with images in front."""

    residual: np.ndarray  # (image, row * col * plane)
    correlation: np.ndarray  # (image, entry), and so the next three: see `Maps`
    norm: np.ndarray
    counts: np.ndarray
    outcomes: np.ndarray
    log_counts: np.ndarray  # (image, atom)
    energy: np.ndarray  # (image,): of the residual


# Random numbers and the choice within a block


@cuda.jit(device=True)
def advance(stream, count, out):
    """A stream as it will be ``count`` numbers later, into ``out``, which may be the stream itself."""
    word = stream[10] + uint64(count)
    for q in range(1, 6):
        out[q] = stream[q]
    out[0] = stream[0] + (word >> uint64(2)) - uint64(1)
    _refill(out)
    out[10] = word & uint64(3)


class Maps(NamedTuple):
    """Maps of an image, and what their conditionals need of its residual.

    Position q of map k is entry ``q * stride + k % stride``; the stride is 1 if there are entries of one map only.
    """

    z: np.ndarray  # (atom, block_row, block_col)
    w: np.ndarray  # (atom, block_row, block_col)
    correlation: np.ndarray  # (entry,)
    norm: np.ndarray  # (entry,): squared norm of the atom there
    stride: int
    counts: np.ndarray  # (group, position + 1), see `count_outcomes`
    outcomes: np.ndarray  # (field, position): `Outcomes`
    gamma_e: float


@cuda.jit(device=True)
def site_of(s, z):
    """Atom, row and column of block number ``s`` of all maps z (atom, block_row, block_col)."""
    return s // (z.shape[1] * z.shape[2]), s // z.shape[2] % z.shape[1], s % z.shape[2]


@cuda.jit(device=True)
def certainly_empty(k, block, uniform, maps, layer, prior):
    """Whether `draw_block` would leave an empty block empty, as an upper bound on its positions decides."""
    alpha, empty, total, largest = 1.0 / (block.rows * block.cols + 1), prior.empty, 0.0, 0.0
    if prior.collapsed:
        empty = alpha + maps.counts[block.group, maps.counts.shape[1] - 1] - 1.0  # the block itself is one of them
    for a in range(block.rows):
        for b in range(block.cols):
            at = ((block.row + a) * layer.map_col + block.col + b) * maps.stride + k % maps.stride
            slab, weight = slab_of(maps.gamma_e, float64(maps.norm[at]), prior.gamma_w), prior.active
            if prior.collapsed:
                weight = alpha + maps.counts[block.group, a * layer.pool_col + b]
            largest = max(largest, slab.gain * float64(maps.correlation[at]) ** 2)
            total += weight * slab.factor
    return largest < SAFE_EXPONENT and uniform * (empty + total * math.exp(largest)) < empty


@cuda.jit(device=True)
def next_block(start, stop, maps, layer, prior, stream, ahead, found):
    """Number of the first block from ``start`` that is not certainly empty; ``stop`` if all are. Moves the stream on.

    Changes ``ahead``, a stream of every thread, and ``found`` (1,).
    """
    while start < stop:
        s, end, visit = start + cuda.threadIdx.x, min(start + THREADS, stop), False
        if s < end:
            k, i, j = site_of(s, maps.z)
            visit = maps.z[k, i, j] >= 0
            if not visit:
                advance(stream, cuda.threadIdx.x, ahead)
                visit = not certainly_empty(k, block_at(i, j, layer), next_uniform(ahead), maps, layer, prior)
        s = first_of(visit, s, end, found)
        if cuda.threadIdx.x == 0:
            advance(stream, s - start, stream)
        cuda.syncthreads()
        if s < end:
            return s
        start = end
    return stop


@cuda.jit(device=True)
def draw(s, maps, layer, prior, stream):
    """Draw block number ``s``, whose own atom is not explained; by one thread. All threads wait."""
    if cuda.threadIdx.x == 0:
        (k, i, j), last, p = site_of(s, maps.z), maps.counts.shape[1] - 1, 0
        block, own = block_at(i, j, layer), maps.outcomes
        outcomes = Outcomes(own[0], own[1], own[2], own[3])
        maps.counts[block.group, maps.z[k, i, j] if maps.z[k, i, j] >= 0 else last] -= 1
        empty = prior_weights(block, maps.counts, layer, prior, outcomes.weight)
        for row in range(block.row, block.row + block.rows):
            for col in range(block.col, block.col + block.cols):
                at = (row * layer.map_col + col) * maps.stride + k % maps.stride
                slab = slab_of(maps.gamma_e, float64(maps.norm[at]), prior.gamma_w)
                set_outcome(outcomes, p, float64(maps.correlation[at]), slab)
                p += 1
        position, weight = draw_block(block, outcomes, empty, layer, next_uniform(stream), stream)
        maps.z[k, i, j], maps.w[k, i, j] = position, weight
        maps.counts[block.group, position if position >= 0 else last] += 1
    cuda.syncthreads()


# An image and an atom, by all threads of a block


@cuda.jit(device=True)
def count_outcomes(z, layer, counts):
    """Twin of `gdd.sampler.kernels.operations.count_outcomes`."""
    t, last = cuda.threadIdx.x, counts.shape[1] - 1
    for q in range(t, counts.size, THREADS):
        counts[q // (last + 1), q % (last + 1)] = 0
    cuda.syncthreads()
    for b in range(t, z.size, THREADS):
        i, j = b // z.shape[1], b % z.shape[1]
        cuda.atomic.add(counts, (block_at(i, j, layer).group, z[i, j] if z[i, j] >= 0 else last), 1)
    cuda.syncthreads()


@cuda.jit(device=True)
def correlate(level, atoms, k, rows, cols, layer, out):
    """Inner products of atom k with the windows at a range of rows and columns of its map, into ``out``."""
    wide, first = cols[1] - cols[0], k * layer.height * layer.length
    for p in range(cuda.threadIdx.x, (rows[1] - rows[0]) * wide, THREADS):
        i, j = rows[0] + p // wide, cols[0] + p % wide
        start, at = window_start(i, j, layer), i * layer.map_col + j
        out[at] = 0
        total = out[at]
        for a in range(layer.height):
            for b in range(layer.length):
                total += level[start + a * layer.width + b] * atoms[first + a * layer.length + b]
        out[at] = total
    cuda.syncthreads()


@cuda.jit(device=True)
def add_atom(residual, mask, amount, k, row, col, layer):
    """Add ``amount`` times atom k to a residual, at observed pixels; ``mask`` (1, ...) is empty if all are."""
    start, first = window_start(row, col, layer), k * layer.height * layer.length
    for q in range(cuda.threadIdx.x, layer.height * layer.length, THREADS):
        p = start + q // layer.length * layer.width + q % layer.length
        if mask.size == 0 or mask[0, p] > 0:
            residual[p] += amount * layer.dictionary[first + q]
    cuda.syncthreads()


@cuda.jit(device=True)
def add_block(removed, s, maps, residual, mask, lags, layer):
    """Bring residual, and correlations from its rows on, up to date with a block that was drawn, or is ``removed``."""
    k, i, j = site_of(s, maps.z)
    if maps.z[k, i, j] >= 0:
        (row, col), amount = place_in_map(i, j, maps.z[k, i, j], layer), maps.w[k, i, j]
        amount = amount if removed else -amount
        h, w = layer.height, layer.length // layer.planes
        top, bottom = max(i * layer.pool_row, row - h + 1), min(layer.map_row, row + h)
        left, right = max(0, col - w + 1), min(layer.map_col, col + w)
        add_atom(residual, mask, amount, k, row, col, layer)
        if mask.size > 0:
            correlate(residual, layer.dictionary, k, (top, bottom), (left, right), layer, maps.correlation)
        else:
            for p in range(cuda.threadIdx.x, (bottom - top) * (right - left), THREADS):
                a, b = top + p // (right - left), left + p % (right - left)
                maps.correlation[a * layer.map_col + b] += amount * lags[k, a - row + h - 1, b - col + w - 1]
    cuda.syncthreads()


@cuda.jit(device=True)
def explain_image(n, images, mask, layer, residual):
    """Compute an image's residual afresh."""
    z, w = images.z[n], images.w[n]
    for p in range(cuda.threadIdx.x, residual.size, THREADS):
        residual[p] = images.pixels[n, p]
    cuda.syncthreads()
    for s in range(z.size):
        k, i, j = site_of(s, z)
        if z[k, i, j] >= 0:
            row, col = place_in_map(i, j, z[k, i, j], layer)
            add_atom(residual, mask, -w[k, i, j], k, row, col, layer)


@cuda.jit(device=True)
def initialise_image(n, images, mask, layer, prior, key, scratch, stream, partial):
    """Twin of `gdd.sampler.kernels.layer.initialise_image`; starts the stream of the image."""
    if cuda.threadIdx.x == 0:
        fill_key(stream, key, images.first + n)
    explain_image(n, images, mask, layer, scratch.residual[n])
    if prior.noise_drawn:
        energy, observed = energy_of(scratch.residual[n : n + 1], partial), float64(images.pixels.shape[1])
        if mask.size > 0:
            observed = energy_of(mask, partial)  # its entries are 0 and 1
        if cuda.threadIdx.x == 0:
            images.gamma_e[n] = draw_noise(prior.noise_shape, prior.noise_rate, observed, energy, stream)
        cuda.syncthreads()
    return images.gamma_e[n if images.gamma_e.size > 1 else 0]


# The passes


@cuda.jit
def redraw_layer(images, lags, squares, layer, prior, key, scratch):
    """Redraw the local part of every image; changes ``images`` and ``scratch``.

    lags, squares : as of the processor's passes; without a mask ``squares`` is empty, under one ``lags``
    """
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    found = cuda.shared.array(1, int32)
    ahead = cuda.local.array(STREAM_SIZE, uint64)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    z, w, mask = images.z[n], images.w[n], images.masks[n : n + 1]
    residual, norm, rows, cols = scratch.residual[n], scratch.norm[n], (0, layer.map_row), (0, layer.map_col)
    gamma_e = initialise_image(n, images, mask, layer, prior, key, scratch, stream, partial)
    maps = Maps(z, w, scratch.correlation[n], norm, 1, scratch.counts[n], scratch.outcomes[n], gamma_e)
    for k in range(layer.atoms):
        s, stop = k * z[k].size, (k + 1) * z[k].size
        count_outcomes(z[k], layer, maps.counts)
        if mask.size > 0:
            correlate(mask[0], squares, k, rows, cols, layer, norm)
        else:
            for p in range(t, norm.size, THREADS):
                norm[p] = lags[k, layer.height - 1, layer.length // layer.planes - 1]
        correlate(residual, layer.dictionary, k, rows, cols, layer, maps.correlation)
        while True:
            s = next_block(s, stop, maps, layer, prior, stream, ahead, found)
            if s >= stop:
                break
            add_block(True, s, maps, residual, mask, lags, layer)
            draw(s, maps, layer, prior, stream)
            add_block(False, s, maps, residual, mask, lags, layer)
            s += 1
        if t == 0 and prior.collapsed:
            scratch.log_counts[n, k] = log_counts(maps.counts, layer, 1)
        cuda.syncthreads()
    if mask.size > 0:
        for p in range(t, residual.size, THREADS):
            images.pixels[n, p] = residual[p]
    scratch.energy[n] = energy_of(scratch.residual[n : n + 1], partial)


@cuda.jit
def redraw_top(images, pixels, problem, layer, prior, key, scratch):
    """`redraw_layer` for a top layer, whose atoms come placed; ``pixels`` (image, row, col * plane) of ``images``."""
    stream = cuda.shared.array(STREAM_SIZE, uint64)
    partial = cuda.shared.array(THREADS, float64)
    found = cuda.shared.array(1, int32)
    ahead = cuda.local.array(STREAM_SIZE, uint64)
    n, atoms, mask, c = cuda.blockIdx.x, layer.atoms, images.masks[:0], scratch.correlation[cuda.blockIdx.x]
    z, w = images.z[n], images.w[n]
    correlate_placed(pixels[n], problem.atoms, problem, 0, c.size, c)
    gamma_e = initialise_image(n, images, mask, layer, prior, key, scratch, stream, partial)
    for s in range(z.size):
        k, i, j = site_of(s, z)
        if w[k, i, j] != 0:
            explain(c, w[k, i, j], (i * layer.map_col + j) * atoms + k, problem)
    maps, s = Maps(z, w, c, problem.norm, atoms, scratch.counts[n], scratch.outcomes[n], gamma_e), 0
    while True:
        s = next_block(s, z.size, maps, layer, prior, stream, ahead, found)
        if s >= z.size:
            break
        k, i, j = site_of(s, z)
        at, old = (i * layer.map_col + j) * atoms + k, w[k, i, j]
        if old != 0:
            explain(c, -old, at, problem)
        cuda.syncthreads()
        draw(s, maps, layer, prior, stream)
        if w[k, i, j] != 0:
            explain(c, w[k, i, j], at, problem)
        s += 1
    explain_image(n, images, mask, layer, scratch.residual[n])
    scratch.energy[n] = energy_of(scratch.residual[n : n + 1], partial)


# Sums over images


@cuda.jit
def sum_up(images, layer, prior, scratch, sums):
    """Twin of `gdd.sampler.kernels.operations.add_sums`: a block of threads for an atom and a chunk of images."""
    chunk, k, t, grid_col = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x, layer.grid_col
    h, w, taps = sums.pairs.shape[3] // 2, sums.pairs.shape[4] // 2, 0
    if sums.cross.size > 0:
        taps = sums.cross.shape[2]
    for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, images.pixels.shape[0])):
        z, pixels = images.z[n], images.pixels[n]
        gamma_e = images.gamma_e[n if images.gamma_e.size > 1 else 0] if prior.noise_by_image else 1.0
        for s in range(layer.grid_row * grid_col):
            i, j = s // grid_col, s % grid_col
            if z[k, i, j] < 0:
                continue
            (row, col), weight = place_in_map(i, j, z[k, i, j], layer), float64(images.w[n, k, i, j])
            start, scaled = window_start(row, col, layer), gamma_e * weight
            for q in range(t, taps, THREADS):
                sums.cross[chunk, k, q] += scaled * pixels[start + q // layer.length * layer.width + q % layer.length]
            for other in range(k + t, sums.pairs.shape[2], THREADS):
                for a in range(max(0, row - h) // layer.pool_row, min(layer.grid_row, (row + h) // layer.pool_row + 1)):
                    for b in range(max(0, col - w) // layer.pool_col, min(grid_col, (col + w) // layer.pool_col + 1)):
                        if z[other, a, b] >= 0 and (other > k or a * grid_col + b >= s):
                            second_row, second_col = place_in_map(a, b, z[other, a, b], layer)
                            down, right = row - second_row, col - second_col
                            if abs(down) <= h and abs(right) <= w:
                                product = scaled * float64(images.w[n, other, a, b])
                                sums.pairs[chunk, k, other, h + down, w + right] += product
                                if other == k and (a != i or b != j):
                                    sums.pairs[chunk, k, k, h - down, w - right] += product
            if t == 0:
                sums.active[chunk, k] += 1.0
                sums.squares[chunk, k] += weight * weight
        if k == 0 and t == 0:
            sums.energy[chunk] += scratch.energy[n]
            sums.weighted_energy[chunk] += gamma_e * scratch.energy[n]
            if prior.collapsed:
                for each in range(layer.atoms):
                    sums.log_counts[chunk] += scratch.log_counts[n, each]


def run_pass(
    kernel, terms: tuple, images: ImageArrays, constants: LayerConstants, key: tuple, sums: Sums, atoms: int = 1
) -> None:
    """Run a kernel on a batch of images, and add up; changes ``images`` and ``sums`` as the processor's passes do.

    atoms : of whose maps the kernel keeps the correlations at the same time
    """
    layer, number, kind = constants.layer, len(images.pixels), images.pixels.dtype
    positions, cells = layer.pool_row * layer.pool_col, layer.map_row * layer.map_col
    scratch = Scratch(
        cuda.device_array(images.pixels.shape, kind), cuda.device_array((number, atoms * cells), kind),
        cuda.device_array((number, cells), kind),
        cuda.device_array((number, 4, positions + 1), int), cuda.device_array((number, 4, positions), float),
        cuda.device_array((number, layer.atoms), float), cuda.device_array(number, float),
    )
    local, total, layer = to_device(images), to_device(sums), to_device(layer)
    kernel[number, THREADS](local, *terms, layer, constants.prior, key, scratch)
    sum_up[(len(sums.active), layer.atoms), THREADS](local, layer, constants.prior, scratch, total)
    for name in ("z", "w", "gamma_e", *(["pixels"] if len(images.masks) else [])):
        getattr(local, name).copy_to_host(getattr(images, name))
    for own, array in zip(total, sums, strict=True):
        own.copy_to_host(array)


def pass_unmasked(images: ImageArrays, lags: np.ndarray, constants: LayerConstants, key: tuple, sums: Sums) -> None:
    """`gdd.sampler.kernels.layer.pass_unmasked` on the device."""
    terms = cuda.to_device(lags), cuda.to_device(lags[0, 0, :0])
    run_pass(redraw_layer, terms, images, constants, key, sums)


def pass_masked(images: ImageArrays, squares: np.ndarray, constants: LayerConstants, key: tuple, sums: Sums) -> None:
    """`gdd.sampler.kernels.layer.pass_masked` on the device."""
    terms = cuda.to_device(squares[:0].reshape(0, 1, 1)), cuda.to_device(squares)
    run_pass(redraw_layer, terms, images, constants, key, sums)


def pass_top(images: ImageArrays, problem: Problem, constants: LayerConstants, key: tuple, sums: Sums) -> None:
    """`gdd.sampler.kernels.coefficients.pass_top` on the device."""
    shape = len(images.pixels), -1, constants.layer.width
    terms = cuda.to_device(images.pixels.reshape(shape)), to_device(problem)
    run_pass(redraw_top, terms, images, constants, key, sums, constants.layer.atoms)
