"""The image pass, compiled: for every image new noise precision, new positions and weights, and its part of the sums.

`pass_whole` serves fully observed images whose noise precision does not depend on the plane: inside an atom's map the
correlations are kept current through the atom's autocorrelation. `gdd.sampler.kernels.weighted_kernels` serves the rest
(missing pixels, a precision per plane) and reads every correlation off the residual.

Images are independent given the shared part. A chunk of images fills one slot of the sums, in double precision and in
index order; the slots are added in order outside. So neither the number of threads nor that of workers changes a bit.

Inside a kernel the plane is the last axis: images (image, row, col, plane), atoms (atom, atom_row, atom_col, plane).
Sizes that matter for speed arrive as tuples whose *length* is the size, because the length is known at compile time.

*Checked:* tests/test_kernels.py (same chain as the plain conditionals from the same random numbers).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import FAST, INNER, kernel
from gdd.sampler.kernels.image_sums import add_energies, add_sums, count_outcomes, energy_of, list_active, log_counts
from gdd.sampler.kernels.kernels_math import (
    LANES,
    column_peaks,
    copy_plane,
    correlate_flat,
    correlate_planes,
    pick,
    place_atom,
    shift_flat,
)
from gdd.sampler.kernels.register_tiles import correlate_tiles, fits_tiles
from gdd.sampler.random import WORDS, fill_stream, next_gamma, next_normal, next_uniform

CHUNK = 64
SAFE_EXPONENT = 80.0
#: makes up for the rounding of squares in single precision where a bound is wanted
SLACK = 1.0 + 1e-5


@kernel(**INNER)
def fill_key(stream, key, image):
    """Start a stream at key = (seed, stage, layer, sweep) and one image."""
    fill_stream(stream, key[0], key[1], key[2], key[3], image)


@kernel(**INNER)
def choose(gains, shift, weights, empty, total_weight, positions, uniform, step):
    """Pick an outcome by inverse cumulative weight: empty first, then positions. -1 for empty.

    ``gains`` are exponents c^2 / (2 lambda); each position counts weight * step * exp(gain - shift), empty counts
    empty * exp(-shift). If an upper bound on the positions already decides for empty, nothing else is computed.
    """
    if shift < SAFE_EXPONENT and uniform * (empty + total_weight * step * math.exp(shift)) < empty:
        return -1
    none = empty * math.exp(-shift)
    total = none
    for t in range(positions):
        gains[t] = weights[t] * step * math.exp(gains[t] - shift)
        total += gains[t]
    return pick(gains[:positions], none, uniform * total)


@kernel(**INNER)
def surely_empty(gain, empty, others, uniform):
    """Whether a draw falls on empty, as far as a bound without an exponential can tell: exp(-g) >= (1 - g / 16)^16.

    ``gain`` is the largest exponent of the block, ``others`` the weights of all its positions together, with the step.
    """
    base = 1.0 - gain / 16.0
    if base <= 0.0:
        return False
    base *= base
    base *= base
    base *= base
    base *= base
    return uniform * (empty * base + others) < empty * base


@kernel(**INNER, fastmath=FAST)
def visit_block(i, j, z, w, left, atom, lags, out, layout, prior, counts, gammas, scratch, taps, uniform, stream):
    """Draw one block. Changes z, w, left, out (this block's rows and below), counts, scratch, stream."""
    map_row, map_col, pool_row, pool_col, planes, width = layout
    gains, weights, products = scratch
    gamma_e, gamma_w = gammas
    top, first = i * pool_row, j * pool_col
    rows, cols = min(pool_row, map_row - top), min(pool_col, map_col - first)
    group = 2 * (rows < pool_row) + (cols < pool_col)
    centre_row, centre_col = lags.shape[0] // 2, lags.shape[1] // 3 - 1
    precision = gamma_e * lags[centre_row, centre_col] + gamma_w
    half = gamma_e * gamma_e / (2.0 * precision)
    none = counts.shape[1] - 1
    old, old_w = z[i, j], w[i, j]
    old_i, old_j = top + old // pool_col, first + old % pool_col
    counts[group, old if old >= 0 else none] -= 1
    alpha, empty = prior[0], prior[1]
    if prior[2] > 0.0:
        alpha = 1.0 / (rows * cols + 1)
        empty = alpha + counts[group, none]
    largest, total_weight, t = 0.0, 0.0, 0
    for a in range(rows):
        for b in range(cols):
            c = np.float64(out[(top + a) * width + first + b])
            if old >= 0:
                lag_i, lag_j = top + a - old_i, first + b - old_j
                if abs(lag_i) <= centre_row and abs(lag_j) <= centre_col:
                    c += old_w * lags[lag_i + centre_row, lag_j + centre_col]
            products[t] = c
            gains[t] = half * c * c
            largest = max(largest, gains[t])
            weights[t] = alpha + prior[2] * counts[group, a * pool_col + b]
            total_weight += weights[t]
            t += 1
    t = choose(gains, largest, weights, empty, total_weight, t, uniform, math.sqrt(gamma_w / precision))
    m = -1
    if t >= 0:
        m = (t // cols) * pool_col + t % cols
        w[i, j] = gamma_e * products[t] / precision + next_normal(stream) / math.sqrt(precision)
    else:
        w[i, j] = 0.0
    z[i, j] = m
    counts[group, m if m >= 0 else none] += 1
    change = w[i, j]  # as stored: the residual must agree with the state to rounding
    if old == m:
        change -= old_w
    elif old >= 0:
        place_atom(left, atom, old_i, old_j, -old_w, taps, planes)
        shift_flat(out, width, lags, old_i, old_j, -old_w, top, map_row, taps)
    if m >= 0:
        new_i, new_j = top + m // pool_col, first + m % pool_col
        place_atom(left, atom, new_i, new_j, change, taps, planes)
        shift_flat(out, width, lags, new_i, new_j, change, top, map_row, taps)
    return old >= 0 or m >= 0


@kernel(**INNER, fastmath=FAST)
def sweep_map(z, w, left, atom, lags, out, layout, prior, counts, gammas, scratch, peaks, taps, stream):
    """Visit every block of one map, whose correlations are in ``out``. Changes all but atom, lags and the settings.

    Most blocks are empty and stay so. A bound on their gains, from the largest correlation of each column, mostly shows
    it; the rest goes to `visit_block`.

    layout = (map_row, map_col, pool_row, pool_col, plane, image columns); prior = (active, empty, counting);
    gammas = (gamma_e, gamma_w); lags (lag_row, 3 atom_col), see `shift_flat`
    """
    map_row, map_col, pool_row, pool_col, _, width = layout
    precision = gammas[0] * lags[lags.shape[0] // 2, lags.shape[1] // 3 - 1] + gammas[1]
    step = math.sqrt(gammas[1] / precision)
    half = SLACK * gammas[0] * gammas[0] / (2.0 * precision)
    full = map_col // pool_col  # blocks in a row that are not cut
    for i in range(z.shape[0]):
        rows = min(pool_row, map_row - i * pool_row)
        below = out[i * pool_row * width :]
        column_peaks(below, width, rows, peaks)
        empty, others = idle_weights(counts, layout, prior, rows, pool_col, step)
        for j in range(z.shape[1]):
            first, last = j * pool_col, min((j + 1) * pool_col, map_col)
            if j == full:
                empty, others = idle_weights(counts, layout, prior, rows, last - first, step)
            uniform = next_uniform(stream)
            if z[i, j] < 0:
                peak = peaks[first]
                for b in range(first + 1, last):
                    peak = max(peak, peaks[b])
                if surely_empty(half * peak, empty, others, uniform):
                    continue
            if visit_block(
                i, j, z, w, left, atom, lags, out, layout, prior, counts, gammas, scratch, taps, uniform, stream
            ):
                column_peaks(below, width, rows, peaks)
                empty, others = idle_weights(counts, layout, prior, rows, last - first, step)


@kernel(**INNER)
def idle_weights(counts, layout, prior, rows, cols, step):
    """Weight of empty, at least, and of all positions together, at most, for empty blocks of this shape.

    With theta integrated out the block itself does not count. The bound has room: alpha, below 1, is left out of the
    first, and all positions' alphas, below 1 together, are made 1 in the second.
    """
    if prior[2] == 0.0:
        return prior[1], step * rows * cols * prior[0]
    map_row, map_col, pool_row, pool_col, _, _ = layout
    down = map_row // pool_row if rows == pool_row else 1
    along = map_col // pool_col if cols == pool_col else 1
    empty = counts[2 * (rows < pool_row) + (cols < pool_col), counts.shape[1] - 1]
    return empty - 1.0, step * (1.0 + down * along - empty)


@kernel(**INNER)
def draw_noise(prior, pixels, energy, stream):
    """gamma_e of one image given its residual's energy. prior = (shape, rate)."""
    return next_gamma(stream, prior[0] + 0.5 * pixels) / (prior[1] + 0.5 * energy)


@kernel(**INNER, fastmath=FAST)
def whole_image(
    n, image, z, w, gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, work, pairs, cross, per_atom, energy,
    stream,
):  # fmt: skip
    """One image of `pass_whole`. Changes z, w, gamma_e[n], the sums and the scratch arrays in ``work``."""
    left, out, counts, scratch, entries, weights, near, peaks = work
    map_row, map_col, _, _, planes, width = layout
    copy_plane(image, left)
    found = list_active(z, w, layout[2:4], entries, weights)
    for e in range(found):
        atom = atoms[entries[e, 0]]
        place_atom(left, atom, entries[e, 1], entries[e, 2], w.dtype.type(weights[e]), taps, planes)
    if noise[2] > 0.0:
        gamma_e[n] = draw_noise(noise, image.size, energy_of(left), stream)
    precision = np.float64(gamma_e[n if gamma_e.size > 1 else 0])
    for k in range(z.shape[0]):
        if fits_tiles(atoms[k], map_row, width, taps):
            correlate_tiles(left.reshape(left.size), atoms[k], out, map_row, map_col, width, taps)
        elif len(taps) > 0:
            correlate_flat(left.reshape(left.size), atoms[k], out, (map_row - 1) * width + map_col, width, taps)
        else:
            correlate_planes(left, atoms[k], out[: map_row * width].reshape(map_row, width)[:, :map_col], planes)
        count_outcomes(z[k], layout[0:2], layout[2:4], counts)
        gammas = (precision, gamma_w[k])
        sweep_map(z[k], w[k], left, atoms[k], lags[k], out, layout, prior, counts, gammas, scratch, peaks, taps, stream)
        if prior[2] > 0.0:
            energy[3] += log_counts(counts, layout)
    found = list_active(z, w, layout[2:4], entries, weights)
    weight = precision if noise[3] > 0.0 else 1.0
    add_sums(entries, weights, found, image, weight, planes, near, pairs, cross)
    add_energies(entries, weights, found, energy_of(left), weight, precision, per_atom, energy)


@kernel(parallel=True, nogil=True)
def pass_whole(images, z, w, gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, key, first, sums):
    """Update images ``first``... in chunks, one slot of the sums each. Changes z, w, gamma_e and ``sums``.

    Parameters
    ----------
    images : (image, row, col * plane)        z, w : (image, atom, block_row, block_col)
    gamma_e : (image,) or (1,)                atoms : (atom, atom_row, atom_col * plane)
    lags : (atom, 2 atom_row - 1, 3 atom_col), each atom's autocorrelation summed over planes, then zeros
    gamma_w : (atom,)                         layout, prior : see `sweep_map`
    noise : (shape, rate, 1 to draw gamma_e per image else 0, 1 if it has an image axis else 0)
    taps : tuple of atom_col zeros for one plane, empty for more
    key : (seed, stage, layer, sweep)         first : index of the first image
    sums : pairs, cross, per_atom, energy, each with a leading chunk axis
    """
    pairs, cross, per_atom, energy = sums
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    positions = layout[2] * layout[3]
    for chunk in prange(pairs.shape[0]):
        work = (
            np.zeros(images[0].size + lags.shape[2], images.dtype)[: images[0].size].reshape(images.shape[1:]),
            np.zeros(layout[0] * layout[5] + lags.shape[2], images.dtype),
            np.empty((4, positions + 1), np.int64),
            (np.empty(positions), np.empty(positions), np.empty(positions)),
            np.empty((blocks, 3), np.int64),
            np.empty(blocks),
            np.empty(blocks, np.int64),
            np.empty(-(-layout[1] // LANES) * LANES, images.dtype),
        )
        stream = np.empty(WORDS, np.uint64)
        for n in range(first + chunk * CHUNK, min(first + (chunk + 1) * CHUNK, images.shape[0])):
            fill_key(stream, key, n)
            whole_image(
                n, images[n], z[n], w[n], gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, work,
                pairs[chunk], cross[chunk], per_atom[chunk], energy[chunk], stream,
            )  # fmt: skip
