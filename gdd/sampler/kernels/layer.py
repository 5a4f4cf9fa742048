"""The image pass of a layer, compiled: for every image a noise precision, positions and weights, its part of the sums.

`pass_whole` serves fully observed images: inside an atom's map the correlations are kept current through the atom's
autocorrelation. `gdd.sampler.kernels.masked` serves missing pixels, `gdd.sampler.kernels.top` a layer without pooling.

Images are independent given the shared part. A chunk of images fills one slot of the sums, in double precision and in
index order; the slots are added in order outside. So neither the number of threads nor that of workers changes a bit.

*Checked:* tests/test_kernels.py (same chain as the plain conditionals from the same random numbers).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subkernel
from gdd.sampler.kernels.operations import (
    CHUNK,
    LANES,
    SLACK,
    Active,
    Atom,
    Outcomes,
    Sums,
    add_sums,
    block_at,
    correlate,
    count_outcomes,
    draw_block,
    draw_noise,
    energy_of,
    fill_prior,
    fill_residual,
    list_active,
    log_counts,
    set_outcome,
    shift_correlations,
    slab_of,
    subtract_atom,
    surely_empty,
)
from gdd.sampler.random import WORDS, fill_key, next_uniform


class Atoms(NamedTuple):
    """The shared part of a layer's state."""

    pixels: np.ndarray  # (atom, atom_row, atom_col * plane)
    lags: np.ndarray  # (atom, 2 atom_row - 1, 3 atom_col): autocorrelations, then zeros
    gamma_w: np.ndarray  # (atom,)


class Work(NamedTuple):
    """Arrays that the images of a chunk use in turn."""

    left: np.ndarray  # (row, col * plane): the residual
    correlations: np.ndarray  # flat, with room at the end for an autocorrelation's zeros and the last lanes
    counts: np.ndarray  # (4, position + 1), see `count_outcomes`
    outcomes: Outcomes
    active: Active
    near: np.ndarray  # (entry,)
    peaks: np.ndarray  # (padded col,)
    stream: np.ndarray


