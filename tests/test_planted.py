"""The planted-data experiment: what it returns, that the truth stays found."""

import numpy as np
import pytest

from gdd.model.layer import log_likelihood, reconstruction
from gdd_book import experiments
from gdd_book.data import datasets
from gdd_book.experiments.studies import planted

SMALL = {"images": 60, "seeds": 2, "burn_in": 6, "collect": 2}


@pytest.fixture(scope="module")
def record():
    return experiments.run("planted", SMALL).dataset


def test_the_planted_state_leaves_only_the_noise():
    truth = datasets.planted(3, images=20)
    shape, state = planted.shape_of(truth), planted.planted_state(truth)
    left = truth.images.values - reconstruction(state, shape)
    assert abs(left.std() / truth.attrs["noise_sd"] - 1) < 5 / np.sqrt(2 * left.size)
    expected = (-0.5 * (left / 0.1) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi))).sum()
    np.testing.assert_allclose(log_likelihood(state, planted.data_of(truth), shape).sum(), expected, rtol=1e-5)


def test_a_chain_started_at_the_truth_stays_and_fits_better_than_a_short_random_one(record):
    assert (record.truth_recovered == 8).all()
    assert (record.truth_log_likelihood > record.log_likelihood.sel(setting=planted.NO_MOVES)).all()
