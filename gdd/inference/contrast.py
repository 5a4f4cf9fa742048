"""Local contrast normalisation: subtract a local mean, and optionally divide by the local standard deviation."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

from gdd.base.axes import IMAGES
from gdd.base.checks import LEAST_CONTRAST, GddError, as_pixels, check_whole

#: pixels along a side of the window, as in the source below
WIDTH = 9


def normalise_contrast(images: np.ndarray | xr.DataArray, width: int = WIDTH) -> np.ndarray | xr.DataArray:
    r"""Normalise every image's contrast pixel by pixel.

    With :math:`w` a Gaussian window of ``width`` x ``width`` pixels (odd) and all planes, summing to one, of a standard
    deviation of ``width`` / 4,

    .. math:: v = x - w \star x, \qquad s = \sqrt{w \star v^2}, \qquad y = v / \max(\bar s, s)

    where the local mean and the local deviation :math:`s` are common to the planes of an image and
    :math:`\bar s` is the mean of :math:`s` over the image: a flat patch is not blown up into noise.

    Images are (image, plane, row, col); the result is of their type, without unit, about 0.

    *Source:* Jarrett, Kavukcuoglu, Ranzato & LeCun, ICCV 2009, Sec. 2.1 (9 x 9 window, floor at the mean deviation).
    *Departs:* they do not print the window's deviation (ours: a quarter of its width), nor what happens at the border:
    here the window is cut off there and its remaining part summed to one again.
    *Checked:* tests/test_datasets.py (the double sum written out; scaling and shifting of pixels).
    """
    pixels = as_pixels(images, dtype=np.float64)
    half = check_whole("width", width, 3) // 2
    if width != 2 * half + 1:
        raise GddError(f"width: {width} is even; a window has a middle pixel, so take {width - 1} or {width + 1}")
    centred, deviation, floor = _local_contrast(pixels, half)
    flat = np.flatnonzero(floor.ravel() <= LEAST_CONTRAST * np.abs(pixels).max(axis=(1, 2, 3)))
    if flat.size:
        raise GddError(f"images: image {flat[0]} has no contrast within {width} x {width} pixels; leave it out")
    normalised = centred / np.maximum(deviation, floor)
    normalised = normalised.astype(np.asarray(images).dtype)
    if not isinstance(images, xr.DataArray):
        return normalised
    return images.transpose(*IMAGES).copy(data=normalised).assign_attrs(scale="local contrast normalised")


def prepare(pixels: np.ndarray, observed: np.ndarray | None, sigma: float, local: bool) -> np.ndarray:
    """Normalise the contrast of images if ``local``, then subtract a Gaussian blur unless ``sigma`` is 0.

    Subtracting the blur removes structure wider than about ``sigma`` pixels; an image is zero beyond its border. Blank
    images are allowed, and stay blank. A pixel that is not ``observed`` is filled with the local mean of observed
    pixels first, and is 0 in the result.

    *Source:* none in the paper, which gives its model the digits as they are.
    *Checked:* tests/test_feedforward.py (a grating's known attenuation; a wide ramp vanishes).
    """
    filled = pixels if observed is None else filled_in(pixels, observed)
    if local:
        centred, deviation, floor = _local_contrast(filled.astype(float), WIDTH // 2)
        scale = np.maximum(deviation, floor)
        flat = floor <= LEAST_CONTRAST * np.abs(filled).max(axis=(1, 2, 3), keepdims=True)
        filled = np.divide(centred, scale, np.zeros_like(centred), where=~flat & (scale > 0)).astype(pixels.dtype)
    passed = filled - _blurred(filled, sigma) if sigma else filled
    return passed if observed is None else np.where(observed, passed, pixels.dtype.type(0))


def filled_in(pixels: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Fill pixels that are not ``observed`` with the Gaussian-weighted mean of the observed pixels around them."""
    weights = _blurred(observed.astype(float), 2.0)
    around = _blurred(np.where(observed, pixels, 0).astype(float), 2.0) / np.maximum(weights, 1e-6)
    return np.where(observed, pixels, around.astype(pixels.dtype))


def _blurred(pixels: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur along rows and columns, images being zero beyond their border; axes of size 1 are not blurred."""
    return gaussian_filter(pixels, (0, 0, *(sigma if n > 1 else 0 for n in pixels.shape[2:])), mode="constant")


def _local_contrast(pixels: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels minus their local mean; local standard deviation, and its mean over each image."""
    centred = pixels - _local_mean(pixels, half)
    deviation = np.sqrt(_local_mean(centred**2, half))
    return centred, deviation, deviation.mean(axis=(2, 3), keepdims=True)


def _local_mean(pixels: np.ndarray, half: int) -> np.ndarray:
    """Gaussian-weighted mean over rows and columns up to ``half`` away, and over planes: (image, 1, row, col)."""
    blur = partial(gaussian_filter, sigma=(2 * half + 1) / 4, radius=half, mode="constant", axes=(-2, -1))
    mean = pixels.mean(axis=1, keepdims=True)
    return blur(mean) / blur(np.ones(mean.shape[2:]))
