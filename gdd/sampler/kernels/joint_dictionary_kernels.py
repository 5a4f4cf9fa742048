"""What the draw of an upper dictionary of the joint model needs from the images, compiled.

An upper dictionary D enters an image linearly: image n is A_n D plus the rest. `solve_images` applies A_n, its adjoint
or both; `block_values` serves the bottom dictionary too. All images of a chunk add to one slot of the sums, in double
precision and in index order.

*Checked:* tests/test_refine_sweep.py (adjoint identity, sums against the plain design matrix).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import BURIED, kernel
from gdd.sampler.kernels.joint_kernels_math import (
    carry_down,
    carry_up,
    clear,
    inverse_of,
    layout_of,
    offset_of,
    render,
    slots_of,
    whole_box,
)
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.kernels.windows import window_add, window_take
from gdd.sampler.random import WORDS, fill_key, fill_normals

#: what `solve_images` does: adjoint of the residual, perturbed or not; A and its adjoint; take A off the residual
PERTURB, LOOK, APPLY, FINISH = range(4)


@kernel(**BURIED)
def value_of(layer, n, k, i, j, w, values, model):
    """Value of a block of any layer, 0 where it is empty."""
    positions, dictionaries, layout, _ = model
    if positions[layer][n, k, i, j] < 0:
        return w.dtype.type(0)
    if layer == len(dictionaries) - 1:
        return w[n, k, i, j]
    return values[layer + 1][(i * layout[layer][10] + j) * layout[layer][0] + k]


@kernel(**BURIED)
def list_values(layer, n, w, values, model, entries, amounts):
    """Blocks of a layer that hold something: (atom, where it starts in the layer's input) and value; returns how many.

    Changes ``entries`` (entry, 2) and ``amounts`` (entry,).
    """
    positions, _, layout, _ = model
    atoms, _, _, planes, width, _, _, pool_row, pool_col, grid_row, grid_col = layout[layer]
    found, z, inverse = 0, positions[layer], inverse_of(pool_col)
    for k in range(atoms):
        for i in range(grid_row):
            for j in range(grid_col):
                m = z[n, k, i, j]
                if m >= 0:
                    corner = i * pool_row * width + j * pool_col * planes
                    entries[found, 0] = k
                    entries[found, 1] = corner + offset_of(m, pool_col, inverse, width, planes)
                    amounts[found] = value_of(layer, n, k, i, j, w, values, model)
                    found += 1
    return found


@kernel(**BURIED)
def gather(layer, entries, amounts, found, back, layout, own, gradient):
    """Add the adjoint of one image's A, applied to what was carried up. Changes ``gradient``, ``own``.

    own : the same of this image alone, scratch in the images' precision
    """
    _, height, length, _, width, _, _, _, _, _, _ = layout[layer]
    own[:] = 0
    for e in range(found):
        atom = entries[e, 0] * height * length
        window_take(back[layer], entries[e, 1], width, own, atom, amounts[e], height, length, ((), ()))
    for t in range(own.size):
        gradient[t] += own[t]


@kernel(**BURIED)
def scatter(layer, entries, amounts, found, direction, change, box, layout):
    """Set the change of an upper layer's input to what a change of its dictionary does. Changes it and its box."""
    _, height, length, planes, width, _, _, _, _, _, _ = layout[layer]
    whole_box(layer, layout, box)
    clear(change[layer], width, planes, box[layer])
    for e in range(found):
        atom = entries[e, 0] * height * length
        window_add(change[layer], entries[e, 1], width, direction, atom, amounts[e], height, length, ((), ()))


@kernel(parallel=True, nogil=True)
def solve_images(task, layer, direction, residuals, masks, w, gamma_e, model, work, key, first, sums):
    """One pass of an upper dictionary's draw over images ``first``...

    task = PERTURB : gradient = A'(gamma_e r + sqrt(gamma_e) eps), weights = gamma_e * sum of squared values by atom
    task = LOOK    : the same without eps
    task = APPLY   : gradient = A' gamma_e A direction
    task = FINISH  : r -= A direction; energy = ||r||^2, gamma_e ||r||^2

    sums : gradient (slot, atom * atom_row * atom_col * plane), weights (slot, atom), energy (slot, 2)
    The rest as in `gdd.sampler.kernels.joint_kernels.run_images`. Changes residuals (FINISH), work and sums.
    """
    positions, dictionaries, table, rows, columns = model
    values, change, back, box = work[:4]
    gradient, weights, energy = sums
    for slot in prange(gradient.shape[0]):  # signed, or the turn would be compiled twice
        solve_chunk(
            np.int64(slot), first + slot * CHUNK, task, layer, direction, residuals, masks, w, gamma_e, positions,
            dictionaries, table, rows, columns, values, change, back, box[slot], key, gradient[slot], weights[slot],
            energy[slot],
        )  # fmt: skip


@kernel(**BURIED)
def solve_chunk(
    slot, first, task, layer, direction, residuals, masks, w, gamma_e, positions, dictionaries, table, rows, columns,
    all_values, all_change, all_back, box, key, gradient, weights, energy,
):  # fmt: skip
    """One turn of the loop of `solve_images`."""
    layout, size, top = layout_of(table, dictionaries), (rows, columns), len(dictionaries) - 1
    values, change, back = slots_of(all_values, slot), slots_of(all_change, slot), slots_of(all_back, slot)
    model = (positions, dictionaries, layout, size)
    stream = np.empty(WORDS, np.uint64)
    blocks = layout[layer][0] * layout[layer][9] * layout[layer][10]
    entries, amounts = np.empty((blocks, 2), np.int64), np.empty(blocks, w.dtype)
    own, noise = np.empty(gradient.size, w.dtype), np.zeros(residuals.shape[1])
    for n in range(first, min(first + CHUNK, residuals.shape[0])):
        precision = gamma_e[n if gamma_e.size > 1 else 0]
        if layer < top:
            render(n, layer + 1, positions, w, dictionaries, layout, values, box, size)
        found = list_values(layer, n, w, values, model, entries, amounts)
        if task <= LOOK:
            if task == PERTURB:
                fill_key(stream, key, n)
                fill_normals(stream, noise)
            for p in range(residuals.shape[1]):
                added = noise[p] * masks[n, p] if masks.shape[0] > 0 else noise[p]
                back[0][p] = precision * residuals[n, p] + math.sqrt(precision) * added
        else:
            scatter(layer, entries, amounts, found, direction, change, box, layout)
            carry_down(layer, n, positions, dictionaries, layout, change, box, size)
            for p in range(residuals.shape[1]):
                seen = change[0][p] * masks[n, p] if masks.shape[0] > 0 else change[0][p]
                if task == APPLY:
                    back[0][p] = precision * seen
                else:
                    residuals[n, p] -= seen
                    energy[0] += np.float64(residuals[n, p]) ** 2
                    energy[1] += precision * np.float64(residuals[n, p]) ** 2
        if task != FINISH:
            whole_box(0, layout, box)
            carry_up(layer, n, positions, dictionaries, layout, back, box, size)
            gather(layer, entries, amounts, found, back, layout, own, gradient)
            for e in range(found):
                weights[entries[e, 0]] += precision * np.float64(amounts[e]) ** 2


@kernel(parallel=True, nogil=True)
def block_values(layer, w, model, work, first, out):
    """Values of a layer's blocks, images ``first``... Changes work and ``out`` (image, row * col * atom)."""
    positions, dictionaries, table, rows, columns = model
    all_values, box = work[0], work[3]
    for slot in prange(box.shape[0]):
        values = slots_of(all_values, slot)
        value_chunk(
            np.int64(slot), first, layer, w, positions, dictionaries, table, rows, columns, values, box[slot], out
        )  # fmt: skip


@kernel(**BURIED)
def value_chunk(slot, first, layer, w, positions, dictionaries, table, rows, columns, values, box, out):
    """One turn of the loop of `block_values`."""
    layout, size = layout_of(table, dictionaries), (rows, columns)
    model = (positions, dictionaries, layout, size)
    for n in range(first + slot * CHUNK, min(first + (slot + 1) * CHUNK, out.shape[0])):
        if layer < len(dictionaries) - 1:
            render(n, layer + 1, positions, w, dictionaries, layout, values, box, size)
        for k in range(layout[layer][0]):
            for i in range(layout[layer][9]):
                for j in range(layout[layer][10]):
                    place = (i * layout[layer][10] + j) * layout[layer][0] + k
                    out[n, place] = value_of(layer, n, k, i, j, w, values, model)
