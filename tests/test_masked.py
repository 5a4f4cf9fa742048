"""The sweep with missing pixels: against the plain conditionals and the whole sweep."""

import numpy as np
import pytest
from agreement import arrays_of, assert_same_chain
from tiny import draw_from, with_shared

from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.base.compiling import on_threads
from gdd.model import layer as model
from gdd.model.spec import LayerSpec, Precision, layer_shape
from gdd.model.state import EMPTY, LayerData, Local, of_images, positions_exist
from gdd.reference import conditionals
from gdd.reference.layer_sweep import CORRECT, draw_image
from gdd.reference.random import Key, Stream
from gdd.sampler.arrays import plane_last
from gdd.sampler.dictionary import gram_of
from gdd.sampler.kernels.dictionary import AtomSums, MapArrays, pass_atom
from gdd.sampler.sweep import image_pass, layer_constants, sweep
from gdd_book.checks.calibration import Case, compiled_step, exact_start, holm

BY_ATOM, BY_IMAGE = Precision((ATOM,), 4.0, 3.0), Precision((IMAGE,), 5.0, 2.0)
PRIORS = {"gamma_e": BY_IMAGE, "gamma_d": BY_ATOM, "gamma_w": Precision((), 6.0, 5.0)}
#: layers on which more than one thing can go wrong: (spec, input size, planes). Wide atoms of one
#: plane have compiled code of their own, and here a gamma_e shared by all images
LAYERS = {
    "one plane": (LayerSpec(3, (3, 4), (3, 3), **PRIORS), (11, 12), 1),
    "planes": (LayerSpec(2, (3, 2), (2, 2), **(PRIORS | {"gamma_d": Precision((ATOM, PLANE), 4.0, 3.0)})), (9, 9), 3),
    "ragged": (LayerSpec(3, (4, 4), (3, 2), **PRIORS), (11, 14), 1),
    "top": (LayerSpec(3, (4, 4), **PRIORS), (7, 8), 2),
    "wide": (LayerSpec(2, (3, 6), (2, 2), **(PRIORS | {"gamma_e": Precision((), 5.0, 2.0)})), (8, 15), 1),
}


def run(state, data, spec, shape, sweeps):
    infos = []
    for number in range(sweeps):
        state, info = sweep(state, data, spec, shape, Key(5, 0, 0, number))
        infos.append(info)
    return state, infos


def test_images_of_many_columns():
    """Compiled code that took as many arguments as a map has columns failed above a hundred."""
    state, data, spec, shape = draw_from(LAYERS["wide"][0], (6, 130))
    whole, _ = run(state, data, spec, shape, 1)
    masked, _ = run(state, data._replace(mask=np.ones(data.images.shape, bool)), spec, shape, 1)
    assert_same_chain(whole, masked, 1e-9)


