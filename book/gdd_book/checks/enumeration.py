"""A layer small enough for the exact posterior: every z of one image enumerated; samplers of its map to compare.

`enumerated` is the exact posterior, with dictionary and precisions held and the weights integrated out. `visit` samples
one map, correctly or as printed, in many independent chains at once, so that its limit can be compared with that.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

from gdd.base.checks import GddError
from gdd.model.layer import log_positions
from gdd.model.pooling import map_indices
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import EMPTY, LayerData, LayerState, positions_exist
from gdd.reference.conditionals import pixel_precision

MOST = 5000  # outcomes: beyond this the enumeration takes minutes


class Enumerated(NamedTuple):
    """Every z of one image and the posterior of each."""

    space: np.ndarray  # (outcome, atom, block_row, block_col) of int16
    probability: np.ndarray  # (outcome,)


def enumerated(state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape) -> Enumerated:
    r"""Posterior of every z of one image given dictionary and precisions, weights and theta integrated out.

    :math:`p(z \mid X) \propto p(z)\, \mathcal N(X; 0, \gamma_e^{-1} I + \gamma_w^{-1} A_z A_z^\top)`, the columns of
    :math:`A_z` the atoms placed where z says. The z and w of the state are not used.

    *Source:* Pu, Yuan & Carin 2015, Eqs. 1-4 and 7. *Checked:* tests/test_enumeration.py.
    """
    have = positions_exist(shape)
    options = [[EMPTY, *np.flatnonzero(have[i, j])] for _ in range(shape.atoms) for i, j in np.ndindex(*shape.grid)]
    if (number := np.prod([float(len(option)) for option in options])) > MOST:
        raise GddError(f"shape: {number:.2g} outcomes of z; at most {MOST} can be enumerated, take fewer blocks")
    space = np.array(list(itertools.product(*options)), np.int16).reshape(-1, shape.atoms, *shape.grid)
    log_weight = np.array([log_evidence(z, state, data, spec, shape) for z in space])
    probability = np.exp(log_weight - log_weight.max())
    return Enumerated(space, probability / probability.sum())


def log_evidence(z: np.ndarray, state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape) -> float:
    """Log p(z) + log p(X | z): given z, the observed pixels are Gaussian. z : (atom, block_row, block_col)."""
    precision = pixel_precision(state, data).ravel()
    seen = precision > 0
    placed, variance = active_atoms(z, state, shape)
    covariance = np.diag(1 / precision[seen]) + placed[:, seen].T @ (variance[:, None] * placed[:, seen])
    likelihood = stats.multivariate_normal(np.zeros(seen.sum()), covariance).logpdf(data.images.ravel()[seen])
    return log_positions(z[None], spec, shape) + float(likelihood)


def active_atoms(z: np.ndarray, state: LayerState, shape: LayerShape) -> tuple[np.ndarray, np.ndarray]:
    """Each active block's atom as placed by z, (active, pixel), and the prior variance of its weight, (active,)."""
    where = np.argwhere(z != EMPTY)
    rows = placed_atoms(state, shape)
    placed = np.array([rows[(*at, z[tuple(at)])] for at in where]).reshape(len(where), rows.shape[-1])
    return placed, np.full(len(where), 1 / state.shared.gamma_w[0])


def placed_atoms(state: LayerState, shape: LayerShape) -> np.ndarray:
    """Atom k at position m of block (i, j), zero where the block lacks it: (atom, block_row, block_col, m, pixel)."""
    out = np.zeros((shape.atoms, *shape.grid, shape.block[0] * shape.block[1], shape.planes, *shape.input_size))
    h, w = shape.atom_size
    places = map_indices(shape.map_size, shape.block)
    for i, j, m in np.argwhere(places >= 0):
        row, col = divmod(int(places[i, j, m]), shape.map_size[1])
        out[:, i, j, m, :, row : row + h, col : col + w] = state.shared.dictionary
    return out.reshape(*out.shape[:4], -1)


def draw_weights(
    z: np.ndarray, state: LayerState, data: LayerData, shape: LayerShape, generator: np.random.Generator
) -> np.ndarray:
    """Draw all active weights of one image jointly given z; z and result (atom, block_row, block_col)."""
    placed, variance = active_atoms(z, state, shape)
    precision = pixel_precision(state, data).ravel()
    w = np.zeros(z.shape)
    if len(placed):
        spread = np.linalg.inv(placed * precision @ placed.T + np.diag(1 / variance))
        mean = spread @ (placed * precision) @ data.images.ravel()
        w[z != EMPTY] = generator.multivariate_normal(mean, spread)
    return w


class SmallMap(NamedTuple):
    """One image and the map of one atom in whole blocks, on plain arrays."""

    image: np.ndarray  # (pixel,)
    placed: np.ndarray  # (block, position, pixel)
    gamma_e: float
    gamma_w: float


