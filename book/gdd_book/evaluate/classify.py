"""The classifier of every table: one-vs-all support vector machines with a Gaussian kernel, tuned by cross-validation.

Tuning sees training images only. Every number that the protocol depends on is a field of `SvmProtocol`, and the result
carries the chosen values. The machines of two classes are scikit-learn's. Kernel matrices are formed outside of them,
once for all classes, folds and penalties: left to libsvm, the same search takes ten times as long.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import xarray as xr
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError
from gdd.base.compiling import thread_count
from gdd.inference.block_magnitudes import unfold

Array = np.ndarray | xr.DataArray
#: features of changed copies of the training images of these numbers, copy by copy
Copies = Callable[[np.ndarray], Iterable[Array]]

COST, WIDTH = "cost", "gamma"
#: images whose kernel values are held at once when decisions are computed
_CHUNK = 500
#: training images up to which the kernel matrix is formed at once (3.2 GB)
_WHOLE_KERNEL = 20000
#: how far a row may lie within the margin without being trained on; libsvm itself stops at 0.001
_SLACK = 0.005
#: median squared distance between scaled features below which they count as the same
ALIKE = 1e-12


@dataclass(frozen=True)
class SvmProtocol:
    """How a classifier is tuned; the final one is trained on all training images."""

    costs: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0)  # values of C tried
    #: values of gamma tried, in units of 1 / (median squared distance between training images)
    gammas: tuple[float, ...] = (0.1, 0.3, 1.0, 2.0, 4.0)
    folds: int = 5  # of the stratified cross-validation
    tune_on: int = 3000  # at most so many training images, drawn by class in proportion, are used for it


#: the paper's five folds, with grids of ours
FIVE_FOLD = SvmProtocol()


@dataclass(frozen=True)
class Svm:
    """A trained classifier: scaling, support vectors, and the chosen penalty and width."""

    scaler: StandardScaler = field(repr=False)
    classes: np.ndarray
    vectors: np.ndarray = field(repr=False)  # (vector, feature), scaled
    weights: np.ndarray = field(repr=False)  # (vector, class), 0 where a vector is none of a class's machine
    offsets: np.ndarray = field(repr=False)  # (class,)
    cost: float
    gamma: float  # for scaled features, in absolute terms
    table: xr.DataArray = field(repr=False)  # cross-validation error in %, (cost, gamma), in the protocol's units

    def decide(self, features: Array) -> np.ndarray:
        """Decision of every class's machine on every image, (image, class)."""
        features = self.scaler.transform(unfold(features).values.astype(float))
        return _decide(features, self.vectors, self.weights, self.gamma) + self.offsets

    def predict(self, features: Array) -> np.ndarray:
        """Label of every image: the class of the largest decision."""
        return self.classes[self.decide(features).argmax(1)]


def fit_svm(
    features: Array, labels: np.ndarray, protocol: SvmProtocol = FIVE_FOLD, seed: int = 0, copies: Copies | None = None
) -> Svm:
    """Tune and train the classifier on training images.

    features : (image, ...)   unfolded to (image, feature)
    labels : (image,)
    seed : of the choice of images for tuning and of the folds
    copies : features (copy, image, feature) of changed copies of some training images, given the images' numbers. Each
        class's machine is then trained anew on its own support vectors and their copies, with the cost and the width
        chosen before (virtual support vectors, DeCoste & Schölkopf, Machine Learning 46, 2002)

    Source: Pu, Yuan & Carin 2015, supplement, "Testing": one-vs-all, Gaussian kernel, 5-fold cross-validation.
    Departs: tuning on at most ``protocol.tune_on`` images; the paper gives no grids, no scaling and no copies.
    Checked: tests/test_classify.py (against scikit-learn's own classifier; labels of test images have no influence).
    """
    features, labels = unfold(features).values.astype(float), np.asarray(labels)
    if labels.shape != (len(features),):
        raise GddError(f"labels: shape {labels.shape} given, {len(features)} images need as many labels")
    scaler = StandardScaler().fit(features)
    # one number for all features, so that rarely used atoms stay small
    scaler.scale_ = np.full(features.shape[1], np.sqrt(scaler.var_.mean()) or 1.0)
    features, chosen = scaler.transform(features), tuning_subset(labels, protocol, seed)
    distances = euclidean_distances(features[chosen], squared=True)
    median = np.median(distances[np.triu_indices(len(chosen), 1)])
    if median <= ALIKE:
        raise GddError("features: half of all pairs of images have the same features, and cannot be told apart")
    table = cross_validate(distances / median, labels[chosen], protocol, seed)
    cost, gamma = best_of(table)[0], best_of(table)[1] / median
    classes, in_threads = np.unique(labels), Parallel(thread_count(), "threading")  # libsvm releases Python's lock
    start = _start(features, labels, gamma)
    machines = in_threads(delayed(_train)(features, labels == name, start, cost, gamma) for name in classes)
    weights, offsets = map(np.array, zip(*machines, strict=True))  # (class, image), (class,)
    used = np.flatnonzero(weights.any(axis=0))
    if copies is not None:
        changed = [scaler.transform(unfold(one).values.astype(np.float32)) for one in copies(used)]
        if any(len(one) != len(used) for one in changed):
            raise GddError(f"copies: {len(used)} images asked for, {[len(one) for one in changed]} given")
        features, labels = np.concatenate([features[used].astype(np.float32), *changed]), labels[used]
        machines = in_threads(delayed(_train_again)(features, labels == name, own != 0, cost, gamma)
                              for name, own in zip(classes, weights[:, used], strict=True))
        weights, offsets = map(np.array, zip(*machines, strict=True))
        used = np.flatnonzero(weights.any(axis=0))
    return Svm(scaler, classes, features[used].astype(float), weights[:, used].T, offsets, cost, gamma, table)


