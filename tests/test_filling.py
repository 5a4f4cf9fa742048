"""Baselines that know no layers: the nearest images, and the conditional mean of a Gaussian."""

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd.evaluate.filling import choose_components, fill_by_neighbour, fill_by_pca
from gdd.inference.interpolation import hidden_error, hide_at_random, hide_halves


def gaussian_images(count, seed, components=3):
    """Images of 6x6 from a Gaussian of a few components and little noise."""
    basis = np.random.default_rng(0).standard_normal((components, 36))
    generator = np.random.default_rng(seed)
    flat = generator.standard_normal((count, components)) @ basis + 0.1 * generator.standard_normal((count, 36))
    return flat.reshape(count, 1, 6, 6), basis


def test_neighbour_is_the_nearest_in_observed_pixels():
    train, _ = gaussian_images(30, 1)
    images, _ = gaussian_images(4, 2)
    mask = hide_at_random(images.shape, 0)
    filled = fill_by_neighbour(np.where(mask, images, np.nan), mask, train)
    for image, seen, found in zip(images, mask, filled, strict=True):
        nearest = min(train, key=lambda t, image=image, seen=seen: ((t - image)[seen] ** 2).sum())
        np.testing.assert_allclose(found, np.where(seen, image, nearest))
    three = fill_by_neighbour(images, mask, train, 3)
    pairs = zip(images, mask, strict=True)
    order = [((train - image) ** 2 * seen).sum(axis=(1, 2, 3)).argsort()[:3] for image, seen in pairs]
    np.testing.assert_allclose(three, np.where(mask, images, [train[i].mean(axis=0) for i in order]))


def test_gaussian_fills_in_the_conditional_mean():
    """With many training images the fitted Gaussian is the true one, whose conditional mean is written out."""
    train, basis = gaussian_images(40000, 1)
    images, _ = gaussian_images(5, 2)
    mask = hide_halves(images.shape)
    filled = fill_by_pca(np.where(mask, images, np.nan), mask, train, 3)
    covariance = basis.T @ basis + 0.01 * np.eye(36)
    for image, seen, found in zip(images, mask, filled, strict=True):
        o = seen.ravel()
        expected = covariance[~o][:, o] @ np.linalg.solve(covariance[o][:, o], image.ravel()[o])
        np.testing.assert_allclose(found[seen], image[seen])
        np.testing.assert_allclose(found.ravel()[~o], expected, atol=0.05)


def test_number_of_components_is_found_on_training_images():
    train, _ = gaussian_images(60, 1)
    images, _ = gaussian_images(20, 2)
    mask = hide_at_random(images.shape, 0)
    assert choose_components(train, mask, (1, 2, 3)) == 3
    assert choose_components(train, mask, (3, 30, 47, 1000)) == 3
    error = hidden_error(fill_by_pca(images, mask, train, 3), images, mask).mean()
    assert error < hidden_error(fill_by_pca(images, mask, train, 1), images, mask).mean()


def test_bad_input():
    train, _ = gaussian_images(12, 1)
    images, _ = gaussian_images(2, 2)
    mask = hide_halves(images.shape)
    with pytest.raises(GddError, match="train: images of"):
        fill_by_neighbour(images, mask, train[:, :, :5])
    with pytest.raises(GddError, match="neighbours: 13"):
        fill_by_neighbour(images, mask, train, 13)
    with pytest.raises(GddError, match="components: 12"):
        fill_by_pca(images, mask, train, 12)
    with pytest.raises(GddError, match="hidden whole"):
        fill_by_pca(images, np.zeros_like(mask), train, 2)
    with pytest.raises(GddError, match="at least 10"):
        choose_components(train[:9], mask)
    with pytest.raises(GddError, match="candidates"):
        choose_components(train, mask, (500,))
