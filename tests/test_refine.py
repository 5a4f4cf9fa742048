"""The chain of refinement: stop and resume, starts, traces, bad input; colour and one dimension by the same code."""

from dataclasses import replace

import numpy as np
import pytest
from agreement import StopAt, arrays_of
from tiny import layer
from tiny_joint import SIGNAL, TWO, draw_joint, draw_joint_from

from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, ModelSpec, Precision, RefinementSpec
from gdd.model.state import EMPTY, LayerData
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import fresh_start, refine, start_from

CHAIN = ChainSpec(4, 3, 5, single_precision=False)
FIXED = RefinementSpec(Precision(fixed=4.0))


@pytest.fixture(scope="module")
def images():
    return draw_joint("two layers", 12).data.images


@pytest.fixture(scope="module")
def pretrained(images):
    return pretrain(images, TWO, replace(CHAIN, burn_in=10))


def test_stopped_and_resumed_is_the_uninterrupted_chain(images, pretrained, tmp_path):
    whole = refine(images, TWO, CHAIN, FIXED, start=pretrained)
    with pytest.raises(KeyboardInterrupt):
        refine(images, TWO, CHAIN, FIXED, start=pretrained, folder=tmp_path, progress=StopAt(6))
    resumed = refine(images, TWO, CHAIN, FIXED, start=pretrained, folder=tmp_path)
    np.testing.assert_equal(arrays_of(whole.last), arrays_of(resumed.last))
    np.testing.assert_equal(arrays_of(whole.state), arrays_of(resumed.state))
    assert whole.traces.equals(resumed.traces)


def test_start_fills_empty_blocks_and_keeps_the_rest(pretrained):
    z = pretrained.layers[0].state.local.z
    assert (z == EMPTY).any() and (z != EMPTY).any()
    state = start_from(pretrained, FIXED, CHAIN)
    filled = state.local.positions[0]
    assert (filled != EMPTY).all()
    np.testing.assert_array_equal(filled[z != EMPTY], z[z != EMPTY])
    allowed = start_from(pretrained, replace(FIXED, empty_blocks=True), CHAIN)
    np.testing.assert_array_equal(allowed.local.positions[0], z)


@pytest.mark.parametrize("start", ["patches", "random"])
def test_fresh_start_explains_nothing_yet(images, start):
    state = fresh_start(LayerData(images), TWO, replace(CHAIN, start=start), FIXED)
    assert (state.local.z == EMPTY).all()
    assert (state.local.positions[0] != EMPTY).all()
    for atoms in state.shared.dictionaries:
        np.testing.assert_allclose((atoms**2).sum(axis=(1, 2, 3)), 1.0)


@pytest.mark.parametrize(("change", "match"), [
    (lambda im: (im[:6], TWO), "axis 'image'"),
    (lambda im: (im, replace(TWO, layers=(TWO.layers[0], replace(TWO.layers[1], pool=(2, 1))))), "top layer has pool"),
    (lambda im: (np.where(np.arange(8) == 3, np.nan, im), TWO), "images"),
    (lambda im: (im[::-1], TWO), "start: trained on other images"),
])
def test_bad_input_is_named(images, pretrained, change, match):
    given, model = change(images)
    with pytest.raises(GddError, match=match):
        refine(given, model, CHAIN, FIXED, start=pretrained)


def test_a_refined_model_goes_on_under_another_noise_precision(images, pretrained):
    held = refine(images, TWO, CHAIN, FIXED, start=pretrained)
    on = lambda noise, **more: refine(  # noqa: E731
        images, TWO, replace(CHAIN, seed=6), RefinementSpec(noise, **more), start=held
    )
    assert (on(Precision(fixed=9.0)).traces.gamma_e == 9).all()
    learned = on(Precision(("image",), 2.0, 1.0))
    assert learned.last.local.gamma_e.shape == (12,) and len(np.unique(learned.last.local.gamma_e)) == 12
    empty = refine(images, TWO, CHAIN, replace(FIXED, empty_blocks=True), start=pretrained)
    with pytest.raises(GddError, match="refinement: blocks of the start may be empty; empty_blocks=True is needed"):
        refine(images, TWO, CHAIN, FIXED, start=empty)


def test_a_start_under_another_mask_is_refused(images, pretrained):
    mask = np.random.default_rng(1).random(images.shape) < 0.8
    masked = pretrain(images, TWO, CHAIN, mask=mask)
    for start, given in (masked, None), (masked, ~mask), (pretrained, mask):
        with pytest.raises(GddError, match="start: trained on other images, or under another mask"):
            refine(images, TWO, CHAIN, FIXED, start=start, mask=given)
    assert refine(images, TWO, CHAIN, FIXED, start=masked, mask=mask).data.mask is not None


#: atoms of one column: three numbers a row, for which nothing is compiled that is not compiled for `TWO`
COLOUR = ModelSpec((layer(2, (3, 1), (2, 2)), TWO.layers[1]), TWO.image_size, planes=3)


@pytest.mark.parametrize("model", [COLOUR, SIGNAL], ids=["colour", "one dimension"])
def test_colour_images_and_signals_are_fitted(model):
    """Data made of a few atoms, little noise: pretrained and refined, the layers explain most of what there is."""
    _, data, _, spec = draw_joint_from(model, RefinementSpec(Precision(fixed=100.0)), 12, 3)
    chain = ChainSpec(40, 10, 1, single_precision=False)
    start = pretrain(data.images, model, chain)
    refined = refine(data.images, start.model, chain, spec, start=start)
    residual = refined.traces.residual.values[0]
    assert residual[-10:].mean() < 0.5 * np.sqrt((data.images**2).mean())
    assert refined.traces.log_joint.values[0, -1] > refined.traces.log_joint.values[0, 0]
