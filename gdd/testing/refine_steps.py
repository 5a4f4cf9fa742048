"""The steps of the joint model's sweep as the equations read, everything computed afresh: twins of compiled steps.

A switch of a top coefficient and a position of an upper layer are screened: proposed under a guess of their images'
norms, then accepted by the exact conditional. The top weights of an image, and a dictionary of an upper layer, are
drawn by perturbing and solving.

*Checked:* tests/test_joint_sweep.py, tests/test_joint_sampler.py.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, log_expit

from gdd.model.distributions import PositionChoice
from gdd.model.joint import joint_residual, layer_values
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointState, LayerData
from gdd.sampler.conditionals import log_block_prior
from gdd.sampler.joint_conditionals import (
    Where,
    active_coefficients,
    block_places_of,
    coefficient_given_rest,
    dictionary_design,
    dictionary_given_rest,
    position_given_rest,
    unit_images,
    weight_design,
    weights_given_rest,
    with_coefficient,
    with_position,
)
from gdd.sampler.kernels.joint_coefficients import LEFT, MOST_STEPS
from gdd.sampler.random import Key, Stream, shared_generator


def log_odds(c: float, precision: float, gamma_w: float, log_prior_odds: float) -> float:
    """Log odds that a top coefficient is active, its weight integrated out."""
    return log_prior_odds + 0.5 * math.log(gamma_w / precision) + c * c / (2 * precision)


def draw_weights(
    state: JointState, data: LayerData, model: ModelSpec, norms: np.ndarray, stream: Stream
) -> JointState:
    """Draw all weights of one image that are on: perturb, solve, accept. ``norms`` (atom,): guessed.

    How and why: `gdd.sampler.kernels.joint_coefficients`.
    """
    active = active_coefficients(state)
    if not len(active):
        return state
    solved, left = perturb_and_solve(state, data, model, norms, stream, MOST_STEPS)
    before = state.local.w[0][tuple(active.T)]
    if math.log(stream.uniform()) >= (solved - 2 * before) @ left:
        return state
    return with_weights(state, solved - before)


def with_weights(state: JointState, weights: np.ndarray) -> JointState:
    """Return the state of one image with other weights of `active_coefficients`."""
    w = state.local.w.copy()
    w[0][tuple(active_coefficients(state).T)] = weights
    return state._replace(local=state.local._replace(w=w))


def perturb_and_solve(
    state: JointState, data: LayerData, model: ModelSpec, norms: np.ndarray, stream: Stream, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Solution of the perturbed system of the weights in at most ``most`` steps, and the residual of the system."""
    choice, design = weights_given_rest(state, data, model), weight_design(state, data, model)
    active, gamma_e = active_coefficients(state), state.local.gamma_e[0]
    _, planes, rows, cols = data.images.shape
    pixels = stream.normals(planes * rows * cols).reshape(rows, cols, planes)
    gamma_w = np.broadcast_to(state.shared.gamma_w, state.local.z.shape[1])[active[:, 0]]
    right = choice.precision @ state.local.w[0][tuple(active.T)] + choice.linear
    right += math.sqrt(gamma_e) * design.T @ pixels.transpose(2, 0, 1).ravel()
    right += np.sqrt(gamma_w) * np.array([stream.normal() for _ in active])
    diagonal = gamma_e * norms[active[:, 0]] + gamma_w
    return scaled_gradients(choice.precision, right, diagonal, most)


def scaled_gradients(
    matrix: np.ndarray, right: np.ndarray, diagonal: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Conjugate gradients from 0, scaled by a diagonal: solution after at most ``most`` steps, and its residual."""
    solved, left, direction = np.zeros_like(right), right.copy(), right / diagonal
    size = left @ direction
    for _ in range(most):
        if size <= LEFT**2:
            break
        product = matrix @ direction
        length = size / (direction @ product)
        solved, left = solved + length * direction, left - length * product
        size, former = left @ (left / diagonal), size
        direction = left / diagonal + size / former * direction
    return solved, left


def draw_switch(
    state: JointState, data: LayerData, model: ModelSpec, guess: float, where: Where, stream: Stream
) -> JointState:
    """Propose to switch by odds under a guess of the norm, accept by the exact odds.

    A coefficient that is switched on draws its weight from the exact conditional; one that stays on keeps its weight.
    While it is on, the guess also stands for the norm in its contribution, which is added back to the residual.
    """
    choice = coefficient_given_rest(state, data, model, where)
    exact = float(choice.log_weight[0] - choice.log_weight[1])
    gamma_w = float(np.broadcast_to(state.shared.gamma_w, state.local.z.shape[1])[where[1]])
    gamma_e, (a, b) = float(state.local.gamma_e[0]), model.layers[-1].beta
    precision, screen = float(choice.precision[0]), gamma_e * guess + gamma_w
    c = float(choice.mean[0]) * precision

    def odds(with_weight: float) -> float:
        """Log odds under the guess, of a coefficient with this weight (0: off)."""
        seen = c + (screen - precision) * with_weight
        return log_odds(seen, screen, gamma_w, math.log(a / b))

    old, uniform = float(state.local.w[where]), stream.uniform()
    if state.local.z[where] != EMPTY:
        if uniform >= expit(-odds(old)):
            return state
        ratio = log_expit(odds(0.0)) - log_expit(-odds(old)) - exact
        return with_coefficient(state, where, EMPTY, 0.0) if math.log(stream.uniform()) < ratio else state
    if uniform >= expit(odds(0.0)):
        return state
    weight = float(choice.mean[0] + stream.normal() / math.sqrt(precision))
    ratio = exact + log_expit(-odds(weight)) - log_expit(odds(0.0))
    return with_coefficient(state, where, 0, weight) if math.log(stream.uniform()) < ratio else state


def guess_of_moves(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray,
) -> PositionChoice:
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
) -> JointState:
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
) -> JointState:
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
        each = stream.normals(rows * cols * planes).reshape(rows, cols, planes)
        noise = noise + np.sqrt(gamma_e[n]) * design[n].T @ each.transpose(2, 0, 1).ravel()
    return noise
