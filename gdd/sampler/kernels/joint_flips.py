"""A joint move: switch a top coefficient, and draw the positions of the bottom layer under it anew.

Under an off coefficient the positions are tuned to what explains the image now. Switched on alone it finds them wrong;
so the move changes both at once. Its blocks are visited in order, each drawn from its exact conditional on the way; the
way back, in the opposite order, has a probability that is computed likewise; a last step accepts or refuses
(Metropolis & Hastings; the scheme is that of Jain & Neal 2004 for splitting and merging clusters). Switching on goes
through the blocks forwards, switching off backwards, so that each is the other's way back.

*Checked:* tests/test_refine_joint.py (exact start with the move).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import BURIED, kernel
from gdd.sampler.kernels.joint_kernels_math import carry_down, carry_down_one, place_unit, subtract, weigh
from gdd.sampler.kernels.joint_positions import count_blocks, group_of, place_atom, weigh_bottom
from gdd.sampler.kernels.operations import pick
from gdd.sampler.random import next_normal, next_uniform

#: blocks in which the coefficient's value is below this share of its largest keep their positions
SHARE = 0.2


@kernel(**BURIED)
def list_strong(n, unit, box, layout, blocks):
    """Blocks of the bottom layer that a coefficient reaches strongly; returns how many. Changes ``blocks``."""
    atoms, grid_col = layout[0][0], layout[0][10]
    largest, found = 0.0, 0
    for i in range(box[0], box[1]):
        for j in range(box[2], box[3]):
            for k in range(atoms):
                largest = max(largest, abs(unit[(i * grid_col + j) * atoms + k]))
    for k in range(atoms):
        for i in range(box[0], box[1]):
            for j in range(box[2], box[3]):
                if abs(unit[(i * grid_col + j) * atoms + k]) > SHARE * largest:
                    blocks[found, 0], blocks[found, 1], blocks[found, 2] = k, i, j
                    found += 1
    return found


@kernel(**BURIED)
def walk(
    n, blocks, found, forwards, goal, empty, gamma_e, lags, seen, model, above, residual, counts, scratch, stream
):  # fmt: skip
    """Visit the listed blocks in order; draw each, or (``goal`` (found,) given) set it to its goal.

    Returns (log probability of the outcomes on the way, change of the log prior of the positions). Changes positions,
    residual, counts (atom, group, outcome), scratch, stream.
    """
    positions, dictionaries, layout, size = model
    atoms, grid_col = layout[0][0], layout[0][10]
    z, dictionary, sizes = positions[0], dictionaries[0], layout[0]
    _, weights, gains, places = scratch
    chance, prior = 0.0, 0.0
    for e in range(found):
        at = e if forwards else found - 1 - e
        k, i, j = blocks[at, 0], blocks[at, 1], blocks[at, 2]
        value, old = above[(i * grid_col + j) * atoms + k], z[n, k, i, j]
        group = group_of(i, j, sizes)
        counts[k, group, old] -= 1
        own = (counts[k], weights, gains, places)
        if seen[0].size > 0:
            place_atom(residual, k, i, j, old, value, seen[0], dictionary, sizes, size)
        number, everything, taken = weigh_bottom(
            k, i, j, old, np.float64(value), empty, gamma_e, lags, seen, residual, dictionary, sizes, size, own
        )  # fmt: skip
        t = -1
        if goal.size == 0:
            t = pick(weights[1 : number + 1], weights[0], next_uniform(stream) * everything)
        else:
            for s in range(number):
                if places[s, 2] == goal[at]:
                    t = s
        new = places[t, 2] if t >= 0 else -1
        own_prior = log_prior(i, j, new, empty, counts[k], sizes)
        chance += own_prior + gains[t + 1] - taken - math.log(everything)  # not from the weight, which may underflow
        prior += own_prior - log_prior(i, j, old, empty, counts[k], sizes)
        counts[k, group, new] += 1
        z[n, k, i, j] = new
        if seen[0].size == 0 and new != old:
            place_atom(residual, k, i, j, old, value, seen[0], dictionary, sizes, size)
        if seen[0].size > 0 or new != old:
            place_atom(residual, k, i, j, new, -value, seen[0], dictionary, sizes, size)
    return chance, prior


@kernel(**BURIED)
def log_prior(i, j, m, empty, counts, layout):
    """Log prior weight of one outcome of a block that is not in the counts, theta integrated out."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout
    rows, cols = min(pool_row, map_row - i * pool_row), min(pool_col, map_col - j * pool_col)
    return math.log(1.0 / (rows * cols + empty) + counts[group_of(i, j, layout), m])


