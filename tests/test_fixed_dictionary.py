"""Chains with the dictionaries held: start, passes, the posterior of the joint model, layer by layer."""

import numpy as np
import pytest
import xarray as xr
from agreement import leftover
from tiny_joint import HELD, draw_joint_from

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError
from gdd.inference.fixed_dictionary import infer_jointly, infer_layers, joint_draws, start_joint, start_layer
from gdd.model.joint import joint_log_likelihood, layer_values
from gdd.model.layer import log_likelihood
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, RefinementSpec
from gdd.model.state import JointState, LayerData
from gdd.reference.random import TEST, Key
from gdd.sampler.joint_sweep import local_pass
from gdd.sampler.pretrain import pretrain
from gdd.sampler.sweep import image_pass

#: so much noise that the chain finds its way from an empty start in the few sweeps of a test
REFINEMENT = RefinementSpec(noise=Precision(fixed=0.05))


@pytest.fixture(scope="module")
def drawn():
    """State and images of the model, and the half of the pixels that is seen."""
    return draw_joint_from(HELD, REFINEMENT, 300, hidden=0.4)[:2]


def test_draws_are_those_of_the_passes(drawn):
    """The chain is nothing but passes under the keys of a test; what it yields belongs to its state."""
    state, data = drawn
    data = LayerData(data.images[:3], data.mask[:3])
    found = list(joint_draws(data, HELD, state.shared, REFINEMENT, ChainSpec(2, 3, 5)))
    assert len(found) == 3
    local = start_joint(3, HELD, REFINEMENT, 5, 0.05, data.images.dtype)
    for sweep in range(5):
        local, _ = local_pass(JointState(local, state.shared), data, HELD, REFINEMENT, Key(5, TEST, 0, sweep))
        if sweep < 2:
            continue
        draw, now = found[sweep - 2], JointState(local, state.shared)
        np.testing.assert_array_equal(draw.local.w, local.w)
        np.testing.assert_allclose(draw.log_likelihood, joint_log_likelihood(now, data, HELD))
        np.testing.assert_allclose(draw.clean, layer_values(local, state.shared.dictionaries, HELD.shapes())[0])


def leftover_of(state, data, gamma_e=None):
    truth, means = layer_values(state.local, state.shared.dictionaries, HELD.shapes())[0], []
    for seed in (1, 2):
        draws = joint_draws(data, HELD, state.shared, REFINEMENT, ChainSpec(60, 120, seed), gamma_e)
        means.append(sum(draw.clean / 120 for draw in draws))
    return leftover(truth, *means, data.mask)


def test_posterior_mean_leaves_nothing_that_it_could_explain(drawn):
    """With the noise taken for a twentieth of what it is, what is filled in is too bold."""
    distance, size = leftover_of(*drawn)
    assert size > 0.02  # something is filled in
    assert abs(distance) < 4
    assert leftover_of(*drawn, 1.0)[0] < -8


def test_codes_of_whole_images(drawn):
    state, data = drawn
    images = xr.DataArray(data.images[:5], dims=("image", "plane", "row", "col"), coords={"label": ("image", range(5))})
    seen = []
    found = infer_jointly(images, HELD, state.shared, REFINEMENT, ChainSpec(3, 4), progress=seen.append)
    assert seen == [5] * 7
    assert found.ml_sample.shape == found["mean"].shape == (5, 3, 2, 2)
    assert found.label.values.tolist() == list(range(5))
    draws = list(joint_draws(LayerData(data.images[:5]), HELD, state.shared, REFINEMENT, ChainSpec(3, 4)))
    np.testing.assert_allclose(found["mean"], np.mean([d.local.w for d in draws], axis=0), atol=1e-6)
    best = np.argmax([d.log_likelihood for d in draws], axis=0)
    np.testing.assert_allclose(found.ml_sample, [draws[b].local.w[n] for n, b in enumerate(best)], atol=1e-6)


def test_bad_input(drawn):
    state, data = drawn
    with pytest.raises(GddError, match="gamma_e: None"):
        learned = RefinementSpec(noise=Precision((IMAGE,)))
        next(joint_draws(data, HELD, state.shared, learned, ChainSpec(0, 1)))
    with pytest.raises(GddError, match="axis 'row'"):
        infer_jointly(data.images[:, :, :6], HELD, state.shared, REFINEMENT, ChainSpec(0, 1))


# ---- layer by layer
def test_chain_is_the_passes_of_pretraining_and_the_best_sample_goes_up():
    images = np.random.default_rng(0).random((6, 1, 9, 10))
    model = ModelSpec((LayerSpec(3, (3, 3), (2, 2)), LayerSpec(4, (2, 2), gamma_e=Precision())), (9, 10))
    fitted = pretrain(images, model, ChainSpec(6, 2, single_precision=False))
    found = infer_layers(fitted, images, 2, 4, 5)
    data = LayerData(images)
    for number, (layer, codes) in enumerate(zip(fitted.layers, found, strict=True), 1):
        state = start_layer(layer, len(images), np.float64)
        weights, likelihoods = [], []
        for sweep in range(6):
            local = image_pass(state, data, layer.spec, layer.shape, Key(5, TEST, number, sweep)).local
            state = state._replace(local=local)
            weights.append(local.w)
            likelihoods.append(log_likelihood(state, data, layer.shape))
        best = np.argmax(likelihoods[2:], axis=0) + 2
        chosen = np.array([weights[b][n] for n, b in enumerate(best)])
        np.testing.assert_allclose(codes.ml_sample, chosen, atol=1e-12)
        np.testing.assert_allclose(codes["mean"], np.mean(weights[2:], axis=0), atol=1e-12)
        np.testing.assert_allclose(codes.log_likelihood, np.max(likelihoods[2:], axis=0), rtol=1e-9)
        data = LayerData(chosen)
    assert (found[0].ml_sample != 0).any()
