"""Where pooled blocks of the joint model are active, compiled. A block's value comes from the layers above it.

Positions of the bottom layer are drawn from their exact conditional. Above it a position is proposed with a guess of
how far apart the images of an atom are (`gdd.reference.screening`), and accepted or not by the true distance. theta is
integrated out. For the arguments see `gdd.sampler.kernels.joint`.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import FAST, kernel
from gdd.sampler.kernels.joint import (
    Block,
    add_atom,
    block_of,
    clear,
    copy_levels,
    correlate_within,
    dot_atom,
    layer_of,
    lower_box,
    mask_and_dot,
    place_of,
    set_box,
    subtract,
    synthesise_down,
)
from gdd.sampler.kernels.operations import block_at, count_outcomes, fill_counted, pick, place_in_map
from gdd.sampler.kernels.random import next_uniform
from gdd.sampler.kernels.windows import add_observed, window_dot

#: borders of the classes of |value| * ||atom|| * sqrt(gamma_e) by which moves are counted
BORDERS = (0.1, 1.0, 3.0)


# Prior of the positions of one map, theta integrated out


@kernel()
def count_map(k, here, z, counts):
    """`count_outcomes` of one atom's map."""
    last = here.block + here.grid_row * here.grid_col * here.atoms
    maps = z[here.block : last].reshape((here.grid_row, here.grid_col, here.atoms))
    count_outcomes(maps[:, :, k], here, counts)


@kernel()
def log_counts(counts, here, empty):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's block shapes and outcomes, less the normaliser."""
    total = 0.0
    for group in range(4):
        rows = here.map_row % here.pool_row if group >= 2 else here.pool_row
        cols = here.map_col % here.pool_col if group % 2 else here.pool_col
        number, outcomes = 0, rows * cols + empty
        for outcome in range(counts.shape[1]):
            count = counts[group, outcome]
            if count > 0:
                total += math.lgamma(1.0 / outcomes + count) - math.lgamma(1.0 / outcomes)
                number += count
        if number > 0:
            total -= math.lgamma(1.0 + number)
    return total


@kernel()
def prior_weights(i, j, here, empty, counts, work):
    """Prior weight and place of every position that a block has; return how many. The block must not be counted.

    Changes weights and steps of ``work``; the weight of empty is 0 where that is not allowed.
    """
    block, t = block_at(i, j, here), 0
    work.weights[0] = fill_counted(block, counts, here, empty, work.weights[1:])
    for a in range(block.rows):
        for b in range(block.cols):
            work.steps[t, 0], work.steps[t, 1] = block.row + a, block.col + b
            work.steps[t, 2] = a * here.pool_col + b
            t += 1
    return t


@kernel()
def class_of(strength):
    """Class of a value by its strength, |value| * ||atom|| * sqrt(gamma_e)."""
    passed = 0
    for border in BORDERS:
        passed += strength >= border
    return passed


@kernel()
def lag_of(k, rows, cols, here, shared):
    """Guessed product of the images of atom k at two positions so many rows and columns apart; exact in the bottom."""
    height, width = 2 * here.pool_row - 1, 2 * here.pool_col - 1
    return shared.lags[here.lag + (k * height + rows + here.pool_row - 1) * width + cols + here.pool_col - 1]


# Bottom layer


@kernel()
def draw_bottom_positions(image, empty, shared, squares, work, sums):
    """Draw every position of the bottom layer exactly; return the log prior of its positions.

    ``squares`` : of its dictionary. Changes positions, the residual, scratch, ``visited`` and ``moved`` of ``sums`` and
    the stream.
    """
    here, total, masked = layer_of(shared.table, 0), 0.0, image.mask.size > 0
    counts, z = work.counts[0], image.z
    for k in range(here.atoms):
        norm = lag_of(k, 0, 0, here, shared)
        count_map(k, here, z, counts)
        for i in range(here.grid_row):
            for j in range(here.grid_col):
                block, b, group = Block(k, i, j), block_of(k, i, j, here), block_at(i, j, here).group
                value, old = work.values[here.output + b], z[b]
                strength = class_of(abs(np.float64(value)) * math.sqrt(image.gamma_e * norm))
                counts[group, old] -= 1
                if masked:
                    place_atom(block, old, value, here, shared, work.back, image.mask)
                number, whole = position_weights(block, old, np.float64(value), empty, image, shared, squares, work)
                t = pick(work.weights[1 : number + 1], work.weights[0], next_uniform(image.stream) * whole)
                new = work.steps[t, 2] if t >= 0 else -1
                if not masked and new != old:
                    place_atom(block, old, value, here, shared, work.back, image.mask)
                if masked or new != old:
                    place_atom(block, new, -value, here, shared, work.back, image.mask)
                counts[group, new] += 1
                sums.visited[0, strength] += 1
                sums.moved[0, strength] += new != old
                z[b] = new
        total += log_counts(counts, here, empty)
    return total


