"""Where pooled blocks above the bottom layer are active in the joint model, compiled: screened, then corrected.

A position is proposed with a guess of how far apart the images of an atom are (`gdd.sampler.screening`), and accepted
or not by the true distance. Prior and arguments as in `gdd.sampler.kernels.joint_positions`.

*Checked:* tests/test_refine_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import BURIED, kernel
from gdd.sampler.kernels.joint_kernels_math import (
    add_unit,
    carry_down,
    carry_up_within,
    clear,
    correlation,
    keep,
    subtract,
    weigh,
    window_of,
)
from gdd.sampler.kernels.joint_positions import class_of, count_blocks, group_of, log_counts, prior_weights
from gdd.sampler.random import next_uniform


@kernel(**BURIED)
def guess_moves(layer, k, slot, v, number, gamma_e, overlaps, model, back, scratch):
    """Log weights of a proposal from ``slot`` (0: empty, t + 1: position t); return the log of their sum.

    Exact but for the squared distance between the images of the atom at two positions, which is guessed.
    Changes ``gains`` of ``scratch``.
    """
    _, dictionaries, layout, size = model
    _, weights, gains, places = scratch
    centre_row, centre_col = overlaps.shape[1] // 2, overlaps.shape[2] // 2
    norm = overlaps[k, centre_row, centre_col]
    for t in range(number + 1):
        gains[t] = 0.0
        if t > 0 and v != 0.0:
            gains[t] = correlation(layer, k, places[t - 1, 0], places[t - 1, 1], dictionaries, layout, back, size)
    here, largest = gains[slot], -np.inf
    for t in range(number + 1):
        apart = norm if (t == 0) != (slot == 0) else 0.0
        if t > 0 and slot > 0:
            lag_row, lag_col = places[t - 1, 0] - places[slot - 1, 0], places[t - 1, 1] - places[slot - 1, 1]
            apart = 2.0 * (norm - overlaps[k, centre_row + lag_row, centre_col + lag_col])
        gains[t] = gamma_e * (v * (gains[t] - here) - 0.5 * v * v * apart)
        gains[t] = math.log(weights[t]) + gains[t] if weights[t] > 0.0 else -np.inf
        largest = max(largest, gains[t])
    total = 0.0
    for t in range(number + 1):
        total += math.exp(gains[t] - largest)
    return largest + math.log(total)


@kernel(**BURIED)
def draw_upper_positions(
    layer, n, empty, gamma_e, overlaps, mask, model, values, change, back, box, scratch, visited, moved, stream
):  # fmt: skip
    """Screened draw of every position of a pooled layer above the bottom one; return the log prior of its positions.

    Place by place: the blocks of all atoms there reach the same window, within which the residual is carried up once
    and then after each move. Changes its positions, change, back, box, scratch, the counts of moves and stream.
    """
    positions, dictionaries, layout, size = model
    atoms, _, _, _, _, _, _, _, _, grid_row, grid_col = layout[layer]
    counts, z, total = scratch[0], positions[layer], 0.0
    for k in range(atoms):
        count_blocks(z[n, k], layout[layer], counts[k])
    for i in range(grid_row):
        for j in range(grid_col):
            window_of_block(layer, i, j, layout, box)
            carry_up_within(layer, n, positions, dictionaries, layout, back, box, size)
            for k in range(atoms):
                draw_upper_position(
                    layer, n, k, i, j, empty, gamma_e, overlaps, mask, model, values, change, back, box, scratch,
                    visited, moved, stream,
                )  # fmt: skip
    for k in range(atoms):
        total += log_counts(counts[k], layout[layer], empty)
    return total


@kernel(**BURIED)
def draw_upper_position(
    layer, n, k, i, j, empty, gamma_e, overlaps, mask, model, values, change, back, box, scratch, visited, moved, stream
):  # fmt: skip
    """Draw the position of one block of `draw_upper_positions`, which says what changes."""
    positions, dictionaries, layout, size = model
    atoms, _, _, _, _, _, _, _, _, _, grid_col = layout[layer]
    norm = overlaps[k, overlaps.shape[1] // 2, overlaps.shape[2] // 2]
    counts, weights, gains, places = scratch[0][k], scratch[1], scratch[2], scratch[3]
    value, z = values[layer + 1][(i * grid_col + j) * atoms + k], positions[layer]
    v, old, group = np.float64(value), z[n, k, i, j], group_of(i, j, layout[layer])
    strength = class_of(abs(v) * math.sqrt(gamma_e * norm))
    visited[layer, strength] += 1
    counts[group, old] -= 1
    number, slot = prior_weights(i, j, counts, layout[layer], empty, weights, places), np.int64(0)
    for t in range(number):
        if places[t, 2] == old:
            slot = t + 1
    whole = guess_moves(layer, k, slot, v, number, gamma_e, overlaps, model, back, scratch)
    for t in range(number + 1):
        gains[t] -= whole
    t = choose_slot(gains, number, next_uniform(stream))
    if t != slot:
        forward, before, after = gains[t], math.log(weights[slot]), math.log(weights[t])
        energy, product = 0.0, 0.0
        if value != 0:
            shift_unit(layer, k, slot, t, value, places, dictionaries, layout, change, box, size)
            carry_down(layer, n, positions, dictionaries, layout, change, box, size)
            energy, product = weigh(change[0], mask, back[0], layout[0][4], layout[0][3], box[0])
            subtract(change[0], 1, back[0], layout[0][4], layout[0][3], box[0])
            keep(back, change, layer, layout, box)
            carry_up_within(layer, n, positions, dictionaries, layout, back, box, size)
        whole = guess_moves(layer, k, t, v, number, gamma_e, overlaps, model, back, scratch)
        ratio = after - before + gamma_e * (product - 0.5 * energy) + gains[slot] - whole - forward
        if math.log(next_uniform(stream)) < ratio:
            z[n, k, i, j] = places[t - 1, 2] if t > 0 else -1
            moved[layer, strength] += 1
        elif value != 0:
            subtract(change[0], -1, back[0], layout[0][4], layout[0][3], box[0])
            keep(change, back, layer, layout, box)
    counts[group, z[n, k, i, j]] += 1


@kernel(**BURIED)
def choose_slot(gains, number, target):
    """Slot at which the running sum of exp(gains), which add up to 1, passes ``target``."""
    total, last = 0.0, 0
    for t in range(number + 1):
        if gains[t] > -np.inf:
            last = t
            total += math.exp(gains[t])
            if target < total:
                return t
    return last


@kernel(**BURIED)
def window_of_block(layer, i, j, layout, box):
    """Set the boxes of a layer's input and below to all that a unit can reach from any position of a block."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout[layer]
    row, col = i * pool_row, j * pool_col
    window_of(layer, row, col, min(pool_row, map_row - row), min(pool_col, map_col - col), layout, box)


@kernel(**BURIED)
def shift_unit(layer, k, slot, new, value, places, dictionaries, layout, change, box, size):
    """Set the change of a layer's input, within its box, to what moving a block between slots does. Changes it."""
    planes, width = layout[layer][3], layout[layer][4]
    clear(change[layer], width, planes, box[layer])
    if slot > 0:
        add_unit(layer, k, places[slot - 1, 0], places[slot - 1, 1], -value, dictionaries, layout, change, size)
    if new > 0:
        add_unit(layer, k, places[new - 1, 0], places[new - 1, 1], value, dictionaries, layout, change, size)
