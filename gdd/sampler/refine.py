"""Refinement: the chain of the joint model of all layers, from a pretrained start or from none.

A chain keeps traces, the collected sample of highest likelihood, the last state, the mean dictionaries over the
collected sweeps, and nothing else. Like a pretraining chain it can be stopped at any moment and resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import CHAIN, DRAW, IMAGE, GddError
from gdd.base.checks import check_kind
from gdd.model.layer import block_groups, draw_positions
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, precision_shapes
from gdd.sampler import chain as layer_chain
from gdd.sampler import checkpoint
from gdd.sampler.checkpoint import Progressed
from gdd.sampler.conditionals import theta_given_z
from gdd.sampler.contract import Key, within_range
from gdd.sampler.joint_sweep import STRENGTHS, JointInfo, joint_sweep
from gdd.sampler.pretrain import Pretrained, taken
from gdd.sampler.random import REFINE, START, shared_generator
from gdd.sampler.stretch import run_to_end

#: traces with one number a sweep; those of `Refined.traces` that have more axes are listed in `label_traces`
SCALARS = (
    "log_likelihood", "log_joint", "residual", "active", "gamma_e", "gamma_w", "proposed_on", "switched_on",
    "proposed_off", "switched_off", "weights_proposed", "weights_accepted",
    "weight_steps",
)


class Refined(NamedTuple):
    """A model after refinement."""

    model: ModelSpec
    refinement: RefinementSpec
    state: JointState  # the collected sample of highest likelihood
    last: JointState
    means: tuple[np.ndarray, ...]  # dictionaries, averaged over the collected sweeps
    traces: xr.Dataset  # dims (chain, draw, and pooled layer x strength for the positions); attributes: seconds and
    # cpu_seconds of all its stretches
    data: LayerData


def refine(
    images: np.ndarray | xr.DataArray, model: ModelSpec, chain: ChainSpec | None = None,
    refinement: RefinementSpec | None = None, start: Pretrained | None = None, mask: np.ndarray | None = None,
    folder: Path | None = None, progress=None,
) -> Refined:
    """Learn all layers of a model together.

    Parameters
    ----------
    images : (image, plane, row, col)
    model : sizes and priors of the layers; with ``start`` that of the pretrained model, as pruned
    chain : lengths, seed and moves; the paper's by default. Its ``start`` counts if ``start`` is None
    refinement : what the joint model adds; noise of fixed precision by default
    start : a pretrained model of the same images; None starts from atoms of noise or of patches of the images, with
        no top coefficient active
    mask : (image, plane, row, col) of bool, True = observed; None: all observed
    folder : of checkpoints; a run that finds its own there goes on from it
    progress : ``gdd_book.progress.Bar`` over sweeps, optional

    Returns
    -------
    Refined

    Raises
    ------
    GddError
        Bad images or mask, a model without a joint form, a start that is of other images, a foreign checkpoint.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3 and 3.
    *Departs:* the noise precision is fixed unless the refinement says otherwise (P15).
    *Checked:* tests/test_refine.py (stop and resume, starts).
    """
    chain, refinement = chain or ChainSpec(), refinement or RefinementSpec()
    check_kind("refinement", refinement, RefinementSpec)
    check_kind("start", start, (Pretrained, type(None)))
    data = taken(images, model, chain, mask, folder)
    refinement.check_model(model)
    if start is None:
        first = fresh_start(data, model, chain, refinement)
    else:
        check_start(start, data, model)
        first = start_from(start, refinement, chain)
    return run_joint_chain(first, data, model, chain, refinement, folder, progress)


def run_joint_chain(
    first: JointState, data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec,
    folder: Path | None = None, progress=None,
) -> Refined:
    """Run the chain from a first state, or from where a checkpoint in ``folder`` left it."""
    path = Path(folder) / "refined.npz" if folder else None
    begun = (first.local.w, *first.shared.dictionaries)
    spec = model, chain, refinement
    owner = checkpoint.fingerprint(data, spec, len(model.layers), begun, SCALARS) if folder else ""

    def begin() -> Progressed:
        nothing, columns = np.empty(0, int), trace_names(model)
        zeros = tuple(np.zeros(part.shape) for part in first.shared.dictionaries)
        return Progressed(0, first, None, -np.inf, nothing, nothing, np.empty((0, len(columns))), zeros)

    at = run_to_end(
        begin, lambda at: advance(at, data, model, chain, refinement), chain.sweeps, "all layers", path, owner, progress
    )
    means = tuple(total / chain.collect for total in at.sums)
    traces = label_traces(at.traces, model).assign_attrs(seconds=at.seconds, cpu_seconds=at.cpu_seconds)
    return Refined(model, refinement, at.best, at.state, means, traces, data)


def advance(
    at: Progressed, data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec
) -> Progressed:
    """One sweep."""
    number = at.done
    scale = bool(chain.scale_every) and number % chain.scale_every == 0
    with within_range(f"refinement, sweep {number}") as check:
        state, info = joint_sweep(at.state, data, model, refinement, Key(chain.seed, REFINE, 0, number), scale)
        check(info.log_likelihood)
    best, best_likelihood, sums = at.best, at.best_likelihood, at.sums
    if number >= chain.burn_in:
        sums = tuple(total + part for total, part in zip(sums, state.shared.dictionaries, strict=True))
        if best is None or info.log_likelihood > best_likelihood:
            best, best_likelihood = state, info.log_likelihood
    traces = np.vstack([at.traces, trace_row(state, info, len(data.images))])
    return Progressed(number + 1, state, best, best_likelihood, at.kept, at.best_kept, traces, sums)


def trace_names(model: ModelSpec) -> list[tuple[str, ...]]:
    """Name of every column of the traces: a scalar's, or (what, layer from 1, strength)."""
    pooled = range(1, len(model.layers))
    many = [(name, layer, strength) for name in ("visited", "moved") for layer in pooled for strength in STRENGTHS]
    layers = [(name, layer) for name in ("steps", "gamma_d") for layer in range(1, len(model.layers) + 1)]
    return [(name,) for name in SCALARS] + layers + many


