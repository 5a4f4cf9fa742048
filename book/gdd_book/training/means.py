"""Dictionaries as conditional means: what a layer's atoms are expected to be, given everything else in a state.

A draw of an atom carries the noise of its posterior, which for an atom that few images use is nearly that of its prior.
The mean of the same Gaussian does not. Means are for looking at and for measuring; the chain never uses them.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from gdd.base.axes import GddError
from gdd.model.convolution import correlate_with_maps, synthesise
from gdd.model.state import EMPTY, JointState, LayerData, maps_of
from gdd.sampler.chain import Fitted
from gdd.sampler.joint_sweep import dictionary_mean
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined

TOLERANCE = 1e-5  # of the residual of the normal equations, relative


def joint_with_means(refined: Refined) -> JointState:
    """Replace each dictionary of the kept state by its mean given the rest of that state, the other layers included.

    A top atom that no image uses has the mean of its prior, exactly zero, where the solver would leave its tolerance.
    """
    state = refined.state
    used = (state.local.z != EMPTY).any(axis=(0, 2, 3))
    layers = range(len(refined.model.layers))
    *lower, top = (dictionary_mean(state, refined.data, refined.model, layer) for layer in layers)
    means = (*lower, top * used[:, None, None, None])
    return state._replace(shared=state.shared._replace(dictionaries=means))


def layers_with_means(fitted: Pretrained) -> Pretrained:
    """Replace each layer's dictionary by its mean given the rest of that layer."""
    means = [layer_mean(layer, data) for layer, data in zip(fitted.layers, fitted.inputs, strict=True)]
    states = [
        layer.state._replace(shared=layer.state.shared._replace(dictionary=mean))
        for layer, mean in zip(fitted.layers, means, strict=True)
    ]
    return fitted._replace(
        layers=tuple(layer._replace(state=state) for layer, state in zip(fitted.layers, states, strict=True))
    )


def layer_mean(layer: Fitted, data: LayerData) -> np.ndarray:
    r"""Mean of one pretrained layer's dictionary given its maps and precisions.

    .. math:: \Big( \sum_n A_n^\top \Gamma_n A_n + \gamma_d \Big)\, \bar D = \sum_n A_n^\top \Gamma_n X_n, \qquad
              A_n D = \sum_k D_k * S_{nk}

    Returns
    -------
    (atom, plane, atom_row, atom_col)

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Sample D".
    Departs: the whole dictionary at once, its full precision (P4).
    Checked: tests/test_means.py (against the dense Gaussian).
    """
    local, shared = layer.state
    maps, shape = maps_of(local, layer.shape).astype(float), shared.dictionary.shape
    weights = np.broadcast_to(np.asarray(local.gamma_e, float)[:, :, None, None], data.images.shape)
    weights = weights if data.mask is None else weights * data.mask
    images = data.images if data.mask is None else np.where(data.mask, data.images, 0.0)
    gamma_d = np.broadcast_to(shared.gamma_d[:, :, None, None], shape)

    def precision(flat: np.ndarray) -> np.ndarray:
        atoms = flat.reshape(shape)
        return (correlate_with_maps(weights * synthesise(atoms, maps), maps) + gamma_d * atoms).ravel()

    energy = (weights.mean() * (maps**2).sum(axis=(0, 2, 3)))[:, None, None, None]
    size, right = shared.dictionary.size, correlate_with_maps(weights * images, maps).ravel()
    rough = LinearOperator((size, size), lambda flat: flat / (gamma_d + energy).ravel())
    mean, failed = cg(LinearOperator((size, size), precision, dtype=float), right, rtol=TOLERANCE, M=rough)
    if failed:
        raise GddError(f"dictionary: its mean was not reached in {failed} steps; are the precisions those of a chain?")
    return mean.reshape(shape)
