"""Images drawn from a joint model: its prior, and what is borrowed from fitted images."""

import numpy as np
import pytest
from scipy import stats

from gdd.inference.generation import positions_of_one_image, resample_top
from gdd.model.joint import draw_joint_local, draw_joint_state
from gdd.model.spec import LayerSpec, ModelSpec, Precision, RefinementSpec
from gdd.model.state import EMPTY

FIXED = Precision(fixed=1.0)
MODEL = ModelSpec(
    (LayerSpec(3, (3, 3), (2, 2), gamma_d=FIXED), LayerSpec(4, (2, 2), gamma_d=FIXED, gamma_w=Precision(fixed=4.0))),
    (8, 8),
)
REFINEMENT = RefinementSpec()
NUMBER = 4000


@pytest.fixture(scope="module")
def fitted():
    return draw_joint_state(7, MODEL, REFINEMENT, np.random.default_rng(0))


@pytest.fixture(scope="module")
def prior(fitted):
    return draw_joint_local(NUMBER, MODEL, REFINEMENT, fitted.shared.gamma_w, np.random.default_rng(1))


def test_prior_has_the_moments_of_the_model(prior):
    on = prior.z != EMPTY
    assert on.mean() == pytest.approx(1 / 4, abs=4 * np.sqrt(3 / 16 / on.size))
    assert (prior.w[~on] == 0).all()
    assert stats.kstest(prior.w[on] * 2, "norm").pvalue > 1e-4  # gamma_w = 4
    assert (prior.positions[0] >= 0).all()
    assert prior.positions[0].shape == (NUMBER, 3, 3, 3)


def test_resampled_coefficients_are_on_as_often_as_in_the_fitted_images(prior, fitted):
    new = resample_top(prior, fitted.local, np.random.default_rng(2))
    share = (fitted.local.z != EMPTY).mean(axis=0)
    assert 0 < share.max() < 1
    np.testing.assert_allclose((new.z != EMPTY).mean(axis=0), share, atol=4 * 0.5 / np.sqrt(NUMBER))
    assert ((new.z != EMPTY) == (new.w != 0)).all()
    for place in np.ndindex(share.shape):
        here = (slice(None), *place)
        assert set(np.unique(new.w[here])) <= {0.0, *fitted.local.w[here]}
    assert new.positions is prior.positions


def test_positions_follow_one_fitted_image(prior, fitted):
    """Where all blocks of a fitted image agree, nearly all of a new image from its theta do, and images differ."""
    agreed = np.repeat([0, 3], [3, 4]).astype(np.int16)[:, None, None, None]
    local = fitted.local._replace(positions=(np.broadcast_to(agreed, (7, 3, 3, 3)),))
    new = positions_of_one_image(prior, local, MODEL, REFINEMENT, np.random.default_rng(3)).positions[0]
    # 9 blocks a map, all whole; the prior counts for one block more, 1/4 for each place
    expected = (9 + 1 / 4) / 10
    share = (new == 0).mean(axis=(1, 2, 3))
    either = np.maximum(share, (new == 3).mean(axis=(1, 2, 3)))
    assert abs(either.mean() - expected) < 0.02
    assert (share > 0.5).mean() == pytest.approx(3 / 7, abs=0.04)  # one donor for all maps of an image
    assert ((new >= 0) & (new < 4)).all()


def test_empty_blocks_are_drawn_where_the_model_has_them(fitted):
    empty = RefinementSpec(empty_blocks=True)
    local = draw_joint_local(200, MODEL, empty, fitted.shared.gamma_w, np.random.default_rng(1))
    assert (local.positions[0] == EMPTY).any()
    none = np.full((7, 3, 3, 3), EMPTY, np.int16)
    borrowed = fitted.local._replace(positions=(none,))
    new = positions_of_one_image(local, borrowed, MODEL, empty, np.random.default_rng(2)).positions[0]
    assert (new == EMPTY).mean() > 0.7