@kernel()
def position_weights(block, old, v, empty, image, shared, squares, work):
    """Form the weights of all outcomes of a bottom block that is now at ``old`` and not in the counts.

    Returns (positions that it has, sum of the weights). Where pixels are missing, the block's own part must be in the
    residual already. Changes ``work``.
    """
    here, (k, i, j), gains = layer_of(shared.table, 0), block, work.gains
    norm, atom = lag_of(k, 0, 0, here, shared), k * here.height * here.length
    number = prior_weights(i, j, here, empty, work.counts[0], work)
    row, col = place_in_map(i, j, old, here)
    largest = 0.0 if empty > 0 else -np.inf
    for t in range(number):
        start = place_of(here, work.steps[t, 0], work.steps[t, 1])
        c, energy = np.float64(dot_atom(work.back, start, k, here, shared)), norm
        if image.mask.size > 0:
            energy = np.float64(window_dot(image.mask, start, squares, atom, here))
        elif old >= 0:
            c += v * lag_of(k, work.steps[t, 0] - row, work.steps[t, 1] - col, here, shared)
        gains[t + 1] = image.gamma_e * (v * c - 0.5 * v * v * energy)
        largest = max(largest, gains[t + 1])
    whole = 0.0
    gains[0] = 0.0 if empty > 0 else largest  # its weight is 0 then; 0 times an overflow would not be
    for t in range(number + 1):
        work.weights[t] *= math.exp(gains[t] - largest)
        whole += work.weights[t]
    return number, whole


@kernel(fastmath=FAST)
def place_atom(block, m, weight, here, shared, back, mask):
    """Add ``weight`` times an atom of the bottom layer at position m of a block, if any. Changes the residual."""
    if m < 0:
        return
    start = place_of(here, *place_in_map(block.i, block.j, m, here))
    if mask.size == 0:
        add_atom(back, start, block.k, weight, here, shared)
    else:
        add_observed(back, mask, start, shared.dictionaries, block.k * here.height * here.length, weight, here)


# Layers above the bottom one


@kernel()
def draw_upper_positions(layer, image, empty, shared, work, sums):
    """Screened draw of every position of a pooled layer above the bottom one; return the log prior of its positions.

    Place by place: the blocks of all atoms there reach the same window, within which the residual is correlated up once
    and then after each move. Changes positions, ``work``, ``visited`` and ``moved`` of ``sums`` and the stream.
    """
    here, total = layer_of(shared.table, layer), 0.0
    for k in range(here.atoms):
        count_map(k, here, image.z, work.counts[k])
    for i in range(here.grid_row):
        for j in range(here.grid_col):
            window_of_block(layer, i, j, shared, work.box)
            correlate_within(layer, image.z, shared, work.back, work.box)
            for k in range(here.atoms):
                draw_upper_position(layer, Block(k, i, j), image, empty, shared, work, sums)
    for k in range(here.atoms):
        total += log_counts(work.counts[k], here, empty)
    return total


