"""Table 1 at every number of labels, with the atoms of a model that the book ships.

The paper learns its atoms from the digits whose labels it uses. Here the atoms come from a thousand digits whatever
the number of labels, so that the paper's chain lengths can be kept and each digit has one code for all rows of the
table. Page: book/mnist/error.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd import DeepDeconvolution
from gdd.base.axes import ATOM, IMAGE, LABEL, MAPS
from gdd.inference.infer import precisions_of
from gdd_book import models
from gdd_book.data import datasets
from gdd_book.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd_book.experiments.mnist import KINDS, tuned
from gdd_book.experiments.path import FIRST_TEST_IMAGE, encode, repeated
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.mnist_readings import normalised
from gdd_book.progress import Run
from gdd_book.training import code_of, kept

#: digits that are coded at a time: what an interrupted run loses
PART = 1000
#: read from the same atoms without any chain, one number an atom
DETECTORS = "normalised detectors"


@experiment(
    "mnist-labels", seed=0, model="mnist-1000-refined",
    demo={"data": "digits", "sizes": (100, 200), "trials": 2, "trials_above": 1, "n_test": 200, "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "sizes": (1000, 2000, 5000, 10000, 60000), "trials": 10, "trials_above": 2,
           "n_test": 10000, "test_burn_in": 500, "test_collect": 200},
)
def mnist_labels(p: dict, run: Run) -> Outcome:
    """Code every training and test digit with the atoms of a model that is shipped; classify with more and more labels.

    Features: the paper's sample of highest likelihood and the mean of its chain, 640 numbers; the same atoms read
    without a chain, 160 numbers. From 20,000 labels on the classifier sees the kernel through landmarks.
    """
    train, test = datasets.load(p["data"], "train"), datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    runs = repeated(p["sizes"], p["trials"], p["trials_above"])
    runs = [(size, trial) for size, trial in runs if size < len(train) or not trial]  # all digits are one subset
    subsets = [datasets.load(p["data"], "train", n=size, seed=trial) for size, trial in runs]
    for (_, trial), subset in zip(runs, subsets, strict=True):  # before any chain: enough of each to tune on?
        tuning_subset(subset[LABEL].values, FIVE_FOLD, trial)
    train = train[np.isin(train.number, np.concatenate([subset.number for subset in subsets]))]
    model = models.load(p["model"])
    features = [_features(model, images, p, run) for images in (train, test)]
    errors = []
    with run.bar(len(runs), "classifying") as bar:
        for (_, trial), subset in zip(runs, subsets, strict=True):
            rows = np.searchsorted(train.number, np.sort(subset.number))
            pairs = [(features[0][name][rows], features[1][name]) for name in features[0]]
            errors.append([tuned(pair, train[rows], test, trial).error.item() for pair in pairs])
            bar.step()
    places = {"size": ("run", [size for size, _ in runs]), "trial": ("run", [trial for _, trial in runs])}
    table = xr.Dataset({"error": (("run", "feature_kind"), errors)}, {"feature_kind": list(features[0])} | places)
    table = table.set_index(run=["size", "trial"]).unstack("run").transpose("size", "trial", ...)
    table["active"] = float((features[1][KINDS[0]] != 0).sum(MAPS[1:]).mean())
    return outcome(table, p, test, model=model.model_, protocol=FIVE_FOLD)


def _features(model: DeepDeconvolution, images: xr.DataArray, p: Mapping, run: Run) -> dict[str, xr.DataArray]:
    """Features of these digits by name; codes are computed in parts, which an interrupted run finds again."""
    trained, atoms = model.chains_[0], model.atoms_.values.astype(np.float32)
    split = images.attrs["split"]
    depends = {name: p[name] for name in ("data", "seed", "model", "test_burn_in", "test_collect")} | {"split": split}
    folder, parts = run.folder("mnist-labels", depends | {"n": len(images)}), []
    with run.bar(len(images), f"coding {split} digits") as bar:
        for low in range(0, len(images), PART):
            part = images[low : low + PART]
            first = low + (0 if split == "train" else FIRST_TEST_IMAGE)
            parts.append(kept(
                folder and folder / f"{low}.nc",
                lambda part=part, first=first: encode(
                    part, atoms, trained.model.stride, precisions_of(trained), p, first_image=first
                )[[*KINDS]],
                images=part, atoms=atoms, settings=depends, code=code_of("inference"),
            ))
            bar.step(len(part))
    codes = xr.concat(parts, IMAGE)
    largest = xr.DataArray(normalised(images.values, atoms).max(axis=(2, 3)), dims=(IMAGE, ATOM))
    return {kind: codes[kind] for kind in KINDS} | {DETECTORS: largest}
