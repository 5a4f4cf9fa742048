"""Up and down the layers of one image, compiled: what the joint model's kernels have in common.

``level`` 0 is the image, level l the input X of layer l (from 0), so the values of the blocks of layer l - 1. Of each
level one flat array (row * col * plane, plane last) holds values, a change, or the residual carried back up. Layers
and levels come as tuples, one entry each:

* ``dictionaries`` : flat (atom * atom_row * atom_col * plane)
* ``layout``       : (atom, atom_row, atom_col * plane, plane, level's columns * plane, map_row, map_col, pool_row,
  pool_col, block_row, block_col); outside a parallel loop the table of them, int64 (layer, 11)
* ``positions``    : (image, atom, block_row, block_col); of the top layer its z, with blocks of one position
* ``box``          : (level, 4) of int64: first and last + 1 row and column of a level that a change touches

*Checked:* tests/test_refine_sweep.py (running residuals and back-projections equal recomputed ones).
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from gdd.base.compiling import BURIED, FAST, kernel
from gdd.sampler.kernels.windows import window_add, window_dot


def slots_of(arrays, slot):
    """Entry ``slot`` of every array of a tuple, as a tuple."""
    return tuple(array[slot] for array in arrays)


@overload(slots_of)
def _slots_of(arrays, slot):
    if len(arrays) == 1:
        return lambda arrays, slot: (arrays[0][slot],)
    return lambda arrays, slot: (arrays[0][slot],) + slots_of(arrays[1:], slot)  # noqa: RUF005 (no stars in a kernel)


@kernel()
def row_of(table, layer):
    """One row of the table of sizes as a tuple."""
    row = table[layer]
    return row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10]


def layout_of(table, like):
    """Table of sizes (layer, 11) as a tuple of tuples, as many as ``like`` has entries.

    A parallel loop takes no tuples of tuples from outside; so each turn of it makes this one anew.
    """
    return tuple(row_of(table, layer) for layer in range(len(like)))


@overload(layout_of)
def _layout_of(table, like):
    if len(like) == 1:
        return lambda table, like: (row_of(table, 0),)
    return lambda table, like: (row_of(table, 0),) + layout_of(table[1:], like[1:])  # noqa: RUF005


@kernel(**BURIED)
def inverse_of(pool_col):
    """What `offset_of` multiplies by: a division for every block slowed a way down by 15 %, atoms of 17 x 17."""
    return (1 << 32) // pool_col + 1


@kernel(**BURIED)
def offset_of(m, pool_col, inverse, width, planes):
    """Where position m of a block is in a flat image, from where the block begins. Exact while m * pool_col < 2^32."""
    row = (np.int64(m) * inverse) >> 32
    return row * width + (m - row * pool_col) * planes


@kernel(**BURIED)
def clear(flat, width, planes, box):
    """Set a box of a level to zero. Changes ``flat``."""
    for row in range(box[0], box[1]):
        flat[row * width + box[2] * planes : row * width + box[3] * planes] = 0


@kernel(**BURIED)
def whole_box(layer, layout, box):
    """Set the box of a layer's input to all of it. Changes ``box``."""
    _, height, _, planes, width, map_row, _, _, _, _, _ = layout[layer]
    box[layer, 0], box[layer, 1] = 0, map_row + height - 1
    box[layer, 2], box[layer, 3] = 0, width // planes


@kernel(**BURIED)
def carry_down(level, n, positions, dictionaries, layout, change, box, size):
    """Carry a change of one level, within its box, down to the image. Changes ``change``, ``box`` below ``level``."""
    for layer in range(level - 1, -1, -1):
        carry_down_one(layer, n, positions, dictionaries, layout, change, box, size)


