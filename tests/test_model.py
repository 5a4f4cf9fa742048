"""The reference log density: each of its terms is a density or a probability; it agrees with a second computation."""

import numpy as np
import pytest
from agreement import p_value_of_counts
from scipy import signal, stats
from tiny import LAYERS, draw, every_z, layer, with_local, with_shared

from gdd.model.layer import draw_positions, log_joint, log_positions, log_positions_given, residual
from gdd.model.spec import layer_shape
from gdd.model.state import EMPTY, maps_of, positions_exist
from gdd.reference.conditionals import theta_given_z
from gdd_book.checks.enumeration import frequencies

#: pooled: one 3x5 map, two full blocks, one at the right, two at the bottom, one in the corner. Top: two 2x2 maps
ENUMERABLE = {
    "pooled, ragged": (layer(1, (2, 2), (2, 2)), (4, 6)),
    "two maps": (layer(2, (2, 2), (2, 1)), (3, 3)),
    "top": (layer(2, (2, 2), None), (3, 3)),
}

#: without empty blocks, as in the joint model: pooled layers only
OUTCOMES = [(name, True) for name in ENUMERABLE] + [(name, False) for name in ENUMERABLE if name != "top"]


@pytest.mark.parametrize(("name", "empty"), OUTCOMES)
def test_positions_sum_to_one(name, empty):
    spec, size = ENUMERABLE[name]
    shape = layer_shape(spec, size, 1)
    logs = [log_positions(z, spec, shape, empty) for z in every_z(shape, empty)]
    assert np.exp(logs).sum() == pytest.approx(1.0, rel=1e-10)


def test_an_element_is_on_with_probability_one_over_k():
    """Beta(1/K, 1 - 1/K) and Bernoulli of one element, pi integrated out, by scipy; elements are independent."""
    spec = layer(3, (2, 2), None)
    shape, z = layer_shape(spec, (3, 2), 1), np.full((1, 3, 2, 1), EMPTY)
    z[0, 0, 0, 0] = 0
    terms = stats.betabinom(1, 1 / 3, 2 / 3).logpmf([1, 0, 0, 0, 0, 0])
    assert log_positions(z, spec, shape) == pytest.approx(terms.sum(), rel=1e-12)


@pytest.mark.parametrize(("name", "empty"), OUTCOMES)
def test_positions_drawn_have_that_probability(name, empty):
    """Chi-square of 20 000 draws over all z; a false alarm once in 10 000."""
    spec, size = ENUMERABLE[name]
    shape = layer_shape(spec, size, 1)
    space = every_z(shape, empty)
    expected = 20_000 * np.exp([log_positions(z, spec, shape, empty) for z in space])
    drawn = draw_positions(20_000, spec, shape, np.random.default_rng(0), empty)
    assert p_value_of_counts(len(drawn) * frequencies(drawn, space), expected) > 1e-4


@pytest.mark.parametrize("name", [n for n in LAYERS if not LAYERS[n][0].elementwise])
def test_theta_integrates_out(name):
    """p(z, theta) = p(z) p(theta | z) for any theta: to rounding."""
    state, data, spec, shape = draw(name)
    rng = np.random.default_rng(1)
    choices = theta_given_z(state.local.z, shape)
    theta = [rng.dirichlet(np.ones(c.alpha.shape[2]), c.alpha.shape[:2]) for c in choices]
    posterior = sum(c.logpdf(t).sum() for c, t in zip(choices, theta, strict=True))
    assert log_positions_given(state.local.z, theta, shape) - posterior == pytest.approx(
        log_positions(state.local.z, spec, shape), rel=1e-10
    )
    joint = log_joint(state, data, spec, shape)
    assert log_joint(state, data, spec, shape, theta) - posterior == pytest.approx(joint, rel=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_joint_equals_a_dense_computation(name):
    """The same number from scipy's densities, dense maps and direct convolution."""
    state, data, spec, shape = draw(name)
    maps, atoms = maps_of(state.local, shape), state.shared.dictionary
    gamma_e = np.broadcast_to(state.local.gamma_e, len(data.images))
    total = log_positions(state.local.z, spec, shape)
    for n, c in np.ndindex(*data.images.shape[:2]):
        clean = sum(signal.convolve2d(maps[n, k], atoms[k, c], "full") for k in range(shape.atoms))
        seen = np.s_[:] if data.mask is None else data.mask[n, c]
        total += stats.norm.logpdf(data.images[n, c][seen], clean[seen], gamma_e[n] ** -0.5).sum()
    for k in range(shape.atoms):
        active = state.local.w[:, k][state.local.z[:, k] != EMPTY]
        total += stats.norm.logpdf(active, 0, state.shared.gamma_w**-0.5).sum()
        for c in range(shape.planes):
            gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes))[k, c]
            total += stats.norm.logpdf(atoms[k, c], 0, gamma_d**-0.5).sum()
    gammas = state.local.gamma_e, state.shared.gamma_d, state.shared.gamma_w
    for prior, value in zip((spec.gamma_e, spec.gamma_d, spec.gamma_w), gammas, strict=True):
        if prior.fixed is None:
            total += stats.gamma.logpdf(value, prior.shape, scale=1 / prior.rate).sum()
    assert log_joint(state, data, spec, shape) == pytest.approx(total, rel=1e-10)


def test_joint_sees_each_unknown():
    """A change of any unknown changes it: nothing is left out."""
    state, data, spec, shape = draw("pooled, ragged")
    before = log_joint(state, data, spec, shape)
    z = state.local.z.copy()
    active = tuple(np.argwhere(z >= 0)[0])
    z[active] = (z[active] + 1) % positions_exist(shape)[active[2:]].sum()
    changed = [with_local(state, z=z)]
    changed += [with_local(state, **{f: getattr(state.local, f) * 1.1}) for f in ("w", "gamma_e")]
    changed += [with_shared(state, **{f: getattr(state.shared, f) * 1.1}) for f in state.shared._fields]
    assert all(abs(log_joint(other, data, spec, shape) - before) > 1e-6 for other in changed)


def test_hidden_pixels_do_not_count():
    state, data, spec, shape = draw("masked")
    other = data._replace(images=np.where(data.mask, data.images, np.nan))
    assert log_joint(state, other, spec, shape) == log_joint(state, data, spec, shape)
    whole = data._replace(mask=np.ones_like(data.mask))
    unmasked = log_joint(state, data._replace(mask=None), spec, shape)
    assert log_joint(state, whole, spec, shape) == pytest.approx(unmasked)


def test_drawn_state_and_data_have_their_moments():
    """Weights, atoms and noise times the root of their precision are standard normal; precisions have their prior."""
    spec, planes, size, _ = LAYERS["several planes"]
    state, data, spec, shape = draw("several planes", images=400)
    used = state.local.z != EMPTY
    assert stats.kstest(state.local.w[used] * state.shared.gamma_w[0] ** 0.5, "norm").pvalue > 1e-4
    noise = residual(state, data, shape) * state.local.gamma_e[:, None, None, None] ** 0.5
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(state.local.gamma_e.ravel(), stats.gamma(4.0, scale=1 / 3.0).cdf).pvalue > 1e-4
    assert not state.local.w[~used].any()
    many = [draw("several planes", images=1, seed=s).state.shared for s in range(60)]
    atoms = np.array([(s.dictionary * s.gamma_d[:, :, None, None] ** 0.5).ravel() for s in many])
    assert stats.kstest(atoms.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest([s.gamma_w[0] for s in many], stats.gamma(4.0, scale=1 / 3.0).cdf).pvalue > 1e-4
