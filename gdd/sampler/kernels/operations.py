"""What every kernel of a layer is made of: sizes and priors, the choice within a block, correlations, counts, sums.

Inside a kernel the plane is the last axis, merged with the column: images and residuals (row, col * plane), atoms
(atom_row, atom_col * plane). Correlations of an atom with a residual are flat, with as many columns as the image:
entry ``row * width + col`` belongs to a position, entries past the map's last column to nothing.

*Checked:* tests/test_kernels.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import subkernel
from gdd.sampler.kernels.random import next_gamma, next_normal

#: images whose sums are added up one after another, in one accumulator
CHUNK = 64
#: columns are searched in multiples of this number, so that none is left to go one by one
LANES = 8
#: makes up for the rounding of squares in single precision where a bound is wanted
SLACK = 1.0 + 1e-5
SAFE_EXPONENT = 80.0
#: counts up to this one enter a product under one logarithm; larger ones cost two of ``lgamma``
SMALL_COUNT = 8


class Layout(NamedTuple):
    """Sizes of one layer."""

    map_row: int
    map_col: int
    pool_row: int
    pool_col: int
    planes: int
    width: int  # columns of an image


class Prior(NamedTuple):
    """Priors of a block's outcomes, a0 and b0 or counts over the other blocks of the map, and of gamma_e."""

    active: float  # a0, and b0: 0 if counted
    empty: float
    counted: bool
    noise_shape: float
    noise_rate: float
    noise_drawn: bool  # for each image
    noise_by_image: bool


class LayerConstants(NamedTuple):
    """All that a kernel knows of a layer besides its state."""

    layout: Layout
    prior: Prior
    static_width: tuple  # zeros, one a column of an atom of one plane; none for more. Its length is known when compiled


class ImageArrays(NamedTuple):
    """Images and their part of the state, which a pass changes."""

    pixels: np.ndarray  # (image, row, col * plane)
    z: np.ndarray  # (image, atom, block_row, block_col)
    w: np.ndarray  # (image, atom, block_row, block_col)
    gamma_e: np.ndarray  # (image or 1,)
    first: int  # number of the first one in its chain

    def some(self, where: slice) -> ImageArrays:
        """Views of these of the images."""
        gamma_e = self.gamma_e[where] if len(self.gamma_e) > 1 else self.gamma_e
        return ImageArrays(self.pixels[where], self.z[where], self.w[where], gamma_e, self.first + where.start)


class Slab(NamedTuple):
    """Where an active position would stand, its weight integrated out; see `slab_of`."""

    gamma_e: float
    precision: float  # of the weight given all else
    gain: float  # exponent of the odds against empty for a squared correlation of 1
    factor: float  # of the odds


class Atom(NamedTuple):
    """One atom, its autocorrelation summed over planes, and what follows for its weights."""

    pixels: np.ndarray  # (atom_row, atom_col * plane)
    lags: np.ndarray  # (2 atom_row - 1, 3 atom_col): see `shift_correlations`
    slab: Slab


class Outcomes(NamedTuple):
    """Posterior of a block's positions, each (position,): a weight is N(linear / precision, 1 / precision)."""

    linear: np.ndarray
    precision: np.ndarray
    gain: np.ndarray  # exponent of the odds against empty
    weight: np.ndarray  # their factor


class Sums(NamedTuple):
    """What a pass over whole images leaves for the shared draws, summed over images in double precision."""

    pairs: np.ndarray  # (atom, atom, lag_row, lag_col): sum gamma_e S_k(u) S_k'(u - lag), for k <= k'
    cross: np.ndarray  # (atom, atom_row, atom_col * plane): sum gamma_e <X, S_k shifted>
    per_atom: np.ndarray  # (2, atom): active blocks, sum of squared weights
    energy: np.ndarray  # (3,): ||E||^2, sum gamma_e ||E||^2, log counts of the positions

    def scaled(self, gamma_e: float) -> Sums:
        """Return the sums as if every image had been weighted by one noise precision."""
        return self._replace(pairs=self.pairs * gamma_e, cross=self.cross * gamma_e)


