"""The shift move: its ratio term by term against log_joint and plain conditionals, its invariance, wrong versions."""

import numba
import numpy as np
import pytest
from scipy import stats

from gdd.base.axes import IMAGE
from gdd.model.distributions import Gaussian
from gdd.model.layer import draw_data, draw_state, log_joint, residual
from gdd.model.spec import ChainSpec, LayerSpec, Precision, layer_shape
from gdd.model.state import EMPTY, LayerData, LayerState
from gdd.sampler import moves
from gdd.sampler.conditionals import block_in_layer
from gdd.sampler.pretrain import initial_state
from gdd.sampler.random import MOVE, PRETRAIN, Stream, shared_generator
from gdd.sampler.sweep import Key, sweep

PROPER = {"gamma_d": Precision(("atom", "plane"), 4.0, 8.0), "gamma_w": Precision((), 4.0, 2.0)}
BY_IMAGE, ONE = Precision((IMAGE,), 4.0, 0.5), Precision((), 4.0, 0.5)
CASES = {
    "pooled": (LayerSpec(3, (4, 3), (2, 2), gamma_e=BY_IMAGE, **PROPER), (8, 7), 1),
    "ragged, one precision": (LayerSpec(2, (3, 4), (3, 2), gamma_e=ONE, **PROPER), (9, 8), 1),
    "planes": (LayerSpec(2, (3, 3), (2, 3), gamma_e=BY_IMAGE, **PROPER), (7, 8), 3),
    "elements": (LayerSpec(3, (3, 3), None, gamma_e=BY_IMAGE, **PROPER), (5, 6), 2),
}
KEY = Key(11, PRETRAIN, 0, 4)


@pytest.fixture(params=CASES, ids=str)
def case(request):
    """A layer drawn from its prior: (state, data, spec, shape)."""
    spec, size, planes = CASES[request.param]
    return drawn(spec, layer_shape(spec, size, planes), 5, np.random.default_rng(7))


def drawn(spec, shape, images, generator):
    state = draw_state(images, spec, shape, generator)
    return state, draw_data(state, shape, generator), spec, shape


