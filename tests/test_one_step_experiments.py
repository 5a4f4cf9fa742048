"""Experiments with `gdd.OneStepFeatures`: what they judge, and that no test image reaches what is learned."""

import sys

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.experiments.studies import one_step


@pytest.mark.parametrize(
    ("left", "right"),
    [(one_step.TRAIN, one_step.TEST), (one_step.TRIED, one_step.HELD), (one_step.HELD, one_step.TEST)],
)
def test_patches_of_two_strips_share_no_pixel(monkeypatch, left, right):
    ramp = np.tile(np.arange(200.0), (40, 1))
    monkeypatch.setattr(one_step, "PICTURES", ("ramp",))
    monkeypatch.setattr(one_step.data, "ramp", lambda: ramp, raising=False)
    train, test = one_step.texture_patches(300, 0, left), one_step.texture_patches(300, 1, right)
    border = 200 * right[0] - 0.5
    assert train.max() * 255 < border < test.min() * 255 and train.shape == (300, 1, 32, 32)


def test_every_picture_is_there_and_has_contrast_everywhere():
    patches = one_step.texture_patches(30, 0)
    assert np.bincount(patches.label).tolist() == [30] * len(one_step.PICTURES)
    assert float((patches.max(("plane", "row", "col")) - patches.min(("plane", "row", "col"))).min()) > 0


@pytest.fixture
def kymatio(monkeypatch, tmp_path):
    """An interpreter in which both engines of kymatio give the images themselves, and a constant."""
    (tmp_path / "kymatio").mkdir()
    (tmp_path / "torch.py").write_text("from numpy import asarray as from_numpy\ndef set_num_threads(n): pass\n")
    for number, name in enumerate(("numpy", "torch")):
        (tmp_path / "kymatio" / f"{name}.py").write_text(
            "import numpy as np\nclass Scattering2D:\n    def __init__(self, J, shape, L): self.shape = shape\n"
            f"    def __call__(self, x): return np.stack([x.reshape(-1, *self.shape), 0 * x + {number}], 1)\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(one_step.KYMATIO, sys.executable)


@pytest.mark.parametrize("kind", one_step.ENGINES)
def test_scattering_is_made_by_the_other_interpreter(kymatio, kind):
    images = one_step.texture_patches(11, 0)
    features, spent = one_step.scattered(images, sys.executable, kind)
    pixels, constant = np.split(features, 2, axis=1)
    np.testing.assert_array_equal(pixels, images.values.reshape(110, -1))
    assert (constant == list(one_step.ENGINES).index(kind)).all() and spent > 0


@pytest.mark.parametrize("data", ["digits", pytest.param("textures", marks=pytest.mark.slow)])
def test_few_labels(data, kymatio):
    small = {"data": data, "counts": (5,), "n_test": 10, "patches": 20}
    found = experiments.run("few-labels", small).dataset
    assert found.error.dims == ("count", "trial", "feature_kind") and found.sizes["feature_kind"] == 7
    assert (found.error < 80).all() and (found.seconds >= 0).all()  # chance: 90


@pytest.mark.slow
def test_settings_are_chosen_on_training_images_alone():
    for data in one_step.DATA:
        train, held = one_step._held_out(data, 3, 0)
        assert len(train) == 30 and np.bincount(held.label).min() >= 50
    parts = *one_step._held_out("digits", 3, 0), one_step.datasets.load("digits", "test")
    numbers = [set(part.number.values) for part in parts]
    assert sum(map(len, numbers)) == len(set.union(*numbers)) == 1797
    found = experiments.run("few-labels-settings", {"regions": ("blocks",)}).dataset.error
    assert found.dims == ("trial", "local_contrast", "regions", "whitening") and (found < 80).all()  # chance: 90


@pytest.mark.slow
def test_cost_has_a_row_for_each_feature(monkeypatch):
    monkeypatch.delenv(one_step.KYMATIO, raising=False)
    monkeypatch.setattr(one_step, "ONE", ((8, 8),))
    monkeypatch.setattr("gdd.features.DIGIT_SIZES", ((8, 8), (6, 6)))
    found = experiments.run("one-step-cost", {"n_train": 60, "n_test": 50, "patches": 10}).dataset
    assert found.sizes["feature_kind"] == 9 and (found.milliseconds > 0).sum() >= 8
    seconds = found.learning.to_series()
    assert seconds["one, whitened"] > seconds["one dictionary"] > 0
    assert seconds["four dictionaries"] > seconds["four, whitened, pretrained"]


def test_more_chains_bring_the_features_of_two_seeds_closer():
    found = experiments.run("chain-seeds", {"chains": (1, 4)}).dataset.correlation
    assert (found.sel(chains=4) > found.sel(chains=1)).all() and (found < 1).all()
