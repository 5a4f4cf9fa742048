"""One sweep of the joint model of all layers: an image pass, then the draws of what all images share.

``refine_sweep(state, data, model, refinement, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each
image, every top weight, which top coefficients are on, the positions of every pooled layer from the top down, the
dictionaries from the top down, scales, gamma_d, gamma_w, a shared gamma_e. theta is integrated out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.distributions import LOG_TWO_PI, TruncatedGamma
from gdd.model.joint import layer_values
from gdd.model.layer import log_precision
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointLocal, JointShared, JointState, LayerData
from gdd.sampler.contract import Key
from gdd.sampler.joint_arrays import SLOTS, Arrays, as_arrays, batches, flat_images
from gdd.sampler.joint_dictionary import draw_bottom_dictionary, draw_upper_dictionary, mean_dictionary
from gdd.sampler.joint_scales import draw_joint_scales
from gdd.sampler.kernels import joint_kernels
from gdd.sampler.kernels.layer import CHUNK
from gdd.sampler.random import shared_generator
from gdd.sampler.shared import draw_shared_precision

#: classes of |value| * ||atom|| * sqrt(gamma_e), a block's strength in standard deviations of the noise
STRENGTHS = ("below 0.1", "0.1 to 1", "1 to 3", "above 3")


class JointInfo(NamedTuple):
    """What a sweep of the joint model tells besides the new state."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the bottom dictionary's draw
    active: np.ndarray  # (atom,): active coefficients of each top atom, over all images
    visited: np.ndarray  # (pooled layer, strength): blocks whose position was drawn
    moved: np.ndarray  # (pooled layer, strength): those that came out elsewhere
    switches: np.ndarray  # (7,): top coefficients proposed on, switched on, proposed off, switched off; images whose
    # top weights were proposed, and accepted, steps of their solver
    steps: np.ndarray  # (layer,): of the solver that drew the layer's dictionary, 500 if it gave up; bottom layer 0


class Sums(NamedTuple):
    """What an image pass leaves behind, summed over images; see `gdd.sampler.kernels.joint_kernels.run_images`."""

    per_atom: np.ndarray
    energy: np.ndarray
    visited: np.ndarray
    moved: np.ndarray
    tally: np.ndarray


def refine_sweep(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key, scale: bool = True
) -> tuple[JointState, JointInfo]:
    """Draw every unknown of the joint model once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`
    model, refinement : layers, and what the joint model adds to them
    key : names the random numbers; its ``layer`` is not used. Equal keys give equal sweeps for any number of threads
    scale : whether to make the scale moves (exact either way)

    Returns
    -------
    (JointState, JointInfo)

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* theta integrated out; exact conditionals, or proposals with an exact accept step; one noise precision may
    be held, bounded or shared (P15, P21).
    *Checked:* tests/test_refine_sweep.py, tests/test_refine_joint.py.
    """
    arrays = as_arrays(state, data, model)
    sums = image_pass(arrays, state.shared, model, refinement, key)
    shapes = model.shapes()
    dictionaries, steps = list(state.shared.dictionaries), np.zeros(len(shapes), int)
    energy = sums.energy[:2]
    for layer in range(len(shapes) - 1, 0, -1):
        named = (key.seed, key.stage, layer + 1, key.sweep)
        dictionaries[layer], energy, steps[layer] = draw_upper_dictionary(
            arrays, layer, dictionaries[layer], state.shared.gamma_d[layer], shapes[layer], named,
            shared_generator(*named), refinement.tolerance,
        )  # fmt: skip
        arrays = arrays.with_dictionary(layer, dictionaries[layer])
    dictionaries[0], change = draw_bottom_dictionary(
        arrays, dictionaries[0], state.shared.gamma_d[0], shapes[0],
        shared_generator(key.seed, key.stage, 1, key.sweep),
    )  # fmt: skip
    sums = sums._replace(energy=np.concatenate([[energy[0], energy[1] + change], sums.energy[2:]]))
    return close(arrays.local(), tuple(dictionaries), state.shared, sums, steps, model, refinement, key, scale)


