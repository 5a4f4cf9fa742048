"""Features of images for a classifier that need no chain, and how features are unfolded and stacked.

One step gives the posterior moments of every pooling block of a layer, or of every placed atom at test time, with all
others set to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, FEATURE, IMAGE, IMAGES, MAPS
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
from gdd.base.compiling import kernel, share_out
from gdd.inference.deconvolution import AVERAGES, along_images, check_atoms, prior_odds
from gdd.inference.features_kernels import all_magnitudes, magnitudes_of_maps
from gdd.model.convolution import correlate, correlate_each, valid_size
from gdd.model.placement import correlate_at_stride, placement_grid, sum_at_stride
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
        parts.append(_moments(correlate(part, atoms), given, gamma_w, 1.0, blocks)[2])
    return np.concatenate(parts)


def _magnitudes(images, atoms, precision, gamma_w: float, blocks: tuple[int, int, int]) -> np.ndarray:
    """Mean magnitude of every block, (image, atom, block_row, block_col), in single precision; see `_moments`."""
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


def one_step_codes(
    images: Array, atoms: Array, stride: tuple[int, int], *, gamma_e: float, gamma_w: float
) -> xr.Dataset:
    r"""Posterior moments of each coefficient of a deconvolution with all others set to zero.

    No chain, no random numbers:

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
    gamma_e : noise precision
    gamma_w : precision of the weights

    Returns
    -------
    Dataset
        ``mean``, ``inclusion``, ``magnitude`` (image, atom, row, col): of S, of Z and of \|S\|, in the type of the
        images; positions and names as those of `gdd.inference.deconvolution.deconvolve`.

    Notes
    -----
    Source: none in the paper; the conditional of its supplement, "Testing", used as a feed-forward feature.
    Departs: the paper takes its features from a chain, in which atoms share what they explain.
    Checked: tests/test_features.py (against the plain conditional; equal to the chain's averages where atoms do not
    overlap).
    """
    coords = along_images(images)
    images, placed = place(images, atoms, stride, gamma_e, gamma_w, numbers=3)
    norm = placed.norms(np.ones_like(images[:1]))[0]
    chunks = (images[low : low + CHUNK] for low in range(0, len(images), CHUNK))
    parts = [placed.moments(placed.correlations(part), norm) for part in chunks]
    found = zip(AVERAGES, np.concatenate(parts, axis=1), strict=True)
    return xr.Dataset({name: (MAPS, values) for name, values in found}, coords)


class Placed(NamedTuple):
    """Atoms at every position of a deconvolution, in units of noise precision 1. Maps: (image, atom, row, col)."""

    atoms: np.ndarray  # (atom, plane, atom_row, atom_col)
    stride: tuple[int, int]
    image_size: tuple[int, int]
    gamma_w: float

    def correlations(self, images: np.ndarray, atoms: np.ndarray | None = None) -> np.ndarray:
        """Inner products of images with every placed atom."""
        found = correlate_at_stride(images, self.atoms if atoms is None else atoms, self.stride)
        return np.ascontiguousarray(found.transpose(0, 3, 1, 2))

    def norms(self, seen: np.ndarray) -> np.ndarray:
        """Squared norms of what is ``seen`` (image, plane, row, col; 1 or 0) of every placed atom."""
        return self.correlations(seen, self.atoms**2)

    def sums(self, maps: np.ndarray) -> np.ndarray:
        """Images that the placed atoms add up to."""
        return sum_at_stride(maps.transpose(0, 2, 3, 1), self.atoms, self.stride, self.image_size)

    def moments(self, correlations: np.ndarray, norm: np.ndarray) -> np.ndarray:
        """Posterior mean, inclusion, mean magnitude of each coefficient alone: (moment, image, atom, row, col).

        correlations : of what the others leave of the image
        norm : (atom, row, col)
        """
        odds = prior_odds(len(self.atoms))
        return _moments(correlations, norm.astype(float) + self.gamma_w, self.gamma_w, odds, (1, 1, 0))


def place(
    images: Array, atoms: Array, stride: tuple[int, int], gamma_e: float, gamma_w: float, numbers: int, mask=None
) -> tuple[np.ndarray, Placed]:
    """Check images and atoms, and scale both to noise precision 1; ``numbers`` of a coefficient are kept."""
    images = as_pixels(images, mask=mask, constant=mask is not None)
    atoms = check_atoms(atoms, images, least=2)
    scale = np.sqrt(check_precision("gamma_e", gamma_e)).astype(images.dtype)
    stride, gamma_w = check_pair("stride", stride), check_precision("gamma_w", gamma_w)
    size = len(images) * len(atoms) * math.prod(placement_grid(images.shape[2:], atoms.shape[2:], stride))
    check_memory("images, atoms, stride", numbers * size, images.itemsize)
    return images * scale, Placed(atoms.astype(images.dtype) * scale, stride, images.shape[2:], gamma_w)


def _moments(maps, precision, gamma_w: float, odds: float, blocks: tuple[int, int, int]) -> np.ndarray:
    """Posterior mean, probability of being active and mean magnitude of every block, all others set to zero.

    maps : (image, atom, row, col)        correlations, in units of noise precision 1
    precision : (atom, row or 1, col or 1)    of the weights given the image
    odds : of one position being active against none, before the image is seen
    blocks : rows and columns of a block, margin
    """
    sd = np.broadcast_to(precision**-0.5, maps.shape[1:])
    log_odds = np.broadcast_to(math.log(odds) + 0.5 * np.log(gamma_w / precision), maps.shape[1:])
    out = np.empty((3, *maps.shape[:2], *block_grid(maps.shape[2:], blocks[:2])), maps.dtype)
    share_out(len(maps), lambda some, _: _all_moments((some.start, some.stop), maps, sd, log_odds, blocks, out))
    return out


@kernel()
def _all_moments(images, maps, sd, log_odds, blocks, out):
    """`_moments` of images from one number to another, into ``out`` (moment, image, atom, block_row, block_col)."""
    rows, cols = maps.shape[2:]
    pool_row, pool_col, margin = blocks
    log_odds_now, given = np.empty((rows, cols)), np.empty((2, rows, cols))
    for n in range(images[0], images[1]):
        for k in range(maps.shape[1]):
            for a, b in np.ndindex(rows, cols):
                answer = sd[k, a, b] * maps[n, k, a, b]  # the mean in standard deviations
                gain = 0.5 * answer**2
                folded = math.sqrt(2.0 / math.pi) * math.exp(-gain) + answer * math.erf(answer / math.sqrt(2.0))
                log_odds_now[a, b] = log_odds[k, a, b] + gain
                given[0, a, b], given[1, a, b] = answer, folded
            for i, j in np.ndindex(out.shape[3:]):
                top, bottom = max(i * pool_row - margin, 0), min((i + 1) * pool_row + margin, rows)
                left, right = max(j * pool_col - margin, 0), min((j + 1) * pool_col + margin, cols)
                here = slice(top, bottom), slice(left, right)
                found = _block_moments(log_odds_now[here], sd[k][here], given[:, top:bottom, left:right])
                out[0, n, k, i, j], out[1, n, k, i, j], out[2, n, k, i, j] = found


@kernel()
def _block_moments(log_odds, sd, given):
    """Mean, inclusion and mean magnitude of one block.

    log_odds : of the positions, the empty outcome having 0
    sd : of the weight, (row, col)
    given : its mean and its mean magnitude in standard deviations, each (row, col), if that position is the active one
    """
    top = max(log_odds.max(), 0.0)  # log-sum-exp offset
    total, mean, magnitude = 0.0, 0.0, 0.0
    for a, b in np.ndindex(log_odds.shape):
        odds = np.exp(log_odds[a, b] - top)
        total += odds
        mean += odds * sd[a, b] * given[0, a, b]
        magnitude += odds * sd[a, b] * given[1, a, b]
    norm = total + np.exp(-top)
    return mean / norm, total / norm, magnitude / norm
