"""The supplement's draws taken literally: its pieces, and where they end."""

import numpy as np
import pytest

from gdd.model.convolution import synthesise
from gdd.model.pooling import cut_into_blocks, unpool
from gdd.projection import render_projected
from gdd_book import experiments
from gdd_book.experiments.studies import literal, neighbour, printed


class Silent:
    """A generator whose normal draws are 0, so that a draw is its mean."""

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)

    def normal(self, size):
        return np.zeros(size)


@pytest.fixture
def chain():
    generator = np.random.default_rng(3)
    found = printed.Literal(generator.random((3, 28, 28)), printed.Reading(True, True, True, True), generator)
    for _ in range(2):
        found.sweep()
    return found


def test_what_is_left_is_kept_right(chain):
    images = np.random.default_rng(3).random((3, 28, 28))
    drawn = synthesise(chain.dictionary[:, None], chain.z * chain.w)[:, 0]
    np.testing.assert_allclose(chain.left, images - drawn, atol=1e-9)


def test_an_exact_atom_solves_its_regression(chain):
    """Mean of D: least squares of the images without its maps, weighed by gamma_e and gamma_d."""
    k = int(chain.z.sum(axis=(0, 2, 3)).argmax())
    maps, own, gamma_d = chain.z[:, k] * chain.w[:, k], chain.without(k), chain.gamma_d[k]
    unit = np.eye(64).reshape(64, 8, 8)
    design = np.stack([printed.place(one, maps).ravel() for one in unit], axis=1)
    weights = np.repeat(chain.gamma_e, 28 * 28)
    matrix = (design * weights[:, None]).T @ design + gamma_d * np.eye(64)
    chain.generator = Silent()
    chain.draw_atom(k)
    np.testing.assert_allclose(
        chain.dictionary[k].ravel(), np.linalg.solve(matrix, design.T @ (weights * own.ravel())), rtol=1e-6, atol=1e-9
    )


def test_a_block_has_one_position_at_most(chain):
    for k in range(len(chain.dictionary)):
        assert cut_into_blocks(chain.z[:, k], (3, 3)).sum(axis=-1).max() <= 1


def test_the_print_diverges_and_the_model_does_not():
    found = experiments.run("printed-algorithm", {"n_train": 20, "sweeps": 8, "seeds": (0,)}).dataset.isel(subset=0)
    assert found.sizes["reading"] == len(printed.READINGS) + 2
    assert np.isnan(found.residual.sel(reading="as printed")).any()
    assert (found.residual.sel(reading=list(printed.RIGHT)) < 1.2).all()


@pytest.fixture(params=[False, True])
def other(request):
    images = np.random.default_rng(4).random((5, 28, 28))
    found = neighbour.Neighbour(images, (6, 8), request.param, np.random.default_rng(5))
    for _ in range(4):
        found.sweep()
    found.switch[:, 2] = True
    found.left = images.reshape(5, -1) - sum(found.maps()[:, k] @ found.placed(k) for k in range(6))
    return found


def test_what_the_neighbour_leaves_is_kept_right(other):
    images = other.left + sum(other.maps()[:, k] @ other.placed(k) for k in range(6))
    other.sweep()
    drawn = sum(other.maps()[:, k] @ other.placed(k) for k in range(6))
    np.testing.assert_allclose(other.left, images - drawn, atol=1e-9)


def test_the_neighbours_weights_are_each_drawn_given_all_others(other):
    other.generator, pictures, old = Silent(), other.placed(2), other.w[:, 2].copy()
    precision, expected = other.gamma(old), np.empty(old.shape)
    for i, picture in enumerate(pictures):
        without = other.left + np.outer(old[:, i], picture)
        expected[:, i] = other.gamma_e * (without @ picture)
        expected[:, i] /= other.gamma_e * (picture**2).sum() + precision[:, i]
    other.draw_weights(2, pictures)
    np.testing.assert_allclose(other.w[:, 2], expected, rtol=1e-9, atol=1e-12)


