"""Names of axes and symbols, said once; checks that name the axis at fault; numpy to xarray and back.

Every array of the package has its axes named here. A trailing comment such as ``# (image, atom, row, col)``
anywhere in the code uses these words, and so do the error messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

IMAGE = "image"
PLANE = "plane"
ROW = "row"
COL = "col"
ATOM = "atom"
ATOM_ROW = "atom_row"
ATOM_COL = "atom_col"
BLOCK_ROW = "block_row"
BLOCK_COL = "block_col"
POSITION = "position"
FEATURE = "feature"
LABEL = "label"
CHAIN = "chain"
DRAW = "draw"

IMAGES = (IMAGE, PLANE, ROW, COL)
DICTIONARY = (ATOM, PLANE, ATOM_ROW, ATOM_COL)
MAPS = (IMAGE, ATOM, ROW, COL)
BLOCKS = (IMAGE, ATOM, BLOCK_ROW, BLOCK_COL)


class GddError(ValueError):
    """The one exception of this package: it names the argument, the axis, the value and the remedy."""


def as_labelled(array: np.ndarray, dims: Sequence[str], name: str | None = None, **attrs) -> xr.DataArray:
    """Give an array its axis names (a ``DataArray`` with these dims); GddError if their number differs."""
    check_axes(array, dims, name or "array")
    return xr.DataArray(array, dims=tuple(dims), name=name, attrs=attrs)


def as_plain(array: np.ndarray | xr.DataArray, dims: Sequence[str], argument: str) -> np.ndarray:
    """Take an array by its axis names, in the order asked for; a plain array is taken to be in that order.

    Raises
    ------
    GddError
        If an axis is missing, or there are more or fewer axes than asked for.
    """
    if isinstance(array, xr.DataArray):
        missing = [d for d in dims if d not in array.dims]
        if missing or array.ndim != len(dims):
            raise GddError(f"{argument}: axes {tuple(array.dims)} given, axes {tuple(dims)} needed; rename or add them")
        return array.transpose(*dims).values
    array = np.asarray(array)
    check_axes(array, dims, argument)
    return array


def check_axes(array: np.ndarray, dims: Sequence[str], argument: str) -> None:
    """Refuse an array whose number of axes is not that of ``dims``."""
    if np.ndim(array) != len(dims):
        raise GddError(
            f"{argument}: {np.ndim(array)} axes of sizes {np.shape(array)} given, {len(dims)} axes {tuple(dims)} needed"
        )


def check_images(
    images: np.ndarray, argument: str = "images", mask: np.ndarray | None = None, constant: bool = False
) -> None:
    """Refuse images that no model can be fitted to, before any work is done.

    Parameters
    ----------
    images : (image, plane, row, col)
    argument : name that the message uses
    mask : (image, plane, row, col) of bool, optional     True where a pixel was observed
    constant : whether an image may be constant: at test time, when only its blank half may be seen

    Raises
    ------
    GddError
        Wrong number of axes, an empty axis, NaN or infinite pixels, a constant image, a mask of another shape
        or type, or one that hides a whole image.
    """
    check_axes(images, IMAGES, argument)
    for axis, size in zip(IMAGES, images.shape, strict=True):
        if size == 0:
            raise GddError(f"{argument}: axis '{axis}' has size 0; at least 1 is needed")
    if not np.issubdtype(images.dtype, np.floating):
        raise GddError(f"{argument}: pixels of type {images.dtype}; floating point is needed, such as images / 255.0")
    if mask is not None:
        _check_mask(mask, images, argument)
    seen = np.isfinite(images) if mask is None else np.isfinite(images) | ~mask
    if not seen.all():
        where = np.argwhere(~seen)[0]
        value = images[tuple(where)]
        raise GddError(f"{argument}: pixel {_place(where)} is {value}; replace it, or hide it with a mask")
    if constant:
        return
    flat = images if mask is None else np.where(mask, images, np.nan)
    spread = np.nanmax(flat, axis=(1, 2, 3)) - np.nanmin(flat, axis=(1, 2, 3))
    if (spread == 0).any() and flat[0].size > 1:
        n = int(np.flatnonzero(spread == 0)[0])
        raise GddError(f"{argument}: image {n} is constant; leave it out, nothing can be learned from it")


def _check_mask(mask: np.ndarray, images: np.ndarray, argument: str) -> None:
    if mask.dtype != bool or mask.shape != images.shape:
        raise GddError(
            f"mask: {mask.dtype} of shape {mask.shape}; bool of the shape of {argument}, {images.shape}, is needed"
        )
    hidden = ~mask.any(axis=(1, 2, 3))
    if hidden.any():
        raise GddError(f"mask: image {int(np.flatnonzero(hidden)[0])} is hidden whole; leave that image out")


def _place(where: np.ndarray) -> str:
    return ", ".join(f"{axis} {int(i)}" for axis, i in zip(IMAGES, where, strict=True))
