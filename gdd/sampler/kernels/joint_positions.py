"""Draws of the positions of pooled blocks of the joint model, whose values come from the layers above.

Positions of the bottom layer are drawn from their exact conditional. Above it a proposal uses the expected distance
between the images of an atom at two positions (`gdd.reference.screening`), and the accept step the true distance. theta
is integrated out. For the arguments see `gdd.sampler.kernels.joint`.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import subroutine
from gdd.sampler.kernels.joint import (
    BlockIndex,
    clear,
    copy_levels,
    correlate_within,
    lower_box,
    mask_and_dot,
    number_of,
    positions_of,
    subtract,
    synthesise_down,
)
from gdd.sampler.kernels.operations import (
    Layer,
    add_atom,
    add_where_observed,
    apply_gains,
    block_at,
    collapsed_prior_weights,
    count_outcomes,
    dot_atom,
    log_counts,
    place_in_map,
    sample_outcome,
    window_start,
)
from gdd.sampler.kernels.random import next_uniform
from gdd.sampler.kernels.windows import Static, window_dot

#: borders between the classes of strength, |value| * ||atom|| * sqrt(gamma_e), by which moves are counted
BORDERS = (0.1, 1.0, 3.0)


@subroutine(forceinline=True)
def class_of(value, gamma_e, norm):
    """Class of a block's strength; ``norm`` is the squared norm of its atom."""
    strength, passed = abs(value) * math.sqrt(gamma_e * norm), 0
    for border in BORDERS:
        passed += strength >= border
    return passed


@subroutine(forceinline=True)
def overlap_of(k, rows, cols, layer):
    """Expected inner product of atom k's images at two positions of this lag; exact in the bottom layer."""
    height, width = 2 * layer.pool_row - 1, 2 * layer.pool_col - 1
    return layer.overlaps[(k * height + rows + layer.pool_row - 1) * width + cols + layer.pool_col - 1]


@subroutine()
def count_positions(k, layer, z, counts):
    """`count_outcomes` of a layer's map k, from the positions of all layers."""
    count_outcomes(positions_of(layer, z)[k], layer, counts)


@subroutine(forceinline=True)
def list_positions(i, j, layer, empty, counts, work):
    """Fill prior weights and places of ``work`` for the positions of block (i, j); return the number of positions.

    ``counts`` must exclude the block. The prior weight of empty is 0 if no block may be empty.
    """
    block, t = block_at(i, j, layer), 0
    work.prior[0] = collapsed_prior_weights(block, counts, layer, empty, work.prior[1:])
    for a in range(block.rows):
        for b in range(block.cols):
            work.places[t, 0], work.places[t, 1] = block.row + a, block.col + b
            work.places[t, 2] = a * layer.pool_col + b
            t += 1
    return t


@subroutine(forceinline=True)
def correlate_positions(k, value, number, layer, static, work):
    """Inner products of atom k at the listed positions with the residual, into ``work.gains``; 0 if its value is 0."""
    work.gains[0] = 0.0
    for t in range(number):
        work.gains[t + 1] = 0.0
        if value != 0.0:
            start = window_start(work.places[t, 0], work.places[t, 1], layer)
            work.gains[t + 1] = dot_atom(work.upward, start, k, layer, static)


# Bottom layer


class Bottom(NamedTuple):
    """The bottom layer, and constants of the draws of its positions."""

    layer: Layer
    static: Static
    squares: np.ndarray  # (atom * atom_row * atom_col * plane,): its dictionary's entries squared
    empty: float  # 1 if a block may be empty, else 0


@subroutine()
def draw_bottom_positions(image, bottom, work, sums):
    """Draw every position of the bottom layer from its exact conditional.

    Changes positions, the residual and scratch of ``work``, the image's accumulator of ``sums``, the stream.
    """
    n, layer, static, z = image.n, bottom.layer, bottom.static, image.z
    counts, masked = work.counts[0], image.mask.size > 0
    for k in range(layer.atoms):
        norm = overlap_of(k, 0, 0, layer)
        count_positions(k, layer, z, counts)
        for i in range(layer.grid_row):
            for j in range(layer.grid_col):
                block, b, group = BlockIndex(k, i, j), number_of(k, i, j, layer), block_at(i, j, layer).group
                value, old = work.values[layer.output + b], z[b]
                counts[group, old] -= 1
                if masked:
                    add_atom_at(block, old, value, layer, static, image.mask, work.upward)
                number, total = position_weights(block, old, np.float64(value), image, bottom, work)
                uniform = next_uniform(image.stream)
                t = sample_outcome(work.weights[1 : number + 1], work.weights[0], uniform * total)
                new = work.places[t, 2] if t >= 0 else -1
                if not masked and new != old:
                    add_atom_at(block, old, value, layer, static, image.mask, work.upward)
                if masked or new != old:
                    add_atom_at(block, new, -value, layer, static, image.mask, work.upward)
                counts[group, new] += 1
                strength = class_of(np.float64(value), image.gamma_e, norm)
                sums.visited[n, 0, strength] += 1
                sums.moved[n, 0, strength] += new != old
                z[b] = new
        sums.log_counts[n] += log_counts(counts, layer, bottom.empty)


