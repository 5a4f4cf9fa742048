"""Single sites visited by the Gram matrix of all placed atoms: the top layer's image pass, and what test time shares.

Wherever two atoms stand in a layer without pooling whose atoms all but fill their input, as a top layer's do, they
overlap. Correlations of all atoms at all positions are formed once per image, and kept current by rows of the atoms'
Gram matrix: a change of one coefficient costs atoms x positions multiply-adds, and a few dozen change in a sweep.
Images of such a layer are the pooled maps of the one below, nearly all zeros, which the correlations skip. So it is in
test-time deconvolution (`gdd.inference.deconvolution_kernels`), whose chains draw rare coefficients in another order.

Order and random numbers of `pass_gram` are those of `gdd.sampler.kernels.layer.pass_whole`, which serves all other
layers. So are the axes, the chunks of images and the sums.

*Checked:* tests/test_kernels.py (same chain as the plain conditionals from the same random numbers).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subkernel
from gdd.sampler.kernels.layer import make_work
from gdd.sampler.kernels.operations import (
    CHUNK,
    SLACK,
    Sums,
    add_sums,
    choose,
    draw_noise,
    draw_slab,
    energy_of,
    fill_residual,
    list_active,
    set_outcome,
    slab_of,
    surely_empty,
)
from gdd.sampler.kernels.random import fill_key, next_uniform

#: largest Gram matrix, in numbers, that is worth its memory: 134 MB in single precision
LARGEST = 2**25


class TopAtoms(NamedTuple):
    """The shared part of the layer's state."""

    pixels: np.ndarray  # (atom, atom_row, atom_col * plane)
    placed: np.ndarray  # (atom_row, atom_col * plane, atom)
    gram: np.ndarray  # (atom, row slab, col slab, atom), see `gdd.model.placement.gram_slabs`
    row_slab: np.ndarray  # (rows, rows): slab of a pair of positions
    col_slab: np.ndarray  # (cols, cols)
    gamma_w: float


@subkernel()
def explain(correlations, weight, k, row, col, gram, row_slab, col_slab):
    """Subtract ``weight`` times the Gram row of atom k at (row, col) from ``correlations``, flat (row, col, atom)."""
    atoms, base = gram.shape[3], 0
    for a in range(len(row_slab)):
        for b in range(len(col_slab)):
            line, here = gram[k, row_slab[row, a], col_slab[col, b]], correlations[base : base + atoms]
            for t in range(atoms):
                here[t] -= weight * line[t]
            base += atoms


#: the same at test time, where no product is fused with a sum
explain_unfused = kernel()(explain)


@subkernel()
def correlate_sparse(image, placed, planes, out):
    """Inner products of an image with every atom at every position, zeros skipped, into ``out`` (row, col, atom)."""
    out[:] = 0
    rows, cols = out.shape[:2]
    for r in range(image.shape[0]):
        for t in range(image.shape[1]):
            pixel = image[r, t]
            if pixel == 0:
                continue
            for i in range(max(0, r - placed.shape[0] + 1), min(rows, r + 1)):
                for j in range(max(0, (t - placed.shape[1]) // planes + 1), min(cols, t // planes + 1)):
                    line, taps = out[i, j], placed[r - i, t - j * planes]
                    for k in range(len(line)):
                        line[k] += pixel * taps[k]


@subkernel()
def visit_all(z, w, correlations, atoms, gamma_e, prior, work):
    """Redraw every coefficient of an image; ``correlations`` (row, col, atom) stay current."""
    rows, cols, number = correlations.shape
    outcomes, stream, flat = work.outcomes, work.stream, correlations.reshape(correlations.size)
    for k in range(number):
        norm = np.float64(atoms.gram[k, rows - 1, cols - 1, k])
        slab = slab_of(gamma_e, norm, atoms.gamma_w)
        for i in range(rows):
            for j in range(cols):
                uniform = next_uniform(stream)
                old, c = w[k, i, j], np.float64(correlations[i, j, k])
                if z[k, i, j] < 0:
                    if surely_empty(SLACK * slab.gain * c * c, prior.empty, slab.factor * prior.active, uniform):
                        continue
                else:
                    c += np.float64(old) * norm
                outcomes.weight[0] = prior.active
                set_outcome(outcomes, 0, c, slab)
                z[k, i, j], w[k, i, j] = choose(outcomes, 1, prior.empty, uniform), 0.0
                if z[k, i, j] == 0:
                    w[k, i, j] = draw_slab(gamma_e * c, slab.precision, stream)
                change = w[k, i, j] - old  # as stored: the correlations must agree with the state to rounding
                if change != 0:
                    explain(flat, change, k, i, j, atoms.gram, atoms.row_slab, atoms.col_slab)


@subkernel()
def update_image(n, images, atoms, constants, work, correlations, sums):
    """One image of `pass_gram`."""
    image, z, w, gamma_e = images.pixels[n], images.z[n], images.w[n], images.gamma_e
    correlate_sparse(image, atoms.placed, constants.layout.planes, correlations)
    flat, count = correlations.reshape(correlations.size), list_active(z, w, constants.layout, work.active)
    for e in range(count):
        k, i, j = work.active.places[e, 0], work.active.places[e, 1], work.active.places[e, 2]
        explain(flat, w[k, i, j], k, i, j, atoms.gram, atoms.row_slab, atoms.col_slab)
    if constants.prior.noise_drawn:
        fill_residual(image, atoms.pixels, count, constants, work)
        gamma_e[n] = draw_noise(constants.prior, image.size, energy_of(work.residual), work.stream)
    precision = gamma_e[n if gamma_e.size > 1 else 0]
    visit_all(z, w, correlations, atoms, precision, constants.prior, work)
    count = list_active(z, w, constants.layout, work.active)
    # from pixels and not from correlations: where the fit is close, single precision would leave nothing of the
    # difference of two large numbers
    fill_residual(image, atoms.pixels, count, constants, work)
    add_sums(work.active, count, image, work.residual, precision, constants, work.near, sums)


@kernel()
def pass_gram(images, atoms, constants, key, sums):
    """Update images in chunks; arguments as of `gdd.sampler.kernels.layer.pass_whole`, with `TopAtoms`."""
    layout, (images, atoms, sums) = constants.layout, borrowed((images, atoms, sums))
    work = make_work(images.z[0], atoms.placed[0], images.pixels[0], layout)
    correlations = np.empty((layout.map_row, layout.map_col, len(atoms.pixels)), images.pixels.dtype)
    for chunk in range(sums.pairs.shape[0]):
        part = Sums(sums.pairs[chunk], sums.cross[chunk], sums.per_atom[chunk], sums.energy[chunk])
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(images.pixels))):
            fill_key(work.stream, key, images.first + n)
            update_image(n, images, atoms, constants, work, correlations, part)
