"""Primitives that all kernels share: a layer's sizes, its blocks and their priors, the choice within a block, atoms.

Kernels work on flat arrays whose last axis is the plane: an image or a residual is (row * col * plane,), a dictionary
(atom * atom_row * atom_col * plane,). The joint model keeps several *levels* in one array, one after another: level 0
is the image, level l the input of layer l, counted from 0. A single layer has one level.

*Checked:* tests/test_kernels.py, tests/test_joint_sweep.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import subkernel, subroutine
from gdd.sampler.kernels.random import next_gamma, next_normal
from gdd.sampler.kernels.windows import add_observed, static_add, static_dot, window_add, window_dot

#: images that share one accumulator of the sums
CHUNK = 64
#: factor by which upper bounds exceed the rounding errors of squares in single precision
ROUNDING_MARGIN = 1.0 + 1e-5
SAFE_EXPONENT = 80.0
#: counts up to this one share a logarithm of their product; a larger one costs two calls of ``lgamma``
SMALL_COUNT = 8


class Layer(NamedTuple):
    """Sizes of a layer, its dictionary, and the offsets of its input and its blocks among those of all layers."""

    atoms: int
    height: int  # rows of an atom
    length: int  # numbers in a row of an atom, atom_col * plane
    planes: int
    width: int  # numbers in a row of its input, col * plane
    map_row: int
    map_col: int
    pool_row: int
    pool_col: int
    grid_row: int
    grid_col: int
    block: int  # offset of its first block
    input: int  # offset of its input, a level
    output: int  # offset of the values of its blocks, the level above
    static: bool  # whether `Static` holds the size of its atoms
    dictionary: np.ndarray  # (atom * atom_row * atom_col * plane,)
    places: np.ndarray  # (position,): offset of each position in the input, from the first one of its block
    # (atom * lag_row * lag_col,): expected inner products of an atom's images at two positions, see
    # `gdd.reference.screening`; exact in the bottom layer
    overlaps: np.ndarray


class Prior(NamedTuple):
    """Prior of the outcomes of a layer's blocks, a0 and b0 or collapsed over theta; priors of the precisions."""

    active: float  # a0; 0 if collapsed
    empty: float  # b0; 0 if collapsed
    collapsed: bool  # theta integrated out: weights are counts over the map's other blocks
    gamma_w: float
    noise_shape: float
    noise_rate: float
    noise_drawn: bool  # whether each image draws a noise precision
    noise_by_image: bool


class ImageArrays(NamedTuple):
    """A batch of images and the local part of a layer's state, which a pass changes."""

    pixels: np.ndarray  # (image, row * col * plane), 0 where hidden
    masks: np.ndarray  # (image, row * col * plane), 1 where observed, else 0; (0, ...) if every pixel is observed
    z: np.ndarray  # (image, atom, block_row, block_col)
    w: np.ndarray  # (image, atom, block_row, block_col)
    gamma_e: np.ndarray  # (image or 1,)
    first: int  # number of the first image in the chain

    def slice(self, where: slice) -> ImageArrays:
        """Views of a slice of the images."""
        masks, gamma_e = (array[where] if len(array) > 1 else array for array in (self.masks, self.gamma_e))
        pixels, z, w = (array[where] for array in (self.pixels, self.z, self.w))
        return ImageArrays(pixels, masks, z, w, gamma_e, self.first + where.start)


class Slab(NamedTuple):
    """The slab of a position's spike-and-slab conditional, the weight integrated out; see `slab_of`."""

    gamma_e: float
    precision: float  # lambda, of the weight given the rest
    gain: float  # exponent of the odds against empty per squared correlation
    factor: float  # sqrt(gamma_w / lambda), factor of the odds


class Outcomes(NamedTuple):
    """Conditional of a block's positions, arrays (position,): a weight is N(linear / precision, 1 / precision)."""

    linear: np.ndarray
    precision: np.ndarray
    gain: np.ndarray  # exponent of the odds against empty
    weight: np.ndarray  # prior weight times the odds' factor


class Active(NamedTuple):
    """Active positions of an image, in the order of its atoms."""

    places: np.ndarray  # (entry, 3): atom, row, col
    weights: np.ndarray  # (entry,)


# Blocks and their priors


class Block(NamedTuple):
    """A pooling block (i, j) of a map, and the group of blocks of its size, with which it shares theta."""

    i: int
    j: int
    row: int  # of its first position in the map
    col: int
    rows: int
    cols: int
    group: int  # 0: full size; 1: ragged at the right edge; 2: at the bottom edge; 3: at both


