"""Refinement: the chain of the joint model of all layers, from a pretrained model or from scratch.

A chain keeps traces, the collected sample of highest likelihood and the last state. Like a pretraining chain it can be
stopped at any time and resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError, check_kind, warn_of_scale
from gdd.base.files import user_path
from gdd.model.layer import block_groups, draw_outcomes, draw_positions
from gdd.model.spec import ChainSpec, LayerShape, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, Shard, precision_shapes
from gdd.reference.conditionals import theta_given_z
from gdd.reference.random import REFINE, START, Key, shared_generator
from gdd.sampler.arrays import allocate_buffers
from gdd.sampler.chain import label_traces, run_chain
from gdd.sampler.checkpoint import describe_chain
from gdd.sampler.joint_sweep import STRENGTHS, JointInfo, joint_sweep
from gdd.sampler.pretrain import Pretrained, check_start, initial_state, mean_entry, validate_data, variance
from gdd.sampler.sums import batches
from gdd.sampler.sweep import PROCESSOR, Passes, passes_on

#: axes of traces that are arrays
TRACE_AXES = {"steps": ("layer",), "gamma_d": ("layer",), "visited": ("pooled_layer", "strength"),
              "moved": ("pooled_layer", "strength")}


class Refined(NamedTuple):
    """A model after refinement.

    Attributes
    ----------
    model : ModelSpec
    refinement : RefinementSpec
    state : the collected sample of highest likelihood
    last : the last sample
    traces : (chain, draw) and the axes of `TRACE_AXES`; attributes: seconds and cpu_seconds of all its runs
    data : the images; None if the model comes from a file
    digest : of the images, if the model comes from a file; else None
    """

    model: ModelSpec
    refinement: RefinementSpec
    state: JointState
    last: JointState
    traces: xr.Dataset
    data: LayerData | None
    digest: str | None = None


def refine(
    images: np.ndarray | xr.DataArray, model: ModelSpec, chain: ChainSpec | None = None,
    refinement: RefinementSpec | None = None, start: Pretrained | Refined | None = None, mask: np.ndarray | None = None,
    folder: Path | None = None, progress=None, device: str = "cpu",
) -> Refined:
    """Learn all layers of a model together.

    Parameters
    ----------
    images : (image, plane, row, col), in the units of `gdd.pretrain`
    model : sizes and priors of the layers; with ``start`` that of the pretrained model, as pruned. Apply
        `ModelSpec.with_learned_planes` so that the atoms of layer 1 do not vanish
    chain : lengths and seed; the paper's by default. Its ``start`` is used if ``start`` is None
    refinement : settings of the joint model; noise of fixed precision by default
    start : a model pretrained on the same images, or a refined one, whose chain is continued from its last state with
        another seed; None starts from atoms of noise or of patches of the images, with no top coefficient active
    mask : (image, plane, row, col) of bool, True = observed; None: all observed
    folder : of checkpoints; a run resumes from its own checkpoint there
    progress : bar over sweeps, optional
    device : "cpu", or "cuda" for the image passes on an NVIDIA graphics processor: the same chain, to rounding

    Returns
    -------
    Refined

    Raises
    ------
    GddError
        Bad images or mask, a model without a joint form, a start from other images
        or another mask, a checkpoint of another chain or of other code. No graphics processor, or one with too little
        memory for a batch of images.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3 and 3.
    *Departs:* the noise precision is fixed unless the refinement says otherwise (P15).
    *Checked:* tests/test_refine.py (stop and resume, starts).
    """
    chain, refinement = chain or ChainSpec(), refinement or RefinementSpec()
    check_kind("refinement", refinement, RefinementSpec)
    check_kind("start", start, (Pretrained, Refined, type(None)))
    folder = None if folder is None else user_path("folder", folder, folder=True)
    data = validate_data(images, model, refinement.noise, chain, mask)
    refinement.check_model(model)
    warn_of_scale(data.images, refinement.noise.fixed)
    if start is not None:
        check_start(start, data, model)
    if isinstance(start, Refined) and start.refinement.empty_blocks and not refinement.empty_blocks:
        raise GddError("refinement: blocks of the start may be empty; empty_blocks=True is needed")
    return refine_layers(data, model, chain, refinement, start, folder, progress, device)


def refine_layers(
    data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec,
    start: Pretrained | Refined | None = None, folder: Path | None = None, progress=None, device: str = "cpu",
) -> Refined:
    """`refine` with validated data and start, which may be a shard of the images."""
    passes = passes_on(device, model.shapes(), data, joint=True)
    if start is None:
        initial = fresh_start(data, model, chain, refinement)
    elif isinstance(start, Pretrained):
        initial = start_from(start._replace(inputs=(data,)), refinement, chain)
    else:
        local, by_image = start.last.local, IMAGE in start.refinement.noise.axes
        noise = initial_noise(refinement, local.gamma_e, by_image, data)
        initial = start.last._replace(local=local._replace(gamma_e=noise))
    return run_joint_chain(initial, data, model, chain, refinement, folder, progress, passes)


def run_joint_chain(
    initial: JointState, data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec,
    folder: Path | None = None, progress=None, passes: Passes = PROCESSOR,
) -> Refined:
    """Run the chain from an initial state, or from its checkpoint in ``folder``."""
    buffers = allocate_buffers(data, model)

    def step(state: JointState, sweeps: int):
        state, info = joint_sweep(state, data, model, refinement, Key(chain.seed, REFINE, 0, sweeps), buffers, passes)
        return state, info.log_likelihood, trace(state, info, data, refinement)

    path = Path(folder) / "refined.joblib" if folder else None
    start_data = (initial.local.w,), initial.shared.dictionaries
    owner = describe_chain(data, (model, chain, refinement), len(model.layers), *start_data) if folder else {}
    chain_state = run_chain(lambda: initial, step, chain, "all layers", path, owner, progress, data)
    traces = label_traces(chain_state, TRACE_AXES).assign_coords(strength=list(STRENGTHS))
    return Refined(model, refinement, chain_state.best, chain_state.state, traces, data)


def trace(state: JointState, info: JointInfo, data: LayerData, refinement: RefinementSpec) -> dict[str, np.ndarray]:
    """Traces of a sweep; counts are per image."""
    (local, shared), images = state, data.count
    gamma_e = mean_entry(data, local.gamma_e, IMAGE in refinement.noise.axes)
    return {
        "log_likelihood": info.log_likelihood, "log_joint": info.log_joint, "residual": info.residual,
        "active": info.active.sum() / images, "gamma_e": gamma_e, "gamma_w": shared.gamma_w.mean(),
        "gamma_d": np.array([part.mean() for part in shared.gamma_d]), "steps": info.steps,
        "visited": info.visited / images, "moved": info.moved / images,
    } | {name: count / images for name, count in info.switches.items()}


def start_from(start: Pretrained, refinement: RefinementSpec, chain: ChainSpec) -> JointState:
    """Initial state from pretraining: its dictionaries, top coefficients and positions.

    Blocks that are empty after pretraining get a position: theta is drawn given the pretrained positions, its entry for
    empty is removed, and the position is drawn from the rest.
    """
    data = start.inputs[0]
    positions = [layer.state.local.z.copy() for layer in start.layers[:-1]]
    if not refinement.empty_blocks:
        for batch, where in batches(data.shard, len(data.images)):
            generator = shared_generator(chain.seed, START, len(start.layers), 1, batch)
            for z, layer in zip(positions, start.layers, strict=False):
                z[where] = fill_empty_blocks(z[where], layer.shape, generator)
    top = start.layers[-1].state
    noise, by_image = start.layers[0].state.local.gamma_e, IMAGE in start.layers[0].spec.gamma_e.axes
    local = JointLocal(tuple(positions), top.local.z, top.local.w, initial_noise(refinement, noise, by_image, data))
    shared = [layer.state.shared for layer in start.layers]
    dictionaries = tuple(part.dictionary.astype(float) for part in shared)
    return JointState(local, JointShared(dictionaries, tuple(part.gamma_d for part in shared), top.shared.gamma_w))


def fill_empty_blocks(z: np.ndarray, shape: LayerShape, generator: np.random.Generator) -> np.ndarray:
    """Draw a position for every empty block of ``z``, see `start_from`."""
    z = z.copy()
    for (blocks, places), theta in zip(block_groups(shape), theta_given_z(z, shape), strict=True):
        drawn = places[draw_outcomes(theta.sample(generator)[..., : len(places)], int(blocks.sum()), generator)]
        z[:, :, blocks] = np.where(z[:, :, blocks] == EMPTY, drawn, z[:, :, blocks])
    return z


def fresh_start(data: LayerData, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec) -> JointState:
    """Initial state without pretraining: no active top coefficient, positions from their prior, atoms of unit norm.

    The bottom layer's atoms are patches of the images if the chain starts from "patches"; all others are noise.
    """
    generator = shared_generator(chain.seed, START, len(model.layers), 2)
    shapes, images = model.shapes(), len(data.images)
    bottom = initial_state(data, model.layers[0], shapes[0], chain)
    dictionaries, gamma_d = [bottom.shared.dictionary], []
    for shape in shapes[1:]:
        atoms = generator.standard_normal(shape.dictionary)
        dictionaries.append(atoms / np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True)))
    for spec, shape in zip(model.layers, shapes, strict=True):
        size = precision_shapes(spec, images, shape.planes)[1]
        value = float(shape.atom_size[0] * shape.atom_size[1] * shape.planes)
        gamma_d.append(np.full(size, value if spec.gamma_d.fixed is None else spec.gamma_d.fixed))

    def generators(batch: int) -> np.random.Generator:
        return shared_generator(chain.seed, START, len(model.layers), 2, batch) if batch else generator

    positions = initial_positions(images, data.shard, model, refinement, generators)
    top, prior = shapes[-1], model.layers[-1].gamma_w
    z = np.full((images, top.atoms, *top.grid), EMPTY, np.int16)
    gamma_w = np.full(precision_shapes(model.layers[-1], images, 1)[2], 1.0 if prior.fixed is None else prior.fixed)
    noise = initial_noise(refinement, np.array([1 / variance(data)]), False, data)
    local = JointLocal(positions, z, np.zeros(z.shape, data.images.dtype), noise)
    return JointState(local, JointShared(tuple(dictionaries), tuple(gamma_d), gamma_w))


def initial_positions(
    images: int, shard: Shard, model: ModelSpec, refinement: RefinementSpec,
    generators: Callable[[int], np.random.Generator],
) -> tuple[np.ndarray, ...]:
    """Draw positions of the pooled layers from their prior, for ``images`` of a shard; a generator per batch."""
    layers = list(zip(model.layers[:-1], model.shapes()[:-1], strict=True))
    drawn = []
    for batch, where in batches(shard, images):
        generator, number = generators(batch), where.stop - where.start
        drawn.append([draw_positions(number, *layer, generator, refinement.empty_blocks) for layer in layers])
    return tuple(np.concatenate(parts) for parts in zip(*drawn, strict=True))


def initial_noise(refinement: RefinementSpec, value: np.ndarray, by_image: bool, data: LayerData) -> np.ndarray:
    """Initial noise precision (image or 1,): the fixed one, or ``value`` (image or 1,)."""
    if refinement.noise.fixed is not None:
        value, by_image = np.array([refinement.noise.fixed]), False
    value = value.astype(float)
    if IMAGE in refinement.noise.axes:
        return np.broadcast_to(value, len(data.images)).copy()
    return np.array([mean_entry(data, value, by_image)])
