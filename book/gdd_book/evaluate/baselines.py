"""Baselines that know no layers: features (principal components, k-means of patches) and filled-in pixels.

None is in the paper; tests/test_baselines.py checks all of them.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA, MiniBatchDictionaryLearning
from sklearn.impute import KNNImputer

from gdd.base.axes import FEATURE, IMAGE, IMAGES
from gdd.base.checks import GddError, as_pixels, as_plain, check_whole
from gdd.inference.block_magnitudes import unfold
from gdd_book.data.subsets import generator
from gdd_book.evaluate.interpolation import hidden_error

Array = np.ndarray | xr.DataArray

#: added to a patch's variance before it is divided by it (pixels 0 to 1), and to the eigenvalues in whitening
LEAST_VARIANCE, LEAST_EIGENVALUE = 0.01, 0.1
PATCHES_PER_IMAGE = 30
#: of correlations with atoms; between 0.25 and 1 cross-validation on training digits hardly tells
THRESHOLD = 0.5
#: numbers of components among which `choose_components` chooses
COMPONENTS = (5, 10, 20, 40, 80, 160, 320)
_CHUNK = 50  # images whose patches are held at once


# ---- features
class PatchDictionary(NamedTuple):
    """Centroids of whitened patches, or atoms that add up to them."""

    mean: np.ndarray  # (plane * row * col,)
    whitening: np.ndarray  # (plane * row * col, plane * row * col)
    centroids: np.ndarray  # (atom, plane * row * col)
    size: int  # rows and columns of a patch
    threshold: float | None = None  # of atoms: correlations are features; None: distances from centroids are


def principal_components(train: Array, count: int) -> Callable[[Array], np.ndarray]:
    """Coordinates (image, feature) along the training images' first ``count`` components, as a function of images."""
    train = unfold(train).values.astype(float)
    count = check_whole("count", count, 1, min(train.shape))
    wide = train.shape[1] > train.shape[0]  # more columns than rows: no use in forming their covariance
    found = PCA(count, svd_solver="full" if wide else "covariance_eigh").fit(train)
    return lambda part: found.transform(unfold(part).values.astype(float))


def learn_patches(images: Array, count: int, size: int = 6, seed: int = 0) -> PatchDictionary:
    """Cluster patches of images (image, plane, row, col), their contrast normalised, then whitened.

    Source: Coates, Ng & Lee, AISTATS 2011 (pre-processing, k-means, "triangle" activation, sums over regions).
    Departs: regularisers scaled to pixels of 0 to 1; as many regions as asked for, where they take quadrants.
    """
    patches, mean, whitening = _whitened(images, size, seed)
    machine = MiniBatchKMeans(count, random_state=seed, n_init=1, batch_size=2048).fit(patches)
    return PatchDictionary(mean, whitening, machine.cluster_centers_, size)


def learn_patch_atoms(images: Array, count: int, size: int = 6, seed: int = 0) -> PatchDictionary:
    """Learn atoms that add up sparsely to patches, prepared as in `learn_patches`.

    Source: Coates & Ng, ICML 2011 (sparse coding in learning, a soft threshold in use, both signs);
    `sklearn.decomposition.MiniBatchDictionaryLearning` as it comes.
    """
    patches, mean, whitening = _whitened(images, size, seed)
    machine = MiniBatchDictionaryLearning(count, random_state=seed).fit(patches)
    return PatchDictionary(mean, whitening, machine.components_, size, THRESHOLD)


def patch_features(images: Array, learned: PatchDictionary, regions: int = 4) -> xr.DataArray:
    """What patches have of each centroid or atom, summed over ``regions`` x ``regions`` parts: (image, feature).

    Of a centroid: how much nearer than the average it is. Of an atom: how far the correlation exceeds the threshold,
    positive ones and negative ones apart.
    """
    images = as_pixels(images)
    places = [n - learned.size + 1 for n in images.shape[2:]]
    starts = [[part[0] for part in np.array_split(np.arange(n), regions)] for n in places]
    out, lengths = [], (learned.centroids**2).sum(1)
    for low in range(0, len(images), _CHUNK):
        windows = _windows(images[low : low + _CHUNK], learned.size)
        patches = (_normalised(windows.reshape(-1, len(learned.mean))) - learned.mean) @ learned.whitening
        if learned.threshold is None:
            squares = (patches**2).sum(1)[:, None] - 2 * patches @ learned.centroids.T + lengths
            distances = np.sqrt(np.maximum(squares, 0))
            found = np.maximum(distances.mean(1, keepdims=True) - distances, 0)
        else:
            found = patches @ learned.centroids.T
            found = np.maximum(np.concatenate([found, -found], axis=1) - learned.threshold, 0)
        found = found.reshape(*windows.shape[:3], -1)
        sums = np.add.reduceat(np.add.reduceat(found, starts[0], axis=1), starts[1], axis=2)
        out.append(sums.reshape(len(windows), -1).astype(np.float32))
    return xr.DataArray(np.concatenate(out), dims=(IMAGE, FEATURE), name="patches")


def _windows(images: np.ndarray, size: int) -> np.ndarray:
    """Every patch of this size, (image, row, col, plane, patch row, patch col)."""
    return np.lib.stride_tricks.sliding_window_view(images, (size, size), (2, 3)).transpose(0, 2, 3, 1, 4, 5)