@subkernel()
def block_at(i, j, layer):
    """Block (i, j) of a map."""
    row, col = i * layer.pool_row, j * layer.pool_col
    rows, cols = min(layer.pool_row, layer.map_row - row), min(layer.pool_col, layer.map_col - col)
    return Block(i, j, row, col, rows, cols, 2 * (rows < layer.pool_row) + (cols < layer.pool_col))


@subkernel()
def place_in_map(i, j, position, layer):
    """Row and column in the map of a position of block (i, j)."""
    return i * layer.pool_row + position // layer.pool_col, j * layer.pool_col + position % layer.pool_col


@subkernel()
def window_start(row, col, layer):
    """Offset, among all levels, of the window under an atom at (row, col) of a layer's map."""
    return layer.input + row * layer.width + col * layer.planes


@subkernel()
def count_outcomes(z, layer, counts):
    """Count the outcomes of map z (block_row, block_col), into ``counts`` (group, position + 1); the last is empty."""
    counts[:] = 0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            counts[block_at(i, j, layer).group, z[i, j]] += 1


@subkernel()
def collapsed_prior_weights(block, counts, layer, empty, weight):
    """Prior weights of a block's positions given the other blocks, theta integrated out, into ``weight`` (position,).

    ``empty`` is 1 if a block may be empty, else 0; ``counts`` must exclude the block. Returns the weight of empty.
    """
    alpha, t = 1.0 / (block.rows * block.cols + empty), 0
    for a in range(block.rows):
        for b in range(block.cols):
            weight[t] = alpha + counts[block.group, a * layer.pool_col + b]
            t += 1
    return (alpha + counts[block.group, -1]) * empty


@subkernel()
def prior_weights(block, counts, layer, prior, weight):
    """Prior weights of a block's positions, into ``weight`` (position,); returns the weight of empty."""
    if prior.collapsed:
        return collapsed_prior_weights(block, counts, layer, 1, weight)
    weight[0] = prior.active
    return prior.empty


