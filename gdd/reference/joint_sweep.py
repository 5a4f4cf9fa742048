r"""A sweep of the joint model as the equations read: everything computed afresh from the conditionals.

It consumes the same random numbers in the same order as `gdd.sampler.joint_sweep`, so that both give the same chain
(tests/test_joint_sweep.py). Its pieces can be exchanged: `gdd_book.checks.shortcuts` puts a wrong step into an
otherwise correct sampler.

A switch of a top coefficient and a position of an upper layer are proposed under the expected norm of their images
(`gdd.reference.screening`), then accepted by the exact conditional. A dictionary of an upper layer is drawn by
perturbing and solving. So are the top weights w of an image, by a solver that may stop early; an accept step makes the
draw exact (Gilavert, Moussaoui and Idier 2015). Given all else w is Gaussian with precision
:math:`Q = \gamma_e A'A + \gamma_w I` (`weights_given_rest`):

1. perturb: :math:`\eta = Q w + \gamma_e A'x + \xi` with :math:`\xi \sim N(0, Q)`;
2. solve :math:`Q f = \eta` by conjugate gradients from 0, to any accuracy: f depends on :math:`\eta` alone;
3. propose :math:`\tilde w = f - w`, accept it with probability
   :math:`\min\{1, \exp[(\tilde w - w)'(\eta - Q f)]\}`.

Given :math:`\eta` the proposal is an involution, so the accept step makes it exact for any f; with an exact solution it
is an independent draw, always accepted. The expected norms precondition the solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from gdd.base.axes import IMAGE
from gdd.model.distributions import PositionChoice
from gdd.model.joint import joint_residual, layer_values
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointState, LayerData, map_local, of_images, with_block
from gdd.reference.conditionals import log_block_prior, slab_log_odds
from gdd.reference.joint_conditionals import (
    Where,
    active_coefficients,
    bottom_atom_given_rest,
    coefficient_given_rest,
    dictionary_design,
    dictionary_given_rest,
    gamma_d_given_rest,
    gamma_e_given_rest,
    gamma_w_given_rest,
    layer_state,
    position_given_rest,
    positions_of_block,
    unit_images,
    weight_design,
    weights_given_rest,
    with_position,
)
from gdd.reference.layer_sweep import draw_atom
from gdd.reference.random import Key, Stream, shared_generator
from gdd.reference.screening import mean_atom_images
from gdd.reference.solver import conjugate_gradients

#: the solver of the top weights stops at this preconditioned residual norm, in posterior standard deviations, or after
#: this many steps
WEIGHT_TOLERANCE, MAX_WEIGHT_STEPS = 0.1, 100


# ---- top layer


def draw_weights(
    state: JointState, data: LayerData, model: ModelSpec, norms: np.ndarray, stream: Stream
) -> JointState:
    """Draw the weights of one image's active coefficients: perturb, solve, accept.

    norms : (atom,), expected squared norms of the atoms' images
    """
    active = active_coefficients(state)
    if not len(active):
        return state
    solved, residual = perturb_and_solve(state, data, model, norms, stream, MAX_WEIGHT_STEPS)
    before = state.local.w[0][tuple(active.T)]
    log_ratio = (solved - 2 * before) @ residual
    return with_weights(state, solved - before) if math.log(stream.uniform()) < log_ratio else state


def with_weights(state: JointState, weights: np.ndarray) -> JointState:
    """Return the state of one image with other weights of `active_coefficients`."""
    return with_block(state, (0, *active_coefficients(state).T), 0, weights)


def perturb_and_solve(
    state: JointState, data: LayerData, model: ModelSpec, norms: np.ndarray, stream: Stream, max_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the perturbed system of the weights in at most ``max_steps``; return the solution and its residual."""
    choice, design = weights_given_rest(state, data, model), weight_design(state, data, model)
    active, gamma_e, gamma_w = active_coefficients(state), state.local.gamma_e[0], float(state.shared.gamma_w[0])
    _, planes, rows, cols = data.images.shape
    pixels = stream.normals(planes * rows * cols).reshape(rows, cols, planes)
    rhs = choice.precision @ state.local.w[0][tuple(active.T)] + choice.linear
    rhs += math.sqrt(gamma_e) * design.T @ pixels.transpose(2, 0, 1).ravel()
    rhs += math.sqrt(gamma_w) * np.array([stream.normal() for _ in active])
    diagonal = gamma_e * norms[active[:, 0]] + gamma_w
    return conjugate_gradients(
        lambda v: choice.precision @ v, rhs, lambda v: v / diagonal, max_steps, absolute=WEIGHT_TOLERANCE
    )[:2]


