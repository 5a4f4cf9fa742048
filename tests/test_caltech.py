"""Models of Caltech images: what they are trained on, what their chains depend on, finished chains not run again."""

import numpy as np
import pytest
from tiny import CHEAP

from gdd.inference.contrast import normalise_contrast
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.experiments import atoms
from gdd_book.progress import Run

P = {
    "data": "caltech256", "classes": ("stands",), "per_class": 4, "seed": 0, "model": "tiny", "burn_in": 1,
    "collect": 1, "refine_burn_in": 1, "refine_collect": 1, **training.HEALTHY_CALTECH,
}


@pytest.fixture(autouse=True)
def tiny_model(pictures, monkeypatch):
    monkeypatch.setitem(training.MODELS, "tiny", CHEAP)


def test_images_are_normalised_and_of_the_class():
    train, test = training.setup_of(P).images, training.caltech_images(P, "test")
    assert (train.shape, test.shape) == ((4, 1, 28, 28), (6, 1, 28, 28))
    assert (train.label == 0).all()
    assert not np.isin(train.number, test.number).any()
    plain = datasets.load("caltech256", classes=["stands"], per_class=4, seed=0, size=(28, 28))
    np.testing.assert_array_equal(train, normalise_contrast(plain))
    both = training.setup_of(P | {"classes": ("stands", "lies")}).images
    np.testing.assert_array_equal(both[both.label == 0], train)  # a class's images do not depend on the others


def test_class_experiment_adds_up_its_parts(tmp_path):
    run = Run(tmp_path / "cache")
    found = atoms.caltech_class(P | {"collect": 2, "voters": 2}, run).dataset
    assert found.part.values.tolist() == [
        "layer 1", "layer 2", "refinement", "projection, pretrained", "projection, refined"
    ]
    assert found.sweeps.values.tolist() == [3, 3, 2, 0, 0]
    assert (found.cpu_seconds > 0).all()
    fitted, refined = training.trained_models(P | {"collect": 2}, run).values()  # found finished
    assert found.cpu_seconds[2] == refined.traces.attrs["cpu_seconds"]
    np.testing.assert_array_equal(found.pre_active[1], fitted.layers[1].traces.active.values[0])
    assert found.atoms_1.shape == (2, 3, 8, 8)
    assert found.atoms_2.shape == (2, 4, 25, 25)
    assert (np.abs(found.atoms_2).max(("row_2", "col_2")) == 100).all()
