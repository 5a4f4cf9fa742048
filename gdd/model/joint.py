"""The generative story of the joint model of all layers, and ``joint_log_joint``, the judge of its conditionals.

Top-down: the top layer's maps make the values of the blocks below it, those make the values below them, and the bottom
layer makes the images. Only the images have noise. Written for reading and for the tests, like `gdd.model.layer`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.convolution import synthesise
from gdd.model.distributions import LOG_TWO_PI, TruncatedGamma
from gdd.model.layer import draw_positions, draw_precision, log_gaussian, log_positions, log_precision
from gdd.model.pooling import unpool
from gdd.model.spec import LayerShape, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, precision_shapes


def layer_values(
    local: JointLocal, dictionaries: Sequence[np.ndarray], shapes: Sequence[LayerShape]
) -> tuple[np.ndarray, ...]:
    r"""What every layer makes of the layers above it, from the top down.

    .. math:: X^{(L)} = \sum_k D^{(k,L)} * (Z \circ W)^{(k,L)}, \qquad
              X^{(l)} = \sum_k D^{(k,l)} * U(X^{(l+1)}_k; z^{(k,l)})

    with U the unpooling: a block's value at its position, zero elsewhere.

    Parameters
    ----------
    local : positions, z, w
    dictionaries, shapes : one entry a layer, bottom first

    Returns
    -------
    tuple of (image, plane, row, col)
        X of every layer, bottom first: the images without noise, then the values of the blocks of the bottom layer
        (its atoms are the planes, its blocks the rows and columns), and so on.

    Notes
    -----
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
    clean = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    seen = True if data.mask is None else data.mask
    return np.where(seen, data.images, 0.0) - np.where(seen, clean, 0.0)


def joint_log_likelihood(state: JointState, data: LayerData, model: ModelSpec) -> np.ndarray:
    """log p(X | everything else) of each image, observed pixels only: (image,)."""
    error = joint_residual(state, data, model)
    gamma_e = np.broadcast_to(state.local.gamma_e, len(error))
    pixels = error[0].size if data.mask is None else data.mask.sum(axis=(1, 2, 3))
    return 0.5 * pixels * (np.log(gamma_e) - LOG_TWO_PI) - 0.5 * gamma_e * (error**2).sum(axis=(1, 2, 3))


def joint_log_joint(state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec) -> float:
    """Log of the joint density of the data and all unknowns of all layers, every normalising constant included.

    Parameters
    ----------
    state, data : see `gdd.model.state`
    model, refinement : the layers, and what the joint model adds to them

    Returns
    -------
    float

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* theta integrated out, one per block shape, Dir(1/B) where blocks cannot be empty; one gamma_w unless the
    spec says otherwise (P7); the noise precision's prior is the refinement's, cut off at its ceiling (P15).
    *Checked:* tests/test_joint_model.py (sums to one; one layer alone is `gdd.model.layer.log_joint`).
    """
    local, shared = state
    shapes, top = model.shapes(), model.layers[-1]
    total = float(joint_log_likelihood(state, data, model).sum())
    for z, spec, shape in zip(local.positions, model.layers[:-1], shapes[:-1], strict=True):
        total += log_positions(z, spec, shape, refinement.empty_blocks)
    total += log_positions(local.z, top, shapes[-1])
    active = (local.z != EMPTY).sum(axis=(0, 2, 3))
    gamma_w = np.broadcast_to(shared.gamma_w, active.shape)
    total += log_gaussian(gamma_w, active, (local.w.astype(float) ** 2).sum(axis=(0, 2, 3)))
    total += log_precision(top.gamma_w, shared.gamma_w)
    for spec, atoms, gamma_d in zip(model.layers, shared.dictionaries, shared.gamma_d, strict=True):
        squares = (atoms.astype(float) ** 2).sum(axis=(2, 3))
        total += log_gaussian(np.broadcast_to(gamma_d, squares.shape), atoms[0, 0].size, squares)
        total += log_precision(spec.gamma_d, gamma_d)
    return total + log_noise(local.gamma_e, refinement)


def log_noise(gamma_e: np.ndarray, refinement: RefinementSpec) -> float:
    """Log prior of the noise precision's entries; 0 if it is fixed."""
    if refinement.noise.fixed is not None:
        return 0.0
    return float(noise_prior(refinement).logpdf(gamma_e.astype(float)).sum())


def noise_prior(refinement: RefinementSpec) -> TruncatedGamma:
    """Prior of a noise precision that is learned."""
    ceiling = np.inf if refinement.ceiling is None else refinement.ceiling
    return TruncatedGamma(refinement.noise.shape, refinement.noise.rate, ceiling)


def draw_joint_state(
    images: int, model: ModelSpec, refinement: RefinementSpec, generator: np.random.Generator
) -> JointState:
    """Draw all unknowns from their prior, in double precision. Use proper priors, not the flat defaults."""
    shapes, top = model.shapes(), model.layers[-1]
    sizes = [precision_shapes(spec, images, s.planes) for spec, s in zip(model.layers, shapes, strict=True)]
    gamma_d = [draw_precision(spec.gamma_d, size[1], generator) for spec, size in zip(model.layers, sizes, strict=True)]
    dictionaries = [
        generator.standard_normal(s.dictionary) / np.sqrt(g)[:, :, None, None]
        for s, g in zip(shapes, gamma_d, strict=True)
    ]
    gamma_w = draw_precision(top.gamma_w, sizes[-1][2], generator)
    gamma_e = draw_noise(images, refinement, generator)
    positions = [
        draw_positions(images, spec, shape, generator, refinement.empty_blocks)
        for spec, shape in zip(model.layers[:-1], shapes[:-1], strict=True)
    ]
    z = draw_positions(images, top, shapes[-1], generator)
    w = generator.standard_normal(z.shape) / np.sqrt(gamma_w)[:, None, None]
    local = JointLocal(tuple(positions), z, np.where(z == EMPTY, 0.0, w), gamma_e)
    return JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))


def draw_noise(images: int, refinement: RefinementSpec, generator: np.random.Generator) -> np.ndarray:
    """Noise precision from its prior, or as it is held: (image or 1,)."""
    noise, size = refinement.noise, images if IMAGE in refinement.noise.axes else 1
    if noise.fixed is not None:
        return np.full(size, noise.fixed)
    prior = noise_prior(refinement)
    return prior._replace(shape=np.full(size, prior.shape)).sample(generator)


def draw_joint_data(
    state: JointState, model: ModelSpec, generator: np.random.Generator, mask: np.ndarray | None = None
) -> LayerData:
    """Draw the data given all unknowns; ``mask`` (image, plane, row, col) tells which pixels are observed."""
    clean = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    spread = 1 / np.sqrt(state.local.gamma_e)[:, None, None, None]
    return LayerData(clean + generator.standard_normal(clean.shape) * spread, mask)
