"""Each distribution: its density against scipy or its own integral, its draws against its density."""

import numpy as np
import pytest
from scipy import stats

from gdd.model.distributions import BlockChoice, DiagonalShiftGaussian, Dirichlet, Gamma, Gaussian
from gdd.reference.random import Stream

DRAWS = 4000
P_VALUE = 1e-4  # every test of draws fails once in 10 000 seeds; the seed is fixed


def precision_matrix(size):
    a = np.random.default_rng(0).standard_normal((size, 2 * size))
    return a @ a.T


def test_gamma():
    shape, rate, x = np.array([0.1, 2.0, 300.0]), np.array([0.5, 3.0, 2.0]), np.array([0.2, 0.9, 140.0])
    np.testing.assert_allclose(Gamma(shape, rate).logpdf(x), stats.gamma.logpdf(x, shape, scale=1 / rate), rtol=1e-12)
    generator = np.random.default_rng(1)
    draws = np.array([Gamma(shape, rate).sample(generator) for _ in range(DRAWS)])
    for t in range(3):
        assert stats.kstest(draws[:, t], stats.gamma(shape[t], scale=1 / rate[t]).cdf).pvalue > P_VALUE


def test_gaussian():
    precision, linear, x = precision_matrix(4), np.arange(4.0), np.array([0.3, -1.0, 2.0, 0.1])
    choice = Gaussian(precision, linear)
    expected = stats.multivariate_normal(np.linalg.solve(precision, linear), np.linalg.inv(precision))
    assert choice.logpdf(x) == pytest.approx(expected.logpdf(x), rel=1e-10)
    generator = np.random.default_rng(2)
    check_gaussian_draws(np.array([choice.sample(generator) for _ in range(DRAWS)]), choice)


def check_gaussian_draws(draws, choice):
    """Mahalanobis distances are chi-square, and whitened coordinates are standard normal."""
    off = draws - choice.mean
    distance = np.einsum("ni,ij,nj->n", off, choice.precision, off)
    assert stats.kstest(distance, stats.chi2(off.shape[1]).cdf).pvalue > P_VALUE
    for column in (off @ np.linalg.cholesky(choice.precision)).T:
        assert stats.kstest(column, "norm").pvalue > P_VALUE


def test_diagonal_shift_gaussian():
    common, shift, linear = precision_matrix(3), np.array([0.5, 4.0]), np.arange(6.0).reshape(2, 3)
    choice = DiagonalShiftGaussian(common, shift, linear)
    x = np.random.default_rng(4).standard_normal((2, 3))
    parts = [Gaussian(common + g * np.eye(3), b) for g, b in zip(shift, linear, strict=True)]
    assert choice.logpdf(x) == pytest.approx(sum(p.logpdf(row) for p, row in zip(parts, x, strict=True)), rel=1e-12)
    generator = np.random.default_rng(5)
    draws = np.array([choice.sample(generator) for _ in range(DRAWS)])
    for c, part in enumerate(parts):
        check_gaussian_draws(draws[:, c], part)


def test_diagonal_shift_gaussian_does_not_depend_on_the_choice_of_eigenvectors(monkeypatch):
    choice = DiagonalShiftGaussian(2.0 * np.eye(3), np.array([0.5, 4.0]), np.arange(6.0).reshape(2, 3))
    turned, draws = np.linalg.qr(np.random.default_rng(6).standard_normal((3, 3)))[0], []
    for vectors in (np.eye(3), turned):
        monkeypatch.setattr(np.linalg, "eigh", lambda common, vectors=vectors: (np.full(3, 2.0), vectors))
        draws.append(choice.sample(np.random.default_rng(7)))
    np.testing.assert_allclose(*draws, rtol=1e-12)


@pytest.mark.parametrize("alpha", [[0.5, 1.0, 3.0], [1 / 170, 1 / 170, 40.0], [1e-4, 1e-4, 1e-4], [2000.0, 1e-3, 1.0]])
def test_dirichlet(alpha):
    alpha = np.array(alpha)
    theta = Dirichlet(np.tile(alpha, (DRAWS, 1))).sample(np.random.default_rng(9))
    assert (theta > 0).all()
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(Dirichlet(alpha).logpdf(theta)).all()
    total = alpha.sum()
    for t in range(3):  # means, to four standard errors
        share = alpha[t] / total
        error = np.sqrt(share * (1 - share) / (total + 1) / DRAWS)
        assert abs(theta[:, t].mean() - share) < 4 * error
    if alpha.min() > 0.1:
        inside = np.array([0.2, 0.3, 0.5])
        assert Dirichlet(alpha).logpdf(inside) == pytest.approx(stats.dirichlet.logpdf(inside, alpha), rel=1e-12)
        for t in range(3):
            assert stats.kstest(theta[:, t], stats.beta(alpha[t], total - alpha[t]).cdf).pvalue > P_VALUE


def test_block_choice_density_is_normalised_and_drawn():
    log_weight = np.log([0.2, 0.5, 1.1, 0.7]) + np.array([0, 0, -np.inf, 0])
    choice = BlockChoice(log_weight, np.array([1.0, -2.0, 0.0]), np.array([2.0, 0.5, 1.0]))
    grid = np.linspace(-12, 10, 4001)
    mass = [np.trapezoid(np.exp([choice.logpdf(m, w) for w in grid]), grid) for m in (0, 1)]
    shares = np.array([0.2, 0.5, 0.7]) / 1.4
    np.testing.assert_allclose([*mass, np.exp(choice.logpdf(-1, 0.0))], shares, rtol=1e-6)
    stream = Stream(1, 0, 0, 0, 0)
    draws = [choice.sample(stream) for _ in range(DRAWS)]
    z, w = np.array([d[0] for d in draws]), np.array([d[1] for d in draws])
    assert not (z == 2).any() and not w[z == -1].any()
    assert stats.chisquare([(z == m).sum() for m in (0, 1, -1)], DRAWS * shares).pvalue > P_VALUE
    for m in (0, 1):
        law = stats.norm(choice.mean[m], choice.precision[m] ** -0.5)
        assert stats.kstest(w[z == m], law.cdf).pvalue > P_VALUE
