"""Rows of the table that `gdd bench` makes: median and minimum over repeats, and in which unit.

*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import NamedTuple

import numpy as np
import xarray as xr

PER_IMAGE = "ms per image"


class Row(NamedTuple):
    """One line of the table."""

    median: float
    minimum: float
    unit: str
    size: float = nan  # number of images, or of an atom's pixels along a side, where a cost is shown against it


def row(seconds: np.ndarray, unit: str = PER_IMAGE, size: float = nan) -> Row:
    """Median and minimum of times, given in seconds and kept in milliseconds."""
    return Row(1e3 * float(np.median(seconds)), 1e3 * float(np.min(seconds)), unit, size)


def ratio(above: np.ndarray, below: np.ndarray, size: float = nan) -> Row:
    """Ratio of the medians, and of the minima."""
    return Row(float(np.median(above) / np.median(below)), float(np.min(above) / np.min(below)), "ratio", size)


def single(value: float, unit: str, size: float = nan) -> Row:
    """Return a number that was had once, and is no time."""
    return Row(float(value), float(value), unit, size)


def as_dataset(parts: Mapping[str, Mapping[str, Row]]) -> xr.Dataset:
    """All rows of all parts as one table: ``part``, ``median``, ``minimum``, ``unit``, ``size`` along ``quantity``."""
    rows = {name: (part, *row) for part, found in parts.items() for name, row in found.items()}
    columns = zip(*rows.values(), strict=True)
    names = ("part", *Row._fields)
    table = {name: ("quantity", list(column)) for name, column in zip(names, columns, strict=True)}
    return xr.Dataset(table, {"quantity": list(rows)})
