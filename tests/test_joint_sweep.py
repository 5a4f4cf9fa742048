"""The compiled sweep of the joint model: the plain twin's chain, the judge's log joint, the same bits on two threads.

And its one iterative part, the draw of an upper dictionary, against the covariance that it should have.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from agreement import FAILS, PASSES, arrays_of, assert_same_chain, assert_threads_change_no_bit, two_cores
from tiny import layer, proper, with_local, with_shared
from tiny_joint import JOINTS, draw_joint, draw_joint_from, p_values_of_draws, refinement, top

from gdd.base.axes import IMAGE
from gdd.model.joint import joint_log_joint, joint_log_likelihood, joint_residual
from gdd.model.spec import ModelSpec
from gdd.model.state import EMPTY
from gdd.reference.joint_conditionals import dictionary_given_rest
from gdd.reference.joint_sweep import plain_joint_sweep, plain_local_pass
from gdd.reference.random import REFINE, Key
from gdd.sampler import joint_dictionary
from gdd.sampler.arrays import allocate_buffers, plane_last
from gdd.sampler.joint_sweep import joint_sweep, local_pass
from gdd.sampler.sums import BATCH

SWEEPS = 4
SOLVED = 1e-13  # tolerance of the solver at which its draw is the plain twin's to rounding

#: one model is left to the slow run, since its atoms' width is compiled for
CASES = [pytest.param(n, marks=pytest.mark.slow) if "wide" in n else n for n in JOINTS]


def key(number):
    return Key(11, REFINE, 0, number)


@pytest.mark.parametrize("name", CASES)
def test_same_chain_as_the_plain_sweep(name, monkeypatch):
    monkeypatch.setattr(joint_dictionary, "TOLERANCE", SOLVED)
    fast, data, model, spec = draw_joint(name)
    plain = fast
    for number in range(SWEEPS):
        fast, _ = joint_sweep(fast, data, model, spec, key(number))
        plain = plain_joint_sweep(plain, data, model, spec, key(number))
        assert_same_chain(fast, plain, 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_local_pass_is_the_sweeps_first_part(name):
    state, data, model, spec = draw_joint(name)
    local, info = local_pass(state, data, model, spec, key(0))
    plain = plain_local_pass(state, data, model, spec, key(0))
    assert_same_chain(plain._replace(local=local), plain, 1e-8)
    assert info.log_joint == pytest.approx(joint_log_joint(plain, data, model, spec), rel=1e-9)
    pixels = data.images.size if data.mask is None else data.mask.sum()
    energy = (joint_residual(plain, data, model) ** 2).sum()
    assert info.residual == pytest.approx(np.sqrt(energy / pixels), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_running_log_joint_is_the_judges(name):
    """At the default tolerance of the solver; what it leaves unsolved must not get into the sums."""
    state, data, model, spec = draw_joint(name)
    for number in range(SWEEPS):
        state, info = joint_sweep(state, data, model, spec, key(number))
        assert info.log_joint == pytest.approx(joint_log_joint(state, data, model, spec), rel=1e-9)
        assert info.log_likelihood == pytest.approx(joint_log_likelihood(state, data, model).sum(), rel=1e-9)
        assert info.active.sum() == (state.local.z != EMPTY).sum()
        assert info.visited.sum(axis=1).tolist() == [z.size for z in state.local.positions]
        assert (info.moved <= info.visited).all()


@pytest.mark.parametrize("name", ["two layers, empty blocks", "three layers, empty blocks, masked", "signal"])
def test_nothing_given_is_changed_and_missing_pixels_are_not_read(name):
    state, data, model, spec = draw_joint(name)
    before, images = deepcopy(arrays_of(state)), data.images.copy()
    new, _ = joint_sweep(state, data, model, spec, key(0))
    np.testing.assert_equal(arrays_of(state), before)
    np.testing.assert_array_equal(data.images, images)
    if data.mask is not None:
        hidden = data._replace(images=np.where(data.mask, data.images, np.nan))
        assert_same_chain(joint_sweep(state, hidden, model, spec, key(0))[0], new, 0.0)


def test_dictionaries_take_turns():
    """Each is drawn once in as many sweeps as the refinement says, no two of three layers in the same one."""
    state, data, model, spec = draw_joint("three layers")
    spec = replace(spec, dictionary_every=3)
    drawn = []
    for number in range(6):
        new, info = joint_sweep(state, data, model, spec, key(number))
        pairs = zip(new.shared.dictionaries, state.shared.dictionaries, strict=True)
        drawn.append([layer for layer, (one, other) in enumerate(pairs) if not np.array_equal(one, other)])
        assert (info.steps > 0).tolist() == [layer in drawn[-1] and layer > 0 for layer in range(3)]
    assert drawn == [[0], [2], [1]] * 2


def test_fixed_precisions_stay():
    """Held precisions of noise, dictionaries and weights."""
    state, data, model, spec = draw_joint("two layers, fixed noise")
    held = [replace(each, gamma_d=proper(fixed=1.5), gamma_w=proper(fixed=2.5)) for each in model.layers]
    state = with_shared(state, gamma_d=(np.full((1, 1), 1.5),) * 2, gamma_w=np.full(1, 2.5))
    new, _ = joint_sweep(state, data, replace(model, layers=tuple(held)), spec, key(0))
    assert (new.local.gamma_e == 2.0).all() and new.shared.gamma_w == 2.5
    assert all((each == 1.5).all() for each in new.shared.gamma_d)


def test_buffers_of_a_chain_change_no_bit():
    """Two sweeps through the same buffers; the first one's state stays as it was."""
    state, data, model, spec = draw_joint("three layers, empty blocks, masked")
    buffers = allocate_buffers(data, model)
    one, _ = joint_sweep(state, data, model, spec, key(0), buffers)
    before = deepcopy(arrays_of(one))
    two, _ = joint_sweep(one, data, model, spec, key(1), buffers)
    np.testing.assert_equal(arrays_of(one), before)
    again, _ = joint_sweep(state, data, model, spec, key(0))
    np.testing.assert_equal(arrays_of(joint_sweep(again, data, model, spec, key(1))[0]), arrays_of(two))


