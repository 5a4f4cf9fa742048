"""Missing pixels: masks, what counts as error, that hidden values play no part, one layer and several."""

import numpy as np
import pytest
import xarray as xr
from agreement import leftover

from gdd.inference.fixed_dictionary import joint_draws
from gdd.model.joint import draw_joint_data, draw_joint_state
from gdd.model.layer import draw_data, draw_state, reconstruction
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, RefinementSpec, layer_shape
from gdd.model.state import LayerData
from gdd.sampler.pretrain import Fitted
from gdd_book.evaluate.interpolation import hidden_error, interpolate_joint, interpolate_one_layer
from gdd_book.experiments.images import hide_at_random, hide_but_a_strip, hide_halves

FIXED = Precision(fixed=1.0)
MODEL = ModelSpec(
    (LayerSpec(2, (3, 3), (2, 2), gamma_d=FIXED, gamma_w=FIXED), LayerSpec(3, (2, 2), gamma_d=FIXED, gamma_w=FIXED)),
    (7, 7),
)
REFINEMENT = RefinementSpec(noise=Precision(fixed=4.0))


@pytest.fixture(scope="module")
def joint():
    generator = np.random.default_rng(2)
    state = draw_joint_state(5, MODEL, REFINEMENT, generator)
    images = draw_joint_data(state, MODEL, generator).images
    return state.shared, images, hide_at_random(images.shape, 3)


@pytest.fixture(scope="module")
def layer():
    """One layer, its noise precision held, and images drawn from it under its own dictionary."""
    spec = LayerSpec(3, (3, 3), (2, 2), gamma_e=FIXED, gamma_d=FIXED, gamma_w=Precision(fixed=0.5))
    shape = layer_shape(spec, (9, 9), 1)
    generator = np.random.default_rng(4)
    state = draw_state(250, spec, shape, generator)
    return Fitted(spec, shape, state, xr.Dataset()), draw_data(state, shape, generator).images


def test_masks_hide_half_of_every_image():
    mask, halves = hide_at_random((6, 3, 8, 7), 0), hide_halves((6, 1, 4, 4))
    assert (mask.sum(axis=(2, 3)) == 28).all() and (mask == mask[:, :1]).all() and (mask[0] != mask[1]).any()
    for image, hidden in enumerate((np.s_[:, :2], np.s_[:, 2:], np.s_[:2], np.s_[2:])):
        assert not halves[image, 0][hidden].any() and halves[image].sum() == 8
    assert (hide_at_random((6, 3, 8, 7), 0, 0.75).sum(axis=(2, 3)) == 14).all()
    strip = hide_but_a_strip((2, 1, 8, 12))
    assert strip[0, 0, :, 4:7].all() and strip[1, 0, 3:5].all() and strip.sum(axis=(1, 2, 3)).tolist() == [24, 24]


def test_error_is_of_hidden_pixels_alone():
    truth, mask = np.zeros((2, 1, 2, 2)), np.ones((2, 1, 2, 2), bool)
    mask[0, 0, 0] = False
    filled = np.array([[[[3.0, 1.0], [9.0, 9.0]]], [[[9.0, 9.0], [9.0, 9.0]]]])
    found = hidden_error(filled, truth, mask)
    assert found[0] == 5.0
    assert np.isnan(found[1])  # nothing hidden


def test_mean_is_that_of_the_chain(joint):
    shared, images, mask = joint
    found = interpolate_joint(images, mask, MODEL, shared, REFINEMENT, ChainSpec(2, 6, 1))
    every = [d.clean for d in joint_draws(LayerData(images, mask), MODEL, shared, REFINEMENT, ChainSpec(2, 6, 1))]
    assert len(every) == 6
    np.testing.assert_allclose(found, np.mean(every, axis=0), atol=1e-12)


def test_values_of_hidden_pixels_play_no_part(joint, layer):
    shared, images, mask = joint
    fitted, others = layer
    both = [np.where(mask, images, fill) for fill in (np.nan, 7.0)]
    one, other = (interpolate_joint(x, mask, MODEL, shared, REFINEMENT, ChainSpec(1, 2)) for x in both)
    np.testing.assert_array_equal(one, other)
    others, seen = others[:4], hide_halves((4, 1, 9, 9))
    both = [np.where(seen, others, fill) for fill in (np.nan, 7.0)]
    one, other = (interpolate_one_layer(x, seen, fitted, ChainSpec(1, 2)) for x in both)
    np.testing.assert_array_equal(one, other)


def leftover_of(fitted, images):
    mask = hide_at_random(images.shape, 0)
    means = (interpolate_one_layer(images, mask, fitted, ChainSpec(60, 120, seed)).values for seed in (1, 2))
    return leftover(reconstruction(fitted.state, fitted.shape), *means, mask)


def test_one_layer_fills_in_the_posterior_mean(layer):
    distance, size = leftover_of(*layer)
    assert size > 0.05  # something is filled in
    assert abs(distance) < 4


def test_a_wrong_noise_precision_of_the_layer_is_seen(layer):
    fitted, images = layer
    bold = fitted.state.local._replace(gamma_e=20 * fitted.state.local.gamma_e)
    wrong = fitted._replace(state=fitted.state._replace(local=bold))
    assert leftover_of(wrong, images)[0] < -8
