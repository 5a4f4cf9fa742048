"""Bottom-up pretraining: one layer at a time, each on the pooled activations of the layer below."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGES
from gdd.base.checks import GddError, as_pixels, as_plain, check_kind, check_memory, shown
from gdd.model.pooling import average_pool, max_pool
from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, ModelSpec, layer_shape
from gdd.model.state import LayerData, LayerState, maps_of
from gdd.sampler.chain import Fitted, run_chain


class Pretrained(NamedTuple):
    """A model after pretraining, bottom layer first."""

    model: ModelSpec  # as pruned
    layers: tuple[Fitted, ...]
    inputs: tuple[LayerData, ...]  # what each layer explains


def pretrain(
    images: np.ndarray | xr.DataArray, model: ModelSpec, chain: ChainSpec | None = None,
    mask: np.ndarray | None = None, folder: Path | None = None, progress=None,
) -> Pretrained:  # fmt: skip
    """Learn every layer of a model from the bottom up.

    Parameters
    ----------
    images : (image, plane, row, col)
    model : sizes and priors of the layers
    chain : lengths, seed and moves of every layer's chain; the paper's by default
    mask : (image, plane, row, col) of bool, True = observed; None: all observed
    folder : of checkpoints; a run that finds its own there goes on from them
    progress : ``gdd_book.progress.Bar`` over layers x sweeps, optional

    Returns
    -------
    Pretrained

    Raises
    ------
    GddError
        Bad images or mask, images of another size than the model's, a checkpoint of another run.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2 and 3.
    *Departs:* theta integrated out; exact conditionals (P2-P6).
    *Checked:* tests/test_pretrain.py.
    """
    chain = chain or ChainSpec()
    data = taken(images, model, chain, mask, folder)
    fitted, inputs, layers = [], [], []
    for number, spec in enumerate(model.layers):
        shape = layer_shape(spec, data.images.shape[2:], data.images.shape[1], name=f"layer {number + 1}")
        fitted.append(run_chain(data, spec, shape, chain, number, folder, progress))
        inputs.append(data)
        layers.append(fitted[-1].spec)
        data = LayerData(pool_up(fitted[-1].state, fitted[-1].spec, fitted[-1].shape))
    return Pretrained(replace(model, layers=tuple(layers)), tuple(fitted), tuple(inputs))


def taken(
    images: np.ndarray | xr.DataArray, model: ModelSpec, chain: ChainSpec, mask: np.ndarray | None, folder: Path | None
) -> LayerData:
    """Take what a chain learns from, after every check that can be made before work."""
    check_kind("chain", chain, ChainSpec)
    check_kind("folder", folder, (str, Path, type(None)))
    if "\0" in str(folder):
        raise GddError(f"folder: {shown(str(folder))} given; a name without null characters is needed")
    mask = None if mask is None else as_plain(mask, IMAGES, "mask").copy(order="C")
    pixels = as_pixels(images, "images", mask, dtype=np.float32 if chain.single_precision else np.float64)
    check_fits(pixels, model)
    return LayerData(pixels, mask)


def check_fits(images: np.ndarray, model: ModelSpec) -> None:
    """Refuse images whose planes or sizes are not the model's, and a model too large for this machine."""
    check_kind("model", model, ModelSpec)
    for axis, given, wanted in zip(IMAGES[1:], images.shape[1:], (model.planes, *model.image_size), strict=True):
        if given != wanted:
            raise GddError(f"images: axis '{axis}' has size {given}, the model is for size {wanted}")
    for number, shape in enumerate(model.shapes(), 1):
        maps = len(images) * shape.atoms * prod(shape.map_size)
        pairs = shape.atoms**2 * prod(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
        check_memory(f"atoms of layer {number}", max(maps, pairs, prod(shape.dictionary)))


def pool_up(state: LayerState, spec: LayerSpec, shape: LayerShape) -> np.ndarray:
    """Input of the next layer, (image, atom, block_row, block_col).

    Probabilistic pooling: the weight of each block's active position, 0 if it has none. Max and average pooling: of the
    maps, for the paper's comparison.
    """
    if spec.pooling == "probabilistic":
        return state.local.w
    pool = {"max": max_pool, "average": average_pool}[spec.pooling]
    return pool(maps_of(state.local, shape), spec.pool)
