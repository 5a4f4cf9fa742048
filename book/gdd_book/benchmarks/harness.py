"""Timing jobs in turn, rows of the table that comes of it, and the bare arithmetic that a sweep is held against.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import cache
from math import nan, prod
from typing import NamedTuple

import numpy as np
import xarray as xr
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from gdd.base import compiling
from gdd.base.compiling import kernel
from gdd.model.spec import LayerShape
from gdd.sampler.kernels.random import WORDS, fill_key, next_uniform
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
    size: float = nan  # number of images, or of an atom's pixels along a side, where a cost is shown against it


def row(seconds: np.ndarray, unit: str = "ms per image", size: float = nan) -> Row:
    """Median and minimum of times, given in seconds and kept in milliseconds."""
    return Row(1e3 * float(np.median(seconds)), 1e3 * float(np.min(seconds)), unit, size)


def ratio(above: np.ndarray, below: np.ndarray, size: float = nan) -> Row:
    """Ratio of the medians, and of the minima."""
    return Row(float(np.median(above) / np.median(below)), float(np.min(above) / np.min(below)), "ratio", size)


def single(value: float, unit: str) -> Row:
    """Return a number that was measured once, and is no time."""
    return Row(float(value), float(value), unit)


def as_dataset(parts: Mapping[str, Mapping[str, Row]]) -> xr.Dataset:
    """All rows of all parts as one table: ``part``, ``median``, ``minimum``, ``unit``, ``size`` along ``quantity``."""
    rows = {name: (part, *row) for part, found in parts.items() for name, row in found.items()}
    columns = zip(("part", *Row._fields), zip(*rows.values(), strict=True), strict=True)
    return xr.Dataset({name: ("quantity", list(column)) for name, column in columns}, {"quantity": list(rows)})


@contextmanager
def on_threads(number: int):
    """Compiled loops on this many threads, linear algebra on one; as it was before afterwards."""
    with compiling.on_threads(number), threadpool_limits(1):
        yield


def seconds_of(timing: Timing) -> float:
    """Time of one call, per image."""
    clock = time.perf_counter if timing.wall else time.process_time
    begin = clock()
    timing.job()
    return (clock() - begin) / timing.images


def time_in_turn(timings: dict[str, Timing], repeats: int, run: Run) -> dict[str, np.ndarray]:
    """Seconds per image of every job, ``repeats`` times in turn, after one turn that is not counted."""
    seconds = {name: np.empty(repeats + 1) for name in timings}
    with run.bar((repeats + 1) * len(timings), "timing") as bar:
        for turn in range(repeats + 1):
            for name, timing in timings.items():
                with on_threads(timing.threads):
                    seconds[name][turn] = seconds_of(timing)
                bar.step()
    return {name: values[1:] for name, values in seconds.items()}


def bound(name: str, shape: LayerShape, images: int) -> dict[str, Timing]:
    """Parts of a layer's bound for about this many images: bare arithmetic, on arrays of its own."""
    positions, taps, calls = prod(shape.map_size), prod(shape.dictionary[1:]), shape.atoms * prod(shape.grid)
    batch = max(1, ROWS // positions)
    return bare_work(name, (batch * positions, taps, shape.atoms), positions * shape.atoms, calls, images, batch)


def bare_work(
    name: str, product: tuple[int, int, int], exponentials: int, calls: int, images: int, batch: int
) -> dict[str, Timing]:
    """One matrix product for every ``batch`` images; so many exponentials and calls of the generator for each image.

    ``product`` : (rows, inner, columns), (rows, inner) times (inner, columns)
    """
    rows, inner, columns = product
    generator, batches = np.random.default_rng(0), range(-(-images // batch))
    left, right = (generator.standard_normal(size, np.float32) for size in ((rows, inner), (inner, columns)))
    out = np.empty((rows, columns), np.float32)
    exponents = generator.standard_normal(exponentials * batch, np.float32)
    result, images = np.empty_like(exponents), len(batches) * batch

    def multiply():
        for _ in batches:
            np.matmul(left, right, out=out)

    def exponentiate():
        for _ in batches:
            np.exp(exponents, out=result)

    jobs = {"product": multiply, "exponentials": exponentiate, "generator": lambda: many_uniforms(images * calls)}
    return {f"{name}: bound, {part}": Timing(job, images) for part, job in jobs.items()}


def bound_of(name: str, seconds: dict[str, np.ndarray]) -> np.ndarray:
    """Sum of a bound's parts, turn by turn."""
    return np.sum([values for part, values in seconds.items() if part.startswith(f"{name}: bound,")], axis=0)


@kernel()
def many_uniforms(calls):
    """Sum of so many uniform numbers of one stream."""
    stream = np.empty(WORDS, np.uint64)
    fill_key(stream, (0, 0, 0, 0), 0)
    total = 0.0
    for _ in range(calls):
        total += next_uniform(stream)
    return total


def bound_in_processes(number: int, shape: LayerShape, images: int) -> Callable[[], object]:
    """So many processes each do the bound of a layer on one thread, side by side.

    Processes and not threads: what they gain is what the machine gives, free of Python's lock.
    """
    return lambda: Parallel(number)(delayed(_do_bound)(shape, images) for _ in range(number))


def _do_bound(shape: LayerShape, images: int) -> None:
    with on_threads(1):
        for timing in _bound_of_process(shape, images):
            timing.job()


@cache
def _bound_of_process(shape: LayerShape, images: int) -> list[Timing]:
    return list(bound("", shape, images).values())