def draw_switch(
    state: JointState, data: LayerData, model: ModelSpec, norm: float, where: Where, stream: Stream
) -> JointState:
    """Propose to switch a coefficient by its odds under the expected norm of its image; accept by the exact odds.

    The weight of a coefficient that is switched on is drawn from the exact conditional; a coefficient that stays active
    keeps its weight. The proposal to switch off adds the coefficient's contribution back to the residual under the
    expected norm as well.
    """
    choice = coefficient_given_rest(state, data, model, where)
    exact = float(choice.log_weight[0] - choice.log_weight[1])
    gamma_e, gamma_w, (a, b) = float(state.local.gamma_e[0]), float(state.shared.gamma_w[0]), model.layers[-1].beta
    precision, expected = float(choice.precision[0]), gamma_e * norm + gamma_w
    c = float(choice.mean[0]) * precision

    def proposal_odds(with_weight: float) -> float:
        """Log odds under the expected norm, of a coefficient with this weight (0: inactive).

        c adds the weight back to the residual under the true norm; under the expected one it is
        c + gamma_e (expected norm - true norm) weight.
        """
        return math.log(a / b) + slab_log_odds(c + (expected - precision) * with_weight, expected, gamma_w)

    old, uniform = float(state.local.w[where]), stream.uniform()
    if state.local.z[where] != EMPTY:
        if uniform >= expit(-proposal_odds(old)):
            return state
        log_ratio = log_expit(proposal_odds(0.0)) - log_expit(-proposal_odds(old)) - exact
        return with_block(state, where, EMPTY, 0.0) if math.log(stream.uniform()) < log_ratio else state
    if uniform >= expit(proposal_odds(0.0)):
        return state
    weight = float(choice.mean[0] + stream.normal() / math.sqrt(precision))
    log_ratio = exact + log_expit(-proposal_odds(weight)) - log_expit(proposal_odds(0.0))
    return with_block(state, where, 0, weight) if math.log(stream.uniform()) < log_ratio else state


# ---- positions


def position_proposal(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray,
) -> PositionChoice:
    r"""Proposal of a position from the present one, in which only a squared distance is not exact.

    .. math:: q(m) \propto \theta_m
              \exp\{\gamma_e (v \langle r, \phi_m - \phi_\mathrm{old} \rangle
              - v^2 \mathrm{E} \lVert \phi_m - \phi_\mathrm{old} \rVert^2 / 2)\}

    with the residual r of the present state, the block's value v, and :math:`\phi_m` the image of a unit at position m
    (0 for empty). The distance between two images is replaced by its expectation.

    overlaps : (atom, lag_row, lag_col), expected inner products of an atom's images at two positions
    """
    k, shape = where[1], model.shapes()[layer]
    value = layer_values(state.local, state.shared.dictionaries, model.shapes())[layer + 1][where]
    positions, places = positions_of_block(shape, *where[2:])
    images = unit_images(state, data, model, layer, k, places)
    correlation = np.append((joint_residual(state, data, model) * images).sum(axis=(1, 2, 3)), 0.0)
    centre = np.array(overlaps.shape[1:]) // 2
    norm, old = overlaps[k, *centre], state.local.positions[layer][where]
    slot = len(positions) if old == EMPTY else int(np.flatnonzero(positions == old)[0])
    if old == EMPTY:
        distance = np.full(len(positions), norm)
    else:
        lags = centre + np.array(places) - np.array(places[slot])
        distance = 2 * (norm - overlaps[k, lags[:, 0], lags[:, 1]])
    distance = np.append(distance, 0.0 if old == EMPTY else norm)
    gain = state.local.gamma_e[0] * (value * (correlation - correlation[slot]) - 0.5 * value**2 * distance)
    z = with_position(state, layer, where, EMPTY).local.positions[layer]
    log_weight = log_block_prior(z, model.layers[layer], shape, where, refinement.empty_blocks)
    log_weight[np.append(positions, -1)] += gain
    return PositionChoice(log_weight)


