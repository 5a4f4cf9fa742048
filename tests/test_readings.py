"""Ways to read a digit's code: the cooled chain against all modes of a tiny posterior, detectors written out."""

from itertools import product

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGES
from gdd.model.spec import LayerSpec, ModelSpec
from gdd_book.dictionaries import placed_atoms
from gdd_book.experiments.studies.mnist_readings import Atoms, cooled

#: two atoms at 2 x 2 places
MODEL = ModelSpec((LayerSpec(2, (4, 4)),), (5, 5))
GAMMA_E, GAMMA_W = 3.0, 0.5
RNG = np.random.default_rng(2)
VALUES = RNG.standard_normal((2, 1, 4, 4)).astype(np.float32)
VALUES /= np.linalg.norm(VALUES.reshape(2, -1), axis=1)[:, None, None, None]
KEPT = Atoms(VALUES, MODEL, (GAMMA_E, GAMMA_W))


def density(image, placed, chosen):
    """Log posterior density at its highest point where just these coefficients are active, but for a constant."""
    some = placed[chosen]
    weights = np.linalg.solve(GAMMA_E * some @ some.T + GAMMA_W * np.eye(len(some)), GAMMA_E * some @ image)
    left = ((image - weights @ some) ** 2).sum()
    each = 0.0 + 0.5 * np.log(GAMMA_W / (2 * np.pi))  # the prior odds of two atoms are 1 / (2 - 1)
    return -0.5 * GAMMA_E * left + each * len(some) - 0.5 * GAMMA_W * (weights**2).sum(), weights


def test_the_cooled_chain_ends_at_the_highest_mode():
    images = RNG.standard_normal((40, 1, 5, 5)).astype(np.float32)
    labelled = xr.DataArray(images, dims=IMAGES, attrs={"split": "train"})
    codes, placed = cooled(KEPT, labelled, 0), placed_atoms(VALUES, (1, 1), KEPT.model.image_size)
    found = 0
    for image, code in zip(images.reshape(40, -1), codes.reshape(40, -1), strict=True):
        every = [np.flatnonzero(some) for some in product((0, 1), repeat=8)]
        best = max(every, key=lambda chosen: density(image, placed, chosen)[0])  # noqa: B023
        if set(best) == set(np.flatnonzero(code)):
            found += 1
            np.testing.assert_allclose(code[best], density(image, placed, best)[1], atol=0.4)
    assert found >= 30
