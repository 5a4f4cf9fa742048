"""Images to codes in a few calls: labels, and codes that draw what the likelihood says."""

import numpy as np
import pytest

from gdd import ChainSpec, infer, pretrain, project
from gdd.base.checks import GddError
from gdd.model.spec import MNIST
from gdd.projection import render_projected
from gdd_book.data.datasets import load
from gdd_book.training import model_for


def test_codes_reconstruct_the_images_that_the_likelihood_says():
    digits = load("digits", n=30)
    fitted = pretrain(digits, model_for(100.0, 0.1), ChainSpec(3, 2, seed=5))
    atoms = project(fitted)
    codes = infer(fitted, atoms, digits, burn_in=10, collect=5)
    assert codes.ml_sample.shape == (30, 160, 2, 2)
    assert (codes.label == digits.label).all()
    picture = render_projected(atoms.values, codes.ml_sample.values, MNIST.stride, MNIST.image_size)
    square = ((digits.values - picture) ** 2).sum(axis=(1, 2, 3))
    expected = 0.5 * 784 * np.log(100.0 / (2 * np.pi)) - 50.0 * square
    np.testing.assert_allclose(codes.log_likelihood, expected, rtol=1e-3)
    for wrong in ({"burnin": 10}, {"gamma_e": 10.0}):
        with pytest.raises(GddError, match=f"{next(iter(wrong))}: not an option of infer; these are burn_in, collect"):
            infer(fitted, atoms, digits, **wrong)
