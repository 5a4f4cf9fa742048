"""The mean image of an upper atom over all pooling positions: what proposals and preconditioners are made from.

In the joint model an upper atom looks different in every image, and its norm there is costly. A proposal is made under
the norm that is expected, and an accept step with the true one follows; so only proposals that pass need the true one.
A solver with a good preconditioner needs few steps. Neither may depend on what is being drawn; these depend on the
dictionaries alone.

Positions are taken as independent and uniform over a full block. Then an expected inner product is that of the mean
images, plus the variance that the unknown positions add where two images share a block. With three layers and more this
leaves out that blocks of a middle layer share blocks below them, so that the expected norm is somewhat low.

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
    variance: np.ndarray  # (atom,): around these, summed over pixels
    overlaps: np.ndarray  # (atom, 2 pool_row - 1, 2 pool_col - 1): expected product of its images at two positions
    stride: Size  # pixels between neighbouring blocks


def mean_atom_images(dictionaries: Sequence[np.ndarray], blocks: Sequence[Size]) -> tuple[MeanAtomImages, ...]:
    """Mean images of what is below every layer, bottom first: of a pixel, then of every layer's atoms.

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
            overlaps[:, i, j] = at_lag(placed, (lag[0] * step[0], lag[1] * step[1])).sum(axis=1)
            overlaps[:, i, j] += at_lag(atoms, lag) @ below.variance
        everywhere = np.eye(len(atoms))[:, :, None, None] * np.full(block, 1 / (block[0] * block[1]))
        images = place_images(everywhere, placed, step)
        variance = overlaps[:, block[0] - 1, block[1] - 1] - (images**2).sum(axis=(1, 2, 3))
        out.append(MeanAtomImages(images, variance, overlaps, (step[0] * block[0], step[1] * block[1])))
    return tuple(out)


def place_images(weights: np.ndarray, images: np.ndarray, step: Size) -> np.ndarray:
    """Sum of images (image, image plane, row, col) at the places of a grid ``step`` pixels apart.

    weights : (sum, image, grid_row, grid_col)
    """
    (sums, _, rows, cols), (_, planes, height, width) = weights.shape, images.shape
    out = np.zeros((sums, planes, (rows - 1) * step[0] + height, (cols - 1) * step[1] + width))
    for i, j in np.ndindex(rows, cols):
        window = out[:, :, i * step[0] : i * step[0] + height, j * step[1] : j * step[1] + width]
        window += np.tensordot(weights[:, :, i, j], images, 1)
    return out


def at_lag(atoms: np.ndarray, lag: tuple[int, int]) -> np.ndarray:
    """Inner product of every atom and plane with itself moved by ``lag``: (atom, plane)."""
    rows, cols = atoms.shape[2:]
    i, j = (abs(n) for n in lag)
    if i >= rows or j >= cols:
        return np.zeros(atoms.shape[:2])
    same = lag[0] * lag[1] >= 0
    one = atoms[:, :, i:, j:] if same else atoms[:, :, i:, : cols - j]
    other = atoms[:, :, : rows - i, : cols - j] if same else atoms[:, :, : rows - i, j:]
    return (one * other).sum(axis=(2, 3))
