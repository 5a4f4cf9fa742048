"""The conditionals of one layer, written as the equations: each takes the rest of the state and returns a distribution.

Slow and plain. tests/test_conditionals.py compares every conditional with ``log_joint`` by exact ratios, and
tests/test_kernels.py compares the compiled image pass with these.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gdd.model.distributions import BlockChoice, Dirichlet, Gamma, Gaussian
from gdd.model.layer import block_groups, outcome_counts, residual
from gdd.model.spec import LayerShape, LayerSpec, Precision
from gdd.model.state import EMPTY, LayerData, LayerState, maps_of, positions_exist, with_block


def slab_log_odds(c: np.ndarray, precision: np.ndarray, gamma_w: float) -> np.ndarray:
    r"""Log odds of an active weight (the slab of its prior) against none (the spike), the weight integrated out.

    .. math:: \tfrac12 \log(\gamma_w / \lambda) + c^2 / (2 \lambda)

    without the prior odds; c is the linear term and :math:`\lambda`, ``precision``, the precision of the weight given
    the rest. Compiled: `gdd.sampler.kernels.operations.slab_log_odds` and, as a product, ``slab_of``.
    """
    return 0.5 * np.log(gamma_w / precision) + c**2 / (2 * precision)


def block_given_rest(
    windows: np.ndarray, precision: np.ndarray, atom: np.ndarray, log_prior: np.ndarray, gamma_w: float
) -> BlockChoice:
    r"""Where a pooling block is active, and how strongly, given all else; the weight is integrated out of the choice.

    .. math:: p(z = m \mid -) \propto \theta_m \sqrt{\gamma_w / \lambda_m}\, e^{c_m^2 / (2 \lambda_m)}, \qquad
              w \mid z = m \sim \mathcal N(c_m / \lambda_m, \lambda_m^{-1})

    with :math:`c_m = \langle r, d_m \rangle` and :math:`\lambda_m = \lVert d_m \rVert^2 + \gamma_w`, inner products
    weighted by the precision of each pixel.

    Parameters
    ----------
    windows : (position, plane, atom_row, atom_col)     image minus all else, under the atom at each position
    precision : the same axes                           gamma_e of each pixel, 0 where it is missing
    atom : (plane, atom_row, atom_col)                  D in the paper
    log_prior : (position + 1,)                         log of theta, or of the counts that stand for it; last: empty
    gamma_w : float                                     precision of the weights

    Returns
    -------
    BlockChoice
        A distribution with ``logpdf(z, w)`` and ``sample(stream)``. Nothing is drawn here.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2 and supplement, "Sample Z" and "Sample W".
    *Departs:* the weight is integrated out; one block at a time, the residual kept current (P2, P3).
    *Checked:* tests/test_conditionals.py (exact ratio to log_joint).
    """
    correlation = (precision * windows * atom).sum(axis=(1, 2, 3))
    weight_precision = (precision * atom * atom).sum(axis=(1, 2, 3)) + gamma_w
    log_odds = slab_log_odds(correlation, weight_precision, gamma_w)
    return BlockChoice(log_prior + np.append(log_odds, 0.0), correlation / weight_precision, weight_precision)


def pixel_precision(state: LayerState, data: LayerData) -> np.ndarray:
    """gamma_e at every pixel, 0 where it is missing: (image, plane, row, col)."""
    gamma_e = np.broadcast_to(state.local.gamma_e[:, None, None, None], data.images.shape)
    return np.where(True if data.mask is None else data.mask, gamma_e, 0.0)


def block_in_layer(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, where: tuple[int, int, int, int]
) -> BlockChoice:
    """`block_given_rest` for block ``where`` = (image, atom, block_row, block_col), everything computed afresh."""
    n, k, i, j = where
    emptied = with_block(state, where, EMPTY, 0.0)
    error = residual(emptied, data, shape)[n]  # (plane, row, col)
    (p, q), (h, w) = shape.block, shape.atom_size
    windows = sliding_window_view(error, (h, w), axis=(1, 2)).transpose(1, 2, 0, 3, 4)
    precision = sliding_window_view(pixel_precision(state, data)[n], (h, w), axis=(1, 2)).transpose(1, 2, 0, 3, 4)
    m = np.arange(p * q)
    exists = positions_exist(shape)[i, j]
    row = np.minimum(i * p + m // q, shape.map_size[0] - 1)
    col = np.minimum(j * q + m % q, shape.map_size[1] - 1)
    log_prior = log_block_prior(emptied.local.z, spec, shape, where)
    log_prior[:-1][~exists] = -np.inf
    atom, gamma_w = state.shared.dictionary[k], float(state.shared.gamma_w[0])
    return block_given_rest(windows[row, col], precision[row, col], atom, log_prior, gamma_w)


def log_block_prior(
    z: np.ndarray, spec: LayerSpec, shape: LayerShape, where: tuple[int, int, int, int], empty: bool = True
) -> np.ndarray:
    """Log prior weight of each outcome of a block given the other blocks of its map, theta integrated out.

    (position + 1,); the block itself must be empty in ``z``. A pooled block: 1/(B+1) + counts over the other blocks of
    its shape in the map; without ``empty`` 1/B + counts, and -inf for the last outcome. An element: a0 and b0.
    """
    n, k, i, j = where
    p, q = shape.block
    if spec.elementwise:
        return np.log(np.array(spec.beta))
    out = np.full(p * q + 1, -np.inf)
    for group in block_groups(shape):
        if group.blocks[i, j]:
            counts = outcome_counts(z[n : n + 1, k : k + 1], group)[0, 0].astype(float)
            counts[-1] -= 1  # the block itself
            out[np.append(group.positions, p * q)] = np.log(counts + 1.0 / (len(group.positions) + empty))
    if not empty:
        out[-1] = -np.inf
    return out


def theta_given_z(z: np.ndarray, shape: LayerShape) -> list[Dirichlet]:
    """Multinomial probabilities of each block shape given the positions: Dirichlet(1/(B+1) + counts).

    One `Dirichlet` with alpha (image, atom, outcome) per block shape, in the order of `gdd.model.layer.block_groups`.

    *Source:* supplement, "Sample theta". *Departs:* one theta per block shape, so that ragged edges are exact.
    *Checked:* tests/test_conditionals.py.
    """
    counts = [outcome_counts(z, group) for group in block_groups(shape)]
    return [Dirichlet(part + 1.0 / part.shape[2]) for part in counts]


def atom_statistics(
    state: LayerState, data: LayerData, shape: LayerShape, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Contribution of the data to the precision of atom k's pixels, (plane, hw, hw), and linear term (plane, hw)."""
    maps = maps_of(state.local, shape)[:, k].astype(float)  # (image, row, col)
    error = residual(with_block(state, np.s_[:, k], EMPTY, 0.0), data, shape)
    precision = pixel_precision(state, data)
    design = design_of(maps, shape)
    flat = precision.reshape(*precision.shape[:2], -1)
    gram = np.einsum("nua,ncu,nub->cab", design, flat, design, optimize=True)
    linear = np.einsum("nua,ncu,ncu->ca", design, flat, error.reshape(flat.shape), optimize=True)
    return gram, linear


