"""Atoms placed on a grid of the image: their correlations with images, and their Gram matrix.

A projected atom is placed at pixels ``(row, col) * stride``. With ragged pooling blocks an atom in the last row or
column of the grid reaches beyond the image and is cropped. `gdd.projection.render_projected` sums placed atoms.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from gdd.model.pooling import Size


def placement_grid(image_size: Size, atom_size: Size, stride: Size) -> Size:
    """Number of positions (rows, cols) of an atom; at ragged edges the last one reaches beyond the image.

    A position entirely outside the image, possible at a stride wider than the atom, does not count.
    """
    along = zip(image_size, atom_size, stride, strict=True)
    return tuple(min(ceil((n - a) / s) + 1, ceil(n / s)) for n, a, s in along)


def correlate_at_stride(images: np.ndarray, atoms: np.ndarray, stride: Size) -> np.ndarray:
    """Inner products of every image with every placed atom: (image, row, col, atom).

    The readable twin of `gdd.sampler.kernels.coefficients.correlate_image`.
    """
    grid, (h, w) = placement_grid(images.shape[2:], atoms.shape[2:], stride), atoms.shape[2:]
    out = np.empty((len(images), *grid, len(atoms)), np.result_type(images, atoms))
    for i, j in np.ndindex(grid):
        window = images[..., i * stride[0] :, j * stride[1] :][..., :h, :w]
        part = atoms[..., : window.shape[2], : window.shape[3]]
        out[:, i, j] = window.reshape(len(images), -1) @ part.reshape(len(atoms), -1).T
    return out


def gram_slabs(atoms: np.ndarray, image_size: Size, stride: Size) -> np.ndarray:
    """Inner products of all pairs of placed atoms by the offset of the second: (atom, row slab, col slab, atom).

    Entry ``[:, o + rows - 1]`` is for a second atom ``o`` positions below the first. Only atoms in the last row can
    reach beyond the image, and only the overlap of two such atoms is cropped: it has an extra entry, the last.
    `slab_index` gives the entry of a pair of positions. The entries for a change of one coefficient are contiguous. The
    full matrix, (positions x atoms) squared, is `dense_gram`.
    """
    grid = placement_grid(image_size, atoms.shape[2:], stride)
    cuts = []
    for positions, size, reach, step in zip(grid, image_size, atoms.shape[2:], stride, strict=True):
        offsets = [o * step for o in range(1 - positions, positions)]
        shared = [max(reach - abs(o), 0) for o in offsets]  # pixels in which the two overlap
        starts = [(max(o, 0), max(-o, 0), n) for o, n in zip(offsets, shared, strict=True)]
        pairs = [(slice(first, first + n), slice(second, second + n)) for first, second, n in starts]
        edge = size - (positions - 1) * step
        cuts.append(pairs + [(slice(0, edge), slice(0, edge))] * (edge < reach))
    gram = np.empty((len(atoms), len(cuts[0]), len(cuts[1]), len(atoms)), atoms.dtype)
    for a, (row_1, row_2) in enumerate(cuts[0]):
        for b, (col_1, col_2) in enumerate(cuts[1]):
            opposite = _opposite(a, grid[0]), _opposite(b, grid[1])
            if opposite < (a, b):
                gram[:, a, b] = gram[:, *opposite].T
            else:
                first, second = atoms[:, :, row_1, col_1], atoms[:, :, row_2, col_2]
                gram[:, a, b] = first.reshape(len(atoms), -1) @ second.reshape(len(atoms), -1).T
    return gram


def _opposite(slab: int, positions: int) -> int:
    """Return the slab with the two atoms exchanged."""
    return slab if slab == 2 * positions - 1 else 2 * positions - 2 - slab


def slab_index(positions: int, size: int, reach: int, step: int) -> np.ndarray:
    """Entry of `gram_slabs` for each pair of positions along one axis: (positions, positions)."""
    index = np.arange(positions)[None, :] - np.arange(positions)[:, None] + positions - 1
    if size - (positions - 1) * step < reach:
        index[-1, -1] = 2 * positions - 1
    return index


def dense_gram(slabs: np.ndarray, row_slab: np.ndarray, col_slab: np.ndarray) -> np.ndarray:
    """Gram matrix (coefficient, coefficient) from `gram_slabs` and `slab_index`; (row, col, atom), atom fastest."""
    full = slabs[:, row_slab[:, None, :, None], col_slab[None, :, None, :]]  # (atom, row, col, row', col', atom')
    size = slabs.shape[0] * len(row_slab) * len(col_slab)
    return full.transpose(1, 2, 0, 3, 4, 5).reshape(size, size)
