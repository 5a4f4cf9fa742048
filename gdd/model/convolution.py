"""Synthesis of images from atoms and maps, and its adjoint in the maps.

Images are bilinear in atoms and maps: the sum over atoms of (atom * map). `synthesise` is that sum, `correlate` its
adjoint in the maps. The sampler has compiled forms of its own, and a test compares them.
"""

from __future__ import annotations

import numpy as np
import scipy.fft
import xarray as xr

from gdd.base.axes import DICTIONARY, IMAGES, MAPS
from gdd.base.checks import GddError

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

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, eq. 1, 5 and 6; supplement, "Projection", for the full convolution.
    Departs: the size is the sum of the two sizes less one (P8 in the errata).
    Checked: tests/test_convolution.py (against a direct sum; adjoint identities).
    """
    dictionary, maps = _floating(dictionary, DICTIONARY), _floating(maps, MAPS)
    size = tuple(m + d - 1 for m, d in zip(maps.shape[2:], dictionary.shape[2:], strict=True))
    grid, kernel = _transformed(dictionary, size)
    out = np.empty((len(maps), dictionary.shape[1], *size), np.result_type(dictionary, maps))
    for part in _chunks(len(maps)):
        spectrum = np.einsum("nkij,kcij->ncij", scipy.fft.rfft2(maps[part], grid), kernel, optimize=True)
        out[part] = _back(spectrum, grid, size)
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

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 3 (the circled asterisk).
    Checked: tests/test_convolution.py (adjoint identity with `synthesise`).
    """
    images, dictionary = _floating(images, IMAGES), _floating(dictionary, DICTIONARY)
    size = valid_size(images, dictionary)
    grid, kernel = _transformed(dictionary, images.shape[2:])
    out = np.empty((len(images), len(dictionary), *size), np.result_type(dictionary, images))
    for part in _chunks(len(images)):
        spectrum = np.einsum("ncij,kcij->nkij", scipy.fft.rfft2(images[part], grid), kernel.conj(), optimize=True)
        out[part] = _back(spectrum, grid, size)
    return out


def correlate_each(images: np.ndarray, dictionary: np.ndarray) -> np.ndarray:
    """As `correlate`, image by image, so that an image has the same bits alone as among others."""
    size = valid_size(images, dictionary)
    grid, kernel = _transformed(dictionary, images.shape[2:])
    kernel, out = kernel.conj(), np.empty((len(images), len(dictionary), *size), np.result_type(dictionary, images))
    for image, answers in zip(images, out, strict=True):
        answers[:] = _back(np.einsum("cij,kcij->kij", scipy.fft.rfft2(image, grid), kernel), grid, size)
    return out


def _transformed(small: np.ndarray, size: tuple[int, int]) -> tuple[tuple[int, int], np.ndarray]:
    """A grid large enough that nothing wraps round into the part that is kept, and the transform on it."""
    grid = tuple(scipy.fft.next_fast_len(n, real=True) for n in size)
    return grid, scipy.fft.rfft2(small, grid)


def _back(spectrum: np.ndarray, grid: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """What ``irfft2`` has in the first rows and columns, without the transform of the other rows."""
    rows = scipy.fft.ifft(spectrum, axis=-2, norm="forward")[..., : size[0], :]
    images = scipy.fft.irfft(rows, grid[1], axis=-1, norm="forward")[..., : size[1]]
    return images * images.dtype.type(1 / (grid[0] * grid[1]))


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _floating(array: Array, dims: tuple[str, ...]) -> np.ndarray:
    """Array with the axes in this order, in single or double precision."""
    array = array.transpose(*dims).values if isinstance(array, xr.DataArray) else np.asarray(array)
    return array if array.dtype in (np.float32, np.float64) else array.astype(float)


def valid_size(large: np.ndarray, small: np.ndarray) -> tuple[int, int]:
    """Positions (row, col) at which the small arrays lie wholly within the large ones."""
    for axis, big, little in zip(IMAGES[2:], large.shape[2:], small.shape[2:], strict=True):
        if little > big:  # the transforms would go through, with a result of no meaning
            raise GddError(f"images: axis '{axis}' has size {big}, smaller than the {little} of what is placed there")
    return tuple(big - little + 1 for big, little in zip(large.shape[2:], small.shape[2:], strict=True))
