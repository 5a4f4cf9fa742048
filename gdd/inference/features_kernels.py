"""Compiled one-step magnitudes in single precision: only what a classifier reads, in loops over contiguous numbers.

Images and atoms come scaled by the square root of the noise precision, so that here the noise has precision 1. Maps
keep the row length of what they were made from: position (row, col) stands at ``row * step + col``, and what lies
between the last position of a row and the first of the next has no meaning. The plain formula, in double precision, is
that of `gdd.inference.features.one_step_features`.

The numbers of an image depend on that image and on the sizes alone: one image at a time, sums in a fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import kernel, subkernel

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
    sd, log_odds : (atom,), of a weight given its position; of one position being active against none, but for the gain
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
                here = pixels[i * step + b :]
                d0, d1, d2, d3 = taps[b], taps[b + 1], taps[b + 2], taps[b + 3]
                for p in range(size):
                    out[p] += (d0 * here[p] + d1 * here[p + 1]) + (d2 * here[p + 2] + d3 * here[p + 3])
                b += 4
            while b < width:
                here, d0 = pixels[i * step + b :], taps[b]
                for p in range(size):
                    out[p] += d0 * here[p]
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
            here = answers[row * step : row * step + cols]
            for j in range(cols):
                largest[j] = max(largest[j], here[j])
        odds[:], weighted[:] = ZERO, ZERO
        for row in range(top, bottom):
            here, strength = answers[row * step : row * step + cols], folded[row * step : row * step + cols]
            for j in range(cols):
                one = exponential(here[j] - largest[j])
                odds[j] += one
                weighted[j] += one * strength[j]
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
            here = parts[0, col]
            for p in range(size):
                largest[p] = max(largest[p], here[p])
        weighted[:] = ZERO
        for p in range(size):
            odds[p] = exponential(-largest[p])
        for col in range(left, right):
            here, sums, strengths = parts[0, col], parts[1, col], parts[2, col]
            for p in range(size):
                one = exponential(here[p] - largest[p])
                odds[p] += one * sums[p]
                weighted[p] += one * strengths[p]
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
                here, there = out[n, left:right], out[n + 1, left:right]
                add_rows(features[n, low:high], features[n + 1, low:high], axes, low, left, here, there)


@subkernel(fastmath=FUSED)
def add_rows(f, g, axes, low, left, here, there):
    """Add products of ``f``, and of ``g``, with rows of ``axes`` from ``low``, columns from ``left``."""
    right, whole = left + len(here), len(f) // 4 * 4
    for k in range(0, whole, 4):
        f0, f1, f2, f3 = f[k], f[k + 1], f[k + 2], f[k + 3]
        g0, g1, g2, g3 = g[k], g[k + 1], g[k + 2], g[k + 3]
        a0, a1 = axes[low + k, left:right], axes[low + k + 1, left:right]
        a2, a3 = axes[low + k + 2, left:right], axes[low + k + 3, left:right]
        for c in range(len(here)):
            here[c] += (f0 * a0[c] + f1 * a1[c]) + (f2 * a2[c] + f3 * a3[c])
            there[c] += (g0 * a0[c] + g1 * a1[c]) + (g2 * a2[c] + g3 * a3[c])
    for k in range(whole, len(f)):
        f0, g0, a0 = f[k], g[k], axes[low + k, left:right]
        for c in range(len(here)):
            here[c] += f0 * a0[c]
            there[c] += g0 * a0[c]
