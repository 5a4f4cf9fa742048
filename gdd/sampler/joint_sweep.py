"""One sweep of the joint model of all layers: an image pass, then the draws of what all images share.

``joint_sweep(state, data, model, refinement, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each
image, every top weight, which top coefficients are on, the positions of every pooled layer from the top down, the
dictionaries from the top down, gamma_d, gamma_w, a shared gamma_e. theta is integrated out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE
from gdd.model.distributions import LOG_TWO_PI, Gamma
from gdd.model.layer import log_atoms, log_gaussian, log_precision
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointLocal, JointShared, JointState, LayerData
from gdd.reference.random import Key, shared_generator
from gdd.sampler.dictionary import draw_gamma_d, draw_shared_precision
from gdd.sampler.joint_arrays import Arrays, as_arrays
from gdd.sampler.joint_dictionary import draw_bottom_dictionary, draw_upper_dictionary
from gdd.sampler.kernels.joint_pass import Priors, Sums, run_images
from gdd.sampler.sums import BATCH, Share, add_entries, add_up

#: classes of |value| * ||atom|| * sqrt(gamma_e), a block's strength in standard deviations of the noise
STRENGTHS = ("below 0.1", "0.1 to 1", "1 to 3", "above 3")


class JointInfo(NamedTuple):
    """Result of a sweep of the joint model besides the new state."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the bottom dictionary's draw
    active: np.ndarray  # (atom,): active coefficients of each top atom, over all images
    visited: np.ndarray  # (pooled layer, strength): blocks whose position was drawn
    moved: np.ndarray  # (pooled layer, strength): those that came out elsewhere
    switches: np.ndarray  # (7,): top coefficients proposed on, switched on, proposed off, switched off; images whose
    # top weights were proposed, and accepted, steps of their solver
    steps: np.ndarray  # (layer,): of the solver that drew the layer's dictionary, 500 if it gave up; bottom layer 0