def local_pass(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> tuple[JointLocal, JointInfo]:
    """Draw what belongs to the images, everything shared held: inference for new images, or for missing pixels.

    Parameters and notes as in `refine_sweep`; a shared noise precision is held too.
    """
    arrays = as_arrays(state, data, model)
    sums = image_pass(arrays, state.shared, model, refinement, key)
    held = state._replace(local=arrays.local())
    return held.local, tell(held, sums, np.zeros(len(model.layers), int), model, refinement)


def dictionary_mean(
    state: JointState, data: LayerData, model: ModelSpec, layer: int, tolerance: float = 1e-4
) -> np.ndarray:
    """Mean of one layer's dictionary (from 0) given all else, (atom, plane, atom_row, atom_col).

    A draw of an atom that is rarely used is nearly a draw from the prior, and looks like noise; its mean does not.
    """
    arrays = as_arrays(state, data, model)
    clean = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    arrays.residuals[:] = arrays.images - flat_images(clean, arrays.images.dtype)
    if len(arrays.masks):
        arrays.residuals[:] *= arrays.masks
    shape = model.shapes()[layer]
    return mean_dictionary(
        arrays, layer, state.shared.dictionaries[layer], state.shared.gamma_d[layer], shape, tolerance
    )  # fmt: skip


def image_pass(
    arrays: Arrays, shared: JointShared, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> Sums:
    """Update the local part in ``arrays``; return the sums."""
    top, shape = model.layers[-1], model.shapes()[-1]
    noise = refinement.noise
    drawn = noise.fixed is None and IMAGE in noise.axes
    a, b = top.beta
    priors = (
        np.log(a / b), np.broadcast_to(shared.gamma_w, (shape.atoms,)).astype(float), float(refinement.empty_blocks),
        (noise.shape, noise.rate, refinement.ceiling or np.inf, float(drawn)),
    )  # fmt: skip
    layers, strengths = len(model.layers), len(STRENGTHS)
    total = Sums(
        np.zeros((2, shape.atoms)), np.zeros(5), np.zeros((layers, strengths)), np.zeros((layers, strengths)),
        np.zeros(7),
    )  # fmt: skip
    part = Sums(*(np.zeros((SLOTS, *array.shape)) for array in total))
    for first, used in batches(len(arrays.images), CHUNK):
        for array in part:
            array[:used] = 0.0
        joint_kernels.run_images(
            arrays.images, arrays.masks, arrays.w, arrays.gamma_e, arrays.model, priors, arrays.guesses, arrays.work,
            (key.seed, key.stage, 0, key.sweep), first, arrays.residuals, tuple(array[:used] for array in part),
        )  # fmt: skip
        for slot in range(used):
            for whole, array in zip(total, part, strict=True):
                whole += array[slot]
    return total


def close(
    local: JointLocal, dictionaries: tuple, shared: JointShared, sums: Sums, steps: np.ndarray, model: ModelSpec,
    refinement: RefinementSpec, key: Key, scale: bool,
) -> tuple[JointState, JointInfo]:  # fmt: skip
    """Draw scales (if ``scale``), gamma_d, gamma_w and a shared gamma_e, in this order; account for the log joint."""
    generator = shared_generator(key.seed, key.stage, 0, key.sweep)
    per_atom, noise = sums.per_atom, refinement.noise
    if scale:
        dictionaries, scales = draw_joint_scales(dictionaries, per_atom, shared, generator)
        per_atom = per_atom / np.stack([np.ones_like(scales), scales**2])
        local = local._replace(w=(local.w / scales[:, None, None].astype(local.w.dtype)).astype(local.w.dtype))
    gamma_d = []
    for spec, atoms, old in zip(model.layers, dictionaries, shared.gamma_d, strict=True):
        norms = (atoms**2).sum(axis=(2, 3))
        pixels = np.full(norms.shape, float(atoms[0, 0].size))
        gamma_d.append(draw_shared_precision(spec.gamma_d, pixels, norms, old, generator))
    gamma_w = draw_shared_precision(model.layers[-1].gamma_w, per_atom[0], per_atom[1], shared.gamma_w, generator)
    if noise.fixed is None and IMAGE not in noise.axes:
        old = float(local.gamma_e[0])
        pixels, energy = sums.energy[4], sums.energy[1] / old
        ceiling = np.inf if refinement.ceiling is None else refinement.ceiling
        new = TruncatedGamma(noise.shape + pixels / 2, noise.rate + energy / 2, ceiling).sample(generator)
        local = local._replace(gamma_e=np.array([float(new)]))
        changed = [sums.energy[0], energy * float(new), pixels * np.log(float(new)), *sums.energy[3:]]
        sums = sums._replace(energy=np.array(changed))
    state = JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))
    return state, tell(state, sums._replace(per_atom=per_atom), steps, model, refinement)


def tell(
    state: JointState, sums: Sums, steps: np.ndarray, model: ModelSpec, refinement: RefinementSpec
) -> JointInfo:
    """Form the running log joint and the rest of the info from the sums."""
    energy, weighted, log_noise, log_positions, pixels = sums.energy
    likelihood = 0.5 * (log_noise - pixels * LOG_TWO_PI - weighted)
    joint = likelihood + log_positions + log_prior_from(state, sums.per_atom, model, refinement)
    pooled = len(model.layers) - 1
    return JointInfo(
        float(likelihood), float(joint), float(np.sqrt(energy / pixels)), sums.per_atom[0], sums.visited[:pooled],
        sums.moved[:pooled], sums.tally, steps,
    )  # fmt: skip


def log_prior_from(state: JointState, per_atom: np.ndarray, model: ModelSpec, refinement: RefinementSpec) -> float:
    """Log prior of all unknowns but the positions of pooled layers: the running twin of
    `gdd.model.joint.joint_log_joint`.
    """
    local, shared = state
    top, (number, squares) = model.layers[-1], per_atom
    a, b = top.beta
    total = number.sum() * np.log(a) + (local.z.size - number.sum()) * np.log(b)
    gamma_w = np.broadcast_to(shared.gamma_w, number.shape)
    total += (0.5 * number * (np.log(gamma_w) - LOG_TWO_PI) - 0.5 * gamma_w * squares).sum()
    for spec, atoms, gamma_d in zip(model.layers, shared.dictionaries, shared.gamma_d, strict=True):
        gamma = np.broadcast_to(gamma_d, atoms.shape[:2])
        norms = (atoms**2).sum(axis=(2, 3))
        total += (0.5 * atoms[0, 0].size * (np.log(gamma) - LOG_TWO_PI) - 0.5 * gamma * norms).sum()
        total += log_precision(spec.gamma_d, gamma_d)
    total += log_precision(top.gamma_w, shared.gamma_w)
    noise = refinement.noise
    if noise.fixed is None:
        ceiling = np.inf if refinement.ceiling is None else refinement.ceiling
        total += float(TruncatedGamma(noise.shape, noise.rate, ceiling).logpdf(local.gamma_e).sum())
    return float(total)
