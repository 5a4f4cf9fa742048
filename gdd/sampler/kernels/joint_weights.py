r"""All top weights of one image at once, compiled: a Gaussian draw that needs no matrix, made exact by an accept step.

The weights w of the coefficients that are on are Gaussian given all positions, with precision
:math:`Q = \gamma_e A'A + \mathrm{diag}(\gamma_w)`; column by column A holds the images of units. To draw them one after
another takes a way down the layers for each, to learn its norm. Instead (Gilavert, Moussaoui and Idier 2015):

1. perturb: :math:`\eta = Q w + \gamma_e A'x + \xi` with :math:`\xi \sim N(0, Q)`, one way up;
2. solve :math:`Q f = \eta` by conjugate gradients from 0, to whatever accuracy: f depends on :math:`\eta` alone;
3. propose :math:`\tilde w = f - w`, accept it with probability
   :math:`\min\{1, \exp[(\tilde w - w)'(\eta - Q f)]\}`.

Given :math:`\eta` the step is its own inverse, so that the accept step makes it exact for any f; solved exactly it is a
fresh draw, always accepted. The guess of the norms (`gdd.sampler.screening`) scales the solver.

*Checked:* tests/test_refine_sweep.py (same chain as the plain twin), tests/test_refine_joint.py (the twin keeps the
Gaussian; a solver that is cut off, and not corrected, does not).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import BURIED, INNER, kernel
from gdd.sampler.kernels.joint_kernels_math import add_unit, carry_down, carry_up, clear, correlation, render, whole_box
from gdd.sampler.random import fill_normals, next_normal, next_uniform

#: the solver stops where its error, in the norm of the scaled system, is so many posterior standard deviations
LEFT = 0.1
#: and after so many steps in any case
MOST_STEPS = 100


@kernel(**BURIED)
def draw_weights(n, image, w, gamma_e, gamma_w, norms, mask, model, values, change, back, box, tally, stream):
    """Draw the weights of all coefficients of one image that are on.

    image : (row * col * plane,), 0 where pixels are missing      norms : (atom,), guessed
    tally : [4] images with weights to draw, [5] of these accepted, [6] steps of the solver

    Changes w, values, change, back[0], box, tally, stream.
    """
    positions, dictionaries, layout, size = model
    top = len(positions) - 1
    atoms, rows, cols = positions[top].shape[1:]
    places, found = np.empty((atoms * rows * cols, 3), np.int64), np.int64(0)
    for k in range(atoms):
        for i in range(rows):
            for j in range(cols):
                if positions[top][n, k, i, j] >= 0:
                    places[found, 0], places[found, 1], places[found, 2] = k, i, j
                    found += 1
    if found == 0:
        return
    tally[4] += 1
    before, left, solved = np.empty(found), np.empty(found), np.zeros(found)
    perturb(n, image, gamma_e, mask, model, values, back[0], box, stream)
    for e in range(found):
        k, i, j = places[e]
        before[e] = w[n, k, i, j]
        own = gamma_w[k] * before[e] + math.sqrt(gamma_w[k]) * next_normal(stream)
        left[e] = carried(k, i, j, model, values) + own
    tally[6] += solve(n, places, found, gamma_e, gamma_w, norms, mask, model, change, box, left, solved)
    exponent = 0.0
    for e in range(found):
        exponent += (solved[e] - 2.0 * before[e]) * left[e]
    if math.log(next_uniform(stream)) >= exponent:
        return
    tally[5] += 1
    for e in range(found):
        k, i, j = places[e]
        w[n, k, i, j] = solved[e] - before[e]
    render(n, np.int64(0), positions, w, dictionaries, layout, values, box, size)
    for p in range(image.size):
        back[0][p] = image[p] - values[0][p] if mask.size == 0 else (image[p] - values[0][p]) * mask[p]


@kernel(**BURIED)
def perturb(n, image, gamma_e, mask, model, values, residual, box, stream):
    """Image and its explanation together, perturbed, carried up to the top. Changes values, box, stream."""
    positions, dictionaries, layout, size = model
    both, noise = values[0], np.empty(image.size)
    fill_normals(stream, noise)
    for p in range(image.size):
        total = gamma_e * (2.0 * np.float64(image[p]) - residual[p]) + math.sqrt(gamma_e) * noise[p]
        both[p] = total if mask.size == 0 else total * mask[p]
    whole_box(0, layout, box)
    carry_up(len(dictionaries) - 1, n, positions, dictionaries, layout, values, box, size)


@kernel(**INNER, **BURIED)
def carried(k, i, j, model, back):
    """Inner product of what was carried up with a unit of top atom k at (i, j)."""
    _, dictionaries, layout, size = model
    return np.float64(correlation(len(dictionaries) - 1, k, i, j, dictionaries, layout, back, size))


@kernel(**BURIED)
def solve(n, places, found, gamma_e, gamma_w, norms, mask, model, change, box, left, solved):
    """Conjugate gradients from 0 for Q ``solved`` = ``left``, scaled by the guessed diagonal of Q; returns its steps.

    Changes ``left``, to what is not solved, ``solved``, change, box.
    """
    diagonal, direction, product = np.empty(found), np.empty(found), np.empty(found)
    size = 0.0
    for e in range(found):
        diagonal[e] = gamma_e * norms[places[e, 0]] + gamma_w[places[e, 0]]
        direction[e] = left[e] / diagonal[e]
        size += left[e] * direction[e]
    for step in range(MOST_STEPS):
        if size <= LEFT * LEFT:
            return step
        times_precision(n, places, found, gamma_e, gamma_w, mask, model, change, box, direction, product)
        bend = 0.0
        for e in range(found):
            bend += direction[e] * product[e]
        length, former, size = size / bend, size, 0.0
        for e in range(found):
            solved[e] += length * direction[e]
            left[e] -= length * product[e]
            size += left[e] * left[e] / diagonal[e]
        for e in range(found):
            direction[e] = left[e] / diagonal[e] + size / former * direction[e]
    return MOST_STEPS


@kernel(**INNER, **BURIED)
def times_precision(n, places, found, gamma_e, gamma_w, mask, model, change, box, direction, product):
    """Q times a direction: a way down and a way up. Changes product, change, box."""
    positions, dictionaries, layout, size = model
    top = len(dictionaries) - 1
    whole_box(top, layout, box)
    clear(change[top], layout[top][4], layout[top][3], box[top])
    kind = change[0].dtype.type
    for e in range(found):
        k, i, j = places[e]
        add_unit(top, k, i, j, kind(direction[e]), dictionaries, layout, change, size)
    carry_down(top, n, positions, dictionaries, layout, change, box, size)
    if mask.size > 0:
        for p in range(mask.size):
            change[0][p] *= mask[p]
    carry_up(top, n, positions, dictionaries, layout, change, box, size)
    for e in range(found):
        k, i, j = places[e]
        product[e] = gamma_e * carried(k, i, j, model, change) + gamma_w[k] * direction[e]
