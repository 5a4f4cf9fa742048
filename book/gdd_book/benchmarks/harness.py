"""Timing jobs in turn, and the bare arithmetic that a sweep is held against.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block.

*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing import get_context
from typing import NamedTuple

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from gdd.base.compiling import kernel
from gdd.model.spec import LayerShape
from gdd.sampler.random import WORDS, fill_stream, next_uniform

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
    """Parts of a layer's bound for about this many images: bare arithmetic, on arrays of its own."""
    positions, taps = int(np.prod(shape.map_size)), int(np.prod(shape.dictionary[1:]))
    batch = max(1, ROWS // positions)
    calls = shape.atoms * int(np.prod(shape.grid))
    return bare_work(batch * positions, taps, shape.atoms, positions * shape.atoms, calls, images, batch)


def bare_work(
    rows: int, inner: int, columns: int, exponentials: int, calls: int, images: int, batch: int | None = None
) -> dict[str, Timing]:
    """One matrix product for every ``batch`` images; so many exponentials and calls of the generator for each image.

    rows, inner, columns : the product is (rows, inner) times (inner, columns)
    batch : None stands for ``columns``
    """
    batch = batch or columns
    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal(size, np.float32) for size in ((rows, inner), (inner, columns)))
    product = np.empty((rows, columns), np.float32)
    exponents = generator.standard_normal(exponentials * batch, np.float32)
    result = np.empty_like(exponents)
    batches = range(-(-images // batch))
    images = len(batches) * batch

    def multiply():
        for _ in batches:
            np.matmul(left, right, out=product)

    def exponentiate():
        for _ in batches:
            np.exp(exponents, out=result)

    jobs = {"product": multiply, "exponentials": exponentiate, "generator": lambda: many_uniforms(images * calls)}
    return {part: Timing(job, images) for part, job in jobs.items()}


@kernel(nogil=True)
def many_uniforms(calls):
    """Sum of so many uniform numbers of one stream."""
    stream = np.empty(WORDS, np.uint64)
    fill_stream(stream, 0, 0, 0, 0, 0)
    total = 0.0
    for _ in range(calls):
        total += next_uniform(stream)
    return total


class Copies:
    """Processes of their own that each do the bound of one layer, alone on one thread, whenever they are told to.

    Processes and not threads: what they gain side by side is what the machine gives, free of Python's lock.
    """

    def __init__(self, number: int, shape: LayerShape, images: int):
        context = get_context("spawn")
        self._ends, self._processes = [], []
        for _ in range(number):
            end, other = context.Pipe()
            self._processes.append(context.Process(target=_do_when_told, args=(other, shape, images), daemon=True))
            self._processes[-1].start()
            self._ends.append(end)

    def job(self, number: int) -> Callable[[], object]:
        """So many of the processes start together; done when the last of them is."""
        ends = self._ends[:number]

        def together():
            for end in ends:
                end.send(True)
            for end in ends:
                end.recv()

        return together

    def __enter__(self) -> Copies:
        self.job(len(self._ends))()  # waits until all of them are up
        return self

    def __exit__(self, *_) -> None:
        for end, process in zip(self._ends, self._processes, strict=True):
            end.send(False)
            process.join()


def _do_when_told(end, shape: LayerShape, images: int) -> None:
    jobs = [timing.job for timing in bound(shape, images).values()]
    with on_threads(1):
        while end.recv():
            for job in jobs:
                job()
            end.send(True)
