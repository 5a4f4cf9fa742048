"""The vote against a plain loop, the projection against the layered image, sizes of every setting of the paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdd.base.compiling import on_threads
from gdd.model.convolution import synthesise
from gdd.model.pooling import map_indices, repeat_blocks, spread, unpool
from gdd.projection import collapse, render_projected, vote_positions
from gdd_book.dictionaries import blocks_from_votes

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))
relaxed = settings(max_examples=30, deadline=None)


# ---- the vote
def vote_problem(seed, map_size=(6, 7), images=3, gamma=1):
    """One layer and the layer above it, all random."""
    rng, pool = np.random.default_rng(seed), (2, 3)
    where = map_indices(map_size, pool)
    dictionary = rng.normal(size=(2, 2, 3, 2))
    z = np.where(where >= 0, rng.random((images, 2, *where.shape)), -1).argmax(-1)
    z = np.where(rng.random(z.shape) < 0.3, -1, z)
    w = np.where(z >= 0, rng.normal(size=z.shape), 0.0)
    upper = rng.normal(size=(3, 2, 2, 2))
    maps = rng.normal(size=(images, 3, where.shape[0] - 1, where.shape[1] - 1))
    maps[rng.random(maps.shape) < 0.4] = 0
    pixels = rng.normal(size=(images, 2, map_size[0] + 2, map_size[1] + 1))
    return {
        "images": pixels, "dictionary": dictionary, "blocks": (z, w), "gamma_e": rng.gamma(2, size=gamma),
        "pool": pool, "upper_dictionary": upper, "upper_maps": maps,
    }


def plain_scores(images, dictionary, blocks, gamma_e, pool, upper_dictionary, upper_maps, mask=None):
    """The vote word by word, one image, shift, block and position at a time: (score, weight, exists)."""
    z, w = blocks
    map_size = tuple(i - d + 1 for i, d in zip(images.shape[2:], dictionary.shape[2:], strict=True))
    where = map_indices(map_size, pool)
    weights = np.broadcast_to(gamma_e[:, None, None, None], images.shape) * (1.0 if mask is None else mask)
    residual = images - synthesise(dictionary, unpool(z, w, map_size, pool))
    score = np.zeros((*upper_dictionary.shape, where.shape[2]))
    weight = np.zeros_like(score)
    for n, top, s, t in np.ndindex(upper_maps.shape):
        for k, a, b in np.ndindex(upper_dictionary.shape[1:]):
            v, i, j = upper_maps[n, top, s, t] * upper_dictionary[top, k, a, b], s + a, t + b
            unit = lambda m: placed(dictionary[k], where[i, j, m], map_size, images.shape[2:])  # noqa: B023, E731
            added = residual[n] + (w[n, k, i, j] * unit(z[n, k, i, j]) if z[n, k, i, j] >= 0 else 0)
            for m in np.flatnonzero(where[i, j] >= 0):
                phi = unit(m)
                score[top, k, a, b, m] += (weights[n] * (v * added * phi - v**2 * phi**2 / 2)).sum()
                weight[top, k, a, b, m] += v**2 * (z[n, k, i, j] == m)
    return score, weight, where[: upper_dictionary.shape[2], : upper_dictionary.shape[3]] >= 0


def placed(atom, place, map_size, image_size):
    """An atom at a place of the map, in an otherwise empty image."""
    out = np.zeros((len(atom), *image_size))
    row, col = divmod(place, map_size[1])
    out[:, row : row + atom.shape[1], col : col + atom.shape[2]] = atom
    return out


@pytest.mark.parametrize("gamma", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("map_size", [(5, 7), (3, 5)])
def test_vote_is_the_plain_loop(map_size, masked, gamma):
    given_ = vote_problem(sum(map_size), map_size=map_size, gamma=gamma)
    if masked:
        given_["mask"] = np.random.default_rng(1).random(given_["images"].shape) < 0.7
    score, weight, exists = plain_scores(**given_)
    winner = np.where(exists, score, -np.inf).argmax(-1)
    vote = vote_positions(**given_)
    np.testing.assert_array_equal(vote.positions, winner)
    held = np.take_along_axis(weight, winner[..., None], -1)[..., 0]
    total = np.where(weight.sum(-1) > 0, weight.sum(-1), np.nan)
    np.testing.assert_allclose(vote.share, held / total, rtol=1e-12)


def test_same_vote_on_one_and_two_threads():
    given_, votes = vote_problem(3, images=130), []
    for threads in (1, 2):
        with on_threads(threads):
            votes.append(vote_positions(**given_))
    np.testing.assert_equal(*votes)


def test_planted_positions_come_back():
    """Images made with one position per pixel of the upper atom: the vote finds it, with all of the weight."""
    rng = np.random.default_rng(0)
    lower, upper = rng.normal(size=(2, 1, 3, 3)), rng.normal(size=(3, 2, 2, 2))
    planted = rng.integers(0, 4, upper.shape)
    images, z, w, maps = [], [], [], []
    for top, s, t in np.ndindex(3, 2, 2):
        one = np.zeros((1, 3, 2, 2))
        one[0, top, s, t] = 1.5
        pooled = synthesise(upper, one) * (np.abs(synthesise(np.ones_like(upper), one)) > 0.5)
        position = np.full(pooled.shape, -1)
        position[0, :, s : s + 2, t : t + 2] = planted[top]
        images.append(synthesise(lower, unpool(position, pooled, (6, 6), (2, 2))))
        z, w, maps = [*z, position], [*w, pooled], [*maps, one]
    images, z, w, maps = (np.concatenate(part) for part in (images, z, w, maps))
    vote = vote_positions(images, lower, (z, w), np.ones(1), (2, 2), upper, maps)
    np.testing.assert_array_equal(vote.positions, planted)
    np.testing.assert_allclose(vote.share, 1.0)


# ---- the projection
def blocks_under(positions, where, grid):
    """Blocks (z) that follow a vote for one active coefficient (top atom, row, col): z is 0 outside its reach."""
    top, row, col = where
    z = np.zeros((1, positions.shape[1], *grid), int)
    z[0, :, row : row + positions.shape[2], col : col + positions.shape[3]] = positions[top]
    return z


@given(seeds, sizes)
@relaxed
def test_two_layers_exact_for_one_coefficient(seed, pool):
    """Random dictionaries of two layers, and random votes."""
    rng = np.random.default_rng(seed)
    lower, upper = rng.normal(size=(3, 2, 3, 2)), rng.normal(size=(3, 3, 2, 3))
    positions = rng.integers(0, pool[0] * pool[1], upper.shape)
    maps = np.zeros((1, 3, 3, 2))
    where = tuple(rng.integers(0, n) for n in maps.shape[1:])
    maps[(0, *where)] = rng.normal()
    pooled = synthesise(upper, maps)  # (image, atom, block_row, block_col): size 4 x 4
    size = (4 * pool[0], 4 * pool[1])
    layered = synthesise(lower, unpool(blocks_under(positions, where, (4, 4)), pooled, size, pool))
    flat = render_projected(collapse([lower, upper], [pool], [positions])[-1], maps, pool, layered.shape[2:])
    np.testing.assert_allclose(flat, layered, rtol=0, atol=1e-11)
    assert np.abs(layered).max() > 0


def three_layers(seed, pools, case):
    """Image of one top coefficient through three layers, and by projection. Cases: plane, apart, meeting."""
    rng = np.random.default_rng(seed)
    d1, d2, d3 = rng.normal(size=(2, 1, 3, 3)), rng.normal(size=(3, 2, 2, 2)), rng.normal(size=(2, 3, 2, 2))
    z1 = rng.integers(0, pools[0][0] * pools[0][1], d2.shape)
    z2 = rng.integers(0, pools[1][0] * pools[1][1], d3.shape)
    if case == "plane":
        z1[:] = z1[:1, :, :1, :1]
    if case == "apart":
        d3[0] = 0
        d3[0, 1, 1, 0] = 1.0
    top = np.zeros((1, 2, 2, 2))
    top[0, 0, 1, 0] = 1.3
    x3 = synthesise(d3, top)  # 3 x 3
    s2 = unpool(blocks_under(z2, (0, 1, 0), (3, 3)), x3, (3 * pools[1][0], 3 * pools[1][1]), pools[1])
    x2 = synthesise(d2, s2)
    positions = np.zeros(x2.shape, int)  # the last contribution to reach a block decides, when several meet there
    for _, k, row, col in np.argwhere(s2):
        positions[0, :, row : row + 2, col : col + 2] = z1[k]
    size = tuple(n * p for n, p in zip(x2.shape[2:], pools[0], strict=True))
    layered = synthesise(d1, unpool(positions, x2, size, pools[0]))
    projected = collapse([d1, d2, d3], pools, [z1, z2])[-1]
    step = tuple(p * q for p, q in zip(*pools, strict=True))
    return layered, render_projected(projected, top, step, layered.shape[2:])


@pytest.mark.parametrize("case", ["plane", "apart"])
@given(seed=seeds, pools=st.tuples(sizes, sizes))
@relaxed
def test_three_layers_exact(case, seed, pools):
    layered, flat = three_layers(seed, list(pools), case)
    np.testing.assert_allclose(flat, layered, rtol=0, atol=1e-11)


def test_three_layers_broken_where_contributions_meet():
    layered, flat = three_layers(0, [(2, 2), (2, 2)], "meeting")
    assert np.linalg.norm(flat - layered) > 0.1 * np.linalg.norm(layered)


def test_blocks_follow_the_largest_contribution():
    upper, positions = np.array([[[[1.0, 2.0]]], [[[3.0, 0.0]]]]), np.array([[[[1, 2]]], [[[3, 4]]]])
    maps = np.zeros((1, 2, 1, 3))
    maps[0, 0, 0, 0], maps[0, 1, 0, 1] = 1.0, -1.0
    z, w = blocks_from_votes(positions, upper, maps)
    np.testing.assert_allclose(w[0, 0, 0], [1, -1, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(z[0, 0, 0], [1, 3, 0, 0])


def test_closed_form_of_the_supplement():
    """The sum over k1 and k2 of D1 * Dhat2 * Dhat3 with h on the third layer; without h (P10) sizes do not fit."""
    rng = np.random.default_rng(1)
    d1, d2, d3 = rng.normal(size=(2, 1, 3, 3)), rng.normal(size=(3, 2, 2, 2)), rng.normal(size=(2, 3, 2, 2))
    z1, z2 = rng.integers(0, 6, d2.shape), rng.integers(0, 4, d3.shape)
    masks = [unpool(z, np.ones(z.shape), tuple(2 * p for p in pool), pool) for z, pool in ((z1, (3, 2)), (z2, (2, 2)))]
    hat2 = repeat_blocks(d2, (3, 2)) * masks[0]
    hat3 = spread(repeat_blocks(d3, (2, 2)) * masks[1], (3, 2))
    conv = lambda a, b: synthesise(a[None, None], b[None, None])[0, 0]  # noqa: E731
    by_hand = [
        sum(conv(d1[a, 0], conv(hat2[b, a], hat3[top, b])) for a in range(2) for b in range(3)) for top in range(2)
    ]
    projected = collapse([d1, d2, d3], [(3, 2), (2, 2)], [z1, z2])[-1]
    np.testing.assert_allclose(projected[:, 0], by_hand, rtol=0, atol=1e-11)
    assert projected.shape[2:] != tuple(3 + 2 * p - 1 + 2 * 2 - 1 for p in (3, 2))
