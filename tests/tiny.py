"""Small layers for the tests of the sampler: every sharing of precisions, ragged blocks, planes, masks, a top layer."""

import itertools
from typing import NamedTuple

import numpy as np

import gdd
from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.model.layer import draw_data, draw_state
from gdd.model.spec import LayerShape, LayerSpec, ModelSpec, Precision, layer_shape
from gdd.model.state import EMPTY, LayerData, LayerState, positions_exist

#: atoms of the sizes of MNIST's, whose kernels other tests have compiled; maps of 21 x 21 and 7 x 7, and 2 x 2
CHEAP = ModelSpec((LayerSpec(3, (8, 8), (3, 3)), LayerSpec(4, (6, 6))), (28, 28))
#: of `gdd.DeepDeconvolution`, where what is tested is the face and not what is learned
QUICK = {"pretrain": (3, 2), "infer": (3, 2), "atoms": (4, 6), "verbose": False}
#: of `gdd.OneStepFeatures`, likewise
ONE_STEP = {"atoms": 4, "sweeps": (3, 2), "whitening": False, "verbose": False}


def one_step(**options):
    """`gdd.OneStepFeatures` of `ONE_STEP`, with these parameters or fields of its settings."""
    return gdd.OneStepFeatures._preset(gdd.OneStepSettings(), ONE_STEP, options)


class Tiny(NamedTuple):
    """One small layer with data drawn from it."""

    state: LayerState
    data: LayerData
    spec: LayerSpec
    shape: LayerShape


def proper(*axes, fixed=None):
    """Gamma(4, 3): a prior that can be drawn from, unlike the flat default."""
    return Precision(axes, 4.0, 3.0, fixed)


def layer(atoms=2, atom_size=(3, 3), pool=(2, 2), noise=(IMAGE,), dictionary=(ATOM, PLANE)):
    return LayerSpec(atoms, atom_size, pool, proper(*noise), proper(*dictionary), proper())


#: name -> (spec, planes, input size, masked). Mostly 5x5 maps under 2x2 blocks, ragged on both sides. Kernels are
#: compiled anew for every size of atoms with six numbers or more a row: there is one, three rows of six
LAYERS = {
    "pooled, ragged": (layer(), 1, (7, 7), False),
    "whole blocks": (layer(atom_size=(2, 2)), 1, (5, 5), False),
    "block larger than map": (layer(pool=(4, 3), atom_size=(3, 3)), 1, (5, 4), False),
    "several planes": (layer(3, (3, 2), (3, 2)), 3, (6, 7), False),
    "planes, one gamma_d": (layer(3, (3, 2), (3, 2), dictionary=()), 3, (6, 7), False),
    "gamma_d by plane": (layer(2, (3, 2), dictionary=(PLANE,)), 2, (6, 5), False),
    "gamma_d by atom": (layer(2, dictionary=(ATOM,)), 2, (6, 5), False),
    "top": (layer(3, (3, 2), None), 1, (6, 5), False),
    "top, planes": (layer(4, (3, 2), None), 2, (6, 5), False),
    "top, large maps": (layer(3, (3, 3), None), 1, (7, 7), False),
    "gamma_e shared": (layer(noise=()), 1, (7, 7), False),
    "gamma_e fixed": (LayerSpec(2, (3, 3), (2, 2), proper(fixed=2.0), proper(), proper()), 1, (6, 6), False),
    "gamma_e fixed by image": (LayerSpec(2, (3, 3), (2, 2), proper(IMAGE, fixed=2.0), proper(), proper()), 1, (6, 6),
                               False),
    "atom larger than map": (layer(2, (5, 4), (2, 2)), 1, (7, 6), False),
    "masked, planes": (layer(2), 2, (6, 6), True),
    "masked": (layer(2), 1, (7, 7), True),
    "masked, planes, top": (layer(3, (3, 2), None, noise=()), 2, (6, 5), True),
    "top, atoms fill the input": (layer(4, (4, 4), None), 2, (6, 5), False),
    "top, filled, gamma_e shared": (layer(3, (4, 4), None, noise=()), 1, (6, 5), False),
}
#: layers whose images are whole
WHOLE = [name for name, (*_, masked) in LAYERS.items() if not masked]


def draw_from(spec, size, planes=1, images=3, seed=0, hidden=None):
    """Draw state and data of a layer from its prior, in double precision; a share of the pixels may be hidden."""
    shape, generator = layer_shape(spec, size, planes), np.random.default_rng(seed)
    state = draw_state(images, spec, shape, generator)
    mask = None if hidden is None else generator.random((images, planes, *size)) < 1 - hidden
    return Tiny(state, draw_data(state, shape, generator, mask), spec, shape)


def draw(name, images=3, seed=0):
    """Draw from one of `LAYERS`."""
    spec, planes, size, masked = LAYERS[name]
    return draw_from(spec, size, planes, images, [seed, list(LAYERS).index(name)], 0.3 if masked else None)


def every_z(shape, empty=True):
    """All positions of one image, each with the axes of a z: (outcome, 1, atom, block_row, block_col)."""
    have = positions_exist(shape)
    options = [
        [*[EMPTY] * empty, *np.flatnonzero(have[i, j])] for _ in range(shape.atoms) for i, j in np.ndindex(*shape.grid)
    ]
    return np.array(list(itertools.product(*options)), np.int16).reshape(-1, 1, shape.atoms, *shape.grid)


def corners(shape):
    """Block rows and columns of every shape that a block can have."""
    last = shape.grid[0] - 1, shape.grid[1] - 1
    return dict.fromkeys([(0, 0), last, (0, last[1]), (last[0], 0)])


def with_local(state, **parts):
    return state._replace(local=state.local._replace(**parts))


def with_shared(state, **parts):
    return state._replace(shared=state.shared._replace(**parts))
