"""The image pass and the dictionary's sums where pixels are missing or the noise precision varies by plane.

An atom's norm under the pixel weights depends on where it stands, so nothing is kept but the residual: it is zero at
hidden pixels, each block reads its correlations off it at the visit, and a change of a weight is written back at once.
The weights themselves are split: ``seen`` is 1 or 0 per pixel, and gamma_e, one number per plane, multiplies the atom.

The plane is the last axis, merged with the column: images (image, row, col * plane), atoms (atom, atom_row,
atom_col * plane). Sums are in double precision, a slot for each chunk of images, as in `gdd.sampler.kernels.layer`.

*Checked:* tests/test_weighted.py (same chain as the plain conditionals, and as `pass_whole` if all is observed).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import FAST, INNER, kernel
from gdd.sampler.kernels.image_sums import count_outcomes, list_active, log_counts
from gdd.sampler.kernels.kernels_math import LANES, correlate_plane, correlate_planes, window_product
from gdd.sampler.kernels.layer import CHUNK, choose, draw_noise, fill_key
from gdd.sampler.random import WORDS, next_normal, next_uniform


@kernel(**INNER, fastmath=FAST)
def subtract_seen(left, seen, atom, row, col, weight):
    """Left -= weight * atom placed at (row, col), where seen. Changes ``left`` (row, col * plane)."""
    for a in range(atom.shape[0]):
        here = left[row + a, col : col + atom.shape[1]]
        there = seen[row + a, col : col + atom.shape[1]]
        line = atom[a]
        for t in range(atom.shape[1]):
            here[t] -= weight * there[t] * line[t]


@kernel(**INNER, fastmath=FAST)
def product_at(left, atom, row, col, planes, taps):
    """Inner product of an atom with the window at (row, col); ``taps``: atom_col zeros for one plane, else empty."""
    if len(taps) == 0:
        return window_product(left, atom, row, col * planes)
    total = left[0, 0] * 0
    for a in range(atom.shape[0]):
        line, here = atom[a], left[row + a]
        for b in range(len(taps)):
            total += line[b] * here[col + b]
    return total


@kernel(**INNER)
def plane_energies(left, planes, out):
    """Sum of squares of each plane of a residual. Changes ``out`` (plane,)."""
    out[:] = 0.0
    for i in range(left.shape[0]):
        for j in range(left.shape[1] // planes):
            for c in range(planes):
                out[c] += np.float64(left[i, j * planes + c]) ** 2


@kernel(**INNER)
def weigh_atom(atom, gamma, scaled, squares):
    """Scale planes by their precision: gamma_c d and gamma_c d^2. Changes ``scaled`` and ``squares``."""
    planes = len(gamma)
    for a in range(atom.shape[0]):
        for t in range(atom.shape[1]):
            scaled[a, t] = gamma[t % planes] * atom[a, t]
            squares[a, t] = scaled[a, t] * atom[a, t]


@kernel(**INNER, fastmath=FAST)
def visit_map(z, w, left, seen, atom, scaled, norms, layout, prior, counts, gamma_w, scratch, taps, stream):
    """Visit every block of one map; layout and prior as in `gdd.sampler.kernels.layer.sweep_map`.

    ``norms`` holds the weighted squared norm of the atom at each position. Changes z, w, left, counts, scratch, stream.
    """
    map_row, map_col, pool_row, pool_col, planes = layout
    gains, weights, products = scratch[0], scratch[1], scratch[2]
    none = counts.shape[1] - 1
    for i in range(z.shape[0]):
        rows = min(pool_row, map_row - i * pool_row)
        for j in range(z.shape[1]):
            cols = min(pool_col, map_col - j * pool_col)
            group = 2 * (rows < pool_row) + (cols < pool_col)
            old = z[i, j]
            if old >= 0:
                row, col = i * pool_row + old // pool_col, j * pool_col + old % pool_col
                subtract_seen(left, seen, atom, row, col * planes, -w[i, j])
            counts[group, old if old >= 0 else none] -= 1
            alpha, empty = prior[0], prior[1]
            if prior[2] > 0.0:
                alpha = 1.0 / (rows * cols + 1)
                empty = alpha + counts[group, none]
            largest, total_weight, t = 0.0, 0.0, 0
            for a in range(rows):
                for b in range(cols):
                    row, col = i * pool_row + a, j * pool_col + b
                    c = np.float64(product_at(left, scaled, row, col, planes, taps))
                    precision = np.float64(norms[row, col]) + gamma_w
                    products[t] = c
                    gains[t] = c * c / (2.0 * precision)
                    largest = max(largest, gains[t])
                    weights[t] = (alpha + prior[2] * counts[group, a * pool_col + b]) * math.sqrt(gamma_w / precision)
                    total_weight += weights[t]
                    t += 1
            t = choose(gains, largest, weights, empty, total_weight, t, next_uniform(stream), 1.0)
            if t < 0:
                z[i, j], w[i, j] = -1, 0.0
                counts[group, none] += 1
                continue
            m = (t // cols) * pool_col + t % cols
            row, col = i * pool_row + m // pool_col, j * pool_col + m % pool_col
            precision = np.float64(norms[row, col]) + gamma_w
            counts[group, m] += 1
            z[i, j], w[i, j] = m, products[t] / precision + next_normal(stream) / math.sqrt(precision)
            subtract_seen(left, seen, atom, row, col * planes, w[i, j])


@kernel(**INNER)
def draw_image_noise(noise, pixels, energy, gamma_e, stream):
    """gamma_e of one image, one number or one a plane, from its residual's energy. Changes ``gamma_e``, ``stream``."""
    if len(gamma_e) == 1:
        gamma_e[0] = draw_noise(noise, pixels.sum(), energy.sum(), stream)
    else:
        for c in range(len(gamma_e)):
            gamma_e[c] = draw_noise(noise, pixels[c], energy[c], stream)


