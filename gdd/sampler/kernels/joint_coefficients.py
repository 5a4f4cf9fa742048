r"""Draws of the top coefficients of the joint model: their weights, and which of them are active.

*Weights.* All top weights of one image are drawn at once by perturbing, solving and accepting, as
`gdd.reference.joint_sweep` explains. The perturbation takes one correlation up the layers, a step of the solver one
synthesis and one correlation; no matrix is formed.

*Switches.* A Gibbs scan visits all coefficients, position by position. The residual is correlated up to the top once.
Then the log odds of a coefficient, under the expected norm of its image, cost one small inner product, and most
coefficients stay as they are. An accept step with the true norm, which takes a synthesis down the layers, corrects each
proposal. The residual is correlated up again only after a switch. Let c be gamma_e times the inner product of the
atom's image with the residual without it; the weight is integrated out. A coefficient is switched on with the odds of
c, and off with the odds of the c that the *expected* norm implies, so that neither proposal needs the true norm.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin), tests/test_joint_sampler.py (the twin leaves the
conditionals invariant; an uncorrected truncated solver and an uncorrected switch do not).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import subroutine
from gdd.reference.joint_sweep import MAX_WEIGHT_STEPS, WEIGHT_TOLERANCE
from gdd.sampler.kernels.joint import (
    BlockIndex,
    as_maps,
    clear,
    correlate_up,
    fill_joint_residual,
    full_box,
    lower_box,
    mask_and_dot,
    number_of,
    positions_of,
    subtract,
    synthesise_down,
    synthesise_values,
)
from gdd.sampler.kernels.operations import (
    add_atom,
    dot_atom,
    list_active,
    make_active,
    slab_log_factor,
    slab_log_odds,
    window_start,
)
from gdd.sampler.kernels.random import fill_normals, next_normal, next_uniform

#: log odds below which a proposal has a probability under 1/100, so that most draws need no exponential
LOG_ODDS_CUTOFF = -4.6


# All weights of one image


@subroutine()
def draw_weights(image, gamma_w, shared, work, sums):
    """Draw the weights of all active coefficients of one image.

    Changes w, values, delta, residual and box of ``work``, the image's accumulator of ``sums``, the stream.
    """
    n, top = image.n, shared.layers[len(shared.layers) - 1]
    active = make_active(image.w.size)
    count = list_active(positions_of(top, image.z), as_maps(top, image.w), top, active)
    if count == 0:
        return
    sums.weights_proposed[n] += 1
    residual, solved = np.empty(count), np.zeros(count)
    perturb_image(image, shared, work)
    for e in range(count):
        start = entry_start(e, active, top)
        dot = np.float64(dot_atom(work.values, start, active.places[e, 0], top, shared.static))
        noise = math.sqrt(gamma_w) * next_normal(image.stream)
        residual[e] = dot + (gamma_w * active.weights[e] + noise)
    sums.weight_steps[n] += solve_weights(active, image, gamma_w, shared, work, residual, solved)
    log_ratio = 0.0
    for e in range(count):
        log_ratio += (solved[e] - 2.0 * active.weights[e]) * residual[e]
    if math.log(next_uniform(image.stream)) >= log_ratio:
        return
    sums.weights_accepted[n] += 1
    for e in range(count):
        b = number_of(active.places[e, 0], active.places[e, 1], active.places[e, 2], top)
        image.w[b] = solved[e] - active.weights[e]
    synthesise_values(np.int64(0), image, shared, work)
    fill_joint_residual(image, work)


@subroutine()
def entry_start(e, active, layer):
    """`window_start` of active position e."""
    return window_start(active.places[e, 1], active.places[e, 2], layer)


@subroutine()
def perturb_image(image, shared, work):
    """Correlate gamma_e (x + A w), perturbed, up to the top. Changes values, box, the stream."""
    noise, gamma_e = np.empty(image.pixels.size), image.gamma_e
    fill_normals(image.stream, noise)
    for p in range(image.pixels.size):
        total = gamma_e * (2.0 * np.float64(image.pixels[p]) - work.upward[p]) + math.sqrt(gamma_e) * noise[p]
        work.values[p] = total if image.mask.size == 0 else total * image.mask[p]
    full_box(shared.layers[0], work.box[0])
    correlate_up(len(shared.layers) - 1, image.z, shared, work.values, work.box)


@subroutine()
def solve_weights(active, image, gamma_w, shared, work, residual, solved):
    """Solve Q ``solved`` = ``residual`` by conjugate gradients from 0, preconditioned by the expected diagonal of Q.

    Returns the number of steps. Changes ``residual`` to that of the solution, ``solved``, delta and box of ``work``.
    """
    count, rz, overlaps = len(residual), 0.0, shared.layers[len(shared.layers) - 1].overlaps
    diagonal, direction, product = np.empty(count), np.empty(count), np.empty(count)
    for e in range(count):
        diagonal[e] = image.gamma_e * overlaps[active.places[e, 0]] + gamma_w
        direction[e] = residual[e] / diagonal[e]
        rz += residual[e] * direction[e]
    for step in range(MAX_WEIGHT_STEPS):
        if rz <= WEIGHT_TOLERANCE * WEIGHT_TOLERANCE:
            return step
        apply_precision(active, image, gamma_w, shared, work, direction, product)
        curvature = 0.0
        for e in range(count):
            curvature += direction[e] * product[e]
        alpha, former, rz = rz / curvature, rz, 0.0
        for e in range(count):
            solved[e] += alpha * direction[e]
            residual[e] -= alpha * product[e]
            rz += residual[e] * residual[e] / diagonal[e]
        for e in range(count):
            direction[e] = residual[e] / diagonal[e] + rz / former * direction[e]
    return MAX_WEIGHT_STEPS


@subroutine()
def apply_precision(active, image, gamma_w, shared, work, direction, product):
    """Q times ``direction``, by synthesis and correlation, into ``product``. Changes delta and box of ``work``."""
    last = len(shared.layers) - 1
    top, delta, box = shared.layers[last], work.delta, work.box
    full_box(top, box[last])
    clear(delta, top, box[last])
    for e in range(len(direction)):
        value = delta.dtype.type(direction[e])
        add_atom(delta, entry_start(e, active, top), active.places[e, 0], value, top, shared.static)
    synthesise_down(last, image.z, shared, delta, box)
    for p in range(image.mask.size):
        delta[p] *= image.mask[p]
    correlate_up(last, image.z, shared, delta, box)
    for e in range(len(direction)):
        dot = np.float64(dot_atom(delta, entry_start(e, active, top), active.places[e, 0], top, shared.static))
        product[e] = image.gamma_e * dot + gamma_w * direction[e]


# Switches


class SwitchPrior(NamedTuple):
    """Terms of a top coefficient's odds that do not depend on its correlation."""

    log_odds: float  # prior log odds of being active
    gamma_w: float
    norm: float  # expected squared norm of its image


