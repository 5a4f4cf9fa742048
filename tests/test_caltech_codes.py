"""Readings of the codes of Caltech 101: scales of atoms, regions, energies."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

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


def test_what_codes():
    random = np.random.default_rng(1)
    images = xr.DataArray(
        random.normal(size=(6, 1, 9, 9)), {"label": ("image", ["a", "b"] * 3)}, ("image", "plane", "row", "col")
    )
    atoms = random.normal(size=(4, 1, 3, 3)) * np.arange(1, 5)[:, None, None, None]
    learned = SimpleNamespace(
        classes=[SimpleNamespace(stage=xr.DataArray(["pretrained"]))], both=[images], p={"seed": 0},
        together=lambda stage: (atoms, (3.0, 0.1)),
    )
    found = codes.atoms_of(learned)
    squared = {name: (one**2).sum(axis=(1, 2, 3)) for name, one in found.items()}
    for name in (codes.ONE_NORM, codes.WINDOWS):
        np.testing.assert_allclose(squared[name], squared["pretrained"].mean())
    same = (found[codes.ONE_NORM] * atoms).sum(axis=(1, 2, 3)) ** 2
    np.testing.assert_allclose(same, squared[codes.ONE_NORM] * squared["pretrained"])  # same directions


def test_cosines_of_codes():
    """Two classes, whose codes are alike but for a sign within a class, and have no place in common between them."""
    weights = np.zeros((4, 1, 1, 40))
    weights[:2, ..., :4], weights[2:, ..., 4:8] = 1.0, 1.0
    weights[1] *= -1
    signed, plain = codes.cosines(weights, np.array(["a", "a", "b", "b"]))
    assert list(signed[:2]) == [0, 0] and list(plain[:2]) == [1, 0]
    assert 0 <= plain[2] < 0.5


@pytest.mark.slow
def test_demo():
    found = experiments.run("caltech-codes").dataset
    assert found.right.dtype == bool and found.right.any() and (found.active > 0).all()
