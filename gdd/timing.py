"""Timing jobs in turn, and the bare arithmetic that a sweep is held against.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block.

*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numba
import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from gdd.sampler.random import WORDS, fill_stream, next_uniform
from gdd.spec import LayerShape

#: rows of a matrix product in the bound: enough images at once for the product to reach its full speed
ROWS = 2000


class Timing(NamedTuple):
    """One thing that is timed."""

    job: Callable[[], object]
    images: int = 1  # the time is divided by this
    threads: int = 1
    wall: bool = False  # wall time, not processor time


@contextmanager
def on_threads(number: int):
    """Compiled loops and linear algebra on this many threads, as it was before afterwards."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)


def seconds_of(timing: Timing) -> float:
    """Time of one call, per image."""
    clock = time.perf_counter if timing.wall else time.process_time
    begin = clock()
    timing.job()
    return (clock() - begin) / timing.images


def time_in_turn(timings: dict[str, Timing], repeats: int, progress) -> dict[str, np.ndarray]:
    """Seconds per image of every job, ``repeats`` times in turn, after one turn that is not counted."""
    seconds = {name: np.empty(repeats) for name in timings}
    with progress((repeats + 1) * len(timings), "timing") as bar:
        for turn in range(-1, repeats):
            for name, timing in timings.items():
                with on_threads(timing.threads):
                    taken = seconds_of(timing)
                if turn >= 0:
                    seconds[name][turn] = taken
                bar.step()
    return seconds


def bound(shape: LayerShape, images: int) -> dict[str, Timing]:
    """Parts of the bound for about this many images: bare arithmetic, on arrays of its own."""
    positions, taps = int(np.prod(shape.map_size)), int(np.prod(shape.dictionary[1:]))
    batch = max(1, ROWS // positions)
    generator = np.random.default_rng(0)
    windows = generator.standard_normal((batch * positions, taps), np.float32)
    atoms = generator.standard_normal((taps, shape.atoms), np.float32)
    product = np.empty((len(windows), shape.atoms), np.float32)
    exponents = generator.standard_normal(product.shape, np.float32)
    result = np.empty_like(exponents)
    batches = range(-(-images // batch))
    images = len(batches) * batch
    calls = images * shape.atoms * int(np.prod(shape.grid))

    def multiply():
        for _ in batches:
            np.matmul(windows, atoms, out=product)

    def exponentiate():
        for _ in batches:
            np.exp(exponents, out=result)

    jobs = {"product": multiply, "exponentials": exponentiate, "generator": lambda: many_uniforms(calls)}
    return {part: Timing(job, images) for part, job in jobs.items()}


@njit(cache=True, nogil=True)
def many_uniforms(calls):
    """Sum of so many uniform numbers of one stream."""
    stream = np.empty(WORDS, np.uint64)
    fill_stream(stream, 0, 0, 0, 0, 0)
    total = 0.0
    for _ in range(calls):
        total += next_uniform(stream)
    return total


def copies_job(copies: list[list[Callable]]) -> Callable[[], object]:
    """Run independent copies of a list of jobs side by side, one thread each."""

    def one(jobs):
        for job in jobs:
            job()

    def all_of_them():
        with ThreadPoolExecutor(len(copies)) as pool:
            list(pool.map(one, copies))

    return all_of_them