def atom_given_rest(state: LayerState, data: LayerData, shape: LayerShape, k: int) -> list[Gaussian]:
    r"""All pixels of atom k given all else, one Gaussian per plane: :math:`\mathcal N(P^{-1} b, P^{-1})`.

    :math:`P = \sum_n \gamma_e T(S_{nk}) + \gamma_d I` with T the autocorrelation of the map.

    *Source:* supplement, "Sample D". *Departs:* the full precision, not its diagonal (P4).
    *Checked:* tests/test_conditionals.py.
    """
    gram, linear = atom_statistics(state, data, shape, k)
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k]
    eye = np.eye(gram.shape[1])
    return [Gaussian(gram[c] + gamma_d[c] * eye, linear[c]) for c in range(shape.planes)]


def gamma_d_given_rest(state: LayerState, spec: LayerSpec, shape: LayerShape) -> Gamma:
    """Precision of the dictionary: a + pixels/2, b + ||D||^2/2 in each entry. *Departs:* P5. *Checked:* ratio test."""
    norms = (state.shared.dictionary.astype(float) ** 2).sum(axis=(2, 3))  # (atom, plane)
    pixels = np.full(norms.shape, shape.atom_size[0] * shape.atom_size[1], float)
    return _precision_given(spec.gamma_d, pixels, norms, state.shared.gamma_d.shape)


def gamma_w_given_rest(state: LayerState, spec: LayerSpec) -> Gamma:
    """Precision of the weights: a + (active)/2, b + (sum of w^2)/2. *Departs:* P7. *Checked:* ratio test."""
    active, energy = (state.local.z != EMPTY).sum(), (state.local.w.astype(float) ** 2).sum()
    return _precision_given(spec.gamma_w, np.array([active], float), np.array([energy]), (1,))


def gamma_e_given_rest(state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape) -> Gamma:
    """Precision of the noise: a + (observed pixels)/2, b + ||E||^2/2. *Departs:* P6. *Checked:* ratio test."""
    energy = (residual(state, data, shape) ** 2).sum(axis=(1, 2, 3))  # (image,)
    pixels = np.ones(data.images.shape) if data.mask is None else data.mask
    return _precision_given(spec.gamma_e, pixels.sum(axis=(1, 2, 3)).astype(float), energy, state.local.gamma_e.shape)


def sum_shared(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum over the axes along which a precision of this shape is shared."""
    for axis, size in enumerate(shape):
        if size == 1:
            values = values.sum(axis=axis, keepdims=True)
    return values


def _precision_given(prior: Precision, number: np.ndarray, energy: np.ndarray, shape: tuple[int, ...]) -> Gamma:
    return Gamma(prior.shape + sum_shared(number, shape) / 2, prior.rate + sum_shared(energy, shape) / 2)


def design_of(maps: np.ndarray, shape: LayerShape) -> np.ndarray:
    """Design matrix S_n(u - a), (image, u, a): atom pixel a in image pixel u, from maps (image, row, col)."""
    rows, cols = shape.atom_size
    design = np.zeros((maps.shape[0], *shape.input_size, rows, cols))
    for a in range(rows):
        for b in range(cols):
            design[:, a : a + maps.shape[1], b : b + maps.shape[2], a, b] = maps
    return design.reshape(maps.shape[0], -1, rows * cols)
