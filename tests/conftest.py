"""What tests of several modules share, and which modules one process runs."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tiny import CHEAP, QUICK
from xdist.scheduler import LoadFileScheduling

from gdd import DeepDeconvolution
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.data.subsets import generator

#: Modules whose quick tests compile kernels, by the precision of most of their arrays. All kernels take minutes of
#: processor time; of two processes that need one at the same time both would compile it. Kernels are compiled anew for
#: every size of atoms with six numbers or more a row: there is 8 x 8 in single precision, and 3 x 6 in double.
COMPILING = {
    "single": {
        "test_arrays", "test_caltech", "test_cluster", "test_depth", "test_estimator",
        "test_experiments", "test_feedforward", "test_files", "test_labels", "test_models", "test_one_step",
        "test_own_images", "test_pipeline", "test_pretrain", "test_readme", "test_refinement_experiments",
        "test_saved", "test_sums", "test_training", "test_transformer",
    },
    "double": {
        "test_calibration", "test_chain", "test_deconvolution", "test_fixed_dictionary", "test_interpolation",
        "test_joint", "test_joint_sampler", "test_joint_sweep", "test_kernels", "test_masked", "test_projection",
        "test_projection_joint", "test_refine",
    },
}


class OneCompiles(LoadFileScheduling):
    """Tests of a module are run by one process; so are those of all modules that compile for one precision."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return next((name for name, modules in COMPILING.items() if Path(file).stem in modules), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of ``--dist loadfile``; other ways of sharing the tests out are left as they are."""
    return OneCompiles(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collectstart(collector):
    """Notebooks compare what figures say of themselves; nbval leaves out pictures, but for SVG."""
    if collector.path.suffix == ".ipynb":
        collector.skip_compare += ("image/svg+xml",)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; its only entry is the time in seconds, to be moved on by the test."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A small tree of Caltech 256's form: bars that stand, lie or slant, and clutter. Model "two layers" is `CHEAP`."""
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
    monkeypatch.setitem(training.MODELS, "two layers", CHEAP)
    return tmp_path


@pytest.fixture(scope="module")
def digits():
    """Grey values from 0 to 255, (image, row, col)."""
    return (255 * datasets.load("digits", n=30).values[:, 0]).astype(np.uint8)


@pytest.fixture(scope="module")
def table(digits):
    """The same as a table with names of columns."""
    return pd.DataFrame(digits.reshape(30, -1).astype(float), columns=[f"pixel{n}" for n in range(784)])


@pytest.fixture(scope="module")
def fitted(digits):
    return DeepDeconvolution(**QUICK).fit(digits)


@pytest.fixture(scope="module")
def refined(digits):
    return DeepDeconvolution(**QUICK, refine=(2, 2)).fit(digits)


@pytest.fixture(scope="module")
def coloured():
    """Coloured noise, smooth enough for atoms, (image, row, col, plane)."""
    rough = np.random.default_rng(0).random((12, 16, 18, 3))
    return (rough + np.roll(rough, 1, 1) + np.roll(rough, 1, 2)).astype(np.float32)