def small_map(state: LayerState, data: LayerData, shape: LayerShape) -> SmallMap:
    """`SmallMap` of one image and a layer of one atom, one noise precision and no ragged block."""
    placed = placed_atoms(state, shape)[0]
    placed = placed.reshape(-1, *placed.shape[2:])
    return SmallMap(data.images.ravel(), placed, state.local.gamma_e.item(), state.shared.gamma_w.item())


Weight = Callable[[np.ndarray], np.ndarray]


def visit(
    z: np.ndarray, w: np.ndarray, small: SmallMap, generator: np.random.Generator,
    weight: Weight | None = None, at_once: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw every block of the map once, in many independent chains; new z and w, both (chain, block).

    ``z``, ``w`` : EMPTY and 0 where a block is empty; ``weight`` : draw positions at a held weight by this function of
    Y (P2); by default it is integrated out; ``at_once`` : all blocks from the image without the whole map, theta first
    (P3)

    *Source:* Pu, Yuan & Carin 2015, supplement, "Sample W", "Sample Z". *Checked:* tests/test_enumeration.py.
    """
    z, w = z.copy(), w.copy()
    positions = small.placed.shape[1]
    if at_once:
        theta = generator.standard_gamma(counts_of(z, positions) + 1 / (positions + 1))
        theta /= theta.sum(axis=1, keepdims=True)
    for b, atoms in enumerate(small.placed):
        others = [o for o in range(len(small.placed)) if o != b and not at_once]
        left = small.image - sum(w[:, o, None] * small.placed[o, z[:, o]] for o in others)
        prior = theta if at_once else counts_of(z[:, others], positions) + 1 / (positions + 1)
        precision = small.gamma_e * (atoms**2).sum(axis=1) + small.gamma_w  # (position,)
        mean = small.gamma_e * np.broadcast_to(left, (len(z), left.shape[-1])) @ atoms.T / precision
        if weight is None:
            gain = np.sqrt(small.gamma_w / precision) * np.exp(0.5 * precision * mean**2)
        else:
            gain = weight(held_score(z[:, b], w[:, b], mean, precision, small.gamma_w, generator))
        mass = np.append(prior[:, :-1] * gain, prior[:, -1:], axis=1)
        edges = mass.cumsum(axis=1)
        z[:, b] = (generator.random((len(z), 1)) * edges[:, -1:] >= edges).sum(axis=1)
        z[z[:, b] == positions, b] = EMPTY
        drawn = np.take_along_axis(mean, np.maximum(z[:, b, None], 0), axis=1)[:, 0]
        drawn += generator.standard_normal(len(z)) / np.sqrt(precision[z[:, b]])
        w[:, b] = np.where(z[:, b] == EMPTY, 0.0, drawn)
    return z, w


def settled(
    small: SmallMap, chains: int, sweeps: int, generator: np.random.Generator, **misprints
) -> tuple[np.ndarray, np.ndarray]:
    """Z and w of independent chains from an empty map after so many sweeps of `visit`, both (chain, block)."""
    z, w = np.full((chains, len(small.placed)), EMPTY, np.int16), np.zeros((chains, len(small.placed)))
    for _ in range(sweeps):
        z, w = visit(z, w, small, generator, **misprints)
    return z, w


def visited(small: SmallMap, sweeps: int, generator: np.random.Generator, **misprints) -> np.ndarray:
    """Z of one chain from an empty map after each of so many sweeps of `visit`: (draw, block)."""
    z, w, found = *settled(small, 1, 0, generator), []
    for _ in range(sweeps):
        z, w = visit(z, w, small, generator, **misprints)
        found.append(z[0])
    return np.array(found)


def held_score(
    z: np.ndarray, w: np.ndarray, mean: np.ndarray, precision: np.ndarray, gamma_w: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Y of the supplement, (chain, position): at the present weight where active, else at a draw from the prior."""
    held = generator.standard_normal(mean.shape) / np.sqrt(gamma_w)
    active = np.flatnonzero(z != EMPTY)
    held[active, z[active]] = w[active]
    return (precision - gamma_w) * held**2 - 2 * precision * mean * held


def counts_of(z: np.ndarray, positions: int) -> np.ndarray:
    """How many blocks have each outcome, the last outcome: empty; (chain, position + 1)."""
    return np.stack([(z == m).sum(axis=1) for m in (*range(positions), EMPTY)], axis=1).astype(float)


def frequencies(z: np.ndarray, space: np.ndarray) -> np.ndarray:
    """Share of each outcome of ``space`` among z; both have the outcome or draw first, then the blocks."""
    place = {outcome.tobytes(): t for t, outcome in enumerate(space.reshape(len(space), -1).astype(np.int16))}
    found = [place[one.tobytes()] for one in z.reshape(len(z), -1).astype(np.int16)]
    return np.bincount(found, minlength=len(space)) / len(z)


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Half the sum of absolute differences: the largest difference in the probability of any event."""
    return float(0.5 * np.abs(p - q).sum())