def test_the_neighbours_pixels_are_each_drawn_given_all_others(other):
    """But for the overlaps of the atom with itself, which its variance and its mean leave out."""
    other.generator, maps, old = Silent(), other.maps()[:, 2], other.dictionary[2].copy()
    squares = (other.gamma_e * (maps**2).sum(axis=1)).sum()
    expected = np.empty(old.shape)
    for place in np.ndindex(old.shape):
        other.dictionary[2] = 0
        other.dictionary[2][place] = 1
        picture = maps @ other.placed(2)
        linear = (other.gamma_e[:, None] * picture * other.left).sum() + squares * old[place]
        expected[place] = linear / (squares + other.gamma_d[2][place])
    other.dictionary[2] = old
    other.draw_atom(2)
    np.testing.assert_allclose(other.dictionary[2], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("program", [False, True])
def test_the_neighbours_switch_has_its_odds(program, on):
    """The write-up's: the model's, given the weights. The program's: odds as a probability, of the prior if off."""
    number, rng = 20_000, np.random.default_rng(6)
    image, atom = np.zeros((28, 28)), rng.normal(size=(1, 8, 8))
    images = np.repeat(image[None], number, axis=0)
    chain = neighbour.Neighbour(images, (1, 8), program, rng, atom, np.array([0.3]))
    chain.w[:] = rng.normal(size=chain.w.shape[2]) / 30
    chain.gamma_e[:], chain.switch[:] = 1.0, on
    drawn = chain.w[:, 0] @ chain.placed(0)
    chain.left -= on * drawn
    log_ratio = -0.5 * (drawn[0] ** 2).sum()
    odds = 0.3 / 0.7 * np.exp(0 if program and not on else log_ratio)
    expected = odds if program else odds / (1 + odds)
    chain.draw_switch(0, chain.placed(0))
    assert 0.02 < expected < 0.98
    assert abs(chain.switch.mean() - expected) < 4.5 * np.sqrt(expected * (1 - expected) / number)


def test_the_neighbour_runs_beside_the_exact_sampler():
    small = {"seeds": (0,), "sweeps": 6, "n_coded": 80, "n_test": 20, "test_burn_in": 1, "test_collect": 1}
    found = experiments.run("printed-neighbour", small).dataset.isel(subset=0)
    assert found.error.shape == (2, 2, 2)
    assert np.isfinite(found.residual).all()
    last = found.gamma_e.isel(sweep=-1)
    assert last.sel(sampler=neighbour.EXACT) > 5 * last.drop_sel(sampler=neighbour.EXACT).max()


@pytest.fixture(params=[((3, 3), (1, 1), 19), ((1, 1), (3, 3), 20)], ids=["pooled", "spread"])
def blockwise(request):
    rng, (pool, step, side) = np.random.default_rng(7), request.param
    images = rng.random((4, 1, side, side))
    chain = literal.BlockByBlock(images, rng.normal(size=(3, 1, 8, 8)) / 8, pool, step, True, None, rng)
    for _ in range(3):
        chain.sweep(learn=step == (1, 1))
    return chain, images


def test_block_by_block_keeps_what_is_left(blockwise):
    chain, images = blockwise
    assert chain.z.any()
    drawn = render_projected(chain.dictionary, chain.maps(), chain.step, images.shape[2:])
    np.testing.assert_allclose(chain.left, images - drawn, atol=1e-9)
    z, w = chain.blocks()
    np.testing.assert_array_equal(unpool(z, w, chain.z.shape[2:], chain.pool), chain.maps())


def test_block_by_block_draws_a_weight_at_its_position_and_then_a_position_at_its_weight():
    """The printed moments of W, and theta exp(-Y / 2) at the weight that was drawn; other weights from their prior."""
    number, rng = 40_000, np.random.default_rng(8)
    atom, image = rng.normal(size=(1, 1, 8, 8)) / 8, rng.normal(size=(1, 1, 10, 10)) / 4
    chain = literal.BlockByBlock(np.repeat(image, number, axis=0), atom, (3, 3), (1, 1), True, 2.0, rng)
    placed, where = chain.placed(0), np.s_[:, 0, 0:3, 0:3]
    chain.z[:, 0, 1, 1] = True
    chain.gamma_w[:] = 4.0
    chain.draw_block(0, where, placed)
    w, fits, norm = chain.w[:, 0].reshape(number, 9), placed @ image.ravel(), (atom**2).sum()
    precision = np.where(np.arange(9) == 4, 2.0 * norm, 0) + 4.0
    mean = np.where(np.arange(9) == 4, 2.0 * fits / precision, 0)
    assert (abs(w.mean(axis=0) - mean) < 4.5 / np.sqrt(precision * number)).all()
    np.testing.assert_allclose(w.var(axis=0) * precision, 1, atol=0.04)
    mass = np.c_[np.exp(-0.5 * (2.0 * norm * w**2 - 4.0 * fits * w)), np.ones(number)]
    chosen = np.c_[chain.z[:, 0].reshape(number, 9), ~chain.z[:, 0].any(axis=(1, 2))]
    expected = (mass / mass.sum(axis=1, keepdims=True)).mean(axis=0)
    assert (abs(chosen.mean(axis=0) - expected) < 4.5 * np.sqrt(expected / number)).all()


def test_an_atom_has_one_variance_and_what_is_left_without_it():
    rng = np.random.default_rng(9)
    images = rng.random((5, 2, 12, 12))
    chain = literal.BlockByBlock(images, rng.normal(size=(2, 2, 4, 4)), (3, 3), (1, 1), True, 3.0, rng)
    chain.sweep()
    maps, gamma_d = chain.maps(), chain.gamma_d[1].copy()
    own = images - synthesise(chain.dictionary[:1], maps[:, :1])
    linear = np.array([[[(3.0 * maps[:, 1] * own[:, p, a : a + 9, b : b + 9]).sum() for b in range(4)]
                        for a in range(4)] for p in range(2)])
    chain.generator = Silent()
    chain.draw_atom(1)
    squares = 3.0 * (maps[:, 1] ** 2).sum()
    np.testing.assert_allclose(chain.dictionary[1], linear / (squares + gamma_d)[:, None, None], rtol=1e-9)
    np.testing.assert_allclose(chain.left, images - synthesise(chain.dictionary, maps), atol=1e-9)


def test_the_printed_draws_run_to_the_classifier_unless_the_noise_is_as_printed():
    found = experiments.run("printed-whole", {"seeds": (0,), "burn_in": 4}).dataset.isel(subset=0)
    ran = found.error.sel(sampler=[literal.HELD, literal.RIGHT, literal.EXACT])
    assert ran.notnull().all()
    assert (found.diverged.sel(sampler=literal.PRINTED) > 0) == found.error.sel(sampler=literal.PRINTED).isnull().all()
