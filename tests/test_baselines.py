"""Baseline features against their definitions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from gdd.base.checks import GddError
from gdd.evaluate.baselines import LEAST_VARIANCE, learn_patches, patch_features, principal_components


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((60, 1, 9, 10))


@pytest.mark.parametrize("columns", [20, 90])
def test_components_are_found_on_training_images_alone(images, columns):
    flat = images.reshape(60, -1)[:, :columns]
    train, test, kept = principal_components(flat[:40], flat[40:], 5)
    known = PCA(5, svd_solver="full").fit(flat[:40])
    signs = np.sign((train * known.transform(flat[:40])).sum(0))  # a component may point either way
    assert_allclose(train, signs * known.transform(flat[:40]), atol=1e-9)
    assert_allclose(test, signs * known.transform(flat[40:]), atol=1e-9)
    assert_allclose(kept, known.transform(flat[:40]).var(0).sum() / flat[:40].var(0).sum())
    with pytest.raises(GddError, match="count"):
        principal_components(images[:4], images[4:], 5)


def test_patches_are_the_triangle_written_out(images):
    learned = learn_patches(images, 7, size=4)
    assert learned.centroids.shape == (7, 16)
    ours = patch_features(images, learned, regions=2).values.reshape(60, 2, 2, 7)
    wanted = np.zeros((2, 2, 7))  # 6 x 7 places: rows split 3 + 3, columns 4 + 3
    for row in range(6):
        for col in range(7):
            patch = images[5, 0, row : row + 4, col : col + 4].ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + LEAST_VARIANCE)
            distance = np.linalg.norm((patch - learned.mean) @ learned.whitening - learned.centroids, axis=1)
            wanted[row // 3, col // 4] += np.maximum(distance.mean() - distance, 0)
    assert_allclose(ours[5], wanted, rtol=1e-4, atol=1e-5)


def test_centroids_do_not_depend_on_anything_but_images_and_seed(images):
    one, same, other = (learn_patches(images, 5, size=4, seed=seed).centroids for seed in (0, 0, 1))
    assert_allclose(one, same)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(("change", "message"), [({"size": 10}, "size: 10"), ({"count": 1}, "count")])
def test_bad_input_is_named(images, change, message):
    with pytest.raises(GddError, match=message):
        learn_patches(images, **({"count": 5, "size": 4} | change))
