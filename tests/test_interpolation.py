"""Missing pixels: masks, what counts as error, that hidden values play no part, one layer and several."""

import numpy as np
import pytest
import xarray as xr
from agreement import leftover
from tiny import draw_from, with_local
from tiny_joint import HELD, draw_joint_from

from gdd.inference.fixed_dictionary import joint_draws
from gdd.model.layer import reconstruction
from gdd.model.spec import ChainSpec, LayerSpec, Precision, RefinementSpec
from gdd.model.state import LayerData
from gdd.sampler.pretrain import Fitted
from gdd_book.evaluate.interpolation import hidden_error, interpolate_joint, interpolate_one_layer
from gdd_book.experiments.images import hide_at_random, hide_but_a_strip, hide_halves

FIXED = Precision(fixed=1.0)
REFINEMENT = RefinementSpec(noise=Precision(fixed=4.0))


@pytest.fixture(scope="module")
def joint():
    state, data, *_ = draw_joint_from(HELD, REFINEMENT, 5, 2)
    return state.shared, data.images, hide_at_random(data.images.shape, 3)


@pytest.fixture(scope="module")
def layer():
    """One layer, its noise precision held, and images drawn from it under its own dictionary."""
    spec = LayerSpec(3, (3, 3), (2, 2), gamma_e=FIXED, gamma_d=FIXED, gamma_w=Precision(fixed=0.5))
    state, data, _, shape = draw_from(spec, (9, 9), images=250, seed=4)
    return Fitted(spec, shape, state, xr.Dataset()), data.images


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
    found = interpolate_joint(images, mask, HELD, shared, REFINEMENT, ChainSpec(2, 6, 1))
    every = [d.clean for d in joint_draws(LayerData(images, mask), HELD, shared, REFINEMENT, ChainSpec(2, 6, 1))]
    assert len(every) == 6
    np.testing.assert_allclose(found, np.mean(every, axis=0), atol=1e-12)


def test_values_of_hidden_pixels_play_no_part(joint, layer):
    (shared, images, mask), (fitted, others), seen = joint, layer, hide_halves((4, 1, 9, 9))
    both, chain = [np.where(mask, images, fill) for fill in (np.nan, 7.0)], ChainSpec(1, 2)
    np.testing.assert_array_equal(*(interpolate_joint(x, mask, HELD, shared, REFINEMENT, chain) for x in both))
    both = [np.where(seen, others[:4], fill) for fill in (np.nan, 7.0)]
    np.testing.assert_array_equal(*(interpolate_one_layer(x, seen, fitted, chain) for x in both))


def leftover_of(fitted, images):
    mask = hide_at_random(images.shape, 0)
    means = (interpolate_one_layer(images, mask, fitted, ChainSpec(60, 120, seed)).values for seed in (1, 2))
    return leftover(reconstruction(fitted.state, fitted.shape), *means, mask)


def test_one_layer_fills_in_the_posterior_mean(layer):
    """A wrong noise precision would be seen."""
    (fitted, images), (distance, size) = layer, leftover_of(*layer)
    assert size > 0.05  # something is filled in
    assert abs(distance) < 4
    bold = with_local(fitted.state, gamma_e=20 * fitted.state.local.gamma_e)
    assert leftover_of(fitted._replace(state=bold), images)[0] < -8
