"""The experiment on generated digits: what is judged, and that the judge tells noise from digits."""

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.experiments import images

SMALL = {"data": "digits", "n_train": 50, "burn_in": 2, "collect": 1, "refine_burn_in": 1, "refine_collect": 1}


def run(experiment, **changes):
    """One experiment at its smallest: every shape is the paper's, every number is meaningless."""
    return experiments.run(experiment, SMALL | changes).dataset


@pytest.fixture(scope="module")
def generated():
    return run("mnist-generated", n_generated=40)


def test_every_source_is_judged_beside_real_digits(generated):
    assert generated.sizes["kind"] == 7
    assert generated.model.values.tolist() == ["pretrained"] * 3 + ["refined"] * 3 + ["real digits"]
    assert tuple(generated.source.values[:3]) == images.SOURCES
    real = generated.isel(kind=6)
    assert float(real.negative) == 0.0
    assert (generated.nearest > 0).all()
    assert ((generated.told_apart >= 0) & (generated.told_apart <= 100)).all()


def test_noise_is_told_from_digits_and_digits_are_not():
    generator = np.random.default_rng(0)
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], generator.standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100
