"""Local contrast normalisation beside its definition."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.inference.contrast import normalise_contrast
from gdd_book.data import datasets


def direct(image, window, sigma):
    """The two sums as they are defined, one pixel at a time: (plane, row, col)."""
    planes, rows, cols = image.shape
    half = window // 2

    def mean(values):
        out = np.empty((rows, cols))
        for i, j in np.ndindex(rows, cols):
            total = weight = 0.0
            for a in range(max(0, i - half), min(rows, i + half + 1)):
                for b in range(max(0, j - half), min(cols, j + half + 1)):
                    w = np.exp(-((a - i) ** 2 + (b - j) ** 2) / (2 * sigma**2))
                    total += w * values[:, a, b].sum()
                    weight += w * planes
            out[i, j] = total / weight
        return out

    centred = image - mean(image)
    deviation = np.sqrt(mean(centred**2))
    return centred / np.maximum(deviation, deviation.mean())


def test_against_the_definition():
    images = np.random.default_rng(1).random((2, 3, 11, 14))
    for image, ours in zip(images, normalise_contrast(images), strict=True):
        np.testing.assert_allclose(ours, direct(image, 9, 9 / 4), rtol=0, atol=1e-12)


def test_brightness_and_contrast_go_and_labels_stay():
    images = datasets.load("digits", n=4)
    found = normalise_contrast(images.astype(float))
    np.testing.assert_allclose(normalise_contrast(0.2 * images.astype(float) + 0.5), found, atol=1e-9)
    assert "local contrast" in found.attrs["scale"] and images.attrs["scale"] == "pixels, 0 to 1"
    assert found.attrs["checksum"] == images.attrs["checksum"]
    turned = normalise_contrast(images.transpose("row", "col", "image", "plane"))
    xr.testing.assert_identical(turned, normalise_contrast(images))
    assert turned.dtype == np.float32
    with pytest.raises(GddError, match="image 0 is constant"):
        normalise_contrast(np.ones((2, 1, 5, 5)))
