"""The classifier: equal to scikit-learn's own, blind to test labels, no better than chance on noise."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr
from agreement import two_cores
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from gdd.base.checks import GddError
from gdd.base.compiling import on_threads
from gdd_book.evaluate.classify import OneVsRest, SvmProtocol, best_of, error, fit_svm, tuning_subset

QUICK = SvmProtocol(costs=(1.0, 10.0), gammas=(0.3, 1.0), folds=3)


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    return features[:300], labels[:300], features[300:500], labels[300:500]


def supporting(svm):
    """Numbers of the training images that the decisions depend on."""
    return np.unique(np.concatenate([machine.support_ for machine in svm.machine[-1].estimators_]))


def scaled(svm, features):
    return svm.machine[0].transform(features)


@pytest.mark.parametrize("whole", [True, False])
def test_same_decisions_as_scikit_learn(digits, whole, monkeypatch):
    """Whether the kernel is formed at once, or of some images at a time."""
    train, labels, test, _ = digits
    monkeypatch.setattr("gdd_book.evaluate.classify._WHOLE_KERNEL", len(train) if whole else 100)
    svm = fit_svm(train, labels, QUICK)
    inner, outer = scaled(svm, train), scaled(svm, test)
    decided, kernel = svm.machine.decision_function(test), partial(rbf_kernel, Y=inner, gamma=svm.gamma)
    formed = OneVsRestClassifier(SVC(C=svm.cost, kernel="precomputed")).fit(kernel(inner), labels)
    by_rows = OneVsRestClassifier(SVC(C=svm.cost, gamma=svm.gamma)).fit(inner, labels)
    assert_allclose(decided, formed.decision_function(kernel(outer)), atol=1e-6 if whole else 0.02)
    assert_allclose(decided, by_rows.decision_function(outer), atol=0.01 if whole else 0.02)  # libsvm stops at 0.001
    assert_array_equal(svm.predict(test), by_rows.predict(outer))
    wanted = len(np.unique(np.concatenate([m.support_ for m in by_rows.estimators_])))
    assert abs(len(supporting(svm)) - wanted) <= (0 if whole else 3)  # one that hardly counts may come or go


def test_landmarks_are_scikit_learns_approximation(digits):
    """Same decisions as its parts in a row; with every image a landmark the kernel is not approximated."""
    train, labels, test, truth = digits
    svm = fit_svm(train, labels, replace(QUICK, landmarks=50), seed=3)
    kernel = Nystroem(kernel="rbf", gamma=svm.gamma, n_components=50, random_state=3)
    theirs = make_pipeline(kernel, OneVsRestClassifier(LinearSVC(C=svm.cost, dual=False)))
    theirs.fit(scaled(svm, train), labels)
    assert_allclose(svm.machine.decision_function(test), theirs.decision_function(scaled(svm, test)), atol=1e-6)
    exact = error(train, labels, test, truth, QUICK)
    close = error(train, labels, test, truth, replace(QUICK, landmarks=len(train)))
    assert_array_equal(close.cross_validation, exact.cross_validation)  # tuned with the kernel itself
    half, whole = (fit_svm(train, labels, replace(QUICK, landmarks=n)) for n in (150, len(train)))
    values, vectors = np.linalg.eigh(rbf_kernel(scaled(whole, train), gamma=whole.gamma))
    root = vectors * np.sqrt(values)  # inner products of its rows are the kernel
    linear = OneVsRestClassifier(LinearSVC(C=whole.cost, dual=False, tol=1e-6)).fit(root, labels)
    wanted = linear.decision_function(root)
    away = [np.abs(svm.machine.decision_function(train) - wanted).max() for svm in (whole, half)]
    assert away[0] < 0.05 < away[1]  # liblinear stops within a hundredth or so; half the landmarks are further off


def test_copies_are_learned_from_beside_their_support_vectors(digits, monkeypatch):
    """Written out with scikit-learn: each class's machine on its own support vectors and their copies."""
    train, labels, test, truth = digits
    asked = []

    def copies(numbers):
        asked.append(numbers)
        return [train[numbers] + shift for shift in (0.5, 1.0)]

    plain, svm = fit_svm(train, labels, QUICK), fit_svm(train, labels, QUICK, copies=copies)
    assert (svm.cost, svm.gamma) == (plain.cost, plain.gamma)
    assert_array_equal(asked[0], supporting(plain))
    decided = svm.machine.decision_function(test)
    for place, (name, first) in enumerate(zip(svm.machine[-1].classes_, plain.machine[-1].estimators_, strict=True)):
        own = train[first.support_]
        rows = scaled(plain, np.concatenate([own, own + 0.5, own + 1.0]))
        wanted = SVC(C=svm.cost, gamma=svm.gamma).fit(rows, np.tile(labels[first.support_] == name, 3))
        assert_allclose(decided[:, place], wanted.decision_function(scaled(plain, test)), atol=0.01)
    monkeypatch.setattr("gdd_book.evaluate.classify._WHOLE_KERNEL", 100)
    in_parts = fit_svm(train, labels, QUICK, copies=copies)
    assert_allclose(in_parts.machine.decision_function(test), decided, atol=0.02)
    with pytest.raises(GddError, match="copies.*landmarks"):
        fit_svm(train, labels, replace(QUICK, landmarks=50), copies=copies)
    result = error(train, labels, test, truth, QUICK, copies=copies)
    assert_array_equal(result.predicted, svm.predict(test))


