"""Features of digits in the experiment: that neither a label, nor another image, nor a test digit reaches them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gdd.inference.contrast import prepare
from gdd_book import experiments
from gdd_book.experiments.studies import mnist_features


def test_a_grating_is_weakened_as_the_transform_of_the_blur_says():
    """Far from the border a Gaussian of sd s multiplies frequency f by exp(-s^2 f^2 / 2)."""
    frequency, sigma = 2 * np.pi / 16, 3.0
    wave = np.tile(np.cos(frequency * np.arange(128)), (128, 1))
    passed = prepare(wave[None, None], None, sigma, False)[0, 0]
    middle = slice(32, 96)
    wanted = (1 - np.exp(-(sigma**2) * frequency**2 / 2)) * wave
    assert_allclose(passed[middle, middle], wanted[middle, middle], atol=1e-3)  # the blur is cut off at 4 sd: 6e-5
    ramp = np.tile(np.arange(128.0), (128, 1))
    assert_allclose(prepare(ramp[None, None], None, sigma, False)[0, 0, middle, middle], 0, atol=1e-9)


# ---- the whole way of the experiment
SMALL = {
    "n_learn": 20, "burn_in": 2, "collect": 1, "sizes": (100, 200), "trials": 2, "trials_above": 1, "choose_on": 1,
    "choose_size": 100, "kinds": mnist_features.KINDS,
}


def outcome(monkeypatch, change=None, copies=0):
    """The experiment at its smallest, every image that it loads given to ``change`` first."""
    load = mnist_features.datasets.load
    with monkeypatch.context() as patched:
        patched.setattr(mnist_features, "SIZES", ((8, 8),))
        if change:
            patched.setattr(mnist_features.datasets, "load", lambda *args, **kwargs: change(load(*args, **kwargs)))
        return experiments.run("mnist-best", SMALL | {"copies": copies}).dataset


@pytest.fixture(scope="module")
def honest():
    with pytest.MonkeyPatch.context() as monkeypatch:
        return outcome(monkeypatch)


@pytest.mark.parametrize("copies", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_random_labels_give_chance_through_the_whole_experiment(honest, monkeypatch, copies):
    rng = np.random.default_rng(0)

    def shuffled(images):
        return images.assign_coords(label=("image", rng.permutation(images.label.values)))

    found = outcome(monkeypatch, shuffled, copies)
    assert_array_equal(found.atoms, honest.atoms)
    spread = 100 * np.sqrt(0.9 * 0.1 / 500)
    assert (abs(found.error - 90).where(found.error.notnull(), 0) < 4.5 * spread).all()
    # the least of four cross-validation errors, each of 100 digits or more
    assert (found.cross_validation.min() > 90 - 5 * 100 * np.sqrt(0.9 * 0.1 / 100)).all()


def test_no_test_digit_reaches_atoms_choice_or_tuning(honest, monkeypatch):
    def without_test(images):
        return images if images.attrs["split"] == "train" else images.copy(data=images.values[:, :, ::-1])

    found = outcome(monkeypatch, without_test)
    for name in ("atoms", "choice", "chosen", "cross_validation", "gamma"):
        assert_array_equal(found[name], honest[name])
    assert (found.error != honest.error).any()
