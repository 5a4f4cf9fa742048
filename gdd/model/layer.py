"""The generative story of one layer: draw from it, and ``log_joint``, the judge of every conditional.

Everything here is written for reading and for the tests. The sampler keeps a running log joint of its own, and a test
holds it to this one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import gammaln

from gdd.model.distributions import LOG_TWO_PI, Dirichlet, Gamma
from gdd.model.spec import LayerShape, LayerSpec, Precision
from gdd.model.state import EMPTY, LayerData, LayerState, Local, Shared, block_positions, maps_of, precision_shapes


def reconstruction(state: LayerState, shape: LayerShape) -> np.ndarray:
    """Sum over atoms of atom * map: (image, plane, row, col)."""
    maps = maps_of(state.local, shape)
    atoms = state.shared.dictionary
    out = np.zeros((maps.shape[0], shape.planes, *shape.input_size))
    for k in range(shape.atoms):
        used = np.flatnonzero(maps[:, k].any(axis=(1, 2)))
        if used.size:
            out[used] += fftconvolve(maps[used, k][:, None].astype(float), atoms[k][None].astype(float), axes=(2, 3))
    return out


def residual(state: LayerState, data: LayerData, shape: LayerShape) -> np.ndarray:
    """E = X - reconstruction, zero where a pixel is missing: (image, plane, row, col)."""
    error = np.where(_observed(data), data.images, 0.0) - reconstruction(state, shape)
    return np.where(_observed(data), error, 0.0)


def _observed(data: LayerData) -> np.ndarray:
    return np.ones(data.images.shape, bool) if data.mask is None else data.mask


def log_likelihood(state: LayerState, data: LayerData, shape: LayerShape) -> np.ndarray:
    """log p(X | everything else) of each image, observed pixels only: (image,)."""
    error = residual(state, data, shape)
    gamma_e = np.broadcast_to(state.local.gamma_e, error.shape[:2])
    pixels = _observed(data).sum(axis=(2, 3))
    return (0.5 * pixels * (np.log(gamma_e) - LOG_TWO_PI) - 0.5 * gamma_e * (error**2).sum(axis=(2, 3))).sum(axis=1)


def log_joint(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, theta: list[np.ndarray] | None = None
) -> float:
    """Log of the joint density of one layer's data and unknowns, every normalising constant included.

    Parameters
    ----------
    state, data, spec, shape
    theta : per block shape a (image, atom, outcome) array, optional
        The multinomial probabilities. If not given they are integrated out.

    Returns
    -------
    float

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Eqs. 1-4, 7 and Sec. 2.2.
    *Departs:* one gamma_w per layer unless the spec says otherwise (P7).
    *Checked:* tests/test_model.py (densities integrate to one where that can be enumerated).
    """
    local, shared = state
    active = local.z != EMPTY
    gamma_w = np.broadcast_to(shared.gamma_w, (shape.atoms,))
    gamma_d = np.broadcast_to(shared.gamma_d, (shape.atoms, shape.planes))
    pixels = shape.atom_size[0] * shape.atom_size[1]
    total = log_likelihood(state, data, shape).sum()
    total += log_positions(local.z, spec, shape) if theta is None else log_positions_given(local.z, theta, spec, shape)
    per_atom = active.sum(axis=(0, 2, 3))
    weight = (local.w.astype(float) ** 2).sum(axis=(0, 2, 3))
    total += log_gaussian(gamma_w, per_atom, weight)
    total += log_gaussian(gamma_d, pixels, (shared.dictionary.astype(float) ** 2).sum(axis=(2, 3)))
    for prior, value in ((spec.gamma_e, local.gamma_e), (spec.gamma_d, shared.gamma_d), (spec.gamma_w, shared.gamma_w)):
        total += log_precision(prior, value)
    return float(total)


def log_gaussian(precision: np.ndarray, number: np.ndarray, squares: np.ndarray) -> float:
    """Log density of Gaussian numbers of mean zero: of each precision, how many there are and the sum of squares."""
    return float((0.5 * number * (np.log(precision) - LOG_TWO_PI) - 0.5 * precision * squares).sum())


def log_precision(prior: Precision, value: np.ndarray) -> float:
    """Log prior of a precision's entries; 0 if it is fixed."""
    return 0.0 if prior.fixed is not None else float(Gamma(prior.shape, prior.rate).logpdf(value.astype(float)).sum())


def block_groups(shape: LayerShape) -> list[tuple[np.ndarray, np.ndarray]]:
    """Blocks that share one theta: for each block shape (full, right, bottom, corner) its blocks and its positions.

    Returns
    -------
    list of (mask (block_row, block_col) of bool, positions (B,) of int)
    """
    have = block_positions(shape)  # (block_row, block_col, position)
    kinds, inverse = np.unique(have.reshape(-1, have.shape[2]), axis=0, return_inverse=True)
    inverse = inverse.reshape(shape.grid)
    return [(inverse == g, np.flatnonzero(kinds[g])) for g in range(len(kinds))]


