"""The image pass and the dictionary's sums where pixels are missing: a mask is a weight of pixels, 1 or 0.

An atom's norm under the mask depends on where it stands, so nothing is kept but the residual: it is zero at hidden
pixels, each block reads its correlations off it at the visit, and a change of a weight is written back at once.

Axes, chunks and random numbers are those of `gdd.sampler.kernels.layer`.

*Checked:* tests/test_masked.py (same chain as the plain conditionals, and as `pass_whole` if all is observed).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subkernel
from gdd.sampler.kernels.layer import make_work
from gdd.sampler.kernels.operations import (
    CHUNK,
    Active,
    add_weights,
    block_at,
    correlate,
    count_outcomes,
    draw_block,
    draw_noise,
    energy_of,
    fill_prior,
    list_active,
    log_counts,
    set_outcome,
    slab_of,
)
from gdd.sampler.random import fill_key, next_uniform


class MaskedAtoms(NamedTuple):
    """The shared part of a layer's state."""

    pixels: np.ndarray  # (atom, atom_row, atom_col * plane)
    squares: np.ndarray  # the same, squared
    gamma_w: np.ndarray  # (atom,)


class MaskedAtom(NamedTuple):
    """One atom, its squared norm under the mask at each position, and two precisions."""

    pixels: np.ndarray  # (atom_row, atom_col * plane)
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
def subtract_seen(left, seen, atom, row, col, weight):
    """Left -= weight * atom placed at (row, col * plane), where seen."""
    for a in range(atom.shape[0]):
        here, there = left[row + a, col : col + atom.shape[1]], seen[row + a, col : col + atom.shape[1]]
        line = atom[a]
        for t in range(atom.shape[1]):
            here[t] -= weight * there[t] * line[t]


@subkernel()
def window_product(left, atom, row, col, model):
    """Inner product of an atom with the window of ``left`` at (row, col)."""
    total, first = left[0, 0] * 0, col * model.layout.planes
    for a in range(atom.shape[0]):
        line, here = atom[a], left[row + a, first : first + atom.shape[1]]
        if len(model.static_width) > 0:
            for b in range(len(model.static_width)):
                total += line[b] * here[b]
        else:
            for t in range(atom.shape[1]):
                total += line[t] * here[t]
    return total


@subkernel()
def sweep_map(z, w, left, seen, atom, model, work):
    """Visit every block of one map; ``left`` stays the residual."""
    layout, planes, outcomes = model.layout, model.layout.planes, work.outcomes
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            block, m = block_at(i, j, layout), z[i, j]
            if m >= 0:
                row, col = block.row + m // layout.pool_col, block.col + m % layout.pool_col
                subtract_seen(left, seen, atom.pixels, row, col * planes, -w[i, j])
            work.counts[block.group, m] -= 1
            empty, t = fill_prior(block, work.counts, layout, model.prior, outcomes.weight), 0
            for row in range(block.row, block.row + block.rows):
                for col in range(block.col, block.col + block.cols):
                    correlation = np.float64(window_product(left, atom.pixels, row, col, model))
                    slab = slab_of(atom.gamma_e, np.float64(atom.norms[row * layout.width + col]), atom.gamma_w)
                    set_outcome(outcomes, t, correlation, slab)
                    t += 1
            uniform = next_uniform(work.stream)
            m, w[i, j] = draw_block(block, outcomes, empty, layout, uniform, work.stream)
            work.counts[block.group, m] += 1
            z[i, j] = m
            if m >= 0:
                row, col = block.row + m // layout.pool_col, block.col + m % layout.pool_col
                subtract_seen(left, seen, atom.pixels, row, col * planes, w[i, j])


@subkernel()
def update_image(n, images, seen, pixels, atoms, model, work, sums, chunk):
    """One image of `pass_masked`."""
    left, z, w, gamma_e = images.pixels[n], images.z[n], images.w[n], images.gamma_e
    places, weights = work.active.places, work.active.weights
    for e in range(list_active(z, w, model.layout, work.active)):
        first = places[e, 2] * model.layout.planes
        subtract_seen(left, seen, atoms.pixels[places[e, 0]], places[e, 1], first, w.dtype.type(weights[e]))
    if model.prior.noise_drawn:
        gamma_e[n] = draw_noise(model.prior, pixels, energy_of(left), work.stream)
    precision = gamma_e[n if gamma_e.size > 1 else 0]
    for k in range(z.shape[0]):
        correlate(seen, atoms.squares[k], work.correlations, model)
        count_outcomes(z[k], model.layout, work.counts)
        atom = MaskedAtom(atoms.pixels[k], work.correlations, precision, atoms.gamma_w[k])
        sweep_map(z[k], w[k], left, seen, atom, model, work)
        if model.prior.counted:
            sums.log_counts[chunk] += log_counts(work.counts, model.layout)
    add_weights(work.active, list_active(z, w, model.layout, work.active), sums.per_atom[chunk])
    sums.energy[n] = energy_of(left)