def _whitened(images: Array, size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Patches at random places, normalised and whitened, (patch, pixel); the mean and the matrix that whitens."""
    windows, random = _windows(as_pixels(images), size), generator(seed)
    rows, cols = (random.integers(0, n, (len(windows), PATCHES_PER_IMAGE)) for n in windows.shape[1:3])
    cut = windows[np.arange(len(windows))[:, None], rows, cols]
    patches = _normalised(cut.reshape(-1, windows[0, 0, 0].size))
    mean = patches.mean(0)
    values, vectors = np.linalg.eigh(np.cov(patches.T))
    whitening = (vectors / np.sqrt(values + LEAST_EIGENVALUE)) @ vectors.T
    return (patches - mean) @ whitening, mean, whitening


def _normalised(patches: np.ndarray) -> np.ndarray:
    centred = patches - patches.mean(1, keepdims=True)
    return centred / np.sqrt(centred.var(1, keepdims=True) + LEAST_VARIANCE)


# ---- scattering
#: variable that names an interpreter with kymatio, which needs scipy below 1.15
KYMATIO = "GDD_KYMATIO"
SCATTER = """
import sys, time, numpy
from kymatio.numpy import Scattering2D
images = numpy.load(sys.argv[1])
scatter = Scattering2D(J=int(sys.argv[3]), shape=images.shape[1:], L=8)
scatter(images[:1])
begun = time.process_time()
parts = [scatter(images[low:low + 100]) for low in range(0, len(images), 100)]
spent = time.process_time() - begun
numpy.savez(sys.argv[2], features=numpy.concatenate(parts).reshape(len(images), -1).astype("float32"), spent=spent)
"""


def scattered(images: xr.DataArray, octaves: int = 2) -> tuple[np.ndarray, float]:
    """Features (image, feature) of one-plane images, and its processor time, of the interpreter of `KYMATIO`."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "images.npy", Path(folder) / "features.npz"
        np.save(before, images.values[:, 0])
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [os.environ[KYMATIO], "-c", SCATTER, str(before), str(after), str(octaves)]
        subprocess.run(command, check=True, env=alone)
        with np.load(after) as file:
            return file["features"], float(file["spent"])


# ---- missing pixels
def fill_by_neighbour(images: Array, mask: Array, train: Array, neighbours: int = 1) -> np.ndarray:
    """Fill in the hidden pixels of the training image nearest in the observed ones, or the mean of several.

    ``images``, ``mask`` (True = observed), ``train`` and the result are (image, plane, row, col). Images may have
    anything where the mask is False, training images are whole; observed pixels stay as they are.
    """
    holed, flat = _flat(images, mask, train)
    imputer = KNNImputer(n_neighbors=neighbours, keep_empty_features=True).fit(flat)
    return imputer.transform(holed).reshape(np.shape(mask))


def fill_by_pca(images: Array, mask: Array, train: Array, components: int) -> np.ndarray:
    r"""Fill in the mean of the hidden pixels given the observed ones, under a Gaussian fitted to training images.

    .. math:: \hat x_h = \mu_h + C_{ho}\, C_{oo}^{-1} (x_o - \mu_o), \qquad C = V V^\top + \sigma^2 I

    The covariance is that of probabilistic principal components (Tipping & Bishop 1999), and the gain is computed as
    :math:`V_h (\sigma^2 I + V_o^\top V_o)^{-1} V_o^\top`, so no matrix of all pixels is made. Arguments and result as
    in `fill_by_neighbour`; ``components`` is the number of columns of V.
    """
    out, flat = _flat(images, mask, train)
    model = PCA(components, svd_solver="full").fit(flat)
    basis = model.components_.T * np.sqrt(np.maximum(model.explained_variance_ - model.noise_variance_, 0))
    for image in out:
        hidden = np.isnan(image)
        seen, rest = basis[~hidden], (image - model.mean_)[~hidden]
        # least squares, as without noise the matrix need not have full rank
        code = np.linalg.lstsq(model.noise_variance_ * np.eye(components) + seen.T @ seen, seen.T @ rest)[0]
        image[hidden] = model.mean_[hidden] + basis[hidden] @ code
    return out.reshape(np.shape(mask))


def choose_components(train: Array, mask: Array, candidates: Sequence[int] = COMPONENTS) -> int:
    """Number of components that fills best in training images: a fifth of them is held out and hidden by these masks.

    ``mask`` : of the images to be filled in later, in turn. Candidates too large for the other four fifths are left out
    """
    train, mask = as_pixels(train, "train"), as_plain(mask, IMAGES, "mask")
    if len(train) < 10:
        raise GddError(f"train: {len(train)} along axis 'image'; at least 10 are needed")
    held = np.arange(len(train)) % 5 == 4
    tried, rest = train[held][: len(mask)], train[~held]
    hidden = mask[np.arange(len(tried)) % len(mask)]
    fits = [n for n in candidates if n < min(len(rest), rest[0].size)]
    errors = [hidden_error(fill_by_pca(tried, hidden, rest, n), tried, hidden).mean() for n in fits]
    return fits[int(np.argmin(errors))]


def _flat(images: Array, mask: Array, train: Array) -> tuple[np.ndarray, np.ndarray]:
    """Images (image, pixel) with NaN where hidden, and training images (image, pixel)."""
    mask = as_plain(mask, IMAGES, "mask")
    images = as_pixels(images, "images", mask, constant=True, dtype=np.float64)
    train = as_pixels(train, "train", dtype=np.float64)
    return np.where(mask, images, np.nan).reshape(len(images), -1), train.reshape(len(train), -1)
