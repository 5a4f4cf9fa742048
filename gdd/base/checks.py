"""Checks of numbers, sizes and kinds of arguments, made before any work.

Each returns the value in its plain form, or raises a GddError that names the argument, the value and what is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from gdd.base.axes import COL, ROW, GddError, shown

#: seeds key a counter-based generator with one signed 64-bit word
LARGEST_SEED = 2**63 - 1
#: sizes and counts: more would not fit a signed 32-bit word
LARGEST_COUNT = 2**31 - 1
#: places of a pooling block are kept in 16 bits with a sign
LARGEST_BLOCK = 2**15 - 1
#: between these, precisions times squares of pixels stay within single precision
SMALLEST_PRECISION, LARGEST_PRECISION = 1e-12, 1e12
#: what to do when a chain's numbers overflow
REMEDY = "scale the pixels to about 0 .. 1, and precisions and start accordingly"


def check_whole(argument: str, value: object, least: int, most: int = LARGEST_COUNT) -> int:
    """Return ``value`` as an int; GddError if it is no whole number from ``least`` to ``most``."""
    if isinstance(value, bool | np.bool) or not isinstance(value, Integral) or value < least:
        raise GddError(f"{argument}: {shown(value)} given; a whole number of at least {least} is needed")
    if value > most:
        raise GddError(f"{argument}: {shown(value)} given; a whole number from {least} to {most} is needed")
    return int(value)


def check_seed(seed: object, argument: str = "seed") -> int:
    """Return a seed as an int; GddError if it is no whole number from 0 to 2**63 - 1."""
    return check_whole(argument, seed, 0, LARGEST_SEED)


def check_lengths(burn_in: object, collect: object, warm_up: object = 0) -> tuple[int, int, int]:
    """Return the sweeps of a chain as ints; GddError if nothing is collected, or warm-up is longer than burn-in."""
    burn_in, collect = check_whole("burn_in", burn_in, 0), check_whole("collect", collect, 1)
    if check_whole("warm_up", warm_up, 0) > burn_in:
        raise GddError(f"warm_up: {warm_up} given; a whole number from 0 to burn_in, {burn_in}, is needed")
    return burn_in, collect, int(warm_up)


def check_pair(argument: str, pair: object) -> tuple[int, int]:
    """Return ``pair`` as (rows, columns); GddError if it is not two whole numbers of at least 1."""
    pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise GddError(f"{argument}: {shown(pair)} given; two whole numbers (rows, columns) are needed")
    rows, columns = (check_whole(f"{argument}, axis '{axis}'", v, 1) for axis, v in zip((ROW, COL), pair, strict=True))
    return rows, columns


def check_block(argument: str, pool: object) -> tuple[int, int]:
    """Return the size of a pooling block; GddError if it has more places than can be numbered."""
    rows, columns = check_pair(argument, pool)
    if rows * columns > LARGEST_BLOCK:
        raise GddError(f"{argument}: ({rows}, {columns}) given; a block has at most {LARGEST_BLOCK} places")
    return rows, columns


def check_real(argument: str, value: object, low: float, high: float, what: str = "a number") -> float:
    """Return ``value`` as a float; GddError if it is no real number from ``low`` to ``high``."""
    if isinstance(value, bool | np.bool) or not isinstance(value, Real) or not low <= value <= high:
        raise GddError(f"{argument}: {shown(value)} given; {what} from {low:g} to {high:g} is needed")
    return float(value)


def check_precision(argument: str, value: object) -> float:
    """Return a precision, or a parameter of its prior, as a float; GddError if it is not positive or not usual."""
    return check_real(argument, value, SMALLEST_PRECISION, LARGEST_PRECISION, "a positive finite number")


def check_choice(argument: str, value: object, choices: Sequence[str]) -> str:
    """Return one of these words; GddError, listing them, for anything else."""
    if not isinstance(value, str) or value not in choices:
        raise GddError(f"{argument}: {shown(value)} given; one of {', '.join(map(repr, choices))} is needed")
    return value


def check_kind(argument: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Refuse an argument that is not of this type, or of one of these."""
    if not isinstance(value, kind):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise GddError(f"{argument}: {type(value).__name__} given; {names} is needed")


def check_sequence(argument: str, value: object) -> None:
    """Refuse an argument that is not a tuple, a list, or an array with at least one axis."""
    check_kind(argument, value, (tuple, list, np.ndarray))
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise GddError(f"{argument}: an array without an axis given; a sequence is needed")
