"""The image pass, compiled: for every image new noise precision, new positions and weights, and its part of the sums.

`pass_whole` serves fully observed images whose noise precision does not depend on the plane: inside an atom's map the
correlations are kept current through the atom's autocorrelation. `gdd.sampler.weighted_kernels` serves the rest
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
from numba import njit, prange

from gdd.sampler.random import WORDS, fill_stream, next_gamma, next_normal, next_uniform

FAST = {"reassoc", "contract", "nsz", "arcp"}  # lets sums of products use vector registers; keeps NaN and inf honest
CHUNK = 64
SAFE_EXPONENT = 80.0


@njit(cache=True)
def fill_key(stream, key, image):
    """Start a stream at key = (seed, stage, layer, sweep) and one image."""
    fill_stream(stream, key[0], key[1], key[2], key[3], image)


@njit(cache=True, fastmath=FAST)
def subtract_atom(left, atom, row, col, weight):
    """Left -= weight * atom placed at (row, col). Changes ``left`` (row, col * plane)."""
    for a in range(atom.shape[0]):
        here = left[row + a, col : col + atom.shape[1]]
        line = atom[a]
        for t in range(atom.shape[1]):
            here[t] -= weight * line[t]


@njit(cache=True, fastmath=FAST)
def correlate_plane(left, atom, out, taps, columns):
    """Inner products of a one-plane atom with every window of ``left``. Changes ``out`` (row, padded col)."""
    for i in range(out.shape[0]):
        line = out[i]
        for j in range(len(columns)):
            line[j] = 0.0
        for a in range(atom.shape[0]):
            here, tap = left[i + a], atom[a]
            for j in range(len(columns)):
                total = line[j]
                for b in range(len(taps)):
                    total += tap[b] * here[j + b]
                line[j] = total


@njit(cache=True, fastmath=FAST)
def correlate_planes(left, atom, out, planes):
    """Inner products of an atom of many planes with every window, two by two. Changes ``out``."""
    rows, columns = out.shape
    length = atom.shape[1]
    for i in range(0, rows - 1, 2):
        for j in range(0, columns - 1, 2):
            c00 = left[0, 0] * 0
            c01, c10, c11 = c00, c00, c00
            start = j * planes
            for a in range(atom.shape[0]):
                line = atom[a]
                l00 = left[i + a, start : start + length]
                l01 = left[i + a, start + planes : start + planes + length]
                l10 = left[i + a + 1, start : start + length]
                l11 = left[i + a + 1, start + planes : start + planes + length]
                for t in range(length):
                    c00 += line[t] * l00[t]
                    c01 += line[t] * l01[t]
                    c10 += line[t] * l10[t]
                    c11 += line[t] * l11[t]
            out[i, j], out[i, j + 1], out[i + 1, j], out[i + 1, j + 1] = c00, c01, c10, c11
    if columns % 2:
        for i in range(rows):
            out[i, columns - 1] = window_product(left, atom, i, (columns - 1) * planes)
    if rows % 2:
        for j in range(columns):
            out[rows - 1, j] = window_product(left, atom, rows - 1, j * planes)


@njit(cache=True, fastmath=FAST)
def window_product(left, atom, row, col):
    """Inner product of an atom with the window of ``left`` at (row, col * plane)."""
    total = left[0, 0] * 0
    for a in range(atom.shape[0]):
        line = atom[a]
        here = left[row + a, col : col + atom.shape[1]]
        for t in range(atom.shape[1]):
            total += line[t] * here[t]
    return total


@njit(cache=True, fastmath=FAST)
def shift_map(out, lags, row, col, weight, first_row, columns):
    """Change correlations for a weight added at (row, col): out -= weight * autocorrelation. Changes ``out``."""
    h, w = lags.shape[0] // 2, lags.shape[1] // 2
    start, stop = max(0, col - w), min(columns, col + w + 1)
    for i in range(max(first_row, row - h), min(out.shape[0], row + h + 1)):
        lag = lags[i - row + h, start - col + w : stop - col + w]
        here = out[i, start:stop]
        for j in range(stop - start):
            here[j] -= weight * lag[j]


@njit(cache=True)
def list_active(z, w, pool, entries, weights):
    """Active positions of one image, atom by atom. Changes ``entries`` (entry, atom/row/col) and ``weights``."""
    found = 0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                m = z[k, i, j]
                if m >= 0:
                    entries[found, 0] = k
                    entries[found, 1] = i * pool[0] + m // pool[1]
                    entries[found, 2] = j * pool[1] + m % pool[1]
                    weights[found] = w[k, i, j]
                    found += 1
    return found


@njit(cache=True)
def count_outcomes(z, map_size, pool, counts):
    """Outcomes of one map by block shape. Changes ``counts`` (4, positions + 1); last column: empty blocks."""
    counts[:] = 0
    for i in range(z.shape[0]):
        low = 2 * ((i + 1) * pool[0] > map_size[0])
        for j in range(z.shape[1]):
            group = low + ((j + 1) * pool[1] > map_size[1])
            m = z[i, j]
            counts[group, m if m >= 0 else counts.shape[1] - 1] += 1


@njit(cache=True)
def log_counts(counts, layout):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's block shapes and outcomes."""
    total = 0.0
    for group in range(4):
        rows = layout[0] % layout[2] if group >= 2 else layout[2]
        cols = layout[1] % layout[3] if group % 2 else layout[3]
        alpha = 1.0 / (rows * cols + 1)
        base = math.lgamma(alpha)
        for outcome in range(counts.shape[1]):
            if counts[group, outcome] > 0:
                total += math.lgamma(alpha + counts[group, outcome]) - base
    return total


