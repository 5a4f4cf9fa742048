"""Experiments with `gdd.OneStepFeatures`: what they judge, and that no test image reaches what is learned."""

import sys

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.experiments.studies import one_step


def test_patches_of_two_strips_share_no_pixel(monkeypatch):
    ramp = np.tile(np.arange(200.0), (40, 1))
    monkeypatch.setattr(one_step, "PICTURES", ("ramp",))
    monkeypatch.setattr(one_step.data, "ramp", lambda: ramp, raising=False)
    train, test = one_step.texture_patches(300, 0), one_step.texture_patches(300, 1, one_step.TEST)
    border = 200 * one_step.TEST[0] - 0.5
    assert train.max() * 255 < border < test.min() * 255 and train.shape == (300, 1, 32, 32)


@pytest.fixture
def kymatio(monkeypatch, tmp_path):
    """An interpreter in which kymatio gives the images themselves, and zeros."""
    (tmp_path / "kymatio").mkdir()
    (tmp_path / "kymatio" / "numpy.py").write_text(
        "import numpy as np\nclass Scattering2D:\n    def __init__(self, J, shape, L): self.shape = shape\n"
        "    def __call__(self, x): return np.stack([x.reshape(-1, *self.shape), 0 * x], 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(one_step.KYMATIO, sys.executable)


@pytest.mark.parametrize("data", ["digits", pytest.param("textures", marks=pytest.mark.slow)])
def test_few_labels(data, kymatio):
    small = {"data": data, "counts": (5,), "n_test": 10, "patches": 20}
    found = experiments.run("few-labels", small).dataset
    assert found.error.dims == ("count", "trial", "feature_kind") and found.sizes["feature_kind"] == 7
    assert (found.error < 80).all() and (found.seconds >= 0).all()  # chance: 90
