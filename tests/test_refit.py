"""A fitted model after another fit: as it was if that was refused or interrupted, and without what is stale if not."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import SVC

from gdd import DeepDeconvolution, estimator
from gdd.base.checks import GddError
from gdd_book.evaluate.classify import OneVsRest

QUICK = {"pretrain": (3, 2), "infer": (3, 2), "atoms": (4, 6), "verbose": False}


@pytest.fixture(scope="module")
def flat(digits):
    return pd.DataFrame(digits.reshape(30, -1).astype(float), columns=[f"pixel{n}" for n in range(784)])


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["refused", "pretrain", "project"])
@pytest.mark.parametrize("warm", [False, True])
def test_a_refit_that_fails_leaves_the_model_as_it_was(flat, place, warm, monkeypatch, tmp_path):
    model = DeepDeconvolution(**QUICK, image_size=(28, 28), warm_start=warm).fit(flat)
    before, features = pickle.dumps(model), model.transform(flat)
    if place == "refused":
        with pytest.raises(ValueError, match="features|image_size"):
            model.fit(np.zeros((20, 128)))
    else:
        monkeypatch.setattr(estimator, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(flat)
    assert vars(model).keys() == vars(pickle.loads(before)).keys()
    np.testing.assert_array_equal(model.transform(flat), features)
    model.save(tmp_path / "m.nc")
    np.testing.assert_array_equal(estimator.load(tmp_path / "m.nc").transform(flat), features)


def test_a_first_fit_that_fails_leaves_none(digits):
    model = DeepDeconvolution(**QUICK)
    with pytest.raises(GddError, match="all pixels are alike"):
        model.fit(np.zeros((20, 128)))
    assert vars(model) == vars(DeepDeconvolution(**QUICK))


def test_a_fit_to_images_forgets_the_columns_of_a_table(flat, digits, recwarn):
    model = DeepDeconvolution(**QUICK, image_size=(28, 28)).fit(flat).fit(digits)
    model.transform(digits)
    assert not hasattr(model, "feature_names_in_") and not recwarn.list


def test_a_classifier_that_fails_keeps_its_classes(monkeypatch):
    features, labels = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    model = OneVsRest(SVC()).fit(features, labels)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(features * np.nan, np.arange(20) % 3)
    assert model.classes_.tolist() == [0, 1] and len(model.predict(features)) == 20
