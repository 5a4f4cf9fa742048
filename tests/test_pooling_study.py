"""Errors after each pooling: which features are classified, and that a chain belongs to its pooling."""

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.experiments.mnist import KINDS
from gdd_book.experiments.studies import pooling
from gdd_book.progress import Run

SMALL = {"n_train": 60, "n_test": 30, "burn_in": 3, "collect": 2, "test_burn_in": 3, "test_collect": 2}


@pytest.mark.slow
def test_every_pooling_has_an_error_for_every_feature_and_a_model_of_its_own(tmp_path):
    found = experiments.run("mnist-pooling", SMALL | {"poolings": ("probabilistic", "max")}, within=Run(tmp_path))
    error = found.dataset.error
    assert error.dims == ("pooling", "feature", "feature_kind")
    assert error.feature.values.tolist() == list(pooling.FEATURES) and error.feature_kind.values.tolist() == list(KINDS)
    assert ((error >= 0) & (error <= 100)).all() and not np.array_equal(error[0], error[1])
    bottoms = {name: one.trained.model.layers[0].pooling for name, one in found.learned.items()}
    assert bottoms == {"mnist-probabilistic-pretrained": "probabilistic", "mnist-max-pretrained": "max"}
    # with another precision of the planes it is another chain, in a folder of its own
    experiments.run("mnist-pooling", SMALL | {"poolings": ("max",), "learned_planes": False}, within=Run(tmp_path))