@subroutine()
def log_odds(c, precision, prior):
    """Log odds that a coefficient is active, its weight integrated out."""
    return slab_log_odds(c, 1.0 / precision, slab_log_factor(prior.log_odds, prior.gamma_w, 1.0 / precision))


@subroutine()
def log_one_plus_exp(x):
    """log(1 + exp(x)) for any x."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@subroutine()
def draw_switches(image, log_prior_odds, gamma_w, shared, work, sums):
    """Propose to switch every top coefficient of one image; a coefficient that stays active keeps its weight.

    Changes z, w, delta, residual and box of ``work``, the image's accumulator of ``sums``, the stream.
    """
    last, z, w = len(shared.layers) - 1, image.z, image.w
    top, bottom = shared.layers[last], shared.layers[0]
    full_box(bottom, work.box[0])
    correlate_up(last, z, shared, work.upward, work.box)
    for i in range(top.grid_row):
        for j in range(top.grid_col):
            for k in range(top.atoms):
                b, block = number_of(k, i, j, top), BlockIndex(k, i, j)
                product = np.float64(dot_atom(work.upward, window_start(i, j, top), k, top, shared.static))
                prior = SwitchPrior(log_prior_odds, gamma_w, top.overlaps[k])
                old, new, active = w[b], 0.0, z[top.block + b] >= 0
                if active:
                    switched = switch_off(block, np.float64(old), product, prior, image, shared, work, sums)
                else:
                    switched, new = switch_on(block, product, prior, image, shared, work, sums)
                if switched:
                    z[top.block + b] = -1 if active else 0
                    w[b] = new
                    subtract(work.delta, w[b] - old, work.upward, bottom, work.box[0])
                    correlate_up(last, z, shared, work.upward, work.box)


@subroutine(forceinline=True)
def switch_off(block, old, product, prior, image, shared, work, sums):
    """Propose to switch a coefficient of weight ``old`` off; return whether it is accepted.

    product : inner product of the residual with its image of a unit, which a proposal leaves in ``work.delta``
    """
    n, gamma_e = image.n, image.gamma_e
    expected = gamma_e * prior.norm + prior.gamma_w
    forward = log_odds(gamma_e * (product + prior.norm * old), expected, prior)
    if next_uniform(image.stream) * (1.0 + math.exp(min(forward, 700.0))) >= 1.0:
        return False
    sums.proposed_off[n] += 1
    energy, product = unit_response(block, image, shared, work)
    c = gamma_e * (product + energy * old)
    exact, backward = log_odds(c, gamma_e * energy + prior.gamma_w, prior), log_odds(c, expected, prior)
    log_ratio = log_one_plus_exp(forward) - log_one_plus_exp(-backward) - exact
    if math.log(next_uniform(image.stream)) >= log_ratio:
        return False
    sums.switched_off[n] += 1
    return True


@subroutine(forceinline=True)
def switch_on(block, product, prior, image, shared, work, sums):
    """`switch_off` the other way: propose to switch a coefficient on; return whether it is accepted, and its weight."""
    n, gamma_e = image.n, image.gamma_e
    expected, c = gamma_e * prior.norm + prior.gamma_w, gamma_e * product
    forward, uniform = log_odds(c, expected, prior), next_uniform(image.stream)
    if (forward < LOG_ODDS_CUTOFF and uniform > 0.01) or uniform * (1.0 + math.exp(-forward)) >= 1.0:
        return False, 0.0
    sums.proposed_on[n] += 1
    energy, _ = unit_response(block, image, shared, work)
    precision = gamma_e * energy + prior.gamma_w
    weight = c / precision + next_normal(image.stream) / math.sqrt(precision)
    exact = log_odds(c, precision, prior)
    backward = log_odds(c + gamma_e * (prior.norm - energy) * weight, expected, prior)
    log_ratio = exact + log_one_plus_exp(-forward) - log_one_plus_exp(backward)
    if math.log(next_uniform(image.stream)) >= log_ratio:
        return False, 0.0
    sums.switched_on[n] += 1
    return True, weight


@subroutine()
def unit_response(block, image, shared, work):
    """Image of a unit in a top block, into ``work.delta``; returns its energy and inner product with the residual."""
    last, delta, box = len(shared.layers) - 1, work.delta, work.box
    top = shared.layers[last]
    lower_box(top, (block.i, block.i + 1, block.j, block.j + 1), box[last])
    clear(delta, top, box[last])
    add_atom(delta, window_start(block.i, block.j, top), block.k, delta.dtype.type(1), top, shared.static)
    synthesise_down(last, image.z, shared, delta, box)
    return mask_and_dot(delta, image.mask, work.upward, shared.layers[0], box[0])
