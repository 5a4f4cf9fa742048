"""Layer-by-layer inference: what goes up, that a chain is the passes of pretraining, and that codes explain images."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.inference.interpolation import start_layer
from gdd.inference.joint_inference import shared_of
from gdd.inference.layerwise import infer_layers, stack_features, with_dictionaries
from gdd.model.layer import log_likelihood, reconstruction
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision
from gdd.model.state import LayerData
from gdd.sampler.pretrain import pretrain
from gdd.sampler.random import TEST, Key
from gdd.sampler.sweep import image_pass

LAYERS = (LayerSpec(3, (3, 3), (2, 2)), LayerSpec(4, (2, 2), gamma_e=Precision()))
MODEL = ModelSpec(LAYERS, (9, 10))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 1, 9, 10))


@pytest.fixture(scope="module")
def fitted(images):
    return pretrain(images, MODEL, ChainSpec(6, 2, single_precision=False))


def test_chain_is_the_passes_of_pretraining_and_the_best_sample_goes_up(fitted, images):
    found = infer_layers(fitted, images, 2, 4, 5)
    data = LayerData(images)
    for number, (layer, codes) in enumerate(zip(fitted.layers, found, strict=True), 1):
        state = start_layer(layer, len(images), np.float64)
        weights, likelihoods, left = [], [], []
        for sweep in range(6):
            local, _ = image_pass(state, data, layer.spec, layer.shape, Key(5, TEST, number, sweep))
            state = state._replace(local=local)
            weights.append(local.w)
            likelihoods.append(log_likelihood(state, data, layer.shape))
            left.append(((data.images - reconstruction(state, layer.shape)) ** 2).mean(axis=(1, 2, 3)) ** 0.5)
        best = np.argmax(likelihoods[2:], axis=0) + 2
        chosen = np.array([weights[b][n] for n, b in enumerate(best)])
        np.testing.assert_allclose(codes.ml_sample, chosen, atol=1e-12)
        np.testing.assert_allclose(codes["mean"], np.mean(weights[2:], axis=0), atol=1e-12)
        np.testing.assert_allclose(codes.residual, [left[b][n] for n, b in enumerate(best)], atol=1e-9)
        data = LayerData(chosen)
    assert (found[0].ml_sample != 0).any()


def test_codes_of_every_layer_have_its_axes(fitted, images):
    labelled = xr.DataArray(images, dims=("image", "plane", "row", "col"), coords={"label": ("image", range(6))})
    seen = []
    found = infer_layers(fitted, labelled, 1, 1, 0, seen.append)
    assert seen == [6] * 4
    for codes, shape in zip(found, MODEL.shapes(), strict=True):
        assert codes.ml_sample.dims == ("image", "atom", "block_row", "block_col")
        assert codes.ml_sample.shape == (6, shape.atoms, *shape.grid)
        assert codes.label.values.tolist() == list(range(6))


def test_layers_weigh_alike_in_the_stack(fitted, images):
    found = infer_layers(fitted, images, 1, 3, 0)
    stacked = stack_features([codes["mean"] for codes in found])
    sizes = [codes["mean"][0].size for codes in found]
    assert stacked.shape == (6, sum(sizes))
    first, second = stacked.values[:, : sizes[0]], stacked.values[:, sizes[0] :]
    np.testing.assert_allclose([(first**2).mean(), (second**2).mean()], 1)
    one = found[0]["mean"].values.reshape(6, -1)
    np.testing.assert_allclose(first, one / np.sqrt((one**2).mean()))


def test_a_test_image_is_scaled_as_in_training_whatever_the_other_test_images():
    train, test = np.full((4, 3), 2.0), np.array([[1.0, 1, 1], [9, 9, 9]])
    parts = [test, 10 * test]
    stacked = stack_features(parts, [train, 5 * train])
    np.testing.assert_allclose(stacked[0], [0.5] * 3 + [1.0] * 3)
    np.testing.assert_array_equal(stacked[:1], stack_features([part[:1] for part in parts], [train, 5 * train]))
    with pytest.raises(GddError, match="training: 1 parts given for 2"):
        stack_features(parts, [train])


def test_other_dictionaries_under_the_same_precisions(fitted, images):
    shared = shared_of(fitted)
    doubled = shared._replace(dictionaries=tuple(2 * part for part in shared.dictionaries))
    other = with_dictionaries(fitted, doubled)
    for before, after in zip(fitted.layers, other.layers, strict=True):
        np.testing.assert_array_equal(after.state.shared.dictionary, 2 * before.state.shared.dictionary)
        assert after.state.shared.gamma_w is before.state.shared.gamma_w
    one, two = (infer_layers(model, images, 1, 1, 0)[0].ml_sample for model in (fitted, other))
    assert not np.allclose(one, two)
    with pytest.raises(GddError, match="dictionary 1 of shape"):
        with_dictionaries(fitted, shared._replace(dictionaries=shared.dictionaries[::-1]))


def test_bad_input(fitted, images):
    with pytest.raises(GddError, match="axis 'col' has size 9"):
        infer_layers(fitted, images[..., :9], 1, 1, 0)
    with pytest.raises(GddError, match="collect"):
        infer_layers(fitted, images, 1, 0, 0)
    averaged = ModelSpec((LayerSpec(3, (3, 3), (2, 2), pooling="average"), LAYERS[1]), (9, 10))
    with pytest.raises(GddError, match="probabilistic"):
        infer_layers(pretrain(images, averaged, ChainSpec(1, 1)), images, 1, 1, 0)
