"""How the classifier is tuned: the protocol as data, cross-validation on one shared kernel matrix.

All classes, folds and values of C use the same matrix of squared distances, formed once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numba
import numpy as np
import xarray as xr
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import SVC

from gdd.base.checks import GddError, check_choice, check_kind, check_memory, check_real, check_whole

COST, WIDTH = "cost", "gamma"
#: ends of the grids: beyond, the machines need hours or are all the same
GRID = (1e-6, 1e6)
#: seeds that scikit-learn takes
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class SvmProtocol:
    """How a classifier is tuned and trained.

    Attributes
    ----------
    costs : values of C tried
    gammas : values of gamma tried, in units of 1 / (median squared distance between training images)
    folds : of the stratified cross-validation
    tune_on : at most so many training images, drawn by class in proportion, are used for cross-validation; the final
        classifier is trained on all
    landmarks : the final classifier sees the kernel through so many training images, drawn at random (Nystroem's
        approximation); 0: the kernel itself, whose cost grows with the square of the images
    scaling : "overall" divides all features by one number, so that rarely used atoms stay small; "feature" gives every
        feature mean 0 and standard deviation 1. Both from training images only
    """

    costs: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0)
    gammas: tuple[float, ...] = (0.1, 0.3, 1.0, 2.0, 4.0)
    folds: int = 5
    tune_on: int = 3000
    landmarks: int = 0
    scaling: str = "overall"

    def __post_init__(self) -> None:
        for name, values in (("costs", self.costs), ("gammas", self.gammas)):
            check_kind(name, values, (tuple, list))
            if not values:
                raise GddError(f"{name}: {values} given; at least one positive finite number is needed")
            for value in values:
                check_real(name, value, *GRID, "a positive finite number")
        object.__setattr__(self, "folds", check_whole("folds", self.folds, 2))
        object.__setattr__(self, "tune_on", check_whole("tune_on", self.tune_on, self.folds))
        object.__setattr__(self, "landmarks", check_whole("landmarks", self.landmarks, 0))
        check_choice("scaling", self.scaling, ("overall", "feature"))


#: the paper's five folds, with grids and scaling of ours
FIVE_FOLD = SvmProtocol()


def tuning_subset(labels: np.ndarray, protocol: SvmProtocol, seed: int) -> np.ndarray:
    """Which training images cross-validation uses: all, or ``tune_on`` of them with the classes in proportion."""
    everything = np.arange(len(labels))
    check_memory("features, tune_on", min(len(labels), protocol.tune_on) ** 2)
    if len(labels) > protocol.tune_on:
        few, _ = train_test_split(everything, train_size=protocol.tune_on, stratify=labels, random_state=seed)
        everything = np.sort(few)
    names, counts = np.unique(labels[everything], return_counts=True)
    if counts.min() < protocol.folds:
        few = names[counts.argmin()]
        raise GddError(
            f"labels: class {few} has {counts.min()} images in the tuning set, {protocol.folds} folds need as many; "
            "add images, raise tune_on, or use fewer folds"
        )
    return everything


def squared_distances(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Squared distance of every row of one (a, feature) from every row of the other (b, feature): (a, b)."""
    lengths = [np.einsum("if,if->i", part, part) for part in (one, two)]
    return np.maximum(lengths[0][:, None] + lengths[1] - 2.0 * (one @ two.T), 0.0)


def gaussian_kernel(distances: np.ndarray, gamma: float) -> np.ndarray:
    """Values of the kernel, exp(-gamma * squared distance)."""
    return np.exp(-gamma * distances)


def cross_validate(distances, labels, classes, protocol: SvmProtocol, seed: int) -> xr.DataArray:
    """Cross-validation error in %, (cost, gamma); ``distances`` in units of their median."""
    folds = list(StratifiedKFold(protocol.folds, shuffle=True, random_state=seed).split(labels, labels))
    wrong = np.zeros((len(protocol.costs), len(protocol.gammas)), int)
    for column, gamma in enumerate(protocol.gammas):
        kernel = gaussian_kernel(distances, gamma)
        for train, held_out in folds:
            inner, outer = kernel[np.ix_(train, train)], kernel[np.ix_(held_out, train)]
            jobs = [(cost, name) for cost in protocol.costs for name in classes]
            values = in_parallel(
                lambda job, a=inner, b=outer, y=labels[train]: _decide(a, b, y == job[1], job[0]), jobs
            )
            values = np.reshape(values, (len(protocol.costs), len(classes), -1))
            wrong[:, column] += (classes[values.argmax(1)] != labels[held_out]).sum(1)
    return xr.DataArray(
        100.0 * wrong / len(labels), {COST: list(protocol.costs), WIDTH: list(protocol.gammas)}, (COST, WIDTH)
    )


def _decide(inner: np.ndarray, outer: np.ndarray, member: np.ndarray, cost: float) -> np.ndarray:
    machine = SVC(C=cost, kernel="precomputed", cache_size=200).fit(inner, member)
    return outer[:, machine.support_] @ machine.dual_coef_[0] + machine.intercept_[0]


def best_of(table: xr.DataArray) -> tuple[float, float]:
    """C and gamma of least error; of equal ones the smallest C, then the smallest gamma: the smoothest classifier."""
    ordered = table.sortby([COST, WIDTH])
    row, column = np.unravel_index(ordered.values.argmin(), ordered.shape)
    return float(ordered[COST][row]), float(ordered[WIDTH][column])


def in_parallel(function, jobs):
    """Return the results in the order of the jobs; threads, as libsvm lets go of the interpreter's lock."""
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        return list(pool.map(function, jobs))
