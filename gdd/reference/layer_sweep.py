"""A sweep of one layer as the equations read: no sums, no caches, everything computed afresh from the conditionals.

It consumes the same random numbers in the same order as `gdd.sampler.sweep`, so that both give the same chain
(tests/test_kernels.py). Its pieces can be exchanged: `gdd_book.checks.printed` puts the paper's misprints into an
otherwise correct sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.distributions import DiagonalShiftGaussian, Gamma, Gaussian
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState, map_local, of_images, with_block
from gdd.reference.conditionals import (
    atom_given_rest,
    block_in_layer,
    gamma_d_given_rest,
    gamma_e_given_rest,
    gamma_w_given_rest,
)
from gdd.reference.random import Key, Stream, shared_generator


def draw_map(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, stream: Stream
) -> LayerState:
    """Redraw every block of atom k's map in a state of one image, row by row; return the new state."""
    for i, j in np.ndindex(*shape.grid):
        where = (0, k, i, j)
        state = with_block(state, where, *block_in_layer(state, data, spec, shape, where).sample(stream))
    return state


class Pieces(NamedTuple):
    """Parts of a sweep that a negative control may exchange."""

    gamma_e: Callable[..., Gamma] = gamma_e_given_rest
    map: Callable[..., LayerState] = draw_map
    atom: Callable[..., list[Gaussian]] = atom_given_rest
    gamma_d: Callable[..., Gamma] = gamma_d_given_rest


CORRECT = Pieces()


def plain_sweep(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, pieces: Pieces = CORRECT
) -> LayerState:
    """Draw every unknown of a layer once, as `gdd.sampler.sweep.sweep` does.

    *Source:* Pu, Yuan & Carin 2015, supplement, "Conditional Posteriori Distributions".
    *Departs:* as the conditionals say. *Checked:* tests/test_kernels.py, tests/test_joint.py.
    """
    images = [
        draw_image(*of_images(state, data, slice(n, n + 1)), spec, shape, Stream(*key, n), pieces)
        for n in range(len(data.images))
    ]
    local = map_local(lambda *parts: np.concatenate(parts), *images).local
    state = state._replace(local=local._replace(gamma_e=local.gamma_e[: len(state.local.gamma_e)]))
    return draw_shared(state, data, spec, shape, shared_generator(*key), pieces)


def draw_image(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, stream: Stream, pieces: Pieces
) -> LayerState:
    """Draw the noise precision of one image, if it varies by image, then every block."""
    if spec.gamma_e.fixed is None and IMAGE in spec.gamma_e.axes:
        choice = pieces.gamma_e(state, data, spec, shape)
        drawn = np.array([stream.gamma(float(a)) for a in choice.shape.ravel()]).reshape(choice.shape.shape)
        state = state._replace(local=state.local._replace(gamma_e=drawn / choice.rate))
    for k in range(shape.atoms):
        state = pieces.map(state, data, spec, shape, k, stream)
    return state


def draw_shared(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, generator: np.random.Generator,
    pieces: Pieces,
) -> LayerState:
    """Draw the dictionary, a shared noise precision, gamma_d and gamma_w, in this order."""
    for k in range(shape.atoms):
        dictionary = state.shared.dictionary.copy()
        dictionary[k] = draw_atom(pieces.atom(state, data, shape, k), state, shape, k, generator)
        state = with_dictionary(state, dictionary)
    if spec.gamma_e.fixed is None and IMAGE not in spec.gamma_e.axes:
        gamma_e = pieces.gamma_e(state, data, spec, shape).sample(generator)
        state = state._replace(local=state.local._replace(gamma_e=gamma_e))
    gamma_d = state.shared.gamma_d if spec.gamma_d.fixed else pieces.gamma_d(state, spec, shape).sample(generator)
    gamma_w = state.shared.gamma_w if spec.gamma_w.fixed else gamma_w_given_rest(state, spec).sample(generator)
    return state._replace(shared=state.shared._replace(gamma_d=gamma_d, gamma_w=gamma_w))


def draw_atom(
    parts: list[Gaussian], state: LayerState, shape: LayerShape, k: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw one atom's planes as the fast sweeps do: from one eigendecomposition where it serves all planes."""
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k]
    eye = np.eye(len(parts[0].linear))
    grams = [part.precision - g * eye for part, g in zip(parts, gamma_d, strict=True)]
    one_gram = all(np.allclose(gram, grams[0], rtol=1e-9, atol=1e-9) for gram in grams)
    if one_gram and not (gamma_d == gamma_d[0]).all():
        draw = DiagonalShiftGaussian(grams[0], gamma_d, np.stack([part.linear for part in parts])).sample(generator)
    else:
        draw = np.stack([part.sample(generator) for part in parts])
    return draw.reshape(shape.dictionary[1:])


def with_dictionary(state: LayerState, dictionary: np.ndarray) -> LayerState:
    """Return the state with another dictionary."""
    return state._replace(shared=state.shared._replace(dictionary=dictionary))
