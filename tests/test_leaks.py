"""Leaks of labels: where a code may use its digit's label, a classifier finds that label again."""

import numpy as np
import pytest

from gdd_book import experiments


@pytest.mark.slow
def test_a_leak_looks_like_a_small_error():
    found = experiments.run("label-leaks").dataset.error
    honest, own, inside, residual, machine, seen = found.values
    assert own < honest / 4 and seen <= residual
    assert np.isfinite(inside) and 0 < honest < 90 and 0 < machine < 90


@pytest.mark.slow
def test_votes_of_chains():
    found = experiments.run("mnist-votes").dataset
    assert float(found.error[0]) == pytest.approx(float(found.each[0]), rel=1e-12)
    assert ((found.error > 0) & (found.error < 90)).all()
