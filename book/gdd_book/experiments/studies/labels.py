"""Table 1 at every number of labels, with atoms from as many digits as one chooses, so that each digit has one code."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import ATOM, DICTIONARY, FEATURE, IMAGE, LABEL, MAPS
from gdd.model.spec import MNIST
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.dictionaries import placed_atoms
from gdd_book.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd_book.experiments import common
from gdd_book.experiments.atoms import describe_projection, in_own_percents, most_used
from gdd_book.experiments.studies import precisions
from gdd_book.experiments.studies.depth import hidden_errors, other_digits, plain_errors
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
    subsets, train, test = _subsets(p)
    atoms = precisions.learned_atoms(p["atoms"], p["seed"]).astype(np.float32)
    pair = precisions.precisions(atoms, p["test_noise"], p["test_ratio"])
    features = [_features(atoms, pair, images, p, run) for images in (train, test)]
    found = _classified(features, subsets, train, test, run)
    table = common.by_size({key: one[["error"]] for key, one in found.items()})
    predicted = [found[size, 0].predicted.values for size in p["sizes"]]
    table["predicted"] = ("size", "feature_kind", IMAGE), np.array(predicted, np.int8)
    table[LABEL] = IMAGE, test[LABEL].values.astype(np.int8)
    table["active"] = float((features[1][common.KINDS[0]] != 0).sum(MAPS[1:]).mean())
    table["precisions"] = "precision", list(pair)
    return common.outcome(table.assign_coords(precision=["gamma_e", "gamma_w"]), p, test, protocol=FIVE_FOLD)


def _subsets(p: Mapping) -> tuple[dict[tuple[int, int], np.ndarray], xr.DataArray, xr.DataArray]:
    """Numbers of the training digits of each (size, trial), all of these digits, and the test digits."""
    train, test = datasets.load(p["data"], "train"), datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    runs = common.repeated(p["sizes"], p["trials"], p["trials_above"])
    runs = [(size, trial) for size, trial in runs if size < len(train) or not trial]  # all digits are one subset
    subsets = {run: datasets.load(p["data"], "train", n=run[0], seed=run[1]) for run in runs}
    for (_, trial), subset in subsets.items():  # before any chain: enough of each to tune on?
        tuning_subset(subset[LABEL].values, FIVE_FOLD, trial)
    numbers = {run: np.sort(subset.number) for run, subset in subsets.items()}
    return numbers, train[np.isin(train.number, np.concatenate([*numbers.values()]))], test


def _classified(
    features: Sequence[Mapping[str, xr.DataArray]], subsets: Mapping[tuple[int, int], np.ndarray], train: xr.DataArray,
    test: xr.DataArray, run: Run,
) -> dict[tuple[int, int], xr.Dataset]:
    """Errors and predicted labels of every subset by feature, from features of ``train`` and of ``test`` by name."""
    found = {}
    with run.bar(len(subsets), "classifying") as bar:
        for (size, trial), numbers in subsets.items():
            rows = np.searchsorted(train.number, numbers)
            kinds, own, labels = {}, train[rows], [train[rows][LABEL].values, test[LABEL].values]
            for name, before in features[0].items():
                pair = before[rows], features[1][name]
                kinds[name] = run.kept(
                    "mnist-labels-classified",
                    lambda pair=pair, own=own, n=trial: common.classify(pair, own, test, n)[["error", "predicted"]],
                    features=pair, labels=labels, trial=trial)
            found[size, trial] = common.along("feature_kind", kinds)
            bar.step()
    return found


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


# ---- atoms from more digits
@common.experiment(
    "mnist-more-digits", seed=0, **training.DEEP_DIGITS, learned_planes=True, dictionary_every=4, **precisions.AT_TEST,
    demo={"data": "digits", "learned_from": (100, 200), "n_others": 20, "sizes": (100, 200), "trials": 2,
          "trials_above": 1, "n_test": 200, "burn_in": 20, "collect": 10, "refine_burn_in": 20, "refine_collect": 10,
          "test_burn_in": 20, "test_collect": 10},
    paper={"data": "mnist", "learned_from": (1000, 10000), "n_others": 1000, "sizes": (1000, 10000), "trials": 5,
           "trials_above": 1, "n_test": 10000, "burn_in": 150, "collect": 50, "refine_burn_in": 150,
           "refine_collect": 50, "test_burn_in": 100, "test_collect": 50},
)
def mnist_more_digits(p: dict, run: Run) -> common.Outcome:
    """Learn from more digits in chains of the same length; fill in the same halves, classify with the same labels.

    For each (learned_from, stage): test error in % by size, trial and feature, which are those of `mnist_labels` but
    for ridge regression and pixels; refined, also what the projection loses, the atoms used most, and the squared error
    on hidden pixels of ``n_others`` / 5 training digits that no model learned from, and of methods that know no layers
    and learn from as many digits.
    """
    subsets, train, test = _subsets(p)
    largest = datasets.load(p["data"], "train", n=max(p["learned_from"]), seed=p["seed"])
    others, rows = other_digits(p, largest), {}
    for n in p["learned_from"]:
        own, stages = p | {"n_train": n}, {}
        trained = training.trained_models(own, run, label=f"{n} digits, ")
        for stage, one in trained.items():
            projected = project(one)
            atoms = projected.values.astype(np.float32)
            pair = precisions.precisions(atoms, p["test_noise"], p["test_ratio"])
            both = [_features(atoms, pair, images, p, run) for images in (train, test)]
            features = [{name: values[name] for name in (*common.KINDS, DETECTORS)} for values in both]
            stages[stage] = common.by_size({
                key: part[["error"]] for key, part in _classified(features, subsets, train, test, run).items()
            })
        described = describe_projection(projected, one.state, one.model)
        without = plain_errors(others, training.digits(own), p)
        rows[n] = common.along("stage", stages).merge(hidden_errors(one, others, p)).merge(without).assign({
            "projection_error": described.projection_error.mean(),
            "most_used": (("shown", *DICTIONARY[1:]), in_own_percents(most_used(atoms, described.uses.values))),
            "cpu_seconds": float(one.traces.attrs["cpu_seconds"]),
        })
    return common.outcome(common.along("learned_from", rows), p, test, model=one.model, protocol=FIVE_FOLD)
