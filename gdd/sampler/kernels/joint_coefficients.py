"""Which top coefficients of the joint model are on, compiled: an exact scan over all of them, place by place.

The residual is carried up to the top once. Then the log odds of a coefficient cost one small inner product, under a
guess of the norm of its image (`gdd.sampler.screening`), and most are left as they are. One that is proposed is
corrected by an accept step with its true norm, which takes a way down the layers. Only a switch makes it necessary to
carry the residual up again.

With c the product of the atom's image with the residual that lacks it, times gamma_e, and the weight integrated out:
switched on with the odds of c, and off with the odds of the c that the *guess* says, so that neither proposal needs the
norm. The accept step sets them right; both are checked against the exact conditional.

Arguments come in groups, see `gdd.sampler.kernels.joint_kernels.run_images`. *Checked:* tests/test_refine_sweep.py
(same chain
as the plain twin), tests/test_refine_joint.py.
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import BURIED, kernel
from gdd.sampler.kernels.joint_kernels_math import (
    carry_down,
    carry_up,
    correlation,
    place_unit,
    subtract,
    weigh,
    whole_box,
)
from gdd.sampler.random import next_normal, next_uniform

#: below this log odds the chance of a proposal is under 1/100, and most draws need no exponential
RARE = -4.6


@kernel(**BURIED)
def log_odds(c, weight_precision, prior):
    """Log odds that a coefficient is on, its weight integrated out. prior = (log of prior odds, gamma_w)."""
    return prior[0] + 0.5 * math.log(prior[1] / weight_precision) + c * c / (2.0 * weight_precision)


@kernel(**BURIED)
def log_one_plus_exp(x):
    """log(1 + exp(x)) for any x."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@kernel(**BURIED)
def draw_switches(n, w, gamma_e, odds, gamma_w, norms, mask, model, change, back, box, tally, stream):
    """Let every top coefficient of one image switch; one that stays on keeps its weight.

    norms : (atom,), guessed            tally : proposed on, switched on, proposed off, switched off

    Changes z, w, change, back, box, tally, stream.
    """
    positions, dictionaries, layout, size = model
    top = len(dictionaries) - 1
    z = positions[top]
    whole_box(0, layout, box)
    carry_up(top, n, positions, dictionaries, layout, back, box, size)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            for k in range(w.shape[1]):
                product = np.float64(correlation(top, k, i, j, dictionaries, layout, back, size))
                given = (gamma_e, norms[k], (odds, gamma_w[k]), mask, model, change, back, box, tally, stream)
                old = w[n, k, i, j]
                if z[n, k, i, j] >= 0:
                    switched, new = switch_off(n, k, i, j, np.float64(old), product, *given), 0.0
                else:
                    switched, new = switch_on(n, k, i, j, product, *given)
                if switched:
                    z[n, k, i, j] = -1 if z[n, k, i, j] >= 0 else 0
                    w[n, k, i, j] = new
                    subtract(change[0], w[n, k, i, j] - old, back[0], layout[0][4], layout[0][3], box[0])
                    carry_up(top, n, positions, dictionaries, layout, back, box, size)


@kernel(**BURIED)
def switch_off(n, k, i, j, old, product, gamma_e, norm, prior, mask, model, change, back, box, tally, stream):
    """Whether a coefficient that is on goes off. Leaves its image of a unit in change[0] if one is proposed."""
    screen = gamma_e * norm + prior[1]
    guessed = log_odds(gamma_e * (product + norm * old), screen, prior)
    if next_uniform(stream) * (1.0 + math.exp(min(guessed, 700.0))) >= 1.0:
        return False
    tally[2] += 1
    energy, product = make_unit(n, k, i, j, mask, model, change, back, box)
    c = gamma_e * (product + energy * old)
    exact, back_again = log_odds(c, gamma_e * energy + prior[1], prior), log_odds(c, screen, prior)
    ratio = log_one_plus_exp(guessed) - log_one_plus_exp(-back_again) - exact
    if math.log(next_uniform(stream)) >= ratio:
        return False
    tally[3] += 1
    return True


@kernel(**BURIED)
def switch_on(n, k, i, j, product, gamma_e, norm, prior, mask, model, change, back, box, tally, stream):
    """Whether a coefficient that is off goes on, and with which weight. Leaves as `switch_off` does."""
    screen, c = gamma_e * norm + prior[1], gamma_e * product
    guessed, uniform = log_odds(c, screen, prior), next_uniform(stream)
    if (guessed < RARE and uniform > 0.01) or uniform * (1.0 + math.exp(-guessed)) >= 1.0:
        return False, 0.0
    tally[0] += 1
    energy, _ = make_unit(n, k, i, j, mask, model, change, back, box)
    precision = gamma_e * energy + prior[1]
    weight = c / precision + next_normal(stream) / math.sqrt(precision)
    back_again = log_odds(c + gamma_e * (norm - energy) * weight, screen, prior)
    ratio = log_odds(c, precision, prior) + log_one_plus_exp(-guessed) - log_one_plus_exp(back_again)
    if math.log(next_uniform(stream)) >= ratio:
        return False, 0.0
    tally[1] += 1
    return True, weight


@kernel(**BURIED)
def make_unit(n, k, i, j, mask, model, change, back, box):
    """Image of a unit of top atom k at (i, j), in ``change[0]``; its energy and its product with the residual."""
    positions, dictionaries, layout, size = model
    top = len(dictionaries) - 1
    place_unit(top, k, i, j, back[0].dtype.type(1), dictionaries, layout, change, box, size)
    carry_down(top, n, positions, dictionaries, layout, change, box, size)
    return weigh(change[0], mask, back[0], layout[0][4], layout[0][3], box[0])