@kernel()
def window_of_block(layer, i, j, shared, box):
    """Set the boxes of a layer's input and below to all that a unit can reach from any position of a block."""
    here = layer_of(shared.table, layer)
    row, col = i * here.pool_row, j * here.pool_col
    last_row, last_col = min(row + here.pool_row, here.map_row), min(col + here.pool_col, here.map_col)
    set_box(box[layer], row, last_row - 1 + here.height, col, last_col - 1 + here.length // here.planes)
    for lower in range(layer - 1, -1, -1):
        lower_box(layer_of(shared.table, lower), box[lower + 1], box[lower])


@kernel()
def draw_upper_position(layer, block, image, empty, shared, work, sums):
    """Draw the position of one block of `draw_upper_positions`, which says what changes."""
    here, bottom, z, (k, i, j) = layer_of(shared.table, layer), layer_of(shared.table, 0), image.z, block
    b, group, counts = block_of(k, i, j, here), block_at(i, j, here).group, work.counts[k]
    value, old = work.values[here.output + b], z[here.block + b]
    v = np.float64(value)
    strength = class_of(abs(v) * math.sqrt(image.gamma_e * lag_of(k, 0, 0, here, shared)))
    sums.visited[layer, strength] += 1
    counts[group, old] -= 1
    number, before = prior_weights(i, j, here, empty, counts, work), np.int64(0)
    for t in range(number):
        if work.steps[t, 2] == old:
            before = t + 1
    whole = guess_moves(k, before, v, number, here, image.gamma_e, shared, work)
    for t in range(number + 1):
        work.gains[t] -= whole
    after = choose(work.gains, number, next_uniform(image.stream))
    if after != before:
        forward, prior = work.gains[after], math.log(work.weights[after]) - math.log(work.weights[before])
        energy, product = 0.0, 0.0
        if value != 0:
            shift_unit(k, before, after, value, here, shared, work, work.box[layer])
            synthesise_down(layer, z, shared, work.change, work.box)
            energy, product = mask_and_dot(work.change, image.mask, work.back, bottom, work.box[0])
            subtract(work.change, 1, work.back, bottom, work.box[0])
            copy_levels(work.back, work.change, layer, shared.table, work.box)
            correlate_within(layer, z, shared, work.back, work.box)
        whole = guess_moves(k, after, v, number, here, image.gamma_e, shared, work)
        ratio = prior + image.gamma_e * (product - 0.5 * energy) + work.gains[before] - whole - forward
        if math.log(next_uniform(image.stream)) < ratio:
            z[here.block + b] = work.steps[after - 1, 2] if after > 0 else -1
            sums.moved[layer, strength] += 1
        elif value != 0:
            subtract(work.change, -1, work.back, bottom, work.box[0])
            copy_levels(work.change, work.back, layer, shared.table, work.box)
    counts[group, z[here.block + b]] += 1


@kernel()
def guess_moves(k, now, v, number, here, gamma_e, shared, work):
    """Log weights of a proposal from outcome ``now`` (0: empty, t + 1: position t); return the log of their sum.

    Exact but for the squared distance between the images of the atom at two positions, which is guessed.
    Changes gains of ``work``.
    """
    norm, gains, steps = lag_of(k, 0, 0, here, shared), work.gains, work.steps
    for t in range(number + 1):
        gains[t] = 0.0
        if t > 0 and v != 0.0:
            gains[t] = dot_atom(work.back, place_of(here, steps[t - 1, 0], steps[t - 1, 1]), k, here, shared)
    present, largest = gains[now], -np.inf
    for t in range(number + 1):
        distance = norm if (t == 0) != (now == 0) else 0.0
        if t > 0 and now > 0:
            rows, cols = steps[t - 1, 0] - steps[now - 1, 0], steps[t - 1, 1] - steps[now - 1, 1]
            distance = 2.0 * (norm - lag_of(k, rows, cols, here, shared))
        gains[t] = gamma_e * (v * (gains[t] - present) - 0.5 * v * v * distance)
        gains[t] = math.log(work.weights[t]) + gains[t] if work.weights[t] > 0.0 else -np.inf
        largest = max(largest, gains[t])
    total = 0.0
    for t in range(number + 1):
        total += math.exp(gains[t] - largest)
    return largest + math.log(total)


@kernel()
def choose(gains, number, target):
    """Outcome at which the running sum of exp(gains), which add up to 1, passes ``target``."""
    total, last = 0.0, 0
    for t in range(number + 1):
        if gains[t] > -np.inf:
            last = t
            total += math.exp(gains[t])
            if target < total:
                return t
    return last


@kernel()
def shift_unit(k, before, after, value, here, shared, work, box):
    """Set the change of a layer's input, within its box, to what moving a block between outcomes does. Changes it."""
    clear(work.change, here, box)
    for outcome, amount in ((before, -value), (after, value)):
        if outcome > 0:
            start = place_of(here, work.steps[outcome - 1, 0], work.steps[outcome - 1, 1])
            add_atom(work.change, start, k, amount, here, shared)
