"""What one atom's draw needs from images with hidden pixels: its Gram under the weights, and its linear term.

*Checked:* tests/test_weighted.py (against `gdd.sampler.conditionals.atom_statistics`).
"""

from __future__ import annotations

import numpy as np
from numba import prange

from gdd.base.compiling import FAST, INNER, kernel
from gdd.model.spec import LayerShape
from gdd.model.state import Local
from gdd.sampler.kernels.layer import CHUNK
from gdd.sampler.kernels.weighted_kernels import plane_energies, subtract_seen

#: chunks of images whose sums are held at once
SLOTS = 8


def atom_sums(
    local: Local, left: np.ndarray, seen: np.ndarray, gamma_e: np.ndarray, shape: LayerShape, k: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Sums over images for atom k.

    .. math:: T_{aa'} = \sum_n \gamma_e \sum_u M_u S(u - a) S(u - a'), \qquad
              b_a = \sum_n \gamma_e \sum_u M_u E(u) S(u - a)

    with E the residual as it is, atom k not added back: that is T times the atom.

    Parameters
    ----------
    local, shape : of the layer
    left : (image, row, col * plane)            E, 0 where hidden
    seen : (image, plane or 1, row, col)        M, 1 where observed; one plane if planes share mask and precision
    gamma_e : (image, plane)

    Returns
    -------
    gram : (plane or 1, hw, hw)
    linear : (plane, hw)
    """
    (h, w), planes = shape.atom_size, shape.planes
    reach = tuple(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    lags, linear = np.zeros((seen.shape[1], *reach, h, w)), np.zeros((h, w * planes))
    z, weights = local.z[:, k], local.w[:, k]
    for first in range(0, len(left), SLOTS * CHUNK):
        slots = min(SLOTS, -(-(len(left) - first) // CHUNK))
        parts = np.zeros((slots, *lags.shape)), np.zeros((slots, *linear.shape))
        add_atom(left, seen, gamma_e, z, weights, shape.block, planes, first, *parts)
        for slot in range(slots):
            lags += parts[0][slot]
            linear += parts[1][slot]
    return gram_from_lags(lags), np.ascontiguousarray(linear.reshape(h * w, planes).T)


def gram_from_lags(lags: np.ndarray) -> np.ndarray:
    """Gram (plane, hw, hw) from (plane, lag_row, lag_col, atom_row, atom_col); each pair stands at one lag only."""
    planes, reach_row, reach_col, h, w = lags.shape
    row = np.arange(h)[None, :] - np.arange(h)[:, None] + reach_row // 2  # a' - a
    col = np.arange(w)[None, :] - np.arange(w)[:, None] + reach_col // 2
    inside = ((row >= 0) & (row < reach_row))[:, None, :, None] & ((col >= 0) & (col < reach_col))[None, :, None, :]
    half = lags[
        :, np.clip(row, 0, reach_row - 1)[:, None, :, None], np.clip(col, 0, reach_col - 1)[None, :, None, :],
        np.arange(h)[:, None, None, None], np.arange(w)[None, :, None, None],
    ]  # fmt: skip
    half = np.where(inside, half, 0.0).reshape(planes, h * w, h * w)
    return half + half.transpose(0, 2, 1) - half * np.eye(h * w)


@kernel(**INNER)
def find_active(z, w, pool, entries, weights):
    """Active positions of one map. Changes ``entries`` (entry, row/col) and ``weights``; returns how many."""
    found = 0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            m = z[i, j]
            if m >= 0:
                entries[found, 0] = i * pool[0] + m // pool[1]
                entries[found, 1] = j * pool[1] + m % pool[1]
                weights[found] = w[i, j]
                found += 1
    return found


@kernel(**INNER, fastmath=FAST)
def add_pair(seen, row, col, lag_row, lag_col, product, out):
    """Add product * seen under the part of an atom at (row, col) that one ``lag`` further overlaps. Changes ``out``."""
    h, w = out.shape
    start, stop = max(0, -lag_col), min(w, w - lag_col)
    for a in range(max(0, -lag_row), min(h, h - lag_row)):
        line, here = out[a], seen[row + a]
        for b in range(start, stop):
            line[b] += product * here[col + b]


@kernel(**INNER)
def add_image(left, seen, gamma, entries, weights, found, planes, lags, linear):
    """Add one image to the sums of one atom. Changes ``lags`` and ``linear``."""
    h, w = lags.shape[1] // 2, lags.shape[2] // 2
    for e in range(found):
        i, j = entries[e, 0], entries[e, 1]
        for a in range(linear.shape[0]):
            here, line = left[i + a], linear[a]
            for t in range(linear.shape[1]):
                line[t] += gamma[t % planes] * weights[e] * here[j * planes + t]
        for p in range(seen.shape[0]):
            scaled = gamma[p] * weights[e]
            add_pair(seen[p], i, j, 0, 0, scaled * weights[e], lags[p, h, w])
            for f in range(e + 1, found):
                lag_i, lag_j = i - entries[f, 0], j - entries[f, 1]
                if abs(lag_i) <= h and abs(lag_j) <= w:
                    add_pair(seen[p], i, j, lag_i, lag_j, scaled * weights[f], lags[p, h + lag_i, w + lag_j])


@kernel(parallel=True, nogil=True)
def add_atom(left, seen, gamma_e, z, w, pool, planes, first, lags, linear):
    """Add images ``first``... to the sums of one atom, one slot a chunk. Changes ``lags`` and ``linear``.

    z, w : (image, block_row, block_col)      lags : (chunk, plane or 1, lag_row, lag_col, atom_row, atom_col)
    linear : (chunk, atom_row, atom_col * plane)
    """
    for chunk in prange(lags.shape[0]):
        entries, weights = np.empty((z.shape[1] * z.shape[2], 2), np.int64), np.empty(z.shape[1] * z.shape[2])
        for n in range(first + chunk * CHUNK, min(first + (chunk + 1) * CHUNK, left.shape[0])):
            found = find_active(z[n], w[n], pool, entries, weights)
            add_image(left[n], seen[n], gamma_e[n], entries, weights, found, planes, lags[chunk], linear[chunk])


@kernel(parallel=True, nogil=True)
def change_atom(left, seen, z, w, change, pool, planes):
    """Subtract ``change`` (atom_row, atom_col * plane) of an atom at its active positions. Changes ``left``."""
    for n in prange(left.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                m = z[n, i, j]
                if m >= 0:
                    row, col = i * pool[0] + m // pool[1], j * pool[1] + m % pool[1]
                    subtract_seen(left[n], seen[n], change, row, col * planes, w[n, i, j])


@kernel(parallel=True, nogil=True)
def energies(left, planes, out):
    """Squared norms of a residual (image, row, col * plane). Changes ``out`` (image, plane)."""
    for n in prange(left.shape[0]):
        plane_energies(left[n], planes, out[n])