@subroutine(forceinline=True)
def position_weights(block, old, v, image, bottom, work):
    """Compute the unnormalised probabilities of a bottom block's outcomes, into ``work.weights``.

    The block has value v and is at position ``old``; the counts must exclude it. Where pixels are missing, the residual
    must exclude its contribution. Returns (number of positions, sum of the weights). Changes ``work``.
    """
    layer, (k, i, j), gains, weights = bottom.layer, block, work.gains, work.weights
    norm, number = overlap_of(k, 0, 0, layer), list_positions(i, j, layer, bottom.empty, work.counts[0], work)
    row, col = place_in_map(i, j, old, layer)
    largest = 0.0 if bottom.empty > 0 else -np.inf
    correlate_positions(k, v, number, layer, bottom.static, work)
    for t in range(number):
        c, energy = gains[t + 1], norm
        if image.mask.size > 0:
            start, first = window_start(work.places[t, 0], work.places[t, 1], layer), k * layer.height * layer.length
            energy = np.float64(window_dot(image.mask, start, bottom.squares, first, layer))
        elif old >= 0:
            c += v * overlap_of(k, work.places[t, 0] - row, work.places[t, 1] - col, layer)
        gains[t + 1] = image.gamma_e * (v * c - 0.5 * v * v * energy)
        weights[t + 1] = work.prior[t + 1]
        largest = max(largest, gains[t + 1])
    weights[0], total = apply_gains(weights[1:], gains[1:], number, work.prior[0], largest)
    return number, total


@subroutine()
def add_atom_at(block, position, amount, layer, static, mask, upward):
    """Add ``amount`` times a bottom atom at a position of a block to the residual; nothing if ``position`` is empty."""
    if position >= 0:
        row, col = place_in_map(block.i, block.j, position, layer)
        add_where_observed(upward, mask, window_start(row, col, layer), block.k, amount, layer, static)


# Layers above the bottom one


class Move(NamedTuple):
    """A block of an upper layer whose position is proposed."""

    block: BlockIndex
    value: float
    number: int  # of its positions
    gamma_e: float


@subroutine()
def draw_upper_positions(level, image, empty, shared, work, sums):
    """Draw every position of a pooled layer above the bottom one: propose, then accept or undo.

    Blocks of all atoms at one place (i, j) affect the same window. The residual is correlated up within it once, and
    again after each move. Changes positions, ``work``, the image's accumulator of ``sums``, the stream.
    """
    layer = shared.layers[level]
    for k in range(layer.atoms):
        count_positions(k, layer, image.z, work.counts[k])
    for i in range(layer.grid_row):
        for j in range(layer.grid_col):
            lower_box(layer, (i, i + 1, j, j + 1), work.box[level])
            for lower in range(level - 1, -1, -1):
                lower_box(shared.layers[lower], work.box[lower + 1], work.box[lower])
            correlate_within(level, image.z, shared, work.upward, work.box)
            for k in range(layer.atoms):
                draw_upper_position(level, BlockIndex(k, i, j), image, empty, shared, work, sums)
    for k in range(layer.atoms):
        sums.log_counts[image.n] += log_counts(work.counts[k], layer, empty)