def test_table_is_a_cross_validation_written_out(digits):
    """The shared kernel matrix gives what fitting every fold from its features gives."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    train, labels, _, _ = digits
    svm = fit_svm(train, labels, QUICK, seed=3)
    given = scaled(svm, train)
    median = np.median(pdist(given, "sqeuclidean"))
    folds = StratifiedKFold(3, shuffle=True, random_state=3)
    for cost, gamma in [(1.0, 0.3), (10.0, 1.0)]:
        machine = OneVsRestClassifier(SVC(C=cost, gamma=gamma / median))
        right = cross_val_score(machine, given, labels, cv=folds, scoring=lambda m, x, y: (m.predict(x) == y).sum())
        assert float(svm.table.sel(cost=cost, gamma=gamma)) == pytest.approx(100 * (1 - right.sum() / len(train)))
    assert_allclose(svm.gamma, best_of(svm.table)[1] / median)


def test_test_labels_have_no_influence(digits):
    train, labels, test, truth = digits
    right = error(train, labels, test, truth, QUICK)
    shuffled = error(train, labels, test, np.random.default_rng(0).permutation(truth), QUICK)
    assert_array_equal(right.predicted, shuffled.predicted)
    assert_array_equal(right.cross_validation, shuffled.cross_validation)
    for name in ("chosen_cost", "chosen_gamma"):
        assert right.attrs[name] == shuffled.attrs[name]
    assert int(shuffled.wrong) > int(right.wrong) == int((right.predicted != truth).sum())
    assert float(right.error) == 100 * int(right.wrong) / len(test) < 20  # chance: 90


def test_random_labels_give_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    result = error(rng.normal(size=(200, 10)), labels, rng.normal(size=(1000, 10)), rng.integers(4, size=1000), QUICK)
    assert abs(float(result.error) - 75) < 4.5 * 100 * np.sqrt(0.75 * 0.25 / 1000)
    assert abs(float(result.cross_validation.mean()) - 75) < 4.5 * 100 * np.sqrt(0.75 * 0.25 / 200)


def test_one_scale_for_all_does_not_change_decisions(digits):
    train, labels, test, _ = digits
    plain = fit_svm(train, labels, QUICK).machine.decision_function(test)
    moved = fit_svm(train * 7 - 2, labels, QUICK).machine.decision_function(test * 7 - 2)
    assert_allclose(moved, plain, atol=1e-2)  # libsvm's tolerance


def test_scaling_comes_from_training_images_alone(digits):
    train, labels, _, _ = digits
    given = scaled(fit_svm(train, labels, SvmProtocol((1.0,), (1.0,), 3)), train)
    assert_allclose(given.mean(0), 0, atol=1e-12)
    assert_allclose(given.std(0), train.std(0) / np.sqrt(train.var(0).mean()), atol=1e-12)


def test_tuning_subset_keeps_proportions_and_the_cap():
    labels = np.repeat(["a", "b", "c"], [600, 300, 100])
    chosen = tuning_subset(labels, SvmProtocol(tune_on=200), 0)
    assert len(np.unique(chosen)) == 200
    assert_array_equal(np.unique(labels[chosen], return_counts=True)[1], [120, 60, 20])
    assert not np.array_equal(chosen, tuning_subset(labels, SvmProtocol(tune_on=200), 1))
    assert_array_equal(tuning_subset(labels, SvmProtocol(tune_on=1000), 0), np.arange(1000))


def test_a_few_images_above_the_cap_are_kept():
    labels = np.repeat(["a", "b", "c"], 67)
    assert len(tuning_subset(labels, SvmProtocol(tune_on=199), 0)) == 201
    assert len(tuning_subset(labels, SvmProtocol(tune_on=198), 0)) == 198


def test_ties_go_to_the_smoothest():
    table = xr.DataArray([[2.0, 1.0], [1.0, 1.0]], {"cost": [10.0, 1.0], "gamma": [1.0, 0.5]}, ("cost", "gamma"))
    assert best_of(table) == (1.0, 0.5)


@two_cores
@pytest.mark.parametrize("landmarks", [0, 50])
def test_same_result_for_one_and_two_threads(digits, landmarks):
    results, decided, quick = [], [], replace(QUICK, landmarks=landmarks)
    for threads in (1, 2):
        with on_threads(threads):
            results.append(error(*digits, quick))
            decided.append(fit_svm(*digits[:2], quick).machine.decision_function(digits[2]))
    xr.testing.assert_identical(*results)
    assert_array_equal(*decided)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (10, [0] * 7 + [1] * 3, "class 1 has 3 images in the tuning set, 5 folds need as many"),
        (10, [3] * 10, "labels: all are 3"),
        (3050, [0] * 3049 + [1], "class 1 has 1 images in the tuning set"),
        (10, [0, 1], "labels: shape"),
    ],
)
def test_bad_labels_are_named(images, labels, message):
    with pytest.raises(GddError, match=message):
        fit_svm(np.random.default_rng(0).normal(size=(images, 4)), labels)


def test_bad_features_are_named():
    rng, labels = np.random.default_rng(0), np.repeat([0, 1], 10)
    with pytest.raises(GddError, match="same features"):
        fit_svm(np.ones((20, 3)), labels)
    with pytest.raises(GddError, match="class 1 has 2 images in the tuning set"):
        fit_svm(rng.normal(size=(60, 3)), np.repeat([0, 1], [50, 10]), SvmProtocol(tune_on=12))


def test_a_classifier_that_fails_keeps_its_classes():
    features, labels = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    model = OneVsRest(SVC()).fit(features, labels)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(features * np.nan, np.arange(20) % 3)
    assert model.classes_.tolist() == [0, 1] and len(model.predict(features)) == 20
