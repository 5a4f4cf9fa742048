"""The innermost operations against numpy, with sizes known when compiled and with sizes known when run."""

import numpy as np
import pytest
from numba import njit

from gdd.sampler.kernels import windows
from gdd.sampler.kernels.operations import Layer
from gdd.sampler.kernels.windows import static_size, window_add, window_dot


@njit
def static_dot(left, start, width, atoms, first, rows, columns):
    return windows.static_dot(left, start, width, atoms, first, rows, columns)


@njit
def static_add(onto, start, width, source, first, stride, value, rows, columns):
    windows.static_add(onto, start, width, source, first, stride, value, rows, columns)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "length"), [(8, 8), (4, 5), (2, 80)])
def test_against_numpy(rows, length, dtype):
    generator = np.random.default_rng(rows * length)
    image = generator.standard_normal((rows + 5, length + 6)).astype(dtype)
    atoms = generator.standard_normal((3, rows, length)).astype(dtype)
    row, col, k, width, value = 2, 4, 1, image.shape[1], dtype(1.5)
    start, first = row * width + col, k * rows * length
    window, known = np.s_[row : row + rows, col : col + length], static_size(rows, length)
    size = Layer(*[0] * len(Layer._fields))._replace(height=rows, length=length, width=width)
    assert (length in (5, 80)) == (known == ((), ()))
    added, taken = image.copy(), atoms.copy()
    added[window] += value * atoms[k]
    taken[k] += value * image[window]
    dot = [window_dot(image.ravel(), start, atoms.ravel(), first, size)]
    ways = [lambda *window: window_add(*window, value, size)]
    if known[0]:
        dot.append(static_dot(image.ravel(), start, width, atoms.ravel(), first, *known))
        ways.append(lambda *window: static_add(*window, value, *known))
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else {"rtol": 1e-13, "atol": 1e-13}
    np.testing.assert_allclose(dot, (image[window] * atoms[k]).sum(), **tolerance)
    for add in ways:
        onto, back = image.ravel().copy(), atoms.ravel().copy()
        add(onto, start, width, atoms.ravel(), first, length)
        add(back, first, length, image.ravel(), start, width)
        np.testing.assert_allclose(onto, added.ravel(), **tolerance)
        np.testing.assert_allclose(back, taken.ravel(), **tolerance)
