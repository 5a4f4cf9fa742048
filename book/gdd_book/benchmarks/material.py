"""Digits and warmed-up chains on which costs are measured.

*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.data import datasets
from gdd.data.sources import inventory
from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, ModelSpec
from gdd.model.state import LayerData, LayerState
from gdd.sampler.pretrain import Fitted, Pretrained, initial_state, pool_up
from gdd.sampler.random import PRETRAIN
from gdd.sampler.sweep import Key, draw_shared_part, image_pass

#: precisions of the two layers that keep the chains healthy; see `gdd_book.training.training.model_for`
HEALTHY = (100.0, 0.1)


def all_digits(name: str) -> xr.DataArray:
    """Every training image of a data set; where that is not on this machine, the embedded digits, nothing fetched."""
    here = all(file.path is not None for file in inventory() if file.dataset == name)
    return datasets.load(name if here else "digits", "train")


def some(images: xr.DataArray, n: int, seed: int) -> xr.DataArray:
    """``n`` of these images in an order drawn with the seed, taken again from the first when they run out."""
    order = np.random.default_rng(seed).permutation(images.sizes["image"])
    return images.isel(image=order[np.arange(n) % len(order)])


def warm_up(images: np.ndarray, model: ModelSpec, sweeps: int, seed: int) -> Pretrained:
    """Run all layers until their numbers of active blocks are those of a chain that has left its start."""
    data, layers, inputs = LayerData(images), [], []
    for number, (spec, shape) in enumerate(zip(model.layers, model.shapes(), strict=True)):
        layers.append(warm_layer(data, spec, shape, sweeps, seed, number))
        inputs.append(data)
        data = LayerData(pool_up(layers[-1].state, spec, shape))
    return Pretrained(model, tuple(layers), tuple(inputs))


def warm_layer(data: LayerData, spec: LayerSpec, shape: LayerShape, sweeps: int, seed: int, number: int = 0) -> Fitted:
    """One layer of `warm_up`."""
    state = initial_state(data, spec, shape, ChainSpec(seed=seed), number)
    for sweep in range(sweeps):
        state = one_sweep(state, data, spec, shape, Key(seed, PRETRAIN, number, sweep))
    return Fitted(spec, shape, state, xr.Dataset())


def one_sweep(state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key) -> LayerState:
    """One sweep of a layer that sees all pixels, without the scale move."""
    local, sums = image_pass(state, data, spec, shape, key)
    return draw_shared_part(local, sums, state.shared, data, spec, shape, key, False)[0]


def on_images(layer: Fitted, images: np.ndarray, passes: int, seed: int) -> tuple[Fitted, LayerData]:
    """Return the layer on other images: its shared part kept, their own part from a few passes from empty maps."""
    data = LayerData(images)
    first = initial_state(data, layer.spec, layer.shape, ChainSpec(seed=seed), 0)
    state = first._replace(shared=layer.state.shared)
    for number in range(passes):
        local, _ = image_pass(state, data, layer.spec, layer.shape, Key(seed, PRETRAIN, 0, number))
        state = state._replace(local=local)
    return layer._replace(state=state), data


def first_images(layer: Fitted, data: LayerData, n: int) -> tuple[Fitted, LayerData]:
    """Layer and data of the first n images alone."""
    local = layer.state.local
    local = local._replace(z=local.z[:n], w=local.w[:n], gamma_e=local.gamma_e[:n])
    return layer._replace(state=layer.state._replace(local=local)), LayerData(data.images[:n])
