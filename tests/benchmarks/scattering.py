"""Scattering features beside ours: the row that kymatio gives, on the digits of the experiment `mnist-best`.

kymatio needs scipy below 1.15, so its features are made by another interpreter:

    python -m venv _build/scattering && _build/scattering/bin/pip install "scipy<1.15" kymatio
    python tests/benchmarks/scattering.py _build/scattering/bin/python --sizes 1000 2000 5000 10000 --trials 5

writes ``mnist-best--paper--scattering.nc`` among the records. Subsets have the seeds of `mnist-best`, ``trials`` of the
first size and one of the others; the classifier is its own. Nothing is tuned beyond it: two orders, J = 2, 8 angles,
features as they come. ``--n_test`` takes fewer test digits, equally many of every class. ``--copies`` learns from so
many deformed copies of support vectors too, as the experiment does, and adds "--copies" to the record's name.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd.base.axes import LABEL
from gdd_book import checkout, records
from gdd_book.data import datasets
from gdd_book.evaluate.classify import error
from gdd_book.experiments.common import repeated
from gdd_book.experiments.studies.mnist_features import COPIED, PROTOCOL, copies_of
from gdd_book.experiments.studies.one_step import scattered

#: test digits of MNIST
ALL = 10000


def main() -> None:
    """Scatter, classify, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("interpreter", help="python with kymatio")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--n_test", type=int, default=ALL)
    parser.add_argument("--copies", type=int, default=0)
    given, started = parser.parse_args(), time.monotonic()
    test = datasets.load("mnist", "test", n=given.n_test, seed=0)
    after = scattered(test, given.interpreter)[0]
    errors = np.full((len(given.sizes), given.trials, 1), np.nan)
    for size, trial in repeated(given.sizes, given.trials, 1):
        train = datasets.load("mnist", "train", n=size, seed=trial)
        protocol = replace(PROTOCOL, tune_on=max(PROTOCOL.tune_on, size // 10))
        pair = scattered(train, given.interpreter)[0], after
        copies = copies_of(train, lambda images: scattered(images, given.interpreter)[0], given.copies, 0)
        found = error(pair[0], train[LABEL].values, pair[1], test[LABEL].values, protocol, trial, copies)
        errors[given.sizes.index(size), trial] = found.error
    kind = "scattering" if given.n_test == ALL else f"scattering ({given.n_test} test digits)"
    kind = COPIED.format(kind) if given.copies else kind
    dataset = xr.Dataset(
        {"error": (("size", "trial", "feature_kind"), errors), "features": ("feature_kind", [after.shape[1]])},
        {"size": given.sizes, "feature_kind": [kind]},
    )
    parameters = {"data": "mnist", "kinds": [kind], "sizes": given.sizes, "trials": given.trials, "trials_above": 1,
                  "n_test": given.n_test, "copies": given.copies}
    name = f"mnist-best--paper--scattering{'--copies' if given.copies else ''}.nc"
    path = records.write(
        checkout.results() / name, dataset, experiment="mnist-best", scale="paper",
        parameters=parameters, spec={"svm": PROTOCOL, "J": 2, "L": 8}, seed=0, data_name="mnist",
        data_checksum=test.attrs["checksum"], seconds=time.monotonic() - started,
    )
    print(path)


if __name__ == "__main__":
    main()
