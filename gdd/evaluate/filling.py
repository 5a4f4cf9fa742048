"""Baselines for missing pixels that know no layers: the nearest training images, and a Gaussian fitted to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from sklearn.decomposition import PCA
from sklearn.impute import KNNImputer

from gdd.base.axes import IMAGES
from gdd.base.checks import GddError, as_pixels, as_plain, check_kind, check_whole
from gdd.inference.interpolation import hidden_error

Array = np.ndarray | xr.DataArray

#: numbers of components among which `choose_components` chooses
COMPONENTS = (5, 10, 20, 40, 80, 160, 320)


def fill_by_neighbour(images: Array, mask: Array, train: Array, neighbours: int = 1) -> np.ndarray:
    """Take the hidden pixels from the training image nearest in the observed ones, or from the mean of several.

    Parameters
    ----------
    images : (image, plane, row, col); anything where the mask is False
    mask : (image, plane, row, col) of bool, True = observed
    train : (image, plane, row, col), whole
    neighbours : how many training images to take the mean of

    Returns
    -------
    (image, plane, row, col), observed pixels as they are

    Raises
    ------
    GddError
        Bad pixels or mask; training images of another size, or fewer than neighbours.

    Notes
    -----
    Source: none in the paper; `sklearn.impute.KNNImputer`.
    Checked: tests/test_filling.py.
    """
    holed, flat = _flat(images, mask, train)
    neighbours = check_whole("neighbours", neighbours, 1, len(flat))
    imputer = KNNImputer(n_neighbors=neighbours, keep_empty_features=True).fit(flat)
    return imputer.transform(holed).reshape(as_plain(images, IMAGES, "images").shape)


def fill_by_pca(images: Array, mask: Array, train: Array, components: int) -> np.ndarray:
    r"""Fill in the mean of the hidden pixels given the observed ones, under a Gaussian fitted to training images.

    .. math:: \hat x_h = \mu_h + C_{ho}\, C_{oo}^{-1} (x_o - \mu_o), \qquad C = V V^\top + \sigma^2 I

    The covariance is that of probabilistic principal components (Tipping & Bishop 1999), and the gain is worked out as
    :math:`V_h (\sigma^2 I + V_o^\top V_o)^{-1} V_o^\top`, so no matrix of all pixels is made. Parameters, result and
    errors as in `fill_by_neighbour`; ``components`` is the number of columns of V, see `choose_components`.

    Notes
    -----
    Source: none in the paper; covariance by `sklearn.decomposition.PCA`.
    Checked: tests/test_filling.py (against the conditional mean of a known Gaussian).
    """
    holed, flat = _flat(images, mask, train)
    components = check_whole("components", components, 1, min(flat.shape) - 1)
    model, out = PCA(components, svd_solver="full").fit(flat), holed.copy()
    basis = model.components_.T * np.sqrt(np.maximum(model.explained_variance_ - model.noise_variance_, 0))
    for image in out:
        hidden = np.isnan(image)
        seen, rest = basis[~hidden], (image - model.mean_)[~hidden]
        # least squares, as without noise the matrix need not have full rank
        code = np.linalg.lstsq(model.noise_variance_ * np.eye(components) + seen.T @ seen, seen.T @ rest)[0]
        image[hidden] = model.mean_[hidden] + basis[hidden] @ code
    return out.reshape(as_plain(images, IMAGES, "images").shape)


def choose_components(train: Array, mask: Array, candidates: Sequence[int] = COMPONENTS) -> int:
    """Number of components that fills best in training images: a fifth of them is held out and hidden by these masks.

    Parameters
    ----------
    train : (image, plane, row, col), at least 10 images
    mask : (image, plane, row, col) of bool: of the images to be filled in later; taken in turn
    candidates : those too large for the other four fifths are left out
    """
    train, mask = as_pixels(train, "train"), as_plain(mask, IMAGES, "mask")
    check_kind("candidates", candidates, (tuple, list))
    candidates = [check_whole("candidates", number, 1) for number in candidates]
    if mask.shape[1:] != train.shape[1:]:
        raise GddError(f"mask: {mask.shape[1:]} (plane, row, col), the training images are of {train.shape[1:]}")
    if len(train) < 10:
        raise GddError(f"train: {len(train)} along axis 'image'; at least 10 are needed")
    held = np.arange(len(train)) % 5 == 4
    tried, rest = train[held][: len(mask)], train[~held]
    hidden = mask[np.arange(len(tried)) % len(mask)]
    fits = [n for n in candidates if n < min(len(rest), rest[0].size)]
    if not fits:
        raise GddError(f"candidates: {tuple(candidates)} given; one below {min(len(rest), rest[0].size)} is needed")
    errors = [hidden_error(fill_by_pca(tried, hidden, rest, n), tried, hidden).mean() for n in fits]
    return fits[int(np.argmin(errors))]


def _flat(images: Array, mask: Array, train: Array) -> tuple[np.ndarray, np.ndarray]:
    """Images (image, pixel) with NaN where hidden, and training images (image, pixel)."""
    mask = as_plain(mask, IMAGES, "mask")
    images = as_pixels(images, "images", mask, constant=True, dtype=np.float64)
    train = as_pixels(train, "train", dtype=np.float64)
    if train.shape[1:] != images.shape[1:]:
        raise GddError(f"train: images of {train.shape[1:]} (plane, row, col), those to fill are of {images.shape[1:]}")
    holed = np.where(mask, images, np.nan).reshape(len(images), -1)
    return holed, train.reshape(len(train), -1)
