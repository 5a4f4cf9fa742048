"""Readings of the same atoms on Caltech pictures: each is classified; a second run reads codes that are there."""

import numpy as np
import pytest
import xarray as xr
from tiny import CHEAP

from gdd.base.axes import IMAGE, IMAGES, LABEL
from gdd.inference.features import one_step_codes
from gdd_book import experiments
from gdd_book.data.subsets import generator
from gdd_book.experiments import caltech
from gdd_book.experiments.caltech import cut_windows
from gdd_book.progress import Run
from gdd_book.training import MODELS, normalised

SETTINGS = {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3, "burn_in": 4, "collect": 2}
SETTINGS |= {"test_burn_in": 3, "test_collect": 2, "model": "two layers"}


@pytest.fixture
def once(pictures, monkeypatch):
    """Run the experiment, its checkpoints beside the pictures."""
    monkeypatch.setitem(MODELS, "two layers", CHEAP)
    run = Run(pictures / "cache")
    return lambda **more: experiments.run("caltech-readings", SETTINGS | more, within=run).dataset


def test_every_reading_is_classified_and_a_second_run_goes_on_from_the_codes(once, monkeypatch):
    """What goes into the codes and into the classifier is noted on the way."""
    seen, coded, cut, classify = [], [], [], caltech.classify

    def noted(pair, *rest):
        seen.append(tuple(np.asarray(part) for part in pair))
        return classify(pair, *rest)

    def code(images, atoms, stride, **given):
        coded.append((images, atoms))
        return one_step_codes(images, atoms, stride, **given)

    def window(images, atoms, random):
        cut.append(images)
        return cut_windows(images, atoms, random)

    for name, instead in (("classify", noted), ("one_step_codes", code), ("cut_windows", window)):
        monkeypatch.setattr(caltech, name, instead)
    found = once()
    assert found.reading.values.tolist() == list(caltech.READINGS)
    assert dict(found.right.sizes) == {"reading": 14, "image": 6} and found.right.dtype == bool
    assert found.right.sel(reading="raw pixels").mean() > 0.5
    given = dict(zip(caltech.READINGS, seen, strict=True))
    sample, mean, size, active = (given[f"chain, {words}"] for words in ("sample", *caltech.AVERAGES))
    assert sample[0].shape == (12, 2 * 4 * 2 * 2) and sample[1].shape == (6, 2 * 4 * 2 * 2)
    for half in (0, 1):
        np.testing.assert_array_equal(given["chain, sample without signs"][half], np.abs(sample[half]))
        assert (np.abs(mean[half]) <= size[half] * (1 + 1e-5)).all()
        assert ((active[half] >= 0) & (active[half] <= 1)).all()

    p = experiments.merge("caltech-readings", "demo", SETTINGS)
    p |= {"classes": caltech.classes_of(p), "refined": False}
    raw = caltech.train_and_test(p)
    train, test = map(normalised, raw)
    placed = [coded[number][1] for number in (0, 2, 4, 6)]
    for number, (images, atoms) in enumerate(coded):
        xr.testing.assert_identical(images, (train, test)[number % 2])
        assert atoms is placed[number // 2]
    assert len(coded) == 8 and len(cut) == 3 and all(one.identical(train) for one in cut)
    assert all(not np.array_equal(placed[0], other) for other in placed[1:])
    pixels = [given[name][1] for name in caltech.PIXELS]
    for ours, part in zip(pixels, (test, np.abs(test), raw[1]), strict=True):
        np.testing.assert_array_equal(ours, caltech.shrink(part))
    again = [one_step_codes(part, placed[0], CHEAP.stride, gamma_e=3.0, gamma_w=0.01) for part in (train, test)]
    for words, name in caltech.AVERAGES.items():
        for half in (0, 1):
            np.testing.assert_allclose(given[f"alone, {words}"][half], again[half][name].values.reshape(-1, 32))

    monkeypatch.setattr(caltech, "encode", None)  # no codes are made again
    xr.testing.assert_identical(once(), found)


def test_windows_are_cut_from_each_class_and_have_the_norm_of_the_atoms():
    """Images are one ramp at different heights, by which a window tells of which image and where it was cut."""
    ramp, labels = np.arange(30.0).reshape(5, 6), [1, 1, 2, 2, 2]
    heights = 100 * np.arange(1, 6)
    images = xr.DataArray((ramp + heights[:, None, None])[:, None], {LABEL: (IMAGE, labels)}, IMAGES)
    atoms = np.random.default_rng(0).normal(size=(12, 1, 3, 2)).astype(np.float32)
    windows = cut_windows(images, atoms, generator(3))
    assert windows.shape == atoms.shape and windows.dtype == atoms.dtype
    wanted = (atoms.astype(float) ** 2).sum((1, 2, 3)).mean()
    np.testing.assert_allclose((windows.astype(float) ** 2).sum((1, 2, 3)), wanted, rtol=1e-5)
    places = []
    for window in windows[:, 0].astype(float):
        step = window[2, 0] - window[1, 0]  # six of the ramp's steps, scaled as the window is
        height, place = divmod(round(6 * window[0, 0] / step), 100)
        top, left = divmod(place, 6)
        expected = ramp[top : top + 3, left : left + 2] + 100 * height
        assert expected.shape == (3, 2)
        np.testing.assert_allclose(6 * window / step, expected, rtol=1e-3)
        places.append((labels[height - 1], height, top, left))
    assert [label for label, *_ in places] == [1] * 6 + [2] * 6
    assert {height for _, height, *_ in places} == {1, 2, 3, 4, 5} and len(set(places)) > 6
    np.testing.assert_array_equal(windows, cut_windows(images, atoms, generator(3)))