@kernel()
def pass_masked(images, seen, pixels, atoms, model, key, sums):
    """Update images, in chunks. Changes ``images``, whose pixels become the residual, and ``sums``.

    images : `Images`, pixels 0 where hidden; seen : the same axes as the pixels, 1 or 0
    pixels : (image,), how many are seen; sums : `MaskedSums`
    the others : as of `gdd.sampler.kernels.layer.pass_whole`, with `MaskedAtoms`
    """
    images, seen, atoms, sums = borrowed((images, seen, atoms, sums))
    work = make_work(images.z[0], atoms.pixels[0], images.pixels[0], model.layout)
    for chunk in range(len(sums.log_counts)):
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(seen))):
            fill_key(work.stream, key, images.first + n)
            update_image(n, images, seen[n], pixels[n], atoms, model, work, sums, chunk)


# Sums for the draw of one atom


@subkernel()
def add_overlap(seen, row, col, lag_row, lag_col, product, out):
    """Add product * seen under the part of an atom at (row, col) that one ``lag`` further overlaps, to ``out``."""
    h, w = out.shape
    start, stop = max(0, -lag_col), min(w, w - lag_col)
    for a in range(max(0, -lag_row), min(h, h - lag_row)):
        line, here = out[a], seen[row + a]
        for b in range(start, stop):
            line[b] += product * here[col + b]


@subkernel()
def add_image(left, seen, gamma_e, active, found, lags, linear):
    """Add one image to the sums of one atom."""
    h, w, planes = lags.shape[1] // 2, lags.shape[2] // 2, linear.shape[1] // lags.shape[4]
    for e in range(found):
        i, j, scaled = active.places[e, 1], active.places[e, 2], gamma_e * active.weights[e]
        for a in range(linear.shape[0]):
            here, line = left[i + a], linear[a]
            for t in range(linear.shape[1]):
                line[t] += scaled * here[j * planes + t]
        for p in range(seen.shape[0]):
            add_overlap(seen[p], i, j, 0, 0, scaled * active.weights[e], lags[p, h, w])
            for f in range(e + 1, found):
                lag_i, lag_j = i - active.places[f, 1], j - active.places[f, 2]
                if abs(lag_i) <= h and abs(lag_j) <= w:
                    out = lags[p, h + lag_i, w + lag_j]
                    add_overlap(seen[p], i, j, lag_i, lag_j, scaled * active.weights[f], out)


@subkernel()
def make_active(z):
    """Room for the active positions of one map (image, block_row, block_col)."""
    return Active(np.empty((z[0].size, 3), np.int64), np.empty(z[0].size))


@kernel()
def add_atom(left, seen, gamma_e, z, w, layout, sums):
    """Add images to the ``sums`` of one atom, one slot a chunk.

    left : (image, row, col * plane)        seen : (image, plane or 1, row, col)        gamma_e : (image,)
    z, w : (image, block_row, block_col)
    sums : one slot a chunk
    """
    (lags, linear), active = sums, make_active(z)
    for chunk in range(lags.shape[0]):
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, left.shape[0])):
            found = list_active(z[n : n + 1], w[n : n + 1], layout, active)
            add_image(left[n], seen[n], gamma_e[n], active, found, lags[chunk], linear[chunk])


@kernel()
def change_atom(left, seen, z, w, change, layout):
    """Subtract ``change`` (atom_row, atom_col * plane) of an atom at its active positions from ``left``."""
    active = make_active(z)
    for n in range(len(left)):
        for e in range(list_active(z[n : n + 1], w[n : n + 1], layout, active)):
            row, col = active.places[e, 1], active.places[e, 2]
            weight = w.dtype.type(active.weights[e])
            subtract_seen(left[n], seen[n], change, row, col * layout.planes, weight)


@kernel()
def energies(left, out):
    """Squared norm of each image's residual, into ``out`` (image,)."""
    for n in range(len(left)):
        out[n] = energy_of(left[n])