@subkernel()
def log_counts(counts, layer, empty):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over groups and outcomes, from ``counts`` (group, position + 1)."""
    total = 0.0
    for group in range(4):
        rows = layer.map_row % layer.pool_row if group >= 2 else layer.pool_row
        cols = layer.map_col % layer.pool_col if group % 2 else layer.pool_col
        alpha = 1.0 / max(1, rows * cols + empty)  # a group without positions has no blocks
        rising = 1.0  # rising factorials alpha (alpha + 1) ... of the small counts, under one logarithm
        for outcome in range(counts.shape[1]):
            count = counts[group, outcome]
            if count > SMALL_COUNT or rising > 1e200:
                total += math.lgamma(alpha + count) - math.lgamma(alpha)
            else:
                for t in range(count):
                    rising *= alpha + t
        if rising != 1.0:
            total += math.log(rising)
    return total


# The odds of an active weight (the slab of its prior) against none (the spike), the weight integrated out:
# sqrt(gamma_w / lambda) exp(c^2 / (2 lambda)), see `gdd.reference.conditionals.slab_log_odds`


@subroutine(forceinline=True)
def slab_log_factor(log_prior_odds, gamma_w, variance):
    """The part of `slab_log_odds` that does not depend on c, with the prior odds; ``variance`` is 1 / lambda."""
    return log_prior_odds + 0.5 * math.log(gamma_w * variance)


@subroutine(forceinline=True)
def slab_log_odds(c, variance, log_factor):
    """Log odds of a slab with linear term c."""
    return log_factor + 0.5 * c * c * variance


@subkernel()
def slab_of(gamma_e, norm, gamma_w):
    """The same odds as a product, for a position with correlation r: c = gamma_e r, lambda = gamma_e ||d||^2 + gamma_w.

    ``norm`` is ||d||^2.
    """
    precision = gamma_e * norm + gamma_w
    return Slab(gamma_e, precision, gamma_e * gamma_e / (2.0 * precision), math.sqrt(gamma_w / precision))


@subkernel()
def set_outcome(outcomes, t, correlation, slab):
    """Multiply the prior weight of position t by its odds."""
    outcomes.linear[t], outcomes.precision[t] = slab.gamma_e * correlation, slab.precision
    outcomes.gain[t] = slab.gain * correlation * correlation
    outcomes.weight[t] *= slab.factor


# The choice within a block


@subkernel()
def apply_gains(weight, gain, positions, empty, largest):
    """Multiply weights (position,) by the exponentials of their gains and all by exp(-largest), against overflow.

    Returns (weight of empty, total weight). Changes ``weight``.
    """
    if empty > 0.0:  # 0 times an overflow would not be 0
        empty *= math.exp(-largest)
    total = empty
    for t in range(positions):
        weight[t] *= math.exp(gain[t] - largest)
        total += weight[t]
    return empty, total


@subkernel()
def sample_outcome(weights, empty, target):
    """Sample by inversion: the outcome at which the running sum of weights, empty (-1) first, passes ``target``."""
    total, last = empty, -1
    if target < total:
        return -1
    for m in range(len(weights)):
        if weights[m] > 0.0:
            last = m
            total += weights[m]
            if target < total:
                return m
    return last


@subkernel()
def certainly_empty(gain, empty, active, uniform):
    """Whether a bound proves, without an exponential, that a block is drawn empty: exp(-g) >= (1 - g / 16)^16.

    ``gain`` is the largest exponent of the block's positions, ``active`` the total of their weights.
    """
    base = 1.0 - gain / 16.0
    if base <= 0.0:
        return False
    base *= base
    base *= base
    base *= base
    base *= base
    return uniform * (empty * base + active) < empty * base


@subkernel()
def draw_block(block, outcomes, empty, layer, uniform, stream):
    """Draw position (-1: empty) and weight of a block from its outcomes; ``empty`` is the prior weight of empty.

    No exponential is computed where an upper bound on the positions' weights already decides for empty.
    """
    positions, largest, total = block.rows * block.cols, 0.0, 0.0
    for t in range(positions):
        largest = max(largest, outcomes.gain[t])
        total += outcomes.weight[t]
    if largest < SAFE_EXPONENT and uniform * (empty + total * math.exp(largest)) < empty:
        return -1, 0.0
    empty, total = apply_gains(outcomes.weight, outcomes.gain, positions, empty, largest)
    t = sample_outcome(outcomes.weight[:positions], empty, uniform * total)
    if t < 0:
        return -1, 0.0
    weight = outcomes.linear[t] / outcomes.precision[t] + next_normal(stream) / math.sqrt(outcomes.precision[t])
    return t // block.cols * layer.pool_col + t % block.cols, weight


@subkernel()
def draw_noise(shape, rate, pixels, energy, stream):
    """Draw gamma_e of one image given the energy of its residual over ``pixels`` observed pixels."""
    return next_gamma(stream, shape + 0.5 * pixels) / (rate + 0.5 * energy)


# Atoms


@subroutine(forceinline=True)
def add_atom(levels, start, k, amount, layer, static):
    """Add ``amount`` times atom k to the window of a layer's input at ``start``. Changes ``levels``.

    Inlined, like `dot_atom`: a call makes a sweep of refinement 1.7 times as long at Caltech's sizes.
    """
    first = k * layer.height * layer.length
    if layer.static:  # not by way of another function: one more call slows the innermost loop down
        static_add(
            levels, start, layer.width, layer.dictionary, first, layer.length, amount, static.rows, static.columns
        )
    else:
        window_add(levels, start, layer.width, layer.dictionary, first, layer.length, amount, layer)


@subroutine(forceinline=True)
def add_where_observed(levels, mask, start, k, amount, layer, static):
    """`add_atom` at observed pixels; ``mask`` is empty if all are observed."""
    if mask.size == 0:
        add_atom(levels, start, k, amount, layer, static)
    else:
        add_observed(levels, mask, start, layer.dictionary, k * layer.height * layer.length, amount, layer)


@subroutine(forceinline=True)
def dot_atom(levels, start, k, layer, static):
    """Inner product of atom k with the window of a layer's input at ``start``."""
    first = k * layer.height * layer.length
    if layer.static:
        return static_dot(levels, start, layer.width, layer.dictionary, first, static.rows, static.columns)
    return window_dot(levels, start, layer.dictionary, first, layer)


@subkernel()
def make_active(size):
    """Allocate space for ``size`` active positions."""
    return Active(np.empty((size, 3), np.int64), np.empty(size))


@subkernel()
def list_active(z, w, layer, active):
    """List the active positions of maps z, w (atom, block_row, block_col) in ``active``; return their number."""
    count = 0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                if z[k, i, j] >= 0:
                    row, col = place_in_map(i, j, z[k, i, j], layer)
                    active.places[count, 0], active.places[count, 1], active.places[count, 2] = k, row, col
                    active.weights[count] = w[k, i, j]
                    count += 1
    return count


