"""Scale moves of the joint model: what one layer's atoms gain, the layer above or the top weights lose. Exact."""

from __future__ import annotations

import numpy as np

from gdd.model.distributions import GeneralisedInverseGaussian
from gdd.model.state import JointShared, Shared
from gdd.sampler.dictionary import draw_scales


def draw_joint_scales(
    dictionaries: tuple[np.ndarray, ...], per_atom: np.ndarray, shared: JointShared, generator: np.random.Generator
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Draw the scale of every top atom against its weights, then of every lower atom against its plane above.

    Parameters
    ----------
    dictionaries : just drawn, bottom first
    per_atom : (2, atom)      active coefficients and sum of squared weights of the top atoms
    shared : the precisions that the dictionaries were drawn under

    Returns
    -------
    (dictionaries, scales (atom,) of the top layer, by which its weights are to be divided)

    Notes
    -----
    *Source:* not in the paper. *Checked:* tests/test_refine_conditionals.py (ratio with Jacobian).
    """
    out = [np.array(atoms, float) for atoms in dictionaries]
    top = Shared(out[-1], shared.gamma_d[-1], shared.gamma_w)
    scales = draw_scales(out[-1], per_atom, top, generator)
    out[-1] *= scales[:, None, None, None]
    for layer in range(len(out) - 2, -1, -1):
        lower, upper = out[layer], out[layer + 1]
        below = np.broadcast_to(shared.gamma_d[layer], lower.shape[:2])
        above = np.broadcast_to(shared.gamma_d[layer + 1], upper.shape[:2])
        a = (below * (lower**2).sum(axis=(2, 3))).sum(axis=1)
        b = (above * (upper**2).sum(axis=(2, 3))).sum(axis=0)
        order = (lower[0].size - upper[:, 0].size) / 2
        squared = [GeneralisedInverseGaussian(order, *ab).sample(generator) for ab in zip(a, b, strict=True)]
        factor = np.sqrt(np.array(squared))
        lower *= factor[:, None, None, None]
        upper /= factor[None, :, None, None]
    return tuple(out), scales
