"""What the chapters on interpolation, generated digits and layer-by-layer inference show; their experiments."""

import numpy as np
import pytest
import xarray as xr

from gdd_book import experiments
from gdd_book.experiments import images
from gdd_book.figures import mnist as figures

SMALL = {"data": "digits", "n_train": 50, "burn_in": 2, "collect": 1, "refine_burn_in": 1, "refine_collect": 1}


def run(experiment, **changes):
    """One experiment at its smallest: every shape is the paper's, every number is meaningless."""
    return experiments.run(experiment, SMALL | changes).dataset


@pytest.fixture(scope="module")
def filled():
    """Its pictures as they were filled in, not rounded as for a record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "rounded", lambda pictures: pictures)
        return run("mnist-interpolation", n_test=9, test_burn_in=2, test_collect=2)


def test_interpolation_judges_every_method_on_the_same_hidden_pixels(filled):
    assert tuple(filled.way.values) == (*images.baselines("digit"), *images.MODELS)
    assert tuple(filled.hiding.values) == tuple(images.HIDING | images.HARDER)
    assert filled.hidden_error.sizes == {"hiding": 4, "way": 8, "image": 9}
    mask, truth = filled.mask.values.astype(bool), filled.truth.values
    assert mask.sum(axis=(2, 3))[:, 0].tolist() == [392, 392, 196, 196]
    assert (mask.sum(axis=(2, 3)) == mask.sum(axis=(2, 3))[:, :1]).all()
    blank, hidden = filled.hidden_error.sel(way="left blank").values, (~mask).sum(axis=(2, 3))
    np.testing.assert_allclose(blank, np.where(mask, 0, truth**2).sum(axis=(2, 3)) / hidden, rtol=1e-5)
    nearest = filled.filled.sel(way="nearest training digit").values
    np.testing.assert_allclose(np.where(mask, nearest, 0), np.where(mask, truth, 0), atol=1e-6)
    assert ((filled.wrong >= 0) & (filled.wrong <= 100)).all()


def test_better_is_judged_digit_by_digit():
    """Differences of 1 with little spread count, though the errors themselves vary far more than that."""
    base = np.linspace(10, 1000, 50)
    wobble = np.tile([0.1, -0.1], 25)
    errors = np.stack([base, base + 1 + wobble, base + 50 * wobble])[None]
    found = xr.Dataset(
        {"hidden_error": (("hiding", "way", "image"), errors)}, {"hiding": ["h"], "way": ["a", "b", "c"]}
    )
    table = figures.filled_comparison(found, [("a", "b"), ("b", "a"), ("a", "c")])
    distance = table["h", "difference, t"].astype(float)
    assert distance["a", "b"] == -distance["b", "a"] < -60 and distance["a", "c"] == 0
    assert table["h", "error over the other's"].tolist() == ["1.00"] * 3


@pytest.fixture(scope="module")
def generated():
    return run("mnist-generated", n_generated=40)


def test_every_source_is_judged_beside_real_digits(generated):
    assert generated.sizes["kind"] == 7
    assert generated.model.values.tolist() == ["pretrained"] * 3 + ["refined"] * 3 + ["real digits"]
    assert tuple(generated.source.values[:3]) == images.SOURCES
    real = generated.isel(kind=6)
    assert float(real.negative) == 0.0
    assert (generated.nearest > 0).all()
    assert ((generated.told_apart >= 0) & (generated.told_apart <= 100)).all()


def test_noise_is_told_from_digits_and_digits_are_not():
    generator = np.random.default_rng(0)
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], generator.standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100


@pytest.fixture(scope="module")
def layerwise():
    return run("mnist-layerwise", n_test=20, test_burn_in=2, test_collect=1, joint_burn_in=1, joint_collect=1)


@pytest.mark.slow
def test_every_way_is_classified_with_both_dictionaries(layerwise):
    assert layerwise.error.sizes == {"model": 2, "way": 5, "feature_kind": 2}
    assert ((layerwise.error >= 0) & (layerwise.error <= 100)).all()


def test_ways_are_compared_with_the_error_of_independent_rates():
    errors = np.array([5.0, 6.0, 20.0])[None, :, None]
    coordinates = {"model": ["m"], "way": ["a", "b", "c"], "feature_kind": ["mean"]}
    found = xr.Dataset({"error": (("model", "way", "feature_kind"), errors)}, coordinates)
    table = figures.layerwise_comparison(found, 1000, [("a", "b"), ("c", "a")])
    assert table.loc[("m", "posterior mean")].to_dict() == {
        ("a", "b"): "-1.00 ± 2.00", ("c", "a"): "+15.00 ± 2.82"
    }
