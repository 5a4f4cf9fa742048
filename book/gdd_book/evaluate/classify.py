"""The classifier of every table: one-vs-all support vector machines with a Gaussian kernel, tuned by cross-validation.

Tuning sees training images only. Every number that the protocol depends on is a field of `SvmProtocol`, and the result
carries the chosen values. The machines are scikit-learn's. Kernel matrices are formed outside of them, once for all
classes, folds and penalties (up to 20,000 images): left to libsvm, the same search takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import xarray as xr
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError, check_memory
from gdd.base.compiling import thread_count
from gdd.inference.features import unfold

Array = np.ndarray | xr.DataArray
#: features of changed copies of the training images of these numbers, copy by copy
Copies = Callable[[np.ndarray], Iterable[Array]]

COST, WIDTH = "cost", "gamma"
#: images whose kernel values are held at once when labels are predicted
_CHUNK = 500
#: training images up to which the kernel matrix is formed at once (3.2 GB)
_WHOLE_KERNEL = 20000
#: how far a row may lie within the margin without being trained on; libsvm itself stops at 0.001
_SLACK = 0.005
#: median squared distance between scaled features below which they count as the same
ALIKE = 1e-12


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
    """

    costs: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0)
    gammas: tuple[float, ...] = (0.1, 0.3, 1.0, 2.0, 4.0)
    folds: int = 5
    tune_on: int = 3000
    landmarks: int = 0


#: the paper's five folds, with grids of ours
FIVE_FOLD = SvmProtocol()


@dataclass(frozen=True)
class Svm:
    """A trained classifier: scaling, kernel, and one machine per class.

    Attributes
    ----------
    machine : scikit-learn's pipeline
    cost, gamma : chosen; gamma for scaled features, in absolute terms
    table : cross-validation error in %, (cost, gamma), gamma in the protocol's units
    """

    machine: Pipeline = field(repr=False)
    cost: float
    gamma: float
    table: xr.DataArray = field(repr=False)

    def predict(self, features: Array) -> np.ndarray:
        """Label of every image."""
        features = unfold(features).values
        parts = range(0, len(features), _CHUNK)
        return np.concatenate([self.machine.predict(features[low : low + _CHUNK].astype(float)) for low in parts])


