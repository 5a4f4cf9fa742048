"""The image pass of a layer: draws every image's noise precision, positions and weights, and sums its statistics.

`pass_unmasked` serves fully observed images: within an atom's map the atom's autocorrelation keeps the correlations
current. `pass_masked` serves missing pixels. A mask weights pixels by 1 or 0, so the norm of an atom under it depends
on its position. A visited block computes its correlations from the residual, which is zero at hidden pixels, and those
around a change are computed afresh; stored correlations are used only to skip blocks. A masked pass takes twice as long
as an unmasked one. `gdd.sampler.kernels.coefficients` serves most layers without pooling.

Correlations of an atom with a residual are flat, with as many columns as the image: entry ``row * columns + col``
belongs to position (row, col); entries beyond the map's last column are unused.

Images are independent given the shared part. Each chunk of images has an accumulator, in double precision, filled in
index order; accumulators are added in order afterwards. So the bits do not depend on the number of threads or workers.

*Checked:* tests/test_kernels.py, tests/test_masked.py (same chain as the plain conditionals from the same random
numbers; both passes agree if all is observed).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subkernel
from gdd.sampler.kernels.operations import (
    CHUNK,
    ROUNDING_MARGIN,
    Active,
    Layer,
    Outcomes,
    Prior,
    Slab,
    add_atom,
    add_sums,
    add_where_observed,
    block_at,
    certainly_empty,
    count_outcomes,
    dot_atom,
    draw_block,
    draw_noise,
    energy_of,
    fill_residual,
    list_active,
    log_counts,
    make_active,
    place_in_map,
    prior_weights,
    set_outcome,
    slab_of,
    window_start,
)
from gdd.sampler.kernels.random import STREAM_SIZE, fill_key, next_uniform
from gdd.sampler.kernels.windows import Static

#: columns are searched this many at a time
LANES = 8


class UnmaskedAtom(NamedTuple):
    """An atom, its autocorrelation summed over planes, and the slab of its weights."""

    k: int
    lags: np.ndarray  # (2 atom_row - 1, 3 atom_col), see `shift_correlations`
    slab: Slab


class MaskedAtom(NamedTuple):
    """An atom, the image's mask, the atom's squared norm under it at each position, and the noise precision."""

    k: int
    mask: np.ndarray  # (row * col * plane,)
    norms: np.ndarray  # in the layout of correlations
    gamma_e: float


class Bound(NamedTuple):
    """Upper bound on a position's odds against empty, factor * exp(gain * c^2 + slack), from its correlation c."""

    gain: float
    slack: float
    factor: float


class Work(NamedTuple):
    """Scratch of a thread, reused from image to image."""

    residual: np.ndarray  # (row * col * plane,)
    correlations: np.ndarray  # (map_row * col + padding,): padded for an autocorrelation's zeros and the last lanes
    counts: np.ndarray  # (group, position + 1), see `count_outcomes`
    outcomes: Outcomes
    active: Active
    neighbours: np.ndarray  # (entry,)
    peaks: np.ndarray  # (padded col,)
    stream: np.ndarray


