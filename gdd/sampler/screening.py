"""What an upper atom's image is like on average over all pooling positions: guesses that quicken exact draws.

In the joint model an upper atom looks different in every image, and its norm there is dear. Where a proposal is made
with a guess of the norm, and an accept step with the true one follows, only proposals that pass need the true one. A
solver that starts from a good guess of a matrix needs few steps. A guess must not depend on what is being drawn; these
depend on the dictionaries alone.

Positions are taken as independent and uniform over a full block: then an expected inner product is that of the mean
images, plus the variance that the unknown positions add where two images share a block. With three layers and more this
leaves out that blocks of a middle layer share blocks below them, so that the guess of a norm is somewhat low.

*Checked:* tests/test_screening.py (against an average over drawn positions).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gdd.model.pooling import Size


class Average(NamedTuple):
    """Images of one layer's atoms, averaged over all positions of the blocks below them."""

    mean: np.ndarray  # (atom, image plane, row, col): of an atom at a given place
    blurred: np.ndarray  # the same, averaged over the positions of its own block too
    doubt: np.ndarray  # (atom,): variance around ``blurred``, summed over pixels
    overlaps: np.ndarray  # (atom, 2 pool_row - 1, 2 pool_col - 1): expected product of its images at two positions
    stride: Size  # pixels between neighbouring blocks of this layer


def average_images(dictionaries: Sequence[np.ndarray], pools: Sequence[Size]) -> tuple[Average, ...]:
    """Average images of every layer's atoms.

    Parameters
    ----------
    dictionaries : per layer, bottom first: (atom, plane, atom_row, atom_col)
    pools : per layer but the top one: (rows, columns) of a block

    Returns
    -------
    tuple of Average, bottom first; the top layer's blocks are single positions
    """
    out: list[Average] = []
    for level, atoms in enumerate(np.asarray(part, float) for part in dictionaries):
        pool = pools[level] if level < len(pools) else (1, 1)
        if level == 0:
            mean, doubt, step = atoms, np.zeros(atoms.shape[1]), (1, 1)
        else:
            below, step = out[-1], out[-1].stride
            mean, doubt = place_images(atoms, below.blurred, step), below.doubt
        overlaps = np.empty((len(atoms), *(2 * n - 1 for n in pool)))
        for i, j in np.ndindex(overlaps.shape[1:]):
            lag = i - pool[0] + 1, j - pool[1] + 1
            overlaps[:, i, j] = at_lag(mean, tuple(n * s for n, s in zip(lag, step, strict=True))).sum(axis=1)
            overlaps[:, i, j] += at_lag(atoms, lag) @ doubt
        each = np.eye(len(atoms)) / (pool[0] * pool[1])
        blurred = place_images(np.broadcast_to(each[:, :, None, None], (*each.shape, *pool)), mean, step)
        variance = overlaps[:, pool[0] - 1, pool[1] - 1] - (blurred**2).sum(axis=(1, 2, 3))
        out.append(Average(mean, blurred, variance, overlaps, tuple(s * p for s, p in zip(step, pool, strict=True))))
    return tuple(out)


def place_images(weights: np.ndarray, images: np.ndarray, step: Size) -> np.ndarray:
    """Sum of images at the places of a coarse grid: (sum, image plane, row, col).

    Parameters
    ----------
    weights : (sum, image, grid_row, grid_col)
    images : (image, image plane, row, col)
    step : pixels between neighbouring places of the grid
    """
    (sums, _, rows, cols), (_, planes, height, width) = weights.shape, images.shape
    out = np.zeros((sums, planes, (rows - 1) * step[0] + height, (cols - 1) * step[1] + width))
    for i, j in np.ndindex(rows, cols):
        here = out[:, :, i * step[0] : i * step[0] + height, j * step[1] : j * step[1] + width]
        here += np.tensordot(weights[:, :, i, j], images, 1)
    return out


def screening_overlaps(dictionaries: Sequence[np.ndarray], pools: Sequence[Size]) -> tuple[np.ndarray, ...]:
    """`Average.overlaps` of every layer; the top layer's holds the expected squared norm only, (atom, 1, 1)."""
    return tuple(layer.overlaps for layer in average_images(dictionaries, pools))


def screening_norms(dictionaries: Sequence[np.ndarray], pools: Sequence[Size]) -> np.ndarray:
    """Expected squared norm of every top atom's image: (atom,)."""
    return screening_overlaps(dictionaries, pools)[-1][:, 0, 0]


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
