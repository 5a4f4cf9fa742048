"""Compiled functions of the processor, compiled for a graphics processor from the same source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType

from numba import cuda

from gdd.base.checks import GddError

#: threads of a block; a block works on one image
THREADS = 128


def on_device(functions: Sequence[Callable]) -> dict[str, Callable]:
    """The same functions for the device by name, in the order in which they call each other, the called ones first."""
    found = {}
    for function in functions:
        plain = function.py_func
        own = FunctionType(plain.__code__, {**plain.__globals__, **found}, plain.__name__, plain.__defaults__)
        found[plain.__name__] = cuda.jit(device=True)(own)
    return found


def check_available() -> None:
    """GddError unless there is a graphics processor that can be used."""
    if not cuda.is_available():
        raise GddError(
            "device: 'cuda' given, and no NVIDIA graphics processor can be used here; leave device out for the"
            " processor, or pip install 'gdd[cuda]' on a machine that has one and its driver"
        )
