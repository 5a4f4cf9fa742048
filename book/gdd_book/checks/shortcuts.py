"""Shortcuts that a sampler of the joint model must not take: negative controls for the tests.

Each is a `Pieces` for `gdd_book.checks.calibration_joint.joint_plain_step` that saves something in one step. All look
plausible in traces. *Checked:* tests/test_joint_sampler.py, tests/test_calibration.py.
"""

import math

import numpy as np
from scipy.special import expit

from gdd.model.distributions import PositionChoice
from gdd.model.joint import layer_values
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointState, LayerData, with_block
from gdd.reference.conditionals import log_block_prior, slab_log_odds
from gdd.reference.joint_conditionals import (
    Where,
    active_coefficients,
    coefficient_given_rest,
    dictionary_design,
    dictionary_given_rest,
    position_given_rest,
    positions_of_block,
    unit_images,
    with_position,
)
from gdd.reference.joint_sweep import (
    Pieces,
    noise_of_covariance,
    perturb_and_solve,
    position_proposal,
    with_weights,
)
from gdd.reference.random import Key, Stream
from gdd.reference.solver import conjugate_gradients


def switch_unaccepted(
    state: JointState, data: LayerData, model: ModelSpec, norm: float, where: Where, stream: Stream
) -> JointState:
    """Switch by the odds under the expected norm, with no acceptance step; a new weight is drawn correctly."""
    choice, gamma_w = coefficient_given_rest(state, data, model, where), float(state.shared.gamma_w[0])
    expected, c = float(state.local.gamma_e[0]) * norm + gamma_w, float(choice.mean[0] * choice.precision[0])
    a, b = model.layers[-1].beta
    if stream.uniform() >= float(expit(math.log(a / b) + slab_log_odds(c, expected, gamma_w))):
        return with_block(state, where, EMPTY, 0.0)
    if state.local.z[where] != EMPTY:
        return state
    weight = float(choice.mean[0] + stream.normal() / math.sqrt(choice.precision[0]))
    return with_block(state, where, 0, weight)


def weights_unaccepted(
    state: JointState, data: LayerData, model: ModelSpec, norms: np.ndarray, stream: Stream
) -> JointState:
    """Stop the solver after one step, with no acceptance step."""
    active = active_coefficients(state)
    if not len(active):
        return state
    solved, _ = perturb_and_solve(state, data, model, norms, stream, 1)
    return with_weights(state, solved - state.local.w[0][tuple(active.T)])


def position_unaccepted(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:
    """Move an upper position wherever it is proposed, with no acceptance step."""
    choice = position_proposal(state, data, model, refinement, layer, where, overlaps)
    return with_position(state, layer, where, choice.sample(stream))


def position_without_norm(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:
    """Draw a position as if the squared norm of its image were the same everywhere, as in a whole bottom layer."""
    value = layer_values(state.local, state.shared.dictionaries, model.shapes())[layer + 1][where]
    positions, places = positions_of_block(model.shapes()[layer], *where[2:])
    images = value * unit_images(state, data, model, layer, where[1], places)
    log_weight = position_given_rest(state, data, model, refinement, layer, where).log_weight.copy()
    energy = (images**2).sum(axis=(1, 2, 3))
    log_weight[positions] += 0.5 * state.local.gamma_e[0] * (energy - energy.mean())
    return with_position(state, layer, where, PositionChoice(log_weight).sample(stream))


def position_counted_twice(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:
    """The counts that stand for theta include the block itself."""
    old = state.local.positions[layer][where]
    z = with_position(state, layer, where, EMPTY).local.positions[layer]
    prior = log_block_prior(z, model.layers[layer], model.shapes()[layer], where, refinement.empty_blocks)[old]
    log_weight = position_given_rest(state, data, model, refinement, layer, where).log_weight.copy()
    log_weight[old] += np.logaddexp(prior, 0.0) - prior
    return with_position(state, layer, where, PositionChoice(log_weight).sample(stream))


def dictionary_cut_off(state: JointState, data: LayerData, model: ModelSpec, layer: int, key: Key) -> np.ndarray:
    """Perturb and solve, but leave the solver (conjugate gradients, from the present dictionary) after two steps."""
    choice, design = dictionary_given_rest(state, data, model, layer), dictionary_design(state, data, model, layer)
    x, size = state.shared.dictionaries[layer].ravel().astype(float), model.shapes()[layer].dictionary
    rhs = choice.linear + noise_of_covariance(state, data, design, layer, size, key)
    move, *_ = conjugate_gradients(lambda v: choice.precision @ v, rhs - choice.precision @ x, np.copy, 2)
    return (x + move).reshape(size)


SHORTCUTS = {
    "switch not accepted": Pieces(switch=switch_unaccepted),
    "weights not accepted": Pieces(weights=weights_unaccepted),
    "position not accepted": Pieces(upper=position_unaccepted),
    "position without norm": Pieces(upper=position_without_norm, bottom=position_without_norm),
    "position counted twice": Pieces(bottom=position_counted_twice),
    "solver cut off": Pieces(dictionary=dictionary_cut_off),
}
