"""What the draw of the joint model's bottom dictionary needs from the images, compiled.

It is drawn atom by atom from `atom_images`. All images of a chunk add to one slot of the sums, in double precision and
in index order.

*Checked:* tests/test_refine_sweep.py (sums against the plain design matrix).
"""

from __future__ import annotations

import numpy as np
from numba import prange

from gdd.base.compiling import BURIED, kernel
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.kernels.windows import window_add, window_take


@kernel(parallel=True, nogil=True)
def atom_images(k, former, step, blocks, residuals, masks, gamma_e, z, layout, rows, columns, sums):
    """Take ``step`` of the former atom's draw off every residual, then form the sums that atom k is drawn from.

    Parameters
    ----------
    k, former : atoms of the bottom layer; -1 for none
    step : (atom_row * atom_col * plane,)       change of atom ``former``
    blocks : (image, row * col * atom)          values of the bottom layer's blocks
    z : (image, atom, block_row, block_col)     their positions
    layout : sizes of the bottom layer          the rest as in `gdd.sampler.kernels.joint_kernels.run_images`
    sums : lags (chunk, 2 atom_row - 1, 2 atom_col - 1), gamma_e times the map's autocorrelation; linear (chunk,
        atom_row * atom_col * plane), gamma_e times the residual's correlation with the map; gram (chunk, plane, pixel,
        pixel), in place of lags where pixels are missing (else its last axes are empty)

    Changes residuals and sums.
    """
    atoms, height, length, planes, width, _, _, pool_row, pool_col, grid_row, grid_col = layout
    lags, linear, gram = sums
    for chunk in prange(lags.shape[0]):
        size = (rows, columns)
        places, weights = np.empty((grid_row * grid_col, 2), np.int64), np.empty(grid_row * grid_col)
        line, own = linear[chunk], np.empty(height * length, residuals.dtype)
        index = np.empty((grid_row, grid_col), np.int64)
        for n in range(chunk * CHUNK, min((chunk + 1) * CHUNK, residuals.shape[0])):
            residual, mask = residuals[n], masks[n] if masks.shape[0] > 0 else residuals[n, :0]
            if former >= 0:
                found = list_blocks(n, former, blocks, z, layout, places, weights)
                for e in range(found):
                    start = places[e, 0] * width + places[e, 1] * planes
                    if masks.shape[0] > 0:
                        take_off(residual, mask, start, weights[e], step, layout)
                    else:
                        value = residual.dtype.type(-weights[e])
                        window_add(residual, start, width, step, 0, value, height, length, size)
            if k >= 0:
                precision = np.float64(gamma_e[n if gamma_e.size > 1 else 0])
                found = list_blocks(n, k, blocks, z, layout, places, weights)
                own[:] = 0
                for e in range(found):
                    start, value = places[e, 0] * width + places[e, 1] * planes, residual.dtype.type(weights[e])
                    window_take(residual, start, width, own, 0, value, height, length, size)
                for t in range(own.size):
                    line[t] += precision * own[t]
                if masks.shape[0] > 0:
                    add_masked_pairs(places, weights, found, precision, mask, layout, gram[chunk])
                else:
                    add_pairs(places, weights, found, precision, layout, index, lags[chunk])


@kernel(**BURIED)
def list_blocks(n, k, blocks, z, layout, places, weights):
    """Places and values of one atom's blocks in one image; returns how many. Changes ``places`` and ``weights``."""
    atoms, _, _, _, _, _, _, pool_row, pool_col, grid_row, grid_col = layout
    found = 0
    for i in range(grid_row):
        for j in range(grid_col):
            m, value = z[n, k, i, j], blocks[n, (i * grid_col + j) * atoms + k]
            if m >= 0 and value != 0:
                places[found, 0], places[found, 1] = i * pool_row + m // pool_col, j * pool_col + m % pool_col
                weights[found] = value
                found += 1
    return found


@kernel(**BURIED)
def take_off(residual, mask, start, weight, step, layout):
    """Subtract weight * step at one place, where pixels are observed. Changes ``residual``."""
    _, height, length, _, width, _, _, _, _, _, _ = layout
    for a in range(height):
        for t in range(length):
            pixel = start + a * width + t
            residual[pixel] -= weight * step[a * length + t] * mask[pixel]


@kernel(**BURIED)
def add_pairs(places, weights, found, precision, layout, index, lags):
    """Add a map's autocorrelation. Changes ``lags``: entry [h + p, w + q] is the sum of S(u) S(u - (p, q)).

    Every block meets those after it, row by row, that are near enough for their atoms to overlap wherever they are.

    index : (block_row, block_col), scratch: which entry a block is, -1 if none. Changed
    """
    _, _, _, _, _, _, _, pool_row, pool_col, grid_row, grid_col = layout
    h, w = lags.shape[0] // 2, lags.shape[1] // 2
    far_row, far_col = (h + pool_row - 1) // pool_row, (w + pool_col - 1) // pool_col
    index[:] = -1
    for e in range(found):
        index[places[e, 0] // pool_row, places[e, 1] // pool_col] = e
    for i in range(grid_row):
        for j in range(grid_col):
            e = index[i, j]
            if e < 0:
                continue
            scaled, here_row, here_col = precision * weights[e], places[e, 0], places[e, 1]
            lags[h, w] += scaled * weights[e]
            for other in range(i, min(i + far_row + 1, grid_row)):
                first = j + 1 if other == i else max(0, j - far_col)
                for beside in range(first, min(j + far_col + 1, grid_col)):
                    f = index[other, beside]
                    if f < 0:
                        continue
                    row, col = here_row - places[f, 0], here_col - places[f, 1]
                    if abs(row) <= h and abs(col) <= w:
                        product = scaled * weights[f]
                        lags[h + row, w + col] += product
                        lags[h - row, w - col] += product


@kernel(**BURIED)
def add_masked_pairs(places, weights, found, precision, mask, layout, gram):
    """Add to the precision of an atom's pixels where some of the image's are missing. Changes ``gram``."""
    _, height, length, planes, width, _, _, _, _, _, _ = layout
    columns = length // planes
    for e in range(found):
        for f in range(found):
            row, col = places[e, 0] - places[f, 0], places[e, 1] - places[f, 1]
            product = precision * weights[e] * weights[f]
            for a in range(max(0, -row), min(height, height - row)):
                for b in range(max(0, -col), min(columns, columns - col)):
                    for c in range(planes):
                        pixel = (places[e, 0] + a) * width + (places[e, 1] + b) * planes + c
                        if mask[pixel] > 0:
                            gram[c, a * columns + b, (a + row) * columns + b + col] += product
