"""The steps of the joint model's sweep as the equations read, everything computed afresh: twins of compiled steps.

A top coefficient and a position of an upper layer are screened: proposed under a guess of their images' norms, then
accepted by the exact conditional. A dictionary of an upper layer is drawn by perturbing and solving.

*Checked:* tests/test_refine_sweep.py, tests/test_refine_joint.py.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from gdd.distributions import PositionChoice
from gdd.joint import joint_residual, layer_values
from gdd.sampler.conditionals import log_block_prior
from gdd.sampler.random import Stream, shared_generator
from gdd.sampler.refine_conditionals import (
    Where,
    block_places_of,
    coefficient_given_rest,
    dictionary_design,
    dictionary_given_rest,
    position_given_rest,
    unit_images,
    with_coefficient,
    with_position,
)
from gdd.spec import ModelSpec, RefinementSpec
from gdd.state import EMPTY, JointState, LayerData

Key = tuple[int, int, int, int]


def log_odds(c: float, precision: float, gamma_w: float, log_prior_odds: float) -> float:
    """Log odds that a top coefficient is active, its weight integrated out."""
    return log_prior_odds + 0.5 * math.log(gamma_w / precision) + c * c / (2 * precision)


def screened_odds(state: JointState, data: LayerData, model: ModelSpec, where: Where, guess: float) -> float:
    """Log odds that a top coefficient is active if the squared norm of its image were ``guess``."""
    exact = coefficient_given_rest(state, data, model, where)
    gamma_w = float(np.broadcast_to(state.shared.gamma_w, state.local.z.shape[1])[where[1]])
    gamma_e = float(np.broadcast_to(state.local.gamma_e, len(state.local.z))[where[0]])
    a, b = model.layers[-1].beta
    return log_odds(float(exact.mean[0] * exact.precision[0]), gamma_e * guess + gamma_w, gamma_w, math.log(a / b))


def draw_weight(
    state: JointState, data: LayerData, model: ModelSpec, guess: float, where: Where, stream: Stream
) -> JointState:
    """Draw the weight of a coefficient that is on, exactly; the guess of its norm is not used."""
    choice = coefficient_given_rest(state, data, model, where)
    weight = float(choice.mean[0] + stream.normal() / math.sqrt(choice.precision[0]))
    return with_coefficient(state, where, 0, weight)


def draw_switch(
    state: JointState, data: LayerData, model: ModelSpec, guess: float, where: Where, stream: Stream
) -> JointState:
    """Propose to switch by the odds under a guess of the norm, accept by the exact odds.

    One that is switched on gets its weight exactly; one that stays on keeps its own, which is exact too.
    """
    choice = coefficient_given_rest(state, data, model, where)
    exact = float(choice.log_weight[0] - choice.log_weight[1])
    guessed = screened_odds(state, data, model, where, guess)
    on, uniform, share = state.local.z[where] != EMPTY, stream.uniform(), float(expit(guessed))
    if on:
        leaves = uniform < 1 - share and math.log(stream.uniform()) < guessed - exact
        return with_coefficient(state, where, EMPTY, 0.0) if leaves else state
    if uniform >= share or math.log(stream.uniform()) >= exact - guessed:
        return state
    weight = float(choice.mean[0] + stream.normal() / math.sqrt(choice.precision[0]))
    return with_coefficient(state, where, 0, weight)


def guess_of_moves(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray,
) -> PositionChoice:  # fmt: skip
    """Proposal of a position from the present one: exact but for the squared distance between two of its images.

    ``overlaps`` (atom, lag_row, lag_col): guessed inner products of an atom's images at two positions.
    """
    k, shape = where[1], model.shapes()[layer]
    value = layer_values(state.local, state.shared.dictionaries, model.shapes())[layer + 1][where]
    positions, places = block_places_of(shape, *where[2:])
    images = unit_images(state, data, model, layer, k, places)
    correlation = np.append((joint_residual(state, data, model) * images).sum(axis=(1, 2, 3)), 0.0)
    centre = np.array(overlaps.shape[1:]) // 2
    norm, old = overlaps[k, *centre], state.local.positions[layer][where]
    slot = len(positions) if old == EMPTY else int(np.flatnonzero(positions == old)[0])
    if old == EMPTY:
        apart = np.full(len(positions), norm)
    else:
        lags = centre + np.array(places) - np.array(places[slot])
        apart = 2 * (norm - overlaps[k, lags[:, 0], lags[:, 1]])
    apart = np.append(apart, 0.0 if old == EMPTY else norm)
    gain = state.local.gamma_e[0] * (value * (correlation - correlation[slot]) - 0.5 * value**2 * apart)
    z = with_position(state, layer, where, EMPTY).local.positions[layer]
    log_weight = log_block_prior(z, model.layers[layer], shape, where, refinement.empty_blocks)
    log_weight[np.append(positions, -1)] += gain
    return PositionChoice(log_weight)


def draw_upper_position(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:  # fmt: skip
    """Propose a position by a guess, accept it by the exact conditional."""
    given = (data, model, refinement, layer, where)
    forward, old = guess_of_moves(state, *given, overlaps), int(state.local.positions[layer][where])
    new = forward.sample(stream)
    if new == old:
        return state
    moved = with_position(state, layer, where, new)
    exact, back = position_given_rest(state, *given), guess_of_moves(moved, *given, overlaps)
    ratio = exact.logpdf(new) - exact.logpdf(old) + back.logpdf(old) - forward.logpdf(new)
    return moved if math.log(stream.uniform()) < ratio else state


def draw_bottom_position(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:  # fmt: skip
    """Draw a position from its exact conditional; the guess is not used."""
    choice = position_given_rest(state, data, model, refinement, layer, where)
    return with_position(state, layer, where, choice.sample(stream))


def draw_upper_dictionary(state: JointState, data: LayerData, model: ModelSpec, layer: int, key: Key) -> np.ndarray:
    """Perturb the linear term by noise of covariance P, then solve; exactly, where the compiled twin iterates."""
    choice, design = dictionary_given_rest(state, data, model, layer), dictionary_design(state, data, model, layer)
    shape = model.shapes()[layer]
    right = choice.linear + noise_of_covariance(state, data, design, layer, shape.dictionary, key)
    return np.linalg.solve(choice.precision, right).reshape(shape.dictionary)


def noise_of_covariance(
    state: JointState, data: LayerData, design: np.ndarray, layer: int, size: tuple[int, ...], key: Key
) -> np.ndarray:
    """Noise whose covariance is the precision P of a dictionary: from each pixel and from the prior."""
    seed, stage, _, sweep = key
    images, planes, rows, cols = data.images.shape
    gamma_d = np.broadcast_to(state.shared.gamma_d[layer][:, :, None, None], size)
    noise = (np.sqrt(gamma_d) * shared_generator(seed, stage, layer + 1, sweep).standard_normal(size)).ravel()
    gamma_e = np.broadcast_to(state.local.gamma_e, images)
    for n in range(images):
        stream = Stream(seed, stage, layer + 1, sweep, n)
        each = np.array([stream.normal() for _ in range(rows * cols * planes)]).reshape(rows, cols, planes)
        noise = noise + np.sqrt(gamma_e[n]) * design[n].T @ each.transpose(2, 0, 1).ravel()
    return noise
