"""Readings of the same atoms on Caltech pictures: each is classified; a second run reads codes that are there."""

import numpy as np
import pytest
import xarray as xr
from test_class_parallel import pictures  # noqa: F401

from gdd import caltech, experiments
from gdd.axes import DICTIONARY, IMAGE, LABEL, GddError
from gdd.experiments import caltech_accuracy, caltech_readings
from gdd.progress import Bar
from gdd.spec import LayerSpec, ModelSpec

#: atoms of the sizes of MNIST's, whose kernels other tests have compiled
TINY = ModelSpec((LayerSpec(3, (8, 8), (3, 3)), LayerSpec(4, (6, 6))), (28, 28))
SETTINGS = {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3, "burn_in": 4, "collect": 2}
SETTINGS |= {"test_burn_in": 3, "test_collect": 2, "model": "two layers"}
READINGS = [
    "chain, sample", "chain, sample without signs", "chain, mean", "chain, mean magnitude",
    "chain, how probably active", "alone, mean", "alone, mean magnitude", "alone, how probably active",
    "windows of images alone, mean magnitude", "raw pixels",
]  # fmt: skip


@pytest.fixture
def once(pictures, monkeypatch):  # noqa: F811
    """Run the experiment, its checkpoints beside the pictures."""
    monkeypatch.setitem(caltech.MODELS, "two layers", TINY)
    monkeypatch.setenv("GDD_CACHE", str(pictures / "cache"))
    return lambda **more: caltech_readings.run(
        experiments.merge("caltech-readings", "demo", SETTINGS | more), Bar
    ).dataset


def test_every_reading_is_classified_and_a_second_run_goes_on_from_the_codes(once, monkeypatch):
    seen = []

    def noted(train_features, test_features, *rest):
        seen.append((np.asarray(train_features), np.asarray(test_features)))
        return caltech_accuracy.predict(train_features, test_features, *rest)

    monkeypatch.setattr(caltech_readings, "predict", noted)
    found = once()
    assert found.reading.values.tolist() == READINGS and dict(found.right.sizes) == {"reading": 10, "image": 6}
    assert found.right.dtype == bool and found.right.sel(reading="raw pixels").mean() > 0.5
    given = dict(zip(READINGS, seen, strict=True))
    sample, mean, size, active = (given[f"chain, {words}"][1] for words in ("sample", *caltech_readings.AVERAGES))
    assert sample.shape == (6, 2 * 4 * 2 * 2) and found.active.values.tolist() == (sample != 0).sum(1).tolist()
    np.testing.assert_array_equal(given["chain, sample without signs"][1], np.abs(sample))
    assert (np.abs(mean) <= size * (1 + 1e-5)).all() and ((active >= 0) & (active <= 1)).all()
    alone, alone_size = given["alone, mean"][1], given["alone, mean magnitude"][1]
    assert alone.shape == sample.shape and (np.abs(alone) <= alone_size * (1 + 1e-5)).all()
    assert not np.array_equal(alone_size, given["windows of images alone, mean magnitude"][1])

    def no_more(*_, **__):
        raise AssertionError("codes of images were made again")

    monkeypatch.setattr(caltech_accuracy, "deconvolve", no_more)
    xr.testing.assert_identical(once(), found)


@pytest.mark.parametrize(("name", "value"), [("n_classes", 1), ("per_class", 4)])
def test_too_few_to_tune_on_is_refused_before_any_chain(once, monkeypatch, name, value):
    monkeypatch.setattr(caltech_readings, "learn_classes", None)
    with pytest.raises(GddError, match=f"{name}: {value}"):
        once(**{name: value})


def test_windows_are_cut_from_each_class_and_have_the_norm_of_the_atoms():
    """Classes of images of one value each but for a ramp, by which a window tells where it was cut."""
    ramp = np.arange(30.0).reshape(5, 6)
    images = xr.DataArray(
        np.stack([ramp + 100 * label for label in (1, 1, 2, 2, 2)])[:, None], {LABEL: (IMAGE, [1, 1, 2, 2, 2])},
        (IMAGE, "plane", "row", "col"),
    )  # fmt: skip
    atoms = np.random.default_rng(0).normal(size=(6, 1, 3, 2)).astype(np.float32)
    windows = caltech_readings.cut_windows(images, atoms, {"seed": 3})
    assert windows.shape == atoms.shape and windows.dtype == atoms.dtype and len(DICTIONARY) == windows.ndim
    wanted = (atoms.astype(float) ** 2).sum((1, 2, 3)).mean()
    np.testing.assert_allclose((windows.astype(float) ** 2).sum((1, 2, 3)), wanted, rtol=1e-5)
    corners = set()
    for number, window in enumerate(windows[:, 0].astype(float)):
        step = window[0, 1] - window[0, 0]  # the ramp's step of 1, scaled as the window is
        first = window[0, 0] / step
        label, place = divmod(first, 100)
        assert label == (1 if number < 3 else 2)
        top, left = divmod(round(place), 6)
        assert top <= 2 and left <= 4
        np.testing.assert_allclose(window / step, ramp[top : top + 3, left : left + 2] + 100 * label, rtol=1e-3)
        corners.add((top, left))
    assert len(corners) > 1
    again = caltech_readings.cut_windows(images, atoms, {"seed": 3})
    np.testing.assert_array_equal(windows, again)
