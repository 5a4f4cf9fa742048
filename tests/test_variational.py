"""Codes by mean field: coefficients moved in turn and all together reach the same fixed point where there is one."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.axes import IMAGES
from gdd.inference.mean_field import mean_field
from gdd_book import experiments
from gdd_book.experiments.studies import variational


def test_in_turn_and_all_together_reach_the_same_fixed_point():
    generator = np.random.default_rng(1)
    atoms = generator.normal(size=(3, 1, 3, 3)).astype(np.float32)
    images = xr.DataArray(generator.normal(size=(4, 1, 5, 5)).astype(np.float32), dims=IMAGES)
    settings = {"gamma_e": 0.5, "gamma_w": 0.4}  # much noise: no coefficient is sure, and there is one fixed point
    together = mean_field(images, atoms, (2, 2), **settings, steps=2000)
    in_turn = variational.one_after_another(images, atoms, (2, 2), **settings)
    assert together.change.max() < 1e-4
    np.testing.assert_allclose(in_turn["mean"], together["mean"], atol=1e-4)
    np.testing.assert_allclose(in_turn.bound, together.bound, atol=1e-4)
    np.testing.assert_allclose(in_turn.active, together.inclusion.sum(("atom", "row", "col")), atol=1e-3)


@pytest.mark.slow
def test_on_the_embedded_digits():
    found = experiments.run("mean-field").dataset
    assert dict(found.error.sizes) == {"stage": 2, "places": 2, "steps": 2, "means": 2, "reading": 2}
    assert (found.bound.sel(steps=20) > found.bound.sel(steps=0)).all()
    assert (found.test_error < 90).all()  # ten classes, equally many of each