def trace_row(state: JointState, info: JointInfo, images: int) -> np.ndarray:
    """Values of `trace_names` after a sweep; counts are per image."""
    local, shared = state
    scalars = [
        info.log_likelihood, info.log_joint, info.residual, info.active.sum() / images, local.gamma_e.mean(),
        shared.gamma_w.mean(), *info.switches / images,
    ]
    layers = [*info.steps, *(part.mean() for part in shared.gamma_d)]
    return np.array([*scalars, *layers, *info.visited.ravel() / images, *info.moved.ravel() / images])


def label_traces(traces: np.ndarray, model: ModelSpec) -> xr.Dataset:
    """Traces as a Dataset with dims (chain, draw); steps and gamma_d have a layer axis, visited and moved two more."""
    out = {name: ((CHAIN, DRAW), traces[None, :, i]) for i, name in enumerate(SCALARS)}
    count, at = len(model.layers), len(SCALARS)
    for name in ("steps", "gamma_d"):
        out[name] = ((CHAIN, DRAW, "layer"), traces[None, :, at : at + count])
        at += count
    for name in ("visited", "moved"):
        columns = traces[None, :, at : at + (count - 1) * len(STRENGTHS)]
        shape = (1, len(traces), count - 1, len(STRENGTHS))
        out[name] = ((CHAIN, DRAW, "pooled_layer", "strength"), columns.reshape(shape))
        at += (count - 1) * len(STRENGTHS)
    return xr.Dataset(out, {"strength": list(STRENGTHS)})


def check_start(start: Pretrained, data: LayerData, model: ModelSpec) -> None:
    """Refuse a pretrained model of other sizes or of another number of images."""
    if start.model.layers != model.layers:
        raise GddError("start: a model pretrained with other layers; give refine that model, start.model")
    given = len(start.layers[0].state.local.z)
    if given != len(data.images):
        raise GddError(f"start: axis 'image' has size {given}; {len(data.images)} images are given")


