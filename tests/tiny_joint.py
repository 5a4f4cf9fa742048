"""Small joint models for the tests: two or three layers, ragged blocks, empty blocks, planes, masks, signals."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats
from tiny import layer, proper

from gdd.base.axes import IMAGE, PLANE
from gdd.model.joint import draw_joint_data, draw_joint_state
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointState, LayerData


class TinyJoint(NamedTuple):
    """One small joint model with data drawn from it."""

    state: JointState
    data: LayerData
    model: ModelSpec
    refinement: RefinementSpec


def top(atoms=3, atom_size=(2, 2), **more):
    return layer(atoms, atom_size, None, **more)


def refinement(*axes, fixed=None, **more):
    return RefinementSpec(proper(*axes, fixed=fixed), **more)


#: 5x6 maps under 2x2 blocks, ragged at the bottom
TWO = ModelSpec((layer(2, (3, 3), (2, 2)), top()), (7, 8))
#: 7x8 maps under 2x3 blocks, ragged on both sides, then 3x2 maps under 2x2 blocks
THREE = ModelSpec((layer(2, (2, 2), (2, 3)), layer(3, (2, 2), (2, 2)), top(2, (1, 1))), (8, 9))
#: one row: 17 positions under blocks of 3, then 5 positions under blocks of 3
SIGNAL = ModelSpec((layer(2, (1, 4), (1, 3)), layer(2, (1, 2), (1, 3)), top(2, (1, 2))), (1, 20))

#: precisions of atoms and weights held: maps of 5x5 under 2x2 blocks, 3x3 of them; then maps of 2x2
HELD = ModelSpec((
    replace(layer(2), gamma_d=proper(fixed=1.0), gamma_w=proper(fixed=1.0)),
    replace(top(), gamma_d=proper(fixed=1.0), gamma_w=proper(fixed=0.5)),
), (7, 7))

#: name -> (model, refinement, masked). Kernels are compiled for every number of layers, half a minute each
JOINTS = {
    "two layers": (TWO, refinement(IMAGE), False),
    "two layers, fixed noise": (TWO, refinement(fixed=2.0), False),
    "two layers, empty blocks": (TWO, refinement(IMAGE, empty_blocks=True), False),
    "two layers, planes, masked": (
        ModelSpec((layer(2, (3, 2), (2, 2)), top(2, dictionary=(PLANE,))), (7, 7), 2), refinement(), True,
    ),
    "two layers, wide atoms": (ModelSpec((layer(2, (3, 6), (2, 2)), top()), (7, 10)), refinement(), False),
    "three layers": (THREE, refinement(), False),
    "three layers, empty blocks, masked": (THREE, refinement(IMAGE, empty_blocks=True), True),
    "signal": (SIGNAL, refinement(IMAGE), False),
    "two layers, dictionaries in turn": (TWO, refinement(dictionary_every=2), False),
}


def draw_joint_from(model, spec, images=3, seed=0, hidden=None):
    """Draw state and data of a joint model from its prior, in double precision; a share of the pixels may be hidden."""
    generator = np.random.default_rng(seed)
    state = draw_joint_state(images, model, spec, generator)
    mask = None if hidden is None else generator.random((images, model.planes, *model.image_size)) < 1 - hidden
    return TinyJoint(state, draw_joint_data(state, model, generator, mask), model, spec)


def draw_joint(name, images=3):
    """Draw from one of `JOINTS`."""
    model, spec, masked = JOINTS[name]
    seed = [0, 2 + list(JOINTS).index(name)]  # for which places of other tests were chosen
    return draw_joint_from(model, spec, images, seed, 0.3 if masked else None)


def p_values_of_draws(draws, choice):
    """P-values of the mean and of the covariance of draws, whitened by the exact ones.

    Whitened, each entry of the mean times sqrt(n) is standard normal; so are sqrt(n) times an off-diagonal entry of the
    second moments and sqrt(n / 2) times what a diagonal one has over 1. Sums of squares are chi-square.
    """
    white = (draws - choice.mean) @ np.linalg.cholesky(choice.precision)
    n, size = white.shape
    moments = white.T @ white / n
    mean = n * (white.mean(axis=0) ** 2).sum()
    spread = n * ((np.tril(moments, -1) ** 2).sum() + ((np.diag(moments) - 1) ** 2).sum() / 2)
    return stats.chi2(size).sf(mean), stats.chi2(size * (size + 1) / 2).sf(spread)
