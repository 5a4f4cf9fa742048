"""Bottom-up pretraining: one layer at a time, each on the pooled activations of the layer below."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, IMAGES
from gdd.base.checks import GddError, as_pixels, as_plain, check_kind, check_memory, warn_of_scale
from gdd.base.files import user_path
from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, ModelSpec, Precision, Pruning, layer_shape
from gdd.model.state import EMPTY, LayerData, LayerState, Local, Shared, precision_shapes
from gdd.reference.random import PRETRAIN, START, Key, shared_generator
from gdd.sampler.chain import label_traces, run_chain
from gdd.sampler.checkpoint import describe_chain, digest_of
from gdd.sampler.sums import add_entries, batches
from gdd.sampler.sweep import PROCESSOR, Info, Passes, passes_on, sweep


class Fitted(NamedTuple):
    """One layer after its chain."""

    spec: LayerSpec  # as pruned
    shape: LayerShape
    state: LayerState  # the collected sample of highest likelihood
    traces: xr.Dataset  # dims (chain, draw); attributes: seconds and cpu_seconds of all its runs


class Pretrained(NamedTuple):
    """A model after pretraining, bottom layer first.

    Attributes
    ----------
    model : ModelSpec, as pruned
    layers : for each layer its ``spec`` as pruned, its ``shape``, its ``state``, the collected sample of highest
        likelihood, and its ``traces`` (chain, draw)
    inputs : input of each layer
    digest : of the images, if the model comes from a file; else None
    """

    model: ModelSpec
    layers: tuple[Fitted, ...]
    inputs: tuple[LayerData, ...]
    digest: str | None = None


def pretrain(
    images: np.ndarray | xr.DataArray, model: ModelSpec, chain: ChainSpec | None = None,
    mask: np.ndarray | None = None, folder: Path | None = None, progress=None, start: Pretrained | None = None,
    device: str = "cpu",
) -> Pretrained:
    """Learn every layer of a model from the bottom up.

    Parameters
    ----------
    images : (image, plane, row, col), background 0, root mean square about 1/3
    model : sizes and priors of the layers
    chain : lengths and seed of every layer's chain; the paper's by default
    mask : (image, plane, row, col) of bool, True = observed; None: all observed
    folder : of checkpoints; a run resumes from its own checkpoints there
    progress : bar over layers x sweeps, optional
    start : a model pretrained on the same images, whose chain is continued with another seed; None starts from patches
        or noise
    device : "cpu", or "cuda" for the image passes on an NVIDIA graphics processor: the same chains, to rounding

    Returns
    -------
    Pretrained

    Raises
    ------
    GddError
        Bad images or mask, images of another size than the model's, a start from other images, a checkpoint of another
        chain or of other code. No graphics processor, or one with too little memory for a batch of images.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2 and 3.
    *Departs:* theta integrated out; exact conditionals (P2-P6).
    *Checked:* tests/test_pretrain.py, tests/test_chain.py.
    """
    chain = chain or ChainSpec()
    check_kind("model", model, ModelSpec)
    folder = None if folder is None else user_path("folder", folder, folder=True)
    data = validate_data(images, model, model.layers[0].gamma_e, chain, mask)
    warn_of_scale(data.images, model.layers[0].gamma_e.fixed)
    check_kind("start", start, (Pretrained, type(None)))
    if start is not None:
        if chain.pruning:
            raise GddError("chain: pruning given with a start, whose upper layers are for all atoms; leave one out")
        check_start(start, data, model)
    return pretrain_layers(data, model, chain, folder, progress, start, device)


def pretrain_layers(
    data: LayerData, model: ModelSpec, chain: ChainSpec, folder: Path | None = None, progress=None,
    start: Pretrained | None = None, device: str = "cpu",
) -> Pretrained:
    """`pretrain` with validated data, which may be a shard of the images."""
    passes, fitted, inputs = passes_on(device, model.shapes(), data), [], []
    for number, spec in enumerate(model.layers):
        shape = layer_shape(spec, data.images.shape[2:], data.images.shape[1], name=f"layer {number + 1}")
        before = None if start is None else start.layers[number].state
        fitted.append(fit_layer(data, spec, shape, chain, number, folder, progress, before, passes))
        inputs.append(data)
        data = LayerData(fitted[-1].state.local.w, shard=data.shard)  # a block's weight is a pixel of the next layer
    return Pretrained(replace(model, layers=tuple(layer.spec for layer in fitted)), tuple(fitted), tuple(inputs))


def fit_layer(
    data: LayerData, spec: LayerSpec, shape: LayerShape, chain: ChainSpec, number: int = 0,
    folder: Path | None = None, progress=None, start: LayerState | None = None, passes: Passes = PROCESSOR,
) -> Fitted:
    """Run the chain of one layer from an initial state, from ``start``, or from its checkpoint in ``folder``."""

    def step(state: LayerState, sweeps: int):
        atoms = len(state.shared.dictionary)
        layer = replace(spec, atoms=atoms), replace(shape, atoms=atoms)
        state, info = sweep(state, data, *layer, Key(chain.seed, PRETRAIN, number, sweeps), passes)
        traces = trace(state, info, data, spec)
        if chain.pruning and chain.pruning.is_due(sweeps, chain.burn_in):
            state = select_atoms(state, used_atoms(info.active, chain.pruning))
        return state, info.log_likelihood, traces

    path = Path(folder) / f"layer{number + 1}.joblib" if folder else None
    start_data = ((), ()) if start is None else ((start.local.z, start.local.w), (start.shared.dictionary,))
    owner = describe_chain(data, (spec, chain), number, *start_data) if folder else {}
    first_state = lambda: initial_state(data, spec, shape, chain, number) if start is None else start  # noqa: E731
    chain_state = run_chain(first_state, step, chain, f"layer {number + 1}", path, owner, progress, data)
    atoms = len(chain_state.best.shared.dictionary)
    return Fitted(replace(spec, atoms=atoms), replace(shape, atoms=atoms), chain_state.best, label_traces(chain_state))


def trace(state: LayerState, info: Info, data: LayerData, spec: LayerSpec) -> dict[str, float]:
    """Traces of a sweep; active blocks are counted per image."""
    local, shared = state
    return {
        "log_likelihood": info.log_likelihood, "log_joint": info.log_joint, "residual": info.residual,
        "active": info.active.sum() / data.count, "atoms": len(shared.dictionary),
        "gamma_e": mean_entry(data, local.gamma_e, IMAGE in spec.gamma_e.axes),
        "gamma_d": shared.gamma_d.mean(), "gamma_w": shared.gamma_w.mean(),
    }


def mean_entry(data: LayerData, values: np.ndarray, by_image: bool) -> float:
    """Mean of the entries (image or 1, ...) of a noise precision, over the images of all shards."""
    return add_entries(data.shard, values, by_image) / (values[0].size * (data.count if by_image else 1))


def validate_data(
    images: np.ndarray | xr.DataArray, model: ModelSpec, noise: Precision, chain: ChainSpec, mask: np.ndarray | None
) -> LayerData:
    """Return the validated input of a chain.

    noise : prior of the data's noise precision; unless it is fixed, images without contrast are refused, as they would
        make it diverge
    """
    check_kind("chain", chain, ChainSpec)
    mask = None if mask is None else as_plain(mask, IMAGES, "mask").copy(order="C")
    dtype = np.float32 if chain.single_precision else np.float64
    pixels = as_pixels(images, "images", mask, noise.fixed is not None, dtype)
    check_fits(pixels, model)
    return LayerData(pixels, mask)


def check_fits(images: np.ndarray, model: ModelSpec) -> None:
    """Refuse images whose planes or sizes are not those of the model, and a model too large for this machine."""
    check_kind("model", model, ModelSpec)
    for axis, size, model_size in zip(IMAGES[1:], images.shape[1:], (model.planes, *model.image_size), strict=True):
        if size != model_size:
            raise GddError(f"images: axis '{axis}' has size {size}, the model is for size {model_size}")
    for number, shape in enumerate(model.shapes(), 1):
        maps = len(images) * shape.atoms * prod(shape.map_size)
        pairs = shape.atoms**2 * prod(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
        check_memory(f"atoms of layer {number}", max(maps, pairs, prod(shape.dictionary)))


def check_start(start: NamedTuple, data: LayerData, model: ModelSpec, argument: str = "start") -> None:
    """Refuse a start of another model, or one trained on other images or under another mask.

    start : `Pretrained` or `gdd.sampler.refine.Refined`
    """
    local = start.layers[0].state.local if isinstance(start, Pretrained) else start.last.local
    if start.model != model:
        raise GddError(f"{argument}: trained with other layers or for other sizes; give that model, {argument}.model")
    if len(local.z) != len(data.images):
        raise GddError(f"{argument}: axis 'image' has size {len(local.z)}; {len(data.images)} images are given")
    if training_digest(start) not in (None, digest_of([data.images.astype(np.float32), data.mask])):
        raise GddError(f"{argument}: trained on other images, or under another mask; give those of that training")


def training_digest(trained: NamedTuple) -> str | None:
    """SHA-256 of the images, and of their mask, that a chain was trained on; None if its file does not have it."""
    data = next(iter(trained.inputs), None) if isinstance(trained, Pretrained) else trained.data
    return trained.digest if data is None else digest_of([data.images.astype(np.float32), data.mask])


def initial_state(
    data: LayerData, spec: LayerSpec, shape: LayerShape, chain: ChainSpec, number: int = 0
) -> LayerState:
    """Empty maps, and atoms of unit norm: patches of the data where it is not blank, or Gaussian noise."""
    images, shard = data.images if data.mask is None else np.where(data.mask, data.images, 0.0), data.shard
    dtype = np.float32 if chain.single_precision else np.float64
    generator = shared_generator(chain.seed, START, number, 0)
    atoms = generator.standard_normal(shape.dictionary)
    if chain.start == "patches":
        (h, w), (rows, cols) = shape.atom_size, shape.map_size
        for k in range(shape.atoms):
            n, i, j = (generator.integers(0, size, 20) for size in (data.count, rows, cols))
            patches = [
                (-t, images[n[t] - shard.first, :, i[t] : i[t] + h, j[t] : j[t] + w])
                for t in range(20) if 0 <= n[t] - shard.first < len(images)
            ]
            patch = shard.reduce(_highest_energy, [(float((patch**2).sum()), t, patch) for t, patch in patches])
            atoms[k] = patch + 1e-3 * max(float(np.abs(patch).max()), 1e-6) * atoms[k]
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True))
    sizes = precision_shapes(spec, len(images), shape.planes)
    initial = (1 / variance(data._replace(images=images)), shape.atom_size[0] * shape.atom_size[1] * shape.planes, 1.0)
    gamma_e, gamma_d, gamma_w = (
        np.full(size, value if prior.fixed is None else prior.fixed, float)
        for size, value, prior in zip(sizes, initial, (spec.gamma_e, spec.gamma_d, spec.gamma_w), strict=True)
    )
    z = np.full((len(images), shape.atoms, *shape.grid), EMPTY, np.int16)
    return LayerState(Local(z, np.zeros(z.shape, dtype), gamma_e), Shared(atoms, gamma_d, gamma_w))


def _highest_energy(parts: list[list[tuple[float, int, np.ndarray]]]) -> np.ndarray:
    """The patch of highest energy, the first of several; ``parts`` : (energy, -number, patch) of every shard."""
    return max((drawn for part in parts for drawn in part), key=itemgetter(0, 1))[2]


def variance(data: LayerData) -> np.floating:
    """Variance of the pixels of all images of a chain, in their dtype."""
    images = (data.images[where] for _, where in batches(data.shard, len(data.images)))
    moments = [(batch.size, batch.mean(dtype=float), float(batch.var())) for batch in images]
    size, mean, spread = np.array(sum(data.shard.reduce(list, moments), []), float).T
    between = (mean - mean @ size / size.sum()) ** 2 if len(size) > 1 else 0.0
    return data.images.dtype.type((spread + between) @ size / size.sum())


def used_atoms(active: np.ndarray, pruning: Pruning) -> np.ndarray:
    """Indices of the atoms used at least ``share`` times as often as the mean atom; at least two stay."""
    keep = np.flatnonzero(active >= pruning.share * active.mean())
    return keep if len(keep) > 1 else np.sort(np.argsort(active)[-2:])


def select_atoms(state: LayerState, keep: np.ndarray) -> LayerState:
    """Return the state with only the atoms ``keep``."""
    local, shared = state
    select = lambda array: array[keep] if len(array) > 1 else array  # noqa: E731
    return LayerState(
        local._replace(z=local.z[:, keep].copy(), w=local.w[:, keep].copy()),
        Shared(shared.dictionary[keep], select(shared.gamma_d), select(shared.gamma_w)),
    )
