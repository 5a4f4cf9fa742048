"""Every conditional of the joint model against its judge: log densities differ as the log joint does, to rounding.

No random error is involved, so the tolerance is rounding's: sums of a few hundred terms of size at most 1e4 in double
precision are good to 1e-9.
"""

import numpy as np
import pytest
from agreement import assert_all_have_ratios, assert_ratios
from tiny import corners, with_local, with_shared
from tiny_joint import JOINTS, draw_joint

from gdd.model import distributions
from gdd.model.joint import joint_log_joint, layer_values
from gdd.model.state import EMPTY, of_images, positions_exist, with_block
from gdd.reference import joint_conditionals
from gdd.reference.joint_sweep import with_dictionary

TOLERANCE = 1e-9
HELPERS = {
    "synthesise_down", "unit_images", "with_position", "positions_of_block",
    "dictionary_design", "layer_state", "active_coefficients", "weight_design",
}


def test_every_public_conditional_has_a_ratio_test():
    assert_all_have_ratios(joint_conditionals, RATIOS, HELPERS)


def ratio_position_given_rest(tiny, rng):
    """Every outcome of random blocks of every pooled layer, edges included."""
    state, data, model, spec = tiny
    for layer, shape in enumerate(model.shapes()[:-1]):
        have = positions_exist(shape)
        for i, j in corners(shape):
            where = (int(rng.integers(len(state.local.z))), int(rng.integers(shape.atoms)), i, j)
            choice = joint_conditionals.position_given_rest(state, data, model, spec, layer, where)
            for m in (*[EMPTY] * spec.empty_blocks, *np.flatnonzero(have[i, j])):
                other = joint_conditionals.with_position(state, layer, where, m)
                yield choice.logpdf(m), joint_log_joint(other, data, model, spec)
            yield None  # another block: another normalising constant


def ratio_coefficient_given_rest(tiny, rng):
    state, data, model, spec = tiny
    shape = model.shapes()[-1]
    for i, j in corners(shape):
        where = (int(rng.integers(len(state.local.z))), int(rng.integers(shape.atoms)), i, j)
        choice = joint_conditionals.coefficient_given_rest(state, data, model, where)
        for m, w in ((EMPTY, 0.0), (0, rng.standard_normal()), (0, rng.standard_normal())):
            other = with_block(state, where, m, w)
            yield choice.logpdf(m, w), joint_log_joint(other, data, model, spec)
        yield None


def ratio_weights_given_rest(tiny, rng):
    """All weights of one image, however many are on; others on than those drawn, too."""
    state, data, model, spec = tiny
    state, data = of_images(state, data, slice(1, 2))
    z = state.local.z.copy()
    z[0, 0] = 0
    for case in (with_local(state, z=z), with_local(state, z=np.zeros_like(z))):
        choice = joint_conditionals.weights_given_rest(case, data, model)
        for _ in range(3):
            weights = rng.standard_normal(len(choice.linear))
            w = np.zeros_like(case.local.w)
            w[case.local.z != EMPTY] = weights
            yield choice.logpdf(weights), joint_log_joint(with_local(case, w=w), data, model, spec)
        yield None


def ratio_dictionary_given_rest(tiny, rng):
    state, data, model, spec = tiny
    for layer, shape in enumerate(model.shapes()):
        choice = joint_conditionals.dictionary_given_rest(state, data, model, layer)
        for _ in range(3):
            dictionary = rng.standard_normal(shape.dictionary)
            other = with_dictionary(state, layer, dictionary)
            yield choice.logpdf(dictionary.ravel()), joint_log_joint(other, data, model, spec)
        yield None


def ratio_bottom_atom_given_rest(tiny, rng):
    state, data, model, spec = tiny
    for k in range(model.layers[0].atoms):
        choices = joint_conditionals.bottom_atom_given_rest(state, data, model, k)
        for _ in range(3):
            dictionary = state.shared.dictionaries[0].copy()
            dictionary[k] = rng.standard_normal(dictionary[k].shape)
            density = sum(c.logpdf(d.ravel()) for c, d in zip(choices, dictionary[k], strict=True))
            yield density, joint_log_joint(with_dictionary(state, 0, dictionary), data, model, spec)
        yield None


