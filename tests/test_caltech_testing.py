"""What is timed on real images is the chain of test-time deconvolution, image by image."""

import numpy as np
import pytest
from tiny import CHEAP

from gdd.base.axes import ATOM
from gdd.inference.deconvolution import InferenceChain, deconvolve
from gdd_book import experiments
from gdd_book.experiments import caltech
from gdd_book.progress import Run
from gdd_book.training import MODELS, normalised

SETTINGS = {"data": "caltech256", "n_classes": 3, "per_class": 6, "n_images": 2, "burn_in": 4, "collect": 2}
SETTINGS |= {"test_burn_in": 3, "test_collect": 2, "model": "two layers"}


def constant(gamma_e):
    """Of the log-likelihood of an image of 28 x 28."""
    return 0.5 * 28**2 * np.log(gamma_e / (2 * np.pi))


@pytest.fixture
def settings(pictures, monkeypatch):
    monkeypatch.setitem(MODELS, "two layers", CHEAP)
    return experiments.merge("caltech-testing", "demo", SETTINGS)


def test_the_timed_chains_are_those_of_deconvolution(settings, tmp_path):
    run = Run(tmp_path / "cache")
    found = caltech.caltech_testing(settings, run).dataset
    learned = caltech.learn(settings | {"refined": False, "n_test": 1}, run)
    test, (atoms, (gamma_e, gamma_w)) = learned.test, learned.together("pretrained")
    assert len(test) == 3 and found.label.values.tolist() == test.label.values[[0, 2]].tolist()
    assert int(found.n_atoms) == len(atoms) == 3 * 4 and int(found.n_positions) == 2 * 2
    for number, image in enumerate((0, 2)):
        codes = deconvolve(
            normalised(test.isel(image=[image])), atoms, CHEAP.stride, gamma_e=gamma_e, gamma_w=gamma_w,
            chain=InferenceChain(3, 2, 0, number),
        )
        left = (-2 * (codes.log_likelihood.item() - constant(gamma_e)) / gamma_e / 28**2) ** 0.5
        assert float(found.residual[number]) == pytest.approx(left, rel=1e-4)
        assert int((codes.ml_sample != 0).sum((ATOM, "row", "col", "image"))) == int(found.active[number])
    assert (found.cpu_seconds > 0).all() and np.isfinite(found.gram_cpu_seconds) and (found.active > 0).any()
