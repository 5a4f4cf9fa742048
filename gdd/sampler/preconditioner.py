"""A guess of an upper dictionary's precision that is easily inverted, for the solver of its draw.

Given all positions, the precision of atom k is sum_n gamma_e S_nk' A_n' A_n S_nk + gamma_d. Averaged over those, A'A
is one matrix for all atoms: products of mean images, and a variance on its diagonal (`gdd.sampler.screening`). What is
left out, positions as they are and atoms that share an image, the solver makes up for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gdd.sampler.screening import Average
from gdd.spec import LayerShape

#: modes of the mean images weaker than this share of the variance are left to the diagonal
WEAK = 0.05


def preconditioner(
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
    design = np.zeros((rows, cols, planes, images, *size), np.float32)  # a guess needs no more digits
    for a in range(rows):
        for b in range(cols):
            top, left = a * step_row, b * step_col
            design[a, b, :, :, top : top + height, left : left + width] = below.blurred
    design = design.reshape(rows * cols * planes, -1)
    wide = design.shape[0] < design.shape[1]
    values, vectors = np.linalg.eigh(design @ design.T if wide else design.T @ design)
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