def outcome_counts(z: np.ndarray, group: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """How often each outcome occurs in one group of blocks: (image, atom, outcome), the last outcome: empty."""
    chosen = z[:, :, group[0]]  # (image, atom, block)
    return np.stack([(chosen == m).sum(axis=2) for m in (*group[1], EMPTY)], axis=2)


def log_positions(z: np.ndarray, spec: LayerSpec, shape: LayerShape, empty: bool = True) -> float:
    """Log p(z), with theta (or pi, in an elementwise layer) integrated out.

    Without ``empty`` a pooling block has no such outcome, as in the joint model; then a z that has it gets -inf.
    """
    if spec.elementwise:
        a, b = spec.beta
        active = (z != EMPTY).sum()
        return float(active * math.log(a) + (z.size - active) * math.log(b))
    total = 0.0
    for group in block_groups(shape):
        alpha = 1.0 / (len(group[1]) + empty)
        counts = outcome_counts(z, group)
        if not empty and counts[..., -1].any():
            return -math.inf
        total += (gammaln(alpha + counts) - gammaln(alpha))[..., : len(group[1]) + empty].sum()
        total -= counts.shape[0] * counts.shape[1] * gammaln(1.0 + group[0].sum())
    return float(total)


def log_positions_given(z: np.ndarray, theta: list[np.ndarray], spec: LayerSpec, shape: LayerShape) -> float:
    """Log p(z, theta) for given multinomial probabilities of each block shape."""
    total = 0.0
    for group, probabilities in zip(block_groups(shape), theta, strict=True):
        alpha = np.full(len(group[1]) + 1, 1.0 / (len(group[1]) + 1))
        total += Dirichlet(alpha).logpdf(probabilities).sum()
        total += (outcome_counts(z, group) * np.log(probabilities)).sum()
    return float(total)


def draw_positions(
    images: int, spec: LayerSpec, shape: LayerShape, generator: np.random.Generator, empty: bool = True
) -> np.ndarray:
    """Positions z from their prior: (image, atom, block_row, block_col) of int16; ``empty`` as in `log_positions`."""
    z = np.full((images, shape.atoms, *shape.grid), EMPTY, np.int16)
    if spec.elementwise:
        z[generator.random(z.shape) < spec.beta[0]] = 0
        return z
    for blocks, positions in block_groups(shape):
        outcomes = len(positions) + empty
        alpha = np.full((images, shape.atoms, outcomes), 1.0 / outcomes)
        theta = Dirichlet(alpha).sample(generator)
        edges = np.cumsum(theta, axis=2)[:, :, None, :]  # (image, atom, 1, outcome)
        uniform = generator.random((images, shape.atoms, int(blocks.sum()), 1)) * edges[..., -1:]
        z[:, :, blocks] = np.append(positions, EMPTY)[(uniform > edges).sum(axis=3)]
    return z


def draw_precision(prior: Precision, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Entries of a precision from its prior, or the number at which it is held."""
    return np.full(size, prior.fixed) if prior.fixed is not None else generator.gamma(prior.shape, 1 / prior.rate, size)


def draw_state(images: int, spec: LayerSpec, shape: LayerShape, generator: np.random.Generator) -> LayerState:
    """Draw all unknowns of a layer from their prior, in double precision. Use proper priors, not the flat defaults."""
    shapes = precision_shapes(spec, images, shape.planes)
    priors = (spec.gamma_e, spec.gamma_d, spec.gamma_w)
    gamma_e, gamma_d, gamma_w = (draw_precision(*pair, generator) for pair in zip(priors, shapes, strict=True))
    z = draw_positions(images, spec, shape, generator)
    w = generator.standard_normal(z.shape) / np.sqrt(gamma_w)[None, :, None, None]
    dictionary = generator.standard_normal(shape.dictionary) / np.sqrt(gamma_d)[:, :, None, None]
    return LayerState(Local(z, np.where(z == EMPTY, 0.0, w), gamma_e), Shared(dictionary, gamma_d, gamma_w))


def draw_data(
    state: LayerState, shape: LayerShape, generator: np.random.Generator, mask: np.ndarray | None = None
) -> LayerData:
    """Draw the data of a layer given all its unknowns."""
    clean = reconstruction(state, shape)
    gamma_e = np.broadcast_to(state.local.gamma_e, clean.shape[:2])
    return LayerData(clean + generator.standard_normal(clean.shape) / np.sqrt(gamma_e)[:, :, None, None], mask)