@subkernel()
def fill_residual(image, mask, active, count, layer, static, residual):
    """Image minus its ``count`` active atoms, at observed pixels, into ``residual``."""
    for p in range(len(image)):  # an assignment of slices would allocate
        residual[p] = image[p]
    for e in range(count):
        k, row, col = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        amount = residual.dtype.type(-active.weights[e])
        add_where_observed(residual, mask, window_start(row, col, layer), k, amount, layer, static)


@subkernel()
def energy_of(residual, width):
    """Sum of squares in double precision, row by row of ``width``."""
    total = 0.0
    for i in range(len(residual) // width):
        row = residual[i * width : (i + 1) * width]
        for p in range(width):
            total += np.float64(row[p]) ** 2
    return total


@subkernel()
def list_neighbours(places, e, last, h, w, neighbours):
    """List the entries after ``e`` whose atoms overlap its own, at most (h, w) away; return their number.

    About half of all pairs overlap, in random order. The loop therefore has no branch: it writes every entry and
    advances after an overlapping one, which avoids a branch misprediction at every other pair.
    """
    count = 0
    for f in range(e + 1, last):
        neighbours[count] = f
        count += (abs(places[e, 1] - places[f, 1]) <= h) & (abs(places[e, 2] - places[f, 2]) <= w)
    return count


# Sufficient statistics of a layer's images


class Sums(NamedTuple):
    """Sufficient statistics for a layer's shared draws, summed over images; during a pass with an accumulator axis."""

    pairs: np.ndarray  # (atom, atom, lag_row, lag_col): sum gamma_e S_k(u) S_k'(u - lag), for k <= k'
    cross: np.ndarray  # (atom, atom_row * atom_col * plane): sum gamma_e <X, S_k shifted>; both empty under a mask
    active: np.ndarray  # (atom,): active blocks
    squares: np.ndarray  # (atom,): sum of squared weights
    energy: np.ndarray  # (): ||E||^2
    weighted_energy: np.ndarray  # (): sum gamma_e ||E||^2
    log_counts: np.ndarray  # (): sum of `log_counts`

    def scaled(self, gamma_e: float) -> Sums:
        """Return the sums weighted by a noise precision that all images share."""
        return self._replace(pairs=self.pairs * gamma_e, cross=self.cross * gamma_e)


@subkernel()
def add_sums(image, count, gamma_e, constants, work, sums, chunk):
    """Add an image to accumulator ``chunk``; its ``count`` active positions and its residual are in ``work``."""
    active, weight = work.active, gamma_e if constants.prior.noise_by_image else 1.0
    if sums.pairs.size > 0:
        add_pairs(active, count, image, weight, constants.layer, work.neighbours, sums.pairs[chunk], sums.cross[chunk])
    for e in range(count):
        sums.active[chunk, active.places[e, 0]] += 1.0
        sums.squares[chunk, active.places[e, 0]] += active.weights[e] * active.weights[e]
    energy = energy_of(work.residual, constants.layer.width)
    sums.energy[chunk] += energy
    sums.weighted_energy[chunk] += weight * energy


@subkernel()
def add_pairs(active, count, image, gamma_e, layer, neighbours, pairs, cross):
    """Add one image to ``pairs`` and ``cross``, the sums for the dictionary; pairs only for k <= k' in list order."""
    atoms, _, lag_rows, lag_cols = pairs.shape
    h, w, size = lag_rows // 2, lag_cols // 2, lag_rows * lag_cols
    flat = pairs.reshape(atoms, atoms * size)
    for e in range(count):
        k, i, j = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        scaled, lags, middle = gamma_e * active.weights[e], flat[k], h * lag_cols + w
        for a in range(layer.height):
            start = window_start(i + a, j, layer)
            window = image[start : start + layer.length]
            line = cross[k, a * layer.length : (a + 1) * layer.length]
            for t in range(layer.length):
                line[t] += scaled * window[t]
        lags[k * size + middle] += scaled * active.weights[e]
        for q in range(list_neighbours(active.places, e, count, h, w, neighbours)):
            f = np.uintp(neighbours[q])
            lag = (i - active.places[f, 1]) * lag_cols + j - active.places[f, 2]
            product = scaled * active.weights[f]
            lags[np.uintp(active.places[f, 0] * size + middle + lag)] += product
            if active.places[f, 0] == k:
                lags[np.uintp(k * size + middle - lag)] += product