def draw_upper_position(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:
    """Propose a position under the expected overlaps; accept it by the exact conditional."""
    settings = (data, model, refinement, layer, where)
    forward, old = position_proposal(state, *settings, overlaps), int(state.local.positions[layer][where])
    new = forward.sample(stream)
    if new == old:
        return state
    moved = with_position(state, layer, where, new)
    exact, backward = position_given_rest(state, *settings), position_proposal(moved, *settings, overlaps)
    log_ratio = exact.logpdf(new) - exact.logpdf(old) + backward.logpdf(old) - forward.logpdf(new)
    return moved if math.log(stream.uniform()) < log_ratio else state


def draw_bottom_position(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where,
    overlaps: np.ndarray, stream: Stream,
) -> JointState:
    """Draw a position from its exact conditional; the overlaps are not used."""
    choice = position_given_rest(state, data, model, refinement, layer, where)
    return with_position(state, layer, where, choice.sample(stream))


# ---- dictionaries of upper layers


def draw_upper_dictionary(state: JointState, data: LayerData, model: ModelSpec, layer: int, key: Key) -> np.ndarray:
    """Perturb the linear term by noise of covariance P, then solve directly; the compiled twin iterates."""
    choice, design = dictionary_given_rest(state, data, model, layer), dictionary_design(state, data, model, layer)
    shape = model.shapes()[layer]
    rhs = choice.linear + noise_of_covariance(state, data, design, layer, shape.dictionary, key)
    return np.linalg.solve(choice.precision, rhs).reshape(shape.dictionary)


def noise_of_covariance(
    state: JointState, data: LayerData, design: np.ndarray, layer: int, size: tuple[int, ...], key: Key
) -> np.ndarray:
    """Draw noise whose covariance is the precision P of a dictionary, from all pixels and from the prior."""
    seed, stage, _, sweep = key
    images, planes, rows, cols = data.images.shape
    gamma_d = np.broadcast_to(state.shared.gamma_d[layer][:, :, None, None], size)
    noise = (np.sqrt(gamma_d) * shared_generator(seed, stage, layer + 1, sweep).standard_normal(size)).ravel()
    gamma_e = np.broadcast_to(state.local.gamma_e, images)
    for n in range(images):
        stream = Stream(seed, stage, layer + 1, sweep, n)
        pixels = stream.normals(rows * cols * planes).reshape(rows, cols, planes)
        noise = noise + np.sqrt(gamma_e[n]) * design[n].T @ pixels.transpose(2, 0, 1).ravel()
    return noise


# ---- the sweep


class Pieces(NamedTuple):
    """Parts of a sweep that a negative control may exchange."""

    weights: Callable[..., JointState] = draw_weights
    switch: Callable[..., JointState] = draw_switch
    upper: Callable[..., JointState] = draw_upper_position
    bottom: Callable[..., JointState] = draw_bottom_position
    dictionary: Callable[..., np.ndarray] = draw_upper_dictionary


CORRECT = Pieces()


def plain_joint_sweep(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> JointState:
    """Draw every unknown of the joint model once, as `gdd.sampler.joint_sweep.joint_sweep` does.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* as the conditionals say. *Checked:* tests/test_joint_sweep.py, tests/test_joint_sampler.py.
    """
    state = plain_local_pass(state, data, model, refinement, key)
    return draw_joint_shared(state, data, model, refinement, key, CORRECT)


def plain_local_pass(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
    pieces: Pieces = CORRECT,
) -> JointState:
    """Draw the local part of the state, image by image."""
    means = mean_atom_images(state.shared.dictionaries, [shape.block for shape in model.shapes()])
    overlaps = tuple(mean.overlaps for mean in means[1:])
    seed, stage, _, sweep = key
    drawn = []
    for n in range(len(data.images)):
        stream = Stream(seed, stage, 0, sweep, n)
        one = of_images(state, data, slice(n, n + 1))
        drawn.append(draw_joint_image(*one, model, refinement, overlaps, stream, pieces))
    local = map_local(lambda *parts: np.concatenate(parts), *drawn).local
    return state._replace(local=local._replace(gamma_e=local.gamma_e[: len(state.local.gamma_e)]))


def draw_joint_image(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec,
    overlaps: tuple[np.ndarray, ...], stream: Stream, pieces: Pieces,
) -> JointState:
    """Draw one image's noise precision, if it varies by image, top weights, switches, positions from the top down."""
    shapes, noise = model.shapes(), refinement.noise
    if noise.fixed is None and IMAGE in noise.axes:
        choice = gamma_e_given_rest(state, data, model, refinement)
        drawn = stream.gamma(float(choice.shape[0])) / float(choice.rate[0])
        state = state._replace(local=state.local._replace(gamma_e=np.array([drawn])))
    norms = overlaps[-1][:, 0, 0]
    state = pieces.weights(state, data, model, norms, stream)
    for i, j, k in np.ndindex(*shapes[-1].grid, shapes[-1].atoms):
        state = pieces.switch(state, data, model, float(norms[k]), (0, k, i, j), stream)
    for layer in range(len(shapes) - 2, 0, -1):
        for i, j, k in np.ndindex(*shapes[layer].grid, shapes[layer].atoms):
            state = pieces.upper(state, data, model, refinement, layer, (0, k, i, j), overlaps[layer], stream)
    if len(shapes) > 1:
        for where in np.ndindex(1, shapes[0].atoms, *shapes[0].grid):
            state = pieces.bottom(state, data, model, refinement, 0, where, overlaps[0], stream)
    return state


def draw_joint_shared(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key, pieces: Pieces
) -> JointState:
    """Draw the dictionaries that are due, from the top down, then gamma_d, gamma_w and a shared gamma_e."""
    seed, stage, _, sweep = key
    due = [layer for layer in range(len(model.layers)) if (sweep + layer) % refinement.dictionary_every == 0]
    for layer in reversed([layer for layer in due if layer]):
        state = with_dictionary(state, layer, pieces.dictionary(state, data, model, layer, key))
    generator = shared_generator(seed, stage, 1, sweep)
    for k in range(model.layers[0].atoms if 0 in due else 0):
        atoms = state.shared.dictionaries[0].copy()
        parts = bottom_atom_given_rest(state, data, model, k)
        atoms[k] = draw_atom(parts, layer_state(state, model, 0), model.shapes()[0], k, generator)
        state = with_dictionary(state, 0, atoms)
    return draw_joint_precisions(state, data, model, refinement, shared_generator(seed, stage, 0, sweep))


def with_dictionary(state: JointState, layer: int, dictionary: np.ndarray) -> JointState:
    """Return the state with another dictionary in one layer."""
    parts = list(state.shared.dictionaries)
    parts[layer] = dictionary
    return state._replace(shared=state.shared._replace(dictionaries=tuple(parts)))


def draw_joint_precisions(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, generator: np.random.Generator
) -> JointState:
    """Draw gamma_d of every layer, bottom first, gamma_w, and a shared gamma_e; fixed precisions stay."""
    gamma_d = [
        old if spec.gamma_d.fixed else gamma_d_given_rest(state, model, layer).sample(generator)
        for layer, (spec, old) in enumerate(zip(model.layers, state.shared.gamma_d, strict=True))
    ]
    fixed = model.layers[-1].gamma_w.fixed
    gamma_w = state.shared.gamma_w if fixed else gamma_w_given_rest(state, model).sample(generator)
    if refinement.noise.fixed is None and IMAGE not in refinement.noise.axes:
        gamma_e = gamma_e_given_rest(state, data, model, refinement).sample(generator)
        state = state._replace(local=state.local._replace(gamma_e=gamma_e))
    return state._replace(shared=state.shared._replace(gamma_d=tuple(gamma_d), gamma_w=gamma_w))
