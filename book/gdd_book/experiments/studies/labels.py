"""Table 1 at every number of labels, with atoms from a thousand digits, so that each digit has one code."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, FEATURE, IMAGE, LABEL, MAPS
from gdd.model.spec import MNIST
from gdd_book.data import datasets
from gdd_book.dictionaries import placed_atoms
from gdd_book.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd_book.experiments import common
from gdd_book.experiments.studies import precisions
from gdd_book.experiments.studies.mnist_readings import normalised
from gdd_book.progress import Run

#: beside the codes: the code of the same precisions without a choice of what is active, which is linear in the pixels;
#: each atom's largest normalised correlation; and what owes nothing to the model
RIDGE, DETECTORS, PIXELS = "ridge regression", "normalised detectors", "raw pixels"


@common.experiment(
    "mnist-labels", choices={"atoms": (*precisions.ATOMS, precisions.WINDOWS)}, seed=0, atoms=precisions.ATOMS[2],
    **precisions.AT_TEST,
    demo={"data": "digits", "sizes": (100, 200), "trials": 2, "trials_above": 1, "n_test": 200, "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "sizes": (1000, 2000, 5000, 10000, 60000), "trials": 10, "trials_above": 2,
           "n_test": 10000, "test_burn_in": 500, "test_collect": 200},
)
def mnist_labels(p: dict, run: Run) -> common.Outcome:
    """Code every training and test digit with the same atoms; classify with more and more labels.

    Features: the paper's sample of highest likelihood and the mean of its chain, 640 numbers; as many by ridge
    regression on the same placed atoms; the same atoms as detectors, 160 numbers; pixels. ``test_noise`` and
    ``test_ratio`` are gamma_e and rho of `gdd_book.experiments.studies.precisions`, where they were chosen. The record
    has the labels that the first subset of every size predicts.
    """
    train, test = datasets.load(p["data"], "train"), datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    runs = common.repeated(p["sizes"], p["trials"], p["trials_above"])
    runs = [(size, trial) for size, trial in runs if size < len(train) or not trial]  # all digits are one subset
    subsets = [datasets.load(p["data"], "train", n=size, seed=trial) for size, trial in runs]
    for (_, trial), subset in zip(runs, subsets, strict=True):  # before any chain: enough of each to tune on?
        tuning_subset(subset[LABEL].values, FIVE_FOLD, trial)
    train = train[np.isin(train.number, np.concatenate([subset.number for subset in subsets]))]
    atoms = precisions.learned_atoms(p["atoms"], p["seed"]).astype(np.float32)
    pair = precisions.precisions(atoms, p["test_noise"], p["test_ratio"])
    features = [_features(atoms, pair, images, p, run) for images in (train, test)]
    found = {}
    with run.bar(len(runs), "classifying") as bar:
        for (size, trial), subset in zip(runs, subsets, strict=True):
            rows = np.searchsorted(train.number, np.sort(subset.number))
            kinds, own, labels = {}, train[rows], [train[rows][LABEL].values, test[LABEL].values]
            for name, before in features[0].items():
                pair = before[rows], features[1][name]
                kinds[name] = run.kept(
                    "mnist-labels-classified",
                    lambda pair=pair, own=own, n=trial: common.classify(pair, own, test, n)[["error", "predicted"]],
                    features=pair, labels=labels, trial=trial)
            found[size, trial] = common.along("feature_kind", kinds)
            bar.step()
    table = common.by_size({key: one[["error"]] for key, one in found.items()})
    predicted = [found[size, 0].predicted.values for size in p["sizes"]]
    table["predicted"] = ("size", "feature_kind", IMAGE), np.array(predicted, np.int8)
    table[LABEL] = IMAGE, test[LABEL].values.astype(np.int8)
    table["active"] = float((features[1][common.KINDS[0]] != 0).sum(MAPS[1:]).mean())
    table["precisions"] = "precision", list(pair)
    return common.outcome(table.assign_coords(precision=["gamma_e", "gamma_w"]), p, test, protocol=FIVE_FOLD)


def _features(
    atoms: np.ndarray, pair: tuple[float, float], images: xr.DataArray, p: Mapping, run: Run
) -> dict[str, xr.DataArray]:
    """Features of these digits by name."""
    codes = common.encode_kept(images, atoms, precisions.STRIDE, pair, p, run, f"coding {images.attrs['split']} digits")
    largest = xr.DataArray(normalised(images.values, atoms).max(axis=(2, 3)), dims=(IMAGE, ATOM))
    ridge = xr.DataArray(images.values.reshape(len(images), -1) @ ridge_map(atoms, *pair), dims=(IMAGE, FEATURE))
    return {kind: codes[kind] for kind in common.KINDS} | {RIDGE: ridge, DETECTORS: largest, PIXELS: images}


def ridge_map(atoms: np.ndarray, gamma_e: float, gamma_w: float) -> np.ndarray:
    r"""Posterior mean of all coefficients were all of them active, as a matrix (pixel, coefficient).

    .. math:: \hat S = (A A^\top + \tfrac{\gamma_w}{\gamma_e} I)^{-1} A x
    """
    norms = np.sqrt((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)))
    placed = placed_atoms(atoms, precisions.STRIDE, MNIST.image_size).astype(float)
    placed *= np.repeat(norms, len(placed) // len(atoms))[:, None]
    gram = placed @ placed.T + gamma_w / gamma_e * np.eye(len(placed))
    return np.linalg.solve(gram, placed).T.astype(np.float32)