@kernel(fastmath=FAST)
def weighted_image(
    left, seen, pixels, z, w, gamma_e, atoms, gamma_w, layout, prior, noise, taps, work, per_atom, counted, energy,
    stream,
):  # fmt: skip
    """One image of `pass_weighted`. Changes all but seen, pixels, atoms and the settings."""
    field, norms, counts, scratch, entries, weights, scaled, squares = work
    planes = layout[4]
    field[:, :] = 0.0
    field[:, : seen.shape[1]] = seen
    for e in range(list_active(z, w, layout[2:4], entries, weights)):
        weight = w.dtype.type(weights[e])
        subtract_seen(left, seen, atoms[entries[e, 0]], entries[e, 1], entries[e, 2] * planes, weight)
    if noise[2] > 0.0:
        plane_energies(left, planes, energy)
        draw_image_noise(noise, pixels, energy, gamma_e, stream)
    gamma = np.empty(planes)
    for c in range(planes):
        gamma[c] = gamma_e[c if len(gamma_e) > 1 else 0]
    for k in range(z.shape[0]):
        weigh_atom(atoms[k], gamma, scaled, squares)
        if len(taps) > 0:
            correlate_plane(field, squares, norms, taps)
        else:
            correlate_planes(field, squares, norms, planes)
        count_outcomes(z[k], layout[0:2], layout[2:4], counts)
        visit_map(
            z[k], w[k], left, seen, atoms[k], scaled, norms, layout, prior, counts, gamma_w[k], scratch, taps, stream
        )
        if prior[2] > 0.0:
            counted[0] += log_counts(counts, layout)
    for e in range(list_active(z, w, layout[2:4], entries, weights)):
        per_atom[0, entries[e, 0]] += 1.0
        per_atom[1, entries[e, 0]] += weights[e] * weights[e]
    plane_energies(left, planes, energy)


@kernel(parallel=True, nogil=True)
def pass_weighted(left, seen, pixels, z, w, gamma_e, atoms, gamma_w, layout, prior, noise, taps, key, sums):
    """Update every image, in chunks. Changes left, z, w, gamma_e and ``sums``.

    Parameters
    ----------
    left : (image, row, col * plane)          the images, 0 where hidden; becomes the residual
    seen : the same axes, 1 or 0              pixels : (image, plane), how many are seen
    z, w : (image, atom, block_row, block_col)
    gamma_e : (image or 1, plane or 1)        atoms : (atom, atom_row, atom_col * plane)
    gamma_w, layout, prior, noise, taps, key : as in `gdd.sampler.kernels.layer.pass_whole`
    sums : per_atom (chunk, 2, atom), counted (chunk, 1), energy (image, plane)
    """
    per_atom, counted, energy = sums
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    for chunk in prange(per_atom.shape[0]):
        padded = layout[1]
        if len(taps) > 0:
            padded = -(-layout[1] // LANES) * LANES
        work = (
            np.empty((left.shape[1], (padded + atoms.shape[2] // layout[4] - 1) * layout[4]), left.dtype),
            np.empty((layout[0], padded), left.dtype),
            np.empty((4, layout[2] * layout[3] + 1), np.int64),
            np.empty((3, layout[2] * layout[3])),
            np.empty((blocks, 3), np.int64),
            np.empty(blocks),
            np.empty(atoms.shape[1:], left.dtype),
            np.empty(atoms.shape[1:], left.dtype),
        )
        stream = np.empty(WORDS, np.uint64)
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, left.shape[0])):
            fill_key(stream, key, n)
            weighted_image(
                left[n], seen[n], pixels[n], z[n], w[n], gamma_e[n if len(gamma_e) > 1 else 0], atoms, gamma_w, layout,
                prior, noise, taps, work, per_atom[chunk], counted[chunk], energy[n], stream,
            )  # fmt: skip
