"""A guess of an upper dictionary's precision that is easily inverted, for the solver of its draw.

Given all positions, the precision of atom k is sum_n gamma_e S_nk' A_n' A_n S_nk + gamma_d. Averaged over those, A'A
is one matrix for all atoms: products of mean images, and a variance on its diagonal (`gdd.sampler.screening`). What is
left out, positions as they are and atoms that share an image, the solver makes up for. Where atoms are few,
`gdd.sampler.preconditioner_by_frequency` leaves out less.

*Checked:* tests/test_screening.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh

from gdd.model.pooling import Size
from gdd.model.spec import LayerShape
from gdd.sampler.screening import Average

#: modes of the mean images weaker than this share of the variance are left to the diagonal
WEAK = 0.05


def guess_by_atom(
    below: Average, shape: LayerShape, weights: np.ndarray, gamma_d: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the product with the inverse of a guess of a layer's precision.

    Parameters
    ----------
    below : average images of the layer under this one
    shape : of the layer whose dictionary is drawn
    weights : (atom,)          gamma_e times the sum of squared weights of each atom
    gamma_d : (atom or 1, plane or 1)

    Returns
    -------
    function of a flat vector (atom * atom_row * atom_col * plane), symmetric and positive
    """
    (rows, cols), planes = shape.atom_size, shape.planes
    images, (height, width) = below.blurred.shape[1], below.blurred.shape[2:]
    step_row, step_col = below.stride
    size = (rows - 1) * step_row + height, (cols - 1) * step_col + width
    wide = rows * cols * planes < images * size[0] * size[1]
    design = None if wide else designed(below, shape.atom_size, size)
    matrix = products(below, shape.atom_size) if wide else design.T @ design
    values, vectors = eigh(matrix, driver="evd", overwrite_a=True, check_finite=False)
    variance = max(float(below.doubt.mean()), 1e-6 * float(values[-1]))
    strong = values > WEAK * variance
    values, modes = values[strong], vectors[:, strong]
    modes = modes if wide else design @ modes / np.sqrt(values)
    rest = np.broadcast_to(gamma_d, (shape.atoms, planes)).mean(axis=1) + weights * variance  # (atom,)
    gain = 1 / (rest[:, None] + weights[:, None] * values) - 1 / rest[:, None]

    def apply(vector: np.ndarray) -> np.ndarray:
        per_atom = vector.reshape(shape.atoms, -1)
        return (per_atom / rest[:, None] + (per_atom @ modes * gain) @ modes.T).ravel()

    return apply


def designed(below: Average, atom: Size, size: Size) -> np.ndarray:
    """Mean image of a unit in every entry of an atom: (atom_row * atom_col * plane, pixel)."""
    (rows, cols), (planes, images, height, width) = atom, below.blurred.shape
    design = np.zeros((rows, cols, planes, images, *size), np.float32)  # a guess needs no more digits
    for a, b in np.ndindex(rows, cols):
        top, left = a * below.stride[0], b * below.stride[1]
        design[a, b, :, :, top : top + height, left : left + width] = below.blurred
    return design.reshape(rows * cols * planes, -1)


def products(below: Average, atom: Size) -> np.ndarray:
    """Inner products of the rows of `designed`, which depend on how far two entries are apart: far fewer to make."""
    (rows, cols), images = atom, below.blurred.astype(np.float32)
    planes, _, height, width = images.shape
    apart = np.zeros((2 * rows - 1, 2 * cols - 1, planes, planes), np.float32)
    for a, b in np.ndindex(rows, 2 * cols - 1):
        down, along = a * below.stride[0], (b - cols + 1) * below.stride[1]
        if down < height and abs(along) < width:
            one = images[:, :, down:, max(along, 0) : width + min(along, 0)].reshape(planes, -1)
            other = images[:, :, : height - down, max(-along, 0) : width - max(along, 0)].reshape(planes, -1)
            apart[rows - 1 + a, b] = other @ one.T
            apart[rows - 1 - a, 2 * cols - 2 - b] = one @ other.T
    row, col = (np.arange(n)[:, None] - np.arange(n) for n in (rows, cols))
    each = apart[row[:, None, :, None] + rows - 1, col[None, :, None, :] + cols - 1]  # (row, col) twice, (plane) twice
    return np.ascontiguousarray(each.transpose(0, 1, 4, 2, 3, 5)).reshape(rows * cols * planes, -1)