@subkernel()
def make_work(z, residual, layer):
    """Allocate scratch for maps z (atom, block_row, block_col), in the precision of ``residual``."""
    positions, columns, dtype = layer.pool_row * layer.pool_col, layer.width // layer.planes, residual.dtype
    return Work(
        np.empty(residual.shape, dtype),
        np.zeros(layer.map_row * columns + max(3 * (layer.length // layer.planes), LANES), dtype),
        np.empty((4, positions + 1), np.int64),
        Outcomes(np.empty(positions), np.empty(positions), np.empty(positions), np.empty(positions)),
        make_active(z.size),
        np.empty(z.size, np.int64),
        np.empty(-(-layer.map_col // LANES) * LANES, dtype),
        np.empty(STREAM_SIZE, np.uint64),
    )


# Correlations of an atom with every window of a residual


@subkernel()
def correlate(residual, dictionary, k, layer, static, out):
    """Inner products of atom k of a dictionary with every window of ``residual``, into ``out``.

    With one plane a single long loop covers all rows; windows that continue in the next row give unused entries.
    """
    planes, columns = layer.planes, layer.width // layer.planes
    atom = dictionary[k * layer.height * layer.length : (k + 1) * layer.height * layer.length]
    if len(static.columns) > 0:
        size = (layer.map_row - 1) * columns + layer.map_col
        for p in range(size):
            out[p] = 0.0
        for a in range(layer.height):
            below, taps = residual[a * columns :], atom[a * layer.length :]
            for p in range(size):
                total = out[p]
                for b in range(len(static.columns)):
                    total += taps[b] * below[p + b]
                out[p] = total
        return
    for i in range(0, layer.map_row, 2):  # four windows at once; at an odd edge some coincide
        lower = min(i + 1, layer.map_row - 1)
        for j in range(0, layer.map_col, 2):
            beside = min(j + 1, layer.map_col - 1)
            c00 = residual[0] * 0
            c01, c10, c11 = c00, c00, c00
            for a in range(layer.height):
                top, low = (i + a) * layer.width, (lower + a) * layer.width
                # unsigned: such an index needs no check for counting from the end
                p00, p01 = np.uintp(top + j * planes), np.uintp(top + beside * planes)
                p10, p11 = np.uintp(low + j * planes), np.uintp(low + beside * planes)
                q = np.uintp(a * layer.length)
                for t in range(np.uintp(layer.length)):
                    tap = atom[q + t]
                    c00 += tap * residual[p00 + t]
                    c01 += tap * residual[p01 + t]
                    c10 += tap * residual[p10 + t]
                    c11 += tap * residual[p11 + t]
            out[i * columns + j], out[i * columns + beside] = c00, c01
            out[lower * columns + j], out[lower * columns + beside] = c10, c11


@subkernel()
def correlate_part(k, rows, cols, layer, static, work):
    """`correlate` for a range of rows and columns of a map, into ``work.correlations``.

    Its loops are short; used for whole maps as well, it would make a sweep a tenth longer.
    """
    columns = layer.width // layer.planes
    atom = layer.dictionary[k * layer.height * layer.length : (k + 1) * layer.height * layer.length]
    for i in range(rows[0], rows[1]):
        correlations = work.correlations[i * columns + cols[0] : i * columns + cols[1]]
        if len(static.columns) > 0:
            for p in range(len(correlations)):
                correlations[p] = 0.0
            for a in range(layer.height):
                below, taps = work.residual[(i + a) * columns + cols[0] :], atom[a * layer.length :]
                for p in range(len(correlations)):
                    total = correlations[p]
                    for b in range(len(static.columns)):
                        total += taps[b] * below[p + b]
                    correlations[p] = total
        else:
            for p in range(len(correlations)):
                correlations[p] = dot_atom(work.residual, window_start(i, cols[0] + p, layer), k, layer, static)


@subkernel()
def shift_correlations(out, lags, row, col, weight, first_row, layer, static):
    """Update correlations from ``first_row`` on for a weight added at (row, col): out -= weight * autocorrelation.

    ``lags`` (lag_row, 3 atom_col) ends in atom_col + 1 columns of zeros, so that the loop over a row always has the
    same length; terms past the image's right edge are zero.
    """
    h, w = lags.shape[0] // 2, lags.shape[1] // 3
    start, columns = max(0, col - w + 1), layer.width // layer.planes
    for i in range(max(first_row, row - h), min(layer.map_row, row + h + 1)):
        # unsigned: such an index needs no check for counting from the end
        place, skip, lag = np.uintp(i * columns + start), np.uintp(start - col + w - 1), lags[i - row + h]
        if len(static.columns) > 0:
            for t in range(np.uintp(2 * len(static.columns))):
                out[place + t] -= weight * lag[skip + t]
        else:
            for t in range(np.uintp(2 * w)):
                out[place + t] -= weight * lag[skip + t]


# One map, block by block


@subkernel()
def sweep_map(z, w, unmasked, masked, bound, constants, work):
    """Redraw every block of maps z, w (block_row, block_col) of one atom, whose correlations are in ``work``.

    One of ``unmasked`` and ``masked`` is the atom, the other None. Most blocks are empty and stay so: for most of these
    the largest correlation of each column bounds the gain tightly enough to skip the draw.
    """
    layer, peaks, stream = constants.layer, work.peaks, work.stream
    columns = layer.width // layer.planes
    for i in range(z.shape[0]):
        first = block_at(i, 0, layer)
        group = first.group
        below = work.correlations[first.row * columns :]
        column_peaks(below, columns, first.rows, peaks)
        empty, active = bound_weights(first, work.counts, constants, bound.factor)
        for j in range(z.shape[1]):
            block = block_at(i, j, layer)
            if block.group != group:
                group = block.group
                empty, active = bound_weights(block, work.counts, constants, bound.factor)
            uniform = next_uniform(stream)
            if z[i, j] < 0:
                peak = peaks[block.col]
                for b in range(block.col + 1, block.col + block.cols):
                    peak = max(peak, peaks[b])
                if certainly_empty(bound.gain * peak + bound.slack, empty, active, uniform):
                    continue
            changed = False
            if unmasked is not None:
                changed = visit_block(block, z, w, unmasked, uniform, constants, work)
            if masked is not None:
                changed = visit_masked_block(block, z, w, masked, uniform, constants, work)
            if changed:
                column_peaks(below, columns, block.rows, peaks)
                empty, active = bound_weights(block, work.counts, constants, bound.factor)


@subkernel()
def column_peaks(correlations, columns, rows, peaks):
    """Largest square in each column of the first ``rows`` rows, into ``peaks`` (padded col,)."""
    last = rows - 1
    for top in range(0, rows, 3):  # three rows at once, the last one repeated where there are fewer
        upper, middle = correlations[top * columns :], correlations[min(top + 1, last) * columns :]
        lower = correlations[min(top + 2, last) * columns :]
        for start in range(0, len(peaks), LANES):
            for t in range(LANES):
                j = np.uintp(start + t)  # unsigned: such an index needs no check for counting from the end
                peak = max(upper[j] * upper[j], middle[j] * middle[j], lower[j] * lower[j])
                peaks[j] = peak if top == 0 else max(peak, peaks[j])


@subkernel()
def bound_weights(block, counts, constants, factor):
    """Lower bound on the weight of empty, upper bound on the total of the positions, for empty blocks of a group.

    With theta integrated out the counts exclude the block itself. The lower bound omits alpha, which is below 1; the
    upper bound replaces the positions' alphas, whose sum is below 1, by 1.
    """
    layer, prior = constants.layer, constants.prior
    if not prior.collapsed:
        return prior.empty, factor * block.rows * block.cols * prior.active
    block_rows = layer.map_row // layer.pool_row if block.rows == layer.pool_row else 1
    block_cols = layer.map_col // layer.pool_col if block.cols == layer.pool_col else 1
    empty = counts[block.group, -1]
    return empty - 1.0, factor * (1.0 + block_rows * block_cols - empty)


@subkernel()
def visit_block(block, z, w, atom, uniform, constants, work):
    """Redraw a block of maps z, w (block_row, block_col), and update counts, residual and correlations.

    Returns whether any of these changed.
    """
    layer, outcomes, (i, j) = constants.layer, work.outcomes, (block.i, block.j)
    old, old_w = z[i, j], w[i, j]
    old_row, old_col = place_in_map(i, j, old, layer)
    reach_row, reach_col = atom.lags.shape[0] // 2, atom.lags.shape[1] // 3 - 1
    work.counts[block.group, old] -= 1
    empty, t = prior_weights(block, work.counts, layer, constants.prior, outcomes.weight), 0
    for row in range(block.row, block.row + block.rows):
        for col in range(block.col, block.col + block.cols):
            c = np.float64(work.correlations[row * (layer.width // layer.planes) + col])
            if old >= 0 and abs(row - old_row) <= reach_row and abs(col - old_col) <= reach_col:
                c += old_w * atom.lags[row - old_row + reach_row, col - old_col + reach_col]
            set_outcome(outcomes, t, c, atom.slab)
            t += 1
    new, weight = draw_block(block, outcomes, empty, layer, uniform, work.stream)
    z[i, j], w[i, j] = new, weight
    work.counts[block.group, new] += 1
    delta = w[i, j]  # as stored: the residual must agree with the state to rounding
    if old == new:
        delta -= old_w
    elif old >= 0:
        add_weight(block, old, -old_w, atom, constants, work)
    if new >= 0:
        add_weight(block, new, delta, atom, constants, work)
    return old >= 0 or new >= 0


@subkernel()
def add_weight(block, position, weight, atom, constants, work):
    """Add a weight at a position of a block: update the residual, and the correlations from the block's rows on."""
    layer, static = constants.layer, constants.static
    row, col = place_in_map(block.i, block.j, position, layer)
    add_atom(work.residual, window_start(row, col, layer), atom.k, -weight, layer, static)
    shift_correlations(work.correlations, atom.lags, row, col, weight, block.row, layer, static)


@subkernel()
def visit_masked_block(block, z, w, atom, uniform, constants, work):
    """`visit_block` under a mask."""
    layer, static, outcomes, residual = constants.layer, constants.static, work.outcomes, work.residual
    (i, j), width = (block.i, block.j), layer.length // layer.planes
    old = z[i, j]
    bottom, left, right = 0, layer.map_col, 0  # edges of the correlations that change
    if old >= 0:
        row, col = place_in_map(i, j, old, layer)
        add_where_observed(residual, atom.mask, window_start(row, col, layer), atom.k, w[i, j], layer, static)
        bottom, left, right = row + layer.height, col - width + 1, col + width
    work.counts[block.group, old] -= 1
    empty, t = prior_weights(block, work.counts, layer, constants.prior, outcomes.weight), 0
    for row in range(block.row, block.row + block.rows):
        for col in range(block.col, block.col + block.cols):
            c = np.float64(dot_atom(residual, window_start(row, col, layer), atom.k, layer, static))
            norm = np.float64(atom.norms[row * (layer.width // layer.planes) + col])
            set_outcome(outcomes, t, c, slab_of(atom.gamma_e, norm, constants.prior.gamma_w))
            t += 1
    new, weight = draw_block(block, outcomes, empty, layer, uniform, work.stream)
    z[i, j], w[i, j] = new, weight
    work.counts[block.group, new] += 1
    if new >= 0:
        row, col = place_in_map(i, j, new, layer)
        add_where_observed(residual, atom.mask, window_start(row, col, layer), atom.k, -w[i, j], layer, static)
        bottom, left, right = max(bottom, row + layer.height), min(left, col - width + 1), max(right, col + width)
    rows, cols = (block.row, min(bottom, layer.map_row)), (max(left, 0), min(right, layer.map_col))
    correlate_part(atom.k, rows, cols, layer, static, work)
    scale_correlations(atom, rows, cols, constants, work)
    return old >= 0 or new >= 0


@subkernel()
def scale_correlations(atom, rows, cols, constants, work):
    """Scale a range of rows and columns of the correlations so that their squares are gains."""
    dtype, columns = work.correlations.dtype.type, constants.layer.width // constants.layer.planes
    gamma_e, gamma_w, two = dtype(atom.gamma_e), dtype(constants.prior.gamma_w), dtype(2.0)
    for i in range(rows[0], rows[1]):
        first, last = i * columns + cols[0], i * columns + cols[1]
        correlations, norms = work.correlations[first:last], atom.norms[first:last]
        for p in range(len(correlations)):
            correlations[p] *= gamma_e / np.sqrt(two * (gamma_e * max(norms[p], dtype(0.0)) + gamma_w))


@subkernel()
def masked_bound(atom, constants):
    """`Bound` for scaled correlations, with a margin for rounding, as a visit computes them in another order."""
    smallest, layer = np.inf, constants.layer
    for i in range(layer.map_row):
        for j in range(layer.map_col):
            smallest = min(smallest, np.float64(atom.norms[i * (layer.width // layer.planes) + j]))
    return Bound(1.001, 1e-4, slab_of(atom.gamma_e, max(0.0, smallest), constants.prior.gamma_w).factor)


# One image


@subkernel()
def initialise_image(n, images, mask, constants, work):
    """Compute an image's residual in ``work``; draw its noise precision if it varies by image. Returns gamma_e."""
    image, prior, gamma_e, observed = images.pixels[n], constants.prior, images.gamma_e, images.pixels.shape[1]
    count = list_active(images.z[n], images.w[n], constants.layer, work.active)
    fill_residual(image, mask, work.active, count, constants.layer, constants.static, work.residual)
    if prior.noise_drawn:
        if mask.size > 0:
            observed = 0
            for p in range(mask.size):
                observed += mask[p] > 0
        energy = energy_of(work.residual, constants.layer.width)
        gamma_e[n] = draw_noise(prior.noise_shape, prior.noise_rate, observed, energy, work.stream)
    return gamma_e[n if gamma_e.size > 1 else 0]


@subkernel()
def update_image(n, images, lags, constants, work, sums, chunk):
    """One image of `pass_unmasked`."""
    layer, static, z, w = constants.layer, constants.static, images.z[n], images.w[n]
    gamma_e = initialise_image(n, images, images.pixels[n, :0], constants, work)
    for k in range(z.shape[0]):
        correlate(work.residual, layer.dictionary, k, layer, static, work.correlations)
        count_outcomes(z[k], layer, work.counts)
        norm = lags[k, lags.shape[1] // 2, lags.shape[2] // 3 - 1]  # the autocorrelation at lag 0
        atom = UnmaskedAtom(k, lags[k], slab_of(gamma_e, norm, constants.prior.gamma_w))
        bound = Bound(ROUNDING_MARGIN * atom.slab.gain, 0.0, atom.slab.factor)
        sweep_map(z[k], w[k], atom, None, bound, constants, work)
        if constants.prior.collapsed:
            sums.log_counts[chunk] += log_counts(work.counts, layer, 1)
    count = list_active(z, w, layer, work.active)
    add_sums(images.pixels[n], count, gamma_e, constants, work, sums, chunk)


@subkernel()
def update_masked_image(n, images, squares, constants, work, norms, sums, chunk):
    """One image of `pass_masked`."""
    layer, static, z, w, mask = constants.layer, constants.static, images.z[n], images.w[n], images.masks[n]
    gamma_e = initialise_image(n, images, mask, constants, work)
    rows, cols = (0, layer.map_row), (0, layer.map_col)
    for k in range(z.shape[0]):
        correlate(mask, squares, k, layer, static, norms)
        count_outcomes(z[k], layer, work.counts)
        atom = MaskedAtom(k, mask, norms, gamma_e)
        correlate(work.residual, layer.dictionary, k, layer, static, work.correlations)
        scale_correlations(atom, rows, cols, constants, work)
        sweep_map(z[k], w[k], None, atom, masked_bound(atom, constants), constants, work)
        if constants.prior.collapsed:
            sums.log_counts[chunk] += log_counts(work.counts, layer, 1)
    count = list_active(z, w, layer, work.active)
    images.pixels[n] = work.residual
    add_sums(images.pixels[n], count, gamma_e, constants, work, sums, chunk)


# All images


class LayerConstants(NamedTuple):
    """Sizes, dictionary and priors of a layer, constant during a pass."""

    layer: Layer
    prior: Prior
    static: Static


@kernel()
def pass_unmasked(images, lags, constants, key, sums):
    """Redraw the local part of a batch of images; each chunk has an accumulator.

    Changes ``sums``, and z, w and gamma_e of ``images``.

    Parameters
    ----------
    images : `ImageArrays`
    lags : (atom, 2 atom_row - 1, 3 atom_col), autocorrelations padded with zeros
    constants : `LayerConstants`
    key : (seed, stage, layer, sweep)
    sums : `Sums` with a leading axis of accumulators
    """
    images, lags, constants, sums = borrowed((images, lags, constants, sums))
    work = make_work(images.z[0], images.pixels[0], constants.layer)
    for n in range(len(images.pixels)):
        fill_key(work.stream, key, images.first + n)
        update_image(n, images, lags, constants, work, sums, n // CHUNK)


@kernel()
def pass_masked(images, squares, constants, key, sums):
    """`pass_unmasked` for images with hidden pixels. Overwrites the pixels of ``images`` by the residuals.

    squares : (atom * atom_row * atom_col * plane,), the dictionary's entries squared
    """
    images, squares, constants, sums = borrowed((images, squares, constants, sums))
    work = make_work(images.z[0], images.pixels[0], constants.layer)
    norms = np.zeros_like(work.correlations)
    for n in range(len(images.pixels)):
        fill_key(work.stream, key, images.first + n)
        update_masked_image(n, images, squares, constants, work, norms, sums, n // CHUNK)
