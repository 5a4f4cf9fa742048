"""The joint model of all layers (Sec. 2.3): its reference log density ``joint_log_joint``, and draws from its prior.

Synthesis is top-down: the top layer's maps give the values of the blocks below it, these give the values below them,
and the bottom layer gives the images. Only the images have noise. Written for reading, not for speed, like
`gdd.model.layer`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.convolution import synthesise
from gdd.model.layer import (
    add_noise,
    draw_atoms,
    draw_positions,
    draw_precision,
    draw_weights,
    log_atoms,
    log_positions,
    log_precision,
    log_residuals,
    log_weights,
    observed_residual,
)
from gdd.model.pooling import unpool
from gdd.model.spec import LayerShape, ModelSpec, RefinementSpec
from gdd.model.state import JointLocal, JointShared, JointState, LayerData, precision_shapes


def layer_values(
    local: JointLocal, dictionaries: Sequence[np.ndarray], shapes: Sequence[LayerShape]
) -> tuple[np.ndarray, ...]:
    r"""Synthesise the input of every layer, from the top layer down.

    .. math:: X^{(L)} = \sum_k D^{(k,L)} * (Z \circ W)^{(k,L)}, \qquad
              X^{(l)} = \sum_k D^{(k,l)} * f^{-1}(X^{(l+1)}_k, Z^{(k,l)})

    with :math:`f^{-1}` the unpooling: a block's value at its position, zero elsewhere.

    Returns X of every layer, (image, plane, row, col), bottom first: the images without noise, then the values of the
    blocks of the bottom layer (its atoms are the planes, its blocks the rows and columns), and so on.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* the pooled value is the pixel of the layer above (P18).
    *Checked:* tests/test_joint_model.py (against the explicit sum over blocks).
    """
    top = shapes[-1]
    maps = unpool(local.z, local.w.astype(float), top.map_size, top.block)
    values = [synthesise(dictionaries[-1].astype(float), maps)]
    for z, atoms, shape in zip(local.positions[::-1], dictionaries[-2::-1], shapes[-2::-1], strict=True):
        values.insert(0, synthesise(atoms.astype(float), unpool(z, values[0], shape.map_size, shape.block)))
    return tuple(values)


def joint_residual(state: JointState, data: LayerData, model: ModelSpec) -> np.ndarray:
    """E = X - X^(1), zero where a pixel is missing: (image, plane, row, col)."""
    return observed_residual(data, layer_values(state.local, state.shared.dictionaries, model.shapes())[0])


def joint_log_likelihood(state: JointState, data: LayerData, model: ModelSpec) -> np.ndarray:
    """log p(X | everything else) of each image, observed pixels only: (image,)."""
    return log_residuals(joint_residual(state, data, model), state.local.gamma_e, data.mask)


def joint_log_joint(state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec) -> float:
    """Log of the joint density of the data and all unknowns of all layers, every normalising constant included.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* theta integrated out, one per block shape, Dir(1/B) where blocks cannot be empty; one gamma_w (P7); the
    noise precision's prior is the refinement's (P15).
    *Checked:* tests/test_joint_model.py (sums to one; one layer alone is `gdd.model.layer.log_joint`).
    """
    local, shared = state
    shapes, top = model.shapes(), model.layers[-1]
    total = float(joint_log_likelihood(state, data, model).sum())
    for z, spec, shape in zip(local.positions, model.layers[:-1], shapes[:-1], strict=True):
        total += log_positions(z, spec, shape, refinement.empty_blocks)
    total += log_positions(local.z, top, shapes[-1])
    total += log_weights(local.z, local.w, shared.gamma_w) + log_precision(top.gamma_w, shared.gamma_w)
    for spec, atoms, gamma_d in zip(model.layers, shared.dictionaries, shared.gamma_d, strict=True):
        total += log_atoms(atoms, gamma_d) + log_precision(spec.gamma_d, gamma_d)
    return total + log_precision(refinement.noise, local.gamma_e)


def draw_joint_state(
    images: int, model: ModelSpec, refinement: RefinementSpec, generator: np.random.Generator
) -> JointState:
    """Draw all unknowns from their prior, in double precision. Use proper priors, not the flat defaults."""
    shapes, top = model.shapes(), model.layers[-1]
    sizes = [precision_shapes(spec, images, s.planes) for spec, s in zip(model.layers, shapes, strict=True)]
    gamma_d = [draw_precision(spec.gamma_d, size[1], generator) for spec, size in zip(model.layers, sizes, strict=True)]
    dictionaries = [draw_atoms(shape, gamma, generator) for shape, gamma in zip(shapes, gamma_d, strict=True)]
    gamma_w = draw_precision(top.gamma_w, sizes[-1][2], generator)
    entries = images if IMAGE in refinement.noise.axes else 1
    gamma_e = draw_precision(refinement.noise, (entries,), generator)
    local = draw_joint_local(images, model, refinement, gamma_w, generator)._replace(gamma_e=gamma_e)
    return JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))


def draw_joint_local(
    images: int, model: ModelSpec, refinement: RefinementSpec, gamma_w: np.ndarray, generator: np.random.Generator
) -> JointLocal:
    """Draw positions, activations and weights from their priors; the gamma_e that is returned is 1 and means nothing.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3; supplement, "Generated Images".
    *Departs:* the paper does not say which of its random numbers it draws, or from what.
    *Checked:* tests/test_generation.py.
    """
    *pooled, top = zip(model.layers, model.shapes(), strict=True)
    positions = tuple(draw_positions(images, *layer, generator, refinement.empty_blocks) for layer in pooled)
    z = draw_positions(images, *top, generator)
    return JointLocal(positions, z, draw_weights(z, gamma_w, generator), np.ones(1))


def draw_joint_data(
    state: JointState, model: ModelSpec, generator: np.random.Generator, mask: np.ndarray | None = None
) -> LayerData:
    """Draw the data given all unknowns; ``mask`` (image, plane, row, col) is True where a pixel is observed."""
    clean = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    return add_noise(clean, state.local.gamma_e, generator, mask)
