"""One layer (Eqs. 1-7): its reference log density ``log_joint``, and draws from its prior.

Every conditional of the sampler is tested against ``log_joint``, and so is the sampler's running log joint. Written for
reading, not for speed. The terms are functions, which the joint model of all layers also uses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from gdd.model.convolution import synthesise
from gdd.model.distributions import LOG_TWO_PI, Dirichlet, Gamma
from gdd.model.spec import LayerShape, LayerSpec, Precision
from gdd.model.state import EMPTY, LayerData, LayerState, Local, Shared, maps_of, positions_exist, precision_shapes


def reconstruction(state: LayerState, shape: LayerShape) -> np.ndarray:
    """Sum over atoms of atom * map: (image, plane, row, col)."""
    return synthesise(state.shared.dictionary.astype(float), maps_of(state.local, shape).astype(float))


def residual(state: LayerState, data: LayerData, shape: LayerShape) -> np.ndarray:
    """E = X - reconstruction, zero where a pixel is missing: (image, plane, row, col)."""
    return observed_residual(data, reconstruction(state, shape))


def observed_residual(data: LayerData, clean: np.ndarray) -> np.ndarray:
    """Data minus their reconstruction ``clean``, zero where a pixel is missing: (image, plane, row, col)."""
    observed = True if data.mask is None else data.mask
    return np.where(observed, data.images, 0.0) - np.where(observed, clean, 0.0)


def log_likelihood(state: LayerState, data: LayerData, shape: LayerShape) -> np.ndarray:
    """log p(X | everything else) of each image, observed pixels only: (image,)."""
    return log_residuals(residual(state, data, shape), state.local.gamma_e, data.mask)


def log_residuals(error: np.ndarray, gamma_e: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Log density of residuals (image, plane, row, col), which are zero at hidden pixels: (image,).

    gamma_e : (image or 1,)
    """
    pixels = error[0].size if mask is None else mask.sum(axis=(1, 2, 3))
    return 0.5 * pixels * (np.log(gamma_e) - LOG_TWO_PI) - 0.5 * gamma_e * (error**2).sum(axis=(1, 2, 3))


def log_joint(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, theta: list[np.ndarray] | None = None
) -> float:
    """Log of the joint density of one layer's data and unknowns, every normalising constant included.

    theta : per block shape the multinomial probabilities (image, atom, outcome); None: integrated out

    *Source:* Pu, Yuan & Carin 2015, Eqs. 1-4, 7 and Sec. 2.2.
    *Departs:* one gamma_w per layer (P7).
    *Checked:* tests/test_model.py (densities integrate to one where that can be enumerated).
    """
    local, shared = state
    total = log_likelihood(state, data, shape).sum()
    total += log_positions(local.z, spec, shape) if theta is None else log_positions_given(local.z, theta, shape)
    total += log_weights(local.z, local.w, shared.gamma_w) + log_atoms(shared.dictionary, shared.gamma_d)
    for prior, value in ((spec.gamma_e, local.gamma_e), (spec.gamma_d, shared.gamma_d), (spec.gamma_w, shared.gamma_w)):
        total += log_precision(prior, value)
    return float(total)


def log_weights(z: np.ndarray, w: np.ndarray, gamma_w: np.ndarray) -> float:
    """Log p(w | z, gamma_w) of the active weights; z, w (image, atom, block_row, block_col), gamma_w (1,)."""
    return log_gaussian(gamma_w, (z != EMPTY).sum(), (w.astype(float) ** 2).sum())


def log_atoms(dictionary: np.ndarray, gamma_d: np.ndarray) -> float:
    """Log p(dictionary | gamma_d); (atom, plane, atom_row, atom_col) and (atom or 1, plane or 1)."""
    return log_gaussian(gamma_d, dictionary[0, 0].size, (dictionary.astype(float) ** 2).sum(axis=(2, 3)))


def log_gaussian(precision: np.ndarray, number: np.ndarray, squares: np.ndarray) -> float:
    """Log density of groups of zero-mean Gaussian numbers, given how many each group has and their sum of squares.

    All arguments broadcast to an array with an entry for each group.
    """
    return float((0.5 * number * (np.log(precision) - LOG_TWO_PI) - 0.5 * precision * squares).sum())


def log_precision(prior: Precision, value: np.ndarray) -> float:
    """Log prior of a precision's entries; 0 if it is fixed."""
    return 0.0 if prior.fixed is not None else float(Gamma(prior.shape, prior.rate).logpdf(value.astype(float)).sum())


class BlockGroup(NamedTuple):
    """Blocks of one shape, which share one theta: the full ones, or the ragged ones at an edge or the corner."""

    blocks: np.ndarray  # (block_row, block_col) of bool: which blocks belong to the group
    positions: np.ndarray  # (B,) of int: the positions that such a block has


def block_groups(shape: LayerShape) -> list[BlockGroup]:
    """Group the blocks of a map by their shape; blocks of a group share one theta."""
    exists = positions_exist(shape)  # (block_row, block_col, position)
    kinds, inverse = np.unique(exists.reshape(-1, exists.shape[2]), axis=0, return_inverse=True)
    inverse = inverse.reshape(shape.grid)
    return [BlockGroup(inverse == g, np.flatnonzero(kinds[g])) for g in range(len(kinds))]


