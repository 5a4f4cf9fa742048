"""Table 1 at every number of labels, with atoms from a thousand digits.

The paper learns its atoms from the digits whose labels it uses. Here the atoms come from a thousand digits whatever
the number of labels, so that the paper's chain lengths can be kept and each digit has one code for all rows of the
table. Page: book/mnist/error.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, FEATURE, IMAGE, LABEL, MAPS
from gdd.model.spec import MNIST
from gdd_book.data import datasets
from gdd_book.dictionaries import placed_atoms
from gdd_book.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd_book.experiments.mnist import KINDS
from gdd_book.experiments.path import FIRST_TEST_IMAGE, classify, encode, repeated
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies import precisions
from gdd_book.experiments.studies.mnist_readings import normalised
from gdd_book.progress import Run
from gdd_book.training import code_of

#: digits that are coded at a time: what an interrupted run loses
PART = 1000
#: beside the codes: the code of the same precisions without a choice of what is active, which is linear in the pixels;
#: each atom's largest normalised correlation; and what owes nothing to the model
RIDGE, DETECTORS, PIXELS = "ridge regression", "normalised detectors", "raw pixels"


@experiment(
    "mnist-labels", choices={"atoms": (*precisions.ATOMS, precisions.WINDOWS)}, seed=0, atoms=precisions.ATOMS[2],
    **precisions.AT_TEST,
    demo={"data": "digits", "sizes": (100, 200), "trials": 2, "trials_above": 1, "n_test": 200, "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "sizes": (1000, 2000, 5000, 10000, 60000), "trials": 10, "trials_above": 2,
           "n_test": 10000, "test_burn_in": 500, "test_collect": 200},
)
def mnist_labels(p: dict, run: Run) -> Outcome:
    """Code every training and test digit with the same atoms; classify with more and more labels.

    Features: the paper's sample of highest likelihood and the mean of its chain, 640 numbers; as many by ridge
    regression on the same placed atoms; the same atoms as detectors, 160 numbers; pixels. ``test_noise`` and
    ``test_ratio`` are gamma_e and rho of `gdd_book.experiments.studies.precisions`, where they were chosen. The record
    has the labels that the first subset of every size predicts.
    """
    train, test = datasets.load(p["data"], "train"), datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    runs = repeated(p["sizes"], p["trials"], p["trials_above"])
    runs = [(size, trial) for size, trial in runs if size < len(train) or not trial]  # all digits are one subset
    subsets = [datasets.load(p["data"], "train", n=size, seed=trial) for size, trial in runs]
    for (_, trial), subset in zip(runs, subsets, strict=True):  # before any chain: enough of each to tune on?
        tuning_subset(subset[LABEL].values, FIVE_FOLD, trial)
    train = train[np.isin(train.number, np.concatenate([subset.number for subset in subsets]))]
    atoms = precisions.learned_atoms(p["atoms"], p["seed"]).astype(np.float32)
    pair = precisions.precisions(atoms, p["test_noise"], p["test_ratio"])
    features = [_features(atoms, pair, images, p, run) for images in (train, test)]
    errors, predicted = [], []
    with run.bar(len(runs), "classifying") as bar:
        for (size, trial), subset in zip(runs, subsets, strict=True):
            rows = np.searchsorted(train.number, np.sort(subset.number))
            found = [
                _classified((features[0][name][rows], features[1][name]), train[rows], test, p | {
                    "size": size, "trial": trial, "feature": name, "precisions": pair,
                }, run) for name in features[0]
            ]
            errors.append([float(one.error) for one in found])
            predicted += [] if trial else [[one.predicted.values.astype(np.int8) for one in found]]
            bar.step()
    places = {"size": ("run", [size for size, _ in runs]), "trial": ("run", [trial for _, trial in runs])}
    table = xr.Dataset({"error": (("run", "feature_kind"), errors)}, {"feature_kind": list(features[0])} | places)
    table = table.set_index(run=["size", "trial"]).unstack("run").transpose("size", "trial", ...)
    table["predicted"] = ("size", "feature_kind", IMAGE), np.array(predicted)
    table[LABEL] = IMAGE, test[LABEL].values.astype(np.int8)
    table["active"] = float((features[1][KINDS[0]] != 0).sum(MAPS[1:]).mean())
    table["precisions"] = "precision", list(pair)
    return outcome(table.assign_coords(precision=["gamma_e", "gamma_w"]), p, test, protocol=FIVE_FOLD)


def _classified(
    pair: tuple[xr.DataArray, xr.DataArray], train: xr.DataArray, test: xr.DataArray, p: Mapping, run: Run
) -> xr.Dataset:
    """Error and predicted labels by one feature on one subset, which an interrupted run finds again."""
    settings = {name: p[name] for name in ("data", "seed", "atoms", "test_burn_in", "test_collect", "n_test")}
    settings |= {name: p[name] for name in ("size", "trial", "feature", "precisions")}
    return run.kept(
        "mnist-labels-classified", lambda: classify(pair, train, test, p["trial"])[["error", "predicted"]],
        train=np.asarray(pair[0]), test=np.asarray(pair[1]), settings=settings,
    )


def _features(
    atoms: np.ndarray, pair: tuple[float, float], images: xr.DataArray, p: Mapping, run: Run
) -> dict[str, xr.DataArray]:
    """Features of these digits by name; codes are computed in parts, which an interrupted run finds again."""
    split, names = images.attrs["split"], ("data", "seed", "atoms", "test_burn_in", "test_collect")
    depends = {name: p[name] for name in names} | {"split": split, "precisions": pair}
    stride, parts = precisions.STRIDE, []
    with run.bar(len(images), f"coding {split} digits") as bar:
        for low in range(0, len(images), PART):
            part = images[low : low + PART]
            first = low + (0 if split == "train" else FIRST_TEST_IMAGE)
            parts.append(run.kept(
                "mnist-labels",
                lambda part=part, first=first: encode(part, atoms, stride, pair, p, first_image=first)[[*KINDS]],
                images=part, atoms=atoms, first=first, settings=depends, code=code_of("inference"),
            ))
            bar.step(len(part))
    codes = xr.concat(parts, IMAGE)
    largest = xr.DataArray(normalised(images.values, atoms).max(axis=(2, 3)), dims=(IMAGE, ATOM))
    ridge = xr.DataArray(images.values.reshape(len(images), -1) @ ridge_map(atoms, *pair), dims=(IMAGE, FEATURE))
    return {kind: codes[kind] for kind in KINDS} | {RIDGE: ridge, DETECTORS: largest, PIXELS: images}


def ridge_map(atoms: np.ndarray, gamma_e: float, gamma_w: float) -> np.ndarray:
    r"""Posterior mean of all coefficients were all of them active, as a matrix (pixel, coefficient).

    .. math:: \hat S = (A A^\top + \tfrac{\gamma_w}{\gamma_e} I)^{-1} A x
    """
    norms = np.sqrt((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)))
    placed = placed_atoms(atoms, precisions.STRIDE, MNIST.image_size).astype(float)
    placed *= np.repeat(norms, len(placed) // len(atoms))[:, None]
    gram = placed @ placed.T + gamma_w / gamma_e * np.eye(len(placed))
    return np.linalg.solve(gram, placed).T.astype(np.float32)
