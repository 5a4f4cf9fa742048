"""The paper's misprinted conditionals, as samplers: negative controls for the tests, evidence for the errata chapter.

Each is a `Pieces` for `gdd.reference.layer_sweep.plain_sweep`: one piece is the paper's, all others are right. Where
the print is no sampler at all (a negative probability, an elementwise precision where one number is meant), the nearest
reading that can be run is taken and stated. `MENDED` is P2's code with its misprint mended; it must pass.

*Source:* Pu, Yuan & Carin 2015, supplement, "Conditional Posteriori Distributions for Gibbs Sampling".
*Checked:* tests/test_joint.py and tests/test_calibration.py (each is rejected).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from gdd.model.distributions import Gamma, Gaussian
from gdd.model.layer import block_groups, residual
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import EMPTY, LayerData, LayerState, with_block
from gdd.reference.conditionals import atom_given_rest, block_in_layer, log_block_prior, sum_shared, theta_given_z
from gdd.reference.layer_sweep import Pieces
from gdd.reference.random import Stream

Weight = Callable[[np.ndarray], np.ndarray]


def printed_weight(y: np.ndarray) -> np.ndarray:
    """P2: Y itself, where it is positive; a probability cannot be negative."""
    return np.maximum(y, 0.0)


def mended_weight(y: np.ndarray) -> np.ndarray:
    """exp(-Y / 2), the likelihood ratio of a weight against none."""
    return np.exp(-0.5 * y)


def draw_map_weighed(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, stream: Stream,
    weight: Weight = printed_weight,
) -> LayerState:
    r"""Draw every block of a map, its position weighted by a function of Y at a weight already drawn (P2).

    :math:`Y_m = \gamma_e (\lVert d_m \rVert^2 w_m^2 - 2 w_m \langle r, d_m \rangle)`, w_m the present weight at the
    active position and a draw from the prior at all others; the paper prints :math:`\theta_m Y_m`. Then the weight of
    the chosen position is drawn from its conditional, which is printed correctly.
    """
    gamma_w = float(state.shared.gamma_w[0])
    for i, j in np.ndindex(*shape.grid):
        where = (0, k, i, j)
        choice = block_in_layer(state, data, spec, shape, where)
        prior = np.exp(log_block_prior(with_block(state, where, EMPTY, 0.0).local.z, spec, shape, where))
        w = np.array([stream.normal() for _ in choice.mean]) / np.sqrt(gamma_w)
        if (old := int(state.local.z[where])) != EMPTY:
            w[old] = state.local.w[where]
        y = (choice.precision - gamma_w) * w**2 - 2 * choice.precision * choice.mean * w
        mass = np.append(prior[:-1] * weight(y), prior[-1])  # empty counts its prior
        position, value = int(np.searchsorted(mass.cumsum(), stream.uniform() * mass.sum(), side="right")), 0.0
        if position >= len(choice.mean):
            position = EMPTY
        else:
            value = choice.mean[position] + stream.normal() / np.sqrt(choice.precision[position])
        state = with_block(state, where, position, value)
    return state


def draw_map_at_once(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, k: int, stream: Stream
) -> LayerState:
    """Draw every block from the residual without the whole map, theta first, as if atoms could not overlap (P3)."""
    log_theta = draw_log_theta(state.local.z, spec, shape, k, stream)
    new = emptied = with_block(state, np.s_[:, k], EMPTY, 0.0)
    for i, j in np.ndindex(*shape.grid):
        where = (0, k, i, j)
        choice = block_in_layer(emptied, data, spec, shape, where)
        there = np.isfinite(log_theta[i, j])
        outcomes = np.full(len(there), -np.inf)
        gain = choice.log_weight[there] - log_block_prior(emptied.local.z, spec, shape, where)[there]
        outcomes[there] = gain + log_theta[i, j, there]
        new = with_block(new, where, *choice._replace(log_weight=outcomes).sample(stream))
    return new


def draw_log_theta(z: np.ndarray, spec: LayerSpec, shape: LayerShape, k: int, stream: Stream) -> np.ndarray:
    """Log theta of each block of one map given its present positions: (block_row, block_col, B + 1)."""
    if spec.elementwise:
        return np.broadcast_to(np.log(spec.beta), (*shape.grid, 2))
    size = shape.block[0] * shape.block[1]
    out = np.full((*shape.grid, size + 1), -np.inf)
    for group, theta in zip(block_groups(shape), theta_given_z(z[:, k : k + 1], shape), strict=True):
        seed = int(stream.uniform() * 2**52)
        log_theta = np.log(theta.sample(np.random.Generator(np.random.Philox(key=[seed, 1])))[0, 0])
        for i, j in np.argwhere(group[0]):
            out[i, j, np.append(group[1], size)] = log_theta
    return out


def atom_diagonal(state: LayerState, data: LayerData, shape: LayerShape, k: int) -> list[Gaussian]:
    """P4: one variance for every pixel of an atom, its overlaps with itself neglected in precision and mean."""
    return [
        Gaussian(np.diag(np.diag(part.precision)), part.linear) for part in atom_given_rest(state, data, shape, k)
    ]


def gamma_d_printed(state: LayerState, spec: LayerSpec, shape: LayerShape) -> Gamma:
    """P5: shape a + 1/2 whatever the number of pixels; the elementwise square is read as its sum."""
    norms = sum_shared((state.shared.dictionary**2).sum(axis=(2, 3)), state.shared.gamma_d.shape)
    return Gamma(np.full(norms.shape, spec.gamma_d.shape + 0.5), spec.gamma_d.rate + norms / 2)


def gamma_e_printed(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, whole_shape: bool = False
) -> Gamma:
    """P6: shape a + 1/2, and the squared residual without its 1/2; the elementwise square is read as its sum.

    With ``whole_shape`` the shape is right, a + pixels/2, and only the missing 1/2 is left of the misprint.
    """
    seen = np.ones(data.images.shape) if data.mask is None else data.mask
    energy = sum_shared((residual(state, data, shape) ** 2).sum(axis=(1, 2, 3)), state.local.gamma_e.shape)
    pixels = sum_shared(seen.sum(axis=(1, 2, 3)), state.local.gamma_e.shape)
    half = pixels / 2 if whole_shape else np.full(energy.shape, 0.5)
    return Gamma(spec.gamma_e.shape + half, spec.gamma_e.rate + energy)


#: each misprint in an otherwise right sampler
MISPRINTS = {
    "P2": Pieces(map=draw_map_weighed),
    "P3": Pieces(map=draw_map_at_once),
    "P4": Pieces(atom=atom_diagonal),
    "P5": Pieces(gamma_d=gamma_d_printed),
    "P6": Pieces(gamma_e=gamma_e_printed),
    "P6, rate only": Pieces(gamma_e=partial(gamma_e_printed, whole_shape=True)),
}
#: the same route with the misprint mended, which is correct
MENDED = {"P2": Pieces(map=partial(draw_map_weighed, weight=mended_weight))}
