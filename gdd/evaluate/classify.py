"""The classifier of every table: one-vs-all support vector machines with a Gaussian kernel, tuned by cross-validation.

Tuning sees training images only. Every number that the protocol depends on is a field of
`gdd.evaluate.tuning.SvmProtocol`, and
the result carries what was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numba
import numpy as np
import xarray as xr
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem
from sklearn.svm import SVC, LinearSVC

from gdd.base.axes import FEATURE, IMAGE, LABEL
from gdd.base.checks import GddError, check_kind, check_memory, check_whole, shown
from gdd.evaluate.tuning import (
    FIVE_FOLD,
    LARGEST_SEED,
    SvmProtocol,
    best_of,
    cross_validate,
    gaussian_kernel,
    in_parallel,
    squared_distances,
    tuning_subset,
)
from gdd.inference.features import unfold

#: images whose kernel values are held at once when labels are predicted
_CHUNK = 500
#: training images up to which the kernel matrix is formed once for all classes (1.8 GB); beyond, libsvm forms its rows
_WHOLE_KERNEL = 15000
#: memory in MB in which libsvm keeps such rows, of all machines that are trained at once
_CACHE = 8000
#: median squared distance between scaled features at which they are taken to be the same
ALIKE = 1e-12


class Scaling(NamedTuple):
    """Shift and scale of the features, found on training images."""

    shift: np.ndarray  # (feature,)
    scale: np.ndarray  # (feature,) or (1,)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Apply to (image, feature)."""
        return (features - self.shift) / self.scale


@dataclass(frozen=True)
class Svm:
    """A trained classifier: one decision function per class over the same support vectors.

    Attributes
    ----------
    classes : (label,)
    vectors : (vector, feature), scaled; dual : (vector, label); intercept : (label,)
    cost, gamma : chosen; gamma for scaled features, in absolute terms
    table : cross-validation error in %, (cost, gamma), gamma in the protocol's units
    tuned_on : images used in cross-validation
    """

    classes: np.ndarray
    scaling: Scaling
    vectors: np.ndarray = field(repr=False)
    dual: np.ndarray = field(repr=False)
    intercept: np.ndarray
    cost: float
    gamma: float
    table: xr.DataArray = field(repr=False)
    tuned_on: int

    def decide(self, features: np.ndarray | xr.DataArray) -> np.ndarray:
        """Decision values (image, label), the largest of which wins."""
        features = unfold(features).values
        if features.shape[1] != self.vectors.shape[1]:
            raise GddError(f"features: {features.shape[1]} along axis 'feature', {self.vectors.shape[1]} in training")
        out = np.empty((len(features), len(self.classes)))
        for low in range(0, len(features), _CHUNK):
            part = self.scaling(features[low : low + _CHUNK])
            out[low : low + _CHUNK] = gaussian_kernel(squared_distances(part, self.vectors), self.gamma) @ self.dual
        return out + self.intercept

    def predict(self, features: np.ndarray | xr.DataArray) -> np.ndarray:
        """Label of every image."""
        return self.classes[self.decide(features).argmax(1)]


