"""Local contrast: subtract what changes slowly over an image, and optionally divide by the local standard deviation."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.ndimage import correlate1d, gaussian_filter

from gdd.base.axes import IMAGES
from gdd.base.checks import LEAST_CONTRAST, GddError, as_pixels, check_real, check_whole

WIDEST = 2**15 - 1  # pixels; a wider window is refused


def normalise_contrast(
    images: np.ndarray | xr.DataArray, window: int = 9, sigma: float | None = None
) -> np.ndarray | xr.DataArray:
    r"""Normalise every image's contrast pixel by pixel.

    With :math:`w` a Gaussian window over rows, columns and all planes, summing to one,

    .. math:: v = x - w \star x, \qquad s = \sqrt{w \star v^2}, \qquad y = v / \max(\bar s, s)

    where the local mean and the local deviation :math:`s` are common to the planes of an image and
    :math:`\bar s` is the mean of :math:`s` over the image: a flat patch is not blown up into noise.

    Parameters
    ----------
    images : (image, plane, row, col)
    window : int                rows and columns of the window, an odd number
    sigma : float, optional     standard deviation of the window in pixels; default window / 4

    Returns
    -------
    (image, plane, row, col)    of the type of ``images``; pixels without unit, about 0

    Notes
    -----
    Source: Jarrett, Kavukcuoglu, Ranzato & LeCun, ICCV 2009, Sec. 2.1 (9 x 9 window, floor at the mean deviation).
    Departs: they do not print the window's deviation (ours: a quarter of its width), nor what happens at the border:
    here the window is cut off there and its remaining part summed to one again.
    Checked: tests/test_datasets.py (the double sum written out; scaling and shifting of pixels).
    """
    window = check_whole("window", window, least=1, most=WIDEST)
    if window % 2 == 0:
        raise GddError(f"window: {window} given; an odd number is needed, so that the window has a centre")
    sigma = check_real("sigma", window / 4 if sigma is None else sigma, 0.01, WIDEST, "a number of pixels")
    pixels = as_pixels(images, dtype=np.float64)
    centred = pixels - _local_mean(pixels, window, sigma)
    deviation = np.sqrt(_local_mean(centred**2, window, sigma))
    mean = deviation.mean(axis=(2, 3), keepdims=True)
    flat = np.flatnonzero(mean.ravel() <= LEAST_CONTRAST * np.abs(pixels).max(axis=(1, 2, 3)))
    if flat.size:
        raise GddError(
            f"window, sigma: {window}, {sigma:g} pixels given, within which image {flat[0]} has no contrast; "
            "wider ones are needed"
        )
    normalised = centred / np.maximum(deviation, mean)
    scale = f"local contrast normalised, window {window} x {window}, sigma {sigma:g} pixels"
    return _labelled_like(images, normalised.astype(np.asarray(images).dtype), scale)


def high_pass(images: np.ndarray | xr.DataArray, sigma: float = 3.0) -> np.ndarray | xr.DataArray:
    """Subtract a Gaussian blur from every plane, and so whatever is wider than about ``sigma`` pixels.

    Parameters
    ----------
    images : (image, plane, row, col)
    sigma : standard deviation of the blur in pixels; beyond the border the image is taken to be 0

    Returns
    -------
    (image, plane, row, col)    of the type of ``images``, in their units

    Notes
    -----
    Source: none in the paper, which gives its model the digits as they are.
    Checked: tests/test_feedforward.py (a grating's known attenuation; a wide ramp vanishes).
    """
    sigma = check_real("sigma", sigma, 0.01, WIDEST, "a number of pixels")
    pixels = as_pixels(images)
    passed = pixels - gaussian_filter(pixels, (0, 0, sigma, sigma), mode="constant")
    return _labelled_like(images, passed, f"less a Gaussian blur of {sigma:g} pixels")


def _labelled_like(images: np.ndarray | xr.DataArray, pixels: np.ndarray, scale: str) -> np.ndarray | xr.DataArray:
    """Pixels with the labels that the images have, if any, and a note of their scale."""
    if not isinstance(images, xr.DataArray):
        return pixels
    return images.transpose(*IMAGES).copy(data=pixels).assign_attrs(scale=scale)


def _local_mean(pixels: np.ndarray, window: int, sigma: float) -> np.ndarray:
    """Gaussian-weighted mean over rows, columns and planes: (image, 1, row, col)."""
    offset = np.arange(window) - window // 2
    weight = np.exp(-0.5 * (offset / sigma) ** 2)
    mean = pixels.mean(axis=1, keepdims=True)
    for axis in (2, 3):
        within = correlate1d(np.ones(mean.shape[axis]), weight, mode="constant")
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        mean = correlate1d(mean, weight, axis=axis, mode="constant") / within.reshape(shape)
    return mean
