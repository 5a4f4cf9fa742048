"""Top coefficients of the joint model, compiled: weights of those that are on, then which are on, place by place.

All atoms at one place of the top maps reach the same window of the image. The images of those that are on are made
once: each takes a way down the layers. With them the weights are drawn exactly. Then the residual is carried up to
the top within the window, once, and every atom may switch. Most are off, and one inner product with a guess of their
norm (`gdd.sampler.screening`) shows that they stay so; one that is proposed is corrected by an accept step with its
true norm. Only a switch makes it necessary to carry the residual up again.

Arguments come in groups, see `gdd.sampler.joint_kernels.run_images`. *Checked:* tests/test_refine_sweep.py (same chain
as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from gdd.sampler.joint_kernels_math import carry_down, carry_up_within, place_unit, weigh, window_of
from gdd.sampler.random import next_normal, next_uniform
from gdd.sampler.windows import window_add, window_dot

#: below this log odds the chance of a proposal is under 1/100, and most draws need no exponential
RARE = -4.6


@njit(cache=True)
def log_odds(c, weight_precision, prior):
    """Log odds that a coefficient is on, its weight integrated out. prior = (log of prior odds, gamma_w)."""
    return prior[0] + 0.5 * math.log(prior[1] / weight_precision) + c * c / (2.0 * weight_precision)


@njit(cache=True)
def draw_coefficients(n, w, gamma_e, odds, gamma_w, guesses, mask, model, change, back, box, units, tally, stream):
    """Draw every top coefficient of one image. Changes z, w, change, back[0], box, units, tally, stream.

    units : (images (atom * pixels of a window,), their energies (atom,)) of the atoms at one place, scratch
    tally : proposed on, switched on, proposed off, switched off
    What is carried up is left current within windows only.
    """
    _, dictionaries, layout, _ = model
    top = len(dictionaries) - 1
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            window_of(top, i, j, 1, 1, layout, box)
            draw_weights(n, i, j, w, gamma_e, gamma_w, mask, model, change, back, box, units, stream)
            draw_switches(
                n, i, j, w, gamma_e, odds, gamma_w, guesses, mask, model, change, back, box, units, tally, stream
            )  # fmt: skip


@njit(cache=True)
def draw_weights(n, i, j, w, gamma_e, gamma_w, mask, model, change, back, box, units, stream):
    """Draw the weights of the atoms that are on at one place, one after another. Changes w, change, back[0], units."""
    positions, dictionaries, layout, size = model
    z, (images, energies) = positions[len(dictionaries) - 1], units
    start, width, rows, length = window_in_image(layout, box)
    for k in range(w.shape[1]):
        if z[n, k, i, j] >= 0:
            old = w[n, k, i, j]
            energies[k], product = make_unit(n, k, i, j, mask, model, change, back, box)
            store_unit(k, change[0], layout, box, images)
            precision = gamma_e * energies[k] + gamma_w[k]
            mean = gamma_e * (product + energies[k] * np.float64(old)) / precision
            w[n, k, i, j] = mean + next_normal(stream) / math.sqrt(precision)
            window_add(back[0], start, width, images, k * rows * length, old - w[n, k, i, j], rows, length, ((), ()))


@njit(cache=True)
def draw_switches(
    n, i, j, w, gamma_e, odds, gamma_w, guesses, mask, model, change, back, box, units, tally, stream
):  # fmt: skip
    """Let every atom at one place switch; one that stays on keeps its weight. Changes what `draw_coefficients` does.

    Needs the images of those that are on in ``units``.
    """
    positions, dictionaries, layout, size = model
    top = len(dictionaries) - 1
    _, height, stretch, planes, line, _, _, _, _, _, _ = layout[top]
    z, level, dictionary, (images, energies) = positions[top], back[top], dictionaries[top], units
    start, width, rows, length = window_in_image(layout, box)
    corner = i * line + j * planes
    carry_up_within(top, n, positions, dictionaries, layout, back, box, size)
    for k in range(w.shape[1]):
        prior, screen = (odds, gamma_w[k]), gamma_e * guesses[k, 0, 0] + gamma_w[k]
        uniform, old = next_uniform(stream), w[n, k, i, j]
        if z[n, k, i, j] >= 0:
            product = np.float64(window_dot(back[0], start, width, images, k * rows * length, rows, length, ((), ())))
            c = gamma_e * (product + energies[k] * np.float64(old))
            guessed = log_odds(c, screen, prior)
            if uniform * (1.0 + math.exp(min(guessed, 700.0))) >= 1.0:
                continue
            tally[2] += 1
            exact = log_odds(c, gamma_e * energies[k] + gamma_w[k], prior)
            if math.log(next_uniform(stream)) >= guessed - exact:
                continue
            tally[3] += 1
            z[n, k, i, j], w[n, k, i, j] = -1, 0
        else:
            if top == 0:
                c = window_dot(level, corner, line, dictionary, k * height * stretch, height, stretch, size)
            else:
                c = window_dot(level, corner, line, dictionary, k * height * stretch, height, stretch, ((), ()))
            c = gamma_e * np.float64(c)
            guessed = log_odds(0.0, screen, prior) + c * c / (2.0 * screen)
            if (guessed < RARE and uniform > 0.01) or uniform * (1.0 + math.exp(-guessed)) >= 1.0:
                continue
            tally[0] += 1
            energies[k], _ = make_unit(n, k, i, j, mask, model, change, back, box)
            precision = gamma_e * energies[k] + gamma_w[k]
            if math.log(next_uniform(stream)) >= log_odds(c, precision, prior) - guessed:
                continue
            tally[1] += 1
            store_unit(k, change[0], layout, box, images)
            z[n, k, i, j], w[n, k, i, j] = 0, c / precision + next_normal(stream) / math.sqrt(precision)
        window_add(back[0], start, width, images, k * rows * length, old - w[n, k, i, j], rows, length, ((), ()))
        carry_up_within(top, n, positions, dictionaries, layout, back, box, size)


@njit(cache=True)
def window_in_image(layout, box):
    """Where the window begins in a flat image, the image's width, the window's rows and its row length."""
    planes, width = layout[0][3], layout[0][4]
    return (
        box[0, 0] * width + box[0, 2] * planes, width, box[0, 1] - box[0, 0], (box[0, 3] - box[0, 2]) * planes
    )  # fmt: skip


@njit(cache=True)
def make_unit(n, k, i, j, mask, model, change, back, box):
    """Image of a unit of top atom k at (i, j), in ``change[0]``; its energy and its product with the residual."""
    positions, dictionaries, layout, size = model
    top = len(dictionaries) - 1
    place_unit(top, k, i, j, back[0].dtype.type(1), dictionaries, layout, change, box, size)
    carry_down(top, n, positions, dictionaries, layout, change, box, size)
    return weigh(change[0], mask, back[0], layout[0][4], layout[0][3], box[0])


@njit(cache=True)
def store_unit(k, image, layout, box, images):
    """Copy the window of an image to the place of atom k. Changes ``images``."""
    start, width, rows, length = window_in_image(layout, box)
    for row in range(rows):
        first = (k * rows + row) * length
        images[first : first + length] = image[start + row * width : start + row * width + length]
