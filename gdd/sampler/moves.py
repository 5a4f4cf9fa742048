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
from gdd.sampler.dictionary import layout_of, plane_last
from gdd.sampler.kernels import moves as kernels
from gdd.sampler.kernels.layer import Atoms
from gdd.sampler.kernels.operations import CHUNK, Images
from gdd.sampler.random import MOVE, Key, shared_generator
from gdd.sampler.sums import add_chunks, add_images
from gdd.sampler.sweep import gamma_w_of, padded_autocorrelations, prior_of

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
    that stays. q(S' | S, D') is one Gibbs scan of the map under D', begun at S moved along: the product of the block
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
    accepted = math.log(generator.random()) < proposal.log_ratio
    return (proposal.state if accepted else state), accepted


def propose_shift(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, step: tuple[int, int], key: Key,
    generator: np.random.Generator,
) -> Proposal:
    """Shift atom k by ``step`` = (row, col), one pixel along one axis, and score the way there and back."""
    back = (-step[0], -step[1])
    entering = strip_given_rest(state, data, spec, shape, k, step)
    strip = entering.sample(generator)  # (plane, pixel)
    there = state._replace(shared=state.shared._replace(dictionary=shifted_dictionary(state, k, step, strip)))
    z, w = state.local.z.copy(), state.local.w.copy()
    forward, joint_there = gibbs_scan(state, there, (z, w), True, data, spec, shape, k, step, key)
    there = there._replace(local=state.local._replace(z=z, w=w))
    here = state.local.z, state.local.w
    backward, joint_here = gibbs_scan(there, state, here, False, data, spec, shape, k, back, key)
    leaving = outer_strip(state.shared.dictionary[k], step)
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k]
    change = joint_there - joint_here - 0.5 * float(gamma_d @ ((strip**2).sum(axis=1) - (leaving**2).sum(axis=1)))
    strip_back = strip_given_rest(there, data, spec, shape, k, back).logpdf(leaving)
    return Proposal(there, change, entering.logpdf(strip), strip_back, forward, backward)


def outer_strip(atom: np.ndarray, step: tuple[int, int]) -> np.ndarray:
    """Pixels of an atom (plane, atom_row, atom_col) that a shift by ``step`` leaves behind: (plane, pixel)."""
    edge = 0 if sum(step) > 0 else -1
    return (atom[:, edge, :] if step[0] else atom[:, :, edge]).astype(float)


def shifted_dictionary(state: LayerState, k: int, step: tuple[int, int], strip: np.ndarray) -> np.ndarray:
    """Dictionary with atom k's window moved by ``step``: D'(a) = D(a + step), and ``strip`` where that is outside."""
    dictionary = state.shared.dictionary.copy()
    dictionary[k] = np.roll(dictionary[k], (-step[0], -step[1]), axis=(1, 2))
    edge = -1 if sum(step) > 0 else 0
    dictionary[(k, slice(None), edge) if step[0] else (k, slice(None), slice(None), edge)] = strip
    return dictionary


def strip_given_rest(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, step: tuple[int, int]
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
    chunks = -(-len(data.images) // CHUNK)
    lags, linear = np.zeros((chunks, 2 * size - 1)), np.zeros((chunks, size, planes))
    atoms = plane_last(dictionary, float)
    kernels.strip_sums(images_of(state, data), atoms, k, layout_of(shape), prior_of(spec), strip, lags, linear)
    lag = np.arange(size)[None, :] - np.arange(size)[:, None]
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, planes))[k].astype(float)
    lags, linear = add_chunks((lags, linear), data.part)
    return DiagonalShiftGaussian(lags[lag + size - 1], gamma_d, linear.T)


def gibbs_scan(
    here: LayerState, there: LayerState, target: tuple[np.ndarray, np.ndarray], drawing: bool, data: LayerData,
    spec: LayerSpec, shape: LayerShape, k: int, step: tuple[int, int], key: Key,
) -> tuple[float, float]:
    """Log density of atom k's maps in ``target`` on the way from ``here`` to the atoms of ``there``, and its log joint.

    ``target`` = (z, w) of all atoms; atom k's maps are filled if ``drawing``, else only scored. The second number
    holds those terms of the log joint that a shift changes, the dictionary's prior left out.
    """
    out, maps = np.empty((2, len(data.images))), tuple(part[:, k] for part in target)
    dictionary = there.shared.dictionary
    lags = padded_autocorrelations(dictionary[k : k + 1], float)
    atoms = Atoms(plane_last(dictionary, float), lags, gamma_w_of(here.shared, shape)[k : k + 1])
    key = (key.seed, MOVE, key.layer, key.sweep)
    kernels.move_positions(
        images_of(here, data), maps, drawing, atoms, k, step, layout_of(shape), prior_of(spec), key, out
    )
    return add_images(data.part, *out)


def images_of(state: LayerState, data: LayerData) -> Images:
    """Images in double precision, and their part of the state."""
    z, w, gamma_e = state.local
    return Images(plane_last(data.images, float), z, w, gamma_e[:, 0].astype(float), data.part.first)