@kernel(**BURIED)
def carry_down_one(layer, n, positions, dictionaries, layout, change, box, size):
    """Change of a layer's input from the change of its blocks. Changes ``change`` and ``box`` at ``layer``.

    Every block under the box adds its value times its atom at its position; empty blocks add nothing.
    """
    atoms, height, length, planes, width, _, _, pool_row, pool_col, _, grid_col = layout[layer]
    lower_box(layer, layout, box)
    first_row, last_row, first_col, last_col = box[layer + 1]
    below, above = change[layer], change[layer + 1]
    clear(below, width, planes, box[layer])
    z, dictionary = positions[layer], dictionaries[layer]  # out of the loops: a tuple's entry costs a reference
    inverse = inverse_of(pool_col)
    for i in range(first_row, last_row):
        for j in range(first_col, last_col):
            corner = i * pool_row * width + j * pool_col * planes
            for k in range(atoms):
                value = above[(i * grid_col + j) * atoms + k]
                m = z[n, k, i, j]
                if value != 0 and m >= 0:
                    start = corner + offset_of(m, pool_col, inverse, width, planes)
                    atom = k * height * length
                    if layer == 0:
                        window_add(below, start, width, dictionary, atom, value, height, length, size)
                    else:
                        window_add(below, start, width, dictionary, atom, value, height, length, ((), ()))


@kernel(**BURIED)
def lower_box(layer, layout, box):
    """Set the box of a layer's input to what the blocks in the box above can reach. Changes ``box``."""
    _, height, length, planes, _, map_row, map_col, pool_row, pool_col, _, _ = layout[layer]
    box[layer, 0] = box[layer + 1, 0] * pool_row
    box[layer, 1] = min(box[layer + 1, 1] * pool_row, map_row) + height - 1
    box[layer, 2] = box[layer + 1, 2] * pool_col
    box[layer, 3] = min(box[layer + 1, 3] * pool_col, map_col) + length // planes - 1


@kernel(**BURIED)
def window_of(layer, row, col, rows, cols, layout, box):
    """Set the boxes of a layer's input and below to all that units at these places of its maps can reach.

    Places are ``rows`` x ``cols``, the first at (row, col). Changes ``box``.
    """
    _, height, length, planes, _, _, _, _, _, _, _ = layout[layer]
    box[layer, 0], box[layer, 1] = row, row + rows - 1 + height
    box[layer, 2], box[layer, 3] = col, col + cols - 1 + length // planes
    for lower in range(layer - 1, -1, -1):
        lower_box(lower, layout, box)


