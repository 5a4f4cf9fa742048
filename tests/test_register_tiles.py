"""Tiles of correlations against scipy's, for every way in which a map can be cut into tiles."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy.signal import correlate2d

from gdd.sampler.kernels.register_tiles import VECTOR_BYTES, VECTORS, correlate_tiles, fits_tiles


@njit
def run(left, atom, out, rows, columns, width, taps):
    correlate_tiles(left, atom, out, rows, columns, width, taps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(28, 28), (19, 40), (11, 31), (23, 57)])  # rows and columns; atoms are 8 x 8 or 3 x 3
@pytest.mark.parametrize("side", [8, 3])
def test_tiles_are_correlations(size, side, dtype):
    rng = np.random.default_rng(0)
    image, atom = rng.normal(size=size).astype(dtype), rng.normal(size=(side, side)).astype(dtype)
    rows, columns = size[0] - side + 1, size[1] - side + 1
    assert fits_tiles(atom, rows, size[1], (dtype(0),) * side)
    left = np.concatenate([image.ravel(), np.full(side, np.nan, dtype)])
    out = np.full(rows * size[1] + 1, -7.0, dtype)
    run(left, atom, out, rows, columns, size[1], (dtype(0),) * side)
    found = out[:-1].reshape(rows, size[1])[:, :columns]
    np.testing.assert_allclose(found, correlate2d(image, atom, "valid"), atol=200 * np.finfo(dtype).eps)
    assert out[-1] == -7.0  # nothing is written past the map's last row


def test_what_does_not_fit():
    narrow = VECTORS * VECTOR_BYTES // 4
    atom, taps = np.zeros((8, 8), np.float32), (np.float32(0),) * 8
    assert fits_tiles(atom, 4, narrow, taps)
    assert not fits_tiles(atom, 3, narrow, taps)  # too few rows
    assert not fits_tiles(atom, 4, narrow - 1, taps)  # too few columns
    assert not fits_tiles(atom[:7], 4, narrow, taps)  # not square
    assert not fits_tiles(atom, 4, narrow, ())  # many planes: taps are empty