class Active(NamedTuple):
    """Active positions of an image, atom by atom."""

    places: np.ndarray  # (entry, atom/row/col)
    weights: np.ndarray  # (entry,)


# The choice within a block


class Block(NamedTuple):
    """A pooling block: its first position, its size, and 0 to 3 for whole, cut on the right, at the bottom, both."""

    row: int
    col: int
    rows: int
    cols: int
    group: int


@subkernel()
def block_at(i, j, layout):
    """Block (i, j) of a map."""
    row, col = i * layout.pool_row, j * layout.pool_col
    rows, cols = min(layout.pool_row, layout.map_row - row), min(layout.pool_col, layout.map_col - col)
    return Block(row, col, rows, cols, 2 * (rows < layout.pool_row) + (cols < layout.pool_col))


@subkernel()
def place_in_map(i, j, position, layout):
    """Row and column of the map of a position of block (i, j)."""
    return i * layout.pool_row + position // layout.pool_col, j * layout.pool_col + position % layout.pool_col


@subkernel()
def fill_prior(block, counts, layout, prior, weight):
    """Prior weights of a block's positions given the other blocks, into ``weight``; returns that of empty."""
    if prior.counted:
        return fill_counted(block, counts, layout, 1, weight)
    for t in range(block.rows * block.cols):
        weight[t] = prior.active
    return prior.empty


@subkernel()
def fill_counted(block, counts, layout, empty, weight):
    """`fill_prior` with theta integrated out, the block not in ``counts``; ``empty`` : 1 if it may be empty, else 0."""
    alpha, t = 1.0 / (block.rows * block.cols + empty), 0
    for a in range(block.rows):
        for b in range(block.cols):
            weight[t] = alpha + counts[block.group, a * layout.pool_col + b]
            t += 1
    return (alpha + counts[block.group, -1]) * empty


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
def apply_gains(outcomes, positions, empty, largest):
    """Weights of positions and of empty, all over exp(largest), into ``outcomes``; returns (empty, sum of all)."""
    empty *= math.exp(-largest)
    total = empty
    for t in range(positions):
        outcomes.weight[t] *= math.exp(outcomes.gain[t] - largest)
        total += outcomes.weight[t]
    return empty, total


@subkernel()
def choose(outcomes, positions, empty, uniform):
    """Pick an outcome by inverse cumulative weight: empty (-1) first, then positions.

    If an upper bound on the positions already decides for empty, nothing else is computed.
    """
    largest, total = 0.0, 0.0
    for t in range(positions):
        largest = max(largest, outcomes.gain[t])
        total += outcomes.weight[t]
    if largest < SAFE_EXPONENT and uniform * (empty + total * math.exp(largest)) < empty:
        return -1
    empty, total = apply_gains(outcomes, positions, empty, largest)
    return pick(outcomes.weight[:positions], empty, uniform * total)


@subkernel()
def pick(weights, empty, target):
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
def surely_empty(gain, empty, others, uniform):
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
def draw_slab(linear, precision, stream):
    """Weight of an active position."""
    return linear / precision + next_normal(stream) / math.sqrt(precision)


@subkernel()
def draw_block(block, outcomes, empty, layout, uniform, stream):
    """Position (-1: empty) and weight of a block, from its outcomes; ``empty`` is the prior weight of that one."""
    t = choose(outcomes, block.rows * block.cols, empty, uniform)
    if t < 0:
        return -1, 0.0
    position = t // block.cols * layout.pool_col + t % block.cols
    return position, draw_slab(outcomes.linear[t], outcomes.precision[t], stream)


@subkernel()
def draw_noise(prior, pixels, energy, stream):
    """gamma_e of one image given its residual's energy."""
    return next_gamma(stream, prior.noise_shape + 0.5 * pixels) / (prior.noise_rate + 0.5 * energy)


# Residuals and correlations


