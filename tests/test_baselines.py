"""Baselines against their definitions: features, the nearest images, the conditional mean of a Gaussian."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from gdd.base.checks import GddError
from gdd_book.evaluate import baselines
from gdd_book.experiments.images import hide_at_random, hide_halves


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((60, 1, 9, 10))


@pytest.mark.parametrize("learn", [baselines.learn_patches, baselines.learn_patch_atoms])
def test_patches_are_triangles_or_soft_thresholds_written_out(images, learn):
    learned = learn(images, 7, size=4)
    ours = baselines.patch_features(images, learned, regions=2).values[5]
    wanted = np.zeros((2, 2, ours.size // 4))  # 6 x 7 places: rows split 3 + 3, columns 4 + 3
    for row, col in np.ndindex(6, 7):
        patch = images[5, 0, row : row + 4, col : col + 4].ravel()
        patch = (patch - patch.mean()) / np.sqrt(patch.var() + baselines.LEAST_VARIANCE)
        white = learned.whitening.T @ (patch - learned.mean)
        if learn is baselines.learn_patches:
            distance = np.linalg.norm(white - learned.centroids, axis=1)
            found = distance.mean() - distance
        else:
            assert_allclose(np.linalg.norm(learned.centroids, axis=1), 1)
            found = np.append(learned.centroids @ white, -learned.centroids @ white) - learned.threshold
        wanted[row // 3, col // 4] += np.maximum(found, 0)
    assert_allclose(ours, wanted.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [20, 90])
def test_components_are_found_on_training_images_alone(images, columns):
    flat = images.reshape(60, -1)[:, :columns]
    reduce = baselines.principal_components(flat[:40], 5)
    train, test = reduce(flat[:40]), reduce(flat[40:])
    known = PCA(5, svd_solver="full").fit(flat[:40])
    signs = np.sign((train * known.transform(flat[:40])).sum(0))  # a component may point either way
    assert_allclose(train, signs * known.transform(flat[:40]), atol=1e-9)
    assert_allclose(test, signs * known.transform(flat[40:]), atol=1e-9)
    with pytest.raises(GddError, match="count"):
        baselines.principal_components(images[:4], 5)


# ---- missing pixels
def gaussian_images(count, seed):
    """Images of 6x6 from a Gaussian of three components and little noise."""
    basis = np.random.default_rng(0).standard_normal((3, 36))
    generator = np.random.default_rng(seed)
    flat = generator.standard_normal((count, 3)) @ basis + 0.1 * generator.standard_normal((count, 36))
    return flat.reshape(count, 1, 6, 6), basis


def test_neighbour_is_the_nearest_in_observed_pixels():
    train, _ = gaussian_images(30, 1)
    images, _ = gaussian_images(4, 2)
    mask = hide_at_random(images.shape, 0)
    filled = baselines.fill_by_neighbour(np.where(mask, images, np.nan), mask, train)
    for image, seen, found in zip(images, mask, filled, strict=True):
        nearest = min(train, key=lambda t, image=image, seen=seen: ((t - image)[seen] ** 2).sum())
        np.testing.assert_allclose(found, np.where(seen, image, nearest))
    three = baselines.fill_by_neighbour(images, mask, train, 3)
    pairs = zip(images, mask, strict=True)
    order = [((train - image) ** 2 * seen).sum(axis=(1, 2, 3)).argsort()[:3] for image, seen in pairs]
    np.testing.assert_allclose(three, np.where(mask, images, [train[i].mean(axis=0) for i in order]))


def test_gaussian_fills_in_the_conditional_mean():
    """With many training images the fitted Gaussian is the true one, whose conditional mean is written out."""
    train, basis = gaussian_images(40000, 1)
    images, _ = gaussian_images(5, 2)
    mask = hide_halves(images.shape)
    filled = baselines.fill_by_pca(np.where(mask, images, np.nan), mask, train, 3)
    covariance = basis.T @ basis + 0.01 * np.eye(36)
    for image, seen, found in zip(images, mask, filled, strict=True):
        o = seen.ravel()
        expected = covariance[~o][:, o] @ np.linalg.solve(covariance[o][:, o], image.ravel()[o])
        np.testing.assert_allclose(found[seen], image[seen])
        np.testing.assert_allclose(found.ravel()[~o], expected, atol=0.05)
