"""Features of images for a classifier: unfolded maps, and those of one step, without a chain.

One step asks how strongly every block of a pooled layer, or every atom at test time, would answer to the image if it
were alone with it.
"""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from numba import prange
from scipy.special import erf, expit

from gdd.base.axes import BLOCKS, DICTIONARY, FEATURE, IMAGE, MAPS
from gdd.base.checks import (
    GddError,
    as_array,
    as_finite,
    as_pixels,
    as_plain,
    check_block,
    check_memory,
    check_pair,
    check_precision,
    check_whole,
)
from gdd.base.compiling import kernel
from gdd.inference.deconvolution import check_atoms, noise_precision
from gdd.model.convolution import correlate
from gdd.model.placement import correlate_at_stride, placement_grid

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
        Bad pixels (see `gdd.base.axes.check_images`), sizes that do not fit, a precision that is not positive.

    Notes
    -----
    Source: none in the paper; the block conditional of its Sec. 2.2 used as a feed-forward feature.
    Departs: the paper takes its features from a chain, and its blocks do not overlap.
    Checked: tests/test_features.py (formula written out by hand; numerical integration).
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    images, atoms, scale = _scaled(images, dictionary, "dictionary", gamma_e)
    pool, gamma_w = check_block("pool", pool), check_precision("gamma_w", gamma_w)
    margin = check_whole("margin", margin, 0)
    precision = np.einsum("kpij,kpij->k", atoms, atoms, dtype=float) + gamma_w
    parts = []
    for low in range(0, len(images), _CHUNK):
        maps = correlate(images[low : low + _CHUNK] * scale, atoms)
        grid = tuple(-(-m // p) for m, p in zip(maps.shape[2:], pool, strict=True))
        parts.append(np.empty((*maps.shape[:2], *grid), images.dtype))
        _expected_weights(maps, precision, gamma_w, *pool, margin, parts[-1])
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    return xr.DataArray(np.concatenate(parts), along, BLOCKS, "one_step")


def one_step_codes(
    images: np.ndarray | xr.DataArray,
    atoms: np.ndarray | xr.DataArray,
    stride: tuple[int, int],
    *,
    gamma_e: float | np.ndarray,
    gamma_w: float,
) -> xr.Dataset:
    r"""What `gdd.inference.deconvolution.deconvolve` would find of every coefficient, were it alone with the image.

    The conditional of one placed atom, all the others explaining nothing. No chain, no random numbers:

    .. math:: p_i = \sigma\left(\log\frac{1}{K - 1} + \tfrac12 \log\frac{\gamma_w}{\lambda_i}
              + \frac{\lambda_i \mu_i^2}{2}\right), \qquad
              E s_i = p_i \mu_i, \qquad E|s_i| = p_i\, E|\mathcal N(\mu_i, \lambda_i^{-1})|

    with :math:`\mu_i = \gamma_e \langle x, d_i \rangle / \lambda_i` and
    :math:`\lambda_i = \gamma_e \|d_i\|^2 + \gamma_w`.

    Parameters
    ----------
    images : (image, plane, row, col)
    atoms : (atom, plane, atom_row, atom_col)   projected top atoms, Dtilde in the paper
    stride : pixels (row, col) between positions
    gamma_e : noise precision, a number or one per plane
    gamma_w : precision of the weights

    Returns
    -------
    Dataset
        ``mean``, ``inclusion``, ``magnitude`` (image, atom, row, col): of S, of Z and of \|S\|, in the type of the
        images; positions and names as those of `gdd.inference.deconvolution.deconvolve`.

    Raises
    ------
    GddError
        Bad pixels (see `gdd.base.axes.check_images`), sizes that do not fit, one atom only, a precision that is not
        positive.

    Notes
    -----
    Source: none in the paper; the conditional of its supplement, "Testing", used as a feed-forward feature.
    Departs: the paper takes its features from a chain, in which atoms share what they explain.
    Checked: tests/test_features.py (against the plain conditional; equal to the chain's averages where atoms do not
    overlap).
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    images, atoms, scale = _scaled(images, atoms, "atoms", gamma_e)
    check_atoms(atoms, images.shape[2:])
    stride, gamma_w = check_pair("stride", stride), check_precision("gamma_w", gamma_w)
    size = 3 * len(images) * len(atoms) * math.prod(placement_grid(images.shape[2:], atoms.shape[2:], stride))
    check_memory("images, atoms, stride", size, images.itemsize)
    precision = correlate_at_stride(np.ones_like(images[:1]), atoms**2, stride)[0].astype(float) + gamma_w
    sd, log_odds = precision**-0.5, 0.5 * np.log(gamma_w / precision) - np.log(len(atoms) - 1)
    found = {name: [] for name in ("mean", "inclusion", "magnitude")}
    for low in range(0, len(images), _CHUNK):
        answer = correlate_at_stride(images[low : low + _CHUNK] * scale, atoms, stride) * sd  # in standard deviations
        p = expit(log_odds + 0.5 * answer**2)
        folded = math.sqrt(2 / math.pi) * np.exp(-0.5 * answer**2) + answer * erf(answer / math.sqrt(2))
        for name, values in zip(found, (p * answer * sd, p, p * folded * sd), strict=True):
            found[name].append(values.astype(images.dtype).transpose(0, 3, 1, 2))
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    return xr.Dataset({name: (MAPS, np.concatenate(parts)) for name, parts in found.items()}, along)


def _scaled(images, atoms, argument: str, gamma_e) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check images and atoms; return the images, the atoms in units of noise precision 1, the factor by plane."""
    images, atoms = as_pixels(images), as_finite(atoms, DICTIONARY, argument)
    if images.shape[1] != atoms.shape[1]:
        raise GddError(f"{argument}: {atoms.shape[1]} along axis 'plane', the images have {images.shape[1]}")
    scale = np.sqrt(noise_precision(gamma_e, images.shape[1])).astype(images.dtype)[:, None, None]
    return images, atoms.astype(images.dtype) * scale, scale


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


@kernel(error_model="numpy")
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