@subkernel()
def make_work(z, lags, left, layout):
    """Arrays for maps z (atom, block_row, block_col), in the precision of ``left``; ``lags`` are one atom's."""
    positions, kind = layout.pool_row * layout.pool_col, left.dtype
    return Work(
        np.empty(left.shape, kind),
        np.zeros(layout.map_row * layout.width + max(lags.shape[1], LANES), kind),
        np.empty((4, positions + 1), np.int64),
        Outcomes(np.empty(positions), np.empty(positions), np.empty(positions), np.empty(positions)),
        Active(np.empty((z.size, 3), np.int64), np.empty(z.size)),
        np.empty(z.size, np.int64),
        np.empty(-(-layout.map_col // LANES) * LANES, kind),
        np.empty(WORDS, np.uint64),
    )


@subkernel()
def make_atom(pixels, lags, gamma_e, gamma_w):
    """One atom under these precisions; its squared norm is the autocorrelation at lag 0."""
    return Atom(pixels, lags, slab_of(gamma_e, lags[lags.shape[0] // 2, lags.shape[1] // 3 - 1], gamma_w))


@subkernel()
def remove_block(i, j, z, w, atom, model, work):
    """Take a block out of the counts and form the odds of its positions, all else given: (block, weight of empty)."""
    layout = model.layout
    block, old, old_w = block_at(i, j, layout), z[i, j], w[i, j]
    old_i, old_j = block.row + old // layout.pool_col, block.col + old % layout.pool_col
    reach_row, reach_col = atom.lags.shape[0] // 2, atom.lags.shape[1] // 3 - 1
    work.counts[block.group, old] -= 1
    empty = fill_prior(block, work.counts, layout, model.prior, work.outcomes.weight)
    t = 0
    for a in range(block.rows):
        for b in range(block.cols):
            row, col = block.row + a, block.col + b
            c = np.float64(work.correlations[row * layout.width + col])
            if old >= 0 and abs(row - old_i) <= reach_row and abs(col - old_j) <= reach_col:
                c += old_w * atom.lags[row - old_i + reach_row, col - old_j + reach_col]
            set_outcome(work.outcomes, t, c, atom.slab)
            t += 1
    return block, empty


@subkernel()
def change_position(block, position, weight, atom, model, work):
    """Add a weight at a position of a block: residual, and correlations of this block's rows and below."""
    pool_col = model.layout.pool_col
    row, col = block.row + position // pool_col, block.col + position % pool_col
    subtract_atom(work.left, atom.pixels, row, col, weight, model)
    shift_correlations(work.correlations, atom.lags, row, col, weight, block.row, model)


@subkernel()
def insert_block(i, j, z, w, block, position, weight, atom, model, work):
    """Write a block's position and weight; counts, residual and correlations follow. Returns whether any changed."""
    old, old_w = z[i, j], w[i, j]
    z[i, j], w[i, j] = position, weight
    work.counts[block.group, position] += 1
    change = w[i, j]  # as stored: the residual must agree with the state to rounding
    if old == position:
        change -= old_w
    elif old >= 0:
        change_position(block, old, -old_w, atom, model, work)
    if position >= 0:
        change_position(block, position, change, atom, model, work)
    return old >= 0 or position >= 0


@subkernel()
def sweep_map(z, w, atom, model, work):
    """Visit every block of one map, whose correlations are in ``work``.

    Most blocks are empty and stay so. A bound on their gains, from the largest correlation of each column, mostly shows
    it; the rest is drawn.
    """
    layout, peaks, stream = model.layout, work.peaks, work.stream
    for i in range(z.shape[0]):
        here = block_at(i, 0, layout)
        below = work.correlations[here.row * layout.width :]
        column_peaks(below, layout.width, here.rows, peaks)
        empty, others = bound_weights(here, work.counts, model, atom.slab.factor)
        for j in range(z.shape[1]):
            block = block_at(i, j, layout)
            if block.group != here.group:
                here = block
                empty, others = bound_weights(here, work.counts, model, atom.slab.factor)
            uniform = next_uniform(stream)
            if z[i, j] < 0:
                peak = peaks[block.col]
                for b in range(block.col + 1, block.col + block.cols):
                    peak = max(peak, peaks[b])
                if surely_empty(SLACK * atom.slab.gain * peak, empty, others, uniform):
                    continue
            block, prior = remove_block(i, j, z, w, atom, model, work)
            position, weight = draw_block(block, work.outcomes, prior, layout, uniform, stream)
            if insert_block(i, j, z, w, block, position, weight, atom, model, work):
                column_peaks(below, layout.width, block.rows, peaks)
                empty, others = bound_weights(block, work.counts, model, atom.slab.factor)


@subkernel()
def column_peaks(correlations, width, rows, peaks):
    """Largest square in each column of the first rows, into ``peaks``."""
    last = rows - 1
    for top in range(0, rows, 3):  # three rows at once, the last again where there are fewer
        one, two = correlations[top * width :], correlations[min(top + 1, last) * width :]
        three = correlations[min(top + 2, last) * width :]
        for first in range(0, len(peaks), LANES):
            for t in range(LANES):
                j = np.uintp(first + t)  # unsigned: such an index needs no check for counting from the end
                peak = max(one[j] * one[j], two[j] * two[j], three[j] * three[j])
                peaks[j] = peak if top == 0 else max(peak, peaks[j])


@subkernel()
def bound_weights(block, counts, model, factor):
    """Lower bound on the weight of empty, upper bound on the total of the positions, for empty blocks of a group.

    With theta integrated out the block itself does not count. The bound has room: alpha, below 1, is left out of the
    first, and all positions' alphas, below 1 together, are made 1 in the second.
    """
    if not model.prior.counted:
        return model.prior.empty, factor * block.rows * block.cols * model.prior.active
    layout = model.layout
    down = layout.map_row // layout.pool_row if block.rows == layout.pool_row else 1
    along = layout.map_col // layout.pool_col if block.cols == layout.pool_col else 1
    empty = counts[block.group, -1]
    return empty - 1.0, factor * (1.0 + down * along - empty)


@subkernel()
def update_image(n, images, atoms, model, work, sums):
    """One image of `pass_whole`."""
    image, z, w, gamma_e = images.pixels[n], images.z[n], images.w[n], images.gamma_e
    fill_residual(image, atoms.pixels, list_active(z, w, model.layout, work.active), model, work)
    if model.prior.noise_drawn:
        gamma_e[n] = draw_noise(model.prior, image.size, energy_of(work.left), work.stream)
    precision = gamma_e[n if gamma_e.size > 1 else 0]
    for k in range(z.shape[0]):
        correlate(work.left, atoms.pixels[k], work.correlations, model)
        count_outcomes(z[k], model.layout, work.counts)
        sweep_map(z[k], w[k], make_atom(atoms.pixels[k], atoms.lags[k], precision, atoms.gamma_w[k]), model, work)
        if model.prior.counted:
            sums.energy[2] += log_counts(work.counts, model.layout)
    found = list_active(z, w, model.layout, work.active)
    add_sums(work.active, found, image, work.left, precision, model, work.near, sums)


@kernel()
def pass_whole(images, atoms, model, key, sums):
    """Update images, a chunk to a slot of ``sums``. Changes ``sums``, and ``images`` but the pixels.

    images : `Images`, atoms : `Atoms`, model : `Model`, key : (seed, stage, layer, sweep)
    sums : `Sums`, each array with a leading axis of slots
    """
    images, atoms, sums = borrowed((images, atoms, sums))
    work = make_work(images.z[0], atoms.lags[0], images.pixels[0], model.layout)
    for chunk in range(sums.pairs.shape[0]):
        part = Sums(sums.pairs[chunk], sums.cross[chunk], sums.per_atom[chunk], sums.energy[chunk])
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(images.pixels))):
            fill_key(work.stream, key, images.first + n)
            update_image(n, images, atoms, model, work, part)
