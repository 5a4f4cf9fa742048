"""The image pass of a layer, compiled: for every image a noise precision, positions and weights, its part of the sums.

`pass_whole` serves fully observed images: inside an atom's map the correlations are kept current through the atom's
autocorrelation. `pass_masked` serves missing pixels: a mask is a weight of pixels, 1 or 0, and an atom's norm under it
depends on where the atom stands. So a block that is visited reads its correlations off the residual, which is zero at
hidden pixels, and around a change they are formed anew; kept ones only show which blocks need no visit. A pass takes
twice as long as over whole images. `gdd.sampler.kernels.gram` serves a layer without pooling.

Images are independent given the shared part. A chunk of images has an accumulator of the sums, in double precision and
in index order; these are added in order outside. So neither the number of threads nor that of workers changes a bit.

*Checked:* tests/test_kernels.py, tests/test_masked.py (same chain as the plain conditionals from the same random
numbers; both passes agree if all is observed).
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
    add_weights,
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
    place_in_map,
    set_outcome,
    shift_correlations,
    slab_of,
    subtract_atom,
    subtract_observed,
    surely_empty,
)
from gdd.sampler.kernels.random import WORDS, fill_key, next_uniform


class Atoms(NamedTuple):
    """The shared part of a layer's state."""

    pixels: np.ndarray  # (atom, atom_row, atom_col * plane)
    lags: np.ndarray  # (atom, 2 atom_row - 1, 3 atom_col): autocorrelations, then zeros
    gamma_w: float


class Bound(NamedTuple):
    """What shows, from the largest square of its correlations, that a block stays empty."""

    gain: float  # of the exponent of the odds: for a square of 1
    slack: float  # and whatever the square
    factor: float  # of the odds, at most


class Work(NamedTuple):
    """Arrays that the images of a pass use in turn."""

    residual: np.ndarray  # (row, col * plane)
    correlations: np.ndarray  # flat, with room at the end for an autocorrelation's zeros and the last lanes
    counts: np.ndarray  # (4, position + 1), see `count_outcomes`
    outcomes: Outcomes
    active: Active
    near: np.ndarray  # (entry,)
    peaks: np.ndarray  # (padded col,)
    stream: np.ndarray


@subkernel()
def make_active(size):
    """Room for so many active positions."""
    return Active(np.empty((size, 3), np.int64), np.empty(size))


