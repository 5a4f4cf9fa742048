"""The sampler as a whole against the model, in a size for the ordinary run; tests/test_calibration.py is the full size.

p-values are adjusted by Holm over all statistics of a test, so a right sampler fails a test once in 1000 seeds, and the
seeds are fixed. Wrong samplers must come out below one in a million by one rung or another; which rungs see which
misprint is stated and asserted.
"""

import numpy as np
import pytest
from agreement import FAILS, PASSES, p_value_of_counts
from tiny import LAYERS, layer, with_local

from gdd.model.spec import layer_shape
from gdd.model.state import EMPTY, LayerData, LayerState, Local, Shared, of_images
from gdd.reference.layer_sweep import draw_map
from gdd.reference.random import PRETRAIN, Stream
from gdd.sampler.sweep import Key, image_pass
from gdd_book.checks.calibration import (
    STATISTICS,
    Case,
    compiled_step,
    exact_start,
    geweke,
    holm,
    plain_step,
    uniformity,
)
from gdd_book.checks.enumeration import draw_weights, frequencies
from gdd_book.checks.enumeration import enumerated as enumerate_positions
from gdd_book.checks.printed import MENDED, MISPRINTS, draw_map_at_once, draw_map_weighed


def case(name):
    spec, planes, size, masked = LAYERS[name]
    return Case(spec, layer_shape(spec, size, planes), 2, 0.3 if masked else 0.0)


#: 3x4 maps under 2x2 blocks; atoms that overlap; one noise precision, so that a misprint of it is in the shared part
SMALL = layer(2, (3, 3), (2, 2), noise=())
SMALL = Case(SMALL, layer_shape(SMALL, (5, 6), 1), 2)


@pytest.mark.parametrize("name", [
    "pooled, ragged", "several planes", "top, planes", "gamma_e shared", "masked", "masked, planes",
])
def test_exact_start(name):
    assert holm(exact_start(case(name), compiled_step, 150, 2, seed=1)).min() > PASSES


def test_geweke():
    assert holm(geweke(SMALL, compiled_step, 30, 15, 600, seed=3)).min() > PASSES


#: which misprints the exact start rejects at this size, and the statistic that does it
SEEN_BY_EXACT_START = {"P2": "log gamma_e", "P5": "log gamma_d", "P6": "log gamma_e", "P6, rate only": "log gamma_e"}


@pytest.mark.parametrize("name", SEEN_BY_EXACT_START)
def test_misprint_fails_the_exact_start(name):
    p_values = holm(exact_start(SMALL, plain_step(MISPRINTS[name]), 40, 2, seed=4))
    assert p_values[:, STATISTICS.index(SEEN_BY_EXACT_START[name])].min() < FAILS


def test_misprint_of_the_atoms_fails_the_exact_start():
    """P4 is the mildest: its noise is too small only along the directions in which an atom overlaps itself."""
    p_values = holm(exact_start(SMALL, plain_step(MISPRINTS["P4"]), 150, 4, seed=4))
    assert p_values[0, STATISTICS.index("log likelihood")] < FAILS


def test_mended_route_passes_the_exact_start():
    """The route on which P2 fails, its weight put right: what is rejected is the misprint, not the route."""
    assert holm(exact_start(SMALL, plain_step(MENDED["P2"]), 40, 2, seed=4)).min() > PASSES


# ---- Brute force: every z of a model whose dictionary and precisions are held, w integrated out by hand.
TINY = {
    "pooled": (layer(2, (2, 2), (2, 2), noise=()), (3, 4)),  # two 2x3 maps, each a whole and a ragged block
    "top": (layer(2, (2, 2), None, noise=()), (3, 3)),  # two 2x2 maps of elements: 256 outcomes
}
GAMMA_E, GAMMA_W = 4.0, 1.0


def enumerated(name):
    """State and data of one image, every z (outcome, atom, block_row, block_col), and their posterior."""
    spec, size = TINY[name]
    shape, generator = layer_shape(spec, size, 1), np.random.default_rng(6)
    atoms, z = generator.standard_normal(shape.dictionary), np.full((1, 2, *shape.grid), EMPTY, np.int16)
    local = Local(z, np.zeros(z.shape), np.full(1, GAMMA_E))
    state = LayerState(local, Shared(atoms, np.ones((2, 1)), np.full(1, GAMMA_W)))
    data = LayerData(generator.standard_normal((1, 1, *size)))
    return state, data, spec, shape, *enumerate_positions(state, data, spec, shape)


def p_value_of(z, space, probability):
    """Chi-square of drawn z against their probabilities."""
    return p_value_of_counts(len(z) * frequencies(z, space), len(z) * probability)


@pytest.mark.parametrize("name", TINY)
def test_brute_force(name):
    """4000 independent chains of one image, from empty maps; 60 visits of every block on, the enumerated posterior."""
    state, data, spec, shape, space, probability = enumerated(name)
    many, images = of_images(state, data, np.zeros(4000, int))
    many = with_local(many, gamma_e=state.local.gamma_e)
    for number in range(60):
        many = many._replace(local=image_pass(many, images, spec, shape, Key(9, PRETRAIN, 0, number)).local)
    assert p_value_of(many.local.z, space, probability) > PASSES
    assert p_value_of(many.local.z, space, np.roll(probability, 1)) < FAILS


@pytest.mark.parametrize(("draw", "right"), [
    (draw_map, True), (MENDED["P2"].map, True), (draw_map_weighed, False), (draw_map_at_once, False),
], ids=["plain", "P2 mended", "P2", "P3"])
def test_one_visit_keeps_the_enumerated_posterior(draw, right):
    """z from the enumerated posterior, w given z; one visit of both maps must leave the frequencies where they are."""
    state, data, spec, shape, space, probability = enumerated("pooled")
    generator, drawn = np.random.default_rng(10), []
    for n in range(500):
        z = space[generator.choice(len(space), p=probability)][None].copy()
        one = with_local(state, z=z, w=draw_weights(z[0], state, data, shape, generator)[None])
        stream = Stream(10, PRETRAIN, 0, 0, n)
        for k in range(2):
            one = draw(one, data, spec, shape, k, stream)
        drawn.append(one.local.z[0])
    p_value = p_value_of(np.array(drawn), space, probability)
    assert p_value > PASSES if right else p_value < FAILS


def test_p3_is_right_where_positions_cannot_overlap():
    """With atoms of one pixel a whole map may be drawn at once: the control fails for the reason that is stated."""
    spec = layer(2, (1, 1), (2, 2), noise=())
    small = Case(spec, layer_shape(spec, (3, 4), 1), 2)
    assert holm(exact_start(small, plain_step(MISPRINTS["P3"]), 60, 2, seed=5)).min() > PASSES


def test_every_misprint_is_rejected_by_a_rung():
    assert set(MISPRINTS) == set(SEEN_BY_EXACT_START) | {"P3", "P4"}


def test_uniformity_rejects_what_is_not_uniform():
    generator = np.random.default_rng(0)
    flat = generator.integers(0, 32, (400, 3))
    assert uniformity(flat, 31, 16).min() > PASSES
    assert uniformity(np.minimum(flat + generator.integers(0, 12, flat.shape), 31), 31, 16).max() < FAILS


def test_holm():
    np.testing.assert_allclose(holm(np.array([[0.01, 0.04], [0.03, 0.5]])), [[0.04, 0.09], [0.09, 0.5]])
    assert holm(np.array([0.6, 0.9])).max() == 1.0