def moved_positions(state, shape, k, step):
    """State whose map k is moved by ``step``: dropped where it leaves the map, the later of two in one block stays."""
    (p, q), z, w = shape.block, state.local.z.copy(), state.local.w.copy()
    z[:, k], w[:, k] = EMPTY, 0.0
    for n, i, j in np.argwhere(state.local.z[:, k] != EMPTY):
        m = state.local.z[n, k, i, j]
        row, col = i * p + m // q + step[0], j * q + m % q + step[1]
        if 0 <= row < shape.map_size[0] and 0 <= col < shape.map_size[1]:
            z[n, k, row // p, col // q] = row % p * q + col % q
            w[n, k, row // p, col // q] = state.local.w[n, k, i, j]
    return state._replace(local=state.local._replace(z=z, w=w))


def plain_pass(begin, target, data, spec, shape, k):
    """Log density of map k of ``target``, blocks visited in turn from ``begin``, by the plain conditionals."""
    z, w, total = begin.local.z.copy(), begin.local.w.copy(), 0.0
    for n, i, j in np.ndindex(len(z), *shape.grid):
        here = begin._replace(local=begin.local._replace(z=z, w=w))
        choice = block_in_layer(here, data, spec, shape, (n, k, i, j))
        new = target.local.z[n, k, i, j], target.local.w[n, k, i, j]
        total += choice.logpdf(*new)
        z[n, k, i, j], w[n, k, i, j] = new
    return total


def plain_strip(state, data, shape, k, step):
    """Gaussian of the entering strip, one per plane, from a design matrix written out in full."""
    (h, w), (height, width) = shape.atom_size, shape.input_size
    inside = {(a, b) for a in range(h) for b in range(w)}
    moved = [(a + step[0], b + step[1]) for a in range(h) for b in range(w)]
    strip = [place for place in moved if place not in inside]
    atoms = state.shared.dictionary.copy()
    for a, b in inside - set(moved):
        atoms[k, :, a, b] = 0.0
    left = residual(state._replace(shared=state.shared._replace(dictionary=atoms)), data, shape)
    gamma_e = np.broadcast_to(state.local.gamma_e, (len(left), 1))[:, 0]
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k]
    gram, linear = np.zeros((len(strip),) * 2), np.zeros((shape.planes, len(strip)))
    for n in range(len(left)):
        design = np.zeros((height, width, len(strip)))
        for i, j in np.argwhere(state.local.z[n, k] != EMPTY):
            m = state.local.z[n, k, i, j]
            for t, (a, b) in enumerate(strip):
                row, col = i * shape.block[0] + m // shape.block[1] + a, j * shape.block[1] + m % shape.block[1] + b
                if 0 <= row < height and 0 <= col < width:
                    design[row, col, t] += state.local.w[n, k, i, j]
        gram += gamma_e[n] * np.einsum("rct,rcs->ts", design, design)
        linear += gamma_e[n] * np.einsum("rct,prc->pt", design, left[n])
    return [Gaussian(gram + g * np.eye(len(strip)), b) for g, b in zip(gamma_d, linear, strict=True)]


@pytest.mark.parametrize("step", moves.STEPS)
def test_every_term_of_the_ratio(case, step):
    state, data, spec, shape = case
    k, back = 1, (-step[0], -step[1])
    move = moves.propose_shift(state, data, spec, shape, k, step, KEY, np.random.default_rng(1))
    there = move.state
    assert (there.local.z[:, k] != EMPTY).any() and not np.array_equal(there.local.w, state.local.w)
    joint = log_joint(there, data, spec, shape) - log_joint(state, data, spec, shape)
    np.testing.assert_allclose(move.joint, joint, rtol=1e-9, atol=1e-8)
    for a, b, forward, name in ((state, there, step, "forward"), (there, state, back, "back")):
        new_atoms = moved_positions(a, shape, k, forward)._replace(shared=b.shared)
        passed = plain_pass(new_atoms, b, data, spec, shape, k)
        np.testing.assert_allclose(getattr(move, f"positions_{name}"), passed, rtol=1e-9, atol=1e-8)
        strip = moves.outer_strip(b.shared.dictionary[k], (-forward[0], -forward[1]))
        density = sum(g.logpdf(s) for g, s in zip(plain_strip(a, data, shape, k, forward), strip, strict=True))
        np.testing.assert_allclose(getattr(move, f"strip_{name}"), density, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("step", moves.STEPS)
def test_the_atom_moves_by_one_pixel_and_nothing_else_changes(case, step):
    state, data, spec, shape = case
    there = moves.propose_shift(state, data, spec, shape, 0, step, KEY, np.random.default_rng(1)).state
    old, new = state.shared.dictionary[0], there.shared.dictionary[0]
    h, w = shape.atom_size
    for a, b in np.ndindex(h, w):
        if 0 <= a + step[0] < h and 0 <= b + step[1] < w:
            np.testing.assert_array_equal(new[:, a, b], old[:, a + step[0], b + step[1]])
        else:
            assert not np.isin(new[:, a, b], old).any()
    np.testing.assert_array_equal(there.shared.dictionary[1:], state.shared.dictionary[1:])
    np.testing.assert_array_equal(there.local.z[:, 1:], state.local.z[:, 1:])
    np.testing.assert_array_equal(there.local.gamma_e, state.local.gamma_e)
    assert ((there.local.z == EMPTY) == (there.local.w == 0)).all()


def test_positions_are_drawn_from_the_scored_conditionals(case):
    """The pass draws, from the stream of its image, what inversion of the plain conditionals draws."""
    state, data, spec, shape = case
    there = moves.propose_shift(state, data, spec, shape, 0, (0, 1), KEY, np.random.default_rng(1)).state
    at = moved_positions(state, shape, 0, (0, 1))._replace(shared=there.shared)
    n = 2
    stream = Stream(KEY.seed, MOVE, KEY.layer, KEY.sweep, n)
    for i, j in np.ndindex(*shape.grid):
        z, w = block_in_layer(at, data, spec, shape, (n, 0, i, j)).sample(stream)
        assert z == there.local.z[n, 0, i, j]
        np.testing.assert_allclose(w, there.local.w[n, 0, i, j], rtol=1e-7)
        at.local.z[n, 0, i, j], at.local.w[n, 0, i, j] = there.local.z[n, 0, i, j], there.local.w[n, 0, i, j]


SMALL = LayerSpec(2, (3, 3), (2, 2), gamma_e=Precision((IMAGE,), 20.0, 20.0), **PROPER)
SMALL_SHAPE = layer_shape(SMALL, (6, 6), 1)


def summaries(state, data):
    """What is compared before and after: tilt of the atoms, use, weight, fit, and the first rows of map and atom."""
    d, z = state.shared.dictionary, state.local.z
    active = z != EMPTY
    off = residual(state, data, SMALL_SHAPE)
    return np.array([
        (d[:, :, 0] ** 2).sum() - (d[:, :, -1] ** 2).sum(), (d[..., 0] ** 2).sum() - (d[..., -1] ** 2).sum(),
        (d**2).sum(), active.sum(), (state.local.w**2).sum(), active[:, :, 0].sum() - active[:, :, -1].sum(),
        ((z == 0) | (z == 1)).sum() - ((z == 2) | (z == 3)).sum(), (off**2).sum(), (d[:, 0, 1, 1] ** 2).sum(),
    ])


def after_minus_before(step, repeats, rounds):
    """p-values of the mean change of every summary, data fixed, states started in the exact joint; share of moves."""
    change, moved = [], 0
    for repeat in range(repeats):
        state, data, spec, shape = drawn(SMALL, SMALL_SHAPE, 3, np.random.default_rng([5, repeat]))
        before = summaries(state, data)
        for number in range(rounds):
            state, accepted = step(state, data, spec, shape, Key(repeat, PRETRAIN, 0, number))
            moved += accepted
        change.append(summaries(state, data) - before)
    return stats.ttest_1samp(change, 0.0).pvalue, moved / (repeats * rounds)


def swept(state, data, spec, shape, key):
    state, accepted = moves.shift_atom(state, data, spec, shape, key)
    return sweep(state, data, spec, shape, key, True)[0], accepted


@pytest.mark.parametrize("step", [moves.shift_atom, swept], ids=["move alone", "whole sweep"])
def test_exact_start(step):
    p, share = after_minus_before(step, 500, 4)
    assert share > 0.02, "a move that is never made proves nothing"
    assert p.min() > 1e-4, p


WRONG = ("strip_back", "positions_back", "joint")


@pytest.mark.parametrize("left_out", WRONG)
def test_a_ratio_with_a_term_left_out_is_rejected(left_out, monkeypatch):
    right = moves.propose_shift
    monkeypatch.setattr(moves, "propose_shift", lambda *a: right(*a)._replace(**{left_out: 0.0}))
    p, _ = after_minus_before(moves.shift_atom, 500, 4)
    assert p.min() < 1e-4, p


def test_the_same_for_any_number_of_threads():
    spec, size, planes = CASES["pooled"]
    state, data, spec, shape = drawn(spec, layer_shape(spec, size, planes), 200, np.random.default_rng(2))
    found, before = [], numba.get_num_threads()
    for threads in sorted({1, before}):
        numba.set_num_threads(threads)
        found.append(moves.propose_shift(state, data, spec, shape, 0, (1, 0), KEY, np.random.default_rng(1)))
    numba.set_num_threads(before)
    assert found[0].log_ratio == found[-1].log_ratio
    np.testing.assert_array_equal(found[0].state.local.w, found[-1].state.local.w)


def test_an_atom_learned_one_pixel_off_finds_its_place():
    """Data of one atom; the chain starts at it cut off by one column. With the move it comes back, without not."""
    generator = np.random.default_rng(8)
    spec = LayerSpec(1, (4, 4), (3, 3), gamma_e=Precision(fixed=100.0), gamma_d=Precision(fixed=4.0),
                     gamma_w=Precision(fixed=1.0))
    shape = layer_shape(spec, (16, 16), 1)
    state = draw_state(40, spec, shape, generator)
    state.local.z[generator.random(state.local.z.shape) < 0.7] = EMPTY
    state.local.w[state.local.z == EMPTY] = 0.0
    data = draw_data(state, shape, generator)
    off = moves.shifted_dictionary(state, 0, (0, 1), np.zeros((1, 4)))
    for with_move in (False, True):
        here = moved_positions(state, shape, 0, (0, 1))._replace(shared=state.shared._replace(dictionary=off))
        for number in range(40):
            key = Key(1, PRETRAIN, 0, number)
            if with_move:
                here, _ = moves.shift_atom(here, data, spec, shape, key)
            here, _ = sweep(here, data, spec, shape, key, False)
        likeness = np.corrcoef(here.shared.dictionary.ravel(), state.shared.dictionary.ravel())[0, 1]
        assert (abs(likeness) > 0.95) == with_move


def test_what_is_not_covered_comes_back_unchanged():
    state, data, _, shape = drawn(SMALL, SMALL_SHAPE, 2, np.random.default_rng(1))
    masked = LayerData(data.images, np.ones(data.images.shape, bool))
    assert moves.shift_atom(state, masked, SMALL, shape, KEY) == (state, False)


def test_single_precision_and_an_empty_start():
    _, data, spec, shape = drawn(SMALL, SMALL_SHAPE, 4, np.random.default_rng(3))
    data = LayerData(data.images.astype(np.float32))
    state = initial_state(data, spec, shape, ChainSpec(1, 1, start="random"), 0)
    move = moves.propose_shift(state, data, spec, shape, 0, (1, 0), KEY, shared_generator(1, MOVE, 0, 0))
    assert isinstance(move.state, LayerState) and np.isfinite(move.log_ratio)
    assert move.state.local.w.dtype == np.float32
    joint = log_joint(move.state, data, spec, shape) - log_joint(state, data, spec, shape)
    np.testing.assert_allclose(move.joint, joint, rtol=1e-5)
