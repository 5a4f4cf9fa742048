"""Layer-by-layer inference at test: every layer's maps from the pooled maps of the layer below, dictionaries held.

The paper's supplement compares this with one deconvolution by projected atoms. Each layer runs the image pass of its
pretraining; what goes up is the sample of highest likelihood, as in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, FEATURE, IMAGE
from gdd.base.checks import REMEDY, GddError, as_pixels, check_kind
from gdd.inference.features import unfold
from gdd.inference.interpolation import start_layer
from gdd.inference.joint_inference import Chain, check_shared
from gdd.model.convolution import synthesise
from gdd.model.state import JointShared, LayerData, LayerState, maps_of
from gdd.sampler.pretrain import Fitted, Pretrained, check_fits
from gdd.sampler.random import TEST, Key
from gdd.sampler.sweep import image_pass

#: what a chain of a layer leaves
KINDS = ("ml_sample", "mean")


def infer_layers(
    fitted: Pretrained, images: np.ndarray | xr.DataArray, burn_in: int, collect: int, seed: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[xr.Dataset, ...]:  # fmt: skip
    """Infer the maps of every layer from the bottom up, dictionaries and precisions held at those of training.

    Parameters
    ----------
    fitted : pretrained model of probabilistic pooling; `with_dictionaries` gives it others
    images : (image, plane, row, col)      labels of a DataArray along ``image`` are kept
    burn_in, collect : sweeps of each layer
    seed : of every random number
    progress : called with a number of image-sweeps after each sweep

    Returns
    -------
    tuple of Dataset, bottom layer first
        ``ml_sample`` and ``mean`` (image, atom, block_row, block_col): weights of the blocks in the collected sample of
        highest log-likelihood, per image, and their average over the collected sweeps; 0 where a block is empty.
        ``residual`` (image,): root mean square of what the former leaves.

    Raises
    ------
    GddError
        Bad images, images of another size than the model's, another pooling, no collected sweep.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and supplement, "Layer by Layer Classification Results".
    Departs: a noise precision that training learned for each image starts at its mean and is drawn.
    Checked: tests/test_layerwise.py.
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    check_kind("fitted", fitted, Pretrained)
    pixels = as_pixels(images)
    check_fits(pixels, fitted.model)
    burn_in, collect, seed, _ = Chain(burn_in, collect, seed).check()
    if any(layer.spec.pooling != "probabilistic" for layer in fitted.layers):
        raise GddError("fitted: a layer with max or average pooling; probabilistic pooling is needed")
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    data, found = LayerData(pixels), []
    for number, layer in enumerate(fitted.layers):
        codes = _infer_layer(layer, data, number, burn_in, collect, seed, progress)
        dims = {name: (IMAGE,) if name == "residual" else BLOCKS for name in codes._fields}
        settings = {"burn_in": burn_in, "collect": collect, "seed": seed}
        found.append(xr.Dataset({n: (dims[n], v) for n, v in codes._asdict().items()}, along, settings))
        data = LayerData(codes.ml_sample)
    return tuple(found)


def with_dictionaries(fitted: Pretrained, shared: JointShared) -> Pretrained:
    """Return a pretrained model with the dictionaries of a joint one; every layer keeps its own precisions."""
    check_shared(shared, fitted.model)
    layers = []
    for layer, atoms in zip(fitted.layers, shared.dictionaries, strict=True):
        state = LayerState(layer.state.local, layer.state.shared._replace(dictionary=atoms))
        layers.append(layer._replace(state=state))
    return fitted._replace(layers=tuple(layers))


def stack_features(parts: Sequence[xr.DataArray], training: Sequence[xr.DataArray] | None = None) -> xr.DataArray:
    """Features of several layers side by side, (image, feature), each layer over its root mean square in training.

    Parameters
    ----------
    parts : (image, ...) each, of the same images
    training : the same layers' features of training images; if not given, ``parts`` are those

    Raises
    ------
    GddError
        No parts, parts of different images, or another number of training parts.
    """
    flat, scales = _flat(parts, "parts"), _flat(parts if training is None else training, "training")
    if len(flat) != len(scales):
        raise GddError(f"training: {len(scales)} parts given for {len(flat)}; as many are needed")
    sizes = [max(float(np.sqrt((part.astype(float) ** 2).mean())), 1e-12) for part in scales]
    return xr.concat([part / size for part, size in zip(flat, sizes, strict=True)], FEATURE)


def _flat(parts: Sequence[xr.DataArray], argument: str) -> list[xr.DataArray]:
    check_kind(argument, parts, (tuple, list))
    flat = [unfold(part) for part in parts]
    if len({len(part) for part in flat}) != 1:
        counts = [len(part) for part in flat]
        raise GddError(f"{argument}: {counts} images given; one or more parts, of the same images")
    return flat


class _Codes(NamedTuple):
    ml_sample: np.ndarray
    mean: np.ndarray
    residual: np.ndarray


def _infer_layer(
    layer: Fitted, data: LayerData, number: int, burn_in: int, collect: int, seed: int, progress
) -> _Codes:
    """One layer's chain from empty maps; random numbers are named by the layer's number from 1."""
    state = start_layer(layer, len(data.images), data.images.dtype)
    best, mean = np.zeros_like(state.local.w), np.zeros(state.local.w.shape)
    highest, left = np.full(len(best), -np.inf), np.zeros(len(best))
    for sweep in range(burn_in + collect):
        local, _ = image_pass(state, data, layer.spec, layer.shape, Key(seed, TEST, number + 1, sweep))
        state = state._replace(local=local)
        if progress is not None:
            progress(len(best))
        if sweep < burn_in:
            continue
        mean += local.w / collect
        likelihood, residual = _likelihood(state, layer, data)
        if not np.isfinite(likelihood).all():
            n = int(np.isfinite(likelihood).argmin())
            raise GddError(f"images: the chain of image {n} in layer {number + 1} left the range of numbers; {REMEDY}")
        better = likelihood > highest
        best[better], highest[better], left[better] = local.w[better], likelihood[better], residual[better]
    return _Codes(best, mean.astype(best.dtype), left)


def _likelihood(state: LayerState, layer: Fitted, data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood of each image up to a constant, and the root mean square of its residual: both (image,)."""
    drawn = synthesise(state.shared.dictionary.astype(data.images.dtype), maps_of(state.local, layer.shape))
    energy = ((data.images - drawn) ** 2).sum(axis=(1, 2, 3), dtype=float)
    gamma_e = np.broadcast_to(state.local.gamma_e[:, 0], len(energy))
    pixels = data.images[0].size
    return 0.5 * (pixels * np.log(gamma_e) - gamma_e * energy), np.sqrt(energy / pixels)
