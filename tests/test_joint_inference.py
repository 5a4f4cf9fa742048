"""The chain with held dictionaries: its start, its noise precision, what it yields, whose posterior it draws from."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.axes import IMAGE, GddError
from gdd.inference.joint_inference import COLD, Chain, infer_jointly, joint_draws, noise_of, shared_of, start_empty
from gdd.model.joint import draw_joint_data, draw_joint_state, joint_log_likelihood, layer_values
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, RefinementSpec
from gdd.model.state import EMPTY, JointState, LayerData
from gdd.sampler.contract import Key
from gdd.sampler.joint_sweep import local_pass
from gdd.sampler.pretrain import pretrain
from gdd.sampler.random import TEST


def proper(fixed):
    return Precision(fixed=fixed)


LAYERS = (
    LayerSpec(2, (3, 3), (2, 2), gamma_d=proper(1.0), gamma_w=proper(1.0)),
    LayerSpec(3, (2, 2), gamma_d=proper(1.0), gamma_w=proper(0.5)),
)
MODEL = ModelSpec(LAYERS, (7, 7))  # maps 5x5 under 2x2 blocks, 3x3 of them; top maps 2x2
#: so much noise that the chain finds its way from an empty start in the few sweeps of a test
REFINEMENT = RefinementSpec(noise=Precision(fixed=0.05))


@pytest.fixture(scope="module")
def drawn():
    """State and images of the model, and the half of the pixels that is seen."""
    generator = np.random.default_rng(0)
    state = draw_joint_state(600, MODEL, REFINEMENT, generator)
    data = draw_joint_data(state, MODEL, generator)
    return state, data._replace(mask=generator.random(data.images.shape) < 0.6)


def few(data, count=3):
    return LayerData(data.images[:count], data.mask[:count])


def test_start_is_empty_and_positions_exist():
    local = start_empty(4, MODEL, REFINEMENT, 0, 0.05)
    assert (local.z == EMPTY).all() and not local.w.any()
    assert local.gamma_e.tolist() == [0.05]
    assert local.positions[0].shape == (4, 2, 3, 3)
    assert (local.positions[0] >= 0).all()
    assert set(np.unique(local.positions[0][:, :, 2, :2])) <= {0, 1}  # a ragged row
    by_image = RefinementSpec(noise=Precision((IMAGE,)))
    assert start_empty(4, MODEL, by_image, 0, 0.05).gamma_e.shape == (4,)


def test_draws_are_those_of_the_passes(drawn):
    """The chain is nothing but passes under the keys of a test; what it yields belongs to its state."""
    state, data = drawn
    data = few(data)
    found = list(joint_draws(data, MODEL, state.shared, REFINEMENT, Chain(2, 3, 5)))
    assert len(found) == 3
    local = start_empty(3, MODEL, REFINEMENT, 5, 0.05, data.images.dtype)
    for sweep in range(5):
        local, _ = local_pass(JointState(local, state.shared), data, MODEL, REFINEMENT, Key(5, TEST, 0, sweep))
        if sweep < 2:
            continue
        draw = found[sweep - 2]
        np.testing.assert_array_equal(draw.local.w, local.w)
        now = JointState(local, state.shared)
        np.testing.assert_allclose(draw.log_likelihood, joint_log_likelihood(now, data, MODEL))
        np.testing.assert_allclose(draw.clean, layer_values(local, state.shared.dictionaries, MODEL.shapes())[0])


def test_warm_up_climbs_to_the_noise_precision_and_stays(drawn):
    state, data = drawn
    every = list(joint_draws(few(data), MODEL, state.shared, REFINEMENT, Chain(0, 1)))
    assert every[0].local.gamma_e.tolist() == [0.05]
    warm = list(joint_draws(few(data), MODEL, state.shared, REFINEMENT, Chain(3, 2, 0, 3)))
    assert [draw.local.gamma_e.tolist() for draw in warm] == [[0.05], [0.05]]
    colder = []
    list(joint_draws(few(data), MODEL, state.shared, REFINEMENT, Chain(4, 1, 0, 4), progress=colder.append))
    assert colder == [3] * 5
    assert 0 < COLD < 1


def leftover(state, data, gamma_e=None):
    """Error of one chain's mean times another chain's mean over hidden pixels, in standard errors; see the tests of
    `gdd.inference.interpolation`: its expectation is 0 if both draw from the posterior.
    """
    truth, means = layer_values(state.local, state.shared.dictionaries, MODEL.shapes())[0], []
    for seed in (1, 2):
        draws = joint_draws(data, MODEL, state.shared, REFINEMENT, Chain(60, 120, seed, 20), gamma_e)
        means.append(sum(draw.clean / 120 for draw in draws))
    hidden = ~data.mask
    product = np.where(hidden, (truth - means[0]) * means[1], 0).sum(axis=(1, 2, 3))
    return product.mean() / (product.std() / np.sqrt(len(product))), (means[0] * means[1])[hidden].mean()


def test_posterior_mean_leaves_nothing_that_it_could_explain(drawn):
    distance, size = leftover(*drawn)
    assert size > 0.02  # something is filled in
    assert abs(distance) < 4


def test_a_wrong_noise_precision_is_seen(drawn):
    """With the noise taken for a twentieth of what it is, what is filled in is too bold."""
    assert leftover(*drawn, 1.0)[0] < -8


def test_codes_of_whole_images(drawn):
    state, data = drawn
    images = xr.DataArray(data.images[:5], dims=("image", "plane", "row", "col"), coords={"label": ("image", range(5))})
    seen = []
    found = infer_jointly(images, MODEL, state.shared, REFINEMENT, Chain(3, 4), progress=seen.append)
    assert seen == [5] * 7
    assert found.ml_sample.shape == found["mean"].shape == (5, 3, 2, 2)
    assert found.label.values.tolist() == list(range(5))
    draws = list(joint_draws(LayerData(data.images[:5]), MODEL, state.shared, REFINEMENT, Chain(3, 4)))
    np.testing.assert_allclose(found["mean"], np.mean([d.local.w for d in draws], axis=0), atol=1e-6)
    best = np.argmax([d.log_likelihood for d in draws], axis=0)
    np.testing.assert_allclose(found.ml_sample, [draws[b].local.w[n] for n, b in enumerate(best)], atol=1e-6)


def test_pretrained_layers_as_one_model():
    images = np.random.default_rng(0).random((6, 1, 7, 7))
    fitted = pretrain(images, MODEL, ChainSpec(2, 1))
    shared = shared_of(fitted)
    assert [part.shape for part in shared.dictionaries] == [(2, 1, 3, 3), (3, 2, 2, 2)]
    assert next(joint_draws(LayerData(images), MODEL, shared, REFINEMENT, Chain(0, 1))).clean.shape == images.shape


def test_bad_input(drawn):
    state, data = drawn
    for chain in (Chain(2, 0), Chain(-1, 1), Chain(2, 1, 0, 3), Chain(1, 1, -1)):
        with pytest.raises(GddError):
            next(joint_draws(data, MODEL, state.shared, REFINEMENT, chain))
    with pytest.raises(GddError, match="gamma_e"):
        noise_of(RefinementSpec(noise=Precision((IMAGE,))), None)
    with pytest.raises(GddError, match="gamma_e: -1"):
        noise_of(REFINEMENT, -1.0)
    short = state.shared._replace(dictionaries=state.shared.dictionaries[:1])
    with pytest.raises(GddError, match="1 dictionaries given, the model has 2"):
        next(joint_draws(data, MODEL, short, REFINEMENT, Chain(0, 1)))
    wrong = state.shared._replace(dictionaries=state.shared.dictionaries[::-1])
    with pytest.raises(GddError, match="dictionary 1 of shape"):
        next(joint_draws(data, MODEL, wrong, REFINEMENT, Chain(0, 1)))
    with pytest.raises(GddError, match="axis 'row'"):
        next(joint_draws(LayerData(data.images[:, :, :6]), MODEL, state.shared, REFINEMENT, Chain(0, 1)))
