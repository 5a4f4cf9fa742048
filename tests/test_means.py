"""Conditional means of dictionaries are those of the Gaussians that the chains draw from."""

import numpy as np
import pytest

from gdd import ChainSpec, LayerSpec, ModelSpec, pretrain
from gdd.model.convolution import synthesise
from gdd.model.state import maps_of
from gdd_book.experiments.mnist_refinement import layer_mean, layers_with_means

MODEL = ModelSpec((LayerSpec(3, (3, 2), (2, 2)), LayerSpec(2, (2, 2))), (8, 7), planes=2)


@pytest.fixture(scope="module", params=[False, True])
def fitted(request):
    rng = np.random.default_rng(0)
    mask = rng.random((5, 2, 8, 7)) < 0.8 if request.param else None
    return pretrain(rng.normal(size=(5, 2, 8, 7)), MODEL, ChainSpec(2, 2, single_precision=False), mask)


def design(layer):
    """Every pixel of the dictionary, one at a time, as the images that it makes: (pixel, image, plane, row, col)."""
    shape, maps = layer.state.shared.dictionary.shape, maps_of(layer.state.local, layer.shape)
    return np.stack([synthesise(unit.reshape(shape), maps) for unit in np.eye(np.prod(shape))])


@pytest.mark.parametrize("number", [0, 1])
def test_mean_of_a_layer_is_that_of_the_dense_gaussian(fitted, number):
    layer, data = fitted.layers[number], fitted.inputs[number]
    pixels = design(layer)
    weights = layer.state.local.gamma_e[:, :, None, None] * (1.0 if data.mask is None else data.mask)
    shared = layer.state.shared
    prior = np.broadcast_to(shared.gamma_d[:, :, None, None], shared.dictionary.shape).ravel()
    flat = pixels.reshape(len(pixels), -1)
    weighted = (pixels * weights).reshape(len(pixels), -1)
    dense = np.linalg.solve(weighted @ flat.T + np.diag(prior), weighted @ data.images.ravel())
    mean = layer_mean(layer, data)
    np.testing.assert_allclose(mean.ravel(), dense, rtol=0, atol=1e-3 * np.abs(dense).max())


def test_only_the_dictionaries_are_replaced(fitted):
    means = layers_with_means(fitted)
    for before, after in zip(fitted.layers, means.layers, strict=True):
        assert (before.state.shared.dictionary != after.state.shared.dictionary).all()
        assert after.state.local is before.state.local and after.state.shared.gamma_d is before.state.shared.gamma_d
