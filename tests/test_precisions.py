"""Coding at other precisions, and atoms from more digits: how a setting is chosen, and on what it is judged."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.axes import IMAGES, LABEL
from gdd.base.checks import GddError
from gdd_book import experiments, training
from gdd_book.data import datasets
from gdd_book.experiments import caltech
from gdd_book.experiments.common import encode, error_of
from gdd_book.experiments.studies import caltech_precisions, labels
from gdd_book.experiments.studies import precisions as studied
from gdd_book.experiments.studies.precisions import STRIDE, learned_atoms, precisions
from gdd_book.experiments.studies.signs import describe_signs

CLASSES = caltech_precisions.SHIPPED[:2]


def noise_of(split, count):
    """Noise in place of pictures of two classes."""
    images = np.random.default_rng(count).normal(100, 30, (2 * count, 1, 128, 128)).astype(np.float32)
    names = {"split": split, "label_names": ",".join(CLASSES), "checksum": "0"}
    return xr.DataArray(images, {LABEL: ("image", np.repeat([0, 1], count))}, IMAGES, attrs=names)


@pytest.fixture(scope="module")
def coded():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caltech, "train_and_test", lambda p: (noise_of("train", 6), noise_of("test", 4)))
        changes = {"classes": CLASSES, "noises": (3.0, 30.0), "test_burn_in": 2, "test_collect": 1}
        return experiments.run("caltech-precisions", changes).dataset


def test_each_reading_is_coded_at_its_own_least_cross_validation_error(coded):
    assert dict(coded.right.sizes) == {"atoms": 3, "setting": 2, "reading": 3, "image": 8}
    np.testing.assert_allclose(coded.coded_at.sel(setting="as in training", precision="gamma_e"), 3)
    for kind in coded.atoms.values:
        atoms, _ = caltech_precisions.class_atoms(kind, {"classes": CLASSES}, noise_of("train", 6))
        for reading in coded.reading.values:
            errors = coded.cross_validation.sel(atoms=kind, reading=reading)
            noise, ratio = np.unravel_index(errors.values.argmin(), errors.shape)
            expected = precisions(atoms, float(errors.noise[noise]), float(errors.ratio[ratio]))
            at = coded.coded_at.sel(atoms=kind, reading=reading, setting="chosen")
            np.testing.assert_allclose(at, expected)


def test_signs_agree_as_planted():
    rng = np.random.default_rng(0)
    labels, magnitudes = np.repeat([0, 1], 40), rng.random((80, 500)) * (rng.random((80, 500)) < 0.4)
    own = rng.choice([-1, 1], (80, 500))  # of each image
    of_class = rng.choice([-1, 1], (2, 500))[labels]
    for signs, expected in ((own, (1, 0.5, 0.5)), (of_class, (1, 1, 0.5)), (np.abs(own), (1, 1, 1))):
        found = describe_signs(signs * magnitudes, 3 * signs * magnitudes, labels)
        np.testing.assert_allclose(found.agreement, expected, atol=0.05)
        np.testing.assert_allclose(found.negative, magnitudes[signs < 0].sum() / magnitudes.sum())
    np.testing.assert_allclose(describe_signs(magnitudes, -magnitudes, labels).agreement, (0, 1, 1))


def test_signs_of_digits_and_pictures_are_described_and_judged(monkeypatch):
    monkeypatch.setattr(caltech, "train_and_test", lambda p: (noise_of("train", 6), noise_of("test", 4)))
    found = experiments.run("code-signs", {"classes": CLASSES, "test_burn_in": 8, "test_collect": 2}).dataset
    assert dict(found.right.sizes) == {"images": 2, "setting": 2, "reading": 2}
    assert (found.right.sel(images="digits", setting="chosen") > 40).all()  # chance level: 10
    assert (found.agreement.sel(images="digits", pair="one image, two chains") > 0.9).all()
    of_noise = found.agreement.sel(images="Caltech", setting="chosen").isel(pair=[1, 2])
    np.testing.assert_allclose(of_noise, 0.5, atol=0.1)


def test_windows_are_of_each_class_and_as_large_as_the_atoms():
    train, p = noise_of("train", 6), {"classes": CLASSES}
    learned, windows = (caltech_precisions.class_atoms(kind, p, train)[0] for kind in caltech_precisions.ATOMS[1:])
    assert learned.shape == windows.shape
    np.testing.assert_allclose((windows**2).sum(), (learned**2).sum(), rtol=1e-4)
    middle, first = train.values[6, :, 16:-16, 16:-16], windows[len(windows) // 2]  # of the second class
    np.testing.assert_allclose(first / np.linalg.norm(first), middle / np.linalg.norm(middle), atol=1e-6)


def test_more_digits_are_judged_on_digits_that_no_model_learned_from(monkeypatch):
    seen, kinds = [], xr.Dataset({"error": ("feature_kind", [1.0])}, {"feature_kind": ["ml_sample"]})
    monkeypatch.setattr(labels, "hidden_errors", lambda one, others, p: seen.append(others) or xr.Dataset())
    monkeypatch.setattr(labels, "_classified", lambda features, subsets, *rest: dict.fromkeys(subsets, kinds))
    changes = {"learned_from": (20, 30), "sizes": (100,), "trials": 1, "n_test": 20, "burn_in": 1, "collect": 1,
               "refine_burn_in": 1, "refine_collect": 1, "test_burn_in": 1, "test_collect": 1}
    found = experiments.run("mnist-more-digits", changes).dataset
    assert dict(found.error.sizes) == {"learned_from": 2, "stage": 2, "size": 1, "trial": 1, "feature_kind": 1}
    largest = datasets.load("digits", "train", n=30, seed=0).number
    assert len(seen) == 2 and seen[0].identical(seen[1]) and not np.isin(seen[0].number, largest).any()


def test_atoms_that_lack_are_named_before_any_chain(monkeypatch):
    monkeypatch.setattr(studied, "_surface", None)
    with pytest.raises(GddError, match="mnist-1000-refined--seed-1.*gdd run mnist-generated --scale paper -p seed 1"):
        experiments.run("mnist-precisions", {"seeds": (0, 1), "atoms": ("refined at 2",)})


def test_the_oracle_has_the_test_error_of_every_pair():
    changes = {"n_test": 60, "ratios": (0.1, 20.0), "test_burn_in": 5, "test_collect": 2}
    found = experiments.run("mnist-oracle", changes).dataset
    assert dict(found.error.sizes) == {"noise": 1, "ratio": 2, "feature_kind": 2}
    p = experiments.merge("mnist-oracle", "demo", changes)
    both = [training.digits(p, split) for split in ("train", "test")]
    atoms = learned_atoms(p["atoms"]).astype(np.float32)
    for ratio in p["ratios"]:
        pair = precisions(atoms, 1000.0, ratio)
        codes = [encode(images, atoms, STRIDE, pair, p).ml_sample for images in both]
        expected = error_of(codes, *both, p)
        assert expected < 60  # chance level: 90
        assert found.error.sel(ratio=ratio, feature_kind="ml_sample").item() == pytest.approx(expected)


@pytest.mark.slow
def test_every_reading_of_a_code_runs():
    changes = {"n_train": 100, "n_test": 50, "seeds": (0,), "chains": 2}
    changes |= dict.fromkeys(("burn_in", "refine_burn_in", "test_burn_in"), 5)
    changes |= dict.fromkeys(("collect", "refine_collect", "test_collect"), 5)
    found = experiments.run("mnist-readings", changes).dataset
    assert found.error.notnull().all() and found.sizes["reading"] > 15