@kernel(**BURIED)
def carry_up(level, n, positions, dictionaries, layout, back, box, size):
    """Carry the residual, changed within the box of the image, up to a level. Changes ``back`` above 0 and ``box``.

    ``back[l][block]`` is the inner product of the residual with the image of a unit at that block.
    """
    for layer in range(level):
        _, height, length, planes, _, _, _, pool_row, pool_col, grid_row, grid_col = layout[layer]
        box[layer + 1, 0] = max(0, (box[layer, 0] - height + 1) // pool_row)
        box[layer + 1, 1] = min(grid_row, (box[layer, 1] - 1) // pool_row + 1)
        box[layer + 1, 2] = max(0, (box[layer, 2] - length // planes + 1) // pool_col)
        box[layer + 1, 3] = min(grid_col, (box[layer, 3] - 1) // pool_col + 1)
        carry_up_one(layer, n, positions, dictionaries, layout, back, box, size)


@kernel(**BURIED)
def carry_up_within(level, n, positions, dictionaries, layout, back, box, size):
    """Carry the residual up to a level within the boxes of `window_of`. Changes ``back`` there."""
    for layer in range(level):
        carry_up_one(layer, n, positions, dictionaries, layout, back, box, size)


@kernel(**BURIED)
def carry_up_one(layer, n, positions, dictionaries, layout, back, box, size):
    """Residual carried up to the blocks of a layer that are in their box. Changes ``back[layer + 1]``."""
    atoms, height, length, planes, width, _, _, pool_row, pool_col, _, grid_col = layout[layer]
    first_row, last_row, first_col, last_col = box[layer + 1]
    below, above = back[layer], back[layer + 1]
    z, dictionary, inverse = positions[layer], dictionaries[layer], inverse_of(pool_col)
    for i in range(first_row, last_row):
        for j in range(first_col, last_col):
            corner = i * pool_row * width + j * pool_col * planes
            for k in range(atoms):
                m = z[n, k, i, j]
                total = above[0] * 0
                if m >= 0:
                    start = corner + offset_of(m, pool_col, inverse, width, planes)
                    atom = k * height * length
                    if layer == 0:
                        total = window_dot(below, start, width, dictionary, atom, height, length, size)
                    else:
                        total = window_dot(below, start, width, dictionary, atom, height, length, ((), ()))
                above[(i * grid_col + j) * atoms + k] = total


@kernel(**BURIED)
def render(n, lowest, positions, w, dictionaries, layout, values, box, size):
    """Values of every level from the top one down to ``lowest``. Changes ``values`` and ``box``."""
    top = len(dictionaries) - 1
    whole_box(top, layout, box)
    values[top][:] = 0
    for k in range(w.shape[1]):
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                if positions[top][n, k, i, j] >= 0:
                    add_unit(top, k, i, j, w[n, k, i, j], dictionaries, layout, values, size)
    for layer in range(top - 1, lowest - 1, -1):
        lower_values(layer, n, positions, dictionaries, layout, values, box, size)


@kernel(**BURIED)
def lower_values(layer, n, positions, dictionaries, layout, values, box, size):
    """Values of level ``layer`` from those of the level above. Changes ``values[layer]`` and ``box``."""
    whole_box(layer + 1, layout, box)
    carry_down_one(layer, n, positions, dictionaries, layout, values, box, size)


@kernel(**BURIED)
def keep(source, kept, level, layout, box):
    """Copy levels 1 to ``level`` within their boxes. Changes ``kept``."""
    for lower in range(1, level + 1):
        planes, width = layout[lower][3], layout[lower][4]
        for row in range(box[lower, 0], box[lower, 1]):
            first, last = row * width + box[lower, 2] * planes, row * width + box[lower, 3] * planes
            for q in range(first, last):
                kept[lower][q] = source[lower][q]


@kernel(**BURIED)
def place_unit(layer, k, row, col, value, dictionaries, layout, change, box, size):
    """Set the change of a layer's input to ``value`` times one atom at (row, col). Changes ``change`` and ``box``."""
    _, height, length, planes, width, _, _, _, _, _, _ = layout[layer]
    box[layer, 0], box[layer, 1] = row, row + height
    box[layer, 2], box[layer, 3] = col, col + length // planes
    clear(change[layer], width, planes, box[layer])
    add_unit(layer, k, row, col, value, dictionaries, layout, change, size)


@kernel(**BURIED)
def add_unit(layer, k, row, col, value, dictionaries, layout, change, size):
    """Add ``value`` times one atom at (row, col) to the change of a layer's input. Changes ``change``."""
    _, height, length, planes, width, _, _, _, _, _, _ = layout[layer]
    start, atom = row * width + col * planes, k * height * length
    if layer == 0:
        window_add(change[0], start, width, dictionaries[0], atom, value, height, length, size)
    else:
        window_add(change[layer], start, width, dictionaries[layer], atom, value, height, length, ((), ()))


@kernel(**BURIED)
def correlation(layer, k, row, col, dictionaries, layout, back, size):
    """Inner product of the residual with the image of a unit of atom k at (row, col) of a layer's maps."""
    _, height, length, planes, width, _, _, _, _, _, _ = layout[layer]
    start, atom = row * width + col * planes, k * height * length
    if layer == 0:
        return window_dot(back[0], start, width, dictionaries[0], atom, height, length, size)
    return window_dot(back[layer], start, width, dictionaries[layer], atom, height, length, ((), ()))


@kernel(**BURIED, fastmath=FAST)
def weigh(change, mask, residual, width, planes, box):
    """Hide a change of the image where pixels are missing; return its energy and its product with the residual.

    ``mask`` (row * col * plane,) is 1 where observed, or empty if all is. Changes ``change``.
    """
    energy, product = 0.0, 0.0
    for row in range(box[0], box[1]):
        first, last = row * width + box[2] * planes, row * width + box[3] * planes
        here, there = change[first:last], residual[first:last]
        if mask.size > 0:
            seen = mask[first:last]
            for t in range(last - first):
                here[t] *= seen[t]
        part, other = change[0] * 0, change[0] * 0
        for t in range(last - first):
            part += here[t] * here[t]
            other += here[t] * there[t]
        energy += part
        product += other
    return energy, product


@kernel(**BURIED, fastmath=FAST)
def subtract(change, weight, residual, width, planes, box):
    """Residual -= weight * change within a box. Changes ``residual``."""
    for row in range(box[0], box[1]):
        first, last = row * width + box[2] * planes, row * width + box[3] * planes
        here, there = change[first:last], residual[first:last]
        for t in range(last - first):
            there[t] -= weight * here[t]
