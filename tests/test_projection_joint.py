"""Projection under the joint model: exact where it must be, broken where it need not be; the vote, word by word."""

from math import prod

import numpy as np
import pytest
from tiny import layer
from tiny_joint import draw_joint_from, refinement

from gdd import infer
from gdd.base.axes import IMAGE
from gdd.model.convolution import synthesise
from gdd.model.joint import joint_residual, layer_values
from gdd.model.pooling import map_indices, unpool
from gdd.model.spec import ModelSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, of_images
from gdd.projection import collapse, project, project_layers, render_projected, vote_joint
from gdd.sampler.refine import Refined
from gdd_book.dictionaries import blocks_from_votes, threshold

NOISE = refinement(IMAGE)
#: maps of 9x9 in blocks of 3x3, under 2x2
TWO = ModelSpec((layer(3, (3, 3), (3, 3)), layer(4, (2, 2), None)), (11, 11), planes=2)
#: maps of 12x12 and 4x4, both in blocks of 2x2, under 1x1
WHOLE = ModelSpec((layer(3, (3, 3), (2, 2)), layer(3, (3, 3), (2, 2)), layer(3, (2, 2), None)), (14, 14))
#: the same with ragged blocks: maps of 9x8 and 3x3, under 2x1
THREE = ModelSpec((layer(3, (2, 3), (2, 2)), layer(3, (3, 2), (2, 2)), layer(2, (1, 2), None)), (10, 10))


def single(model, seed, coefficients=1, case=""):
    """State of one image with one active coefficient a top atom, positions as voted; and the votes.

    "apart" : a top atom has two pixels, which go to opposite corners of the map below it, so that nothing meets in a
    block of the bottom layer.
    """
    rng, shapes = np.random.default_rng(seed), model.shapes()
    dictionaries = [rng.normal(size=shape.dictionary) for shape in shapes]
    votes = [rng.integers(0, prod(s.block), above.dictionary) for s, above in zip(shapes, shapes[1:], strict=False)]
    if case == "apart":
        corners = np.zeros_like(dictionaries[-1])
        corners[:, 0, 0, 0], corners[:, 1, -1, -1] = rng.normal(size=(2, len(corners)))
        dictionaries[-1], votes[-1][:, 0], votes[-1][:, 1] = corners, 0, prod(shapes[-2].block) - 1
    w = np.zeros((1, shapes[-1].atoms, *shapes[-1].map_size))
    w[0, :coefficients, 0, 0] = 2 + rng.random(coefficients)
    positions, maps = [], w
    for vote, dictionary, shape in zip(votes[::-1], dictionaries[:0:-1], shapes[-2::-1], strict=True):
        blocks = blocks_from_votes(vote, dictionary, maps)
        positions.insert(0, blocks.z)
        maps = unpool(blocks.z, blocks.w, shape.map_size, shape.block)
    local = JointLocal(tuple(positions), np.where(w != 0, 0, EMPTY).astype(np.int16), w, np.ones(1))
    shared = JointShared(tuple(dictionaries), tuple(np.ones((1, 1)) for _ in shapes), np.ones(1))
    return JointState(local, shared), votes


def drawn(model, state, atoms):
    """Image that projected atoms draw."""
    return render_projected(atoms, state.local.w, model.stride, model.image_size)


def gap(model, state, votes):
    """Largest difference between the layered image and the projected one, over the largest pixel."""
    atoms = collapse(state.shared.dictionaries, [spec.pool for spec in model.layers[:-1]], votes)[-1]
    layered = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    return np.abs(drawn(model, state, atoms) - layered).max() / np.abs(layered).max()


@pytest.mark.parametrize("seed", range(2))
def test_two_layers_are_exact_for_one_coefficient_and_broken_by_two(seed):
    assert gap(TWO, *single(TWO, seed)) < 1e-12
    assert gap(TWO, *single(TWO, seed, coefficients=2)) > 1e-3


@pytest.mark.parametrize(("model", "case"), [(TWO, ""), (WHOLE, "apart")])
def test_vote_finds_the_positions_that_a_noiseless_image_follows(model, case):
    state, votes = single(model, 3, case=case)
    clean = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    found = vote_joint(state, LayerData(clean), model)
    for vote, planted, dictionary in zip(found, votes, state.shared.dictionaries[1:], strict=True):
        used = ~np.isnan(vote.share)
        assert used[0].any() or (dictionary[0] == 0).all()
        np.testing.assert_array_equal(vote.positions[used], planted[used])
        np.testing.assert_allclose(vote.share[used], 1)
    atoms = project(Refined(model, NOISE, state, state, None, LayerData(clean)))
    assert atoms.attrs["winning_share"] == pytest.approx([1.0] * len(found))
    np.testing.assert_allclose(drawn(model, state, atoms.values), clean, atol=1e-12 * np.abs(clean).max())