def outcome_counts(z: np.ndarray, group: BlockGroup) -> np.ndarray:
    """Counts of each outcome in one group of blocks: (image, atom, outcome), the last outcome: empty."""
    chosen = z[:, :, group.blocks]  # (image, atom, block)
    return np.stack([(chosen == m).sum(axis=2) for m in (*group.positions, EMPTY)], axis=2)


def log_positions(z: np.ndarray, spec: LayerSpec, shape: LayerShape, empty: bool = True) -> float:
    """Log p(z), with theta (or pi, in an elementwise layer) integrated out.

    Without ``empty`` no pooling block may be empty, as in the joint model; a z with empty blocks then gives -inf.
    """
    if spec.elementwise:
        a, b = spec.beta
        active = (z != EMPTY).sum()
        return float(active * math.log(a) + (z.size - active) * math.log(b))
    total = 0.0
    for group in block_groups(shape):
        counts = outcome_counts(z, group)
        if not empty and counts[..., -1].any():
            return -math.inf
        counts = counts[..., : len(group[1]) + empty]
        alpha = 1.0 / counts.shape[2]
        total += (gammaln(alpha + counts) - gammaln(alpha)).sum() - gammaln(1.0 + counts.sum(axis=2)).sum()
    return float(total)


def log_positions_given(z: np.ndarray, theta: list[np.ndarray], shape: LayerShape) -> float:
    """Log p(z, theta) for given multinomial probabilities of each block shape."""
    total = 0.0
    for group, probabilities in zip(block_groups(shape), theta, strict=True):
        outcomes = probabilities.shape[2]
        total += Dirichlet(np.full(outcomes, 1.0 / outcomes)).logpdf(probabilities).sum()
        total += (outcome_counts(z, group) * np.log(probabilities)).sum()
    return float(total)


def draw_positions(
    images: int, spec: LayerSpec, shape: LayerShape, generator: np.random.Generator, empty: bool = True,
    given: np.ndarray | None = None,
) -> np.ndarray:
    """Draw positions z from their prior: (image, atom, block_row, block_col) of int16; ``empty`` as in `log_positions`.

    given : positions of the same shape; each image's theta is then drawn given these
    """
    z = np.full((images, shape.atoms, *shape.grid), EMPTY, np.int16)
    if spec.elementwise:
        z[generator.random(z.shape) < spec.beta[0]] = 0
        return z
    for group in block_groups(shape):
        outcomes = len(group.positions) + empty
        alpha = np.full((images, shape.atoms, outcomes), 1.0 / outcomes)
        if given is not None:
            alpha += outcome_counts(given, group)[..., :outcomes]
        theta = Dirichlet(alpha).sample(generator)
        drawn = draw_outcomes(theta, int(group.blocks.sum()), generator)
        z[:, :, group.blocks] = np.append(group.positions, EMPTY)[drawn]
    return z


def draw_outcomes(weight: np.ndarray, blocks: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the outcome of every block of a map, (image, atom, block), from weights (image, atom, outcome)."""
    edges = np.cumsum(weight, axis=2)[:, :, None, :]
    uniform = generator.random((*weight.shape[:2], blocks, 1)) * edges[..., -1:]
    return (uniform > edges).sum(axis=3)


def draw_precision(prior: Precision, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Draw the entries of a precision from its prior, or return the fixed value."""
    return np.full(size, prior.fixed) if prior.fixed is not None else generator.gamma(prior.shape, 1 / prior.rate, size)


def draw_state(images: int, spec: LayerSpec, shape: LayerShape, generator: np.random.Generator) -> LayerState:
    """Draw all unknowns of a layer from their prior, in double precision. Use proper priors, not the flat defaults."""
    shapes = precision_shapes(spec, images, shape.planes)
    priors = (spec.gamma_e, spec.gamma_d, spec.gamma_w)
    gamma_e, gamma_d, gamma_w = (draw_precision(*pair, generator) for pair in zip(priors, shapes, strict=True))
    z = draw_positions(images, spec, shape, generator)
    w = draw_weights(z, gamma_w, generator)
    return LayerState(Local(z, w, gamma_e), Shared(draw_atoms(shape, gamma_d, generator), gamma_d, gamma_w))


def draw_weights(z: np.ndarray, gamma_w: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw weights from their prior, 0 where a block is empty: (image, atom, block_row, block_col)."""
    return np.where(z == EMPTY, 0.0, generator.standard_normal(z.shape) / np.sqrt(gamma_w))


def draw_atoms(shape: LayerShape, gamma_d: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw a dictionary from its prior: (atom, plane, atom_row, atom_col)."""
    return generator.standard_normal(shape.dictionary) / np.sqrt(gamma_d)[:, :, None, None]


def draw_data(
    state: LayerState, shape: LayerShape, generator: np.random.Generator, mask: np.ndarray | None = None
) -> LayerData:
    """Draw the data of a layer given all its unknowns."""
    return add_noise(reconstruction(state, shape), state.local.gamma_e, generator, mask)


def add_noise(
    clean: np.ndarray, gamma_e: np.ndarray, generator: np.random.Generator, mask: np.ndarray | None
) -> LayerData:
    """Add noise of precision gamma_e (image or 1,) to clean images (image, plane, row, col)."""
    return LayerData(clean + generator.standard_normal(clean.shape) / np.sqrt(gamma_e)[:, None, None, None], mask)
