"""Primitives that all kernels share: a layer's sizes, its blocks and their priors, the choice within a block, atoms.

Inside a kernel the plane is the last axis, merged with the column, and all is flat: an image or a residual is
(row * col * plane,), a dictionary (atom * atom_row * atom_col * plane,). The joint model has several *levels* in one
array, level after level: level 0 is the image, level l the input of layer l, counted from 0. One layer alone is the
same with one level.

*Checked:* tests/test_kernels.py, tests/test_joint_sweep.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import kernel, subkernel
from gdd.sampler.kernels.random import next_gamma, next_normal
from gdd.sampler.kernels.windows import add_observed, static_add, static_dot, window_add, window_dot

#: images whose sums are added up one after another, in one accumulator
CHUNK = 64
#: makes up for the rounding of squares in single precision where a bound is wanted
SLACK = 1.0 + 1e-5
SAFE_EXPONENT = 80.0
#: counts up to this one enter a product under one logarithm; larger ones cost two of ``lgamma``
SMALL_COUNT = 8


class Layer(NamedTuple):
    """Sizes of a layer, its dictionary, and where its input and its blocks begin among those of all layers."""

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
    block: int  # of its first block
    input: int  # of its input, a level
    output: int  # of the values of its blocks, the level above
    static: bool  # whether `Static` has the size of its atoms
    dictionary: np.ndarray  # (atom * atom_row * atom_col * plane,)
    places: np.ndarray  # (position,): where each is in the input, from the block's first place
    overlaps: np.ndarray  # (atom * lag_row * lag_col,): expected, `gdd.reference.screening`; exact in the bottom layer


class Prior(NamedTuple):
    """Priors of the outcomes of a layer's blocks, a0 and b0 or counts over the map's other blocks; and precisions."""

    active: float  # a0, and b0: 0 if counted
    empty: float
    counted: bool
    gamma_w: float
    noise_shape: float
    noise_rate: float
    noise_drawn: bool  # for each image
    noise_by_image: bool


class ImageArrays(NamedTuple):
    """Images and their part of a layer's state, which a pass changes."""

    pixels: np.ndarray  # (image, row * col * plane); where some are hidden, 0 there
    masks: np.ndarray  # the same, 1 where observed, else 0; no image at all if every pixel is observed
    z: np.ndarray  # (image, atom, block_row, block_col)
    w: np.ndarray  # (image, atom, block_row, block_col)
    gamma_e: np.ndarray  # (image or 1,)
    first: int  # number of the first one in its chain

    def slice(self, where: slice) -> ImageArrays:
        """Views of these of the images."""
        masks, gamma_e = (array[where] if len(array) > 1 else array for array in (self.masks, self.gamma_e))
        pixels, z, w = (array[where] for array in (self.pixels, self.z, self.w))
        return ImageArrays(pixels, masks, z, w, gamma_e, self.first + where.start)


class Slab(NamedTuple):
    """Where an active position would stand, its weight integrated out; see `slab_of`."""

    gamma_e: float
    precision: float  # of the weight given all else
    gain: float  # exponent of the odds against empty for a squared correlation of 1
    factor: float  # of the odds


class Outcomes(NamedTuple):
    """Posterior of a block's positions, each (position,): a weight is N(linear / precision, 1 / precision)."""

    linear: np.ndarray
    precision: np.ndarray
    gain: np.ndarray  # exponent of the odds against empty
    weight: np.ndarray  # their factor


class Active(NamedTuple):
    """Active positions of an image, atom by atom."""

    places: np.ndarray  # (entry, atom/row/col)
    weights: np.ndarray  # (entry,)


# Blocks and their priors


class Block(NamedTuple):
    """A pooling block: its first position, its size, and 0 to 3 for whole, cut on the right, at the bottom, both."""

    row: int
    col: int
    rows: int
    cols: int
    group: int


@subkernel()
def block_at(i, j, layer):
    """Block (i, j) of a map."""
    row, col = i * layer.pool_row, j * layer.pool_col
    rows, cols = min(layer.pool_row, layer.map_row - row), min(layer.pool_col, layer.map_col - col)
    return Block(row, col, rows, cols, 2 * (rows < layer.pool_row) + (cols < layer.pool_col))


@subkernel()
def place_in_map(i, j, position, layer):
    """Row and column of the map of a position of block (i, j)."""
    return i * layer.pool_row + position // layer.pool_col, j * layer.pool_col + position % layer.pool_col


@subkernel()
def start_of(row, col, layer):
    """Where the window of an atom at a place of a layer's map starts, among all levels."""
    return layer.input + row * layer.width + col * layer.planes


