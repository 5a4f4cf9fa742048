r"""Preconditioners for the conjugate-gradient draw of an upper layer's dictionary.

Given all positions and values, the precision of a layer's dictionary is
:math:`\sum_n \gamma_e S_n' A_n' A_n S_n + \gamma_d`: its maps S_n convolve the dictionary, A_n takes the result down to
the image. Averaged over the positions below, A'A becomes one matrix that depends only on the lag between two entries:
inner products of mean images, plus a variance on its diagonal (`gdd.reference.screening`). An approximate inverse of
the precision is enough, as it only affects the number of steps of the solver.

*By atom*, for layers of many atoms: the coupling of atoms in the same image is neglected, only the diagonal of S'S is
kept.

*By frequency*, for few atoms: both factors are convolutions, one between atoms and one between planes. Each is tapered,
so that it stays positive, and wrapped around a grid half as large again as an atom. At each frequency they are an
atom-by-atom matrix W and a plane-by-plane matrix M, and :math:`W \otimes M + \gamma_d` is inverted by their
eigenvectors. This neglects only the actual positions and the edges of an atom.

*By plane*, where gamma_d varies by plane: as by atom, but every entry has its own prior and variance. Most planes of an
atom then vanish; only few entries have more information from the data than from the prior, and their matrix is inverted
exactly.

*Checked:* tests/test_screening.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.fft import irfft2, rfft2
from scipy.linalg import cho_factor, cho_solve, eigh

from gdd.model.pooling import Size
from gdd.model.spec import LayerShape
from gdd.model.state import Shard
from gdd.reference.screening import MeanAtomImages
from gdd.sampler.sums import Node, append_node, batches, tree_total

#: modes of the mean images below this share of the variance are approximated by the diagonal
MIN_MODE_SHARE = 0.05
#: largest number of an atom's entries whose matrix is inverted; more cost longer than the steps that they save
MAX_ENTRIES = 512
#: images whose spectra are in memory at once, a part of a batch
FFT_BATCH = 256

Apply = Callable[[np.ndarray], np.ndarray]


def products_by_lag(images: np.ndarray, stride: Size, reach: Size) -> np.ndarray:
    """Inner products of images (plane, image plane, row, col) at all lags on a grid.

    stride : pixels between neighbouring places of the grid; reach : (rows, cols), absolute lags are below it

    Returns (2 rows - 1, 2 cols - 1, plane, plane), lag 0 in the middle.
    """
    (planes, _, height, width), (rows, cols) = images.shape, reach
    out = np.zeros((2 * rows - 1, 2 * cols - 1, planes, planes), images.dtype)
    for a, b in np.ndindex(rows, 2 * cols - 1):
        down, along = a * stride[0], (b - cols + 1) * stride[1]
        if down < height and abs(along) < width:
            first = images[:, :, : height - down, max(-along, 0) : width - max(along, 0)].reshape(planes, -1)
            second = images[:, :, down:, max(along, 0) : width + min(along, 0)].reshape(planes, -1)
            out[rows - 1 + a, b] = first @ second.T
            out[rows - 1 - a, 2 * cols - 2 - b] = second @ first.T
    return out


# By atom


def precondition_by_atom(below: MeanAtomImages, shape: LayerShape, weights: np.ndarray, gamma_d: np.ndarray) -> Apply:
    """Return a preconditioner: the product with an approximate inverse of a layer's precision, symmetric and positive.

    weights : (atom,), gamma_e times the sum of squared weights of each atom; gamma_d : (atom or 1, plane or 1)

    The function returned takes a flat vector (atom * atom_row * atom_col * plane).
    """
    (rows, cols), planes = shape.atom_size, shape.planes
    images, (height, width) = below.images.shape[1], below.images.shape[2:]
    step_row, step_col = below.stride
    size = (rows - 1) * step_row + height, (cols - 1) * step_col + width
    wide = rows * cols * planes < images * size[0] * size[1]
    design = None if wide else unit_designs(below, shape.atom_size, size)
    matrix = design_products(below, shape.atom_size) if wide else design.T @ design
    values, vectors = eigh(matrix, driver="evd", overwrite_a=True, check_finite=False)
    variance = max(float(below.variance.mean()), 1e-6 * float(values[-1]))
    strong = values > MIN_MODE_SHARE * variance
    values, modes = values[strong], vectors[:, strong]
    modes = modes if wide else design @ modes / np.sqrt(values)
    rest = np.broadcast_to(gamma_d, (shape.atoms, planes)).mean(axis=1) + weights * variance  # (atom,)
    gain = 1 / (rest[:, None] + weights[:, None] * values) - 1 / rest[:, None]

    def apply(vector: np.ndarray) -> np.ndarray:
        per_atom = vector.reshape(shape.atoms, -1)
        return (per_atom / rest[:, None] + (per_atom @ modes * gain) @ modes.T).ravel()

    return apply


def unit_designs(below: MeanAtomImages, atom: Size, size: Size) -> np.ndarray:
    """Mean image of a unit in every entry of an atom: (atom_row * atom_col * plane, pixel)."""
    (rows, cols), (planes, images, height, width) = atom, below.images.shape
    design = np.zeros((rows, cols, planes, images, *size), np.float32)  # a preconditioner needs no more digits
    for a, b in np.ndindex(rows, cols):
        top, left = a * below.stride[0], b * below.stride[1]
        design[a, b, :, :, top : top + height, left : left + width] = below.images
    return design.reshape(rows * cols * planes, -1)


def design_products(below: MeanAtomImages, atom: Size) -> np.ndarray:
    """Inner products of the rows of `unit_designs`, computed by lag, as there are far fewer lags than pairs."""
    rows, cols = atom
    by_lag = products_by_lag(below.images.astype(np.float32), below.stride, atom)
    row, col = (np.arange(n)[:, None] - np.arange(n) for n in (rows, cols))
    lag_row, lag_col = row[:, None, :, None] + rows - 1, col[None, :, None, :] + cols - 1
    products = by_lag[lag_row, lag_col]  # (row, col, row', col', plane, plane')
    return np.ascontiguousarray(products.transpose(0, 1, 4, 2, 3, 5)).reshape(rows * cols * len(below.images), -1)


# By plane


def precondition_by_plane(below: MeanAtomImages, shape: LayerShape, weights: np.ndarray, gamma_d: np.ndarray) -> Apply:
    """`precondition_by_atom` for gamma_d (atom or 1, plane)."""
    matrix, places = design_products(below, shape.atom_size).astype(float), shape.atom_size[0] * shape.atom_size[1]
    matrix[np.diag_indices(len(matrix))] += np.tile(below.variance, places)
    prior = np.tile(np.broadcast_to(gamma_d, (shape.atoms, shape.planes)), places)  # (atom, entry)
    data = weights[:, None] * np.diag(matrix)
    diagonal, solved = prior + data, {}
    for k, ratio in enumerate(data / prior):
        strong = np.flatnonzero(ratio > 1)
        strong = strong[np.argsort(-ratio[strong], kind="stable")[:MAX_ENTRIES]]
        if len(strong):
            precision = weights[k] * matrix[np.ix_(strong, strong)] + np.diag(prior[k, strong])
            solved[k] = strong, cho_factor(precision, lower=True, overwrite_a=True, check_finite=False)

    def apply(vector: np.ndarray) -> np.ndarray:
        parts = vector.reshape(shape.atoms, -1)
        out = parts / diagonal
        for k, (strong, factor) in solved.items():
            out[k, strong] = cho_solve(factor, parts[k, strong], check_finite=False)
        return out.ravel()

    return apply


# By frequency


def precondition_by_frequency(
    below: MeanAtomImages, shape: LayerShape, maps: np.ndarray, gamma_e: np.ndarray, gamma_d: np.ndarray, shard: Shard
) -> Apply:
    """`precondition_by_atom` with coupled atoms. maps : (image, atom, row, col); gamma_e : (image,)"""
    rows, cols = shape.atom_size
    grid = (3 * rows + 1) // 2, (3 * cols + 1) // 2  # around which the atoms are wrapped
    prior = np.broadcast_to(gamma_d, (shape.atoms, shape.planes)).astype(float)
    by_atom = np.sqrt(prior.mean(axis=1))  # the prior as a product, which it is unless it has both axes
    by_plane = np.sqrt(prior.mean(axis=0) / prior.mean())
    uses, atoms = np.linalg.eigh(tapered(map_products(maps, gamma_e, grid, shard), grid) / np.outer(by_atom, by_atom))
    means, planes = np.linalg.eigh(tapered(mean_products(below, grid), grid) / np.outer(by_plane, by_plane))
    gain = 1 / (1 + uses.clip(0)[..., :, None] * means.clip(0)[..., None, :])
    scale = np.outer(by_atom, by_plane)[:, None, None, :]
    planes = planes.conj()
    atoms_back, planes_back = (np.swapaxes(vectors, -1, -2).conj() for vectors in (atoms, planes))

    def apply(vector: np.ndarray) -> np.ndarray:
        scaled = vector.reshape(shape.atoms, rows, cols, shape.planes) / scale
        spectrum = rfft2(scaled, grid, axes=(1, 2)).transpose(1, 2, 0, 3)  # (frequency_row, frequency_col, atom, plane)
        spectrum = atoms @ (gain * (atoms_back @ spectrum @ planes)) @ planes_back
        return (irfft2(spectrum.transpose(2, 0, 1, 3), grid, axes=(1, 2))[:, :rows, :cols] / scale).ravel()

    return apply


def map_products(maps: np.ndarray, gamma_e: np.ndarray, grid: Size, shard: Shard) -> np.ndarray:
    """Cross-correlations of atoms' maps, summed over images: (lag_row, lag_col, atom, atom), lag 0 in the middle."""
    size = tuple(max(length, reach) + reach - 1 for length, reach in zip(maps.shape[2:], grid, strict=True))
    nodes: list[Node] = []
    for number, batch in batches(shard, len(maps)):
        total = 0.0
        for first in range(batch.start, batch.stop, FFT_BATCH):
            part = slice(first, min(first + FFT_BATCH, batch.stop))
            spectra = rfft2(maps[part].astype(float), size).transpose(2, 3, 0, 1)
            total = total + np.swapaxes(spectra.conj() * gamma_e[part, None], -1, -2) @ spectra
        append_node(nodes, Node(0, number, (total,)))
    total, = shard.reduce(tree_total, nodes)
    row, col = (np.arange(-reach + 1, reach) for reach in grid)
    return irfft2(total, size, axes=(0, 1))[row[:, None], col]


def mean_products(below: MeanAtomImages, grid: Size) -> np.ndarray:
    """Expected products of the images of two units below: (lag_row, lag_col, plane, plane), lag 0 in the middle."""
    products = products_by_lag(below.images, below.stride, grid)
    centre = products[grid[0] - 1, grid[1] - 1]
    centre += np.diag(np.maximum(below.variance, 1e-6 * np.trace(centre) / len(centre)))
    return products


def tapered(products: np.ndarray, grid: Size) -> np.ndarray:
    """Spectrum of products by lag, tapered to 0 at the grid's size and wrapped: (frequency_row, frequency_col, ...)."""
    wrapped = np.zeros((*grid, *products.shape[2:]))
    for a in range(1 - grid[0], grid[0]):
        for b in range(1 - grid[1], grid[1]):
            weight = (1 - abs(a) / grid[0]) * (1 - abs(b) / grid[1])
            wrapped[a % grid[0], b % grid[1]] += weight * products[a + grid[0] - 1, b + grid[1] - 1]
    return rfft2(wrapped, axes=(0, 1))