def unit_plain(state, model, layer, atom, place, n):
    """Image of a unit at one place, image n: whole maps, one layer at a time."""
    shapes = model.shapes()
    maps = np.zeros((1, shapes[layer].atoms, *shapes[layer].map_size))
    maps[0, atom].flat[place] = 1
    picture = synthesise(state.shared.dictionaries[layer], maps)
    for below in reversed(range(layer)):
        blocks = state.local.positions[below][n : n + 1]
        maps = unpool(blocks, picture, shapes[below].map_size, shapes[below].block)
        picture = synthesise(state.shared.dictionaries[below], maps)
    return picture[0]


def plain_winners(state, data, model, layer):
    """The vote word by word: one image, shift, block and position at a time."""
    shapes, upper = model.shapes(), state.shared.dictionaries[layer + 1]
    values = (*layer_values(state.local, state.shared.dictionaries, shapes), None)
    above = shapes[layer + 1]
    on_top = layer + 2 == len(shapes)
    blocks = (state.local.z, state.local.w) if on_top else (state.local.positions[layer + 1], values[layer + 2])
    maps = unpool(*blocks, above.map_size, above.block)
    where = map_indices(shapes[layer].map_size, shapes[layer].block)
    residual, seen = joint_residual(state, data, model), 1.0 if data.mask is None else data.mask
    score = np.zeros((*upper.shape, where.shape[2]))
    score[:, :, where[: upper.shape[2], : upper.shape[3]] < 0] = -np.inf
    for n, top, s, t in np.argwhere(maps):
        for k, a, b in np.ndindex(upper.shape[1:]):
            v, i, j = maps[n, top, s, t] * upper[top, k, a, b], s + a, t + b
            active = state.local.positions[layer][n, k, i, j]
            unit = {m: unit_plain(state, model, layer, k, where[i, j, m], n) for m in np.flatnonzero(where[i, j] >= 0)}
            own = values[layer + 1][n, k, i, j] * unit[active] if active >= 0 else 0
            for m, phi in unit.items():
                weighted = state.local.gamma_e[n] * np.broadcast_to(seen, data.images.shape)[n] * phi
                score[top, k, a, b, m] += (weighted * (v * (residual[n] + own) - v**2 * phi / 2)).sum()
    return score


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layer", [0, 1])
def test_vote_is_the_plain_loop(layer, masked):
    state, data, *_ = draw_joint_from(THREE, NOISE, images=2, seed=1, hidden=0.3 if masked else None)
    score = plain_winners(state, data, THREE, layer)
    np.testing.assert_array_equal(vote_joint(state, data, THREE)[layer].positions, score.argmax(-1))


def test_every_layer_is_carried_down():
    state, data, *_ = draw_joint_from(THREE, NOISE, seed=4)
    refined = Refined(THREE, NOISE, state, state, None, data)
    bottom, middle, top = project_layers(refined)
    np.testing.assert_array_equal(bottom, state.shared.dictionaries[0])
    positions = [vote.positions for vote in vote_joint(state, data, THREE)]
    np.testing.assert_array_equal(middle, collapse(state.shared.dictionaries[:2], [(2, 2)], positions[:1])[-1])
    np.testing.assert_array_equal(top, project(refined))
    state, data = of_images(state, data, slice(2))
    np.testing.assert_array_equal(project_layers(refined, 2)[-1], project(refined._replace(state=state, data=data)))
    assert not np.array_equal(project_layers(refined, 2)[-1], top)


def test_inference_is_under_the_precisions_of_the_refined_model():
    state, data, *_ = draw_joint_from(TWO, NOISE, seed=4)
    refined = Refined(TWO, NOISE, state, state, None, data)
    atoms = project(refined)
    codes = infer(refined, atoms, data.images, burn_in=3, collect=2)
    assert codes.ml_sample.shape == state.local.w.shape
    assert codes.attrs["gamma_e"] == pytest.approx(state.local.gamma_e.mean())
    assert codes.attrs["gamma_w"] == pytest.approx(state.shared.gamma_w.mean())
    left = data.images - drawn(TWO, state._replace(local=state.local._replace(w=codes.ml_sample.values)), atoms.values)
    square, pixels = (left**2).sum(axis=(1, 2, 3)), left[0].size
    expected = 0.5 * pixels * np.log(codes.attrs["gamma_e"] / (2 * np.pi)) - 0.5 * codes.attrs["gamma_e"] * square
    np.testing.assert_allclose(codes.log_likelihood, expected, rtol=1e-9)


def test_threshold_keeps_the_strong_pixels_of_the_stronger_sign():
    atoms = np.array([[[[1.0, -4.0], [-1.1, -1.3]]], [[[0.0, 0.0], [0.0, 0.0]]]])
    np.testing.assert_array_equal(threshold(atoms, 0.3)[0, 0], [[0.0, 4.0], [0.0, 1.3]])
    np.testing.assert_array_equal(threshold(atoms)[1], 0)
