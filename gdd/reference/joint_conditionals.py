"""The conditionals of the joint model, written as the equations: each takes the rest of the state, computes everything
afresh through all layers, and returns a distribution.

Slow and plain. tests/test_joint_conditionals.py compares every conditional with ``joint_log_joint`` by exact ratios,
and tests/test_joint_sweep.py compares the compiled sweep with these. Layers are counted from 0, bottom first. Given the
layers above it, a layer is one of `gdd.model.layer`; conditionals that depend on one layer alone are those of
`gdd.reference.conditionals`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdd.model.convolution import synthesise
from gdd.model.distributions import BlockChoice, Gamma, Gaussian, PositionChoice
from gdd.model.joint import joint_residual, layer_values
from gdd.model.pooling import unpool
from gdd.model.spec import LayerShape, ModelSpec, RefinementSpec
from gdd.model.state import (
    EMPTY,
    JointLocal,
    JointState,
    LayerData,
    LayerState,
    Local,
    Shared,
    of_images,
    positions_exist,
    with_block,
)
from gdd.reference import conditionals

Where = tuple[int, int, int, int]


def synthesise_down(
    values: np.ndarray, layer: int, local: JointLocal, dictionaries: Sequence[np.ndarray], shapes: Sequence[LayerShape]
) -> np.ndarray:
    """Carry inputs of a layer down to the image, under the positions of the layers below it.

    ``values`` and the result are (image, plane, row, col). If ``local`` has one image, its positions serve all values.
    """
    for below in range(layer - 1, -1, -1):
        z = np.broadcast_to(local.positions[below], (len(values), *local.positions[below].shape[1:]))
        maps = unpool(np.ascontiguousarray(z), values, shapes[below].map_size, shapes[below].block)
        values = synthesise(dictionaries[below], maps)
    return values


def unit_images(
    state: JointState, data: LayerData, model: ModelSpec, layer: int, k: int, places: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Image that a 1 at each place (row, col) of atom k's map produces, 0 where missing: (place, plane, row, col).

    ``state`` and ``data`` are of one image.
    """
    shapes, dictionaries = model.shapes(), state.shared.dictionaries
    shape, atom = shapes[layer], dictionaries[layer][k]
    values = np.zeros((len(places), shape.planes, *shape.input_size))
    for out, (row, col) in zip(values, places, strict=True):
        out[:, row : row + shape.atom_size[0], col : col + shape.atom_size[1]] = atom
    images = synthesise_down(values, layer, state.local, dictionaries, shapes)
    return images if data.mask is None else np.where(data.mask, images, 0.0)


def with_position(state: JointState, layer: int, where: Where, position: int) -> JointState:
    """Return the state with one block's position replaced."""
    positions = list(state.local.positions)
    positions[layer] = positions[layer].copy()
    positions[layer][where] = position
    return state._replace(local=state.local._replace(positions=tuple(positions)))


