"""The classifier: equal to scikit-learn's own, blind to test labels, no better than chance on noise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from gdd.base.checks import GddError
from gdd_book.evaluate.classify import SvmProtocol, best_of, error, fit_svm, tuning_subset

QUICK = SvmProtocol(costs=(1.0, 10.0), gammas=(0.3, 1.0), folds=3)


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    return features[:300], labels[:300], features[300:500], labels[300:500]


@pytest.mark.parametrize("whole", [True, False])
def test_same_decisions_as_scikit_learn(digits, whole, monkeypatch):
    """Whether the kernel is formed at once, or of some images at a time; libsvm itself stops at 0.001."""
    train, labels, test, _ = digits
    monkeypatch.setattr("gdd_book.evaluate.classify._WHOLE_KERNEL", len(train) if whole else 100)
    svm = fit_svm(train, labels, QUICK)
    theirs = OneVsRestClassifier(SVC(C=svm.cost, gamma=svm.gamma)).fit(svm.scaler.transform(train), labels)
    scaled = svm.scaler.transform(test)
    assert_allclose(svm.decide(test), theirs.decision_function(scaled), atol=0.01 if whole else 0.02)
    assert_array_equal(svm.predict(test), theirs.predict(scaled))
    wanted = len(np.unique(np.concatenate([machine.support_ for machine in theirs.estimators_])))
    assert abs(len(svm.vectors) - wanted) <= (0 if whole else 3)  # one that hardly counts may come or go


@pytest.mark.parametrize("whole", [True, False])
def test_copies_are_learned_from_beside_their_support_vectors(digits, whole, monkeypatch):
    """Written out with scikit-learn: each class's machine on its own support vectors and their copies."""
    train, labels, test, truth = digits
    monkeypatch.setattr("gdd_book.evaluate.classify._WHOLE_KERNEL", 10**4 if whole else 100)
    copies = lambda numbers: [train[numbers] + shift for shift in (0.5, 1.0)]  # noqa: E731
    plain, svm = fit_svm(train, labels, QUICK), fit_svm(train, labels, QUICK, copies=copies)
    assert (svm.cost, svm.gamma) == (plain.cost, plain.gamma)
    decided, given = svm.decide(test), plain.scaler.transform(train)
    for place, name in enumerate(svm.classes):
        first = np.flatnonzero((given[:, None] == plain.vectors[plain.weights[:, place] != 0]).all(2).any(1))
        own = plain.scaler.transform(np.concatenate([train[first] + shift for shift in (0, 0.5, 1.0)]))
        wanted = SVC(C=svm.cost, gamma=svm.gamma).fit(own, np.tile(labels[first] == name, 3))
        assert_allclose(decided[:, place], wanted.decision_function(plain.scaler.transform(test)), atol=0.02)
    assert_array_equal(error(train, labels, test, truth, QUICK, copies=copies).predicted, svm.predict(test))
    with pytest.raises(GddError, match=f"copies: {len(plain.vectors)} images asked for, .7. given"):
        fit_svm(train, labels, QUICK, copies=lambda numbers: [train[:7]])


def test_table_is_a_cross_validation_written_out(digits):
    """The shared kernel matrix gives what fitting every fold from its features gives."""
    train, labels, _, _ = digits
    svm = fit_svm(train, labels, QUICK, seed=3)
    given = svm.scaler.transform(train)
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
    for name in ("predicted", "cross_validation"):
        assert_array_equal(right[name], shuffled[name])
    assert right.attrs == shuffled.attrs
    assert int(shuffled.wrong) > int(right.wrong) == int((right.predicted != truth).sum())
    assert float(right.error) == 100 * int(right.wrong) / len(test) < 20  # chance: 90


def test_random_labels_give_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    result = error(rng.normal(size=(200, 10)), labels, rng.normal(size=(1000, 10)), rng.integers(4, size=1000), QUICK)
    assert abs(float(result.error) - 75) < 4.5 * 100 * np.sqrt(0.75 * 0.25 / 1000)
    assert abs(float(result.cross_validation.mean()) - 75) < 4.5 * 100 * np.sqrt(0.75 * 0.25 / 200)


def test_tuning_subset_keeps_proportions_and_the_cap():
    labels = np.repeat(["a", "b", "c"], [600, 300, 100])
    chosen = tuning_subset(labels, SvmProtocol(tune_on=200), 0)
    assert_array_equal(np.unique(labels[chosen], return_counts=True)[1], [120, 60, 20])
    assert not np.array_equal(chosen, tuning_subset(labels, SvmProtocol(tune_on=200), 1))
    assert_array_equal(tuning_subset(labels, SvmProtocol(tune_on=1000), 0), np.arange(1000))
    labels = np.repeat(["a", "b", "c"], 67)  # a few images above the cap are kept
    assert [len(tuning_subset(labels, SvmProtocol(tune_on=n), 0)) for n in (199, 198)] == [201, 198]


@pytest.mark.parametrize(("images", "labels", "message"), [
    (10, [0] * 7 + [1] * 3, "class 1 has 3 images in the tuning set, 5 folds need as many"),
    (10, [3] * 10, "labels: all are 3"),
    (10, [0, 1], "labels: shape"),
])
def test_bad_labels_are_named(images, labels, message):
    with pytest.raises(GddError, match=message):
        fit_svm(np.random.default_rng(0).normal(size=(images, 4)), labels)
