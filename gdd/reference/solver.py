"""Preconditioned conjugate gradients, for Gaussians whose precision is too large to factorise.

A draw from N(P^-1 b, P^-1) needs only products with P: perturb b by noise of covariance P, and solve (Papandreou and
Yuille 2010).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def conjugate_gradients(
    apply_precision: Callable[[np.ndarray], np.ndarray], rhs: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray], max_steps: int, relative: float = 0.0, absolute: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Solve P x = b from x = 0, stopped on the preconditioned residual norm.

    apply_precision : x -> P x
    rhs : (d,)      b
    precondition : r -> M r, with M about P^-1, symmetric and positive
    max_steps : products with P at most
    relative, absolute : the solver stops where sqrt(r' M r) is below ``absolute`` or below ``relative`` times its start

    Returns x (d,), the residual b - P x (d,), and the number of products with P.

    scipy's ``cg`` stops on the Euclidean norm, which bounds the error of the draw less tightly.
    """
    x, residual = np.zeros_like(rhs), rhs.copy()
    direction = precondition(residual)
    rz = first = float(residual @ direction)
    for steps in range(max_steps):
        if rz <= max(absolute**2, relative**2 * first):
            return x, residual, steps
        product = apply_precision(direction)
        alpha = rz / float(direction @ product)
        x += alpha * direction
        residual -= alpha * product
        z = precondition(residual)
        rz, former = float(residual @ z), rz
        direction = z + (rz / former) * direction
    return x, residual, max_steps