@subkernel()
def subtract_atom(residual, atom, row, col, weight, constants):
    """Residual -= weight * atom placed at (row, col)."""
    if len(constants.static_width) > 0:
        for a in range(atom.shape[0]):
            here, line = residual[row + a, col : col + len(constants.static_width)], atom[a]
            for b in range(len(constants.static_width)):
                here[b] -= weight * line[b]
    else:
        first = col * constants.layout.planes
        for a in range(atom.shape[0]):
            here, line = residual[row + a, first : first + atom.shape[1]], atom[a]
            for t in range(atom.shape[1]):
                here[t] -= weight * line[t]


@subkernel()
def subtract_observed(residual, observed, atom, row, first, weight):
    """Residual -= weight * atom placed at (row, col * plane), where observed."""
    for a in range(atom.shape[0]):
        here, there = residual[row + a, first : first + atom.shape[1]], observed[row + a, first : first + atom.shape[1]]
        line = atom[a]
        for t in range(atom.shape[1]):
            here[t] -= weight * there[t] * line[t]


@subkernel()
def fill_residual(image, atoms, count, constants, work):
    """Image less its ``count`` active atoms, which are listed in ``work.active``, into ``work.residual``."""
    residual, active = work.residual, work.active
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):  # an assignment of slices would allocate
            residual[i, j] = image[i, j]
    for e in range(count):
        place, weight = active.places[e], residual.dtype.type(active.weights[e])
        subtract_atom(residual, atoms[place[0]], place[1], place[2], weight, constants)


@subkernel()
def energy_of(residual):
    """Sum of squares, in double precision."""
    total = 0.0
    for i in range(residual.shape[0]):
        for j in range(residual.shape[1]):
            total += np.float64(residual[i, j]) ** 2
    return total


@subkernel()
def correlate(residual, atom, out, constants):
    """Inner products of an atom with every window of ``residual`` (row, col * plane), into ``out``.

    One plane: all rows in one run, so that the loop is long; windows that go on in the next row belong to nothing.
    """
    layout, planes, width = constants.layout, constants.layout.planes, constants.layout.width
    if len(constants.static_width) > 0:
        flat, length = residual.reshape(residual.size), (layout.map_row - 1) * width + layout.map_col
        for p in range(length):
            out[p] = 0.0
        for a in range(atom.shape[0]):
            here, tap = flat[a * width :], atom[a]
            for p in range(length):
                total = out[p]
                for b in range(len(constants.static_width)):
                    total += tap[b] * here[p + b]
                out[p] = total
        return
    length = atom.shape[1]
    for i in range(0, layout.map_row, 2):  # four windows at once; at an odd edge some are the same
        below = min(i + 1, layout.map_row - 1)
        for j in range(0, layout.map_col, 2):
            beside = min(j + 1, layout.map_col - 1)
            c00 = residual[0, 0] * 0
            c01, c10, c11 = c00, c00, c00
            for a in range(atom.shape[0]):
                line = atom[a]
                l00 = residual[i + a, j * planes : j * planes + length]
                l01 = residual[i + a, beside * planes : beside * planes + length]
                l10 = residual[below + a, j * planes : j * planes + length]
                l11 = residual[below + a, beside * planes : beside * planes + length]
                for t in range(length):
                    c00 += line[t] * l00[t]
                    c01 += line[t] * l01[t]
                    c10 += line[t] * l10[t]
                    c11 += line[t] * l11[t]
            out[i * width + j], out[i * width + beside] = c00, c01
            out[below * width + j], out[below * width + beside] = c10, c11


@subkernel()
def shift_correlations(out, lags, row, col, weight, first_row, constants):
    """Change correlations from ``first_row`` on for a weight added at (row, col): out -= weight * autocorrelation.

    ``lags`` (lag_row, 3 atom_col) ends in atom_col + 1 columns of zeros, so that every row takes as many terms; those
    past the image's right edge are zero.
    """
    h, w = lags.shape[0] // 2, lags.shape[1] // 3
    start, layout = max(0, col - w + 1), constants.layout
    for i in range(max(first_row, row - h), min(layout.map_row, row + h + 1)):
        # unsigned: such an index needs no check for counting from the end
        place, skip, lag = np.uintp(i * layout.width + start), np.uintp(start - col + w - 1), lags[i - row + h]
        if len(constants.static_width) > 0:
            for t in range(np.uintp(2 * len(constants.static_width))):
                out[place + t] -= weight * lag[skip + t]
        else:
            for t in range(np.uintp(2 * w)):
                out[place + t] -= weight * lag[skip + t]


