"""Experiments with `gdd.OneStepFeatures`: what they judge, and that no test image reaches what is learned."""

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.experiments.studies import one_step


def test_patches_of_the_two_sides_share_no_pixel(monkeypatch):
    ramp = np.tile(np.arange(200.0), (40, 1))
    monkeypatch.setattr(one_step, "PICTURES", ("ramp",))
    monkeypatch.setattr(one_step.data, "ramp", lambda: ramp, raising=False)
    train, test = one_step.texture_patches(300, 0), one_step.texture_patches(300, 1, one_step.TEST)
    assert train.max() * 255 <= 119.5 and test.min() * 255 >= 119.5 and train.shape == (300, 1, 32, 32)


def test_every_picture_is_there_and_has_contrast_everywhere():
    patches = one_step.texture_patches(30, 0)
    assert np.bincount(patches.label).tolist() == [30] * len(one_step.PICTURES)
    assert float((patches.max(("plane", "row", "col")) - patches.min(("plane", "row", "col"))).min()) > 0


@pytest.mark.parametrize("data", one_step.DATA)
def test_few_labels(data):
    small = {"data": data, "counts": (5,), "n_test": 10, "patches": 20}
    found = experiments.run("few-labels", small).dataset
    assert found.error.dims == ("count", "trial", "feature_kind") and found.sizes["feature_kind"] == 5
    assert (found.error < 80).all() and (found.seconds >= 0).all()  # chance: 90


def test_cost_has_a_row_for_each_feature(monkeypatch):
    monkeypatch.delenv(one_step.KYMATIO, raising=False)
    monkeypatch.setattr(one_step, "ONE", ((8, 8),))
    monkeypatch.setattr("gdd.features.DIGIT_SIZES", ((8, 8), (6, 6)))
    found = experiments.run("one-step-cost", {"n_train": 60, "n_test": 50, "patches": 10}).dataset
    assert found.sizes["feature_kind"] == 8 and (found.milliseconds > 0).sum() >= 7
    seconds = found.learning.to_series()
    assert seconds["one, whitened"] > seconds["one dictionary"] > 0
    assert seconds["four dictionaries"] > seconds["four, whitened, pretrained"]


def test_more_chains_bring_the_features_of_two_seeds_closer():
    found = experiments.run("chain-seeds", {"chains": (1, 4)}).dataset.correlation
    assert (found.sel(chains=4) > found.sel(chains=1)).all() and (found < 1).all()
