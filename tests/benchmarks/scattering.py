"""Scattering features beside ours: the row that kymatio gives, on the digits of the experiment `mnist-best`.

kymatio needs scipy below 1.15, so its features are made by another interpreter:

    python -m venv _build/scattering && _build/scattering/bin/pip install "scipy<1.15" kymatio
    python tests/benchmarks/scattering.py _build/scattering/bin/python --sizes 1000 --trials 5 --n_test 2000

writes ``mnist-best--paper--scattering.nc`` among the records. Subsets have the seeds of `mnist-best`, the classifier
is its own; of the test digits ``n_test`` are used, equally many of every class. Nothing is tuned beyond the
classifier: two orders, J = 2, 8 angles, features as they come.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr

from gdd import datasets, experiments, records
from gdd.axes import LABEL
from gdd.classify import error
from gdd.experiments.mnist_best import PROTOCOL

SCATTER = """
import sys, numpy as np
from kymatio.numpy import Scattering2D
images = np.load(sys.argv[1])
scatter = Scattering2D(J=2, shape=images.shape[1:], L=8)
parts = [scatter(images[low:low + 100]) for low in range(0, len(images), 100)]
np.save(sys.argv[2], np.concatenate(parts).reshape(len(images), -1).astype(np.float32))
"""


def scattered(images: xr.DataArray, interpreter: str) -> np.ndarray:
    """Features (image, feature) of one-plane images, made by the other interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "images.npy", Path(folder) / "features.npy"
        np.save(before, images.values[:, 0])
        subprocess.run([interpreter, "-c", SCATTER, str(before), str(after)], check=True)
        return np.load(after)


def main() -> None:
    """Scatter, classify, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("interpreter", help="python with kymatio")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--n_test", type=int, default=2000)
    given, started = parser.parse_args(), time.monotonic()
    test = datasets.load("mnist", "test", n=given.n_test, seed=0)
    after, errors = scattered(test, given.interpreter), np.empty((len(given.sizes), given.trials, 1))
    for i, size in enumerate(given.sizes):
        for trial in range(given.trials):
            train = datasets.load("mnist", "train", n=size, seed=trial)
            before = scattered(train, given.interpreter)
            errors[i, trial] = error(before, train[LABEL].values, after, test[LABEL].values, PROTOCOL, trial).error
    kind = f"scattering ({given.n_test} test digits)"
    dataset = xr.Dataset(
        {"error": (("size", "trial", "feature_kind"), errors), "features": ("feature_kind", [after.shape[1]])},
        {"size": given.sizes, "feature_kind": [kind]},
    )
    changes = {"sizes": tuple(given.sizes), "trials": given.trials, "n_test": given.n_test}
    path = records.write(
        records.folder() / "mnist-best--paper--scattering.nc", dataset, experiment="mnist-best", scale="paper",
        parameters=experiments.merge("mnist-best", "paper", changes), spec={"svm": PROTOCOL, "J": 2, "L": 8}, seed=0,
        data_name="mnist", data_checksum=test.attrs["checksum"], seconds=time.monotonic() - started,
    )  # fmt: skip
    print(path)


if __name__ == "__main__":
    main()
