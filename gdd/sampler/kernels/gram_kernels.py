"""The image pass of a layer without pooling whose atoms all but fill their input, as a top layer's do.

Wherever two atoms stand in such a layer, they overlap. Correlations of all atoms at all positions are formed once per
image, and kept current by rows of the atoms' Gram matrix, which depends on the offset between two atoms alone: a change
of one coefficient costs atoms x positions multiply-adds, and a few dozen change in a sweep. Images of such a layer are
the pooled maps of the one below, nearly all zeros, which the correlations skip.

Order and random numbers are those of `gdd.sampler.kernels.layer.pass_whole`, which serves all other layers. So are the
axes,
the chunks of images and the sums.

*Checked:* tests/test_kernels.py (same chain as the plain conditionals from the same random numbers).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import FAST, INNER, kernel
from gdd.sampler.kernels.image_sums import add_energies, add_sums, energy_of, list_active
from gdd.sampler.kernels.kernels_math import copy_plane, subtract_atom
from gdd.sampler.kernels.layer import (
    CHUNK,
    SLACK,
    choose,
    draw_noise,
    fill_key,
    surely_empty,
)
from gdd.sampler.random import WORDS, next_normal, next_uniform

#: largest Gram matrix, in numbers, that is worth its memory: 134 MB in single precision
LARGEST = 2**25


@kernel(**INNER, fastmath=FAST)
def correlate_sparse(image, placed, planes, out):
    """Inner products of an image with every atom at every position, zeros skipped. Changes ``out`` (row, col, atom).

    image : (row, col * plane), placed : (atom_row, atom_col * plane, atom)
    """
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


@kernel(**INNER, fastmath=FAST)
def explain_row(correlations, gram, k, row, col, weight):
    """Correlations less those of atom k at (row, col) with this weight. Changes ``correlations`` (row, col, atom).

    gram : (atom, 2 rows - 1, 2 cols - 1, atom), see `gdd.model.placement.gram_slabs`
    """
    rows, cols = correlations.shape[:2]
    for i in range(rows):
        for j in range(cols):
            here, line = correlations[i, j], gram[k, i - row + rows - 1, j - col + cols - 1]
            for t in range(len(here)):
                here[t] -= weight * line[t]


@kernel(**INNER)
def residual_energy(image, atoms, entries, weights, found, planes, left):
    """Squared norm of an image less its active atoms. Changes ``left`` (row, col * plane).

    From pixels and not from correlations: where the fit is close, single precision would leave nothing of the
    difference of two large numbers.
    """
    copy_plane(image, left)
    for e in range(found):
        weight = left.dtype.type(weights[e])
        subtract_atom(left, atoms[entries[e, 0]], entries[e, 1], entries[e, 2] * planes, weight)
    return energy_of(left)


@kernel(**INNER)
def visit_all(z, w, correlations, gram, gamma_e, gamma_w, prior, scratch, stream):
    """Redraw every coefficient of an image. Changes z, w, correlations, scratch and stream."""
    rows, cols, atoms = correlations.shape
    gains, weights = scratch
    weights[0] = prior[0]
    for k in range(atoms):
        norm = np.float64(gram[k, rows - 1, cols - 1, k])
        precision = gamma_e * norm + gamma_w[k]
        half, step = gamma_e * gamma_e / (2.0 * precision), math.sqrt(gamma_w[k] / precision)
        for i in range(rows):
            for j in range(cols):
                uniform = next_uniform(stream)
                old = w[k, i, j]
                c = np.float64(correlations[i, j, k])
                if z[k, i, j] < 0:
                    if surely_empty(SLACK * half * c * c, prior[1], step * prior[0], uniform):
                        continue
                else:
                    c += np.float64(old) * norm
                gains[0] = half * c * c
                z[k, i, j] = choose(gains, gains[0], weights, prior[1], prior[0], 1, uniform, step)
                if z[k, i, j] < 0:
                    w[k, i, j] = 0.0
                else:
                    w[k, i, j] = gamma_e * c / precision + next_normal(stream) / math.sqrt(precision)
                change = w[k, i, j] - old  # as stored: the correlations must agree with the state to rounding
                if change != 0:
                    explain_row(correlations, gram, k, i, j, change)


@kernel(**INNER)
def gram_image(
    n, image, z, w, gamma_e, atoms, placed, gram, gamma_w, planes, prior, noise, work, pairs, cross, per_atom, energy,
    stream,
):  # fmt: skip
    """One image of `pass_gram`. Changes z, w, gamma_e[n], the sums and the scratch arrays in ``work``."""
    left, correlations, scratch, entries, weights, near = work
    correlate_sparse(image, placed, planes, correlations)
    found = list_active(z, w, (1, 1), entries, weights)
    for e in range(found):
        k, i, j = entries[e, 0], entries[e, 1], entries[e, 2]
        explain_row(correlations, gram, k, i, j, w[k, i, j])
    if noise[2] > 0.0:
        before = residual_energy(image, atoms, entries, weights, found, planes, left)
        gamma_e[n] = draw_noise(noise, image.size, before, stream)
    precision = np.float64(gamma_e[n if gamma_e.size > 1 else 0])
    visit_all(z, w, correlations, gram, precision, gamma_w, prior, scratch, stream)
    found = list_active(z, w, (1, 1), entries, weights)
    weight = precision if noise[3] > 0.0 else 1.0
    add_sums(entries, weights, found, image, weight, planes, near, pairs, cross)
    after = residual_energy(image, atoms, entries, weights, found, planes, left)
    add_energies(entries, weights, found, after, weight, precision, per_atom, energy)


@kernel(parallel=True, nogil=True)
def pass_gram(images, z, w, gamma_e, atoms, placed, gram, gamma_w, planes, prior, noise, key, first, sums):
    """Update images ``first``... in chunks, one slot of the sums each. Changes z, w, gamma_e and ``sums``.

    Parameters
    ----------
    placed : (atom_row, atom_col * plane, atom)
    gram : (atom, 2 rows - 1, 2 cols - 1, atom), see `gdd.model.placement.gram_slabs`
    the others : as in `gdd.sampler.kernels.layer.pass_whole`
    """
    pairs, cross, per_atom, energy = sums
    shape = (z.shape[2], z.shape[3], z.shape[1])
    blocks = z.shape[1] * z.shape[2] * z.shape[3]
    for chunk in prange(pairs.shape[0]):
        work = (
            np.empty(images.shape[1:], images.dtype),
            np.empty(shape, images.dtype),
            (np.empty(1), np.empty(1)),
            np.empty((blocks, 3), np.int64),
            np.empty(blocks),
            np.empty(blocks, np.int64),
        )
        stream = np.empty(WORDS, np.uint64)
        for n in range(first + chunk * CHUNK, min(first + (chunk + 1) * CHUNK, images.shape[0])):
            fill_key(stream, key, n)
            gram_image(
                n, images[n], z[n], w[n], gamma_e, atoms, placed, gram, gamma_w, planes, prior, noise, work,
                pairs[chunk], cross[chunk], per_atom[chunk], energy[chunk], stream,
            )  # fmt: skip
