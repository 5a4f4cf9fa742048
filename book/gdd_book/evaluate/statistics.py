"""Means, medians and shares with 95 % intervals, and two methods compared on the same images."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import binomtest, norm, t

CONFIDENCE = 0.95
#: half-width of the interval in standard errors, for many values
WIDE = float(norm.ppf((1 + CONFIDENCE) / 2))
#: standard error of a median over that of a mean, for Gaussian values
MEDIAN = (np.pi / 2) ** 0.5
#: right or wrong images below which the interval of a share is Wilson's
FEW = 10


class Estimate(NamedTuple):
    """A mean, median or share, and the half-width of its 95 % interval."""

    value: xr.DataArray
    half: xr.DataArray


class Paired(NamedTuple):
    """Two classifiers on the same images: how many images only the one, only the other gets right."""

    wins: int
    losses: int
    p: float  # of so uneven a split, were both as good


def mean_and_interval(values: xr.DataArray, over: str) -> Estimate:
    """Mean over an axis, NaN left out, with Student's interval; fewer than three values have none (NaN)."""
    count, error = values.count(over), _standard_error(values, over)
    return Estimate(values.mean(over), error * t.ppf((1 + CONFIDENCE) / 2, (count - 1).clip(2)))


def t_statistic(values: xr.DataArray, over: str) -> xr.DataArray:
    """Mean over an axis in its standard errors; of fewer than three values NaN."""
    return values.mean(over) / _standard_error(values, over)


def _standard_error(values: xr.DataArray, over: str) -> xr.DataArray:
    count, squares = values.count(over), ((values - values.mean(over)) ** 2).sum(over)
    return (squares / (count - 1) / count).where(count > 2) ** 0.5


def median_and_interval(values: xr.DataArray, over: str | None = None) -> Estimate:
    """Median over an axis, or over all, with the interval of a median of many Gaussian values."""
    return Estimate(values.median(over), WIDE * MEDIAN * values.std(over) / np.sqrt(values.count(over)))


def share_interval(percent: xr.DataArray, count: int) -> xr.DataArray:
    """Half-width of the interval of a share in % of so many independent images, by the normal approximation.

    Where fewer than `FEW` images are right, or wrong, it reaches to the further end of Wilson's interval.
    """
    share, small = percent / 100, WIDE**2 / count
    variance = share * (1 - share) / count
    wilson = (small * abs(0.5 - share) + WIDE * (variance + small / (4 * count)) ** 0.5) / (1 + small)
    few = count * np.minimum(share, 1 - share) < FEW
    return 100 * xr.where(few, wilson, WIDE * variance**0.5)


def share_and_interval(right: xr.DataArray, over: str) -> Estimate:
    """Share in % of what is true along an axis, with its interval."""
    share = 100 * right.mean(over)
    return Estimate(share, share_interval(share, right.sizes[over]))


def compare_paired(one: np.ndarray, other: np.ndarray) -> Paired:
    """McNemar's exact test of two classifiers that got these images right, (image,) of bool; one comparison."""
    wins, losses = int((one & ~other).sum()), int((other & ~one).sum())
    return Paired(wins, losses, binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
