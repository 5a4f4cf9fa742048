"""The supplement's draws taken literally: its pieces. Where they end is compared by nbval (book/model/as-printed)."""

import numpy as np
import pytest

from gdd.model.convolution import synthesise
from gdd_book.experiments.studies import printed


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
