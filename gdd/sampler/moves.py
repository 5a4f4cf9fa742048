"""A move that shifts one atom and its positions by one pixel: Metropolis-Hastings, exact.

An atom that was learned one pixel off lacks a strip of itself and holds a strip of nothing; single positions cannot
step over to the better place one by one, because the atom is shared. Here all go together: the atom's window moves by
one pixel, the strip that comes in is drawn given the old positions, and new positions are drawn image by image.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.model.distributions import DiagonalShiftGaussian
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState
from gdd.sampler.kernels import layer as kernels
from gdd.sampler.kernels import move_kernels
from gdd.sampler.random import MOVE, shared_generator
from gdd.sampler.sweep import Key, autocorrelations

STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))  # each beside its reverse


class Proposal(NamedTuple):
    """Where a shift leads, and the four terms of its acceptance ratio (logs)."""

    state: LayerState
    joint: float  # log joint there minus log joint here
    strip_forward: float  # density of the strip that comes in
    strip_back: float  # density of the strip that goes out, drawn from there
    positions_forward: float  # density of the new positions and weights
    positions_back: float  # density of the old ones, drawn from there

    @property
    def log_ratio(self) -> float:
        """Log of the Metropolis-Hastings ratio; the choice of atom and direction cancels."""
        return self.joint + self.strip_back + self.positions_back - self.strip_forward - self.positions_forward


def shift_atom(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key
) -> tuple[LayerState, bool]:
    r"""Try to shift one atom, chosen at random, by one pixel in a random direction. Returns (state, whether it moved).

    With s, t the strips that leave and enter, S the atom's positions and weights:

    .. math:: \alpha = \frac{p(D', S', X)}{p(D, S, X)} \cdot
              \frac{q(s \mid S', D')\, q(S \mid S', D)}{q(t \mid S, D)\, q(S' \mid S, D')}

    q(strip) is the Gaussian conditional of the strip given the positions it is proposed from and the part of the atom
    that stays. q(S' | S, D') is one Gibbs pass over the map under D', begun at S moved along: the product of the block
    conditionals on its way. theta is integrated out of everything.

    Parameters
    ----------
    state, data, spec, shape : of the layer; unchanged
    key : names the random numbers; the stage is replaced by that of moves

    Notes
    -----
    Missing pixels are not covered: the state comes back as it is.

    *Source:* not in the paper. *Departs:* an addition; the posterior is the same.
    *Checked:* tests/test_moves.py (each term against log_joint and plain conditionals; exact start; wrong versions).
    """
    if data.mask is not None:
        return state, False
    generator = shared_generator(key.seed, MOVE, key.layer, key.sweep)
    k, direction = int(generator.integers(shape.atoms)), int(generator.integers(len(STEPS)))
    proposal = propose_shift(state, data, spec, shape, k, STEPS[direction], key, generator)
    if math.log(generator.random()) < proposal.log_ratio:
        return proposal.state, True
    return state, False


def propose_shift(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, step: tuple[int, int], key: Key,
    generator: np.random.Generator,
) -> Proposal:  # fmt: skip
    """Shift atom k by ``step`` = (row, col), one pixel along one axis, and score the way there and back."""
    back = (-step[0], -step[1])
    entering = strip_given_rest(state, data, shape, k, step)
    strip = entering.sample(generator)  # (plane, pixel)
    there = state._replace(shared=state.shared._replace(dictionary=shifted_dictionary(state, k, step, strip)))
    z, w = state.local.z[:, k].copy(), state.local.w[:, k].copy()
    positions_forward, joint_there = positions(state, there, (z, w), True, data, spec, shape, k, step, key)
    all_z, all_w = state.local.z.copy(), state.local.w.copy()
    all_z[:, k], all_w[:, k] = z, w
    there = there._replace(local=state.local._replace(z=all_z, w=all_w))
    here = np.ascontiguousarray(state.local.z[:, k]), np.ascontiguousarray(state.local.w[:, k])
    positions_back, joint_here = positions(there, state, here, False, data, spec, shape, k, back, key)
    leaving = outer_strip(state.shared.dictionary[k], step)
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k]
    change = joint_there - joint_here - 0.5 * float(gamma_d @ ((strip**2).sum(axis=1) - (leaving**2).sum(axis=1)))
    return Proposal(
        there, change, entering.logpdf(strip), strip_given_rest(there, data, shape, k, back).logpdf(leaving),
        positions_forward, positions_back,
    )  # fmt: skip


def outer_strip(atom: np.ndarray, step: tuple[int, int]) -> np.ndarray:
    """Pixels of an atom (plane, atom_row, atom_col) that a shift by ``step`` leaves behind: (plane, pixel)."""
    edge = 0 if sum(step) > 0 else -1
    return (atom[:, edge, :] if step[0] else atom[:, :, edge]).astype(float)


def shifted_dictionary(state: LayerState, k: int, step: tuple[int, int], strip: np.ndarray) -> np.ndarray:
    """Dictionary with atom k's window moved by ``step``: D'(a) = D(a + step), and ``strip`` where that is outside."""
    dictionary = state.shared.dictionary.copy()
    atom = np.roll(dictionary[k], (-step[0], -step[1]), axis=(1, 2))
    edge = -1 if sum(step) > 0 else 0
    if step[0]:
        atom[:, edge, :] = strip
    else:
        atom[:, :, edge] = strip
    dictionary[k] = atom
    return dictionary


def strip_given_rest(
    state: LayerState, data: LayerData, shape: LayerShape, k: int, step: tuple[int, int]
) -> DiagonalShiftGaussian:
    """Pixels that enter atom k when it shifts by ``step``, given its positions and what stays: (plane, pixel).

    The atom is extended by the strip and deprived of the strip on the other side; precision and linear term are the
    usual ones. Where the strip would lie outside an image there is no pixel, and the position does not count.
    """
    (h, w), planes = shape.atom_size, shape.planes
    dictionary = state.shared.dictionary.astype(float).copy()
    edge = 0 if sum(step) > 0 else -1
    if step[0]:
        dictionary[k, :, edge, :] = 0.0
        strip, size = (h if step[0] > 0 else -1, 0, 0, 1), w
    else:
        dictionary[k, :, :, edge] = 0.0
        strip, size = (0, w if step[1] > 0 else -1, 1, 0), h
    chunks = -(-len(data.images) // kernels.CHUNK)
    lags, linear = np.zeros((chunks, 2 * size - 1)), np.zeros((chunks, size, planes))
    move_kernels.strip_sums(
        plane_last(data.images), state.local.z, state.local.w, plane_last(dictionary), k,
        state.local.gamma_e[:, 0].astype(float), layout(shape), strip, lags, linear,
    )  # fmt: skip
    lag = np.arange(size)[None, :] - np.arange(size)[:, None]
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, planes))[k].astype(float)
    return DiagonalShiftGaussian(lags.sum(axis=0)[lag + size - 1], gamma_d, linear.sum(axis=0).T)


def positions(
    here: LayerState, there: LayerState, target: tuple[np.ndarray, np.ndarray], drawing: bool, data: LayerData,
    spec: LayerSpec, shape: LayerShape, k: int, step: tuple[int, int], key: Key,
) -> tuple[float, float]:  # fmt: skip
    """Log density of atom k's maps ``target`` on the way from ``here`` to the atoms of ``there``, and its log joint.

    ``target`` = (z, w), (image, block_row, block_col); it is filled if ``drawing``, else only scored. The second number
    holds those terms of the log joint that a shift changes, the dictionary's prior left out.
    """
    score, joint = np.empty(len(data.images)), np.empty(len(data.images))
    atoms = plane_last(there.shared.dictionary)
    lags = autocorrelations(there.shared.dictionary[k : k + 1])[0]
    gamma_w = float(np.broadcast_to(here.shared.gamma_w, (shape.atoms,))[k])
    move_kernels.move_positions(
        plane_last(data.images), here.local.z, here.local.w, *target, drawing, atoms, atoms[k], k, step, lags,
        here.local.gamma_e[:, 0].astype(float), gamma_w, layout(shape),
        (*spec.beta, 0.0) if spec.elementwise else (0.0, 0.0, 1.0), (key.seed, MOVE, key.layer, key.sweep),
        score, joint,
    )  # fmt: skip
    return float(score.sum()), float(joint.sum())


def plane_last(array: np.ndarray) -> np.ndarray:
    """(n, plane, row, col) to (n, row, col * plane), double."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1), float).reshape(len(array), array.shape[2], -1)


def layout(shape: LayerShape) -> tuple[int, int, int, int, int]:
    """Sizes as the kernels want them: map, block, planes."""
    return (*shape.map_size, *shape.block, shape.planes)
