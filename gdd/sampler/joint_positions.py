"""Where pooled blocks of the joint model are active, compiled: exact in the bottom layer, screened and corrected above.

A block's value comes from the layers above it; only its position is drawn here, theta integrated out. For the groups of
arguments see `gdd.sampler.joint_kernels.run_images` and `gdd.sampler.joint_kernels_math`.

*Checked:* tests/test_refine_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.compiling import BURIED, FAST, INNER, kernel
from gdd.sampler.joint_kernels_math import (
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
from gdd.sampler.kernels_math import pick
from gdd.sampler.random import next_uniform
from gdd.sampler.windows import window_add, window_dot

#: borders of the classes of |value| * ||atom|| * sqrt(gamma_e) by which moves are counted
BORDERS = (0.1, 1.0, 3.0)


@kernel(**INNER, **BURIED)
def count_blocks(z, layout, counts):
    """Outcomes of one map by block shape. Changes ``counts`` (4, positions + 1); last column: empty blocks."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, grid_row, grid_col = layout
    counts[:] = 0
    for i in range(grid_row):
        low = 2 * ((i + 1) * pool_row > map_row)
        for j in range(grid_col):
            counts[low + ((j + 1) * pool_col > map_col), z[i, j]] += 1  # -1, for empty, is the last column


@kernel(**INNER, **BURIED)
def log_counts(counts, layout, empty):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's block shapes and outcomes, less the normaliser."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout
    total = 0.0
    for group in range(4):
        rows = map_row % pool_row if group >= 2 else pool_row
        cols = map_col % pool_col if group % 2 else pool_col
        number, outcomes = 0, rows * cols + empty
        for outcome in range(counts.shape[1]):
            count = counts[group, outcome]
            if count > 0:
                total += math.lgamma(1.0 / outcomes + count) - math.lgamma(1.0 / outcomes)
                number += count
        if number > 0:
            total -= math.lgamma(1.0 + number)
    return total


@kernel(**INNER, **BURIED)
def prior_weights(i, j, counts, layout, empty, weights, places):
    """Prior weight and place (row, col of the map) of every position that a block has; return how many.

    The block itself must not be counted. ``weights[0]`` is for empty (0 where that is not allowed), position t is at
    ``weights[t + 1]``. Changes ``weights`` and ``places`` (position, row/col/index).
    """
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout
    top, first = i * pool_row, j * pool_col
    rows, cols = min(pool_row, map_row - top), min(pool_col, map_col - first)
    group = 2 * (rows < pool_row) + (cols < pool_col)
    alpha = 1.0 / (rows * cols + empty)
    weights[0] = (alpha + counts[group, counts.shape[1] - 1]) * empty
    t = 0
    for a in range(rows):
        for b in range(cols):
            places[t, 0], places[t, 1], places[t, 2] = top + a, first + b, a * pool_col + b
            t += 1
            weights[t] = alpha + counts[group, a * pool_col + b]
    return t


