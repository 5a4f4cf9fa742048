"""What one image adds to the sums that the shared part is drawn from, and the lists and counts that this takes.

*Checked:* tests/test_kernels.py.
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import INNER, kernel

SMALL_COUNT = 8


@kernel(**INNER)
def list_active(z, w, pool, entries, weights):
    """Active positions of one image, atom by atom. Changes ``entries`` (entry, atom/row/col) and ``weights``."""
    found = 0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                m = z[k, i, j]
                if m >= 0:
                    entries[found, 0] = k
                    entries[found, 1] = i * pool[0] + m // pool[1]
                    entries[found, 2] = j * pool[1] + m % pool[1]
                    weights[found] = w[k, i, j]
                    found += 1
    return found


@kernel(**INNER)
def count_outcomes(z, map_size, pool, counts):
    """Outcomes of one map by block shape. Changes ``counts`` (4, positions + 1); last column: empty blocks."""
    counts[:] = 0
    for i in range(z.shape[0]):
        low = 2 * ((i + 1) * pool[0] > map_size[0])
        for j in range(z.shape[1]):
            group = low + ((j + 1) * pool[1] > map_size[1])
            m = z[i, j]
            counts[group, m if m >= 0 else counts.shape[1] - 1] += 1


@kernel(**INNER)
def log_counts(counts, layout):
    """Sum of lgamma(alpha + count) - lgamma(alpha) over a map's block shapes and outcomes."""
    total = 0.0
    for group in range(4):
        rows = layout[0] % layout[2] if group >= 2 else layout[2]
        cols = layout[1] % layout[3] if group % 2 else layout[3]
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


@kernel(**INNER)
def add_sums(entries, weights, found, image, gamma_e, planes, near, pairs, cross):
    """Add one image to the sums that the dictionary is drawn from. Changes ``pairs``, ``cross``, and ``near`` (entry,).

    pairs (atom, atom, lag_row, lag_col): gamma_e * sum of S_k(u) S_k'(u - lag), filled for k <= k' in list order
    cross (atom, atom_row, atom_col * plane): gamma_e * correlation of the image with S_k
    """
    atoms, _, high, wide = pairs.shape
    h, w, size = high // 2, wide // 2, high * wide
    flat = pairs.reshape(atoms, atoms * size)
    for e in range(found):
        k, i, j = entries[e, 0], entries[e, 1], entries[e, 2]
        scaled, own, middle = gamma_e * weights[e], flat[k], h * wide + w
        for a in range(cross.shape[1]):
            here = image[i + a, j * planes : j * planes + cross.shape[2]]
            line = cross[k, a]
            for t in range(cross.shape[2]):
                line[t] += scaled * here[t]
        own[k * size + middle] += scaled * weights[e]
        for q in range(list_near(entries, e, found, h, w, near)):
            f = np.uintp(near[q])
            lag = (i - entries[f, 1]) * wide + j - entries[f, 2]
            product = scaled * weights[f]
            own[np.uintp(entries[f, 0] * size + middle + lag)] += product
            if entries[f, 0] == k:
                own[np.uintp(k * size + middle - lag)] += product


@kernel(**INNER)
def list_near(entries, e, found, h, w, near):
    """Entries after ``e`` whose atoms overlap its own, at most (h, w) away. Changes ``near``; returns their number.

    Half of all pairs do, in no order: writing down every one, and moving on after those that do, spares the processor
    a wrong guess at every other pair.
    """
    count = 0
    for f in range(e + 1, found):
        near[count] = f
        count += (abs(entries[e, 1] - entries[f, 1]) <= h) & (abs(entries[e, 2] - entries[f, 2]) <= w)
    return count


@kernel(**INNER)
def add_energies(entries, weights, found, after, weight, precision, per_atom, energy):
    """Add one image's active blocks, and what is left of it, to the sums. Changes ``per_atom`` and ``energy``."""
    for e in range(found):
        per_atom[0, entries[e, 0]] += 1.0
        per_atom[1, entries[e, 0]] += weights[e] * weights[e]
    energy[0] += after
    energy[1] += weight * after
    energy[2] += math.log(precision)


@kernel(**INNER)
def energy_of(left):
    """Sum of squares, in double precision."""
    total = 0.0
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            total += np.float64(left[i, j]) ** 2
    return total
