"""Classes learned side by side: the record of killed runs with two processes is that of one run with one process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from gdd.base.checks import GddError
from gdd.data import datasets
from gdd.data.subsets import generator
from gdd_book import cli
from gdd_book.experiments import caltech_accuracy

SCRIPT = Path(__file__).parent / "classes_to_kill.py"


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A small tree of Caltech 256's form: a bright bar that stands, lies or slants, in noise; and clutter."""
    random = generator(0)
    rows, cols = np.mgrid[:28, :28] - 13.5
    lines = {"001.stands": cols, "002.lies": rows, "003.slants": (rows - cols) / 1.4, "004.clutter": cols + 40}
    for folder, distance in lines.items():
        path = tmp_path / "caltech256" / "256_ObjectCategories" / folder
        path.mkdir(parents=True)
        for number in range(10):
            bar = 150.0 * (np.abs(distance - random.integers(-6, 6)) < 3)
            pixels = (bar + random.integers(0, 100, bar.shape)).astype(np.uint8)
            Image.fromarray(pixels).save(path / f"{folder[:3]}_{number:04d}.jpg", quality=95)
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    return tmp_path


def start(pictures, cache, jobs):
    """Begin a run; its checkpoints are in a cache of that name."""
    environment = os.environ | {"GDD_CACHE": str(pictures / cache)}
    command = [sys.executable, str(SCRIPT), str(jobs), str(pictures / f"{cache}.nc")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def sweeps(run, until=np.inf):
    """Read what a run says until it has made so many sweeps in this stretch, or ends."""
    count = 0
    for line in run.stdout:
        count += line.count(".")
        if count >= until:
            break
    return count


@pytest.mark.slow
def test_two_kills_of_two_processes_end_at_the_record_of_one(pictures):
    whole = start(pictures, "whole", 1)
    in_all = sweeps(whole)
    assert whole.wait() == 0
    for reach in (0.4, 0.8):  # the second one after the first classes are finished
        killed = start(pictures, "killed", 2)
        assert sweeps(killed, reach * in_all) >= reach * in_all
        killed.kill()
        killed.wait()
    last = start(pictures, "killed", 2)
    assert sweeps(last) < in_all  # classes that were finished are not told again
    assert last.wait() == 0
    one, other = (xr.load_dataset(pictures / f"{name}.nc") for name in ("whole", "killed"))
    xr.testing.assert_identical(one, other)
    assert (one.accuracy.sel(feature_kind="raw pixels", background="left out") > 60).all()
    found = [sorted(path.name for path in (pictures / name / "checkpoints").iterdir()) for name in ("whole", "killed")]
    assert found[0] == found[1]
    assert sum(name.startswith("caltech-atoms") for name in found[0]) == 3


def test_experiments_without_parts_take_one_job(tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path))
    with pytest.raises(GddError, match="jobs: 2 given; planted has no parts"):
        cli.run_experiment("planted", "demo", jobs=2)
    with pytest.raises(GddError, match="jobs"):
        cli.run_experiment("caltech-accuracy", "demo", jobs=0)
    assert not any(tmp_path.iterdir())


def test_test_images_are_bounded_by_class_and_drawn_by_seed(pictures):
    p = {"data": "caltech256", "classes": ("stands", "lies"), "per_class": 6, "seed": 0, "model": "two layers"}
    p |= {"n_test": 3}
    train, test = caltech_accuracy.pictures(p)
    assert np.unique(train.label, return_counts=True)[1].tolist() == [6, 6]
    assert np.unique(test.label, return_counts=True)[1].tolist() == [3, 3]
    assert not np.isin(test.number, train.number).any()
    again = caltech_accuracy.pictures(p | {"n_test": 4})[1]
    assert set(test.number.values) < set(again.number.values)
    assert caltech_accuracy.background_images(p) == 10
    assert datasets.class_names("caltech256")[-1] == "clutter"


def test_both_counts_with_and_without_background():
    """Classes of 8 and 2 images, of which 6 and 1 are right; 10 images of the background are all wrong."""
    right = np.array([True] * 6 + [False] * 2 + [True, False])
    found = caltech_accuracy.rates(right, np.array([75.0, 50.0]), 10)
    assert found == [[70.0, 35.0], [62.5, pytest.approx(125 / 3)]]
    assert caltech_accuracy.rates(right, np.array([75.0, 50.0]), 0)[1] == [62.5, 62.5]