@kernel(**INNER, **BURIED)
def group_of(i, j, layout):
    """Row of the counts that a block belongs to."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout
    return 2 * ((i + 1) * pool_row > map_row) + ((j + 1) * pool_col > map_col)


@kernel(**INNER, **BURIED)
def class_of(strength):
    """Class of a value by its strength, |value| * ||atom|| * sqrt(gamma_e)."""
    found = 0
    for border in BORDERS:
        found += strength >= border
    return found


@kernel(**INNER, **BURIED)
def weigh_bottom(k, i, j, old, v, empty, gamma_e, lags, seen, residual, dictionary, layout, size, scratch):
    """Weigh every outcome of a block of the bottom layer, which is now at ``old`` and not in the counts.

    Weight t + 1 is that of position t, weight 0 that of empty. Returns (number of positions, sum of the weights, the
    exponent taken out of all of them). Changes ``weights``, ``gains`` (exponents) and ``places`` of ``scratch``.

    seen : (mask, dictionary squared); where pixels are missing, the block's own part must be in the residual already
    """
    (counts, weights, gains, places), (mask, squares) = scratch, seen
    _, height, length, planes, width, _, _, pool_row, pool_col, _, _ = layout
    norm, atom = lags[k, lags.shape[1] // 2, lags.shape[2] // 2], k * height * length
    number = prior_weights(i, j, counts, layout, empty, weights, places)
    row, col = i * pool_row + old // pool_col, j * pool_col + old % pool_col
    largest = 0.0 if empty > 0 else -np.inf
    for t in range(number):
        start = places[t, 0] * width + places[t, 1] * planes
        c = np.float64(window_dot(residual, start, width, dictionary, atom, height, length, size))
        energy = norm
        if mask.size > 0:
            energy = np.float64(window_dot(mask, start, width, squares, atom, height, length, size))
        elif old >= 0:
            lag = places[t, 0] - row + lags.shape[1] // 2, places[t, 1] - col + lags.shape[2] // 2
            c += v * lags[k, lag[0], lag[1]]
        gains[t + 1] = gamma_e * (v * c - 0.5 * v * v * energy)
        largest = max(largest, gains[t + 1])
    everything = 0.0
    gains[0] = 0.0 if empty > 0 else largest  # its weight is 0 then; 0 times an overflow would not be
    for t in range(number + 1):
        weights[t] *= math.exp(gains[t] - largest)
        everything += weights[t]
    return number, everything, largest


@kernel(**INNER, **BURIED)
def draw_bottom_positions(
    n, empty, gamma_e, lags, seen, model, values, back, scratch, visited, moved, stream
):  # fmt: skip
    """Draw every position of the bottom layer exactly; return the log prior of its positions.

    Changes its positions, back[0], scratch, the counts of moves and stream.
    """
    positions, dictionaries, layout, size = model
    atoms, _, _, _, _, _, _, pool_row, pool_col, grid_row, grid_col = layout[0]
    counts, weights, gains, places = scratch[0][0], scratch[1], scratch[2], scratch[3]
    own = (counts, weights, gains, places)
    z, residual, dictionary, above, total = positions[0], back[0], dictionaries[0], values[1], 0.0
    sizes = layout[0]
    for k in range(atoms):
        norm = lags[k, lags.shape[1] // 2, lags.shape[2] // 2]
        count_blocks(z[n, k], sizes, counts)
        for i in range(grid_row):
            for j in range(grid_col):
                value = above[(i * grid_col + j) * atoms + k]
                v, old, group = np.float64(value), z[n, k, i, j], group_of(i, j, sizes)
                counts[group, old] -= 1
                if seen[0].size > 0:
                    place_atom(residual, k, i, j, old, value, seen[0], dictionary, sizes, size)
                number, everything, _ = weigh_bottom(
                    k, i, j, old, v, empty, gamma_e, lags, seen, residual, dictionary, sizes, size, own
                )  # fmt: skip
                t = pick(weights[1 : number + 1], weights[0], next_uniform(stream) * everything)
                new = places[t, 2] if t >= 0 else -1
                counts[group, new] += 1
                strength = class_of(abs(v) * math.sqrt(gamma_e * norm))
                visited[0, strength] += 1
                if seen[0].size > 0:
                    place_atom(residual, k, i, j, new, -value, seen[0], dictionary, sizes, size)
                elif new != old:
                    place_atom(residual, k, i, j, old, value, seen[0], dictionary, sizes, size)
                    place_atom(residual, k, i, j, new, -value, seen[0], dictionary, sizes, size)
                moved[0, strength] += new != old
                z[n, k, i, j] = new
        total += log_counts(counts, sizes, empty)
    return total


@kernel(**INNER, **BURIED, fastmath=FAST)
def place_atom(residual, k, i, j, m, weight, mask, dictionary, layout, size):
    """Add ``weight`` times atom k of the bottom layer at position m of a block, if any. Changes ``residual``."""
    _, height, length, planes, width, _, _, pool_row, pool_col, _, _ = layout
    row, col = i * pool_row + np.int64(m) // pool_col, j * pool_col + np.int64(m) % pool_col
    start, atom = row * width + col * planes, k * height * length
    if m >= 0 and mask.size == 0:
        window_add(residual, start, width, dictionary, atom, weight, height, length, size)
    elif m >= 0:
        for a in range(height):
            here = residual[start + a * width : start + a * width + length]
            seen = mask[start + a * width : start + a * width + length]
            line = dictionary[atom + a * length : atom + (a + 1) * length]
            for t in range(length):
                here[t] += weight * seen[t] * line[t]


@kernel(**INNER, **BURIED)
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


@kernel(**INNER, **BURIED)
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


@kernel(**INNER, **BURIED)
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


@kernel(**INNER, **BURIED)
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


@kernel(**INNER, **BURIED)
def window_of_block(layer, i, j, layout, box):
    """Set the boxes of a layer's input and below to all that a unit can reach from any position of a block."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout[layer]
    row, col = i * pool_row, j * pool_col
    window_of(layer, row, col, min(pool_row, map_row - row), min(pool_col, map_col - col), layout, box)


@kernel(**INNER, **BURIED)
def shift_unit(layer, k, slot, new, value, places, dictionaries, layout, change, box, size):
    """Set the change of a layer's input, within its box, to what moving a block between slots does. Changes it."""
    planes, width = layout[layer][3], layout[layer][4]
    clear(change[layer], width, planes, box[layer])
    if slot > 0:
        add_unit(layer, k, places[slot - 1, 0], places[slot - 1, 1], -value, dictionaries, layout, change, size)
    if new > 0:
        add_unit(layer, k, places[new - 1, 0], places[new - 1, 1], value, dictionaries, layout, change, size)
