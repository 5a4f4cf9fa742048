"""Experiments on pictures of Caltech's form, at their smallest: one class, layer by layer, the best features."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from tiny import CHEAP

import gdd
from gdd import OneStepFeatures, SecondLayer
from gdd.inference.contrast import normalise_contrast
from gdd_book import experiments, training
from gdd_book.data import datasets
from gdd_book.experiments import atoms, caltech
from gdd_book.experiments.studies import caltech_features as ours
from gdd_book.progress import Run

P = {
    "data": "caltech256", "classes": ("stands",), "per_class": 4, "seed": 0, "model": "two layers", "burn_in": 1,
    "collect": 1, "refine_burn_in": 1, "refine_collect": 1, **training.HEALTHY_CALTECH,
}


@pytest.mark.usefixtures("pictures")
def test_images_are_normalised_and_of_the_class():
    train, test = training.setup_of(P).images, training.caltech_images(P, "test")
    assert (train.shape, test.shape) == ((4, 1, 28, 28), (6, 1, 28, 28))
    assert (train.label == 0).all()
    assert not np.isin(train.number, test.number).any()
    plain = datasets.load("caltech256", classes=["stands"], per_class=4, seed=0, size=(28, 28))
    np.testing.assert_array_equal(train, normalise_contrast(plain))
    both = training.setup_of(P | {"classes": ("stands", "lies")}).images
    np.testing.assert_array_equal(both[both.label == 0], train)  # a class's images do not depend on the others


def test_class_experiment_adds_up_its_parts(pictures):
    run = Run(pictures / "cache")
    found = atoms.caltech_class(P | {"collect": 2, "voters": 2}, run).dataset
    parts = ["layer 1", "layer 2", "refinement", "projection, pretrained", "projection, refined"]
    assert found.part.values.tolist() == parts
    assert found.sweeps.values.tolist() == [3, 3, 2, 0, 0]
    assert (found.cpu_seconds > 0).all()
    fitted, refined = training.trained_models(P | {"collect": 2}, run).values()  # found finished
    assert found.cpu_seconds[2] == refined.traces.attrs["cpu_seconds"]
    np.testing.assert_array_equal(found.pre_active[1], fitted.layers[1].traces.active.values[0])
    assert found.atoms_1.shape == (2, 3, 8, 8)
    assert found.atoms_2.shape == (2, 4, 25, 25)
    assert (np.abs(found.atoms_2).max(("row_2", "col_2")) == 100).all()


def test_every_way_is_classified_and_a_second_run_reads_what_is_there(pictures, monkeypatch):
    asked = {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3, "model": "two layers", "burn_in": 4}
    asked |= {"collect": 2, "test_burn_in": 3, "test_collect": 2, "layer_burn_in": 2, "layer_collect": 2}
    once = lambda: experiments.run("caltech-layerwise", asked, within=Run(pictures / "cache")).dataset  # noqa: E731
    found = once()
    layers = [f"layer by layer, layer {n}" for n in (1, 2)]
    assert found.way.values.tolist() == [caltech.ONE_DECONVOLUTION, caltech.ALL_LAYERS, *layers]
    below, above = 3 * 7 * 7, 4 * 2 * 2
    assert found.n_features.values.tolist() == [2 * 4 * 2 * 2, 2 * (below + above), 2 * below, 2 * above]
    assert dict(found.right.sizes) == {"way": 4, "feature_kind": 2, "image": 6} and found["class"].size == 2
    assert found.right.dtype == bool and (found.baseline_accuracy > 50).all()
    monkeypatch.setattr(caltech, "infer_layers", None)  # no codes are made again
    xr.testing.assert_identical(once(), found)


@pytest.mark.usefixtures("pictures")
def test_one_number_is_changed_at_a_time(monkeypatch):
    seen, learn = [], caltech.learn
    monkeypatch.setattr(caltech, "learn", lambda p, run, width: seen.append((p, width)) or learn(p, run, width))
    asked = {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3, "widths": (3,), "weights": (1.0, 10.0)}
    found = experiments.run("caltech-settings", asked | training.lengths((4, 2), test=(3, 2))).dataset
    assert dict(found.right.sizes) == {"setting": 5, "feature_kind": 4, "image": 6}
    assert found.number.values.tolist() == ["", "width", "noise_precision", *["weight_precision"] * 2]
    assert found.value.values.tolist() == [0, 3, 30, 1, 10]
    used = [(width, p["noise_precision"], p["weight_precision"]) for p, width in seen]
    assert used == [(9, 3, 0.1), (3, 3, 0.1), (9, 30, 0.1), (9, 3, 1), (9, 3, 10)]


@pytest.mark.usefixtures("pictures")
def test_every_feature_is_judged_and_test_images_change_only_the_judgement(monkeypatch):
    """On small pictures, with a few atoms of MNIST's size."""
    asked = {"data": "caltech256", "n_classes": 3, "per_class": 6, "counts": (3, 6), "n_test": 4, "n_learn": 9}
    asked |= {"burn_in": 3, "collect": 1, "seeds": (0, 1), "model": "two layers"}
    learned, real, load = [], ours._learn, ours.train_and_test
    changes = {"atoms": 5, "sizes": ((8, 8),), "pool": (3, 3), "weight_precision": 0.1, "verbose": False}
    photos = partial(OneStepFeatures.photos, **changes, second=SecondLayer(10, (2, 1), (1, 1)))
    monkeypatch.setattr(OneStepFeatures, "photos", photos)
    scales = ours.Scale((28, 28), (1, 2, 3), 0.7), ours.Scale((20, 20), (1, 2), 0.3)
    monkeypatch.setattr(ours, "SCALES", scales)

    def noted(*given):
        learned.append(real(*given))
        return learned[-1]

    def once(change=lambda train, test: (train, test)):
        monkeypatch.setattr(ours, "train_and_test", lambda p, size=None: change(*load(p, size)))
        return experiments.run("caltech-best", asked).dataset

    monkeypatch.setattr(ours, "_learn", noted)
    found = once()
    assert dict(found.accuracy.sizes) == {"split": 2, "count": 2, "feature_kind": 5}
    assert (found.accuracy.sel(feature_kind=list(ours.OURS), count=6) > 60).all()  # chance: 33
    once(lambda train, test: (train, test.copy(data=test.values[..., ::-1, :])))
    assert learned[0].to_dataset().identical(learned[2].to_dataset())