class WorkingSet(BaseEstimator):
    """scikit-learn's machine of two classes, trained on the images that matter, as the kernel of all may not fit.

    Of more than ``_WHOLE_KERNEL`` images it is trained on half so many, drawn at random. Then it is trained on their
    support vectors and on all images within its margin; those that it newly has there are added, until there are none
    (chunking; Osuna, Freund & Girosi, IEEE NNSP 1997). This is the machine that all images give, up to ``_SLACK``.

    Attributes
    ----------
    support_ : numbers of the support vectors, ascending
    """

    def __init__(self, cost: float = 1.0, gamma: float = 1.0):
        self.cost = cost
        self.gamma = gamma

    def fit(self, features, right):
        """Train; ``right``: (image,), whether an image is of the class."""
        some, in_parts = np.arange(len(features)), len(features) > _WHOLE_KERNEL
        if in_parts:
            some = train_test_split(some, train_size=_WHOLE_KERNEL // 2, stratify=right, random_state=0)[0]
        self._fit(features, right, np.sort(some))
        some, sign = self.support_, np.where(right, 1, -1)
        while in_parts:
            within = np.flatnonzero(sign * self.decision_function(features) < 1 - _SLACK)
            grown = np.union1d(some, within)
            if len(grown) == len(some):
                break
            some = grown
            self._fit(features, right, some)
        return self

    def _fit(self, features, right, some):
        check_memory("features, those within the margin", len(some) ** 2)
        kernel = rbf_kernel(features[some], gamma=self.gamma)
        found = SVC(C=self.cost, kernel="precomputed", cache_size=500).fit(kernel, right[some])
        self.support_, self.weights_, self.offset_ = some[found.support_], found.dual_coef_[0], found.intercept_[0]
        self.vectors_ = features[self.support_]

    def decision_function(self, features):
        """Decision on every image, (image,)."""
        parts = (features[low : low + _CHUNK] for low in range(0, len(features), _CHUNK))
        kernels = (rbf_kernel(part, self.vectors_, self.gamma) for part in parts)
        return np.concatenate([kernel @ self.weights_ for kernel in kernels]) + self.offset_


class OneVsRest(ClassifierMixin, BaseEstimator):
    """A copy of a machine for each class against all others; the largest decision wins.

    scikit-learn's own resets, in threads, the warnings of the whole process, and then warns that there are none.
    """

    def __init__(self, machine, threads: int = 1):
        self.machine = machine
        self.threads = threads

    def fit(self, features, labels):
        """Fit every class in a thread."""
        classes = np.unique(labels)
        fits = (delayed(clone(self.machine).fit)(features, labels == one) for one in classes)
        self.classes_, self.estimators_ = classes, Parallel(self.threads, "threading")(fits)
        return self

    def decision_function(self, features):
        """Decision of every machine, (image, class)."""
        return np.stack([machine.decision_function(features) for machine in self.estimators_], axis=1)

    def predict(self, features):
        """Label of every image."""
        return self.classes_[self.decision_function(features).argmax(1)]


def fit_svm(
    features: Array, labels: np.ndarray, protocol: SvmProtocol = FIVE_FOLD, seed: int = 0, copies: Copies | None = None
) -> Svm:
    """Tune and train the classifier on training images.

    Parameters
    ----------
    features : (image, ...)   unfolded to (image, feature)
    labels : (image,)
    protocol : grids, folds
    seed : of the choice of images for tuning, of the folds and of the landmarks
    copies : features (copy, image, feature) of changed copies of some training images, given the images' numbers; not
        with landmarks. Each class's machine is then trained anew on its own support vectors and their copies, with the
        cost and the width chosen before (virtual support vectors, DeCoste & Schölkopf, Machine Learning 46, 2002)

    Notes
    -----
    Of equal cross-validation errors the smallest C wins, then the smallest gamma: the smoothest classifier.

    Source: Pu, Yuan & Carin 2015, supplement, "Testing": one-vs-all, Gaussian kernel, 5-fold cross-validation.
    Departs: tuning on at most ``protocol.tune_on`` images; the paper gives no grids and no scaling, and does not
    mention copies. With landmarks the final machines are scikit-learn's linear ones: errors count squared, the
    intercept is penalised too, and C is the one that was best without either. Beyond 20,000 images see `WorkingSet`.
    Checked: tests/test_classify.py (against scikit-learn's own classifier; labels of test images have no influence).
    """
    if copies is not None and protocol.landmarks:
        raise GddError(f"copies: given with {protocol.landmarks} landmarks, which leave no support vectors; give 0")
    features, labels = unfold(features).values.astype(float), np.asarray(labels)
    if labels.shape != (len(features),):
        raise GddError(f"labels: shape {labels.shape} given, {len(features)} images need as many labels")
    scaler = StandardScaler().fit(features)
    overall = np.sqrt(scaler.var_.mean())  # one number for all features, so that rarely used atoms stay small
    scaler.scale_ = np.full(features.shape[1], overall if overall > 0 else 1.0)
    features, chosen = scaler.transform(features), tuning_subset(labels, protocol, seed)
    distances = euclidean_distances(features[chosen], squared=True)
    median = np.median(distances[np.triu_indices(len(chosen), 1)])
    if median <= ALIKE:
        raise GddError("features: half of all pairs of images have the same features, and cannot be told apart")
    table = cross_validate(distances / median, labels[chosen], protocol, seed)
    cost, gamma = best_of(table)[0], best_of(table)[1] / median
    threads = thread_count()
    if protocol.landmarks:
        kernel = Nystroem(kernel="rbf", gamma=gamma, n_components=protocol.landmarks, random_state=seed)
        each = LinearSVC(C=cost, dual=False)
    elif len(features) <= _WHOLE_KERNEL:
        kernel = FunctionTransformer(rbf_kernel, kw_args={"Y": features, "gamma": gamma})
        each = SVC(C=cost, kernel="precomputed", cache_size=500)
    else:
        kernel, each = "passthrough", WorkingSet(cost, gamma)
    machine = make_pipeline(scaler, kernel, OneVsRest(each, threads))
    machine[1:].fit(features, labels)
    if copies is not None:
        used = np.unique(np.concatenate([one.support_ for one in machine[-1].estimators_]))
        changed = [scaler.transform(unfold(one).values.astype(np.float32)) for one in copies(used)]
        if any(len(one) != len(used) for one in changed):
            raise GddError(f"copies: {len(used)} images asked for, {[len(one) for one in changed]} given")
        rows = [features[used].astype(np.float32), *changed]
        machine = make_pipeline(scaler, _retrained(machine[-1], rows, used, labels, WorkingSet(cost, gamma)))
    return Svm(machine, cost, gamma, table)


def _retrained(
    first: OneVsRest, rows: list[np.ndarray], used: np.ndarray, labels: np.ndarray, machine: WorkingSet
) -> OneVsRest:
    """The machine of every class, trained on the support vectors of its first one and on their copies.

    rows : (image, feature) of the images themselves and of each copy; ``used`` : the images' numbers, ascending
    """

    def again(one: SVC | WorkingSet, name) -> WorkingSet:
        places = np.searchsorted(used, one.support_)
        own = np.concatenate([copy[places] for copy in rows])
        return clone(machine).fit(own, np.tile(labels[one.support_] == name, len(rows)))

    second = OneVsRest(machine, first.threads)
    second.classes_, pairs = first.classes_, zip(first.estimators_, first.classes_, strict=True)
    second.estimators_ = Parallel(first.threads, "threading")(delayed(again)(*pair) for pair in pairs)
    return second


def error(
    train_features: Array, train_labels: np.ndarray, test_features: Array, test_labels: np.ndarray,
    protocol: SvmProtocol = FIVE_FOLD, seed: int = 0, copies: Copies | None = None,
) -> xr.Dataset:
    """Test error of a classifier tuned and trained on the training images alone; arguments as those of `fit_svm`.

    Returns
    -------
    Dataset
        ``error`` in %, ``wrong`` (a count), ``predicted`` (image,), ``cross_validation`` error in % (cost, gamma);
        attributes: ``chosen_cost`` and ``chosen_gamma``.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 4, Tables 1 and 2.
    Departs: see `fit_svm`.
    Checked: tests/test_classify.py.
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
    """Which training images cross-validation uses: all, or ``tune_on`` of them with the classes in proportion.

    All too where fewer images than classes would be left.
    """
    chosen, (names, counts) = np.arange(len(labels)), np.unique(labels, return_counts=True)
    if len(names) < 2:
        raise GddError(f"labels: all are {names[0]}; at least two classes are needed")
    if protocol.tune_on < protocol.folds * len(names):
        raise GddError(f"tune_on: {protocol.tune_on} given; {protocol.folds} folds of {len(names)} classes need more")
    check_memory("features, tune_on", min(len(labels), protocol.tune_on) ** 2)
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

    def count_wrong(kernel: np.ndarray, cost: float, train: np.ndarray, test: np.ndarray) -> int:
        machines = OneVsRest(SVC(C=cost, kernel="precomputed"))
        with config_context(assume_finite=True, skip_parameter_validation=True):
            machines.fit(kernel[np.ix_(train, train)], labels[train])
            return (machines.predict(kernel[np.ix_(test, train)]) != labels[test]).sum()

    in_threads = Parallel(thread_count(), "threading")  # libsvm releases the interpreter's lock
    wrong = []  # (gamma, cost, fold)
    for gamma in protocol.gammas:
        kernel = np.exp(-gamma * distances)
        jobs = product(protocol.costs, folds)
        wrong.append(in_threads(delayed(count_wrong)(kernel, cost, *fold) for cost, fold in jobs))
    wrong = np.reshape(wrong, (len(protocol.gammas), len(protocol.costs), -1)).sum(2).T
    grid = {COST: list(protocol.costs), WIDTH: list(protocol.gammas)}
    return xr.DataArray(100.0 * wrong / len(labels), grid, (COST, WIDTH))


def best_of(table: xr.DataArray) -> tuple[float, float]:
    """C and gamma of least error; of equal ones the smallest C, then the smallest gamma: the smoothest classifier."""
    ordered = table.sortby([COST, WIDTH])
    row, column = np.unravel_index(ordered.values.argmin(), ordered.shape)
    return float(ordered[COST][row]), float(ordered[WIDTH][column])
