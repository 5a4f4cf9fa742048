"""Features that owe the model nothing, to hold its features against: principal components, k-means of patches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA

from gdd.base.axes import FEATURE, IMAGE
from gdd.base.checks import GddError, as_pixels, check_seed, check_whole
from gdd.data.subsets import generator
from gdd.inference.features import unfold

#: added to a patch's variance before it is divided by it (pixels 0 to 1), and to the eigenvalues in whitening
LEAST_VARIANCE, LEAST_EIGENVALUE = 0.01, 0.1
PATCHES_PER_IMAGE = 30
#: training images from which on a classifier sees only so many principal components of a feature
MANY, KEPT = 20_000, 300
_CHUNK = 50  # images whose patches are held at once


class PatchDictionary(NamedTuple):
    """Centroids of whitened patches."""

    mean: np.ndarray  # (plane * row * col,)
    whitening: np.ndarray  # (plane * row * col, plane * row * col)
    centroids: np.ndarray  # (atom, plane * row * col)
    size: int  # rows and columns of a patch


def principal_components(
    train: np.ndarray | xr.DataArray, test: np.ndarray | xr.DataArray, count: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Coordinates of training and test images along the training images' first ``count`` principal components.

    The third value is the share of the training images' variance that lies along these.
    """
    train, test = (unfold(part).values.astype(float) for part in (train, test))
    count = check_whole("count", count, 1, min(train.shape))
    wide = train.shape[1] > train.shape[0]  # more columns than rows: no use in forming their covariance
    found = PCA(count, svd_solver="full" if wide else "covariance_eigh").fit(train)
    return found.transform(train), found.transform(test), float(found.explained_variance_ratio_.sum())


def fewer_features(
    train: np.ndarray | xr.DataArray, test: np.ndarray | xr.DataArray
) -> tuple[np.ndarray, np.ndarray, float]:
    """What the classifier sees of a feature: all of it, but of very many images only the leading principal components.

    The time of a classifier of many images is that of inner products of all their pairs. The third value is the share
    of the training images' variance that is kept.
    """
    train, test = unfold(train), unfold(test)
    if len(train) >= MANY and train.sizes[FEATURE] > KEPT:
        return principal_components(train, test, KEPT)
    return train.values, test.values, 1.0


def learn_patches(images: np.ndarray | xr.DataArray, count: int, size: int = 6, seed: int = 0) -> PatchDictionary:
    """Cluster patches of images, their contrast normalised, then whitened.

    Parameters
    ----------
    images : (image, plane, row, col)   no label is looked at
    count : centroids
    size : rows and columns of a patch
    seed : of the choice of patches and of the start

    Raises
    ------
    GddError
        Bad images; patches larger than they are; more centroids than patches.

    Notes
    -----
    Source: Coates, Ng & Lee, AISTATS 2011 (pre-processing, k-means, "triangle" activation, sums over regions).
    Departs: regularisers scaled to pixels of 0 to 1; as many regions as asked for, where they take quadrants.
    Checked: tests/test_baselines.py.
    """
    images, size = as_pixels(images), check_whole("size", size, 2)
    if size > min(images.shape[2:]):
        raise GddError(f"size: {size} given, the images have {images.shape[2:]} rows and columns; at most that")
    count = check_whole("count", count, 2, len(images) * PATCHES_PER_IMAGE)
    random = generator(check_seed(seed))
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), (2, 3))
    rows, cols = (random.integers(0, n, (len(images), PATCHES_PER_IMAGE)) for n in windows.shape[2:4])
    cut = windows[np.arange(len(images))[:, None], :, rows, cols]
    patches = _normalised(cut.reshape(-1, images.shape[1] * size**2))
    mean = patches.mean(0)
    values, vectors = np.linalg.eigh(np.cov(patches.T))
    whitening = (vectors / np.sqrt(values + LEAST_EIGENVALUE)) @ vectors.T
    machine = MiniBatchKMeans(count, random_state=seed, n_init=1, batch_size=2048).fit((patches - mean) @ whitening)
    return PatchDictionary(mean, whitening, machine.cluster_centers_, size)


def patch_features(images: np.ndarray | xr.DataArray, learned: PatchDictionary, regions: int = 4) -> xr.DataArray:
    """How much nearer than the average centroid each one is, summed over ``regions`` x ``regions`` parts of the image.

    Parameters
    ----------
    images : (image, plane, row, col)
    learned : as `learn_patches` returns
    regions : along each side

    Returns
    -------
    (image, feature)    centroids x regions x regions, never negative

    Notes
    -----
    Source: Coates, Ng & Lee, AISTATS 2011, "triangle". Departs: see `learn_patches`.
    Checked: tests/test_baselines.py (written out for one patch).
    """
    images = as_pixels(images)
    places = [n - learned.size + 1 for n in images.shape[2:]]
    regions = check_whole("regions", regions, 1, min(places))
    starts = [[part[0] for part in np.array_split(np.arange(n), regions)] for n in places]
    lengths = (learned.centroids**2).sum(1)
    out = []
    for low in range(0, len(images), _CHUNK):
        some = images[low : low + _CHUNK]
        windows = np.lib.stride_tricks.sliding_window_view(some, (learned.size, learned.size), (2, 3))
        patches = _normalised(windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, len(learned.mean)))
        patches = (patches - learned.mean) @ learned.whitening
        squares = (patches**2).sum(1)[:, None] - 2 * patches @ learned.centroids.T + lengths
        distances = np.sqrt(np.maximum(squares, 0))
        nearer = np.maximum(distances.mean(1, keepdims=True) - distances, 0).reshape(len(some), *places, -1)
        sums = np.add.reduceat(np.add.reduceat(nearer, starts[0], axis=1), starts[1], axis=2)
        out.append(sums.reshape(len(some), -1).astype(np.float32))
    return xr.DataArray(np.concatenate(out), dims=(IMAGE, FEATURE), name="patches")


def _normalised(patches: np.ndarray) -> np.ndarray:
    centred = patches - patches.mean(1, keepdims=True)
    return centred / np.sqrt(centred.var(1, keepdims=True) + LEAST_VARIANCE)