def fit_svm(
    features: np.ndarray | xr.DataArray, labels: np.ndarray, protocol: SvmProtocol = FIVE_FOLD, seed: int = 0
) -> Svm:
    """Tune and train the classifier on training images.

    Parameters
    ----------
    features : (image, ...)   unfolded to (image, feature)
    labels : (image,)
    protocol : grids, folds, scaling
    seed : of the choice of images for tuning, of the folds and of the landmarks

    Raises
    ------
    GddError
        Features that are not finite or all the same, another number of labels, one class only, fewer images than
        folds, a class with fewer images in the tuning set than folds, more landmarks than images.

    Notes
    -----
    Of equal cross-validation errors the smallest C wins, then the smallest gamma: the smoothest classifier.

    Source: Pu, Yuan & Carin 2015, supplement, "Testing": one-vs-all, Gaussian kernel, 5-fold cross-validation.
    Departs: tuning on at most ``protocol.tune_on`` images; the paper gives no grids and no scaling. With landmarks
    the final machines are scikit-learn's linear ones: errors count squared, the intercept is penalised too, and C is
    the one that was best without either.
    Checked: tests/test_classify.py (against scikit-learn's own classifier; labels of test images have no influence).
    """
    check_kind("protocol", protocol, SvmProtocol)
    seed = check_whole("seed", seed, 0, LARGEST_SEED)
    features, labels = unfold(features).values.astype(float), as_labels(labels, "labels")
    classes = _check_labels(len(features), labels, protocol)
    scaling = _find_scaling(features, protocol.scaling)
    features = scaling(features)
    chosen = tuning_subset(labels, protocol, seed)
    distances = squared_distances(features[chosen], features[chosen])
    median = np.median(distances[np.triu_indices(len(chosen), 1)])
    if median <= ALIKE:
        raise GddError("features: half of all pairs of images have the same features; nothing can be told apart")
    unit = 1.0 / median
    table = cross_validate(distances * unit, labels[chosen], classes, protocol, seed)
    cost, gamma = best_of(table)
    members = [labels == name for name in classes]
    if protocol.landmarks:
        machine = _train_on_landmarks(features, members, cost, gamma * unit, protocol.landmarks, seed)
    else:
        machine = _joined(features, _train(features, members, cost, gamma * unit))
    return Svm(classes, scaling, *machine, cost, gamma * unit, table, len(chosen))


class Machine(NamedTuple):
    """Decision functions of all classes, which share their vectors."""

    vectors: np.ndarray  # (vector, feature)
    dual: np.ndarray  # (vector, label)
    intercept: np.ndarray  # (label,)


def _train_on_landmarks(
    features: np.ndarray, members: list[np.ndarray], cost: float, gamma: float, landmarks: int, seed: int
) -> Machine:
    """One linear machine for each class, on the kernel's values at some of the images; its vectors are these."""
    seen = Nystroem(kernel="rbf", gamma=gamma, n_components=landmarks, random_state=seed)
    values = seen.fit_transform(features)
    fitted = in_parallel(lambda member: LinearSVC(C=cost, dual=False).fit(values, member), members)
    dual = seen.normalization_.T @ np.concatenate([m.coef_ for m in fitted]).T
    return Machine(seen.components_, dual, np.array([m.intercept_[0] for m in fitted]))


def _joined(features: np.ndarray, machines: list[SVC]) -> Machine:
    """The support vectors of any class, each once."""
    used = np.unique(np.concatenate([m.support_ for m in machines]))
    dual = np.zeros((len(used), len(machines)))
    for column, machine in enumerate(machines):
        dual[np.searchsorted(used, machine.support_), column] = machine.dual_coef_[0]
    return Machine(features[used], dual, np.array([m.intercept_[0] for m in machines]))


def _train(features: np.ndarray, members: list[np.ndarray], cost: float, gamma: float) -> list[SVC]:
    """One machine for each class, on all images; the same machines either way."""
    if len(features) > _WHOLE_KERNEL:
        rows = _CACHE / numba.get_num_threads()
        machine, given = SVC(C=cost, kernel="rbf", gamma=gamma, cache_size=rows), features
    else:
        given = gaussian_kernel(squared_distances(features, features), gamma)
        machine = SVC(C=cost, kernel="precomputed", cache_size=500)
    return in_parallel(lambda member: clone(machine).fit(given, member), members)


