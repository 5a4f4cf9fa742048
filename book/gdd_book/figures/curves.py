"""Test errors of several subsets of the training digits: means, standard errors, and the axes they are drawn on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import nan

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from gdd_book.figures.style import FONT, finish

NO_RECORD = "no paper-scale record yet"


def mean_and_error(values: xr.DataArray, over: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over an axis, and its standard error: not a number where there are fewer than two values."""
    count = values.count(over)
    return values.mean(over), (values.std(over, ddof=1) / np.sqrt(count)).where(count > 1)


def curves(found: Sequence[xr.Dataset], order: Sequence[str]) -> dict[str, dict[int, np.ndarray]]:
    """Errors of the subsets by feature and by training digits, of the record with most subsets of each.

    Parameters
    ----------
    found : records with ``error`` (size, trial, feature_kind)
    order : of the features; others follow
    """
    out: dict[str, dict[int, np.ndarray]] = {}
    for record in found:
        for kind, size in product(record.feature_kind.values, record["size"].values):
            errors = record.error.sel(feature_kind=kind, size=size).dropna("trial").values
            have = out.setdefault(str(kind), {})
            if len(errors) > len(have.get(int(size), ())):
                have[int(size)] = errors
    order = list(order)
    kinds = sorted(out, key=lambda kind: order.index(kind) if kind in order else len(order))
    return {kind: dict(sorted(out[kind].items())) for kind in kinds}


def spread_of(errors: np.ndarray) -> float:
    """Standard error of the mean of several subsets; not a number for a single one."""
    return float(np.std(errors, ddof=1) / len(errors) ** 0.5) if len(errors) > 1 else nan


def subset_table(found: Sequence[xr.Dataset], order: Sequence[str]) -> pd.DataFrame:
    """Test error in %: a row for each number of training digits, a column for each feature; (subsets)."""
    if not found:
        return pd.DataFrame({"test error": [NO_RECORD]})
    columns = {
        kind: {size: f"{said(errors.mean(), spread_of(errors))} ({len(errors)})" for size, errors in sizes.items()}
        for kind, sizes in curves(found, order).items()
    }
    return pd.DataFrame(columns).sort_index().fillna("not run").rename_axis("training digits")


def said(mean: float, spread: float, sign: str = "") -> str:
    """Mean with its standard error, if it has one."""
    return f"{mean:{sign}.2f}" if np.isnan(spread) else f"{mean:{sign}.2f} \u00b1 {spread:.2f}"


def draw_subsets(axes: Axes, sizes: dict[int, np.ndarray], **style) -> None:
    """One feature's mean error against the number of training digits, with standard errors."""
    means = [errors.mean() for errors in sizes.values()]
    spreads = np.nan_to_num([spread_of(errors) for errors in sizes.values()])
    axes.errorbar(list(sizes), means, spreads, **({"fmt": "-o", "markersize": 4, "capsize": 3} | style))


def finish_curve(figure: Figure, axes: Axes) -> Figure:
    """Axes and legend of a figure of test errors against the number of training digits."""
    axes.set(xscale="log", yscale="log", xlabel="training digits", ylabel="test error, %")
    for axis, ticks in ((axes.xaxis, (1000, 2000, 5000, 10000, 60000)), (axes.yaxis, (0.5, 1, 2, 5, 10, 20, 50))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=FONT - 2)
    return finish(figure)
