"""The joint model's reference log density: its images are the explicit sum over blocks, its terms are densities."""

import numpy as np
import pytest
from scipy import stats
from tiny_joint import JOINTS, THREE, TWO, draw_joint, refinement

from gdd.base.axes import IMAGE
from gdd.model import joint
from gdd.model.layer import log_positions
from gdd.model.state import EMPTY


def rendered(local, dictionaries, shapes):
    """X of every layer, block by block and pixel by pixel."""
    values, held = [], [*local.positions, local.z]
    weights = local.w
    for z, atoms, shape in list(zip(held, dictionaries, shapes, strict=True))[::-1]:
        out = np.zeros((len(z), shape.planes, *shape.input_size))
        for n, k, i, j in np.argwhere(z != EMPTY):
            row, col = i * shape.block[0] + z[n, k, i, j] // shape.block[1], j * shape.block[1]
            col += z[n, k, i, j] % shape.block[1]
            out[n, :, row : row + shape.atom_size[0], col : col + shape.atom_size[1]] += weights[n, k, i, j] * atoms[k]
        values.insert(0, out)
        weights = out
    return values


@pytest.mark.parametrize("name", JOINTS)
def test_values_are_the_explicit_sum(name):
    state, _, model, _ = draw_joint(name)
    found = joint.layer_values(state.local, state.shared.dictionaries, model.shapes())
    expected = rendered(state.local, state.shared.dictionaries, model.shapes())
    assert len(found) == len(model.layers)
    for one, other, shape in zip(found, expected, model.shapes(), strict=True):
        assert one.shape == (3, shape.planes, *shape.input_size)
        np.testing.assert_allclose(one, other, atol=1e-12 * max(1.0, np.abs(other).max()))


@pytest.mark.parametrize("name", JOINTS)
def test_joint_equals_a_second_computation(name):
    """The same number from scipy's densities."""
    state, data, model, spec = draw_joint(name)
    local, shared = state
    clean = rendered(local, shared.dictionaries, model.shapes())[0]
    total = log_positions(local.z, model.layers[-1], model.shapes()[-1])
    for z, layer, shape in zip(local.positions, model.layers[:-1], model.shapes()[:-1], strict=True):
        total += log_positions(z, layer, shape, spec.empty_blocks)
    for n in range(3):
        seen = np.s_[:] if data.mask is None else data.mask[n]
        gamma_e = np.broadcast_to(local.gamma_e, 3)[n]
        each = stats.norm.logpdf(data.images[n][seen], clean[n][seen], gamma_e**-0.5).sum()
        assert joint.joint_log_likelihood(state, data, model)[n] == pytest.approx(each, rel=1e-10)
        total += each
    for k, gamma_w in enumerate(np.broadcast_to(shared.gamma_w, local.w.shape[1])):
        total += stats.norm.logpdf(local.w[:, k][local.z[:, k] != EMPTY], 0, gamma_w**-0.5).sum()
    for atoms, gamma_d in zip(shared.dictionaries, shared.gamma_d, strict=True):
        total += stats.norm.logpdf(atoms, 0, np.broadcast_to(gamma_d[:, :, None, None], atoms.shape) ** -0.5).sum()
    law = stats.gamma(4.0, scale=1 / 3.0)  # `tiny.proper`, the prior of every precision here
    total += sum(law.logpdf(g).sum() for g in (*shared.gamma_d, shared.gamma_w))
    if spec.noise.fixed is None:
        total += law.logpdf(local.gamma_e).sum()
    assert joint.joint_log_joint(state, data, model, spec) == pytest.approx(total, rel=1e-10)


def test_missing_pixels_are_not_looked_at():
    state, data, model, spec = draw_joint("three layers, empty blocks, masked")
    other = data._replace(images=np.where(data.mask, data.images, np.nan))
    assert joint.joint_log_joint(state, other, model, spec) == joint.joint_log_joint(state, data, model, spec)
    assert not joint.joint_residual(state, other, model)[~data.mask].any()


@pytest.mark.parametrize(("model", "spec"), [(TWO, refinement(IMAGE)), (THREE, refinement())])
def test_moments_of_draws(model, spec):
    """Over 300 draws of the state and its data, to four standard errors.

    X^(L) is a sum of independent products of a weight and a pixel of an atom, so its mean energy follows from the
    prior: how many products there are, times the chance that one is active, times E 1/gamma_w E 1/gamma_d.
    """
    generator = np.random.default_rng(3)
    states = [joint.draw_joint_state(4, model, spec, generator) for _ in range(300)]
    top, shape = model.layers[-1], model.shapes()[-1]
    inverse = 3.0 / (4.0 - 1.0)  # E 1/gamma under Gamma(4, 3)
    products = np.prod(shape.dictionary) * np.prod(shape.map_size)
    found = np.array([joint.layer_values(s.local, s.shared.dictionaries, model.shapes())[-1] for s in states])
    energy = (found**2).sum(axis=(2, 3, 4)).mean(axis=1)
    expected = top.beta[0] * products * inverse**2
    assert abs(energy.mean() - expected) < 4 * energy.std() / np.sqrt(len(energy))
    law = stats.gamma(4.0, scale=1 / 3.0)
    gamma_e = np.concatenate([s.local.gamma_e for s in states])
    assert stats.kstest(gamma_e, law.cdf).pvalue > 1e-4
    noise = np.array([joint.joint_residual(s, joint.draw_joint_data(s, model, generator), model) for s in states])
    whitened = noise * np.sqrt([np.broadcast_to(s.local.gamma_e, 4) for s in states])[..., None, None, None]
    assert stats.kstest(whitened.ravel()[::50], "norm").pvalue > 1e-4


def test_blocks_are_empty_only_where_that_is_allowed():
    for empty in (False, True):
        state = joint.draw_joint_state(50, THREE, refinement(empty_blocks=empty), np.random.default_rng(4))
        assert [bool((z == EMPTY).any()) for z in state.local.positions] == [empty, empty]
