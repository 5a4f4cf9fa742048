"""Compiled parts of the shift move: sums for the strip that enters an atom, a scored pass over an atom's positions.

Everything is double precision except the stored weights. An image's numbers depend on that image alone, and sums over
images are taken chunk by chunk in order, so the number of threads changes no bit.

*Checked:* tests/test_moves.py (densities equal those of the plain conditionals; log joint terms; threads).
"""

from __future__ import annotations

import math

from numba import prange

from gdd.base.compiling import kernel, subkernel
from gdd.sampler.kernels.layer import close_block, make_atom, make_work, open_block
from gdd.sampler.kernels.operations import (
    CHUNK,
    Model,
    apply_gains,
    correlate,
    count_outcomes,
    draw_slab,
    energy_of,
    fill_residual,
    list_active,
    log_counts,
    pick,
)
from gdd.sampler.random import fill_key, next_uniform

LOG_TWO_PI = math.log(2 * math.pi)


@kernel(parallel=True, nogil=True)
def strip_sums(images, atoms, k, layout, prior, strip, lags, linear):
    """Sums for a strip of pixels beside atom k, into ``lags`` (chunk, 2 L - 1) and ``linear`` (chunk, L, plane).

    ``strip`` = (row, col, row step, col step): pixel l of the strip has offset (row, col) + l * step from the atom's
    first pixel, and may lie outside the atom. Positions whose strip falls outside the image do not count.
    ``atoms`` (atom, atom_row, atom_col * plane) are those of the residual.
    """
    size, planes = linear.shape[1], layout.planes
    for chunk in prange(lags.shape[0]):
        model = Model(layout, prior, ())
        work = make_work(images.z[0], atoms[0], images.pixels[0], layout)
        places, weights = work.active.places, work.active.weights
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(images.pixels))):
            found = list_active(images.z[n], images.w[n], layout, work.active)
            fill_residual(images.pixels[n], atoms, found, model, work)
            precision = images.gamma_e[n if images.gamma_e.size > 1 else 0]
            for e in range(found):
                row, col = places[e, 1] + strip[0], places[e, 2] + strip[1]
                inside = 0 <= row < work.left.shape[0] and 0 <= col * planes < work.left.shape[1]
                if places[e, 0] != k or not inside:
                    continue
                scaled = precision * weights[e]
                for t in range(size):
                    here = work.left[row + t * strip[2]]
                    for c in range(planes):
                        linear[chunk, t, c] += scaled * here[(col + t * strip[3]) * planes + c]
                for f in range(found):
                    down, right = places[e, 1] - places[f, 1], places[e, 2] - places[f, 2]
                    along, across = down * strip[2] + right * strip[3], down * strip[3] + right * strip[2]
                    if places[f, 0] == k and across == 0 and abs(along) < size:
                        lags[chunk, along + size - 1] += scaled * weights[f]


@subkernel()
def shift_positions(z, w, step, layout, new_z, new_w):
    """Move the positions of one map by ``step``, into ``new_z`` and ``new_w``.

    What leaves the map is dropped; of two that come into one block the later stays.
    """
    new_z[:, :] = -1
    new_w[:, :] = 0.0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            if z[i, j] < 0:
                continue
            row = i * layout.pool_row + z[i, j] // layout.pool_col + step[0]
            col = j * layout.pool_col + z[i, j] % layout.pool_col + step[1]
            if 0 <= row < layout.map_row and 0 <= col < layout.map_col:
                block_i, block_j = row // layout.pool_row, col // layout.pool_col
                new_z[block_i, block_j] = (row % layout.pool_row) * layout.pool_col + col % layout.pool_col
                new_w[block_i, block_j] = w[i, j]


@subkernel()
def scored_pass(z, w, target_z, target_w, drawing, atom, model, work):
    """Visit every block of one map in turn; log density of what each becomes.

    ``z``, ``w`` hold the map to start from, and in the end the targets, which are drawn if ``drawing``, else given.
    """
    score, outcomes, pool_col = 0.0, work.outcomes, model.layout.pool_col
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            block, empty = open_block(i, j, z, w, atom, model, work)
            number = block.rows * block.cols
            largest = 0.0
            for t in range(number):
                largest = max(largest, outcomes.gain[t])
            empty, total = apply_gains(outcomes, number, empty, largest)
            if drawing:
                t = pick(outcomes.weight[:number], empty, next_uniform(work.stream) * total)
                target_z[i, j], target_w[i, j] = -1, 0.0
                if t >= 0:
                    target_z[i, j] = (t // block.cols) * pool_col + t % block.cols
                    target_w[i, j] = draw_slab(outcomes.linear[t], outcomes.precision[t], work.stream)
            m, weight = target_z[i, j], target_w[i, j]
            if m >= 0:
                t = (m // pool_col) * block.cols + m % pool_col
                off, precision = weight - outcomes.linear[t] / outcomes.precision[t], outcomes.precision[t]
                score += math.log(outcomes.weight[t] / total)
                score += 0.5 * (math.log(precision) - LOG_TWO_PI - precision * off * off)
            else:
                score += math.log(empty / total)
            close_block(i, j, z, w, block, m, weight, atom, model, work)
    return score


@subkernel()
def log_joint_of(z, w, left, gamma_e, gamma_w, counts, model):
    """Terms of the log joint that a map's positions and weights and the image's residual change."""
    active, squares = 0, 0.0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            active += z[i, j] >= 0
            squares += w[i, j] * w[i, j]
    joint = 0.5 * active * (math.log(gamma_w) - LOG_TWO_PI) - 0.5 * (gamma_w * squares + gamma_e * energy_of(left))
    if model.prior.counted:
        return joint + log_counts(counts, model.layout)
    return joint + active * math.log(model.prior.active) + (z.size - active) * math.log(model.prior.empty)


@kernel(parallel=True, nogil=True)
def move_positions(images, target, drawing, atoms, k, step, layout, prior, key, out):
    """Draw or score atom k's maps under other ``atoms``. Changes ``target`` if ``drawing``, and ``out``.

    images : `Images`, whose positions it comes from; not changed
    target : z and w of atom k, (image, block_row, block_col) each
    atoms : `gdd.sampler.kernels.layer.Atoms`, lags and gamma_w of atom k alone
    step : by how many pixels the old positions are moved before the pass
    out : (2, image), log density of the target, and those terms of the log joint that differ
    """
    for chunk in prange((len(images.pixels) + CHUNK - 1) // CHUNK):
        model = Model(layout, prior, ())
        work = make_work(images.z[0], atoms.lags[0], images.pixels[0], layout)
        z, w = images.z[0].copy(), images.w[0].copy()
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(images.pixels))):
            precision, gamma_w = images.gamma_e[n if images.gamma_e.size > 1 else 0], atoms.gamma_w[0]
            atom = make_atom(atoms.pixels[k], atoms.lags[0], precision, gamma_w)
            z[:], w[:] = images.z[n], images.w[n]
            shift_positions(images.z[n, k], images.w[n, k], step, layout, z[k], w[k])
            fill_key(work.stream, key, images.first + n)
            fill_residual(images.pixels[n], atoms.pixels, list_active(z, w, layout, work.active), model, work)
            correlate(work.left, atom.pixels, work.correlations, model)
            count_outcomes(z[k], layout, work.counts)
            out[0, n] = scored_pass(z[k], w[k], target[0][n], target[1][n], drawing, atom, model, work)
            out[1, n] = log_joint_of(z[k], w[k], work.left, precision, gamma_w, work.counts, model)