@subroutine()
def draw_upper_position(level, block, image, empty, shared, work, sums):
    """Propose a position of one block, and accept it or undo the move; changes what `draw_upper_positions` does."""
    layer, z, (k, i, j) = shared.layers[level], image.z, block
    b, group, counts = number_of(k, i, j, layer), block_at(i, j, layer).group, work.counts[k]
    value, old = work.values[layer.output + b], z[layer.block + b]
    counts[group, old] -= 1
    number, before = list_positions(i, j, layer, empty, counts, work), np.int64(0)
    for t in range(number):
        if work.places[t, 2] == old:
            before = t + 1
    move, moved = Move(block, np.float64(value), number, image.gamma_e), False
    after, log_forward = propose(move, before, layer, shared.static, image.stream, work)
    if after != before:
        log_prior = math.log(work.prior[after]) - math.log(work.prior[before])
        log_likelihood = apply_move(level, k, before, after, value, image, shared, work)
        log_backward = log_proposal(move, after, before, layer, shared.static, work)
        log_ratio = log_prior + log_likelihood + log_backward - log_forward
        moved = math.log(next_uniform(image.stream)) < log_ratio
        if moved:
            z[layer.block + b] = work.places[after - 1, 2] if after > 0 else -1
        else:
            undo_move(level, value, shared, work)
    strength = class_of(np.float64(value), image.gamma_e, overlap_of(k, 0, 0, layer))
    sums.visited[image.n, level, strength] += 1
    sums.moved[image.n, level, strength] += moved
    counts[group, z[layer.block + b]] += 1


@subroutine()
def propose(move, before, layer, static, stream, work):
    """Draw an outcome from the proposal, given the present outcome ``before``; return it and its log probability."""
    log_total = proposal_log_weights(move, before, layer, static, work)
    for t in range(move.number + 1):
        work.weights[t] = math.exp(work.gains[t] - log_total)
    after = sample_outcome(work.weights[1 : move.number + 1], work.weights[0], next_uniform(stream)) + 1
    return after, work.gains[after] - log_total


@subroutine()
def log_proposal(move, current, outcome, layer, static, work):
    """Log probability of proposing ``outcome`` from outcome ``current``."""
    log_total = proposal_log_weights(move, current, layer, static, work)
    return work.gains[outcome] - log_total


@subroutine()
def proposal_log_weights(move, current, layer, static, work):
    """Log weights of a proposal from outcome ``current``, into ``work.gains``; return the log of their sum.

    The squared distance between the two placed atoms is approximated by its expectation; the accept step corrects for
    it.
    """
    k, v, gains, places = move.block.k, move.value, work.gains, work.places
    norm = overlap_of(k, 0, 0, layer)
    correlate_positions(k, v, move.number, layer, static, work)
    current_gain, largest = gains[current], -np.inf
    for t in range(move.number + 1):
        distance = norm if (t == 0) != (current == 0) else 0.0
        if t > 0 and current > 0:
            rows, cols = places[t - 1, 0] - places[current - 1, 0], places[t - 1, 1] - places[current - 1, 1]
            distance = 2.0 * (norm - overlap_of(k, rows, cols, layer))
        gains[t] = move.gamma_e * (v * (gains[t] - current_gain) - 0.5 * v * v * distance)
        gains[t] = math.log(work.prior[t]) + gains[t] if work.prior[t] > 0.0 else -np.inf
        largest = max(largest, gains[t])
    total = 0.0
    for t in range(move.number + 1):
        total += math.exp(gains[t] - largest)
    return largest + math.log(total)


@subroutine()
def apply_move(level, k, before, after, value, image, shared, work):
    """Move a block's atom from outcome ``before`` to ``after``, in the residual and all levels up to the block's.

    Returns the log likelihood ratio. Saves the previous levels in ``work.delta`` for `undo_move`. Changes ``work``.
    """
    if value == 0:
        return 0.0
    layer, bottom = shared.layers[level], shared.layers[0]
    move_unit(k, before, after, value, layer, shared.static, work, work.box[level])
    synthesise_down(level, image.z, shared, work.delta, work.box)
    energy, product = mask_and_dot(work.delta, image.mask, work.upward, bottom, work.box[0])
    subtract(work.delta, 1, work.upward, bottom, work.box[0])
    copy_levels(work.upward, work.delta, level, shared, work.box)
    correlate_within(level, image.z, shared, work.upward, work.box)
    return image.gamma_e * (product - 0.5 * energy)


@subroutine()
def undo_move(level, value, shared, work):
    """Undo `apply_move`. Changes ``work.upward``."""
    if value != 0:
        subtract(work.delta, -1, work.upward, shared.layers[0], work.box[0])
        copy_levels(work.delta, work.upward, level, shared, work.box)


@subroutine()
def move_unit(k, before, after, value, layer, static, work, box):
    """Change of a layer's input by moving a block from one outcome to another, into ``work.delta`` within the box."""
    clear(work.delta, layer, box)
    for outcome, amount in ((before, -value), (after, value)):
        if outcome > 0:
            start = window_start(work.places[outcome - 1, 0], work.places[outcome - 1, 1], layer)
            add_atom(work.delta, start, k, amount, layer, static)
