"""Compiled parts of the shift move: sums for the strip that enters an atom, a scored pass over an atom's positions.

Everything is double precision except the stored weights. An image's numbers depend on that image alone, and sums over
images are taken chunk by chunk in order, so the number of threads changes no bit.

Inside, the plane is the last axis, as in `gdd.sampler.kernels.layer`.

*Checked:* tests/test_moves.py (densities equal those of the plain conditionals; log joint terms; threads).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import FAST, INNER, kernel
from gdd.sampler.kernels.image_sums import count_outcomes, list_active, log_counts
from gdd.sampler.kernels.kernels_math import copy_plane, correlate_planes, pick, shift_map, subtract_atom
from gdd.sampler.kernels.layer import CHUNK, fill_key
from gdd.sampler.random import WORDS, next_normal, next_uniform

LOG_TWO_PI = math.log(2 * math.pi)


@kernel(**INNER)
def residual_of(image, z, w, atoms, layout, left, entries, weights):
    """Image minus all active atoms, into ``left``; returns how many. Changes left, entries, weights."""
    copy_plane(image, left)
    found = list_active(z, w, layout[2:4], entries, weights)
    for e in range(found):
        subtract_atom(left, atoms[entries[e, 0]], entries[e, 1], entries[e, 2] * layout[4], weights[e])
    return found


@kernel(parallel=True, nogil=True)
def strip_sums(images, z, w, atoms, k, gamma_e, layout, strip, lags, linear):
    """Sums for a strip of pixels beside atom k. Changes ``lags`` (chunk, 2 L - 1) and ``linear`` (chunk, L, plane).

    ``strip`` = (row, col, row step, col step): pixel l of the strip has offset (row, col) + l * step from the atom's
    first pixel, and may lie outside the atom. Positions whose strip falls outside the image do not count.
    ``atoms`` (atom, atom_row, atom_col * plane) is what the residual is taken with.
    """
    size, planes = linear.shape[1], layout[4]
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    for chunk in prange(lags.shape[0]):
        left = np.empty(images.shape[1:])
        entries, weights = np.empty((blocks, 3), np.int64), np.empty(blocks)
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, images.shape[0])):
            found = residual_of(images[n], z[n], w[n], atoms, layout, left, entries, weights)
            precision = gamma_e[n if gamma_e.size > 1 else 0]
            for e in range(found):
                row, col = entries[e, 1] + strip[0], entries[e, 2] + strip[1]
                if entries[e, 0] != k or row < 0 or col < 0:
                    continue
                if row >= left.shape[0] or col * planes >= left.shape[1]:
                    continue
                scaled = precision * weights[e]
                for t in range(size):
                    here = left[row + t * strip[2]]
                    for c in range(planes):
                        linear[chunk, t, c] += scaled * here[(col + t * strip[3]) * planes + c]
                for f in range(found):
                    down, right = entries[e, 1] - entries[f, 1], entries[e, 2] - entries[f, 2]
                    along = down * strip[2] + right * strip[3]
                    across = down * strip[3] + right * strip[2]
                    if entries[f, 0] == k and across == 0 and abs(along) < size:
                        lags[chunk, along + size - 1] += scaled * weights[f]


@kernel(**INNER)
def shift_blocks(z, w, step, layout, new_z, new_w):
    """Move the positions of one map by ``step``. Changes ``new_z``, ``new_w``.

    What leaves the map is dropped; of two that come into one block the later stays.
    """
    new_z[:, :] = -1
    new_w[:, :] = 0.0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            if z[i, j] < 0:
                continue
            row = i * layout[2] + z[i, j] // layout[3] + step[0]
            col = j * layout[3] + z[i, j] % layout[3] + step[1]
            if 0 <= row < layout[0] and 0 <= col < layout[1]:
                block_i, block_j = row // layout[2], col // layout[3]
                new_z[block_i, block_j] = (row % layout[2]) * layout[3] + col % layout[3]
                new_w[block_i, block_j] = w[i, j]


@kernel(**INNER)
def weigh_block(i, j, old, old_w, out, lags, layout, prior, counts, scaling, scratch):
    """Weights of a block's outcomes over their sum: positions into scratch[0], empty returned. Changes ``scratch``.

    scratch[1] gets the correlations without the block itself; positions that a ragged block lacks weigh 0.
    ``scaling`` = (gamma_e, lambda, sqrt(gamma_w / lambda)).
    """
    precision, slab, step = scaling
    rows, cols = min(layout[2], layout[0] - i * layout[2]), min(layout[3], layout[1] - j * layout[3])
    group, none = 2 * (rows < layout[2]) + (cols < layout[3]), counts.shape[1] - 1
    alpha, empty = prior[0], prior[1]
    if prior[2] > 0.0:
        alpha = 1.0 / (rows * cols + 1)
        empty = alpha + counts[group, none]
    reach_row, reach_col = lags.shape[0] // 2, lags.shape[1] // 2
    half, largest = precision * precision / (2.0 * slab), 0.0
    for m in range(none):
        a, b = m // layout[3], m % layout[3]
        if a < rows and b < cols:
            c = out[i * layout[2] + a, j * layout[3] + b]
            if old >= 0:
                down, right = a - old // layout[3], b - old % layout[3]
                if abs(down) <= reach_row and abs(right) <= reach_col:
                    c += old_w * lags[down + reach_row, right + reach_col]
            scratch[1, m] = c
            largest = max(largest, half * c * c)
    total = empty * math.exp(-largest)
    for m in range(none):
        scratch[0, m] = 0.0
        if m // layout[3] < rows and m % layout[3] < cols:
            weight = alpha + prior[2] * counts[group, m]
            scratch[0, m] = weight * step * math.exp(half * scratch[1, m] ** 2 - largest)
        total += scratch[0, m]
    for m in range(none):
        scratch[0, m] /= total
    return empty * math.exp(-largest) / total


@kernel(**INNER)
def scored_pass(
    z, w, target_z, target_w, drawing, left, atom, lags, out, layout, prior, counts, scaling, scratch, stream
):
    """Visit every block of one map in turn; log density of what each becomes. Changes all but the last few arguments.

    ``z``, ``w`` hold the map to start from, and in the end the targets, which are drawn if ``drawing``, else given.
    """
    score, none = 0.0, counts.shape[1] - 1
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            group = 2 * ((i + 1) * layout[2] > layout[0]) + ((j + 1) * layout[3] > layout[1])
            old, old_w = z[i, j], w[i, j]
            counts[group, old if old >= 0 else none] -= 1
            empty = weigh_block(i, j, old, old_w, out, lags, layout, prior, counts, scaling, scratch)
            if drawing:
                target_z[i, j] = pick(scratch[0], empty, next_uniform(stream))
                target_w[i, j] = 0.0
            m = target_z[i, j]
            counts[group, m if m >= 0 else none] += 1
            if m >= 0:
                mean = scaling[0] * scratch[1, m] / scaling[1]
                if drawing:
                    target_w[i, j] = mean + next_normal(stream) / math.sqrt(scaling[1])
                off = target_w[i, j] - mean
                score += math.log(scratch[0, m]) + 0.5 * (math.log(scaling[1]) - LOG_TWO_PI - scaling[1] * off * off)
            else:
                score += math.log(empty)
            z[i, j], w[i, j] = m, target_w[i, j]
            for position, weight in ((old, -old_w), (m, w[i, j])):
                if position >= 0 and not (old == m and old_w == w[i, j]):
                    row, col = i * layout[2] + position // layout[3], j * layout[3] + position % layout[3]
                    subtract_atom(left, atom, row, col * layout[4], weight)
                    shift_map(out, lags, row, col, weight, i * layout[2], layout[1])
    return score


@kernel(**INNER, fastmath=FAST)
def energy_of(left):
    """Sum of squares."""
    total = 0.0
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            total += left[i, j] * left[i, j]
    return total


@kernel(parallel=True, nogil=True)
def move_positions(
    images, z, w, target_z, target_w, drawing, atoms, atom, k, step, lags, gamma_e, gamma_w, layout, prior, key,
    score, joint,
):  # fmt: skip
    """Draw or score atom k's maps under another ``atom``. Changes target_z, target_w (if drawing), score, joint.

    Parameters
    ----------
    images : (image, row, col * plane)                  z, w : (image, atom, block_row, block_col), where it comes from
    target_z, target_w : (image, block_row, block_col)  atoms : (atom, atom_row, atom_col * plane), of the other maps
    atom : (atom_row, atom_col * plane), lags : its autocorrelation
    step : by how many pixels the old positions are moved before the pass
    score : (image,) log density of the target          joint : (image,) terms of the log joint that differ
    """
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    centre = lags[lags.shape[0] // 2, lags.shape[1] // 2]
    for chunk in prange((images.shape[0] + CHUNK - 1) // CHUNK):
        left, out = np.empty(images.shape[1:]), np.empty((layout[0], layout[1]))
        counts, scratch = np.empty((4, layout[2] * layout[3] + 1), np.int64), np.empty((2, layout[2] * layout[3]))
        entries, weights, stream = np.empty((blocks, 3), np.int64), np.empty(blocks), np.empty(WORDS, np.uint64)
        others, here_z, here_w = z[0].copy(), z[0, 0].copy(), w[0, 0].copy()
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, images.shape[0])):
            fill_key(stream, key, n)
            precision = gamma_e[n if gamma_e.size > 1 else 0]
            others[:] = z[n]
            others[k] = -1
            residual_of(images[n], others, w[n], atoms, layout, left, entries, weights)
            shift_blocks(z[n, k], w[n, k], step, layout, here_z, here_w)
            others[:] = -1
            others[0] = here_z
            for e in range(list_active(others[:1], here_w[None], layout[2:4], entries, weights)):
                subtract_atom(left, atom, entries[e, 1], entries[e, 2] * layout[4], weights[e])
            correlate_planes(left, atom, out, layout[4])
            count_outcomes(here_z, layout[0:2], layout[2:4], counts)
            slab = precision * centre + gamma_w
            scaling = (precision, slab, math.sqrt(gamma_w / slab))
            score[n] = scored_pass(
                here_z, here_w, target_z[n], target_w[n], drawing, left, atom, lags, out, layout, prior, counts,
                scaling, scratch, stream,
            )  # fmt: skip
            active, squares = 0, 0.0
            for m, value in zip(here_z.flat, here_w.flat):  # noqa: B905 - strict is not compiled
                active += m >= 0
                squares += value * value
            joint[n] = 0.5 * active * (math.log(gamma_w) - LOG_TWO_PI)
            joint[n] -= 0.5 * (gamma_w * squares + precision * energy_of(left))
            if prior[2] > 0.0:
                joint[n] += log_counts(counts, layout)
            else:
                joint[n] += active * math.log(prior[0]) + (here_z.size - active) * math.log(prior[1])