@subkernel()
def count_outcomes(z, layer, counts):
    """Outcomes of one map by group of blocks, into ``counts`` (4, position + 1); the last column is empty, as z[-1]."""
    counts[:] = 0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            counts[block_at(i, j, layer).group, z[i, j]] += 1


@subkernel()
def collapsed_prior_weights(block, counts, layer, empty, weight):
    """Prior weights of a block's positions given the other blocks, theta integrated out, into ``weight``.

    ``empty`` : 1 if a block may be empty, else 0. The block itself must not be in ``counts``. Returns that of empty.
    """
    alpha, t = 1.0 / (block.rows * block.cols + empty), 0
    for a in range(block.rows):
        for b in range(block.cols):
            weight[t] = alpha + counts[block.group, a * layer.pool_col + b]
            t += 1
    return (alpha + counts[block.group, -1]) * empty


@subkernel()
def prior_weights(block, counts, layer, prior, weight):
    """Prior weights of a block's positions, into ``weight``; returns that of empty."""
    if prior.counted:
        return collapsed_prior_weights(block, counts, layer, 1, weight)
    weight[0] = prior.active
    return prior.empty


@subkernel()
def log_counts(counts, layer, empty):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's groups of blocks and their outcomes."""
    total = 0.0
    for group in range(4):
        rows = layer.map_row % layer.pool_row if group >= 2 else layer.pool_row
        cols = layer.map_col % layer.pool_col if group % 2 else layer.pool_col
        alpha = 1.0 / max(1, rows * cols + empty)  # with no position there is no such block either
        rising = 1.0  # product of alpha (alpha + 1) ... for small counts: one logarithm for all of them
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


# The choice within a block


@subkernel()
def slab_of(gamma_e, norm, gamma_w):
    """Odds against empty of a position with correlation r: sqrt(gamma_w / lambda) exp(gamma_e^2 r^2 / (2 lambda)).

    lambda = gamma_e ||d||^2 + gamma_w; ``norm`` is ||d||^2.
    """
    precision = gamma_e * norm + gamma_w
    return Slab(gamma_e, precision, gamma_e * gamma_e / (2.0 * precision), math.sqrt(gamma_w / precision))


@subkernel()
def set_outcome(outcomes, t, correlation, slab):
    """Multiply the prior weight of position t by its odds."""
    outcomes.linear[t], outcomes.precision[t] = slab.gamma_e * correlation, slab.precision
    outcomes.gain[t] = slab.gain * correlation * correlation
    outcomes.weight[t] *= slab.factor


@subkernel()
def apply_gains(weight, gain, positions, empty, largest):
    """Multiply the weights of positions by the exponentials of their gains, and all by exp(-largest).

    Returns (weight of empty, sum of all weights). Changes ``weight``.
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
    """Outcome at which the running sum of weights, empty (-1) first, passes ``target``; else the last possible one."""
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
def certainly_empty(gain, empty, others, uniform):
    """Whether a draw falls on empty, as far as a bound without an exponential shows: exp(-g) >= (1 - g / 16)^16.

    ``gain`` is the largest exponent of the block, ``others`` the total weight of its positions.
    """
    base = 1.0 - gain / 16.0
    if base <= 0.0:
        return False
    base *= base
    base *= base
    base *= base
    base *= base
    return uniform * (empty * base + others) < empty * base


@subkernel()
def draw_block(block, outcomes, empty, layer, uniform, stream):
    """Position (-1: empty) and weight of a block, from its outcomes; ``empty`` is the prior weight of that one.

    If an upper bound on the positions already decides for empty, no exponential is computed.
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
    """gamma_e of one image given its residual's energy."""
    return next_gamma(stream, shape + 0.5 * pixels) / (rate + 0.5 * energy)


# Atoms


@kernel(forceinline=True)
def add_atom(levels, start, k, amount, layer, static):
    """Add ``amount`` times atom k to a window of a layer's input. Changes ``levels``.

    Inlined, like `dot_atom`: otherwise a sweep of refinement takes 1.7 times as long at Caltech's sizes.
    """
    first = k * layer.height * layer.length
    if layer.static:  # written out: one more call slows the innermost loop down
        static_add(
            levels, start, layer.width, layer.dictionary, first, layer.length, amount, static.rows, static.columns
        )
    else:
        window_add(levels, start, layer.width, layer.dictionary, first, layer.length, amount, layer)


@kernel(forceinline=True)
def add_where_observed(levels, mask, start, k, amount, layer, static):
    """`add_atom` where pixels are observed; ``mask`` is empty if all are."""
    if mask.size == 0:
        add_atom(levels, start, k, amount, layer, static)
    else:
        add_observed(levels, mask, start, layer.dictionary, k * layer.height * layer.length, amount, layer)


