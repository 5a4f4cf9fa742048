"""Every conditional against the judge: differences of its log density are differences of the log joint, to rounding.

No random error is involved, so the tolerance is rounding's: sums of a few hundred terms of size at most 1e4 in double
precision are good to 1e-9.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from agreement import assert_all_have_ratios, assert_ratios
from tiny import LAYERS, corners, draw, with_local, with_shared

from gdd.model import distributions
from gdd.model.layer import log_joint, log_positions_given
from gdd.model.state import EMPTY, positions_exist, with_block
from gdd.reference import conditionals

TOLERANCE = 1e-9
HELPERS = {"pixel_precision", "slab_log_odds", "log_block_prior", "atom_statistics", "design_of", "sum_shared"}


def test_every_public_conditional_has_a_ratio_test():
    assert_all_have_ratios(conditionals, RATIOS, HELPERS)


def ratio_block_in_layer(tiny, rng):
    """Every outcome of random blocks, edges included, with a random weight each."""
    state, data, spec, shape = tiny
    have = positions_exist(shape)
    for i, j in corners(shape):
        where = (int(rng.integers(len(state.local.z))), int(rng.integers(shape.atoms)), i, j)
        choice = conditionals.block_in_layer(state, data, spec, shape, where)
        for m in (EMPTY, *np.flatnonzero(have[i, j])):
            w = 0.0 if m == EMPTY else rng.standard_normal()
            yield choice.logpdf(m, w), log_joint(with_block(state, where, m, w), data, spec, shape)
        yield None  # another block: another normalising constant


def ratio_block_given_rest(tiny, rng):
    """Called by `block_in_layer`; here against one image drawn afresh, all positions of a single block."""
    state, data, spec, shape = tiny
    k, where = 0, (0, 0, 0, 0)
    emptied = with_block(state, where, EMPTY, 0.0)
    left = conditionals.residual(emptied, data, shape)[0]
    precision = conditionals.pixel_precision(state, data)[0]
    (h, w), q = shape.atom_size, shape.block[1]
    positions = np.flatnonzero(positions_exist(shape)[0, 0])
    cut = [np.s_[:, m // q : m // q + h, m % q : m % q + w] for m in positions]
    prior = conditionals.log_block_prior(emptied.local.z, spec, shape, where)[[*positions, -1]]
    windows, weights = np.stack([left[c] for c in cut]), np.stack([precision[c] for c in cut])
    choice = conditionals.block_given_rest(windows, weights, state.shared.dictionary[k], prior, state.shared.gamma_w[0])
    for t, m in enumerate(positions):
        for value in rng.standard_normal(2):
            yield choice.logpdf(t, value), log_joint(with_block(state, where, m, value), data, spec, shape)
    yield choice.logpdf(EMPTY, 0.0), log_joint(emptied, data, spec, shape)


def ratio_theta_given_z(tiny, rng):
    state, data, spec, shape = tiny
    choices = conditionals.theta_given_z(state.local.z, shape)
    for _ in range(3):
        theta = [rng.dirichlet(np.ones(c.alpha.shape[2]), c.alpha.shape[:2]) for c in choices]
        judged = log_joint(state, data, spec, shape, theta)
        yield sum(c.logpdf(t).sum() for c, t in zip(choices, theta, strict=True)), judged
        assert np.isfinite(log_positions_given(state.local.z, theta, shape))


def ratio_atom_given_rest(tiny, rng):
    state, data, spec, shape = tiny
    for k in range(shape.atoms):
        choices = conditionals.atom_given_rest(state, data, shape, k)
        for _ in range(3):
            dictionary = state.shared.dictionary.copy()
            dictionary[k] = rng.standard_normal(dictionary[k].shape)
            density = sum(c.logpdf(d.ravel()) for c, d in zip(choices, dictionary[k], strict=True))
            yield density, log_joint(with_shared(state, dictionary=dictionary), data, spec, shape)
        yield None


def ratio_gamma_d_given_rest(tiny, rng):
    state, data, spec, shape = tiny
    choice = conditionals.gamma_d_given_rest(state, spec, shape)
    for _ in range(3):
        value = rng.gamma(2.0, size=state.shared.gamma_d.shape)
        other = with_shared(state, gamma_d=value)
        yield choice.logpdf(value).sum(), log_joint(other, data, spec, shape)


def ratio_gamma_w_given_rest(tiny, rng):
    state, data, spec, shape = tiny
    choice = conditionals.gamma_w_given_rest(state, spec)
    for _ in range(3):
        value = rng.gamma(2.0, size=state.shared.gamma_w.shape)
        other = with_shared(state, gamma_w=value)
        yield choice.logpdf(value).sum(), log_joint(other, data, spec, shape)


def ratio_gamma_e_given_rest(tiny, rng):
    state, data, spec, shape = tiny
    choice = conditionals.gamma_e_given_rest(state, data, spec, shape)
    for _ in range(3):
        value = rng.gamma(2.0, size=state.local.gamma_e.shape)
        other = with_local(state, gamma_e=value)
        yield choice.logpdf(value).sum(), log_joint(other, data, spec, shape)


RATIOS = [f for name, f in sorted(globals().items()) if name.startswith("ratio_")]


def applies(ratio, name):
    """Whether a layer has this conditional."""
    spec = LAYERS[name][0]
    return {
        ratio_theta_given_z: not spec.elementwise,  # an element has no theta
        ratio_gamma_e_given_rest: spec.gamma_e.fixed is None,  # else never drawn
    }.get(ratio, True)


CASES = [pytest.param(f, n, id=f"{f.__name__[6:]}, {n}") for f in RATIOS for n in LAYERS if applies(f, n)]


@pytest.mark.parametrize(("ratio", "name"), CASES)
def test_ratio(ratio, name):
    assert_ratios(ratio(draw(name), np.random.default_rng(7)), TOLERANCE)


def test_a_wrong_conditional_would_be_seen():
    """The same comparison rejects a Gamma whose rate lacks the 1/2."""
    state, data, spec, shape = draw("pooled, ragged")
    right = conditionals.gamma_e_given_rest(state, data, spec, shape)
    wrong = SimpleNamespace(logpdf=distributions.Gamma(right.shape, right.rate * 2 - spec.gamma_e.rate).logpdf)
    other = with_local(state, gamma_e=state.local.gamma_e * 1.5)
    judged = log_joint(other, data, spec, shape) - log_joint(state, data, spec, shape)
    for choice, agrees in ((right, True), (wrong, False)):
        found = (choice.logpdf(other.local.gamma_e) - choice.logpdf(state.local.gamma_e)).sum()
        assert (abs(found - judged) < TOLERANCE * abs(judged)) == agrees


def test_without_data_an_atom_has_its_prior():
    state, data, spec, shape = draw("several planes")
    empty = with_block(state, ..., EMPTY, 0.0)
    for c, choice in enumerate(conditionals.atom_given_rest(empty, data, shape, 0)):
        np.testing.assert_allclose(choice.precision, np.eye(6) * state.shared.gamma_d[0, c])
        np.testing.assert_allclose(choice.mean, 0.0)
