"""Chains with fixed dictionaries: all layers at once under the joint model, or one layer at a time.

A chain is a sequence of image passes from empty maps. Its collected sweeps give codes, or missing pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, IMAGE, MAPS
from gdd.base.checks import as_pixels, check_kind, check_precision
from gdd.inference.deconvolution import along_images, refuse_overflow
from gdd.model.convolution import synthesise
from gdd.model.distributions import LOG_TWO_PI
from gdd.model.joint import layer_values
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, LayerState, Local, Shard, maps_of
from gdd.reference.random import TEST, Key, shared_generator
from gdd.sampler.arrays import allocate_buffers
from gdd.sampler.joint_sweep import local_pass
from gdd.sampler.pretrain import Fitted, Pretrained, check_fits
from gdd.sampler.refine import initial_positions
from gdd.sampler.sweep import image_pass

Progress = Callable[[int], None] | None


class Draw(NamedTuple):
    """One collected sweep."""

    local: Local | JointLocal
    clean: np.ndarray  # (image, plane, row, col): the images without noise
    log_likelihood: np.ndarray  # (image,): of the observed pixels


def infer_jointly(
    images: np.ndarray | xr.DataArray, model: ModelSpec, shared: JointShared, refinement: RefinementSpec,
    chain: ChainSpec, gamma_e: float | None = None, progress: Progress = None,
) -> xr.Dataset:
    """Top maps of images under the joint model with fixed dictionaries: the joint inference codes.

    images : (image, plane, row, col)      labels of a DataArray along ``image`` are kept
    model, shared, refinement : of a refined model; `shared_of` gives the shared part of a pretrained one
    chain : lengths and seed; its other fields are ignored
    gamma_e : noise precision; None: the fixed one of the refinement
    progress : called with a number of image-sweeps after each sweep

    Returns ``ml_sample`` (image, atom, row, col), the collected sample of highest log-likelihood, per image; ``mean``
    of the weights over the collected sweeps; ``log_likelihood`` (image,) of ``ml_sample``.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.3, with the dictionaries known. *Departs:* at test time the paper infers in
    one layer, with projected atoms. *Checked:* tests/test_fixed_dictionary.py.
    """
    data = LayerData(as_pixels(images, constant=True))
    check_fits(data.images, model)
    return _codes(joint_draws(data, model, shared, refinement, chain, gamma_e, progress), MAPS, images, chain)


def infer_layers(
    fitted: Pretrained, images: np.ndarray | xr.DataArray, burn_in: int, collect: int, seed: int,
    progress: Progress = None,
) -> tuple[xr.Dataset, ...]:
    """Maps of every layer from the bottom up, with dictionaries and precisions fixed at those of training.

    Each layer explains the sample of highest likelihood of the layer below, as in pretraining.

    images : (image, plane, row, col)      labels of a DataArray along ``image`` are kept
    burn_in, collect : sweeps of each layer
    progress : called with a number of image-sweeps after each sweep

    Returns a Dataset for every layer, as `infer_jointly`, axes (image, atom, block_row, block_col); 0 where a block is
    empty.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4 and supplement, "Layer by Layer Classification Results".
    *Departs:* a noise precision that training learned for each image starts at its mean and is drawn.
    *Checked:* tests/test_fixed_dictionary.py.
    """
    check_kind("fitted", fitted, Pretrained)
    chain, data, codes = ChainSpec(burn_in, collect, seed), LayerData(as_pixels(images)), []
    check_fits(data.images, fitted.model)
    for number, layer in enumerate(fitted.layers, 1):
        codes.append(_codes(layer_draws(data, layer, number, chain, progress), BLOCKS, images, chain))
        data = LayerData(codes[-1].ml_sample.values)
    return tuple(codes)


def shared_of(fitted: Pretrained) -> JointShared:
    """Dictionaries and precisions of a pretrained model as those of a joint model, from which refinement starts."""
    parts = [layer.state.shared for layer in fitted.layers]
    return JointShared(
        tuple(part.dictionary for part in parts), tuple(part.gamma_d for part in parts), parts[-1].gamma_w
    )


def _codes(draws: Iterable[Draw], dims, images: np.ndarray | xr.DataArray, chain: ChainSpec) -> xr.Dataset:
    """Weights of the draw of highest likelihood, per image, and their mean."""
    best, highest, mean = 0.0, -np.inf, np.zeros(())
    for draw in draws:
        better = draw.log_likelihood > highest
        best = np.where(better[:, None, None, None], draw.local.w, best)
        highest, mean = np.maximum(highest, draw.log_likelihood), mean + draw.local.w / chain.collect
    out = {"ml_sample": (dims, best), "mean": (dims, mean.astype(best.dtype)), "log_likelihood": (IMAGE, highest)}
    lengths = {"burn_in": chain.burn_in, "collect": chain.collect, "seed": chain.seed}
    return xr.Dataset(out, along_images(images), lengths)


# ---- the chains


def joint_draws(
    data: LayerData, model: ModelSpec, shared: JointShared, refinement: RefinementSpec, chain: ChainSpec,
    gamma_e: float | None = None, progress: Progress = None,
) -> Iterator[Draw]:
    """Collected sweeps of a chain of the joint model. Parameters as in `infer_jointly`."""
    gamma_e = check_precision("gamma_e", refinement.noise.fixed if gamma_e is None else gamma_e)
    local = start_joint(len(data.images), model, refinement, chain.seed, gamma_e, data.images.dtype)

    buffers = allocate_buffers(data, model)

    def update(local: JointLocal, number: int) -> JointLocal:
        key = Key(chain.seed, TEST, 0, number)
        return local_pass(JointState(local, shared), data, model, refinement, key, buffers)[0]

    def render(local: JointLocal) -> np.ndarray:
        return layer_values(local, shared.dictionaries, model.shapes())[0]

    return _draws(data, local, update, render, chain, progress)


def layer_draws(
    data: LayerData, layer: Fitted, number: int, chain: ChainSpec, progress: Progress = None
) -> Iterator[Draw]:
    """Collected sweeps of a chain of one layer; ``number``, from 1 for the bottom layer, names its random numbers."""
    initial, spec, shape = start_layer(layer, len(data.images), data.images.dtype), layer.spec, layer.shape
    atoms = initial.shared.dictionary.astype(data.images.dtype)

    def update(local: Local, step: int) -> Local:
        key = Key(chain.seed, TEST, number, step)
        return image_pass(LayerState(local, initial.shared), data, spec, shape, key).local

    def render(local: Local) -> np.ndarray:
        return synthesise(atoms, maps_of(local, shape))

    return _draws(data, initial.local, update, render, chain, progress)


def _draws(data: LayerData, local, update: Callable, render: Callable, chain: ChainSpec, progress: Progress):
    """Run ``local = update(local, sweep)`` and yield a `Draw` for every collected sweep."""
    observed = np.ones(data.images.shape, bool) if data.mask is None else data.mask
    pixels = observed.sum(axis=(1, 2, 3))
    for number in range(chain.sweeps):
        local = update(local, number)
        if progress is not None:
            progress(len(pixels))
        if number < chain.burn_in:
            continue
        clean = render(local)
        energy = (np.where(observed, data.images - clean, 0.0) ** 2).sum(axis=(1, 2, 3), dtype=float)
        log_likelihood = 0.5 * pixels * (np.log(local.gamma_e) - LOG_TWO_PI) - 0.5 * local.gamma_e * energy
        refuse_overflow(log_likelihood)
        yield Draw(local, clean, log_likelihood)


def start_layer(layer: Fitted, images: int, dtype=np.float32) -> LayerState:
    """Initial state of new images under a fitted layer: empty maps, and the mean noise precision of training."""
    entries = images if IMAGE in layer.spec.gamma_e.axes else 1
    gamma_e = np.repeat(layer.state.local.gamma_e.mean(axis=0, keepdims=True), entries, axis=0)
    z = np.full((images, layer.shape.atoms, *layer.shape.grid), EMPTY, np.int16)
    return LayerState(Local(z, np.zeros(z.shape, dtype), gamma_e), layer.state.shared)


def start_joint(
    images: int, model: ModelSpec, refinement: RefinementSpec, seed: int, gamma_e: float, dtype=np.float32
) -> JointLocal:
    """Initial local state: no active top coefficient, positions from their prior, noise precision ``gamma_e``."""
    generators, top = partial(shared_generator, seed, TEST, 0, 0), model.shapes()[-1]
    positions = initial_positions(images, Shard(), model, refinement, generators)
    z = np.full((images, top.atoms, *top.grid), EMPTY, np.int16)
    entries = images if IMAGE in refinement.noise.axes else 1
    return JointLocal(positions, z, np.zeros(z.shape, dtype), np.full(entries, gamma_e))
