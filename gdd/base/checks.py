"""The exception of this package, and the checks of arguments that are made before any work.

Each check returns the value in its plain form, or raises a GddError that names the argument, the value and what is
needed. Numbers first, then arrays and images.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

import numpy as np
import xarray as xr

from gdd.base.axes import COL, IMAGES, ROW

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
#: magnitudes beyond these overflow single precision once they are squared and weighted by a precision
LARGEST_PIXEL, LARGEST_VALUE = 1e6, 1e12
#: images this many standard deviations of the noise are on the wrong scale: with pixels 0 .. 1 they are 3 to 30
LARGEST_RATIO = 100.0
#: least spread of an image's pixels, and that relative to their magnitude which single precision still sees
LEAST_SPREAD, LEAST_CONTRAST = 1e-9, 1e-6


class GddError(ValueError):
    """The one exception of this package: it names the argument, the axis, the value and the remedy."""


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: object) -> str:
    """Text of a value for a message: short, whatever the value."""
    if isinstance(value, int) and value.bit_length() > 400:  # Python does not print the longest
        return f"a whole number of about {value.bit_length() * 0.30103:.0f} digits"
    return _SHORT.repr(value)


def check_whole(argument: str, value: object, least: int, most: int = LARGEST_COUNT) -> int:
    """Whole number from ``least`` to ``most``, as an int."""
    if isinstance(value, bool | np.bool) or not isinstance(value, Integral) or value < least:
        raise GddError(f"{argument}: {shown(value)} given; a whole number of at least {least} is needed")
    if value > most:
        raise GddError(f"{argument}: {shown(value)} given; a whole number from {least} to {most} is needed")
    return int(value)


def check_seed(seed: object, argument: str = "seed") -> int:
    """Whole number from 0 to 2**63 - 1, as an int."""
    return check_whole(argument, seed, 0, LARGEST_SEED)


def check_lengths(burn_in: object, collect: object) -> tuple[int, int]:
    """Sweeps of a chain, as ints; at least one is collected."""
    return check_whole("burn_in", burn_in, 0), check_whole("collect", collect, 1)


def check_pair(argument: str, pair: object) -> tuple[int, int]:
    """Two whole numbers of at least 1, as (rows, columns)."""
    pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise GddError(f"{argument}: {shown(pair)} given; two whole numbers (rows, columns) are needed")
    rows, columns = (check_whole(f"{argument}, axis '{axis}'", v, 1) for axis, v in zip((ROW, COL), pair, strict=True))
    return rows, columns


def check_block(argument: str, pool: object) -> tuple[int, int]:
    """Size of a pooling block whose places can be numbered."""
    rows, columns = check_pair(argument, pool)
    if rows * columns > LARGEST_BLOCK:
        raise GddError(f"{argument}: ({rows}, {columns}) given; a block has at most {LARGEST_BLOCK} places")
    return rows, columns


def check_real(argument: str, value: object, low: float, high: float, what: str = "a number") -> float:
    """Real number from ``low`` to ``high``, as a float."""
    if isinstance(value, bool | np.bool) or not isinstance(value, Real) or not low <= value <= high:
        raise GddError(f"{argument}: {shown(value)} given; {what} from {low:g} to {high:g} is needed")
    return float(value)


def check_precision(argument: str, value: object) -> float:
    """Precision, or parameter of its prior, as a float."""
    return check_real(argument, value, SMALLEST_PRECISION, LARGEST_PRECISION, "a positive finite number")


def check_choice(argument: str, value: object, choices: Sequence[str]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in choices:
        raise GddError(f"{argument}: {shown(value)} given; one of {', '.join(map(repr, choices))} is needed")
    return value


def check_kind(argument: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    """Value of this type, or of one of these; a truth value of NumPy is one of Python."""
    value = bool(value) if isinstance(value, np.bool) else value
    if not isinstance(value, kind):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise GddError(f"{argument}: {type(value).__name__} given; {names} is needed")
    return value


def as_plain(array: np.ndarray | xr.DataArray, dims: Sequence[str], argument: str) -> np.ndarray:
    """Array with the axes in this order: a labelled one by their names, a plain one as it stands; no axis is empty."""
    if isinstance(array, xr.DataArray):
        if sorted(map(str, array.dims)) != sorted(dims):
            raise GddError(f"{argument}: axes {tuple(array.dims)} given, axes {tuple(dims)} needed; rename or add them")
        array = array.transpose(*dims).values
    array = as_array(array, argument)
    if array.ndim != len(dims):
        raise GddError(
            f"{argument}: {array.ndim} axes of sizes {array.shape} given, {len(dims)} axes {tuple(dims)} needed"
        )
    for axis, size in zip(dims, array.shape, strict=True):
        if size == 0:
            raise GddError(f"{argument}: axis '{axis}' has size 0; at least 1 is needed")
    return array


def as_array(array: np.ndarray, argument: str) -> np.ndarray:
    """Array of real numbers or truth values, in the one form for which kernels are compiled.

    It is contiguous in C order, aligned, writable and in native byte order; floating point is single or double.
    """
    if any(np.ma.is_masked(part) for part in (array, *(array if isinstance(array, list | tuple) else ()))):
        raise GddError(
            f"{argument}: a masked array given, whose mask would be lost; give its data, such as {argument}.filled(0), "
            f"and hide pixels of images by mask=~numpy.ma.getmaskarray({argument})"
        )
    try:
        array = np.asarray(array)
    except (ValueError, TypeError, RuntimeError) as error:  # of objects that make an array themselves
        raise GddError(f"{argument}: not an array ({error}); rows of equal lengths are needed") from error
    check_memory(argument, array.size, array.itemsize)  # a broadcast array takes no memory; every check of it would
    if array.dtype.kind not in "biuf":
        raise GddError(f"{argument}: values of type {array.dtype} given; real numbers are needed")
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        dtype = np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return np.require(array, dtype, "CAW")


def as_finite(array: np.ndarray | xr.DataArray, dims: Sequence[str], argument: str) -> np.ndarray:
    """As `as_plain`; no value is NaN, infinite or huge."""
    array = as_plain(array, dims, argument)
    if (wrong := ~(np.abs(array) <= LARGEST_VALUE)).any():
        raise GddError(f"{argument}: {first_wrong(wrong, array, dims)}; finite numbers up to {LARGEST_VALUE:g} needed")
    return array


def first_wrong(wrong: np.ndarray, array: np.ndarray, dims: Sequence[str] = IMAGES) -> str:
    """Name the first value of an array that is wrong."""
    where = np.argwhere(wrong)[0]
    return ", ".join(f"{axis} {int(i)}" for axis, i in zip(dims, where, strict=True)) + f" is {array[tuple(where)]}"


def as_pixels(
    images: np.ndarray | xr.DataArray, argument: str = "images", mask: np.ndarray | None = None,
    constant: bool = False, dtype: type | None = None,
) -> np.ndarray:
    """Images that a model can be fitted to: a checked copy (image, plane, row, col), 0 where a pixel is hidden.

    images : (image, plane, row, col)
    argument : name that messages use
    mask : (image, plane, row, col) of bool, optional     True where a pixel was observed
    constant : whether an image may be constant: at test time, when only its blank half may be observed
    dtype : of the copy; default: float64 if the images are of more than single precision, else float32
    """
    images = as_plain(images, IMAGES, argument)
    if not np.issubdtype(images.dtype, np.floating):
        raise GddError(f"{argument}: pixels of type {images.dtype}; floating point is needed, such as images / 255.0")
    if mask is not None and (mask.dtype != bool or mask.shape != images.shape):
        raise GddError(
            f"mask: {mask.dtype} of shape {mask.shape}; bool of the shape of {argument}, {images.shape}, is needed"
        )
    observed = np.True_ if mask is None else mask
    if mask is not None and (hidden := ~mask.any(axis=(1, 2, 3))).any():
        raise GddError(f"mask: image {int(hidden.argmax())} is hidden whole; leave that image out")
    if (wrong := ~np.isfinite(images) & observed).any():
        raise GddError(f"{argument}: pixel {first_wrong(wrong, images)}; replace it, or hide it with a mask")
    highest = np.max(images, axis=(1, 2, 3), where=observed, initial=-np.inf).astype(float)
    lowest = np.min(images, axis=(1, 2, 3), where=observed, initial=np.inf).astype(float)
    largest = np.maximum(np.abs(highest), np.abs(lowest))
    if largest.max() > LARGEST_PIXEL:
        n = int(largest.argmax())
        raise GddError(
            f"{argument}: image {n} has a pixel of magnitude {largest[n]:g}; at most {LARGEST_PIXEL:g} is needed, "
            "such as images / numpy.abs(images).max()"
        )
    alike = highest - lowest <= np.maximum(LEAST_SPREAD, LEAST_CONTRAST * largest)
    if alike.any() and not constant:
        n = int(alike.argmax())
        spread = f"constant to within {highest[n] - lowest[n]:g}" if highest[n] > lowest[n] else "constant"
        raise GddError(f"{argument}: image {n} is {spread}; leave it out, nothing can be learned from it")
    dtype = dtype or (np.float64 if images.dtype.itemsize > 4 else np.float32)
    return np.array(images if mask is None else np.where(mask, images, 0), dtype, order="C")


def warn_of_scale(images: np.ndarray, gamma_e: float | None) -> None:
    """Warn where checked images (image, plane, row, col) are far too large for the noise precision, if it is held."""
    if gamma_e is None:
        return
    ratio = float(np.sqrt(gamma_e * np.vdot(images, images) / images.size))
    if ratio > LARGEST_RATIO:
        warnings.warn(
            f"images: their root mean square is {ratio:.0f} standard deviations of the noise, whose precision is "
            f"held at {gamma_e:g}; divide pixels of 0 .. 255 by 255, or hold the precision at a smaller number",
            stacklevel=3,
        )


def check_memory(argument: str, count: int, size: int = 8) -> None:
    """Raise if an array of ``count`` numbers, of ``size`` bytes each, would exceed this machine's memory."""
    if count * size > memory():
        raise GddError(
            f"{argument}: an array of {shown(count)} numbers would be needed; this machine has {memory() / 1e9:.3g} GB:"
            " use smaller sizes or fewer images"
        )


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
