"""Atoms by class: the sizes, the energies, and that labels without meaning give nothing away."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.axes import IMAGES, LABEL
from gdd.model.convolution import synthesise
from gdd_book.data import datasets
from gdd_book.experiments.studies.class_wise import class_energies, class_model
from gdd_book.training import HEALTHY_DIGITS

P = {
    "data": "digits", "n_train": 300, "seed": 0, "burn_in": 20, "collect": 5, "refine_burn_in": 4, "refine_collect": 1,
    "dictionary_every": 2, **HEALTHY_DIGITS,
}
PRECISIONS, CHAIN = (100.0, 1.0), {"test_burn_in": 10, "test_collect": 5, "seed": 0}


@pytest.fixture(scope="module")
def digits():
    return [datasets.load("digits", split, n=300, seed=0) for split in ("train", "test")]


def test_all_classes_together_have_the_atoms_of_one_model():
    assert class_model(P, 10).layers[-1].atoms == 16
    assert class_model(P, 10).layers[0] == class_model(P, 1).layers[0]


def test_energies_are_those_of_the_residual():
    """Two classes of two atoms each; an image made of the second's is explained by those alone."""
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(2, 2, 1, 6, 6)).astype(np.float32)
    weights = np.array([[[[0.0]], [[1.5]]]])
    image = xr.DataArray(synthesise(atoms[1], weights).astype(np.float32), dims=IMAGES, attrs={"split": "test"})
    named = xr.DataArray(atoms, {LABEL: [3, 8]}, (LABEL, "atom", "plane", "atom_row", "atom_col"))
    found = class_energies(image, named, (1, 1), PRECISIONS, CHAIN)
    constant = image[0].size * np.log(PRECISIONS[0] / (2 * np.pi))
    assert found.shape == (1, 2) and found.argmin() == 1
    assert found[0, 1] + constant < 5.0 < 100.0 < found[0, 0] + constant
