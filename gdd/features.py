"""Features of images for a classifier: unfolded maps, and the one-step features of a pooled layer."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from numba import prange

from gdd.axes import BLOCKS, DICTIONARY, FEATURE, IMAGE, GddError, as_array, as_finite, as_pixels, as_plain
from gdd.checks import check_block, check_precision, check_whole
from gdd.compiling import INNER, kernel
from gdd.convolution import correlate
from gdd.deconvolution import noise_precision

#: images whose correlation maps are held at once
_CHUNK = 64


def unfold(features: np.ndarray | xr.DataArray) -> xr.DataArray:
    """All values of an image in one row: (image, feature). Coordinates along ``image`` are kept.

    Raises
    ------
    GddError
        No axis ``image``, fewer than two axes, an empty one, or a value that is NaN, infinite or huge.
    """
    if not isinstance(features, xr.DataArray):
        features = as_array(features, "features")
        names = (IMAGE, *(f"axis_{i}" for i in range(1, features.ndim)))
        features = xr.DataArray(features, dims=names[: features.ndim])
    if IMAGE not in features.dims or features.ndim < 2:
        raise GddError(f"features: axes {features.dims} given; 'image' and at least one more are needed")
    plain = features.transpose(IMAGE, ...)
    as_plain(plain, plain.dims, "features")
    values = as_finite(plain.values.reshape(len(plain), -1), (IMAGE, FEATURE), "features")
    along = {name: c.variable for name, c in features.coords.items() if c.dims == (IMAGE,)}
    return xr.DataArray(values, along, (IMAGE, FEATURE), features.name)


def one_step_features(
    images: np.ndarray | xr.DataArray,
    dictionary: np.ndarray | xr.DataArray,
    pool: tuple[int, int],
    *,
    gamma_e: float | np.ndarray,
    gamma_w: float,
    margin: int = 0,
) -> xr.DataArray:
    r"""How strongly every pooling block of a layer would answer to the image if it were alone with it.

    The block's conditional of the layer's sampler, with no other block explaining anything and theta at its prior mean
    (all outcomes alike, so that it drops out). No chain, no random numbers:

    .. math:: E|w| = \sum_m p_m\, E|\mathcal N(\mu_m, \lambda^{-1})|, \qquad
              p_m = \frac{o_m}{1 + \sum_j o_j}, \qquad o_m = \sqrt{\gamma_w / \lambda}\, e^{\lambda \mu_m^2 / 2}

    with :math:`\mu_m = \gamma_e \langle x, d_m \rangle / \lambda` and
    :math:`\lambda = \gamma_e \|d\|^2 + \gamma_w`.

    Parameters
    ----------
    images : (image, plane, row, col)
    dictionary : (atom, plane, atom_row, atom_col)   D of the layer
    pool : (row, col) of a block; edge blocks may be smaller
    gamma_e : noise precision, a number or one per plane
    gamma_w : precision of the weights
    margin : every block is widened by so many positions on each side, so that neighbours overlap

    Returns
    -------
    (image, atom, block_row, block_col), in the units of the weights, never negative

    Raises
    ------
    GddError
        Bad pixels (see `gdd.axes.check_images`), sizes that do not fit, a precision that is not positive.

    Notes
    -----
    Source: none in the paper; the block conditional of its Sec. 2.2 used as a feed-forward feature.
    Departs: the paper takes its features from a chain, and its blocks do not overlap.
    Checked: tests/test_features.py (formula written out by hand; numerical integration).
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    images, atoms = as_pixels(images), as_finite(dictionary, DICTIONARY, "dictionary")
    if images.shape[1] != atoms.shape[1]:
        raise GddError(f"dictionary: {atoms.shape[1]} along axis 'plane', the images have {images.shape[1]}")
    pool, gamma_w = check_block("pool", pool), check_precision("gamma_w", gamma_w)
    margin = check_whole("margin", margin, 0)
    scale = np.sqrt(noise_precision(gamma_e, images.shape[1])).astype(images.dtype)[:, None, None]
    atoms = atoms.astype(images.dtype) * scale
    precision = np.einsum("kpij,kpij->k", atoms, atoms, dtype=float) + gamma_w
    parts = []
    for low in range(0, len(images), _CHUNK):
        maps = correlate(images[low : low + _CHUNK] * scale, atoms)
        grid = tuple(-(-m // p) for m, p in zip(maps.shape[2:], pool, strict=True))
        parts.append(np.empty((*maps.shape[:2], *grid), images.dtype))
        _expected_weights(maps, precision, gamma_w, *pool, margin, parts[-1])
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    return xr.DataArray(np.concatenate(parts), along, BLOCKS, "one_step")


@kernel(parallel=True, nogil=True, error_model="numpy")
def _expected_weights(maps, precision, gamma_w, pool_row, pool_col, margin, out):
    """Expected absolute weight of every block from the correlation maps. Changes ``out``."""
    images, atoms, rows, cols = maps.shape
    for n in prange(images):
        for k in range(atoms):
            sd = 1.0 / np.sqrt(precision[k])
            log_slab = 0.5 * np.log(gamma_w / precision[k])
            for i in range(out.shape[2]):
                for j in range(out.shape[3]):
                    top, bottom = max(i * pool_row - margin, 0), min((i + 1) * pool_row + margin, rows)
                    left, right = max(j * pool_col - margin, 0), min((j + 1) * pool_col + margin, cols)
                    out[n, k, i, j] = _expected_weight(maps[n, k, top:bottom, left:right], sd, log_slab)


@kernel(**INNER, error_model="numpy")
def _expected_weight(block, sd, log_slab):
    top = 0.0  # of the log odds, the empty outcome's being 0: keeps the exponentials from overflowing
    for c in block.flat:
        top = max(top, log_slab + 0.5 * (sd * c) ** 2)
    total, weighted = np.exp(-top), 0.0
    for c in block.flat:
        gain = 0.5 * (sd * c) ** 2
        odds = np.exp(log_slab + gain - top)
        total += odds
        folded = sd * math.sqrt(2.0 / math.pi) * math.exp(-gain) + sd * sd * c * math.erf(sd * c / math.sqrt(2.0))
        weighted += odds * folded  # the mean magnitude of N(sd^2 c, sd^2)
    return weighted / total
