"""One sweep of the joint model of all layers: an image pass, then the draws of the shared unknowns.

``joint_sweep(state, data, model, refinement, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each
image, every top weight, which top coefficients are on, the positions of every pooled layer from the top down, the
dictionaries from the top down, gamma_d, gamma_w, a shared gamma_e. theta is integrated out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE
from gdd.base.compiling import on_threads, thread_count
from gdd.model.distributions import LOG_TWO_PI, Gamma
from gdd.model.layer import log_atoms, log_gaussian, log_precision
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointLocal, JointShared, JointState, LayerData
from gdd.reference.random import Key, shared_generator
from gdd.sampler.arrays import JointBuffers, allocate_buffers
from gdd.sampler.dictionary import draw_gamma_d, draw_shared_precision
from gdd.sampler.joint_dictionary import draw_bottom_dictionary, draw_upper_dictionary
from gdd.sampler.kernels.joint_pass import JointPriors, JointSums
from gdd.sampler.sums import BATCH, WorkItem, add_entries, add_up
from gdd.sampler.sweep import PROCESSOR, Passes, log_count_norm

#: classes of |value| * ||atom|| * sqrt(gamma_e), a block's strength in standard deviations of the noise
STRENGTHS = ("below 0.1", "0.1 to 1", "1 to 3", "above 3")
#: diagnostics of the moves that switch top coefficients and redraw their weights, see `JointSums`
SWITCHES = ("proposed_on", "switched_on", "proposed_off", "switched_off", "weights_proposed", "weights_accepted",
            "weight_steps")


class JointInfo(NamedTuple):
    """Diagnostics of one joint sweep."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the bottom dictionary's draw
    active: np.ndarray  # (atom,): active coefficients of each top atom, over all images
    visited: np.ndarray  # (pooled layer, strength): blocks whose position was drawn
    moved: np.ndarray  # (pooled layer, strength): blocks whose position changed
    switches: dict[str, float]  # by the names of `SWITCHES`, over all images
    steps: np.ndarray  # (layer,): of the solver of the layer's dictionary, 500 if it did not converge; bottom layer 0


def joint_sweep(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
    buffers: JointBuffers | None = None, passes: Passes = PROCESSOR,
) -> tuple[JointState, JointInfo]:
    """Draw every unknown of the joint model once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`
    model, refinement : layers, and what the joint model adds to them
    key : names the random numbers; its ``layer`` is not used. Equal keys give equal sweeps for any number of threads
    buffers : of the chain, `gdd.sampler.arrays.allocate_buffers` of data and model; None: allocated for this sweep
    passes : of the device

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3.
    *Departs:* theta integrated out; exact conditionals, or proposals with an exact accept step; one noise precision may
    be held or shared (P15, P21).
    *Checked:* tests/test_joint_sweep.py, tests/test_joint_sampler.py.
    """
    buffers = (buffers or allocate_buffers(data, model)).load(state)
    sums = image_pass(buffers, state.shared, model, refinement, key, passes)
    dictionaries, steps = list(state.shared.dictionaries), np.zeros(len(model.layers), int)
    for layer in range(len(model.layers) - 1, -1, -1):
        if (key.sweep + layer) % refinement.dictionary_every:
            continue
        old = dictionaries[layer], state.shared.gamma_d[layer]
        if layer:
            layer_key = (key.seed, key.stage, layer + 1, key.sweep)
            dictionaries[layer], energies, steps[layer] = draw_upper_dictionary(buffers, layer, *old, layer_key)
            sums = sums._replace(**energies)
            buffers = buffers.with_dictionary(layer, dictionaries[layer])
        else:
            generator = shared_generator(key.seed, key.stage, 1, key.sweep)
            dictionaries[0], change = draw_bottom_dictionary(buffers, *old, generator)
            sums = sums._replace(weighted_energy=sums.weighted_energy + change)
    return finish_sweep(buffers.local(), dictionaries, state.shared, sums, steps, data, model, refinement, key)


def local_pass(
    state: JointState, data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
    buffers: JointBuffers | None = None,
) -> tuple[JointLocal, JointInfo]:
    """Draw the local part of the state, the shared part fixed: inference for new images, or for missing pixels.

    Parameters and notes are as in `joint_sweep`; a shared noise precision is fixed too.
    """
    buffers = (buffers or allocate_buffers(data, model)).load(state)
    sums = image_pass(buffers, state.shared, model, refinement, key)
    state = state._replace(local=buffers.local())
    return state.local, make_info(state, sums, np.zeros(len(model.layers), int), data, model, refinement)