def start_from(start: Pretrained, refinement: RefinementSpec, chain: ChainSpec) -> JointState:
    """First state from pretraining: its dictionaries, its top coefficients, and its positions.

    Blocks that pretraining left empty get a position: theta is drawn given the pretrained positions, loses its entry
    for "none", and is renormalised; the position is drawn from it.
    """
    generator = shared_generator(chain.seed, START, len(start.layers), 1)
    positions = []
    for layer in start.layers[:-1]:
        z = layer.state.local.z.copy()
        groups = zip(block_groups(layer.shape), theta_given_z(z, layer.shape), strict=True)
        for (blocks, places), theta in () if refinement.empty_blocks else groups:
            probability = theta.sample(generator)[..., :-1]  # (image, atom, position)
            edges = np.cumsum(probability, axis=2)[:, :, None, :]
            uniform = generator.random((*z.shape[:2], int(blocks.sum()), 1)) * edges[..., -1:]
            drawn = places[np.minimum((uniform > edges).sum(axis=3), len(places) - 1)]
            z[:, :, blocks] = np.where(z[:, :, blocks] == EMPTY, drawn, z[:, :, blocks])
        positions.append(z)
    top = start.layers[-1].state
    noise = start.layers[0].state.local.gamma_e.mean(axis=1)
    local = JointLocal(tuple(positions), top.local.z, top.local.w, first_noise(refinement, noise, len(top.local.z)))
    shared = [layer.state.shared for layer in start.layers]
    dictionaries = tuple(part.dictionary.astype(float) for part in shared)
    return JointState(local, JointShared(dictionaries, tuple(part.gamma_d for part in shared), top.shared.gamma_w))


def fresh_start(data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec) -> JointState:
    """First state without pretraining: no top coefficient, positions from their prior; atoms of unit norm.

    The bottom layer's atoms are patches of the images if the chain starts from "patches"; all others are noise.
    """
    generator = shared_generator(chain.seed, START, len(model.layers), 2)
    shapes, images = model.shapes(), len(data.images)
    bottom = layer_chain.start(data, model.layers[0], shapes[0], chain, 0)
    dictionaries, gamma_d = [bottom.shared.dictionary], []
    for shape in shapes[1:]:
        atoms = generator.standard_normal(shape.dictionary)
        dictionaries.append(atoms / np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True)))
    for spec, shape in zip(model.layers, shapes, strict=True):
        size = precision_shapes(spec, images, shape.planes)[1]
        value = float(shape.atom_size[0] * shape.atom_size[1] * shape.planes)
        gamma_d.append(np.full(size, value if spec.gamma_d.fixed is None else spec.gamma_d.fixed))
    positions = [
        draw_positions(images, spec, shape, generator, refinement.empty_blocks)
        for spec, shape in zip(model.layers[:-1], shapes[:-1], strict=True)
    ]
    top, prior = shapes[-1], model.layers[-1].gamma_w
    z = np.full((images, top.atoms, *top.grid), EMPTY, np.int16)
    gamma_w = np.full(precision_shapes(model.layers[-1], images, 1)[2], 1.0 if prior.fixed is None else prior.fixed)
    noise = first_noise(refinement, np.array([1 / data.images.var()]), images)
    local = JointLocal(tuple(positions), z, np.zeros(z.shape, data.images.dtype), noise)
    return JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))


def first_noise(refinement: RefinementSpec, value: np.ndarray, images: int) -> np.ndarray:
    """Noise precision to start from, (image or 1,): the fixed one, or ``value`` (image or 1,) below the ceiling."""
    if refinement.noise.fixed is not None:
        value = np.array([refinement.noise.fixed])
    ceiling = np.inf if refinement.ceiling is None else refinement.ceiling
    value = np.minimum(value.astype(float), ceiling)
    if IMAGE in refinement.noise.axes:
        return np.broadcast_to(value, (images,)).copy()
    return value.mean(keepdims=True)