@njit(cache=True)
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
    target = uniform * total
    total = none
    if target < total:
        return -1
    last = -1
    for t in range(positions):
        if gains[t] > 0.0:
            last = t
            total += gains[t]
            if target < total:
                return t
    return last


@njit(cache=True, fastmath=FAST)
def sweep_map(k, z, w, left, atom, lags, out, columns, layout, prior, counts, gamma_e, gamma_w, scratch, stream):
    """Visit every block of one map. ``out`` holds its correlations. Changes z, w, left, out, counts, scratch, stream.

    layout = (map_row, map_col, pool_row, pool_col, plane); prior = (active, empty, counting)
    """
    map_row, map_col, pool_row, pool_col, planes = layout
    gains, weights = scratch[0], scratch[1]
    centre_row, centre_col = lags.shape[0] // 2, lags.shape[1] // 2
    precision = gamma_e * lags[centre_row, centre_col] + gamma_w
    step = math.sqrt(gamma_w / precision)
    half = gamma_e * gamma_e / (2.0 * precision)
    none = counts.shape[1] - 1
    for i in range(z.shape[0]):
        rows = min(pool_row, map_row - i * pool_row)
        for j in range(z.shape[1]):
            cols = min(pool_col, map_col - j * pool_col)
            group = 2 * (rows < pool_row) + (cols < pool_col)
            old, old_w = z[i, j], w[i, j]
            old_i = i * pool_row + old // pool_col
            old_j = j * pool_col + old % pool_col
            counts[group, old if old >= 0 else none] -= 1
            alpha, empty = prior[0], prior[1]
            if prior[2] > 0.0:
                alpha = 1.0 / (rows * cols + 1)
                empty = alpha + counts[group, none]
            largest = 0.0
            total_weight = 0.0
            t = 0
            for a in range(rows):
                for b in range(cols):
                    c = np.float64(out[i * pool_row + a, j * pool_col + b])
                    if old >= 0:
                        lag_i, lag_j = i * pool_row + a - old_i, j * pool_col + b - old_j
                        if abs(lag_i) <= centre_row and abs(lag_j) <= centre_col:
                            c += old_w * lags[lag_i + centre_row, lag_j + centre_col]
                    gains[t] = half * c * c
                    scratch[2, t] = c
                    largest = max(largest, gains[t])
                    weights[t] = alpha + prior[2] * counts[group, a * pool_col + b]
                    total_weight += weights[t]
                    t += 1
            t = choose(gains, largest, weights, empty, total_weight, t, next_uniform(stream), step)
            if t < 0:
                z[i, j], w[i, j] = -1, 0.0
                counts[group, none] += 1
                if old >= 0:
                    subtract_atom(left, atom, old_i, old_j * planes, -old_w)
                    shift_map(out, lags, old_i, old_j, -old_w, i * pool_row, columns)
                continue
            m = (t // cols) * pool_col + t % cols
            value = gamma_e * scratch[2, t] / precision + next_normal(stream) / math.sqrt(precision)
            counts[group, m] += 1
            new_i, new_j = i * pool_row + m // pool_col, j * pool_col + m % pool_col
            z[i, j], w[i, j] = m, value
            value = w[i, j]  # as stored: the residual must agree with the state to rounding
            if old == m:
                value -= old_w
            elif old >= 0:
                subtract_atom(left, atom, old_i, old_j * planes, -old_w)
                shift_map(out, lags, old_i, old_j, -old_w, i * pool_row, columns)
            subtract_atom(left, atom, new_i, new_j * planes, value)
            shift_map(out, lags, new_i, new_j, value, i * pool_row, columns)


@njit(cache=True)
def add_sums(entries, weights, found, image, gamma_e, planes, pairs, cross):
    """Add one image to the sums that the dictionary is drawn from. Changes ``pairs`` and ``cross``.

    pairs (atom, atom, lag_row, lag_col): gamma_e * sum of S_k(u) S_k'(u - lag), filled for k <= k' in list order
    cross (atom, atom_row, atom_col * plane): gamma_e * correlation of the image with S_k
    """
    h, w = pairs.shape[2] // 2, pairs.shape[3] // 2
    for e in range(found):
        k, i, j = entries[e, 0], entries[e, 1], entries[e, 2]
        scaled = gamma_e * weights[e]
        for a in range(cross.shape[1]):
            here = image[i + a, j * planes : j * planes + cross.shape[2]]
            line = cross[k, a]
            for t in range(cross.shape[2]):
                line[t] += scaled * here[t]
        pairs[k, k, h, w] += scaled * weights[e]
        for f in range(e + 1, found):
            lag_i, lag_j = i - entries[f, 1], j - entries[f, 2]
            if abs(lag_i) <= h and abs(lag_j) <= w:
                product = scaled * weights[f]
                pairs[k, entries[f, 0], h + lag_i, w + lag_j] += product
                if entries[f, 0] == k:
                    pairs[k, k, h - lag_i, w - lag_j] += product


@njit(cache=True)
def draw_noise(prior, pixels, energy, stream):
    """gamma_e of one image given its residual's energy. prior = (shape, rate)."""
    return next_gamma(stream, prior[0] + 0.5 * pixels) / (prior[1] + 0.5 * energy)


@njit(cache=True, fastmath=FAST)
def whole_image(
    n, image, z, w, gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, columns, work, pairs, cross, per_atom,
    energy, stream,
):  # fmt: skip
    """One image of `pass_whole`. Changes z, w, gamma_e[n], the sums and the scratch arrays in ``work``."""
    left, out, counts, scratch, entries, weights = work
    planes = layout[4]
    width = image.shape[1]
    left[:, :] = 0.0
    left[:, :width] = image
    found = list_active(z, w, layout[2:4], entries, weights)
    for e in range(found):
        subtract_atom(left, atoms[entries[e, 0]], entries[e, 1], entries[e, 2] * planes, w.dtype.type(weights[e]))
    if noise[2] > 0.0:
        before = 0.0
        for i in range(image.shape[0]):
            for j in range(width):
                before += np.float64(left[i, j]) ** 2
        gamma_e[n] = draw_noise(noise, image.size, before, stream)
    precision = np.float64(gamma_e[n if gamma_e.size > 1 else 0])
    for k in range(z.shape[0]):
        if len(taps) > 0:
            correlate_plane(left, atoms[k], out, taps, columns)
        else:
            correlate_planes(left, atoms[k], out, planes)
        count_outcomes(z[k], layout[0:2], layout[2:4], counts)
        sweep_map(
            k, z[k], w[k], left, atoms[k], lags[k], out, layout[1], layout, prior, counts, precision,
            gamma_w[k], scratch, stream,
        )  # fmt: skip
        if prior[2] > 0.0:
            energy[3] += log_counts(counts, layout)
    found = list_active(z, w, layout[2:4], entries, weights)
    weight = precision if noise[3] > 0.0 else 1.0
    add_sums(entries, weights, found, image, weight, planes, pairs, cross)
    after = 0.0
    for i in range(image.shape[0]):
        for j in range(width):
            after += np.float64(left[i, j]) ** 2
    for e in range(found):
        per_atom[0, entries[e, 0]] += 1.0
        per_atom[1, entries[e, 0]] += weights[e] * weights[e]
    energy[0] += after
    energy[1] += weight * after
    energy[2] += math.log(precision)


@njit(cache=True, parallel=True)
def pass_whole(images, z, w, gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, columns, key, first, sums):
    """Update images ``first``... in chunks, one slot of the sums each. Changes z, w, gamma_e and ``sums``.

    Parameters
    ----------
    images : (image, row, col * plane)        z, w : (image, atom, block_row, block_col)
    gamma_e : (image,) or (1,)                atoms : (atom, atom_row, atom_col * plane)
    lags : (atom, 2 atom_row - 1, 2 atom_col - 1), each atom's autocorrelation summed over planes
    gamma_w : (atom,)                         layout, prior : see `sweep_map`
    noise : (shape, rate, 1 to draw gamma_e per image else 0, 1 if it has an image axis else 0)
    taps, columns : tuples of as many zeros as an atom has columns, and as a map has (padded to a multiple of 8); empty
        for more planes than one or narrow atoms
    key : (seed, stage, layer, sweep)         first : index of the first image
    sums : pairs, cross, per_atom, energy, each with a leading chunk axis
    """
    pairs, cross, per_atom, energy = sums
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    for chunk in prange(pairs.shape[0]):
        padded = layout[1]
        if len(taps) > 0:
            padded = len(columns)
        work = (
            np.empty((images.shape[1], (padded + atoms.shape[2] // layout[4] - 1) * layout[4]), images.dtype),
            np.empty((layout[0], padded), images.dtype),
            np.empty((4, layout[2] * layout[3] + 1), np.int64),
            np.empty((3, layout[2] * layout[3])),
            np.empty((blocks, 3), np.int64),
            np.empty(blocks),
        )
        stream = np.empty(WORDS, np.uint64)
        for n in range(first + chunk * CHUNK, min(first + (chunk + 1) * CHUNK, images.shape[0])):
            fill_key(stream, key, n)
            whole_image(
                n, images[n], z[n], w[n], gamma_e, atoms, lags, gamma_w, layout, prior, noise, taps, columns, work,
                pairs[chunk], cross[chunk], per_atom[chunk], energy[chunk], stream,
            )  # fmt: skip
