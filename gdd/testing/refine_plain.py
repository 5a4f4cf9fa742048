"""The sweep of the joint model once more, as the equations read: everything computed afresh from the conditionals.

It consumes the same random numbers in the same order as `gdd.sampler.joint_sweep`, so that both give the same chain
(tests/test_joint_sweep.py). It is far slower. A piece of it can be exchanged, which is how `gdd.testing.shortcuts`
puts a wrong step into an otherwise right sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointState, LayerData
from gdd.sampler.joint_conditionals import (
    bottom_atom_given_rest,
    gamma_d_given_rest,
    gamma_e_given_rest,
    gamma_w_given_rest,
    layer_state,
    of_image,
    squared_scale_between_layers,
    squared_scale_given_rest,
)
from gdd.sampler.random import Key, Stream, shared_generator
from gdd.sampler.screening import average_images
from gdd.testing.plain import draw_atom
from gdd.testing.refine_steps import (
    draw_bottom_position,
    draw_switch,
    draw_upper_dictionary,
    draw_upper_position,
    draw_weights,
)


class Pieces(NamedTuple):
    """What a sweep is made of and a negative control may exchange."""

    weights: Callable[..., JointState] = draw_weights
    switch: Callable[..., JointState] = draw_switch
    upper: Callable[..., JointState] = draw_upper_position
    bottom: Callable[..., JointState] = draw_bottom_position
    dictionary: Callable[..., np.ndarray] = draw_upper_dictionary


CORRECT = Pieces()


def plain_joint_sweep(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key, scale: bool = True,
    pieces: Pieces = CORRECT,
) -> JointState:
    """Draw every unknown of the joint model once, as `gdd.sampler.joint_sweep.joint_sweep` does.

    Parameters
    ----------
    state, data : see `gdd.model.state`; unchanged
    model, refinement : layers, and what the joint model adds to them
    key : names the random numbers; its layer is not used
    scale : whether to make the scale moves
    pieces : the steps; the correct ones by default

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* as the conditionals say. *Checked:* tests/test_joint_sweep.py, tests/test_joint_sampler.py.
    """
    state = plain_local_pass(state, data, model, refinement, key, pieces)
    return draw_joint_shared(state, data, model, refinement, key, scale, pieces)


def plain_local_pass(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
    pieces: Pieces = CORRECT,
) -> JointState:
    """Draw what belongs to the images, one image after another."""
    averages = average_images(state.shared.dictionaries, [shape.block for shape in model.shapes()])
    guesses = tuple(average.overlaps for average in averages[1:])
    seed, stage, _, sweep = key
    locals_ = []
    for n in range(len(data.images)):
        one, alone = of_image(state, data, n)
        stream = Stream(seed, stage, 0, sweep, n)
        locals_.append(draw_joint_image(one, alone, model, refinement, guesses, stream, pieces).local)
    positions = (np.concatenate(parts) for parts in zip(*(part.positions for part in locals_), strict=True))
    z, w, gamma_e = (np.concatenate([getattr(part, name) for part in locals_]) for name in ("z", "w", "gamma_e"))
    local = state.local._replace(positions=tuple(positions), z=z, w=w, gamma_e=gamma_e[: len(state.local.gamma_e)])
    return state._replace(local=local)


def draw_joint_image(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, guesses: tuple[np.ndarray, ...],
    stream: Stream, pieces: Pieces,
) -> JointState:
    """Noise precision, if it has an image axis, top weights, switches, positions from the top down, of one image."""
    shapes, noise = model.shapes(), refinement.noise
    if noise.fixed is None and IMAGE in noise.axes:
        choice = gamma_e_given_rest(state, data, model, refinement)
        drawn = stream.truncated_gamma(float(choice.shape[0]), float(choice.rate[0]), choice.ceiling)
        state = state._replace(local=state.local._replace(gamma_e=np.array([drawn])))
    norms = guesses[-1][:, 0, 0]
    state = pieces.weights(state, data, model, norms, stream)
    for i, j, k in np.ndindex(*shapes[-1].grid, shapes[-1].atoms):
        state = pieces.switch(state, data, model, float(norms[k]), (0, k, i, j), stream)
    for layer in range(len(shapes) - 2, 0, -1):
        for i, j, k in np.ndindex(*shapes[layer].grid, shapes[layer].atoms):
            state = pieces.upper(state, data, model, refinement, layer, (0, k, i, j), guesses[layer], stream)
    if len(shapes) > 1:
        for where in np.ndindex(1, shapes[0].atoms, *shapes[0].grid):
            state = pieces.bottom(state, data, model, refinement, 0, where, guesses[0], stream)
    return state


def draw_joint_shared(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key, scale: bool,
    pieces: Pieces,
) -> JointState:
    """Dictionaries whose turn it is from the top down, scales, precisions of dictionaries, weights and shared noise."""
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
    generator = shared_generator(seed, stage, 0, sweep)
    if scale:
        state = draw_joint_scales(state, model, generator)
    return draw_joint_precisions(state, data, model, refinement, generator)


def with_dictionary(state: JointState, layer: int, dictionary: np.ndarray) -> JointState:
    """Return the state with another dictionary in one layer."""
    parts = list(state.shared.dictionaries)
    parts[layer] = dictionary
    return state._replace(shared=state.shared._replace(dictionaries=tuple(parts)))


def draw_joint_scales(state: JointState, model: ModelSpec, generator: np.random.Generator) -> JointState:
    """Scale of every top atom against its weights, then of every lower atom against its plane in the layer above."""
    top = len(model.layers) - 1
    squared = [squared_scale_given_rest(state, model, k).sample(generator) for k in range(model.layers[top].atoms)]
    scale = np.sqrt(np.array(squared))
    state = with_dictionary(state, top, state.shared.dictionaries[top] * scale[:, None, None, None])
    state = state._replace(local=state.local._replace(w=state.local.w / scale[:, None, None]))
    for layer in range(top - 1, -1, -1):
        for k in range(model.layers[layer].atoms):
            scale = math.sqrt(squared_scale_between_layers(state, layer, k).sample(generator))
            lower, upper = (state.shared.dictionaries[layer + t].copy() for t in (0, 1))
            lower[k] *= scale
            upper[:, k] /= scale
            state = with_dictionary(with_dictionary(state, layer, lower), layer + 1, upper)
    return state


def draw_joint_precisions(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, generator: np.random.Generator
) -> JointState:
    """gamma_d of every layer, bottom first, gamma_w, and a gamma_e that the images share; a fixed one stays."""
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