def _start(features: np.ndarray, labels: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Which images machines are trained on at first, all or as many as their kernel matrix may fit, and that matrix."""
    rows = np.arange(len(features))
    if len(rows) > _WHOLE_KERNEL:
        rows = np.sort(train_test_split(rows, train_size=_WHOLE_KERNEL // 2, stratify=labels, random_state=0)[0])
    return rows, rbf_kernel(features[rows], gamma=gamma)


def _train(
    features: np.ndarray, right: np.ndarray, start: tuple[np.ndarray, np.ndarray], cost: float, gamma: float
) -> tuple[np.ndarray, float]:
    """Train one class against the rest: signed weights (image,), 0 of what is no support vector, and the offset.

    ``right`` (image,) : whether an image is of the class. Where ``start`` does not have all images, the machine is
    trained again on its support vectors and all images within its margin, with those that it newly has there, until
    there are none (chunking; Osuna, Freund & Girosi, IEEE NNSP 1997). This is the machine that all images give, up to
    ``_SLACK``.
    """
    rows, kernel = start
    weights, offset = _train_on_kernel(kernel, right, rows, cost)
    whole, rows, sign = len(rows) == len(features), np.flatnonzero(weights), np.where(right, 1, -1)
    while not whole:
        used = np.flatnonzero(weights)
        decided = _decide(features, features[used], weights[used], gamma) + offset
        grown = np.union1d(rows, np.flatnonzero(sign * decided < 1 - _SLACK))
        if len(grown) == len(rows):
            break
        rows = grown
        weights, offset = _train_on_kernel(rbf_kernel(features[rows], gamma=gamma), right, rows, cost)
    return weights, offset


def _train_again(
    features: np.ndarray, right: np.ndarray, vectors: np.ndarray, cost: float, gamma: float
) -> tuple[np.ndarray, float]:
    """Train on some images, ``vectors`` (image,) of bool, and their copies; ``features`` has all, copy by copy."""
    copies = len(features) // len(right)
    rows, weights = np.flatnonzero(np.tile(vectors, copies)), np.zeros(len(features))
    own, right = features[rows], np.tile(right, copies)[rows]
    weights[rows], offset = _train(own, right, _start(own, right, gamma), cost, gamma)
    return weights, offset


def _train_on_kernel(kernel: np.ndarray, right: np.ndarray, rows: np.ndarray, cost: float) -> tuple[np.ndarray, float]:
    """Train on these rows, whose kernel matrix is given; weights are of all images."""
    found, weights = SVC(C=cost, kernel="precomputed", cache_size=500).fit(kernel, right[rows]), np.zeros(len(right))
    weights[rows[found.support_]] = found.dual_coef_[0]
    return weights, found.intercept_[0]


def _decide(features: np.ndarray, vectors: np.ndarray, weights: np.ndarray, gamma: float) -> np.ndarray:
    """Decisions without their offsets, a part of the images at a time."""
    parts = (features[low : low + _CHUNK] for low in range(0, len(features), _CHUNK))
    return np.concatenate([rbf_kernel(part, vectors, gamma) @ weights for part in parts])


def error(
    train_features: Array, train_labels: np.ndarray, test_features: Array, test_labels: np.ndarray,
    protocol: SvmProtocol = FIVE_FOLD, seed: int = 0, copies: Copies | None = None,
) -> xr.Dataset:
    """Test error of a classifier tuned and trained on the training images alone, see `fit_svm`.

    Returns ``error`` in %, ``wrong`` (a count), ``predicted`` (image,), ``cross_validation`` error in % (cost, gamma);
    the attributes ``chosen_cost`` and ``chosen_gamma``.
    """
    truth = np.asarray(test_labels)
    if truth.shape != (len(unfold(test_features)),) or not len(truth):
        raise GddError(f"test_labels: shape {truth.shape} given, {len(test_features)} test images; one or more needed")
    svm = fit_svm(train_features, train_labels, protocol, seed, copies)
    predicted = svm.predict(test_features)
    wrong = int((predicted != truth).sum())
    return xr.Dataset(
        {"error": 100.0 * wrong / len(truth), "wrong": wrong, "predicted": (IMAGE, predicted),
         "cross_validation": svm.table},
        attrs={"chosen_cost": svm.cost, "chosen_gamma": svm.gamma},
    )


def tuning_subset(labels: np.ndarray, protocol: SvmProtocol, seed: int) -> np.ndarray:
    """Which training images cross-validation uses: all, or ``tune_on`` of them with the classes in proportion."""
    chosen, (names, counts) = np.arange(len(labels)), np.unique(labels, return_counts=True)
    if len(names) < 2:
        raise GddError(f"labels: all are {names[0]}; at least two classes are needed")
    if protocol.tune_on < protocol.folds * len(names):
        raise GddError(f"tune_on: {protocol.tune_on} given; {protocol.folds} folds of {len(names)} classes need more")
    if len(labels) >= protocol.tune_on + len(names) and counts.min() >= protocol.folds:
        chosen = np.sort(train_test_split(chosen, train_size=protocol.tune_on, stratify=labels, random_state=seed)[0])
        names, counts = np.unique(labels[chosen], return_counts=True)
    if counts.min() < protocol.folds:
        raise GddError(
            f"labels: class {names[counts.argmin()]} has {counts.min()} images in the tuning set, {protocol.folds} "
            "folds need as many; add images, raise tune_on, or use fewer folds"
        )
    return chosen


def cross_validate(distances: np.ndarray, labels: np.ndarray, protocol: SvmProtocol, seed: int) -> xr.DataArray:
    """Cross-validation error in %, (cost, gamma), from squared distances (image, image) in units of their median."""
    folds = list(StratifiedKFold(protocol.folds, shuffle=True, random_state=seed).split(labels, labels))
    classes = np.unique(labels)

    def count_wrong(kernel: np.ndarray, cost: float, train: np.ndarray, test: np.ndarray) -> int:
        with config_context(assume_finite=True, skip_parameter_validation=True):
            inner = kernel[np.ix_(train, train)]
            machines = [_train_on_kernel(inner, labels == name, train, cost) for name in classes]
        weights, offsets = map(np.array, zip(*machines, strict=True))
        return (classes[np.argmax(kernel[test] @ weights.T + offsets, axis=1)] != labels[test]).sum()

    in_threads, wrong = Parallel(thread_count(), "threading"), []  # (gamma, cost, fold)
    for gamma in protocol.gammas:
        kernel, jobs = np.exp(-gamma * distances), product(protocol.costs, folds)
        wrong.append(in_threads(delayed(count_wrong)(kernel, cost, *fold) for cost, fold in jobs))
    wrong = np.reshape(wrong, (len(protocol.gammas), len(protocol.costs), -1)).sum(2).T
    grid = {COST: list(protocol.costs), WIDTH: list(protocol.gammas)}
    return xr.DataArray(100.0 * wrong / len(labels), grid, (COST, WIDTH))


def best_of(table: xr.DataArray) -> tuple[float, float]:
    """C and gamma of least error; of equal ones the smallest C, then the smallest gamma: the smoothest classifier."""
    ordered = table.sortby([COST, WIDTH])
    row, column = np.unravel_index(ordered.values.argmin(), ordered.shape)
    return float(ordered[COST][row]), float(ordered[WIDTH][column])
