"""Features of images for a classifier that need no chain, and how features are unfolded and stacked.

One step gives the posterior mean magnitude of every pooling block of a layer with all others set to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, FEATURE, IMAGE, IMAGES
from gdd.base.checks import (
    GddError,
    as_array,
    as_finite,
    as_pixels,
    as_plain,
    check_block,
    check_precision,
    check_whole,
)
from gdd.base.compiling import kernel, share_out
from gdd.inference.deconvolution import along_images, check_atoms
from gdd.inference.features_kernels import all_magnitudes, magnitudes_of_maps
from gdd.model.convolution import correlate, correlate_each, valid_size
from gdd.model.pooling import block_grid

Array = np.ndarray | xr.DataArray

#: images, and numbers of their correlation maps, that are held at once
CHUNK, _HELD = 128, 2**25
#: numbers of an atom up to which sums at every position cost less than Fourier transforms
_LARGEST_DIRECT = 512


def unfold(features: Array) -> xr.DataArray:
    """All values of an image in one row: (image, feature). Coordinates along ``image`` are kept."""
    if not isinstance(features, xr.DataArray):
        features = as_array(features, "features")
        names = (IMAGE, *(f"axis_{i}" for i in range(1, features.ndim)))
        features = xr.DataArray(features, dims=names[: features.ndim])
    if IMAGE not in features.dims or features.ndim < 2:
        raise GddError(f"features: axes {features.dims} given; 'image' and at least one more are needed")
    plain = features.transpose(IMAGE, ...)
    as_plain(plain, plain.dims, "features")
    values = as_finite(plain.values.reshape(len(plain), -1), (IMAGE, FEATURE), "features")
    return xr.DataArray(values, along_images(features), (IMAGE, FEATURE), features.name)


def stack_features(parts: Sequence[Array], training: Sequence[Array] | None = None) -> xr.DataArray:
    """Features of several layers side by side, (image, feature), each layer over its root mean square in training.

    Parameters
    ----------
    parts : (image, ...) each, of the same images
    training : the same layers' features of training images; if not given, ``parts`` are those
    """
    flat, known = ([unfold(part) for part in group] for group in (parts, parts if training is None else training))
    sizes = [max(float(np.sqrt((part.astype(float) ** 2).mean())), 1e-12) for part in known]
    return xr.concat([part / size for part, size in zip(flat, sizes, strict=True)], FEATURE)


def one_step_features(
    images: Array, dictionary: Array, pool: tuple[int, int], *, gamma_e: float, gamma_w: float,
    margin: int = 0, mask: np.ndarray | None = None,
) -> xr.DataArray:
    r"""Posterior mean magnitude of every pooling block of a layer with all others set to zero.

    The block's conditional of the layer's sampler, with theta at its prior mean (all outcomes alike, so that it drops
    out). No chain, no random numbers:

    .. math:: E|w| = \sum_m p_m\, E|\mathcal N(\mu_m, \lambda^{-1})|, \qquad
              p_m = \frac{o_m}{1 + \sum_j o_j}, \qquad o_m = \sqrt{\gamma_w / \lambda}\, e^{\lambda \mu_m^2 / 2}

    with :math:`\mu_m = \gamma_e \langle x, d_m \rangle / \lambda` and
    :math:`\lambda = \gamma_e \|d\|^2 + \gamma_w`.

    Parameters
    ----------
    images : (image, plane, row, col)
    dictionary : (atom, plane, atom_row, atom_col)   D of the layer
    pool : (row, col) of a block; edge blocks may be smaller
    gamma_e : noise precision
    gamma_w : precision of the weights
    margin : every block is widened by so many positions on each side, so that neighbours overlap

    mask : (image, plane, row, col) of bool, True = observed; None: all observed

    Returns
    -------
    (image, atom, block_row, block_col), in the units of the weights, never negative. Those of single-precision images
    are made in single precision. They depend on the image alone: not on how many there are, nor on threads.

    Notes
    -----
    With hidden pixels, :math:`\|d\|` is that of what is observed of the atom at each position.

    Source: none in the paper; the block conditional of its Sec. 2.2 used as a feed-forward feature.
    Departs: the paper takes its features from a chain, and its blocks do not overlap.
    Checked: tests/test_features.py (formula written out by hand; numerical integration; single against double
    precision).
    """
    coords = along_images(images)
    seen = None if mask is None else as_plain(mask, IMAGES, "mask")
    images = as_pixels(images, mask=seen)
    atoms = check_atoms(dictionary, images, "dictionary")
    blocks = (*check_block("pool", pool), check_whole("margin", margin, 0))
    precisions = check_precision("gamma_e", gamma_e), check_precision("gamma_w", gamma_w)
    return xr.DataArray(block_magnitudes(images, atoms, blocks, *precisions, seen), coords, BLOCKS, "one_step")


def block_magnitudes(
    images: np.ndarray, atoms: np.ndarray, blocks: tuple[int, int, int], gamma_e: float, gamma_w: float,
    seen: np.ndarray | None = None,
) -> np.ndarray:
    """`one_step_features` of arrays that have been checked; ``blocks`` : rows and columns of a block, margin."""
    scale = images.dtype.type(np.sqrt(gamma_e))
    atoms, parts = atoms.astype(images.dtype) * scale, []
    precision = np.einsum("kpij,kpij->k", atoms, atoms, dtype=float) + gamma_w
    few = max(1, min(CHUNK, _HELD // (len(atoms) * math.prod(valid_size(images, atoms)))))
    for low in range(0, len(images), step := 1 if seen is not None else few):
        part, given = images[low : low + step] * scale, precision[:, None, None]
        if seen is not None and not seen[low].all():  # one image, of which only some pixels are observed
            given = correlate(seen[low : low + 1].astype(float), atoms.astype(float) ** 2)[0].clip(0) + gamma_w
        elif part.dtype == np.float32:
            parts.append(_magnitudes(part, atoms, precision, gamma_w, blocks))
            continue
        parts.append(_magnitudes_given(correlate(part, atoms), given, gamma_w, blocks))
    return np.concatenate(parts)


def _magnitudes(images, atoms, precision, gamma_w: float, blocks: tuple[int, int, int]) -> np.ndarray:
    """Mean magnitude of every block, (image, atom, block_row, block_col), in single precision."""
    sd, log_odds = (precision**-0.5).astype(np.float32), (0.5 * np.log(gamma_w / precision)).astype(np.float32)
    out = np.empty((len(images), len(atoms), *block_grid(valid_size(images, atoms), blocks[:2])), np.float32)
    direct = math.prod(atoms.shape[1:]) <= _LARGEST_DIRECT

    def some(numbers: slice, _) -> None:
        if direct:
            all_magnitudes(images[numbers], atoms, sd, log_odds, blocks, out[numbers])
        else:
            magnitudes_of_maps(correlate_each(images[numbers], atoms), sd, log_odds, blocks, out[numbers])

    share_out(len(images), some)
    return out


def _magnitudes_given(maps, precision, gamma_w: float, blocks: tuple[int, int, int]) -> np.ndarray:
    """Mean magnitude of every block, all others set to zero, for whatever precision a position has.

    maps : (image, atom, row, col)        correlations, in units of noise precision 1
    precision : (atom, row or 1, col or 1)    of the weights given the image
    blocks : rows and columns of a block, margin
    """
    sd = np.broadcast_to(precision**-0.5, maps.shape[1:])
    log_odds = np.broadcast_to(0.5 * np.log(gamma_w / precision), maps.shape[1:])
    out = np.empty((*maps.shape[:2], *block_grid(maps.shape[2:], blocks[:2])), maps.dtype)
    share_out(len(maps), lambda some, _: _fill_magnitudes((some.start, some.stop), maps, sd, log_odds, blocks, out))
    return out


@kernel()
def _fill_magnitudes(images, maps, sd, log_odds, blocks, out):
    """`_magnitudes_given` of images from one number to another, into ``out`` (image, atom, block_row, block_col)."""
    rows, cols = maps.shape[2:]
    pool_row, pool_col, margin = blocks
    log_odds_now, folded = np.empty((rows, cols)), np.empty((rows, cols))
    for n in range(images[0], images[1]):
        for k in range(maps.shape[1]):
            for a, b in np.ndindex(rows, cols):
                answer = sd[k, a, b] * maps[n, k, a, b]  # the mean in standard deviations
                gain = 0.5 * answer**2
                folded[a, b] = math.sqrt(2.0 / math.pi) * math.exp(-gain) + answer * math.erf(answer / math.sqrt(2.0))
                log_odds_now[a, b] = log_odds[k, a, b] + gain
            for i, j in np.ndindex(out.shape[2:]):
                top, bottom = max(i * pool_row - margin, 0), min((i + 1) * pool_row + margin, rows)
                left, right = max(j * pool_col - margin, 0), min((j + 1) * pool_col + margin, cols)
                here = slice(top, bottom), slice(left, right)
                out[n, k, i, j] = _block_magnitude(log_odds_now[here], sd[k][here], folded[here])


@kernel()
def _block_magnitude(log_odds, sd, folded):
    """Mean magnitude of one block.

    log_odds : of the positions, the empty outcome having 0
    sd : of the weight, (row, col)
    folded : its mean magnitude in standard deviations if that position is the active one
    """
    top = max(log_odds.max(), 0.0)  # log-sum-exp offset
    total, magnitude = 0.0, 0.0
    for a, b in np.ndindex(log_odds.shape):
        odds = np.exp(log_odds[a, b] - top)
        total += odds
        magnitude += odds * sd[a, b] * folded[a, b]
    return magnitude / (total + np.exp(-top))