def joint_sweep(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> tuple[JointState, JointInfo]:
    """Draw every unknown of the joint model once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`
    model, refinement : layers, and what the joint model adds to them
    key : names the random numbers; its ``layer`` is not used. Equal keys give equal sweeps for any number of threads

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* theta integrated out; exact conditionals, or proposals with an exact accept step; one noise precision may
    be held or shared (P15, P21).
    *Checked:* tests/test_joint_sweep.py, tests/test_joint_sampler.py.
    """
    arrays = as_arrays(state, data, model)
    sums = image_pass(arrays, state.shared, model, refinement, key)
    dictionaries, steps = list(state.shared.dictionaries), np.zeros(len(model.layers), int)
    for layer in range(len(model.layers) - 1, -1, -1):
        if (key.sweep + layer) % refinement.dictionary_every:
            continue
        if layer:
            named = (key.seed, key.stage, layer + 1, key.sweep)
            dictionaries[layer], sums.energy[:2], steps[layer] = draw_upper_dictionary(
                arrays, layer, dictionaries[layer], state.shared.gamma_d[layer], named
            )
            arrays = arrays.with_dictionary(layer, dictionaries[layer])
        else:
            generator = shared_generator(key.seed, key.stage, 1, key.sweep)
            held = state.shared.gamma_d[0]
            dictionaries[0], change = draw_bottom_dictionary(arrays, dictionaries[0], held, generator)
            sums.energy[1] += change
    return finish_sweep(arrays.local(), dictionaries, state.shared, sums, steps, data, model, refinement, key)


def local_pass(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> tuple[JointLocal, JointInfo]:
    """Draw what belongs to the images, everything shared held: inference for new images, or for missing pixels.

    Parameters and notes as in `joint_sweep`; a shared noise precision is held too.
    """
    arrays = as_arrays(state, data, model)
    sums = image_pass(arrays, state.shared, model, refinement, key)
    held = state._replace(local=arrays.local())
    return held.local, make_info(held, sums, np.zeros(len(model.layers), int), data, model, refinement)


def image_pass(
    arrays: Arrays, shared: JointShared, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> Sums:
    """Update the local part in ``arrays``; return the sums."""
    priors, named = image_priors(shared, model, refinement), (key.seed, key.stage, 0, key.sweep)

    def run(share: Share) -> None:
        images, work = arrays.images.some(share.images), arrays.work[share.thread]
        run_images(images, arrays.shared, priors, work, share.sums, named)

    return add_up(empty_sums(model), arrays.shard, len(arrays.images.pixels), run, most=BATCH)


def image_priors(shared: JointShared, model: ModelSpec, refinement: RefinementSpec) -> Priors:
    """What the image pass needs of the priors."""
    noise, (a, b) = refinement.noise, model.layers[-1].beta
    return Priors(
        np.log(a / b), float(shared.gamma_w[0]), float(refinement.empty_blocks),
        noise.shape, noise.rate, noise.fixed is None and IMAGE in noise.axes,
    )


def empty_sums(model: ModelSpec) -> Sums:
    """Sums of an image pass, all zero."""
    by_strength = len(model.layers), len(STRENGTHS)
    return Sums(*map(np.zeros, ((2, model.layers[-1].atoms), 5, by_strength, by_strength, 7)))


def finish_sweep(
    local: JointLocal, dictionaries: list[np.ndarray], shared: JointShared, sums: Sums, steps: np.ndarray,
    data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
) -> tuple[JointState, JointInfo]:
    """Draw gamma_d, gamma_w and a shared gamma_e, in this order; account for the log joint."""
    generator = shared_generator(key.seed, key.stage, 0, key.sweep)
    noise = refinement.noise
    each = zip(model.layers, dictionaries, shared.gamma_d, strict=True)
    gamma_d = [draw_gamma_d(atoms, spec.gamma_d, old, generator) for spec, atoms, old in each]
    gamma_w = draw_shared_precision(model.layers[-1].gamma_w, *sums.per_atom, shared.gamma_w, generator)
    if noise.fixed is None and IMAGE not in noise.axes:
        pixels, energy = sums.energy[4:], sums.energy[1:2] / local.gamma_e
        new = draw_shared_precision(noise, pixels, energy, local.gamma_e, generator)
        local = local._replace(gamma_e=new)
        sums.energy[1:2], sums.energy[2:3] = energy * new, pixels * np.log(new)
    state = JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))
    return state, make_info(state, sums, steps, data, model, refinement)


def make_info(
    state: JointState, sums: Sums, steps: np.ndarray, data: LayerData, model: ModelSpec, refinement: RefinementSpec
) -> JointInfo:
    """Form the running log joint and the rest of the info from the sums."""
    energy, weighted, log_noise, log_positions, pixels = sums.energy
    likelihood = 0.5 * (log_noise - pixels * LOG_TWO_PI - weighted)
    joint = likelihood + log_positions + log_prior_from(state, sums.per_atom, data, model, refinement)
    pooled = len(model.layers) - 1
    return JointInfo(
        float(likelihood), float(joint), float(np.sqrt(energy / pixels)), sums.per_atom[0], sums.visited[:pooled],
        sums.moved[:pooled], sums.tally, steps,
    )


def log_prior_from(
    state: JointState, per_atom: np.ndarray, data: LayerData, model: ModelSpec, refinement: RefinementSpec
) -> float:
    """Log prior of all unknowns but the positions of pooled layers: the running twin of
    `gdd.model.joint.joint_log_joint`.
    """
    (local, shared), noise = state, refinement.noise
    top, (number, squares) = model.layers[-1], per_atom
    a, b = top.beta
    total = number.sum() * np.log(a) + (data.count * local.z[0].size - number.sum()) * np.log(b)
    total += log_gaussian(shared.gamma_w, number, squares)
    total += log_precision(top.gamma_w, shared.gamma_w)
    for spec, atoms, gamma_d in zip(model.layers, shared.dictionaries, shared.gamma_d, strict=True):
        total += log_atoms(atoms, gamma_d) + log_precision(spec.gamma_d, gamma_d)
    if noise.fixed is None:
        terms = Gamma(noise.shape, noise.rate).logpdf(local.gamma_e)
        total += add_entries(data.shard, terms, IMAGE in noise.axes)
    return float(total)