@subkernel()
def make_work(z, lags, residual, layout):
    """Arrays for maps z (atom, block_row, block_col), in the precision of ``residual``; ``lags`` are one atom's."""
    positions, kind = layout.pool_row * layout.pool_col, residual.dtype
    return Work(
        np.empty(residual.shape, kind),
        np.zeros(layout.map_row * layout.width + max(lags.shape[1], LANES), kind),
        np.empty((4, positions + 1), np.int64),
        Outcomes(np.empty(positions), np.empty(positions), np.empty(positions), np.empty(positions)),
        make_active(z.size),
        np.empty(z.size, np.int64),
        np.empty(-(-layout.map_col // LANES) * LANES, kind),
        np.empty(WORDS, np.uint64),
    )


@subkernel()
def make_atom(pixels, lags, gamma_e, gamma_w):
    """One atom under these precisions; its squared norm is the autocorrelation at lag 0."""
    return Atom(pixels, lags, slab_of(gamma_e, lags[lags.shape[0] // 2, lags.shape[1] // 3 - 1], gamma_w))


@subkernel()
def remove_block(i, j, z, w, atom, constants, work):
    """Take a block out of the counts and form the odds of its positions, all else given: (block, weight of empty)."""
    layout = constants.layout
    block, old, old_w = block_at(i, j, layout), z[i, j], w[i, j]
    old_i, old_j = place_in_map(i, j, old, layout)
    reach_row, reach_col = atom.lags.shape[0] // 2, atom.lags.shape[1] // 3 - 1
    work.counts[block.group, old] -= 1
    empty = fill_prior(block, work.counts, layout, constants.prior, work.outcomes.weight)
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
def change_position(i, j, position, weight, atom, constants, work):
    """Add a weight at a position of a block: residual, and correlations of this block's rows and below."""
    row, col = place_in_map(i, j, position, constants.layout)
    subtract_atom(work.residual, atom.pixels, row, col, weight, constants)
    first_row = i * constants.layout.pool_row
    shift_correlations(work.correlations, atom.lags, row, col, weight, first_row, constants)


@subkernel()
def insert_block(i, j, z, w, block, position, weight, atom, constants, work):
    """Write a block's position and weight; counts, residual and correlations follow. Returns whether any changed."""
    old, old_w = z[i, j], w[i, j]
    z[i, j], w[i, j] = position, weight
    work.counts[block.group, position] += 1
    change = w[i, j]  # as stored: the residual must agree with the state to rounding
    if old == position:
        change -= old_w
    elif old >= 0:
        change_position(i, j, old, -old_w, atom, constants, work)
    if position >= 0:
        change_position(i, j, position, change, atom, constants, work)
    return old >= 0 or position >= 0


@subkernel()
def sweep_map(z, w, whole, masked, bound, constants, work):
    """Visit every block of one map, whose correlations are in ``work``; ``whole`` or ``masked`` : its atom, else None.

    Most blocks are empty and stay so. A bound on their gains, from the largest correlation of each column, mostly shows
    it; the rest is drawn.
    """
    layout, peaks, stream = constants.layout, work.peaks, work.stream
    for i in range(z.shape[0]):
        here = block_at(i, 0, layout)
        below = work.correlations[here.row * layout.width :]
        column_peaks(below, layout.width, here.rows, peaks)
        empty, others = bound_weights(here, work.counts, constants, bound.factor)
        for j in range(z.shape[1]):
            block = block_at(i, j, layout)
            if block.group != here.group:
                here = block
                empty, others = bound_weights(here, work.counts, constants, bound.factor)
            uniform = next_uniform(stream)
            if z[i, j] < 0:
                peak = peaks[block.col]
                for b in range(block.col + 1, block.col + block.cols):
                    peak = max(peak, peaks[b])
                if surely_empty(bound.gain * peak + bound.slack, empty, others, uniform):
                    continue
            changed = False
            if whole is not None:
                block, prior = remove_block(i, j, z, w, whole, constants, work)
                position, weight = draw_block(block, work.outcomes, prior, layout, uniform, stream)
                changed = insert_block(i, j, z, w, block, position, weight, whole, constants, work)
            if masked is not None:
                changed = visit_masked_block(i, j, z, w, masked, uniform, constants, work)
            if changed:
                column_peaks(below, layout.width, block.rows, peaks)
                empty, others = bound_weights(block, work.counts, constants, bound.factor)


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
def bound_weights(block, counts, constants, factor):
    """Lower bound on the weight of empty, upper bound on the total of the positions, for empty blocks of a group.

    With theta integrated out the block itself does not count. The bound has room: alpha, below 1, is left out of the
    first, and all positions' alphas, below 1 together, are made 1 in the second.
    """
    if not constants.prior.counted:
        return constants.prior.empty, factor * block.rows * block.cols * constants.prior.active
    layout = constants.layout
    down = layout.map_row // layout.pool_row if block.rows == layout.pool_row else 1
    along = layout.map_col // layout.pool_col if block.cols == layout.pool_col else 1
    empty = counts[block.group, -1]
    return empty - 1.0, factor * (1.0 + down * along - empty)


@subkernel()
def update_image(n, images, atoms, constants, work, sums):
    """One image of `pass_whole`."""
    image, z, w, gamma_e = images.pixels[n], images.z[n], images.w[n], images.gamma_e
    fill_residual(image, atoms.pixels, list_active(z, w, constants.layout, work.active), constants, work)
    if constants.prior.noise_drawn:
        gamma_e[n] = draw_noise(constants.prior, image.size, energy_of(work.residual), work.stream)
    precision = gamma_e[n if gamma_e.size > 1 else 0]
    for k in range(z.shape[0]):
        correlate(work.residual, atoms.pixels[k], work.correlations, constants)
        count_outcomes(z[k], constants.layout, work.counts)
        atom = make_atom(atoms.pixels[k], atoms.lags[k], precision, atoms.gamma_w)
        bound = Bound(SLACK * atom.slab.gain, 0.0, atom.slab.factor)
        sweep_map(z[k], w[k], atom, None, bound, constants, work)
        if constants.prior.counted:
            sums.energy[2] += log_counts(work.counts, constants.layout)
    count = list_active(z, w, constants.layout, work.active)
    add_sums(work.active, count, image, work.residual, precision, constants, work.near, sums)


@kernel()
def pass_whole(images, atoms, constants, key, sums):
    """Update images, a chunk to an accumulator. Changes ``sums``, and ``images`` but the pixels.

    images : `ImageArrays`, atoms : `Atoms`, constants : `LayerConstants`, key : (seed, stage, layer, sweep)
    sums : `Sums`, each array with a leading axis of accumulators
    """
    images, atoms, sums = borrowed((images, atoms, sums))
    work = make_work(images.z[0], atoms.lags[0], images.pixels[0], constants.layout)
    for chunk in range(sums.pairs.shape[0]):
        part = Sums(sums.pairs[chunk], sums.cross[chunk], sums.per_atom[chunk], sums.energy[chunk])
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(images.pixels))):
            fill_key(work.stream, key, images.first + n)
            update_image(n, images, atoms, constants, work, part)


# Missing pixels


class MaskedAtoms(NamedTuple):
    """The shared part of a layer's state."""

    pixels: np.ndarray  # (atom, atom_row, atom_col * plane)
    squares: np.ndarray  # the same, squared
    gamma_w: float


class MaskedAtom(NamedTuple):
    """One atom, the mask, the atom's squared norm under it at each position, and two precisions."""

    pixels: np.ndarray  # (atom_row, atom_col * plane)
    observed: np.ndarray  # (row, col * plane)
    norms: np.ndarray  # flat, see `correlate`
    gamma_e: float
    gamma_w: float


class MaskedSums(NamedTuple):
    """What a pass over masked images leaves for the shared draws, besides the residuals."""

    per_atom: np.ndarray  # (chunk, 2, atom): active blocks, sum of squared weights
    log_counts: np.ndarray  # (chunk,): log counts of the positions
    energy: np.ndarray  # (image,): ||E||^2


class MaskedAtomSums(NamedTuple):
    """What one atom's draw needs of masked images."""

    lags: np.ndarray  # (plane or 1, lag_row, lag_col, atom_row, atom_col)
    linear: np.ndarray  # (atom_row, atom_col * plane)


@subkernel()
def window_product(residual, atom, row, col, constants):
    """Inner product of an atom with the window of ``residual`` at (row, col)."""
    total, first = residual[0, 0] * 0, col * constants.layout.planes
    for a in range(atom.shape[0]):
        line, here = atom[a], residual[row + a, first : first + atom.shape[1]]
        if len(constants.static_width) > 0:
            for b in range(len(constants.static_width)):
                total += line[b] * here[b]
        else:
            for t in range(atom.shape[1]):
                total += line[t] * here[t]
    return total


@subkernel()
def correlate_part(atom, rows, cols, constants, work):
    """`correlate` for some rows and columns of a map, into ``work.correlations``.

    Its loops are short: in the place of `correlate` too, it would make a sweep a tenth longer.
    """
    for i in range(rows[0], rows[1]):
        here = work.correlations[i * constants.layout.width + cols[0] : i * constants.layout.width + cols[1]]
        if len(constants.static_width) > 0:
            for p in range(len(here)):
                here[p] = 0.0
            for a in range(atom.shape[0]):
                line, tap = work.residual[i + a, cols[0] :], atom[a]
                for p in range(len(here)):
                    total = here[p]
                    for b in range(len(constants.static_width)):
                        total += tap[b] * line[p + b]
                    here[p] = total
        else:
            for p in range(len(here)):
                here[p] = window_product(work.residual, atom, i, cols[0] + p, constants)


@subkernel()
def scale_correlations(atom, rows, cols, layout, work):
    """Scale some rows and columns of the correlations so that their squares are gains."""
    kind = work.correlations.dtype.type
    gamma_e, gamma_w, two = kind(atom.gamma_e), kind(atom.gamma_w), kind(2.0)
    for i in range(rows[0], rows[1]):
        first, last = i * layout.width + cols[0], i * layout.width + cols[1]
        here, norms = work.correlations[first:last], atom.norms[first:last]
        for p in range(len(here)):
            here[p] *= gamma_e / np.sqrt(two * (gamma_e * max(norms[p], kind(0.0)) + gamma_w))


@subkernel()
def bound_of(atom, layout):
    """Bound for scaled correlations. It has room for rounding, as a visit forms them in another order."""
    least = np.inf
    for i in range(layout.map_row):
        for j in range(layout.map_col):
            least = min(least, np.float64(atom.norms[i * layout.width + j]))
    return Bound(1.001, 1e-4, slab_of(atom.gamma_e, max(0.0, least), atom.gamma_w).factor)


@subkernel()
def visit_masked_block(i, j, z, w, atom, uniform, constants, work):
    """Draw a block under a mask; the residual and the correlations around follow. Returns whether any changed."""
    layout, planes, outcomes, residual = constants.layout, constants.layout.planes, work.outcomes, work.residual
    high, wide = atom.pixels.shape[0], atom.pixels.shape[1] // planes
    block, old = block_at(i, j, layout), z[i, j]
    bottom, left, right = 0, layout.map_col, 0  # of the correlations that change
    if old >= 0:
        row, col = place_in_map(i, j, old, layout)
        subtract_observed(residual, atom.observed, atom.pixels, row, col * planes, -w[i, j])
        bottom, left, right = row + high, col - wide + 1, col + wide
    work.counts[block.group, old] -= 1
    empty, t = fill_prior(block, work.counts, layout, constants.prior, outcomes.weight), 0
    for row in range(block.row, block.row + block.rows):
        for col in range(block.col, block.col + block.cols):
            correlation = np.float64(window_product(residual, atom.pixels, row, col, constants))
            slab = slab_of(atom.gamma_e, np.float64(atom.norms[row * layout.width + col]), atom.gamma_w)
            set_outcome(outcomes, t, correlation, slab)
            t += 1
    new, w[i, j] = draw_block(block, outcomes, empty, layout, uniform, work.stream)
    z[i, j] = new
    work.counts[block.group, new] += 1
    if new >= 0:
        row, col = place_in_map(i, j, new, layout)
        subtract_observed(residual, atom.observed, atom.pixels, row, col * planes, w[i, j])
        bottom, left, right = max(bottom, row + high), min(left, col - wide + 1), max(right, col + wide)
    rows, cols = (block.row, min(bottom, layout.map_row)), (max(left, 0), min(right, layout.map_col))
    correlate_part(atom.pixels, rows, cols, constants, work)
    scale_correlations(atom, rows, cols, layout, work)
    return old >= 0 or new >= 0


@subkernel()
def subtract_active(residual, observed, z, w, atoms, layout, active):
    """Subtract the active atoms of maps z, w (atom, block_row, block_col) where observed; spoils ``active``."""
    for e in range(list_active(z, w, layout, active)):
        k, row, col = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        subtract_observed(residual, observed, atoms[k], row, col * layout.planes, w.dtype.type(active.weights[e]))


@subkernel()
def update_masked_image(n, images, observed, pixels, atoms, constants, work, norms, sums, chunk):
    """One image of `pass_masked`."""
    residual, z, w, gamma_e, layout = work.residual, images.z[n], images.w[n], images.gamma_e, constants.layout
    residual[:] = images.pixels[n]
    subtract_active(residual, observed, z, w, atoms.pixels, layout, work.active)
    if constants.prior.noise_drawn:
        gamma_e[n] = draw_noise(constants.prior, pixels, energy_of(residual), work.stream)
    precision = gamma_e[n if gamma_e.size > 1 else 0]
    for k in range(z.shape[0]):
        correlate(observed, atoms.squares[k], norms, constants)
        count_outcomes(z[k], layout, work.counts)
        atom = MaskedAtom(atoms.pixels[k], observed, norms, precision, atoms.gamma_w)
        correlate(residual, atoms.pixels[k], work.correlations, constants)
        scale_correlations(atom, (0, layout.map_row), (0, layout.map_col), layout, work)
        sweep_map(z[k], w[k], None, atom, bound_of(atom, layout), constants, work)
        if constants.prior.counted:
            sums.log_counts[chunk] += log_counts(work.counts, layout)
    add_weights(work.active, list_active(z, w, layout, work.active), sums.per_atom[chunk])
    sums.energy[n] = energy_of(residual)
    images.pixels[n] = residual


@kernel()
def pass_masked(images, observed, pixels, atoms, constants, key, sums):
    """Update images, in chunks. Changes ``images``, whose pixels become the residual, and ``sums``.

    images : `ImageArrays`, pixels 0 where hidden; observed : the same axes as the pixels, 1 or 0
    pixels : (image,), how many are observed; sums : `MaskedSums`
    the others : as of `pass_whole`, with `MaskedAtoms`
    """
    images, observed, atoms, sums = borrowed((images, observed, atoms, sums))
    work = make_work(images.z[0], atoms.pixels[0], images.pixels[0], constants.layout)
    norms = np.zeros_like(work.correlations)
    for n in range(len(observed)):
        fill_key(work.stream, key, images.first + n)
        update_masked_image(n, images, observed[n], pixels[n], atoms, constants, work, norms, sums, n // CHUNK)


@subkernel()
def add_overlap(observed, row, col, lag_row, lag_col, product, out):
    """Add product * observed under the part of an atom at (row, col) that one ``lag`` further overlaps, to ``out``."""
    h, w = out.shape
    start, stop = max(0, -lag_col), min(w, w - lag_col)
    for a in range(max(0, -lag_row), min(h, h - lag_row)):
        line, here = out[a], observed[row + a]
        for b in range(start, stop):
            line[b] += product * here[col + b]


@subkernel()
def add_image(residual, observed, gamma_e, active, count, lags, linear):
    """Add one image to the sums of one atom."""
    h, w, planes = lags.shape[1] // 2, lags.shape[2] // 2, linear.shape[1] // lags.shape[4]
    for e in range(count):
        i, j, scaled = active.places[e, 1], active.places[e, 2], gamma_e * active.weights[e]
        for a in range(linear.shape[0]):
            here, line = residual[i + a], linear[a]
            for t in range(linear.shape[1]):
                line[t] += scaled * here[j * planes + t]
        for p in range(observed.shape[0]):
            add_overlap(observed[p], i, j, 0, 0, scaled * active.weights[e], lags[p, h, w])
            for f in range(e + 1, count):
                lag_i, lag_j = i - active.places[f, 1], j - active.places[f, 2]
                if abs(lag_i) <= h and abs(lag_j) <= w:
                    out = lags[p, h + lag_i, w + lag_j]
                    add_overlap(observed[p], i, j, lag_i, lag_j, scaled * active.weights[f], out)


@kernel()
def add_atom(residual, observed, gamma_e, z, w, layout, sums):
    """Add images to the ``sums`` of one atom, `MaskedAtomSums` with a leading axis of accumulators, one a chunk.

    residual : (image, row, col * plane)        observed : (image, plane or 1, row, col)        gamma_e : (image,)
    z, w : (image, block_row, block_col)
    """
    (lags, linear), active = sums, make_active(z[0].size)
    for n in range(len(residual)):
        count = list_active(z[n : n + 1], w[n : n + 1], layout, active)
        add_image(residual[n], observed[n], gamma_e[n], active, count, lags[n // CHUNK], linear[n // CHUNK])


@kernel()
def change_atom(residual, observed, z, w, change, layout):
    """Subtract ``change`` (1, atom_row, atom_col * plane) of an atom at its active positions from ``residual``."""
    active = make_active(z[0].size)
    for n in range(len(residual)):
        subtract_active(residual[n], observed[n], z[n : n + 1], w[n : n + 1], change, layout, active)


@kernel()
def energies(residual, out):
    """Squared norm of each image's residual, into ``out`` (image,)."""
    for n in range(len(residual)):
        out[n] = energy_of(residual[n])
