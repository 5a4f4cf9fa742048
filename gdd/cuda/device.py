"""What every kernel of a graphics processor uses: compiled functions of the processor from the same source, threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from types import FunctionType

import numpy as np
from numba import cuda, int32

from gdd.base.checks import GddError

#: threads of a block; a block works on one image
THREADS = 128


def on_device(functions: Sequence[Callable], known: Mapping[str, Callable] | None = None) -> dict[str, Callable]:
    """The same functions for the device by name, in the order in which they call each other, the called ones first.

    known : functions of the device by the names by which these call them
    """
    found = dict(known or {})
    for function in functions:
        plain = getattr(function, "py_func", function)
        own = FunctionType(plain.__code__, {**plain.__globals__, **found}, plain.__name__, plain.__defaults__)
        found[plain.__name__] = cuda.jit(device=True)(own)
    return found


def to_device(values: tuple) -> tuple:
    """The same named tuple with every array on the device."""
    return values._replace(**{
        name: cuda.to_device(value) for name, value in values._asdict().items() if isinstance(value, np.ndarray)
    })


def check_available() -> None:
    """GddError unless there is a graphics processor that can be used."""
    if not cuda.is_available():
        missing = "its driver, or none is here" if find_spec("numba_cuda") else "the extra: pip install 'gdd[cuda]'"
        raise GddError(
            f"device: 'cuda' given, and no NVIDIA graphics processor can be used here for want of {missing}; leave"
            " device out for the processor"
        )


def name() -> str:
    """Name of the graphics processor."""
    found = cuda.get_current_device().name
    return found.decode() if isinstance(found, bytes) else found


def images_at_once(arguments: str, images: int, fixed: int, each: int) -> int:
    """How many images fit the device's free memory; ``fixed``, ``each`` : bytes for all of them, and for each.

    GddError naming ``arguments`` if not even one fits.
    """
    free = 0.9 * cuda.current_context().get_memory_info().free  # the rest is for the kernels themselves
    if fixed + each > free:
        raise GddError(
            f"{arguments}: {(fixed + each) / 1e9:.3g} GB of the graphics processor's memory are needed,"
            f" {free / 1e9:.3g} GB are free; give fewer or smaller atoms, or leave device out"
        )
    return int(min(images, (free - fixed) / each))


@cuda.jit(device=True)
def total_of(value, partial):
    """Sum of one number of every thread, in their order; for all of them. Changes ``partial`` (thread,)."""
    partial[cuda.threadIdx.x] = value
    cuda.syncthreads()
    total = 0.0
    for t in range(THREADS):
        total += partial[t]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def first_of(passed, own, none, found):
    """Least ``own`` number of the threads that ``passed``; ``none`` if none did. Changes ``found`` (at least 1,)."""
    if not cuda.syncthreads_or(int32(passed)):
        return none
    if cuda.threadIdx.x == 0:
        found[0] = none
    cuda.syncthreads()
    if passed:
        cuda.atomic.min(found, 0, own)
    cuda.syncthreads()
    first = found[0]
    cuda.syncthreads()
    return first
