"""Mean images of upper atoms over all pooling positions, for proposals and preconditioners.

In the joint model an upper atom looks different in every image, and its norm there is costly. A proposal uses the
expected norm and an accept step the true one, so that only proposed changes need the true norm. A solver with a good
preconditioner needs few steps. Neither may depend on the unknowns being drawn; mean images depend on the dictionaries
alone.

Positions are assumed independent and uniform over a full block. The expected inner product of two images is then that
of the mean images, plus a variance where the two share a block of unknown position. With three layers or more this
ignores that blocks of a middle layer share blocks below them, so the expected norm is somewhat low.

*Checked:* tests/test_screening.py (against an average over drawn positions).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gdd.model.pooling import Size


class MeanAtomImages(NamedTuple):
    """Images of one layer's atoms, averaged over all positions of their own blocks and those below."""

    images: np.ndarray  # (atom, image plane, row, col)
    variance: np.ndarray  # (atom,): around the mean image, summed over pixels
    overlaps: np.ndarray  # (atom, 2 pool_row - 1, 2 pool_col - 1): expected product of its images at two positions
    stride: Size  # pixels between neighbouring blocks


def mean_atom_images(dictionaries: Sequence[np.ndarray], blocks: Sequence[Size]) -> tuple[MeanAtomImages, ...]:
    """Mean images of a pixel, then of every layer's atoms, bottom first.

    dictionaries : per layer, bottom first: (atom, plane, atom_row, atom_col)
    blocks : per layer: (rows, columns) of a block; those of the top layer are single positions
    """
    planes = dictionaries[0].shape[1]
    out = [MeanAtomImages(np.eye(planes)[:, :, None, None], np.zeros(planes), np.ones((planes, 1, 1)), (1, 1))]
    for atoms, block in zip((np.asarray(part, float) for part in dictionaries), blocks, strict=True):
        below, step = out[-1], out[-1].stride
        placed = place_images(atoms, below.images, step)  # at one position
        overlaps = np.empty((len(atoms), *(2 * n - 1 for n in block)))
        for i, j in np.ndindex(overlaps.shape[1:]):
            lag = i - block[0] + 1, j - block[1] + 1
            overlaps[:, i, j] = autocorrelation(placed, (lag[0] * step[0], lag[1] * step[1])).sum(axis=1)
            overlaps[:, i, j] += autocorrelation(atoms, lag) @ below.variance
        uniform = np.eye(len(atoms))[:, :, None, None] * np.full(block, 1 / (block[0] * block[1]))
        images = place_images(uniform, placed, step)
        variance = overlaps[:, block[0] - 1, block[1] - 1] - (images**2).sum(axis=(1, 2, 3))
        out.append(MeanAtomImages(images, variance, overlaps, (step[0] * block[0], step[1] * block[1])))
    return tuple(out)


def place_images(weights: np.ndarray, images: np.ndarray, step: Size) -> np.ndarray:
    """Weighted sums of images (image, image plane, row, col) placed on a grid of spacing ``step`` pixels.

    weights : (sum, image, grid_row, grid_col)
    """
    (sums, _, rows, cols), (_, planes, height, width) = weights.shape, images.shape
    out = np.zeros((sums, planes, (rows - 1) * step[0] + height, (cols - 1) * step[1] + width))
    for i, j in np.ndindex(rows, cols):
        window = out[:, :, i * step[0] : i * step[0] + height, j * step[1] : j * step[1] + width]
        window += np.tensordot(weights[:, :, i, j], images, 1)
    return out


def autocorrelation(atoms: np.ndarray, lag: tuple[int, int]) -> np.ndarray:
    """Autocorrelation of every atom and plane at a lag: (atom, plane)."""
    rows, cols = atoms.shape[2:]
    i, j = (abs(n) for n in lag)
    if i >= rows or j >= cols:
        return np.zeros(atoms.shape[:2])
    same = lag[0] * lag[1] >= 0
    first = atoms[:, :, i:, j:] if same else atoms[:, :, i:, : cols - j]
    second = atoms[:, :, : rows - i, : cols - j] if same else atoms[:, :, : rows - i, j:]
    return (first * second).sum(axis=(2, 3))
