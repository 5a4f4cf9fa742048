r"""Which top coefficients of the joint model are on, and their weights, compiled.

All top weights of one image at once: a Gaussian draw that needs no matrix, made exact by an accept step. The weights w
of the coefficients that are on are Gaussian given all positions, with precision
:math:`Q = \gamma_e A'A + \gamma_w I`; column by column A holds the images of units. Then
(Gilavert, Moussaoui and Idier 2015):

1. perturb: :math:`\eta = Q w + \gamma_e A'x + \xi` with :math:`\xi \sim N(0, Q)`, one way up;
2. solve :math:`Q f = \eta` by conjugate gradients from 0, to whatever accuracy: f depends on :math:`\eta` alone;
3. propose :math:`\tilde w = f - w`, accept it with probability
   :math:`\min\{1, \exp[(\tilde w - w)'(\eta - Q f)]\}`.

Given :math:`\eta` the step is its own inverse, so that the accept step makes it exact for any f; solved exactly it is a
fresh draw, always accepted. The guess of the norms (`gdd.reference.screening`) scales the solver.

Which coefficients are on: a Gibbs scan over all of them, place by place. The residual is correlated up to the top once.
Then the log odds of a coefficient cost one small inner product, under the guess of the norm of its image, and most are
left as they are. One that is proposed is corrected by an accept step with its true norm, which takes a way down the
layers. Only a switch makes it necessary to correlate the residual up again. With c the product of the atom's image with
the residual that lacks it, times gamma_e, and the weight integrated out: switched on with the odds of c, and off with
the odds of the c that the *guess* implies, so that neither proposal needs the norm.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin), tests/test_joint_sampler.py (the twin keeps the
conditionals; a solver that is cut off and not corrected, and a switch that is not corrected, do not).
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import kernel
from gdd.reference.joint_sweep import MAX_WEIGHT_STEPS, WEIGHT_TOLERANCE
from gdd.sampler.kernels.joint import (
    Block,
    add_atom,
    block_of,
    clear,
    correlate_up,
    dot_atom,
    layer_of,
    list_entries,
    make_entries,
    mask_and_dot,
    place_of,
    place_unit,
    subtract,
    synthesise_down,
    synthesise_values,
    whole_box,
)
from gdd.sampler.kernels.random import fill_normals, next_normal, next_uniform

#: below this log odds the chance of a proposal is under 1/100, and most draws need no exponential
RARE = -4.6

#: what is counted: top coefficients proposed on, switched on, proposed off, switched off; images whose weights were
#: proposed, and accepted; steps of their solver
ON_PROPOSED, ON, OFF_PROPOSED, OFF, WEIGHTS_PROPOSED, WEIGHTS, STEPS = range(7)


@kernel()
def draw_weights(image, gamma_w, shared, work, tally):
    """Draw the weights of all coefficients of one image that are on.

    Changes w, values, change, residual and box of ``work``, tally, the stream.
    """
    top, entries = layer_of(shared.table, shared.table.shape[0] - 1), make_entries(image.w.size, image.w)
    count = list_entries(0, top.atoms, top, image.z, image.w, entries)
    if count == 0:
        return
    tally[WEIGHTS_PROPOSED] += 1
    residual, solved = np.empty(count), np.zeros(count)
    perturb_image(image, shared, work)
    for e in range(count):
        k, start = entries.atoms[e], place_of(top, entries.rows[e], entries.cols[e])
        prior = gamma_w * np.float64(entries.values[e]) + math.sqrt(gamma_w) * next_normal(image.stream)
        residual[e] = np.float64(dot_atom(work.values, start, k, top, shared)) + prior
    tally[STEPS] += solve_weights(entries, image, gamma_w, shared, work, residual, solved)
    exponent = 0.0
    for e in range(count):
        exponent += (solved[e] - 2.0 * np.float64(entries.values[e])) * residual[e]
    if math.log(next_uniform(image.stream)) >= exponent:
        return
    tally[WEIGHTS] += 1
    for e in range(count):
        image.w[entries.blocks[e]] = solved[e] - np.float64(entries.values[e])
    synthesise_values(np.int64(0), image, shared, work)
    for p in range(image.pixels.size):
        difference = image.pixels[p] - work.values[p]
        work.back[p] = difference if image.mask.size == 0 else difference * image.mask[p]


@kernel()
def perturb_image(image, shared, work):
    """Image and its explanation together, perturbed, correlated up to the top. Changes values, box, the stream."""
    noise, gamma_e = np.empty(image.pixels.size), image.gamma_e
    fill_normals(image.stream, noise)
    for p in range(image.pixels.size):
        total = gamma_e * (2.0 * np.float64(image.pixels[p]) - work.back[p]) + math.sqrt(gamma_e) * noise[p]
        work.values[p] = total if image.mask.size == 0 else total * image.mask[p]
    whole_box(layer_of(shared.table, 0), work.box[0])
    correlate_up(shared.table.shape[0] - 1, image.z, shared, work.values, work.box)


@kernel()
def solve_weights(entries, image, gamma_w, shared, work, residual, solved):
    """Conjugate gradients from 0 for Q ``solved`` = ``residual``, scaled by the guessed diagonal of Q.

    Returns the number of steps. Changes ``residual``, to what is not solved, ``solved``, change and box of ``work``.
    """
    count, size = len(residual), 0.0
    diagonal, direction, product = np.empty(count), np.empty(count), np.empty(count)
    lag = layer_of(shared.table, shared.table.shape[0] - 1).lag
    for e in range(count):
        diagonal[e] = image.gamma_e * shared.lags[lag + entries.atoms[e]] + gamma_w
        direction[e] = residual[e] / diagonal[e]
        size += residual[e] * direction[e]
    for step in range(MAX_WEIGHT_STEPS):
        if size <= WEIGHT_TOLERANCE**2:
            return step
        times_precision(entries, image, gamma_w, shared, work, direction, product)
        curvature = 0.0
        for e in range(count):
            curvature += direction[e] * product[e]
        length, former, size = size / curvature, size, 0.0
        for e in range(count):
            solved[e] += length * direction[e]
            residual[e] -= length * product[e]
            size += residual[e] * residual[e] / diagonal[e]
        for e in range(count):
            direction[e] = residual[e] / diagonal[e] + size / former * direction[e]
    return MAX_WEIGHT_STEPS


@kernel()
def times_precision(entries, image, gamma_w, shared, work, direction, product):
    """Q times a direction: a way down and a way up. Changes ``product``, change and box of ``work``."""
    last = shared.table.shape[0] - 1
    top, change, box = layer_of(shared.table, last), work.change, work.box
    whole_box(top, box[last])
    clear(change, top, box[last])
    for e in range(len(direction)):
        start, value = place_of(top, entries.rows[e], entries.cols[e]), change.dtype.type(direction[e])
        add_atom(change, start, entries.atoms[e], value, top, shared)
    synthesise_down(last, image.z, shared, change, box)
    for p in range(image.mask.size):
        change[p] *= image.mask[p]
    correlate_up(last, image.z, shared, change, box)
    for e in range(len(direction)):
        k = entries.atoms[e]
        inner = np.float64(dot_atom(change, place_of(top, entries.rows[e], entries.cols[e]), k, top, shared))
        product[e] = image.gamma_e * inner + gamma_w * direction[e]


# Switches


@kernel()
def log_odds(c, weight_precision, log_prior, gamma_w):
    """Log odds that a coefficient is on, its weight integrated out."""
    return log_prior + 0.5 * math.log(gamma_w / weight_precision) + c * c / (2.0 * weight_precision)


@kernel()
def log_one_plus_exp(x):
    """log(1 + exp(x)) for any x."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@kernel()
