"""The exact posterior of small models, and the many-chain sampler that is compared with it: right and as printed."""

import numpy as np
import pytest
from agreement import FAILS, PASSES, p_value_of_counts
from scipy import stats
from tiny import draw_from, layer

from gdd.model.spec import LayerSpec, Precision
from gdd.model.state import EMPTY, with_block
from gdd.reference.conditionals import block_in_layer
from gdd.reference.layer_sweep import draw_map
from gdd.reference.random import PRETRAIN, Stream
from gdd_book.checks import enumeration, printed

HELD = {f"gamma_{part}": Precision(fixed=value) for part, value in (("e", 4.0), ("d", 1.0), ("w", 1.0))}
#: each sampler of the page on errata, and the control of gdd_book.checks.printed that it must be
MISPRINTS = {
    "right": ({}, draw_map),
    "P2 mended": ({"weight": printed.mended_weight}, printed.MENDED["P2"].map),
    "P2": ({"weight": printed.printed_weight}, printed.draw_map_weighed),
    "P3": ({"at_once": True}, printed.draw_map_at_once),
}


def one_map(pixels=3):
    """One atom on one image, four positions in two blocks; everything drawn from the model."""
    return draw_from(LayerSpec(1, (1, pixels), (1, 2), **HELD), (1, 3 + pixels), images=1, seed=[0, 3])


@pytest.mark.parametrize("masked", [False, True])
def test_odds_of_a_block_are_those_of_its_conditional(masked):
    """One active block against none, all others empty: the conditional with the weight integrated out has the odds."""
    small, hidden = layer(2, (2, 2), (2, 2), noise=()), 0.3 if masked else None
    state, data, spec, shape = draw_from(small, (3, 4), images=1, seed=3, hidden=hidden)
    exact = enumeration.enumerated(state, data, spec, shape)
    index = {z.tobytes(): t for t, z in enumerate(exact.space)}
    for where in ((0, 0, 0, 0), (0, 1, 0, 1)):
        bare = with_block(state, ..., EMPTY, 0.0)
        choice = block_in_layer(bare, data, spec, shape, where)
        for m in np.flatnonzero(np.isfinite(choice.log_weight[:-1])):
            active = with_block(bare, where, m, 1.0)
            odds = np.divide(*(exact.probability[index[one.local.z[0].tobytes()]] for one in (active, bare)))
            assert np.log(odds) == pytest.approx(choice.log_weight[m] - choice.log_weight[-1], abs=1e-8)


def test_weights_given_z_have_their_moments():
    state, data, _, shape = one_map()
    z = np.array([[[1, 0]]])
    generator = np.random.default_rng(4)
    drawn = np.array([enumeration.draw_weights(z, state, data, shape, generator)[0, 0] for _ in range(4000)])
    placed = enumeration.placed_atoms(state, shape)[0, 0, [0, 1], [1, 0]]
    precision = 4 * placed @ placed.T + np.eye(2)
    mean = np.linalg.solve(precision, 4 * placed @ data.images.ravel())
    white = (drawn - mean) @ np.linalg.cholesky(precision)
    assert stats.chi2(2).sf(len(drawn) * (white.mean(axis=0) ** 2).sum()) > PASSES
    assert stats.kstest(white.ravel(), "norm").pvalue > PASSES
    assert not enumeration.draw_weights(np.full((1, 1, 2), EMPTY), state, data, shape, generator).any()


def settled_p_value(name, pixels):
    state, data, spec, shape = one_map(pixels)
    exact = enumeration.enumerated(state, data, spec, shape)
    small = enumeration.small_map(state, data, shape)
    z, w = enumeration.settled(small, 4000, 25, np.random.default_rng(5), **MISPRINTS[name][0])
    assert ((w == 0) == (z == EMPTY)).all()
    return p_value_of_counts(4000 * enumeration.frequencies(z, exact.space), 4000 * exact.probability)


@pytest.mark.parametrize(("name", "pixels"), [("right", 3), ("P2 mended", 3), ("P3", 1)])
def test_right_map_settles_in_the_posterior(name, pixels):
    """As P3 does where positions cannot overlap."""
    assert settled_p_value(name, pixels) > PASSES


@pytest.mark.parametrize("name", ["P2", "P3"])
def test_printed_map_does_not_settle_in_the_posterior(name):
    assert settled_p_value(name, 3) < FAILS


@pytest.mark.parametrize("name", MISPRINTS)
def test_visit_is_the_control_of_the_tests(name):
    """One visit from one state: outcomes of the plain control in proportion to those of many chains at once."""
    state, data, spec, shape = one_map()
    misprint, control = MISPRINTS[name]
    z, w = np.array([[[[0, 1]]]], np.int16), np.array([[[[0.8, -0.4]]]])
    state = state._replace(local=state.local._replace(z=z, w=w))
    space = enumeration.enumerated(state, data, spec, shape).space
    drawn = [control(state, data, spec, shape, 0, Stream(6, PRETRAIN, 0, 0, n)).local.z[0] for n in range(250)]
    chains = np.repeat(state.local.z.reshape(1, 2), 100_000, axis=0), np.repeat(state.local.w.reshape(1, 2), 100_000, 0)
    small = enumeration.small_map(state, data, shape)
    z, _ = enumeration.visit(*chains, small, np.random.default_rng(7), **misprint)
    expected = 250 * enumeration.frequencies(z, space)
    assert p_value_of_counts(250 * enumeration.frequencies(np.array(drawn), space), expected) > PASSES
