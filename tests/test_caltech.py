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


def test_folders_depend_on_what_the_chain_depends_on(tmp_path):
    def folders(**changes):
        return training.folders_of(P | changes, Run(tmp_path), training.setup_of(P | changes))

    pretrained, refined = folders()
    assert folders(n_test=3) == (pretrained, refined)
    others = {"classes": ("lies",), "per_class": 3, "seed": 1, "burn_in": 7, "collect": 7, "noise_precision": 7.0}
    for name, other in others.items():
        assert pretrained not in folders(**{name: other}) and refined not in folders(**{name: other})
    for name in ("refine_burn_in", "refine_collect", "refine_noise"):
        assert folders(**{name: 7})[0] == pretrained and folders(**{name: 7})[1] != refined


def test_every_class_and_split_has_its_own_seed():
    changes = ({}, {"classes": ("lies",)}, {"classes": ("stands", "lies")}, {"seed": 1})
    assert len({training.chain_seed(P | change) for change in changes}) == 4
    assert training.chain_seed(P | {"collect": 9}) == training.chain_seed(P)


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