def draw_switches(image, log_prior, gamma_w, shared, work, tally):
    """Let every top coefficient of one image switch; one that stays on keeps its weight.

    log_prior : log odds of being on, a priori. Changes z, w, change, residual and box of ``work``, tally, the stream.
    """
    last, z, w = shared.table.shape[0] - 1, image.z, image.w
    top, bottom = layer_of(shared.table, last), layer_of(shared.table, 0)
    whole_box(bottom, work.box[0])
    correlate_up(last, z, shared, work.back, work.box)
    for i in range(top.grid_row):
        for j in range(top.grid_col):
            for k in range(top.atoms):
                b = block_of(k, i, j, top)
                product = np.float64(dot_atom(work.back, place_of(top, i, j), k, top, shared))
                prior = log_prior, gamma_w, shared.lags[top.lag + k]
                old, new = w[b], 0.0
                if z[top.block + b] >= 0:
                    switched = switch_off(Block(k, i, j), np.float64(old), product, prior, image, shared, work, tally)
                else:
                    switched, new = switch_on(Block(k, i, j), product, prior, image, shared, work, tally)
                if switched:
                    z[top.block + b] = -1 if z[top.block + b] >= 0 else 0
                    w[b] = new
                    subtract(work.change, w[b] - old, work.back, bottom, work.box[0])
                    correlate_up(last, z, shared, work.back, work.box)


