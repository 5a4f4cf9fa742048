"""Intervals beside numpy and scipy, and the paired test beside its definition."""

import warnings

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from gdd_book.evaluate import statistics


def test_mean_has_students_interval_of_three_or_more_values():
    values = xr.DataArray([[1.0, 5.0, 4.0, np.nan], [2.0, 3.0, np.nan, np.nan], [np.nan] * 4], dims=("row", "trial"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, half = statistics.mean_and_interval(values, "trial")
    low, high = stats.t.interval(0.95, 2, np.mean([1, 5, 4]), stats.sem([1, 5, 4]))
    np.testing.assert_allclose(mean, [(low + high) / 2, 2.5, np.nan])
    np.testing.assert_allclose(half, [(high - low) / 2, np.nan, np.nan])
    wanted = stats.ttest_1samp([1, 5, 4], 0).statistic
    np.testing.assert_allclose(statistics.t_statistic(values, "trial"), [wanted, np.nan, np.nan])


def test_nineteen_of_twenty_medians_lie_within_their_interval():
    draws = np.random.default_rng(0).normal(size=(4000, 101))
    value, half = statistics.median_and_interval(xr.DataArray(draws, dims=("sample", "x")), "x")
    np.testing.assert_allclose(value, np.median(draws, axis=1))
    assert float((abs(value) < half).mean()) == pytest.approx(0.95, abs=0.01 + 3 * (0.95 * 0.05 / 4000) ** 0.5)


@pytest.mark.parametrize("right", [0, 3, 12, 40, 99, 100])
def test_interval_of_a_share(right):
    share, half = statistics.share_and_interval(xr.DataArray(np.arange(100) < right, dims="image"), "image")
    assert float(share) == right
    ends = np.array(stats.binomtest(right, 100).proportion_ci(method="wilson"))
    normal = 100 * stats.norm.ppf(0.975) * (right * (100 - right) / 100**3) ** 0.5
    assert float(half) == pytest.approx(normal if 10 <= right <= 90 else abs(100 * ends - right).max())


def test_paired_counts_and_their_probability():
    one, other = np.array([1, 1, 1, 0, 1, 0], bool), np.array([1, 0, 0, 0, 0, 1], bool)
    assert statistics.compare_paired(one, other) == (3, 1, pytest.approx(10 / 16))  # 0, 1, 3 or 4 heads of 4
    assert statistics.compare_paired(one, one) == (0, 0, 1.0)
