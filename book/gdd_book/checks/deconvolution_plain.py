"""Test-time deconvolution as the equations read: what the compiled chains are held against.

One coefficient at a time, the Gram matrix written out; see `gdd.inference.deconvolution` for the model.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from gdd.inference.deconvolution import prior_odds
from gdd.inference.deconvolution_kernels import RARE, Problem
from gdd.model.distributions import BlockChoice
from gdd.sampler.random import Stream


def dense_gram(problem: Problem) -> np.ndarray:
    """Return the Gram matrix written out, (coefficient, coefficient), the atom running fastest."""
    full = problem.gram[:, problem.row_slab[:, None, :, None], problem.col_slab[None, :, None, :]]
    return full.transpose(1, 2, 0, 3, 4, 5).reshape(problem.norm.size, -1)  # from (atom, row, col, row', col', atom')


def coefficient_given_rest(correlation: float, norm: float, gamma_w: float, odds: float) -> BlockChoice:
    r"""Whether one placed atom is in the image, and how strongly, given all others.

    .. math:: \frac{p(z_i = 1 \mid -)}{p(z_i = 0 \mid -)} = \frac{1}{K - 1} \sqrt{\gamma_w / \lambda_i}\,
              e^{c_i^2 / 2 \lambda_i}, \qquad w_i \mid z_i = 1 \sim \mathcal N(c_i / \lambda_i, \lambda_i^{-1}), \qquad
              \lambda_i = \|d_i\|^2 + \gamma_w

    Parameters
    ----------
    correlation : c, the placed atom times the image less all other contributions, in units of noise precision 1
    norm : squared norm of the placed atom, in the same units
    gamma_w : precision of the weights
    odds : 1 / (K - 1), K the atoms in use

    Returns
    -------
    BlockChoice
        With the one position 0, or empty. Nothing is drawn here.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Testing"; no conditional is printed for this step (P20).
    Departs: weight integrated out of z.
    Checked: tests/test_deconvolution.py (exact ratio to the log joint; enumeration of every z).
    """
    precision = norm + gamma_w
    log_odds = log(odds) + 0.5 * log(gamma_w / precision) + 0.5 * correlation**2 / precision
    return BlockChoice(np.array([log_odds, 0.0]), np.array([correlation / precision]), np.array([precision]))


def given_problem(i: int, correlation: float, problem: Problem) -> BlockChoice:
    """`coefficient_given_rest` for coefficient ``i`` of a problem."""
    return coefficient_given_rest(correlation, problem.norm[i], problem.gamma_w, prior_odds(problem.atoms.shape[3]))


def pursue_plain(
    correlation: np.ndarray, problem: Problem, gram: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights that a chain starts from, and the correlations with the residual that they leave.

    The idle coefficient that is most probably active given the rest gets its conditional mean, again and again, until
    none is more probable than not. The readable twin of `gdd.inference.deconvolution_kernels.pursue`; no random
    numbers. ``gram`` : as of `sweep_plain`
    """
    correlation, weight = correlation.copy(), np.zeros_like(correlation)
    gram = dense_gram(problem) if gram is None else gram
    while True:
        choices = [given_problem(i, c, problem) for i, c in enumerate(correlation)]
        probability = np.where(weight == 0, [exp(choice.log_probability[0]) for choice in choices], 0.0)
        i = int(probability.argmax())
        if probability[i] <= 0.5:
            return weight, correlation
        weight[i] = choices[i].mean[0]
        correlation -= weight[i] * gram[i]


def sweep_plain(
    weight: np.ndarray, correlation: np.ndarray, problem: Problem, stream: Stream, gram: np.ndarray | None = None
):
    """Redraw every coefficient once; returns the new weights and the new correlations with the residual.

    The readable twin of `gdd.inference.deconvolution_kernels.sweep`: same equations, same random numbers, same order.
    Where pixels are missing it is that of `gdd.inference.deconvolution_kernels.sweep_masked`: ``problem`` has the norms
    of the pixels seen, and ``gram`` (coefficient, coefficient) their inner products; None: all are seen.
    """
    weight, correlation = weight.copy(), correlation.copy()
    gram = dense_gram(problem) if gram is None else gram
    proposed = draw_gap(stream)
    for i in range(weight.size):
        choice = given_problem(i, correlation[i] + weight[i] * problem.norm[i], problem)
        new = draw_weight(choice, i == proposed, stream)
        if i == proposed:
            proposed += 1 + draw_gap(stream)
        correlation -= (new - weight[i]) * gram[i]
        weight[i] = new
    return weight, correlation


def draw_gap(stream: Stream) -> int:
    """How many coefficients in a row are not proposed, each being so with probability `RARE`."""
    return int(log(stream.uniform()) / log(1 - RARE))


def draw_weight(choice: BlockChoice, proposed: bool, stream: Stream) -> float:
    """Draw from ``choice``, active with probability p; if p is below `RARE`, only if proposed, then with p / RARE."""
    p = exp(choice.log_probability[0])
    if p < RARE and not proposed:
        return 0.0
    if stream.uniform() * (RARE if p < RARE else 1.0) >= p:
        return 0.0
    return choice.mean[0] + stream.normal() / sqrt(choice.precision[0])