def positions_of_block(shape: LayerShape, i: int, j: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Positions of a block, and their places (row, col) in the map."""
    positions = np.flatnonzero(positions_exist(shape)[i, j])
    p, q = shape.block
    return positions, [(i * p + m // q, j * q + m % q) for m in positions]


def position_given_rest(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, layer: int, where: Where
) -> PositionChoice:
    r"""Where a block of a pooled layer is active, given all else.

    .. math:: p(z = m \mid -) \propto \theta_m
              \exp\{\gamma_e (v \langle r, \phi_m \rangle - v^2 \lVert \phi_m \rVert^2 / 2)\}

    with v the block's value, :math:`\phi_m` the image of a unit at position m through all layers below, r the residual
    without the block, and for :math:`\theta_m` the counts over the other blocks of its shape in the map.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3. *Departs:* theta integrated out; P2, P18.
    *Checked:* tests/test_joint_conditionals.py.
    """
    n, k, i, j = where
    shape, emptied = model.shapes()[layer], with_position(state, layer, where, EMPTY)
    image_state, image_data = of_images(emptied, data, slice(n, n + 1))
    value = layer_values(image_state.local, state.shared.dictionaries, model.shapes())[layer + 1][0, k, i, j]
    positions, places = positions_of_block(shape, i, j)
    images = value * unit_images(image_state, image_data, model, layer, k, places)
    residual = joint_residual(image_state, image_data, model)
    gain = (residual * images).sum(axis=(1, 2, 3)) - 0.5 * (images**2).sum(axis=(1, 2, 3))
    z = emptied.local.positions[layer]
    log_weight = conditionals.log_block_prior(z, model.layers[layer], shape, where, refinement.empty_blocks)
    log_weight[positions] += image_state.local.gamma_e[0] * gain
    return PositionChoice(log_weight)


def coefficient_given_rest(state: JointState, data: LayerData, model: ModelSpec, where: Where) -> BlockChoice:
    r"""Whether a top coefficient is active, and its weight, given all else.

    It is an element of a layer whose atom is :math:`\phi`, the image of a unit at its place, which varies by image.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3. *Departs:* weight integrated out of z. *Checked:* ratio test.
    """
    n, k, i, j = where
    image_state, image_data = of_images(with_block(state, where, EMPTY, 0.0), data, slice(n, n + 1))
    image = unit_images(image_state, image_data, model, len(model.layers) - 1, k, [(i, j)])
    precision = np.full(image.shape, image_state.local.gamma_e[0])
    prior, gamma_w = np.log(np.array(model.layers[-1].beta)), float(state.shared.gamma_w[0])
    residual = joint_residual(image_state, image_data, model)
    return conditionals.block_given_rest(residual, precision, image[0], prior, gamma_w)


def active_coefficients(state: JointState) -> np.ndarray:
    """Atom, row and column of one image's active top coefficients: (coefficient, 3)."""
    return np.argwhere(state.local.z[0] != EMPTY)


def weight_design(state: JointState, data: LayerData, model: ModelSpec) -> np.ndarray:
    """Image of a unit in each of one image's `active_coefficients`: (pixel, coefficient), 0 where missing."""
    top, active = len(model.layers) - 1, active_coefficients(state)
    units = [unit_images(state, data, model, top, k, [(i, j)])[0].ravel() for k, i, j in active]
    return np.stack(units, axis=-1)


def weights_given_rest(state: JointState, data: LayerData, model: ModelSpec) -> Gaussian:
    r"""Weights of one image's `active_coefficients` given all else; A is their `weight_design`.

    .. math:: w \sim N(Q^{-1} \gamma_e A'x, Q^{-1}), \quad Q = \gamma_e A'A + \gamma_w I

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3. *Departs:* all of an image's weights at once. *Checked:* ratio test.
    """
    design, gamma_e = weight_design(state, data, model), state.local.gamma_e[0]
    image = np.where(True if data.mask is None else data.mask, data.images, 0.0).ravel()
    prior = float(state.shared.gamma_w[0]) * np.eye(design.shape[1])
    return Gaussian(gamma_e * design.T @ design + prior, gamma_e * design.T @ image)


def dictionary_design(state: JointState, data: LayerData, model: ModelSpec, layer: int) -> np.ndarray:
    """Image of a unit in each entry of a layer's dictionary: (image, pixel, entry), 0 where missing."""
    shapes = model.shapes()
    shape, local = shapes[layer], layer_state(state, model, layer).local
    maps = unpool(local.z, local.w, shape.map_size, shape.block)
    columns = []
    for k, c, a, b in np.ndindex(*shape.dictionary):
        values = np.zeros((len(maps), shape.planes, *shape.input_size))
        values[:, c, a : a + shape.map_size[0], b : b + shape.map_size[1]] = maps[:, k]
        columns.append(synthesise_down(values, layer, state.local, state.shared.dictionaries, shapes))
    design = np.stack(columns, axis=-1)
    if data.mask is not None:
        design[~data.mask] = 0.0
    return design.reshape(len(design), -1, design.shape[-1])


def dictionary_given_rest(state: JointState, data: LayerData, model: ModelSpec, layer: int) -> Gaussian:
    """All pixels of all atoms of a layer given all else, one Gaussian over (atom * plane * atom_row * atom_col,).

    *Source:* supplement, "Sample D". *Departs:* jointly, with the full precision (P4). *Checked:* ratio test.
    """
    design = dictionary_design(state, data, model, layer)
    gamma_e = np.broadcast_to(state.local.gamma_e, len(design))
    images = np.where(True if data.mask is None else data.mask, data.images, 0.0).reshape(len(design), -1)
    gamma_d = state.shared.gamma_d[layer][:, :, None, None]
    prior = np.broadcast_to(gamma_d, model.shapes()[layer].dictionary).ravel()
    gram = np.einsum("n,nua,nub->ab", gamma_e, design, design, optimize=True)
    return Gaussian(gram + np.diag(prior), np.einsum("n,nua,nu->a", gamma_e, design, images, optimize=True))


def layer_state(state: JointState, model: ModelSpec, layer: int) -> LayerState:
    """One layer as a state of `gdd.model.layer`: its positions, its blocks' values as weights, its dictionary."""
    local, shared = state
    z = [*local.positions, local.z][layer]
    values = [*layer_values(local, shared.dictionaries, model.shapes())[1:], local.w.astype(float)][layer]
    layer_local = Local(z, np.where(z == EMPTY, 0.0, values), local.gamma_e)
    return LayerState(layer_local, Shared(shared.dictionaries[layer], shared.gamma_d[layer], shared.gamma_w))


def bottom_atom_given_rest(state: JointState, data: LayerData, model: ModelSpec, k: int) -> list[Gaussian]:
    """All pixels of atom k of the bottom layer given all else, one Gaussian per plane. *Checked:* ratio test."""
    return conditionals.atom_given_rest(layer_state(state, model, 0), data, model.shapes()[0], k)


def gamma_d_given_rest(state: JointState, model: ModelSpec, layer: int) -> Gamma:
    """Precision of a layer's dictionary. *Departs:* P5. *Checked:* ratio test."""
    return conditionals.gamma_d_given_rest(
        layer_state(state, model, layer), model.layers[layer], model.shapes()[layer]
    )


def gamma_w_given_rest(state: JointState, model: ModelSpec) -> Gamma:
    """Precision of the top weights. *Departs:* P7. *Checked:* ratio test."""
    return conditionals.gamma_w_given_rest(layer_state(state, model, len(model.layers) - 1), model.layers[-1])


def gamma_e_given_rest(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec
) -> Gamma:
    """Precision of the noise: a + (observed pixels)/2, b + ||E||^2/2. *Departs:* P6.
    *Checked:* ratio test.
    """
    energy = (joint_residual(state, data, model) ** 2).sum(axis=(1, 2, 3))
    observed = np.ones(data.images.shape) if data.mask is None else data.mask
    pixels = observed.sum(axis=(1, 2, 3)).astype(float)
    pixels, energy = (conditionals.sum_shared(values, state.local.gamma_e.shape) for values in (pixels, energy))
    return Gamma(refinement.noise.shape + pixels / 2, refinement.noise.rate + energy / 2)
