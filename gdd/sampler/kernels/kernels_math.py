"""Sums of products that the image passes are made of: placing an atom, correlating with it, shifting correlations.

The plane is the last axis, merged with the column: a residual is ``left`` (row, col * plane), an atom (atom_row,
atom_col * plane). ``taps`` is a tuple of atom_col zeros for an atom of one plane, empty for more: its *length* is known
when a kernel is compiled, so that loops over it are laid out in vector registers.

*Checked:* tests/test_kernels.py.
"""

from __future__ import annotations

import numpy as np

from gdd.base.compiling import FAST, INNER, kernel

LANES = 8  # columns are looked through in multiples of this: no odd ones are left to go one by one


@kernel(**INNER)
def copy_plane(source, target):
    """Target = source, both (row, col). Changes ``target``. An assignment of slices would allocate."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@kernel(**INNER, fastmath=FAST)
def subtract_atom(left, atom, row, col, weight):
    """Left -= weight * atom placed at (row, col). Changes ``left`` (row, col * plane)."""
    for a in range(atom.shape[0]):
        here = left[row + a, col : col + atom.shape[1]]
        line = atom[a]
        for t in range(atom.shape[1]):
            here[t] -= weight * line[t]


@kernel(**INNER, fastmath=FAST)
def correlate_plane(left, atom, out, taps):
    """Inner products of a one-plane atom with every window of ``left``. Changes ``out`` (row, padded col)."""
    for i in range(out.shape[0]):
        line = out[i]
        for j in range(line.size):
            line[j] = 0.0
        for a in range(atom.shape[0]):
            here, tap = left[i + a], atom[a]
            for j in range(line.size):
                total = line[j]
                for b in range(len(taps)):
                    total += tap[b] * here[j + b]
                line[j] = total


@kernel(**INNER, fastmath=FAST)
def correlate_planes(left, atom, out, planes):
    """Inner products of an atom of many planes with every window, two by two. Changes ``out``."""
    rows, columns = out.shape
    length = atom.shape[1]
    for i in range(0, rows - 1, 2):
        for j in range(0, columns - 1, 2):
            c00 = left[0, 0] * 0
            c01, c10, c11 = c00, c00, c00
            start = j * planes
            for a in range(atom.shape[0]):
                line = atom[a]
                l00 = left[i + a, start : start + length]
                l01 = left[i + a, start + planes : start + planes + length]
                l10 = left[i + a + 1, start : start + length]
                l11 = left[i + a + 1, start + planes : start + planes + length]
                for t in range(length):
                    c00 += line[t] * l00[t]
                    c01 += line[t] * l01[t]
                    c10 += line[t] * l10[t]
                    c11 += line[t] * l11[t]
            out[i, j], out[i, j + 1], out[i + 1, j], out[i + 1, j + 1] = c00, c01, c10, c11
    if columns % 2:
        for i in range(rows):
            out[i, columns - 1] = window_product(left, atom, i, (columns - 1) * planes)
    if rows % 2:
        for j in range(columns):
            out[rows - 1, j] = window_product(left, atom, rows - 1, j * planes)


@kernel(**INNER, fastmath=FAST)
def window_product(left, atom, row, col):
    """Inner product of an atom with the window of ``left`` at (row, col * plane)."""
    total = left[0, 0] * 0
    for a in range(atom.shape[0]):
        line = atom[a]
        here = left[row + a, col : col + atom.shape[1]]
        for t in range(atom.shape[1]):
            total += line[t] * here[t]
    return total


@kernel(**INNER, fastmath=FAST)
def shift_map(out, lags, row, col, weight, first_row, columns):
    """Change correlations for a weight added at (row, col): out -= weight * autocorrelation. Changes ``out``."""
    h, w = lags.shape[0] // 2, lags.shape[1] // 2
    start, stop = max(0, col - w), min(columns, col + w + 1)
    for i in range(max(first_row, row - h), min(out.shape[0], row + h + 1)):
        lag = lags[i - row + h, start - col + w : stop - col + w]
        here = out[i, start:stop]
        for j in range(stop - start):
            here[j] -= weight * lag[j]


@kernel(**INNER, fastmath=FAST)
def place_atom(left, atom, row, col, weight, taps, planes):
    """`subtract_atom` at (row, col), quicker for one plane. Changes ``left``."""
    if len(taps) == 0:
        subtract_atom(left, atom, row, col * planes, weight)
        return
    for a in range(atom.shape[0]):
        here, line = left[row + a, col : col + len(taps)], atom[a]
        for b in range(len(taps)):
            here[b] -= weight * line[b]


@kernel(**INNER, fastmath=FAST)
def correlate_flat(left, atom, out, length, width, taps):
    """Inner products of a one-plane atom with every window, all rows in one run. Changes ``out``.

    ``left`` and ``out`` are flat with ``width`` columns a row; ``length`` entries of ``out`` are formed. Entries at
    columns where the atom would stick out of the image hold windows that go on in the next row: nobody reads them.
    """
    for p in range(length):
        out[p] = 0.0
    for a in range(atom.shape[0]):
        here, tap = left[a * width :], atom[a]
        for p in range(length):
            total = out[p]
            for b in range(len(taps)):
                total += tap[b] * here[p + b]
            out[p] = total


@kernel(**INNER, fastmath=FAST)
def shift_flat(out, width, lags, row, col, weight, first_row, rows, taps):
    """`shift_map` on flat correlations of ``width`` columns, rows ``first_row`` to ``rows``. Changes ``out``.

    ``lags`` (lag_row, 3 atom_col) ends in atom_col + 1 columns of zeros, so that every row takes as many terms;
    those past the image's right edge are zero. ``width`` is the image's, so no other term gets there.
    """
    h, w = lags.shape[0] // 2, lags.shape[1] // 3
    start = max(0, col - w + 1)
    for i in range(max(first_row, row - h), min(rows, row + h + 1)):
        place = np.uintp(i * width + start)  # unsigned: such an index needs no check for counting from the end
        lag, skip = lags[i - row + h], np.uintp(start - col + w - 1)
        if len(taps) > 0:
            for t in range(np.uintp(2 * len(taps))):
                out[place + t] -= weight * lag[skip + t]
        else:
            for t in range(np.uintp(2 * w)):
                out[place + t] -= weight * lag[skip + t]


@kernel(**INNER, fastmath=FAST)
def column_peaks(out, width, rows, peaks):
    """Largest square in each column of the first rows of flat correlations. Changes ``peaks`` (padded col,)."""
    last = rows - 1
    for top in range(0, rows, 3):  # three rows at once, the last again where there are fewer
        one, two, three = out[top * width :], out[min(top + 1, last) * width :], out[min(top + 2, last) * width :]
        for first in range(0, len(peaks), LANES):
            for t in range(LANES):
                j = np.uintp(first + t)  # unsigned: such an index needs no check for counting from the end
                peak = max(one[j] * one[j], two[j] * two[j], three[j] * three[j])
                peaks[j] = peak if top == 0 else max(peak, peaks[j])


@kernel(**INNER)
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
