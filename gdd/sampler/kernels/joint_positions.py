"""Where pooled blocks of the joint model are active, compiled: the prior of all layers, and the exact bottom draw.

A block's value comes from the layers above it; only its position is drawn here, theta integrated out. Layers above the
bottom one are drawn in `gdd.sampler.kernels.joint_upper_positions`. For the groups of arguments see
`gdd.sampler.kernels.joint_kernels.run_images` and `gdd.sampler.kernels.joint_kernels_math`.

*Checked:* tests/test_refine_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import BURIED, FAST, kernel
from gdd.sampler.kernels.operations import pick
from gdd.sampler.kernels.windows import window_add, window_dot
from gdd.sampler.random import next_uniform

#: borders of the classes of |value| * ||atom|| * sqrt(gamma_e) by which moves are counted
BORDERS = (0.1, 1.0, 3.0)


@kernel(**BURIED)
def count_blocks(z, layout, counts):
    """Outcomes of one map by block shape. Changes ``counts`` (4, positions + 1); last column: empty blocks."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, grid_row, grid_col = layout
    counts[:] = 0
    for i in range(grid_row):
        low = 2 * ((i + 1) * pool_row > map_row)
        for j in range(grid_col):
            counts[low + ((j + 1) * pool_col > map_col), z[i, j]] += 1  # -1, for empty, is the last column


@kernel(**BURIED)
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


@kernel(**BURIED)
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


@kernel(**BURIED)
def group_of(i, j, layout):
    """Row of the counts that a block belongs to."""
    _, _, _, _, _, map_row, map_col, pool_row, pool_col, _, _ = layout
    return 2 * ((i + 1) * pool_row > map_row) + ((j + 1) * pool_col > map_col)


@kernel(**BURIED)
def class_of(strength):
    """Class of a value by its strength, |value| * ||atom|| * sqrt(gamma_e)."""
    found = 0
    for border in BORDERS:
        found += strength >= border
    return found


@kernel(**BURIED)
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


@kernel(**BURIED)
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


@kernel(**BURIED, fastmath=FAST)
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
