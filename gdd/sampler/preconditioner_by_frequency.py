r"""A closer guess of an upper dictionary's precision, for few atoms: with what they share, and how far apart.

Given all positions and values, the precision of a layer's dictionary is
:math:`\sum_n \gamma_e S_n' A_n' A_n S_n + \gamma_d`: its maps S_n convolve the dictionary, A_n carries the result down
to the image. Averaged over the positions below, A'A is one matrix that only sees how far two entries are apart:
products of mean images, and a variance on its diagonal (`gdd.sampler.screening`). So both factors are convolutions, one
between atoms and one between planes. Each is tapered, so that it stays positive, and wrapped around a grid half as
large again as an atom. There they are products at each frequency, of an atom-by-atom matrix W and a plane-by-plane
matrix M, and :math:`W \otimes M + \gamma_d` is inverted by the eigenvectors of the two. What is left out, positions as
they are and the edges of an atom, the solver makes up for.

*Checked:* tests/test_screening.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.fft import irfft2, rfft2

from gdd.model.pooling import Size
from gdd.model.spec import LayerShape
from gdd.sampler.screening import Average

#: images whose spectra are held at once
AT_ONCE = 256


def grid_of(shape: LayerShape) -> Size:
    """Size of the grid that a layer's atoms are wrapped around."""
    rows, cols = shape.atom_size
    return (3 * rows + 1) // 2, (3 * cols + 1) // 2


def guess_by_frequency(
    below: Average, shape: LayerShape, maps: np.ndarray, gamma_e: np.ndarray, gamma_d: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the product with the inverse of a guess of a layer's precision.

    Parameters
    ----------
    below : average images of the layer under this one
    shape : of the layer whose dictionary is drawn
    maps : (image, atom, row, col)
    gamma_e : (image,)
    gamma_d : (atom or 1, plane or 1)

    Returns
    -------
    function of a flat vector (atom * atom_row * atom_col * plane), symmetric and positive
    """
    prior, grid = np.broadcast_to(gamma_d, (shape.atoms, shape.planes)).astype(float), grid_of(shape)
    by_atom = np.sqrt(prior.mean(axis=1))  # the prior as a product, which it is unless it has both axes
    by_plane = np.sqrt(prior.mean(axis=0) / prior.mean())
    uses, atoms = np.linalg.eigh(tapered(map_products(maps, gamma_e, grid), grid) / np.outer(by_atom, by_atom))
    means, planes = np.linalg.eigh(tapered(mean_products(below, grid), grid) / np.outer(by_plane, by_plane))
    gain = 1 / (1 + uses.clip(0)[..., :, None] * means.clip(0)[..., None, :])
    (rows, cols), scale = shape.atom_size, np.outer(by_atom, by_plane)[:, None, None, :]
    planes = planes.conj()
    atoms_back, planes_back = (np.swapaxes(each, -1, -2).conj() for each in (atoms, planes))

    def apply(vector: np.ndarray) -> np.ndarray:
        scaled = vector.reshape(shape.atoms, rows, cols, shape.planes) / scale
        found = rfft2(scaled, grid, axes=(1, 2)).transpose(1, 2, 0, 3)  # (frequency_row, frequency_col, atom, plane)
        found = atoms @ (gain * (atoms_back @ found @ planes)) @ planes_back
        return (irfft2(found.transpose(2, 0, 1, 3), grid, axes=(1, 2))[:, :rows, :cols] / scale).ravel()

    return apply


def map_products(maps: np.ndarray, gamma_e: np.ndarray, grid: Size) -> np.ndarray:
    """Products of the maps of two atoms, summed over images: (lag_row, lag_col, atom, atom).

    Lags are below the grid's size either way; negative ones count from the end.
    """
    size = tuple(length + reach - 1 for length, reach in zip(maps.shape[2:], grid, strict=True))
    size = tuple(max(length, 2 * reach - 1) for length, reach in zip(size, grid, strict=True))
    total = 0.0
    for first in range(0, len(maps), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        spectra = rfft2(maps[part].astype(float), size).transpose(2, 3, 0, 1)
        total = total + np.swapaxes(spectra.conj() * gamma_e[part, None], -1, -2) @ spectra
    row, col = (np.arange(-reach + 1, reach) for reach in grid)
    found = irfft2(total, size, axes=(0, 1))[row[:, None], col]
    return np.roll(found, (1 - grid[0], 1 - grid[1]), axis=(0, 1))


def mean_products(below: Average, grid: Size) -> np.ndarray:
    """Expected products of the images of two units below: (lag_row, lag_col, plane, plane), lags as `map_products`."""
    images = below.blurred.astype(float)
    count, _, height, width = images.shape
    products = np.zeros((2 * grid[0] - 1, 2 * grid[1] - 1, count, count))
    reach = zip((height, width), below.stride, grid, strict=True)
    far_row, far_col = (min(-(-size // step), places) - 1 for size, step, places in reach)
    for a in range(far_row + 1):
        for b in range(-far_col, far_col + 1):
            down, along = a * below.stride[0], b * below.stride[1]
            one = images[:, :, : height - down, max(-along, 0) : width - max(along, 0)].reshape(count, -1)
            other = images[:, :, down:, max(along, 0) : width + min(along, 0)].reshape(count, -1)
            products[a, b] = one @ other.T
            products[-a, -b] = other @ one.T
    products[0, 0] += np.diag(np.maximum(below.doubt, 1e-6 * np.trace(products[0, 0]) / count))
    return products


def tapered(products: np.ndarray, grid: Size) -> np.ndarray:
    """Spectrum of products by lag, weighed down to 0 at the grid's size and wrapped around it: (frequencies, ...)."""
    wrapped = np.zeros((*grid, *products.shape[2:]))
    for a in range(1 - grid[0], grid[0]):
        for b in range(1 - grid[1], grid[1]):
            weight = (1 - abs(a) / grid[0]) * (1 - abs(b) / grid[1])
            wrapped[a % grid[0], b % grid[1]] += weight * products[a, b]
    return rfft2(wrapped, axes=(0, 1))
