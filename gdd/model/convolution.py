"""Synthesis of images from atoms and maps, and its adjoint in the maps.

Images are bilinear in atoms and maps: the sum over atoms of (atom * map). `synthesise` is that sum, `correlate` its
adjoint in the maps. The sampler has its own compiled versions, which a test compares with these.
"""

from __future__ import annotations

import numpy as np
import scipy.fft
import xarray as xr

from gdd.base.axes import DICTIONARY, IMAGES, MAPS
from gdd.base.checks import GddError

CHUNK = 64  # images transformed at once: bounds the memory, and fixes the order of sums over images

Array = np.ndarray | xr.DataArray


def synthesise(dictionary: Array, maps: Array) -> np.ndarray:
    r"""Synthesise images from atoms and their activation maps.

    .. math:: X_{nc} = \sum_k D_{kc} * S_{nk}

    with ``*`` the full two-dimensional convolution: a map of one row and an atom of h rows give h rows.

    dictionary : (atom, plane, atom_row, atom_col)     D in the paper
    maps : (image, atom, row, col)                     S in the paper

    Returns (image, plane, row, col), with rows = map rows + atom rows - 1, in the units of dictionary times maps.

    *Source:* Pu, Yuan & Carin 2015, eq. 1, 5 and 6; supplement, "Projection", for the full convolution.
    *Departs:* the size is the sum of the two sizes less one (P8 in the errata).
    *Checked:* tests/test_convolution.py (against a direct sum; adjoint identities).
    """
    dictionary, maps = _as_floating(dictionary, DICTIONARY), _as_floating(maps, MAPS)
    size = tuple(m + d - 1 for m, d in zip(maps.shape[2:], dictionary.shape[2:], strict=True))
    grid, kernel = _transform(dictionary, size)
    out = np.empty((len(maps), dictionary.shape[1], *size), np.result_type(dictionary, maps))
    for part in _chunks(len(maps)):
        spectrum = np.einsum("nkij,kcij->ncij", scipy.fft.rfft2(maps[part], grid), kernel, optimize=True)
        out[part] = _inverse(spectrum, grid, size)
    return out


def correlate(images: Array, dictionary: Array) -> np.ndarray:
    r"""Inner products of the images with every atom placed at every position: the adjoint of `synthesise`.

    .. math:: R_{nk}[i, j] = \sum_{c, a, b} X_{nc}[i + a, j + b] \, D_{kc}[a, b]

    images : (image, plane, row, col)
    dictionary : (atom, plane, atom_row, atom_col)

    Returns (image, atom, row, col), with rows = image rows - atom rows + 1.

    *Source:* Pu, Yuan & Carin 2015, Sec. 3 (the circled asterisk).
    *Checked:* tests/test_convolution.py (adjoint identity with `synthesise`).
    """
    images, dictionary = _as_floating(images, IMAGES), _as_floating(dictionary, DICTIONARY)
    size = valid_size(images, dictionary)
    grid, kernel = _transform(dictionary, images.shape[2:])
    out = np.empty((len(images), len(dictionary), *size), np.result_type(dictionary, images))
    for part in _chunks(len(images)):
        spectrum = np.einsum("ncij,kcij->nkij", scipy.fft.rfft2(images[part], grid), kernel.conj(), optimize=True)
        out[part] = _inverse(spectrum, grid, size)
    return out


def correlate_each(images: np.ndarray, dictionary: np.ndarray) -> np.ndarray:
    """`correlate` image by image, so that an image gives the same bits alone and in a batch."""
    size = valid_size(images, dictionary)
    grid, kernel = _transform(dictionary, images.shape[2:])
    kernel, out = kernel.conj(), np.empty((len(images), len(dictionary), *size), np.result_type(dictionary, images))
    for image, answers in zip(images, out, strict=True):
        answers[:] = _inverse(np.einsum("cij,kcij->kij", scipy.fft.rfft2(image, grid), kernel), grid, size)
    return out


def _transform(small: np.ndarray, size: tuple[int, int]) -> tuple[tuple[int, int], np.ndarray]:
    """Fourier transform on a grid large enough that the valid part does not wrap around; returns grid and transform."""
    grid = tuple(scipy.fft.next_fast_len(n, real=True) for n in size)
    return grid, scipy.fft.rfft2(small, grid)


def _inverse(spectrum: np.ndarray, grid: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """First rows and columns of ``irfft2``, without transforming the other rows."""
    rows = scipy.fft.ifft(spectrum, axis=-2, norm="forward")[..., : size[0], :]
    images = scipy.fft.irfft(rows, grid[1], axis=-1, norm="forward")[..., : size[1]]
    return images * images.dtype.type(1 / (grid[0] * grid[1]))


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _as_floating(array: Array, dims: tuple[str, ...]) -> np.ndarray:
    """Array with its axes in the order ``dims``, in single or double precision."""
    array = array.transpose(*dims).values if isinstance(array, xr.DataArray) else np.asarray(array)
    return array if array.dtype in (np.float32, np.float64) else array.astype(float)


def valid_size(large: np.ndarray, small: np.ndarray) -> tuple[int, int]:
    """Number of positions (rows, cols) at which the small arrays lie entirely within the large ones."""
    for axis, big, little in zip(IMAGES[2:], large.shape[2:], small.shape[2:], strict=True):
        if little > big:  # the transforms would give a meaningless result
            raise GddError(f"images: axis '{axis}' has size {big}, smaller than the {little} of what is placed there")
    return tuple(big - little + 1 for big, little in zip(large.shape[2:], small.shape[2:], strict=True))
