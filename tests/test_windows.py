"""The innermost operations: against numpy, with sizes known when compiled and with sizes known when run."""

import numpy as np
import pytest
from numba import njit

from gdd.sampler.kernels.windows import window_add, window_dot, window_size, window_take


@njit
def dot(left, start, width, atom, first, rows, length, size):
    return window_dot(left, start, width, atom, first, rows, length, size)


@njit
def add(left, start, width, atom, first, value, rows, length, size):
    window_add(left, start, width, atom, first, value, rows, length, size)


@njit
def take(left, start, width, atom, first, value, rows, length, size):
    window_take(left, start, width, atom, first, value, rows, length, size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "length"), [(8, 8), (3, 17), (4, 5), (2, 80)])
def test_against_numpy(rows, length, dtype):
    generator = np.random.default_rng(rows * length)
    image = generator.standard_normal((rows + 5, length + 6)).astype(dtype)
    atoms = generator.standard_normal((3, rows, length)).astype(dtype)
    row, col, k = 2, 4, 1
    window = np.s_[row : row + rows, col : col + length]
    place = (row * image.shape[1] + col, image.shape[1], atoms.ravel(), k * rows * length)
    size = window_size(rows, length)
    assert (length in (5, 80)) == (size == ((), ()))
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    np.testing.assert_allclose(
        dot(image.ravel(), *place, rows, length, size), (image[window] * atoms[k]).sum(), rtol=tolerance, atol=tolerance
    )
    wanted = image.copy()
    wanted[window] += dtype(1.5) * atoms[k]
    flat = image.ravel().copy()
    add(flat, *place, dtype(1.5), rows, length, size)
    np.testing.assert_allclose(flat, wanted.ravel(), rtol=tolerance, atol=tolerance)
    wanted, flat = atoms.copy(), atoms.ravel().copy()
    wanted[k] += dtype(1.5) * image[window]
    take(image.ravel(), *place[:2], flat, place[3], dtype(1.5), rows, length, size)
    np.testing.assert_allclose(flat, wanted.ravel(), rtol=tolerance, atol=tolerance)
