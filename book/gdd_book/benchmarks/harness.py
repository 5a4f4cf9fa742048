"""Timing jobs in turn, rows of the table that comes of it, and the bare arithmetic that a sweep is held against.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from gdd.base import compiling
from gdd.base.compiling import kernel
from gdd.model.spec import LayerShape
from gdd.sampler.kernels.random import STREAM_SIZE, fill_key, next_uniform
from gdd_book.progress import Run

#: rows of a matrix product in the bound: enough images at once for the product to reach its full speed
ROWS = 2000


class Timing(NamedTuple):
    """One thing that is timed."""

    job: Callable[[], object]
    images: int = 1  # the time is divided by this
    threads: int = 1
    wall: bool = False  # wall time, not processor time


class Row(NamedTuple):
    """One line of the table: median and minimum over repeats."""

    median: float
    minimum: float
    unit: str


def row(seconds: np.ndarray, unit: str = "ms per image") -> Row:
    """Median and minimum of times, given in seconds and kept in milliseconds."""
    return Row(1e3 * float(np.median(seconds)), 1e3 * float(np.min(seconds)), unit)


def ratio(above: np.ndarray, below: np.ndarray) -> Row:
    """Ratio of the medians, and of the minima."""
    return Row(float(np.median(above) / np.median(below)), float(np.min(above) / np.min(below)), "ratio")


def single(value: float, unit: str) -> Row:
    """Return a number that was measured once, and is no time."""
    return Row(float(value), float(value), unit)


def as_dataset(parts: Mapping[str, Mapping[str, Row]]) -> xr.Dataset:
    """All rows of all parts as one table: ``part``, ``median``, ``minimum``, ``unit`` along ``quantity``."""
    rows = {name: (part, *row) for part, found in parts.items() for name, row in found.items()}
    columns = zip(("part", *Row._fields), zip(*rows.values(), strict=True), strict=True)
    return xr.Dataset({name: ("quantity", list(column)) for name, column in columns}, {"quantity": list(rows)})


@contextmanager
def on_threads(number: int):
    """Compiled loops on this many threads, linear algebra on one; as it was before afterwards."""
    with compiling.on_threads(number), threadpool_limits(1):
        yield


def time_in_turn(timings: Mapping[str, Timing], repeats: int, run: Run) -> dict[str, np.ndarray]:
    """Seconds per image of every job, ``repeats`` times in turn, after one turn that is not counted."""
    seconds = {name: np.empty(repeats + 1) for name in timings}
    with run.bar((repeats + 1) * len(timings), "timing") as bar:
        for turn in range(repeats + 1):
            for name, timing in timings.items():
                clock = time.perf_counter if timing.wall else time.process_time
                with on_threads(timing.threads):
                    begin = clock()
                    timing.job()
                    seconds[name][turn] = (clock() - begin) / timing.images
                bar.step()
    return {name: values[1:] for name, values in seconds.items()}


def bound(shape: LayerShape, images: int, draws: bool = True) -> Timing:
    """Bound of a layer for about this many images; without ``draws`` no random numbers are in it."""
    positions, taps, calls = prod(shape.map_size), prod(shape.dictionary[1:]), draws * shape.atoms * prod(shape.grid)
    batch = max(1, ROWS // positions)
    return bare_work((batch * positions, taps, shape.atoms), positions * shape.atoms, calls, images, batch)


def bare_work(product: tuple[int, int, int], exponentials: int, calls: int, images: int, batch: int) -> Timing:
    """One matrix product, (rows, inner) times (inner, columns), for every ``batch`` images; the rest for each image."""
    (rows, inner, columns), batches = product, -(-images // batch)
    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal(size, np.float32) for size in ((rows, inner), (inner, columns)))
    exponents = generator.standard_normal(exponentials * batch, np.float32)
    out, result = np.empty((rows, columns), np.float32), np.empty_like(exponents)

    def job() -> None:
        for _ in range(batches):
            np.matmul(left, right, out=out)
            np.exp(exponents, out=result)
        many_uniforms(batches * batch * calls)

    return Timing(job, batches * batch)


@kernel()
def many_uniforms(calls):
    """Sum of so many uniform numbers of one stream."""
    stream = np.empty(STREAM_SIZE, np.uint64)
    fill_key(stream, (0, 0, 0, 0), 0)
    total = 0.0
    for _ in range(calls):
        total += next_uniform(stream)
    return total