def test_shares_follow_the_weights_and_in_a_refined_model_what_they_draw():
    images = np.random.default_rng(0).random((4, 1, 28, 28)).astype(np.float32)
    fitted = gdd.pretrain(images, CHEAP, gdd.ChainSpec(1, 1))
    refined = gdd.refine(images, CHEAP, gdd.ChainSpec(1, 1), start=fitted)
    w = fitted.layers[0].state.local.w
    w[:], w[0, 0, 0, 0], w[3, 0, 1, 1] = 0, 3.0, -1.0
    shares = atoms.weight_shares(fitted)
    np.testing.assert_allclose(shares[:, 0], [0.9, 0, 0, 0.1])
    assert np.isnan(shares[:, 1]).all()
    w, z = refined.state.local.w, refined.state.local.z
    z[:], w[:] = -1, 0
    z[0, 0, 0, 0], w[0, 0, 0, 0], z[3, 0, 1, 1], w[3, 0, 1, 1] = 0, 3.0, 0, -1.0
    shares = atoms.weight_shares(refined)
    np.testing.assert_allclose(shares[:, shares.layer == 2][:, 0], [0.9, 0, 0, 0.1])
    below = shares[:, shares.layer == 1].values  # one top atom, and linear below it: nine times the energy
    np.testing.assert_allclose(below, np.tile([[0.9], [0], [0], [0.1]], below.shape[1]), rtol=1e-4)
