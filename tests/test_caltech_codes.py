"""Readings of the codes of Caltech 101: scales of atoms, regions, energies."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from gdd.inference.deconvolution import deconvolve
from gdd_book import experiments
from gdd_book.experiments.studies import caltech_codes as codes


def test_largest_of_regions():
    maps = np.zeros((1, 2, 5, 5))
    maps[0, 1, 3, 4] = 2.0
    found = codes.largest_of_regions(maps).reshape(1, -1, 2)
    assert found.shape[1] == sum(level**2 for level in codes.LEVELS)
    assert not found[..., 0].any()
    assert list(np.flatnonzero(found[0, :, 1])) == [0, 4, 5 + 11]  # the whole, the last quarter, row 2 and column 3


def test_energy_of_atoms_that_do_not_overlap():
    random = np.random.default_rng(0)
    atoms, weights = random.normal(size=(4, 1, 3, 3)), random.normal(size=(2, 4, 2, 2))
    image = np.einsum("nkrc,kpab->nkprcab", weights, atoms)
    expected = (image**2).sum(axis=(2, 3, 4, 5, 6)).reshape(2, 2, 2).sum(axis=2)
    np.testing.assert_allclose(codes.energy_by_class(weights, atoms, 2), expected)


def test_own_precision_is_the_same_model():
    """Rescaled atoms of one class under the common precision draw the chain that these atoms draw under their own."""
    random = np.random.default_rng(1)
    atoms = random.normal(size=(4, 1, 3, 3)).astype(np.float32)
    found = [xr.Dataset({"atoms": (("stage", "atom", "plane", "row", "col"), one[None]), "gamma_w": ("stage", [own])},
                        {"stage": ["pretrained"]}) for one, own in ((atoms[:2], 1.0), (atoms[2:], 4.0))]
    learned = SimpleNamespace(classes=found, together=lambda stage: (atoms, (3.0, 2.5)))
    both, precision = codes.scaled(learned, "pretrained", codes.OWN_PRECISION)
    images, settings = random.normal(size=(3, 1, 9, 9)).astype(np.float32), {"burn_in": 3, "collect": 2, "gamma_e": 3.0}
    for part, own in ((slice(0, 2), 1.0), (slice(2, 4), 4.0)):
        ours = deconvolve(images, both[part], (2, 2), gamma_w=precision, **settings).ml_sample.values
        plain = deconvolve(images, atoms[part], (2, 2), gamma_w=own, **settings).ml_sample.values
        ratio = np.sqrt(precision / own)
        np.testing.assert_allclose(ours * ratio, plain, rtol=2e-3, atol=1e-5)
    one_norm, _ = codes.scaled(learned, "pretrained", codes.ONE_NORM)
    assert np.ptp((one_norm**2).sum(axis=(1, 2, 3))) < 1e-4


@pytest.mark.slow
def test_demo():
    found = experiments.run("caltech-codes").dataset
    assert found.right.dtype == bool and found.right.any() and (found.active > 0).all()
