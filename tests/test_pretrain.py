"""Pretraining layer on layer: shapes, what is passed up, settings of the paper's comparison, bad input."""

from dataclasses import replace

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning
from gdd.sampler.pretrain import pretrain

CHAIN = ChainSpec(burn_in=3, collect=2, seed=1)
LAYERS = (LayerSpec(3, (3, 3), (2, 2)), LayerSpec(4, (2, 1), (2, 2)), LayerSpec(5, (1, 2)))


def model(depth, planes=1, **first):
    """Of 1, 2 or 3 layers on 11x12 images: maps 9x10, 4x5 and 2x2, the first two pooled unless on top."""
    layers = [*LAYERS[: depth - 1], replace(LAYERS[depth - 1], pool=None)]
    layers[0] = replace(layers[0], **first)
    return ModelSpec(tuple(layers), (11, 12), planes)


@pytest.fixture
def images():
    return np.random.default_rng(0).random((5, 1, 11, 12))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_shapes_at_every_layer(images, depth):
    spec = model(depth)
    found = pretrain(images, spec, CHAIN)
    assert len(found.layers) == len(found.inputs) == depth
    for fitted, shape, data in zip(found.layers, spec.shapes(), found.inputs, strict=True):
        assert data.images.shape == (5, shape.planes, *shape.input_size)
        assert fitted.state.shared.dictionary.shape == shape.dictionary
        assert fitted.state.local.z.shape == (5, shape.atoms, *shape.grid)
        assert fitted.shape == replace(shape, stride=fitted.shape.stride)
        assert data.images.dtype == np.float32
    assert found.model == spec
    for below, above in zip(found.layers, found.inputs[1:], strict=False):
        np.testing.assert_array_equal(above.images, below.state.local.w)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_precision_of_weights_of_which_none_is_on_stays_above_zero(seed):
    """A flat prior alone is left of it, whose draws are 0 in double precision but for one in a thousand."""
    spec = ModelSpec((LAYERS[0], LayerSpec(4, (5, 5))), (11, 12)).with_fixed_precisions()
    noise = np.random.default_rng(seed).standard_normal((1, 1, 11, 12)) / 2
    traces = pretrain(noise, spec, replace(CHAIN, seed=seed, burn_in=10)).layers[1].traces
    assert (traces.active == 0).any() and (traces.gamma_w > 0).all()
    assert np.isfinite(traces.log_joint).all()


def test_pruned_atoms_leave_the_model(images):
    chain = replace(CHAIN, burn_in=8, pruning=Pruning(2, 1, 0.999))
    found = pretrain(images, model(2), chain)
    assert found.model.layers[0].atoms < 3
    assert found.inputs[1].images.shape[1] == found.model.layers[0].atoms
    assert found.layers[1].state.shared.dictionary.shape[1] == found.model.layers[0].atoms


def test_a_mask_is_used_in_the_first_layer(images):
    mask = np.random.default_rng(1).random(images.shape) < 0.8
    hidden = np.where(mask, images, np.nan)
    found = pretrain(hidden, model(2), CHAIN, mask=mask)
    assert np.isfinite(found.layers[0].state.shared.dictionary).all()
    assert found.inputs[1].mask is None


@pytest.mark.parametrize(("change", "message"), [
    (lambda x: x[:, 0], "axes"),
    (lambda x: x[:, :, :10], "axis 'row' has size 10, the model is for size 11"),
    (lambda x: np.where(x > 0.5, np.nan, x), "pixel .* is nan"),
    (lambda x: np.zeros_like(x), "image 0 is constant"),
    (lambda x: x[:0], "axis 'image' has size 0"),
    (lambda x: (255 * x).astype(np.uint8), "floating point is needed"),
])
def test_bad_images(images, change, message):
    with pytest.raises(GddError, match=message):
        pretrain(change(images), model(1), CHAIN)


def test_bad_mask(images):
    mask = np.ones(images.shape, bool)
    mask[2] = False
    with pytest.raises(GddError, match="image 2 is hidden whole"):
        pretrain(images, model(1), CHAIN, mask=mask)
    with pytest.raises(GddError, match="mask"):
        pretrain(images, model(1), CHAIN, mask=mask[:3])


def test_held_precisions_belong_to_a_scale_of_the_pixels(images):
    """Pixels times two, precisions of noise and weights over four: the same model in another unit, powers of two exact.

    It is why precisions found at one scale, such as those of contrast normalised pictures, hold at another. Layer 2 is
    held too, as a learned precision has a prior with a unit.
    """
    def layers(unit):
        precisions, held = (64.0 / unit**2, 0.5 / unit**2, 0.5 / unit**2), 16.0 / unit**2
        one, two = model(2).with_fixed_precisions(*precisions).layers
        return replace(model(2), layers=(one, replace(two, gamma_e=Precision(fixed=held))))

    chain = ChainSpec(4, 3)
    once, twice = (pretrain(images * unit, layers(unit), chain).layers for unit in (1, 2))
    for one, two in zip(once, twice, strict=True):
        np.testing.assert_array_equal(one.state.local.z, two.state.local.z)
        np.testing.assert_allclose(2 * one.state.local.w, two.state.local.w, rtol=1e-5)
        np.testing.assert_allclose(one.state.shared.dictionary, two.state.shared.dictionary, rtol=1e-6)


def test_pixels_of_255_under_a_held_noise_precision_are_warned_of(images):
    held = model(1, gamma_e=Precision(fixed=100.0))
    with pytest.warns(UserWarning, match="held at 100; divide pixels of 0 .. 255 by 255") as caught:
        pretrain(255 * images, held, CHAIN)
    assert caught[0].filename == __file__
