"""The learning curve is the experiment on the test error, once for every size and subset."""

import pytest

from gdd.base.checks import GddError
from gdd_book import experiments
from gdd_book.experiments import mnist
from gdd_book.experiments.path import repeated

CHAINS = {"data": "digits", "n_test": 30, "burn_in": 2, "collect": 1, "test_burn_in": 2, "test_collect": 2}


def test_sizes_and_their_subsets():
    assert repeated((10, 20, 30), 3, 1) == [(10, 0), (10, 1), (10, 2), (20, 0), (30, 0)]
    assert repeated((10,), 1, 9) == [(10, 0)]


@pytest.mark.parametrize("size", [40, 3000])
def test_a_size_that_cannot_be_had_is_refused_before_any_chain(size, monkeypatch):
    monkeypatch.setattr(mnist, "pretrained_model", None)
    with pytest.raises(GddError):
        experiments.run("mnist-curve", CHAINS | {"sizes": (60, size)})