@two_cores
def test_threads_change_no_bit():
    """More than a batch of images; one thread and two."""
    small = ModelSpec((layer(2, (2, 2), (2, 2)), top(2, (1, 2))), (4, 5))
    state, data, model, spec = draw_joint_from(small, refinement(IMAGE), BATCH + 70, 5)

    def run():
        chain = state
        for number in range(2):
            chain, info = joint_sweep(chain, data, model, spec, key(number))
        return chain, info

    end, info = assert_threads_change_no_bit(run)
    assert info.log_joint == pytest.approx(joint_log_joint(end, data, model, spec), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two layers", "two layers, planes, masked"])
def test_single_precision_is_close(name, monkeypatch):
    """One sweep from the same state. Float32 rounding (6e-8), summed over at most a thousand terms: 1e-4.

    A block whose uniform number falls within rounding of a boundary would differ; at these sizes none does.
    """
    monkeypatch.setattr(joint_dictionary, "TOLERANCE", 1e-6)
    state, data, model, spec = draw_joint(name)
    double, info = joint_sweep(state, data, model, spec, key(0))
    single = with_local(state, w=state.local.w.astype(np.float32))
    rough, found = joint_sweep(single, data._replace(images=data.images.astype(np.float32)), model, spec, key(0))
    assert rough.local.w.dtype == np.float32
    assert_same_chain(rough, double, 2e-3)
    assert found.log_likelihood == pytest.approx(info.log_likelihood, rel=1e-3)


# ---- The solver's draw: its mean and covariance against P^-1 b and P^-1, at the default tolerance.
def solver_draws(name, number, dtype=float):
    """Draws of the top dictionary given all else, each from the same state, and the exact conditional."""
    state, data, model, spec = draw_joint(name)
    data = data._replace(images=data.images.astype(dtype))
    layer, out = len(model.layers) - 1, []
    buffers = allocate_buffers(data, model).load(state)
    residual = plane_last(joint_residual(state, data, model), dtype)
    for n in range(number):
        buffers.images.residuals[:] = residual
        named = (3, REFINE, layer + 1, n)
        dictionary, _, _ = joint_dictionary.draw_upper_dictionary(
            buffers, layer, state.shared.dictionaries[layer], state.shared.gamma_d[layer], named
        )
        out.append(dictionary.ravel())
    return np.array(out), dictionary_given_rest(state, data, model, layer)


@pytest.mark.parametrize("name", ["two layers", "three layers, empty blocks, masked"])
def test_solver_draws_have_mean_and_covariance(name, monkeypatch):
    """And would not, were the solver cut off after two steps."""
    assert min(p_values_of_draws(*solver_draws(name, 1000))) > PASSES
    monkeypatch.setattr(joint_dictionary, "MAX_STEPS", 2)
    assert p_values_of_draws(*solver_draws(name, 1000))[1] < FAILS
