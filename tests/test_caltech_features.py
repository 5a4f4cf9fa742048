"""Layer 1's features of Caltech pictures over a pyramid: what they are, what they depend on, and what chance is."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from tiny import CHEAP

from gdd import SecondLayer
from gdd_book import experiments
from gdd_book.experiments.studies import caltech_features as ours
from gdd_book.training import MODELS

SETTINGS = {"data": "caltech256", "n_classes": 3, "per_class": 6, "counts": (3, 6), "n_test": 4, "n_learn": 9}
SETTINGS |= {"burn_in": 3, "collect": 1, "seeds": (0, 1)}


@pytest.fixture
def once(pictures, monkeypatch):
    """Run the experiment on small pictures, a few atoms of MNIST's size; training and test images can be changed."""
    load = ours.train_and_test
    changes = {"atoms": 6, "sizes": ((8, 8),), "pool": (3, 3), "weight_precision": 0.1, "verbose": False}
    monkeypatch.setattr(ours, "CHANGES", changes | {"second": SecondLayer(10, (2, 2), (1, 1))})
    scales = ours.Scale((28, 28), (1, 2, 3), 0.7), ours.Scale((20, 20), (1, 2), 0.3)
    monkeypatch.setattr(ours, "SCALES", scales)
    monkeypatch.setitem(MODELS, "two layers", CHEAP)

    def run(change=lambda train, test: (train, test)):
        monkeypatch.setattr(ours, "train_and_test", lambda p, size=None: change(*load(p, size)))
        return experiments.run("caltech-best", SETTINGS).dataset

    return run


@pytest.mark.parametrize("columns", [200, 12])
def test_coordinates_of_the_span_change_no_decision(columns):
    """More features than training images, and fewer."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3, np.arange(90) % 3
    features = [random.normal(size=(len(part), columns)) + 3.0 * np.eye(3, columns)[part] for part in labels]
    plain = make_pipeline(Normalizer(), RidgeClassifierCV(ours.PENALTIES)).fit(features[0], labels[0])
    share = 100 * plain.score(features[1], labels[1])
    assert ours.accuracy(features, labels) == share and 34 < share < 100


def test_every_feature_is_judged_and_test_images_change_only_the_judgement(once, monkeypatch):
    learned, real = [], ours._learn

    def noted(*given):
        learned.append(real(*given))
        return learned[-1]

    monkeypatch.setattr(ours, "_learn", noted)
    found = once()
    assert dict(found.accuracy.sizes) == {"split": 2, "count": 2, "feature_kind": 5}
    assert (found.accuracy.sel(feature_kind=list(ours.OURS), count=6) > 60).all()  # chance: 33
    once(lambda train, test: (train, test.copy(data=test.values[..., ::-1, :])))
    assert learned[0].to_dataset().identical(learned[2].to_dataset())