# Lists, counts, sums


@subkernel()
def list_active(z, w, layout, active):
    """Active positions of maps z, w (atom, block_row, block_col), into ``active``; returns how many."""
    count = 0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                if z[k, i, j] >= 0:
                    row, col = place_in_map(i, j, z[k, i, j], layout)
                    active.places[count, 0], active.places[count, 1], active.places[count, 2] = k, row, col
                    active.weights[count] = w[k, i, j]
                    count += 1
    return count


@subkernel()
def count_outcomes(z, layout, counts):
    """Outcomes of one map by group of blocks, into ``counts`` (4, position + 1); the last column is empty, as z[-1]."""
    counts[:] = 0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            counts[block_at(i, j, layout).group, z[i, j]] += 1


@subkernel()
def log_counts(counts, layout):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's groups of blocks and their outcomes."""
    total = 0.0
    for group in range(4):
        rows = layout.map_row % layout.pool_row if group >= 2 else layout.pool_row
        cols = layout.map_col % layout.pool_col if group % 2 else layout.pool_col
        alpha = 1.0 / (rows * cols + 1)
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


@subkernel()
def add_weights(active, count, per_atom):
    """Add an image's numbers of active blocks and its squared weights to ``per_atom`` (2, atom)."""
    for e in range(count):
        per_atom[0, active.places[e, 0]] += 1.0
        per_atom[1, active.places[e, 0]] += active.weights[e] * active.weights[e]


@subkernel()
def add_sums(active, count, image, residual, gamma_e, constants, near, sums):
    """Add one image, its residual and its noise precision to the sums of a chunk."""
    weight = gamma_e if constants.prior.noise_by_image else 1.0
    add_pairs(active, count, image, weight, constants.layout.planes, near, sums.pairs, sums.cross)
    add_weights(active, count, sums.per_atom)
    energy = energy_of(residual)
    sums.energy[0] += energy
    sums.energy[1] += weight * energy


@subkernel()
def add_pairs(active, count, image, gamma_e, planes, near, pairs, cross):
    """Add one image to the sums that the dictionary is drawn from.

    pairs (atom, atom, lag_row, lag_col): gamma_e * sum of S_k(u) S_k'(u - lag), filled for k <= k' in list order
    cross (atom, atom_row, atom_col * plane): gamma_e * correlation of the image with S_k
    """
    atoms, _, high, wide = pairs.shape
    h, w, size = high // 2, wide // 2, high * wide
    flat = pairs.reshape(atoms, atoms * size)
    for e in range(count):
        k, i, j = active.places[e, 0], active.places[e, 1], active.places[e, 2]
        scaled, lags, middle = gamma_e * active.weights[e], flat[k], h * wide + w
        for a in range(cross.shape[1]):
            here = image[i + a, j * planes : j * planes + cross.shape[2]]
            line = cross[k, a]
            for t in range(cross.shape[2]):
                line[t] += scaled * here[t]
        lags[k * size + middle] += scaled * active.weights[e]
        for q in range(list_near(active.places, e, count, h, w, near)):
            f = np.uintp(near[q])
            lag = (i - active.places[f, 1]) * wide + j - active.places[f, 2]
            product = scaled * active.weights[f]
            lags[np.uintp(active.places[f, 0] * size + middle + lag)] += product
            if active.places[f, 0] == k:
                lags[np.uintp(k * size + middle - lag)] += product


@subkernel()
def list_near(places, e, last, h, w, near):
    """Entries after ``e`` at most (h, w) away, whose atoms overlap its own, into ``near``; returns how many.

    Half of all pairs do, in no order: writing down every one, and moving on after those that do, spares the processor
    a wrong guess at every other pair.
    """
    count = 0
    for f in range(e + 1, last):
        near[count] = f
        count += (abs(places[e, 1] - places[f, 1]) <= h) & (abs(places[e, 2] - places[f, 2]) <= w)
    return count
