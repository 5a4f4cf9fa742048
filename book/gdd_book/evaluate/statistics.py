"""Means with their standard errors, and two methods compared on the same images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import binomtest

#: standard error of a median over that of a mean, for Gaussian values
MEDIAN = (np.pi / 2) ** 0.5


class Estimate(NamedTuple):
    """A mean or a median, and its standard error."""

    value: xr.DataArray
    error: xr.DataArray


class Paired(NamedTuple):
    """Two classifiers on the same images: how many images only the one, only the other gets right."""

    wins: int
    losses: int
    p: float  # of so uneven a split, were both as good


def mean_and_error(values: xr.DataArray, over: str) -> Estimate:
    """Mean over an axis, NaN left out, and its standard error, which is NaN where fewer than two values are left."""
    count, mean = values.count(over), values.mean(over)
    squares = ((values - mean) ** 2).sum(over)
    return Estimate(mean, (squares / (count - 1) / count).where(count > 1) ** 0.5)


def median_and_error(values: xr.DataArray, over: str | None = None) -> Estimate:
    """Median over an axis, or over all, and its standard error by the Gaussian formula."""
    return Estimate(values.median(over), MEDIAN * values.std(over) / np.sqrt(values.count(over)))


def share_error(percent: np.ndarray | xr.DataArray, count: int) -> np.ndarray | xr.DataArray:
    """Standard error of a share in % of so many independent images."""
    return (percent * (100 - percent) / count) ** 0.5


def share_and_error(right: xr.DataArray, over: str) -> Estimate:
    """Share in % of what is true along an axis, and its standard error."""
    share = 100 * right.mean(over)
    return Estimate(share, share_error(share, right.sizes[over]))


def compare_paired(one: np.ndarray, other: np.ndarray) -> Paired:
    """McNemar's exact test of two classifiers that got these images right, (image,) of bool each.

    Nothing is done about several comparisons.
    """
    wins, losses = int((one & ~other).sum()), int((other & ~one).sum())
    return Paired(wins, losses, binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
