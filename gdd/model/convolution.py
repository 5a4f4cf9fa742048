"""Synthesis of images from atoms and maps, and its two adjoints.

One linear map, seen from three sides: images = sum over atoms of (atom * map). `synthesise` applies it,
`correlate` is its adjoint in the maps, `correlate_with_maps` its adjoint in the dictionary. They are for
people, projection, tests and figures; the sampler keeps its own compiled forms and a test compares them.
"""

from __future__ import annotations

import numpy as np
import scipy.fft
import xarray as xr

from gdd.base.axes import ATOM, DICTIONARY, IMAGE, IMAGES, MAPS, PLANE
from gdd.base.checks import GddError, as_finite, check_memory

CHUNK = 64  # images transformed at a time: bounds the memory, and fixes the order of sums over images

Array = np.ndarray | xr.DataArray


def synthesise(dictionary: Array, maps: Array) -> np.ndarray:
    r"""Images that atoms and their activation maps add up to.

    .. math:: X_{nc} = \sum_k D_{kc} * S_{nk}

    with ``*`` the full two-dimensional convolution: a map of one row and an atom of h rows give h rows.

    Parameters
    ----------
    dictionary : (atom, plane, atom_row, atom_col)     D in the paper
    maps : (image, atom, row, col)                     S in the paper

    Returns
    -------
    (image, plane, row, col), with rows = map rows + atom rows - 1, in the units of dictionary times maps

    Raises
    ------
    GddError
        Wrong number of axes, an empty axis, values that are not finite, or different numbers of atoms.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, eq. 1 and 4; supplement, "Projection", for the full convolution.
    Departs: the size is the sum of the two sizes less one (P8 in the errata).
    Checked: tests/test_convolution.py (against a direct sum; adjoint identities).
    """
    dictionary, maps = _checked(dictionary, DICTIONARY, "dictionary"), _checked(maps, MAPS, "maps")
    _same(ATOM, "maps", maps.shape[1], "dictionary", dictionary.shape[0])
    size = tuple(m + d - 1 for m, d in zip(maps.shape[2:], dictionary.shape[2:], strict=True))
    check_memory("dictionary, maps", len(maps) * dictionary.shape[1] * size[0] * size[1])
    check_memory("dictionary, maps", (dictionary.shape[0] + CHUNK) * dictionary.shape[1] * size[0] * size[1])
    grid, kernel = _transformed(dictionary, size)
    out = np.empty((len(maps), dictionary.shape[1], *size), np.result_type(dictionary, maps))
    for part in _chunks(len(maps)):
        spectrum = np.einsum("nkij,kcij->ncij", scipy.fft.rfft2(maps[part], grid), kernel, optimize=True)
        out[part] = scipy.fft.irfft2(spectrum, grid)[..., : size[0], : size[1]]
    return out


def correlate(images: Array, dictionary: Array) -> np.ndarray:
    r"""Inner products of the images with every atom placed at every position: the adjoint of `synthesise`.

    .. math:: R_{nk}[i, j] = \sum_{c, a, b} X_{nc}[i + a, j + b] \, D_{kc}[a, b]

    Parameters
    ----------
    images : (image, plane, row, col)
    dictionary : (atom, plane, atom_row, atom_col)

    Returns
    -------
    (image, atom, row, col), with rows = image rows - atom rows + 1

    Raises
    ------
    GddError
        Wrong number of axes, an empty axis, values that are not finite, different numbers of planes,
        or an atom larger than the images.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 3 (the circled asterisk).
    Departs: nothing.
    Checked: tests/test_convolution.py (adjoint identity with `synthesise`).
    """
    images, dictionary = _checked(images, IMAGES, "images"), _checked(dictionary, DICTIONARY, "dictionary")
    _same(PLANE, "images", images.shape[1], "dictionary", dictionary.shape[1])
    size = _valid_size(images, dictionary, "images", "dictionary")
    check_memory("images, dictionary", len(images) * len(dictionary) * size[0] * size[1])
    grid, kernel = _transformed(dictionary, images.shape[2:])
    out = np.empty((len(images), len(dictionary), *size), np.result_type(dictionary, images))
    for part in _chunks(len(images)):
        spectrum = np.einsum("ncij,kcij->nkij", scipy.fft.rfft2(images[part], grid), kernel.conj(), optimize=True)
        out[part] = scipy.fft.irfft2(spectrum, grid)[..., : size[0], : size[1]]
    return out


def correlate_with_maps(images: Array, maps: Array) -> np.ndarray:
    r"""Sums over images of their correlations with the maps: the adjoint of `synthesise` in the dictionary.

    .. math:: B_{kc}[a, b] = \sum_{n, i, j} X_{nc}[i + a, j + b] \, S_{nk}[i, j]

    Parameters
    ----------
    images : (image, plane, row, col)
    maps : (image, atom, row, col)

    Returns
    -------
    (atom, plane, atom_row, atom_col), with atom rows = image rows - map rows + 1

    Raises
    ------
    GddError
        Wrong number of axes, an empty axis, values that are not finite, different numbers of images,
        or a map larger than the images.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Sample D" (the mean's numerator).
    Departs: nothing.
    Checked: tests/test_convolution.py (adjoint identity with `synthesise`).
    """
    images, maps = _checked(images, IMAGES, "images"), _checked(maps, MAPS, "maps")
    _same(IMAGE, "maps", len(maps), "images", len(images))
    size = _valid_size(images, maps, "images", "maps")
    check_memory("images, maps", maps.shape[1] * images.shape[1] * size[0] * size[1])
    total = 0.0
    for part in _chunks(len(images)):
        grid, kernel = _transformed(maps[part], images.shape[2:])
        spectrum = np.einsum("ncij,nkij->kcij", scipy.fft.rfft2(images[part], grid), kernel.conj(), optimize=True)
        total = total + scipy.fft.irfft2(spectrum, grid)[..., : size[0], : size[1]]
    return total.astype(np.result_type(images, maps), copy=False)


def _transformed(small: np.ndarray, size: tuple[int, int]) -> tuple[tuple[int, int], np.ndarray]:
    """A grid large enough that nothing wraps round into the part that is kept, and the transform on it."""
    grid = tuple(scipy.fft.next_fast_len(n, real=True) for n in size)
    return grid, scipy.fft.rfft2(small, grid)


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _checked(array: Array, dims: tuple[str, ...], argument: str) -> np.ndarray:
    array = as_finite(array, dims, argument)
    return array if array.dtype in (np.float32, np.float64) else array.astype(float)


def _same(axis: str, first: str, here: int, second: str, there: int) -> None:
    if here != there:
        raise GddError(f"{first}: axis '{axis}' has size {here}; {second} has {there} there, and they must agree")


def _valid_size(large: np.ndarray, small: np.ndarray, first: str, second: str) -> tuple[int, int]:
    for axis, big, little in zip(IMAGES[2:], large.shape[2:], small.shape[2:], strict=True):
        if little > big:
            raise GddError(f"{first}: axis '{axis}' has size {big}, smaller than the {little} of {second}")
    return tuple(big - little + 1 for big, little in zip(large.shape[2:], small.shape[2:], strict=True))