def image_pass(
    buffers: JointBuffers, shared: JointShared, model: ModelSpec, refinement: RefinementSpec, key: Key,
    passes: Passes = PROCESSOR,
) -> JointSums:
    """Update the local part in ``buffers``; return the sums."""
    (a, b), noise = model.layers[-1].beta, refinement.noise
    priors = JointPriors(
        np.log(a / b), float(shared.gamma_w[0]), float(refinement.empty_blocks), noise.shape, noise.rate,
        noise.fixed is None and IMAGE in noise.axes,
    )
    layer_key, by_strength = (key.seed, key.stage, 0, key.sweep), (len(model.layers), len(STRENGTHS))
    sizes = {"active": (model.layers[-1].atoms,), "squares": (model.layers[-1].atoms,)}
    sizes |= {"visited": by_strength, "moved": by_strength}
    empty = JointSums(*(np.zeros(sizes.get(name, ())) for name in JointSums._fields))

    def run(item: WorkItem) -> None:
        images, work = buffers.images.slice(item.images), buffers.work[item.thread]
        passes.joint(images, buffers.shared, priors, work, item.sums, layer_key)

    with on_threads(min(passes.threads, thread_count())):
        return add_up(empty, buffers.shard, len(buffers.images.pixels), run, max_accumulators=BATCH)


def finish_sweep(
    local: JointLocal, dictionaries: list[np.ndarray], shared: JointShared, sums: JointSums, steps: np.ndarray,
    data: LayerData, model: ModelSpec, refinement: RefinementSpec, key: Key,
) -> tuple[JointState, JointInfo]:
    """Draw gamma_d, gamma_w and a shared gamma_e, in this order; return the new state and its info."""
    generator, noise = shared_generator(key.seed, key.stage, 0, key.sweep), refinement.noise
    layers = zip(model.layers, dictionaries, shared.gamma_d, strict=True)
    gamma_d = [draw_gamma_d(atoms, spec.gamma_d, old, generator) for spec, atoms, old in layers]
    gamma_w = draw_shared_precision(model.layers[-1].gamma_w, sums.active, sums.squares, shared.gamma_w, generator)
    if noise.fixed is None and IMAGE not in noise.axes:
        pixels, energy = np.atleast_1d(sums.pixels), sums.weighted_energy / local.gamma_e
        new = draw_shared_precision(noise, pixels, energy, local.gamma_e, generator)
        local = local._replace(gamma_e=new)
        sums = sums._replace(weighted_energy=(energy * new)[0], log_noise=(pixels * np.log(new))[0])
    state = JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))
    return state, make_info(state, sums, steps, data, model, refinement)


def make_info(
    state: JointState, sums: JointSums, steps: np.ndarray, data: LayerData, model: ModelSpec,
    refinement: RefinementSpec,
) -> JointInfo:
    """Compute the running log joint and the other diagnostics from the sums."""
    likelihood = 0.5 * (sums.log_noise - sums.pixels * LOG_TWO_PI - sums.weighted_energy)
    joint, pooled = likelihood + log_prior_from(state, sums, data, model, refinement), len(model.layers) - 1
    return JointInfo(
        float(likelihood), float(joint), float(np.sqrt(sums.energy / sums.pixels)), sums.active, sums.visited[:pooled],
        sums.moved[:pooled], {name: float(getattr(sums, name)) for name in SWITCHES}, steps,
    )


def log_prior_from(
    state: JointState, sums: JointSums, data: LayerData, model: ModelSpec, refinement: RefinementSpec
) -> float:
    """Log prior of all unknowns: the running twin of `gdd.model.joint.joint_log_joint`."""
    (local, shared), noise, top, active = state, refinement.noise, model.layers[-1], sums.active.sum()
    a, b = top.beta
    total = active * np.log(a) + (data.count * local.z[0].size - active) * np.log(b)
    total += sums.log_counts + data.count * sum(map(log_count_norm, model.shapes()[:-1]))
    total += log_gaussian(shared.gamma_w, sums.active, sums.squares) + log_precision(top.gamma_w, shared.gamma_w)
    for spec, atoms, gamma_d in zip(model.layers, shared.dictionaries, shared.gamma_d, strict=True):
        total += log_atoms(atoms, gamma_d) + log_precision(spec.gamma_d, gamma_d)
    if noise.fixed is None:
        terms = Gamma(noise.shape, noise.rate).logpdf(local.gamma_e)
        total += add_entries(data.shard, terms, IMAGE in noise.axes)
    return float(total)
