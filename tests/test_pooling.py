"""Blocks, the operators f, f^-1, g and h with their five lemmas."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gdd.model.convolution import synthesise
from gdd.model.pooling import block_grid, cut_into_blocks, map_indices, one_hot, pool_sum, repeat_blocks, spread, unpool

pools = st.tuples(st.integers(1, 4), st.integers(1, 4))
map_sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
seeds = st.integers(0, 2**32 - 1)
small = hnp.arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(-9, 9).map(float))
relaxed = settings(max_examples=50, deadline=None)


def convolved(first, second):
    """Full convolution of two pictures."""
    return synthesise(first[None, None], second[None, None])[0, 0]


def random_blocks(seed, map_size, pool):
    """Random blocks (z, w) of which every position exists; about a quarter empty."""
    rng = np.random.default_rng(seed)
    exists = map_indices(map_size, pool) >= 0
    odds = rng.random((2, 3, *exists.shape)) * exists
    z = np.where(rng.random(odds.shape[:-1]) < 0.25, -1, odds.argmax(-1))
    return z, np.where(z >= 0, rng.normal(size=z.shape), 0.0)


# ---- the lemmas
@given(seeds, map_sizes, pools)
@relaxed
def test_lemma_1_unpooling_is_repetition_times_the_one_hot_map(seed, map_size, pool):
    z, w = random_blocks(seed, map_size, pool)
    repeated = repeat_blocks(w, pool)[..., : map_size[0], : map_size[1]]
    np.testing.assert_array_equal(unpool(z, w, map_size, pool), repeated * one_hot(z, map_size, pool))


@given(small, pools, pools)
@relaxed
def test_lemma_2_repetitions_compose(values, first, second):
    both = (first[0] * second[0], first[1] * second[1])
    np.testing.assert_array_equal(repeat_blocks(repeat_blocks(values, first), second), repeat_blocks(values, both))


@given(small, pools, pools)
@relaxed
def test_lemma_3_spreadings_compose(values, first, second):
    both = (first[0] * second[0], first[1] * second[1])
    np.testing.assert_array_equal(spread(spread(values, first), second), spread(values, both))


@given(small, small, pools)
@relaxed
def test_lemma_4_repetition_of_a_convolution(atom, map_, pool):
    left = repeat_blocks(convolved(atom, map_), pool)
    right = convolved(repeat_blocks(atom, pool), spread(map_, pool))
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-10)


@given(small, small, pools)
@relaxed
def test_lemma_5_spreading_of_a_convolution(atom, map_, pool):
    left = spread(convolved(atom, map_), pool)
    right = convolved(spread(atom, pool), spread(map_, pool))
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-10)


def test_lemma_4_needs_spreading_on_one_side_only():
    """Negative control: g on both factors, or h on both, is another identity and fails."""
    atom, map_ = np.arange(1.0, 7.0).reshape(2, 3), np.arange(1.0, 5.0).reshape(2, 2)
    left = repeat_blocks(convolved(atom, map_), (2, 2))
    for swap in (repeat_blocks, spread):
        right = convolved(swap(atom, (2, 2)), swap(map_, (2, 2)))
        assert left.shape != right.shape or not np.allclose(left, right)


@given(small, pools)
@relaxed
def test_misprint_p9_size_of_spreading(values, pool):
    """The printed size counts the unpooled rows N_x = rows * p: too many as soon as p > 1."""
    assume(min(pool) > 1)
    size = spread(values, pool).shape
    assert size == tuple((n - 1) * p + 1 for n, p in zip(values.shape, pool, strict=True))
    assert size != tuple((n * p - 1) * p + 1 for n, p in zip(values.shape, pool, strict=True))


# ---- blocks
@given(map_sizes, pools)
@relaxed
def test_every_place_of_the_map_is_in_one_block(map_size, pool):
    where = map_indices(map_size, pool)
    assert where.shape == (*block_grid(map_size, pool), pool[0] * pool[1])
    np.testing.assert_array_equal(np.sort(where[where >= 0]), np.arange(map_size[0] * map_size[1]))
    for i, j, m in np.argwhere(where >= 0):
        row, col = divmod(where[i, j, m], map_size[1])
        assert (row, col) == (i * pool[0] + m // pool[1], j * pool[1] + m % pool[1])


@given(seeds, map_sizes, pools)
@relaxed
def test_pooling_inverts_unpooling(seed, map_size, pool):
    z, w = random_blocks(seed, map_size, pool)
    maps = unpool(z, w, map_size, pool)
    np.testing.assert_array_equal(pool_sum(maps, pool), w)
    cut = cut_into_blocks(maps, pool)
    np.testing.assert_array_equal(np.where(cut.any(-1), (cut != 0).argmax(-1), -1), z)


@given(seeds, map_sizes, pools)
@relaxed
def test_summing_is_the_adjoint_of_repeating(seed, map_size, pool):
    rng = np.random.default_rng(seed)
    maps, values = rng.integers(-9, 10, map_size), rng.integers(-9, 10, block_grid(map_size, pool))
    repeated = repeat_blocks(values, pool)[: map_size[0], : map_size[1]]
    assert np.vdot(pool_sum(maps, pool), values) == np.vdot(maps, repeated)
