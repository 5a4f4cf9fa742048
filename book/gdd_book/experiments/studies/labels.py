"""Table 1 at every number of labels, with the atoms of a model that the book ships.

The paper learns its atoms from the digits whose labels it uses. Here the atoms come from a thousand digits whatever
the number of labels, so that the paper's chain lengths can be kept and each digit has one code for all rows of the
table. Page: book/mnist/error. With the same atoms, other uses of the paper's sample; page: book/model/depth.
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
from gdd_book.evaluate.classify import FIVE_FOLD, SvmProtocol, best_of, tuning_subset
from gdd_book.experiments.mnist import KINDS, tuned
from gdd_book.experiments.path import FIRST_TEST_IMAGE, classify, encode, repeated
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.depth import other_digits
from gdd_book.experiments.studies.mnist_features import copies_of
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


# ---- other uses of the paper's sample


@experiment(
    "mnist-votes", seed=0, model="mnist-1000-refined",
    demo={"data": "digits", "n_train": 200, "n_others": 100, "test_burn_in": 10, "test_collect": 5, "chains": 3,
          "copies": 1},
    paper={"data": "mnist", "n_train": 1000, "n_others": 1000, "test_burn_in": 100, "test_collect": 50, "chains": 9,
           "copies": 3},
)
def mnist_votes(p: dict, run: Run) -> Outcome:
    """Error in % on other training digits by reading: one sample, deformed copies, several chains' machines voting.

    Each of the ``chains`` codes all digits anew, and a machine learns from its samples alone. The first is tuned; all
    have its cost and width. Of a vote the class named most often wins, of equal ones the first. With deformed copies
    the first chain's machine learns from its support vectors again, in ``copies`` changed forms that are coded too.
    """
    train = datasets.load(p["data"], "train", n=p["n_train"], seed=p["seed"])
    both, model = (train, other_digits(p, train)), models.load(p["model"])
    trained, atoms, named = model.chains_[0], model.atoms_.values.astype(np.float32), []

    def sample(images: xr.DataArray, first: int = 0, chain: int = 0) -> xr.DataArray:
        seed = 1000 * chain + p["seed"]
        return encode(
            images, atoms, trained.model.stride, precisions_of(trained), p, seed=seed, first_image=first
        ).ml_sample

    with run.bar(p["chains"] + 1, "classifying") as bar:
        for chain in range(p["chains"]):
            pair = [sample(images, first, chain) for images, first in zip(both, (0, FIRST_TEST_IMAGE), strict=True)]
            if not chain:
                alone = classify(once := pair, *both, p["seed"])
                cost, gamma = best_of(alone.cross_validation)
                tuned_once = SvmProtocol(costs=(cost,), gammas=(gamma,))
            named.append(classify(pair, *both, p["seed"], tuned_once).predicted.values)
            bar.step()
        copied = classify(once, *both, p["seed"], tuned_once, copies_of(train, sample, p["copies"], p["seed"]))
        bar.step()
    names, truth = np.unique(train[LABEL].values), both[1][LABEL].values
    votes = names[(np.array(named)[:, None] == names[:, None]).sum(axis=0).argmax(axis=0)]
    each = 100 * (np.array(named) != truth).mean(axis=1)
    errors = {"one sample": float(alone.error), "one sample, deformed copies": float(copied.error),
              "several chains, a machine each, voting": 100 * float((votes != truth).mean())}
    dataset = xr.Dataset({"error": ("reading", list(errors.values())), "each": ("chain", each)},
                         {"reading": list(errors)})
    return outcome(dataset, p, train, model=model.model_, protocol=FIVE_FOLD)
