"""Standard errors beside numpy and scipy, and the paired test beside its definition."""

import warnings

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from gdd_book.evaluate import statistics


def test_mean_and_error_leave_nan_out_without_a_warning():
    values = xr.DataArray([[1.0, 5.0, np.nan], [2.0, np.nan, np.nan], [np.nan] * 3], dims=("row", "trial"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, error = statistics.mean_and_error(values, "trial")
    np.testing.assert_allclose(mean, [3, 2, np.nan])
    np.testing.assert_allclose(error, [stats.sem([1.0, 5.0]), np.nan, np.nan])


def test_error_of_a_median_is_that_of_repeated_samples():
    draws = np.random.default_rng(0).normal(size=(4000, 101))
    value, error = statistics.median_and_error(xr.DataArray(draws, dims=("sample", "x")), "x")
    np.testing.assert_allclose(value, np.median(draws, axis=1))
    assert float(error.mean()) == pytest.approx(float(value.std()), rel=5 / (2 * len(draws)) ** 0.5)


def test_share_and_its_error():
    right = xr.DataArray(np.arange(8) < 2, dims="image")
    share, error = statistics.share_and_error(right, "image")
    assert (float(share), float(error)) == (25, pytest.approx(100 * (0.25 * 0.75 / 8) ** 0.5))


def test_paired_counts_and_their_probability():
    one, other = np.array([1, 1, 1, 0, 1, 0], bool), np.array([1, 0, 0, 0, 0, 1], bool)
    assert statistics.compare_paired(one, other) == (3, 1, pytest.approx(10 / 16))  # 0, 1, 3 or 4 heads of 4
    assert statistics.compare_paired(one, one) == (0, 0, 1.0)
