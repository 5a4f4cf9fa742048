"""The learning curve is the experiment on the test error, once for every size and subset."""

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd_book import experiments, training
from gdd_book.experiments.common import repeated

CHAINS = {"data": "digits", "n_test": 30, "burn_in": 2, "collect": 1, "test_burn_in": 2, "test_collect": 2}


@pytest.fixture(scope="module")
def curve():
    changes = CHAINS | {"sizes": (60, 80), "trials": 2, "trials_above": 1}
    return experiments.run("mnist-curve", changes).dataset


def test_sizes_and_their_subsets():
    assert repeated((10, 20, 30), 3, 1) == [(10, 0), (10, 1), (10, 2), (20, 0), (30, 0)]
    assert repeated((10,), 1, 9) == [(10, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "trial"), [(60, 1), (80, 0)])
def test_each_subset_is_a_run_of_the_test_error(curve, size, trial):
    changes = CHAINS | {"n_train": size, "seed": trial, "codes": ("ml_sample", "mean")}
    one = experiments.run("mnist-error", changes).dataset
    same = curve.sel(size=size, trial=trial)
    assert same.feature_kind.values.tolist() == one.feature_kind.values.tolist()
    np.testing.assert_array_equal(same.error, one.error)


@pytest.mark.parametrize("size", [40, 3000])
def test_a_size_that_cannot_be_had_is_refused_before_any_chain(size, monkeypatch):
    monkeypatch.setattr(training, "pretrained_model", None)
    with pytest.raises(GddError):
        experiments.run("mnist-curve", CHAINS | {"sizes": (60, size)})
