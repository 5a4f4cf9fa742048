"""Features of images for a classifier that need no chain, and how features are unfolded and stacked.

One step gives the posterior mean magnitude of every pooling block of a layer with all others set to zero. The formula
is `plain_magnitudes`; in single precision, where nothing is hidden, kernels compute the same in loops over contiguous
numbers. Images and atoms come scaled by the square root of the noise precision, so that the noise has precision 1.
Maps of the kernels keep the row length of what they were made from: position (row, col) stands at ``row * step + col``,
and what lies between the last position of a row and the first of the next has no meaning.

The numbers of an image depend on that image and on the sizes alone: one image at a time, sums in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.special import erf

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
from gdd.base.compiling import kernel, share_out, subkernel
from gdd.inference.deconvolution import along_images, check_atoms
from gdd.model.convolution import correlate, correlate_each, valid_size
from gdd.model.pooling import block_grid
from gdd.reference.conditionals import slab_log_odds

Array = np.ndarray | xr.DataArray

#: images, and numbers of their correlation maps, that are held at once
CHUNK, _HELD = 128, 2**25
#: numbers of an atom up to which sums at every position cost less than Fourier transforms
_LARGEST_DIRECT = 512
#: products may be fused with sums; the order of sums stays
FUSED = {"contract", "nsz", "arcp"}
#: below it the exponential underflows in single precision
LEAST_EXPONENT = np.float32(-87.0)
#: e^x = 2^n e^r with r within half of log 2, whose two parts these are; then Cephes' polynomial of expf
LOG2_E, LOG2_HIGH, LOG2_LOW = np.float32(math.log2(math.e)), np.float32(0.693359375), np.float32(-2.12194440e-4)
E = tuple(np.float32([1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                      5.0000001201e-1]))
#: 1 - erf(x) = t (a1 + t (a2 + ...)) exp(-x^2), t = 1 / (1 + p x): Abramowitz & Stegun 7.1.26, error below 1.5e-7
ERF_P = np.float32(0.3275911 / math.sqrt(2))
ERF = tuple(np.float32([0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429]))
FOLD, HALF, ONE, ZERO = np.float32(math.sqrt(2 / math.pi)), np.float32(0.5), np.float32(1.0), np.float32(0.0)


def unfold(features: Array) -> xr.DataArray:
    """All values of an image in one row: (image, feature). Coordinates along ``image`` are kept."""
    if not isinstance(features, xr.DataArray):
        features = as_array(features, "features")
        names = (IMAGE, *(f"axis_{i}" for i in range(1, features.ndim)))
        features = xr.DataArray(features, dims=names[: features.ndim])
    if IMAGE not in features.dims or features.ndim < 2:
        raise GddError(f"features: axes {features.dims} given; 'image' and at least one more are needed")
    values = features.transpose(IMAGE, ...).values
    values = as_finite(values.reshape(len(values), math.prod(values.shape[1:])), (IMAGE, FEATURE), "features")
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
    observed = None if mask is None else as_plain(mask, IMAGES, "mask")
    images = as_pixels(images, mask=observed)
    atoms = check_atoms(dictionary, images, "dictionary")
    blocks = (*check_block("pool", pool), check_whole("margin", margin, 0))
    precisions = check_precision("gamma_e", gamma_e), check_precision("gamma_w", gamma_w)
    return xr.DataArray(block_magnitudes(images, atoms, blocks, *precisions, observed), coords, BLOCKS, "one_step")


def block_magnitudes(
    images: np.ndarray, atoms: np.ndarray, blocks: tuple[int, int, int], gamma_e: float, gamma_w: float,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """`one_step_features` of arrays that have been checked; ``blocks`` : rows and columns of a block, margin."""
    scale = images.dtype.type(np.sqrt(gamma_e))
    atoms, parts, single = atoms.astype(images.dtype) * scale, [], images.dtype == np.float32
    precision = np.einsum("kpij,kpij->k", atoms, atoms, dtype=float) + gamma_w
    batch = max(1, min(CHUNK, _HELD // (len(atoms) * math.prod(valid_size(images, atoms)))))
    for low in range(0, len(images), step := batch if single and observed is None else 1):
        part, unmasked = images[low : low + step] * scale, observed is None or observed[low].all()
        if single and unmasked:
            parts.append(_magnitudes(part, atoms, precision, gamma_w, blocks))
            continue
        given = precision[:, None, None]
        if not unmasked:
            given = correlate(observed[low : low + 1].astype(float), atoms.astype(float) ** 2)[0].clip(0) + gamma_w
        parts.append(plain_magnitudes(correlate(part, atoms), given, gamma_w, blocks))
    return np.concatenate(parts)


def plain_magnitudes(
    maps: np.ndarray, precision: np.ndarray, gamma_w: float, blocks: tuple[int, int, int]
) -> np.ndarray:
    """Mean magnitude of every block, all others set to zero, as the formula reads.

    maps : (image, atom, row, col)        correlations, in units of noise precision 1
    precision : (atom, row or 1, col or 1)    of the weights given the image
    blocks : rows and columns of a block, margin
    """
    sd, (p, q, margin) = precision**-0.5, blocks
    answer = sd * maps  # the mean in standard deviations
    folded = sd * (math.sqrt(2 / math.pi) * np.exp(-0.5 * answer**2) + answer * erf(answer / math.sqrt(2)))
    log_odds = slab_log_odds(maps, precision, gamma_w)
    out = np.empty((*maps.shape[:2], *block_grid(maps.shape[2:], (p, q))), maps.dtype)
    for i, j in np.ndindex(out.shape[2:]):
        rows, cols = (slice(max(n * size - margin, 0), (n + 1) * size + margin) for n, size in ((i, p), (j, q)))
        log_weight, magnitude = (part[..., rows, cols].reshape(*maps.shape[:2], -1) for part in (log_odds, folded))
        offset = log_weight.max(axis=2, keepdims=True).clip(0)  # log-sum-exp offset
        weight = np.exp(log_weight - offset)
        out[:, :, i, j] = (weight * magnitude).sum(axis=2) / (weight.sum(axis=2) + np.exp(-offset[..., 0]))
    return out


def _magnitudes(images, atoms, precision, gamma_w: float, blocks: tuple[int, int, int]) -> np.ndarray:
    """Mean magnitude of every block, (image, atom, block_row, block_col), in single precision."""
    sd, log_odds = (precision**-0.5).astype(np.float32), slab_log_odds(0.0, precision, gamma_w).astype(np.float32)
    out = np.empty((len(images), len(atoms), *block_grid(valid_size(images, atoms), blocks[:2])), np.float32)

    def fill(part: slice, _) -> None:
        if math.prod(atoms.shape[1:]) <= _LARGEST_DIRECT:
            all_magnitudes(images[part], atoms, sd, log_odds, blocks, out[part])
        else:
            magnitudes_of_maps(correlate_each(images[part], atoms), sd, log_odds, blocks, out[part])

    share_out(len(images), fill)
    return out


# ---- in single precision


@subkernel(fastmath=FUSED)
def exponential(x):
    """e^x of a number that is not positive, to single precision, without a call that would stop vectorising."""
    x = max(x, LEAST_EXPONENT)
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LOG2_HIGH - n * LOG2_LOW
    p = ((((E[0] * r + E[1]) * r + E[2]) * r + E[3]) * r + E[4]) * r + E[5]
    power = np.int32((np.int32(n) + 127) << 23).view(np.float32)
    return (p * r * r + r + ONE) * power


@kernel(fastmath=FUSED)
def all_magnitudes(pixels, atoms, sd, log_odds, blocks, out):
    """Expected magnitude of every block of some images, into ``out`` (image, atom, block_row, block_col).

    pixels : (image, plane, row, col)
    atoms : (atom, plane, atom_row, atom_col)
    sd, log_odds : (atom,): standard deviation of a weight given its position; log odds of a position without answer
    blocks : rows and columns of a block, margin
    """
    step = pixels.shape[3]
    rows, cols = pixels.shape[2] - atoms.shape[2] + 1, step - atoms.shape[3] + 1
    answers = np.empty((rows - 1) * step + cols, np.float32)
    pooled = np.empty((3, cols, len(atoms), out.shape[2]), np.float32)
    for n in range(len(pixels)):
        for k in range(len(atoms)):
            correlate_flat(pixels[n], atoms[k], answers)
            pool_rows(answers, step, sd[k], log_odds[k], blocks, pooled[:, :, k])
        pool_cols(pooled, sd, blocks, out[n])


@kernel(fastmath=FUSED)
def magnitudes_of_maps(maps, sd, log_odds, blocks, out):
    """As `all_magnitudes`, of correlations (image, atom, row, col) that are at hand."""
    step = maps.shape[3]
    pooled = np.empty((3, step, maps.shape[1], out.shape[2]), np.float32)
    for n in range(len(maps)):
        for k in range(maps.shape[1]):
            pool_rows(maps[n, k].copy().reshape(-1), step, sd[k], log_odds[k], blocks, pooled[:, :, k])
        pool_cols(pooled, sd, blocks, out[n])


@subkernel(fastmath=FUSED, forceinline=False)
def correlate_flat(image, atom, out):
    """Inner products of an image with an atom at every position, rows as long as those of the image."""
    out[:] = ZERO
    size, width, step = len(out), atom.shape[2], image.shape[2]
    for c in range(image.shape[0]):
        pixels = image[c].reshape(-1)
        for i in range(atom.shape[1]):
            taps, b = atom[c, i], 0
            while b + 4 <= width:
                line = pixels[i * step + b :]
                d0, d1, d2, d3 = taps[b], taps[b + 1], taps[b + 2], taps[b + 3]
                for p in range(size):
                    out[p] += (d0 * line[p] + d1 * line[p + 1]) + (d2 * line[p + 2] + d3 * line[p + 3])
                b += 4
            while b < width:
                line, d0 = pixels[i * step + b :], taps[b]
                for p in range(size):
                    out[p] += d0 * line[p]
                b += 1


@subkernel(fastmath=FUSED, forceinline=False)
def pool_rows(answers, step, sd, log_odds, blocks, out):
    """Reduce a map to rows of blocks, column by column; spoils ``answers``.

    answers : correlations, position (row, col) at row * step + col
    out : (3, col, block_row): largest log odds; sums over the rows of odds, and of odds times magnitude, over e^largest
    """
    folded, cols = np.empty(len(answers), np.float32), out.shape[1]
    for p in range(len(answers)):
        answer = abs(answers[p]) * sd  # the mean in standard deviations
        gain = HALF * answer * answer
        small, t = exponential(-gain), ONE / (ONE + ERF_P * answer)
        tail = t * (ERF[0] + t * (ERF[1] + t * (ERF[2] + t * (ERF[3] + t * ERF[4]))))
        folded[p] = FOLD * small + answer * (ONE - tail * small)
        answers[p] = log_odds + gain
    rows = (len(answers) - cols) // step + 1
    largest, odds, weighted = np.empty(cols, np.float32), np.empty(cols, np.float32), np.empty(cols, np.float32)
    for i in range(out.shape[2]):
        top, bottom = max(i * blocks[0] - blocks[2], 0), min((i + 1) * blocks[0] + blocks[2], rows)
        largest[:] = answers[top * step : top * step + cols]
        for row in range(top + 1, bottom):
            line = answers[row * step : row * step + cols]
            for j in range(cols):
                largest[j] = max(largest[j], line[j])
        odds[:], weighted[:] = ZERO, ZERO
        for row in range(top, bottom):
            line, magnitude = answers[row * step : row * step + cols], folded[row * step : row * step + cols]
            for j in range(cols):
                weight = exponential(line[j] - largest[j])
                odds[j] += weight
                weighted[j] += weight * magnitude[j]
        for j in range(cols):
            out[0, j, i], out[1, j, i], out[2, j, i] = largest[j], odds[j], weighted[j]


@subkernel(fastmath=FUSED, forceinline=False)
def pool_cols(pooled, sd, blocks, out):
    """Reduce to blocks (atom, block_row, block_col) what `pool_rows` leaves of all atoms, (3, col, atom, block_row)."""
    cols, size = pooled.shape[1], pooled.shape[2] * pooled.shape[3]
    parts = pooled.reshape(3, cols, size)
    largest, odds, weighted = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    for j in range(out.shape[2]):
        left, right = max(j * blocks[1] - blocks[2], 0), min((j + 1) * blocks[1] + blocks[2], cols)
        largest[:] = ZERO  # the log odds of the empty outcome
        for col in range(left, right):
            line = parts[0, col]
            for p in range(size):
                largest[p] = max(largest[p], line[p])
        weighted[:] = ZERO
        for p in range(size):
            odds[p] = exponential(-largest[p])
        for col in range(left, right):
            line, sums, magnitudes = parts[0, col], parts[1, col], parts[2, col]
            for p in range(size):
                weight = exponential(line[p] - largest[p])
                odds[p] += weight * sums[p]
                weighted[p] += weight * magnitudes[p]
        for k in range(out.shape[0]):
            for i in range(out.shape[1]):
                p = k * out.shape[1] + i
                out[k, i, j] = sd[k] * weighted[p] / odds[p]


#: components and features of a tile of the triangular product, so that it stays in the nearest caches
_COMPONENTS, _FEATURES = 256, 64


@kernel(fastmath=FUSED)
def triangular_product(images, features, axes, out):
    """``features @ axes`` of pairs of images, where ``axes`` (feature, component) is 0 below its diagonal.

    The sums have an order that does not depend on the number of images, which BLAS does not promise.

    images : numbers of the first image and of the one after the last, both even
    features : (image, feature); out : (image, component), as many
    """
    count = features.shape[1]
    for left in range(0, count, _COMPONENTS):
        right = min(left + _COMPONENTS, count)
        out[images[0] : images[1], left:right] = ZERO
        for low in range(0, right, _FEATURES):
            high = min(low + _FEATURES, right)
            for n in range(images[0], images[1], 2):
                pair = features[n, low:high], features[n + 1, low:high]
                add_rows(*pair, axes, low, left, out[n, left:right], out[n + 1, left:right])


@subkernel(fastmath=FUSED)
def add_rows(f, g, axes, low, left, out_f, out_g):
    """Add products of ``f``, and of ``g``, with rows of ``axes`` from ``low``, columns from ``left``."""
    right, whole = left + len(out_f), len(f) // 4 * 4
    for k in range(0, whole, 4):
        f0, f1, f2, f3 = f[k], f[k + 1], f[k + 2], f[k + 3]
        g0, g1, g2, g3 = g[k], g[k + 1], g[k + 2], g[k + 3]
        a0, a1 = axes[low + k, left:right], axes[low + k + 1, left:right]
        a2, a3 = axes[low + k + 2, left:right], axes[low + k + 3, left:right]
        for c in range(len(out_f)):
            out_f[c] += (f0 * a0[c] + f1 * a1[c]) + (f2 * a2[c] + f3 * a3[c])
            out_g[c] += (g0 * a0[c] + g1 * a1[c]) + (g2 * a2[c] + g3 * a3[c])
    for k in range(whole, len(f)):
        f0, g0, a0 = f[k], g[k], axes[low + k, left:right]
        for c in range(len(out_f)):
            out_f[c] += f0 * a0[c]
            out_g[c] += g0 * a0[c]