@kernel(forceinline=True)
def dot_atom(levels, start, k, layer, static):
    """Inner product of atom k with a window of a layer's input."""
    first = k * layer.height * layer.length
    if layer.static:
        return static_dot(levels, start, layer.width, layer.dictionary, first, static.rows, static.columns)
    return window_dot(levels, start, layer.dictionary, first, layer)


@subkernel()
def make_active(size):
    """Allocate space for so many active positions."""
    return Active(np.empty((size, 3), np.int64), np.empty(size))


@subkernel()
def list_active(z, w, layer, active):
    """Active positions of maps z, w (atom, block_row, block_col), into ``active``; returns how many."""
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
    """Image less its ``count`` active atoms, where observed, into ``residual``."""
    for p in range(len(image)):  # an assignment of slices would allocate
        residual[p] = image[p]
    for e in range(count):
        k, row, col = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        amount = residual.dtype.type(-active.weights[e])
        add_where_observed(residual, mask, start_of(row, col, layer), k, amount, layer, static)


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
def list_near(places, e, last, h, w, near):
    """Entries after ``e`` at most (h, w) away, whose atoms overlap its own, into ``near``; returns how many.

    Half of all pairs do, in no order: writing down every one, and moving on after those that do, spares the processor
    a wrong prediction at every other pair.
    """
    count = 0
    for f in range(e + 1, last):
        near[count] = f
        count += (abs(places[e, 1] - places[f, 1]) <= h) & (abs(places[e, 2] - places[f, 2]) <= w)
    return count


# What the shared draws of a layer need of its images


class Sums(NamedTuple):
    """What an image pass of a layer leaves, summed over images; one more axis, of accumulators, while under way."""

    pairs: np.ndarray  # (atom, atom, lag_row, lag_col): sum gamma_e S_k(u) S_k'(u - lag), for k <= k'
    cross: np.ndarray  # (atom, atom_row * atom_col * plane): sum gamma_e <X, S_k shifted>; both empty under a mask
    active: np.ndarray  # (atom,): active blocks
    squares: np.ndarray  # (atom,): sum of squared weights
    energy: np.ndarray  # (): ||E||^2
    weighted_energy: np.ndarray  # (): sum gamma_e ||E||^2
    log_counts: np.ndarray  # (): sum of `log_counts`

    def scaled(self, gamma_e: float) -> Sums:
        """Return the sums as if every image had been weighted by one noise precision."""
        return self._replace(pairs=self.pairs * gamma_e, cross=self.cross * gamma_e)


@subkernel()
def add_sums(image, count, gamma_e, constants, work, sums, n):
    """Add an image, its ``count`` active positions and its residual, both in ``work``, to accumulator ``n``."""
    active, weight = work.active, gamma_e if constants.prior.noise_by_image else 1.0
    if sums.pairs.size > 0:
        add_pairs(active, count, image, weight, constants.layer, work.near, sums.pairs[n], sums.cross[n])
    for e in range(count):
        sums.active[n, active.places[e, 0]] += 1.0
        sums.squares[n, active.places[e, 0]] += active.weights[e] * active.weights[e]
    energy = energy_of(work.residual, constants.layer.width)
    sums.energy[n] += energy
    sums.weighted_energy[n] += weight * energy


@subkernel()
def add_pairs(active, count, image, gamma_e, layer, near, pairs, cross):
    """Add one image to the sums that the dictionary is drawn from; pairs are filled for k <= k' in list order."""
    atoms, _, high, wide = pairs.shape
    h, w, size = high // 2, wide // 2, high * wide
    flat = pairs.reshape(atoms, atoms * size)
    for e in range(count):
        k, i, j = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        scaled, lags, middle = gamma_e * active.weights[e], flat[k], h * wide + w
        for a in range(layer.height):
            start = start_of(i + a, j, layer)
            window = image[start : start + layer.length]
            line = cross[k, a * layer.length : (a + 1) * layer.length]
            for t in range(layer.length):
                line[t] += scaled * window[t]
        lags[k * size + middle] += scaled * active.weights[e]
        for q in range(list_near(active.places, e, count, h, w, near)):
            f = np.uintp(near[q])
            lag = (i - active.places[f, 1]) * wide + j - active.places[f, 2]
            product = scaled * active.weights[f]
            lags[np.uintp(active.places[f, 0] * size + middle + lag)] += product
            if active.places[f, 0] == k:
                lags[np.uintp(k * size + middle - lag)] += product