def error(
    train_features: np.ndarray | xr.DataArray,
    train_labels: np.ndarray,
    test_features: np.ndarray | xr.DataArray,
    test_labels: np.ndarray,
    protocol: SvmProtocol = FIVE_FOLD,
    seed: int = 0,
) -> xr.Dataset:
    """Test error of a classifier tuned and trained on the training images alone.

    Returns
    -------
    Dataset
        ``error`` in %, ``wrong`` (a count), ``predicted`` (image,) with the true ``label`` beside it, ``confusion``
        (label, predicted_label), ``cross_validation`` error in % (cost, gamma); attributes: the chosen ``cost`` and
        ``gamma``, the protocol, the seed, how many images were used for tuning, for training and as support vectors or
        landmarks.

    Raises
    ------
    GddError
        As `fit_svm`; also if the test set has another number of features or of labels.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 4, Tables 1 and 2.
    Departs: see `fit_svm`.
    Checked: tests/test_classify.py.
    """
    truth, test = as_labels(test_labels, "test_labels"), unfold(test_features)
    known = as_labels(train_labels, "train_labels")
    if (truth.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise GddError(f"test_labels: values of type {truth.dtype}, those of train_labels are of type {known.dtype}")
    if truth.shape != (len(test),):
        raise GddError(f"test_labels: shape {truth.shape} given, {len(test)} images need as many labels")
    reach = unfold(train_features).sizes[FEATURE]
    if test.sizes[FEATURE] != reach:
        raise GddError(f"test_features: {test.sizes[FEATURE]} along axis 'feature', {reach} in training")
    svm = fit_svm(train_features, known, protocol, seed)
    predicted = svm.predict(test)
    wrong = int((predicted != truth).sum())
    names = np.union1d(svm.classes, truth)
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (np.searchsorted(names, truth), np.searchsorted(names, predicted)), 1)
    return xr.Dataset(
        {
            "error": 100.0 * wrong / len(truth),
            "wrong": wrong,
            "predicted": (IMAGE, predicted),
            "confusion": ((LABEL, "predicted_label"), confusion),
            "cross_validation": svm.table,
        },
        {"truth": (IMAGE, truth), LABEL: names, "predicted_label": names},
        {
            "chosen_cost": svm.cost, "chosen_gamma": svm.gamma, "folds": protocol.folds, "scaling": protocol.scaling,
            "landmarks": protocol.landmarks, "tuned_on": svm.tuned_on, "trained_on": len(train_labels),
            "support_vectors": len(svm.vectors), "seed": seed,
        },
    )  # fmt: skip


def _find_scaling(features: np.ndarray, kind: str) -> Scaling:
    shift = features.mean(0)
    if kind == "feature":
        spread = features.std(0)
        return Scaling(shift, np.where(spread > 0, spread, 1.0))
    overall = np.sqrt(((features - shift) ** 2).mean())
    return Scaling(shift, np.array([overall if overall > 0 else 1.0]))


def as_labels(labels: np.ndarray, argument: str) -> np.ndarray:
    """Take labels: whole numbers, finite numbers, truth values or words; GddError for anything else."""
    try:
        labels = np.asarray(labels)
    except (ValueError, TypeError) as error:
        raise GddError(f"{argument}: not an array ({error}); one label for each image is needed") from error
    if labels.dtype.kind not in "biufU" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise GddError(f"{argument}: {shown(labels)} of type {labels.dtype} given; whole numbers or words are needed")
    return labels


def _check_labels(images: int, labels: np.ndarray, protocol: SvmProtocol) -> np.ndarray:
    folds = protocol.folds
    if labels.shape != (images,):
        raise GddError(f"labels: shape {labels.shape} given, {images} images need as many labels")
    if images < folds:
        raise GddError(f"features: {images} images along axis 'image' are fewer than the {folds} folds")
    if protocol.landmarks > images:
        raise GddError(f"landmarks: {protocol.landmarks} given, there are {images} training images; at most that")
    check_memory("features, landmarks", 4 * images * protocol.landmarks)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise GddError(f"labels: all are {classes[0]}; at least two classes are needed")
    if counts.min() < folds:
        few = classes[counts.argmin()]
        raise GddError(f"labels: class {few} has {counts.min()} images, fewer than the {folds} folds")
    if protocol.tune_on < images and min(protocol.tune_on, images - protocol.tune_on) < len(classes):
        raise GddError(
            f"tune_on: {protocol.tune_on} of {images} images given, {len(classes)} classes need at least one each, in "
            "and out of them; change tune_on"
        )
    return classes