@kernel(**BURIED)
def flip(n, w, gamma_e, odds, gamma_w, empty, lags, seen, model, values, change, back, box, scratch, tally, stream):
    """Try to switch one top coefficient of one image, drawn at random; returns the change of the positions' log prior.

    Changes z, w, positions of the bottom layer, values[1], change, back[0], box, scratch, tally (two of it: attempts,
    switches), stream. What is carried up is not kept current: this is the last move of an image pass.
    """
    positions, dictionaries, layout, size = model
    top, atoms = len(dictionaries) - 1, layout[0][0]
    which = int(next_uniform(stream) * (w.shape[1] * w.shape[2] * w.shape[3]))
    k, i, j = which // (w.shape[2] * w.shape[3]), which // w.shape[3] % w.shape[2], which % w.shape[3]
    z, below, residual, width, planes = positions[top], positions[0], back[0], layout[0][4], layout[0][3]
    birth = z[n, k, i, j] < 0
    amount = w.dtype.type(next_normal(stream) / math.sqrt(gamma_w[k])) if birth else -w[n, k, i, j]
    place_unit(top, k, i, j, amount, dictionaries, layout, change, box, size)
    for layer in range(top - 1, 0, -1):
        carry_down_one(layer, n, positions, dictionaries, layout, change, box, size)
    step = change[1].copy()
    window = (box[1, 0], box[1, 1], box[1, 2], box[1, 3])
    blocks = np.empty((atoms * (window[1] - window[0]) * (window[3] - window[2]), 3), np.int64)
    found = list_strong(n, step, window, layout, blocks)
    old, counts = np.empty(found, np.int64), np.empty((atoms, *scratch[0].shape[1:]), np.int64)
    for e in range(found):
        old[e] = below[n, blocks[e, 0], blocks[e, 1], blocks[e, 2]]
    for atom in range(atoms):
        count_blocks(below[n, atom], layout[0], counts[atom])
    saved, before = residual.copy(), energy_of(residual)
    carry_down(np.int64(1), n, positions, dictionaries, layout, change, box, size)
    weigh(change[0], seen[0], residual, width, planes, box[0])
    subtract(change[0], 1, residual, width, planes, box[0])
    add_within(values[1], step, 1, window, layout)
    forth, prior = walk(
        n, blocks, found, birth, old[:0], empty, gamma_e, lags, seen, model, values[1], residual, counts, scratch,
        stream,
    )  # fmt: skip
    after, new_residual, new = energy_of(residual), residual.copy(), np.empty(found, np.int64)
    for e in range(found):
        new[e] = below[n, blocks[e, 0], blocks[e, 1], blocks[e, 2]]
    box[1, 0], box[1, 1], box[1, 2], box[1, 3] = window
    change[1][:] = step
    carry_down(np.int64(1), n, positions, dictionaries, layout, change, box, size)
    weigh(change[0], seen[0], residual, width, planes, box[0])
    subtract(change[0], -1, residual, width, planes, box[0])
    add_within(values[1], step, -1, window, layout)
    back_way, _ = walk(
        n, blocks, found, not birth, old, empty, gamma_e, lags, seen, model, values[1], residual, counts, scratch,
        stream,
    )  # fmt: skip
    ratio = -0.5 * gamma_e * (after - before) + prior + back_way - forth + (odds if birth else -odds)
    tally[4] += 1
    if math.log(next_uniform(stream)) >= ratio:
        residual[:] = saved
        return 0.0
    tally[5] += 1
    residual[:] = new_residual
    add_within(values[1], step, 1, window, layout)
    for e in range(found):
        below[n, blocks[e, 0], blocks[e, 1], blocks[e, 2]] = new[e]
    w[n, k, i, j] = amount if birth else 0
    z[n, k, i, j] = 0 if birth else -1
    return prior


@kernel(**BURIED)
def energy_of(residual):
    """Sum of squares, in double precision."""
    total = 0.0
    for p in range(residual.size):
        total += np.float64(residual[p]) ** 2
    return total


@kernel(**BURIED)
def add_within(values, step, sign, window, layout):
    """Add ``sign`` times a change within a window of the bottom layer's blocks. Changes ``values``."""
    atoms, grid_col = layout[0][0], layout[0][10]
    for i in range(window[0], window[1]):
        for p in range((i * grid_col + window[2]) * atoms, (i * grid_col + window[3]) * atoms):
            values[p] += sign * step[p]