def ratio_gamma_d_given_rest(tiny, rng):
    state, data, model, spec = tiny
    for layer in range(len(model.layers)):
        choice = joint_conditionals.gamma_d_given_rest(state, model, layer)
        for _ in range(3):
            parts = list(state.shared.gamma_d)
            parts[layer] = rng.gamma(2.0, size=parts[layer].shape)
            other = with_shared(state, gamma_d=tuple(parts))
            yield choice.logpdf(parts[layer]).sum(), joint_log_joint(other, data, model, spec)
        yield None


def ratio_gamma_w_given_rest(tiny, rng):
    state, data, model, spec = tiny
    choice = joint_conditionals.gamma_w_given_rest(state, model)
    for _ in range(3):
        value = rng.gamma(2.0, size=state.shared.gamma_w.shape)
        yield choice.logpdf(value).sum(), joint_log_joint(with_shared(state, gamma_w=value), data, model, spec)


def ratio_gamma_e_given_rest(tiny, rng):
    state, data, model, spec = tiny
    choice = joint_conditionals.gamma_e_given_rest(state, data, model, spec)
    for _ in range(3):
        value = rng.uniform(0.1, 3.0, state.local.gamma_e.shape)
        yield choice.logpdf(value).sum(), joint_log_joint(with_local(state, gamma_e=value), data, model, spec)


RATIOS = [f for name, f in sorted(globals().items()) if name.startswith("ratio_")]


def applies(ratio, name):
    """Whether a model has this conditional."""
    return ratio is not ratio_gamma_e_given_rest or JOINTS[name][1].noise.fixed is None  # else never drawn


CASES = [pytest.param(f, n, id=f"{f.__name__[6:]}, {n}") for f in RATIOS for n in JOINTS if applies(f, n)]


@pytest.mark.parametrize(("ratio", "name"), CASES)
def test_ratio(ratio, name):
    assert_ratios(ratio(draw_joint(name), np.random.default_rng(7)), TOLERANCE)


@pytest.mark.parametrize("name", ["two layers, planes, masked", "three layers", "three layers, empty blocks, masked"])
def test_a_wrong_conditional_would_be_seen(name):
    """The same comparison rejects positions weighed without ||phi||^2, which differs from position to position."""
    state, data, model, spec = draw_joint(name)
    layer = len(model.layers) - 2
    value = np.abs(layer_values(state.local, state.shared.dictionaries, model.shapes())[layer + 1])
    value[state.local.positions[layer] == EMPTY] = 0.0
    where = tuple(int(n) for n in np.unravel_index(value.argmax(), value.shape))
    right = joint_conditionals.position_given_rest(state, data, model, spec, layer, where)
    one, alone = of_images(state, data, slice(where[0], where[0] + 1))
    shape = model.shapes()[layer]
    positions, places = joint_conditionals.positions_of_block(shape, *where[2:])
    images = value[where] * joint_conditionals.unit_images(one, alone, model, layer, where[1], places)
    log_weight = right.log_weight.copy()
    log_weight[positions] += 0.5 * one.local.gamma_e[0] * (images**2).sum(axis=(1, 2, 3))
    wrong = distributions.PositionChoice(log_weight)
    old = state.local.positions[layer][where]
    new = next(int(m) for m in positions if m != old)
    moved = joint_conditionals.with_position(state, layer, where, new)
    judged = joint_log_joint(moved, data, model, spec) - joint_log_joint(state, data, model, spec)
    for choice, agrees in ((right, True), (wrong, False)):
        assert (abs(choice.logpdf(new) - choice.logpdf(old) - judged) < TOLERANCE * max(1.0, abs(judged))) == agrees


def test_without_active_blocks_a_dictionary_has_its_prior():
    state, data, model, _ = draw_joint("two layers")
    empty = with_block(state, ..., EMPTY, 0.0)
    for layer, gamma_d in enumerate(state.shared.gamma_d):
        choice = joint_conditionals.dictionary_given_rest(empty, data, model, layer)
        prior = np.broadcast_to(gamma_d[:, :, None, None], model.shapes()[layer].dictionary).ravel()
        np.testing.assert_allclose(choice.precision, np.diag(prior))
        np.testing.assert_allclose(choice.mean, 0.0)