@kernel()
def switch_off(block, old, product, prior, image, shared, work, tally):
    """Whether a coefficient that is on goes off. Leaves its image of a unit in the change if one is proposed."""
    log_prior, gamma_w, norm = prior
    screen = image.gamma_e * norm + gamma_w
    guessed = log_odds(image.gamma_e * (product + norm * old), screen, log_prior, gamma_w)
    if next_uniform(image.stream) * (1.0 + math.exp(min(guessed, 700.0))) >= 1.0:
        return False
    tally[OFF_PROPOSED] += 1
    energy, product = image_of_unit(block, image, shared, work)
    c = image.gamma_e * (product + energy * old)
    exact = log_odds(c, image.gamma_e * energy + gamma_w, log_prior, gamma_w)
    back_again = log_odds(c, screen, log_prior, gamma_w)
    if math.log(next_uniform(image.stream)) >= log_one_plus_exp(guessed) - log_one_plus_exp(-back_again) - exact:
        return False
    tally[OFF] += 1
    return True


@kernel()
def switch_on(block, product, prior, image, shared, work, tally):
    """Whether a coefficient that is off goes on, and with which weight. Leaves as `switch_off` does."""
    log_prior, gamma_w, norm = prior
    screen, c = image.gamma_e * norm + gamma_w, image.gamma_e * product
    guessed, uniform = log_odds(c, screen, log_prior, gamma_w), next_uniform(image.stream)
    if (guessed < RARE and uniform > 0.01) or uniform * (1.0 + math.exp(-guessed)) >= 1.0:
        return False, 0.0
    tally[ON_PROPOSED] += 1
    energy, _ = image_of_unit(block, image, shared, work)
    precision = image.gamma_e * energy + gamma_w
    weight = c / precision + next_normal(image.stream) / math.sqrt(precision)
    back_again = log_odds(c + image.gamma_e * (norm - energy) * weight, screen, log_prior, gamma_w)
    ratio = log_odds(c, precision, log_prior, gamma_w) + log_one_plus_exp(-guessed) - log_one_plus_exp(back_again)
    if math.log(next_uniform(image.stream)) >= ratio:
        return False, 0.0
    tally[ON] += 1
    return True, weight


@kernel()
def image_of_unit(block, image, shared, work):
    """Image of a unit in a top block, in the change; its energy and its product with the residual."""
    last, one = shared.table.shape[0] - 1, work.back.dtype.type(1)
    place_unit(block, one, layer_of(shared.table, last), shared, work.change, work.box[last])
    synthesise_down(last, image.z, shared, work.change, work.box)
    return mask_and_dot(work.change, image.mask, work.back, layer_of(shared.table, 0), work.box[0])
