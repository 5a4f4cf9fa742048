"""Images to features in a few calls: shapes, labels, and what must agree between the parts."""

from dataclasses import replace

import numpy as np
import pytest

from gdd import ChainSpec, LayerSpec, ModelSpec, infer, pretrain, project
from gdd.base.checks import GddError
from gdd.model.spec import MNIST
from gdd.projection import project_layers, render_projected
from gdd_book.data.datasets import load
from gdd_book.training import model_for

CHAIN = ChainSpec(3, 2, seed=5)
SMALL = ModelSpec((LayerSpec(6, (8, 8), (3, 3)), LayerSpec(5, (4, 4), (2, 2)), LayerSpec(4, (2, 2))), (28, 28))


@pytest.fixture(scope="module")
def digits():
    return load("digits", n=30)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_projected_atoms_have_the_size_that_the_spec_derives(digits, layers):
    lower = tuple(replace(spec, pool=None) if i == layers - 1 else spec for i, spec in enumerate(SMALL.layers[:layers]))
    model = replace(SMALL, layers=lower)
    fitted = pretrain(digits, model, CHAIN)
    atoms = project(fitted)
    assert atoms.dims == ("atom", "plane", "atom_row", "atom_col")
    assert atoms.shape == (model.layers[-1].atoms, 1, *model.projected_size)
    assert len(atoms.attrs["winning_share"]) == layers - 1
    every = project_layers(fitted)
    assert [len(part) for part in every] == [layer.atoms for layer in model.layers]
    np.testing.assert_array_equal(every[0], fitted.layers[0].state.shared.dictionary)
    np.testing.assert_array_equal(every[-1], atoms)


def test_codes_reconstruct_the_images_that_the_likelihood_says(digits):
    fitted = pretrain(digits, model_for(100.0, 0.1), CHAIN)
    atoms = project(fitted)
    codes = infer(fitted, atoms, digits, burn_in=10, collect=5)
    assert codes.ml_sample.shape == (30, 160, 2, 2)
    assert (codes.label == digits.label).all()
    picture = render_projected(atoms.values, codes.ml_sample.values, MNIST.stride, MNIST.image_size)
    square = ((digits.values - picture) ** 2).sum(axis=(1, 2, 3))
    expected = 0.5 * 784 * np.log(100.0 / (2 * np.pi)) - 50.0 * square
    np.testing.assert_allclose(codes.log_likelihood, expected, rtol=1e-3)


def test_a_misspelt_option_of_infer_is_named(digits):
    fitted = pretrain(digits, ModelSpec((LayerSpec(4, (8, 8)),), (28, 28)), CHAIN)
    with pytest.raises(GddError, match="burnin: not an option of infer; these are mask, burn_in, collect"):
        infer(fitted, project(fitted), digits, burnin=10)
    with pytest.raises(GddError, match="gamma_e: not an option"):
        infer(fitted, project(fitted), digits, gamma_e=10.0)