@pytest.mark.parametrize(("active", "precise"), [(0.05, 1.0), (0.15, 20.0)])
@pytest.mark.parametrize("name", ["ragged", "wide"])
def test_blocks_that_a_bound_passes_over_would_have_stayed_empty(name, active, precise):
    """Few blocks are active, so that most are passed over; an atom may lie wholly under a hidden corner."""
    state, data, spec, shape = draw_from(*LAYERS[name], hidden=0.3, images=60)
    generator, (z, w, gamma_e), (rows, cols) = np.random.default_rng(1), state.local, shape.input_size
    kept = generator.random(z.shape) < active
    state = state._replace(local=Local(np.where(kept, z, EMPTY), np.where(kept, w, 0.0), precise * gamma_e))
    data.mask[:, :, : rows // 2, : cols // 2] = False
    data = model.draw_data(state, shape, generator, data.mask)
    local = image_pass(state, data, spec, shape, Key(5, 0, 0, 0)).local
    for n in range(len(z)):
        one = of_images(state, data, slice(n, n + 1))
        plain = draw_image(*one, spec, shape, Stream(5, 0, 0, 0, n), CORRECT).local
        np.testing.assert_array_equal(local.z[n], plain.z[0])
        np.testing.assert_allclose(local.w[n], plain.w[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("hidden", [0.3, None])
@pytest.mark.parametrize("name", ["one plane", "planes"])
def test_sums_equal_the_plain_statistics(name, hidden):
    """Each atom's, after a step of the one before."""
    state, data, spec, shape = draw_from(*LAYERS[name], images=4, hidden=hidden)
    planes = shape.planes
    constants, atoms = layer_constants(state.shared, spec, shape, np.dtype(float)), state.shared.dictionary.copy()
    masks = np.empty((0, 1)) if hidden is None else plane_last(data.mask, float)
    residuals, step = plane_last(model.residual(state, data, shape), float), np.zeros(atoms[0].size)
    maps = MapArrays(state.local.z, state.local.w, state.local.gamma_e, residuals, masks)
    reach = (2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    empty = AtomSums(np.zeros((1, *reach, 1 if hidden is None else step.size)), np.zeros((1, step.size)))
    for k in range(shape.atoms):
        sums = AtomSums(*map(np.zeros_like, empty))
        pass_atom(k, step, maps, constants.layer, constants.static, sums)
        gram, linear = gram_of(sums.lags[0], shape.atom_size), sums.linear[0].reshape(-1, planes).T
        now = with_shared(state, dictionary=atoms)
        plain, whole = conditionals.atom_statistics(now, data, shape, k)
        np.testing.assert_allclose(np.broadcast_to(gram, plain.shape), plain, rtol=1e-10, atol=1e-10)
        atom = atoms[k].reshape(planes, -1)
        np.testing.assert_allclose(linear + (gram @ atom[..., None])[..., 0], whole, rtol=1e-9, atol=1e-9)
        move = np.random.default_rng(k).standard_normal((1, *atoms[k].shape))
        atoms[k] += move[0]
        step = plane_last(move, float)[0]


def test_values_at_hidden_pixels_do_not_matter():
    state, data, spec, shape = draw_from(*LAYERS["one plane"], hidden=0.3)
    states = []
    for value in (0.0, 1e6, np.nan, np.inf):
        changed = data._replace(images=np.where(data.mask, data.images, value))
        after, infos = run(state, changed, spec, shape, 3)
        assert np.isfinite([info.log_joint for info in infos]).all()
        states.append(after)
    for other in states[1:]:
        np.testing.assert_equal(arrays_of(other), arrays_of(states[0]))
    seen = data._replace(images=data.images + (data.mask.cumsum() == 1).reshape(data.mask.shape))
    assert not np.array_equal(run(state, seen, spec, shape, 3)[0].local.w, states[0].local.w)


def hidden_as_zero(state, data, case, key):
    """A wrong sampler: hidden pixels count as observed zeros."""
    filled = LayerData(np.where(data.mask, data.images, 0.0), np.ones(data.mask.shape, bool))
    return compiled_step(state, filled, case, key)


@pytest.mark.parametrize(("step", "right"), [(compiled_step, True), (hidden_as_zero, False)])
def test_exact_start(step, right):
    noise = Precision((IMAGE,), 5.0, 2.0)
    spec = LayerSpec(2, (3, 3), (2, 2), gamma_e=noise, gamma_d=BY_ATOM, gamma_w=Precision((), 6.0, 5.0))
    with on_threads(1):  # two images are no work for two
        p_value = holm(exact_start(Case(spec, layer_shape(spec, (6, 7), 2), 2, 0.4), step, 200, 3)).min()
    assert p_value > 1e-3 if right else p_value < 1e-6


def test_without_data_the_positions_keep_their_prior():
    state, data, spec, shape = draw_from(*LAYERS["planes"], images=2000, hidden=1.0)
    after, infos = run(state, data, spec, shape, 2)
    assert infos[-1].log_likelihood == 0.0
    assert (after.local.z != state.local.z).any()
    empty = (after.local.z < 0).mean(axis=(2, 3)).ravel()  # (image * atom,): independent, each map has its own theta
    expected = (1 / (1 + positions_exist(shape).sum(axis=2))).mean()
    assert abs(empty.mean() - expected) < 4.5 * empty.std() / np.sqrt(empty.size)
