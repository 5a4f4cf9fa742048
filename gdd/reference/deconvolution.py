"""Coefficients of an image under known atoms, as the equations read: one at a time, the Gram matrix written out.

Every placed atom is one fixed picture. See `gdd.inference.deconvolution` for the model; images and atoms are in units
in which the noise has precision 1. A top layer is sampled in the same way, see `gdd.reference.layer_sweep`.

Nearly all coefficients are inactive and almost surely stay so. A coefficient whose probability p of being active is
below `MIN_PROPOSAL_PROBABILITY` is not drawn at every visit: it is *proposed* with that probability, the gaps between
proposals being geometric numbers, and a proposed one becomes active with probability p / `MIN_PROPOSAL_PROBABILITY`.
Its probability of becoming active is p, as if it had been drawn.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from gdd.model.distributions import BlockChoice
from gdd.reference.conditionals import slab_log_odds
from gdd.reference.random import Stream

#: probability of being active below which an inactive coefficient is drawn only if it is proposed
MIN_PROPOSAL_PROBABILITY = 1 / 64


def coefficient_given_rest(correlation: float, norm: float, gamma_w: float, odds: float) -> BlockChoice:
    r"""Whether one placed atom is in the image, and how strongly, given all others.

    .. math:: \frac{p(z_i = 1 \mid -)}{p(z_i = 0 \mid -)} = \frac{1}{K - 1} \sqrt{\gamma_w / \lambda_i}\,
              e^{c_i^2 / 2 \lambda_i}, \qquad w_i \mid z_i = 1 \sim \mathcal N(c_i / \lambda_i, \lambda_i^{-1}), \qquad
              \lambda_i = \|d_i\|^2 + \gamma_w

    correlation : c, the placed atom times the image less all other contributions, in units of noise precision 1
    norm : squared norm of the placed atom, in the same units
    gamma_w : precision of the weights
    odds : 1 / (K - 1), K the atoms in use

    Returns the distribution over the one position 0, and empty. Nothing is drawn here.

    *Source:* Pu, Yuan & Carin 2015, supplement, "Testing"; no conditional is printed for this step (P20).
    *Departs:* weight integrated out of z.
    *Checked:* tests/test_deconvolution.py (exact ratio to the log joint; enumeration of every z).
    """
    precision = norm + gamma_w
    log_odds = log(odds) + slab_log_odds(correlation, precision, gamma_w)
    return BlockChoice(np.array([log_odds, 0.0]), np.array([correlation / precision]), np.array([precision]))


def plain_pursuit(
    correlation: np.ndarray, gram: np.ndarray, gamma_w: float, odds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a greedy pursuit, from which a chain starts, and the correlations with their residual.

    In each step the inactive coefficient of highest probability of being active, given the rest, gets its conditional
    mean, until no probability exceeds 1/2. No random numbers are used.

    correlation : (coefficient,)            with the image
    gram : (coefficient, coefficient)       inner products of the placed atoms over observed pixels
    """
    correlation, weight = correlation.copy(), np.zeros_like(correlation)
    while True:
        choices = [coefficient_given_rest(c, gram[i, i], gamma_w, odds) for i, c in enumerate(correlation)]
        probability = np.where(weight == 0, [exp(choice.log_probability[0]) for choice in choices], 0.0)
        i = int(probability.argmax())
        if probability[i] <= 0.5:
            return weight, correlation
        weight[i] = choices[i].mean[0]
        correlation -= weight[i] * gram[i]


def plain_coefficients(
    weight: np.ndarray, correlation: np.ndarray, gram: np.ndarray, gamma_w: float, odds: float, stream: Stream
) -> tuple[np.ndarray, np.ndarray]:
    """Redraw every coefficient once; returns the new weights and the new correlations with the residual.

    Arguments as of `plain_pursuit`, but for the correlations, which are those with the residual.
    """
    weight, correlation = weight.copy(), correlation.copy()
    proposed = draw_gap(stream)
    for i in range(weight.size):
        choice = coefficient_given_rest(correlation[i] + weight[i] * gram[i, i], gram[i, i], gamma_w, odds)
        new = draw_weight(choice, i == proposed, stream)
        if i == proposed:
            proposed += 1 + draw_gap(stream)
        correlation -= (new - weight[i]) * gram[i]
        weight[i] = new
    return weight, correlation


def draw_gap(stream: Stream) -> int:
    """Number of coefficients up to the next proposal."""
    return int(log(stream.uniform()) / log(1 - MIN_PROPOSAL_PROBABILITY))


def draw_weight(choice: BlockChoice, proposed: bool, stream: Stream) -> float:
    """Draw a weight from ``choice``; where being active is improbable, only if proposed. 0 if inactive."""
    p = exp(choice.log_probability[0])
    unlikely = p < MIN_PROPOSAL_PROBABILITY
    if unlikely and not proposed:
        return 0.0
    if stream.uniform() * (MIN_PROPOSAL_PROBABILITY if unlikely else 1.0) >= p:
        return 0.0
    return choice.mean[0] + stream.normal() / sqrt(choice.precision[0])
