"""What the draws of the joint model's dictionaries need from the images, compiled.

An upper dictionary D enters an image linearly: image n is A_n D plus the rest. `solve_images` applies A_n, its adjoint
or both. The bottom dictionary is drawn atom by atom from `atom_images`. Sums are in double precision; the images of a
slot are added in index order.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin; mean and covariance of draws).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel
from gdd.sampler.kernels.joint import (
    block_of,
    clear,
    correlate_up,
    image_of,
    layer_of,
    place_in_map,
    place_of,
    synthesise_down,
    synthesise_values,
    whole_box,
)
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.kernels.windows import static_add, window_add
from gdd.sampler.random import WORDS, fill_key, fill_normals

#: what `solve_images` does: adjoint of the residual, perturbed; A and its adjoint; take A off the residual
PERTURB, APPLY, FINISH = range(3)


class SolveSums(NamedTuple):
    """Sums of one pass of an upper dictionary's draw; one more axis, of slots, while under way."""

    gradient: np.ndarray  # (atom * atom_row * atom_col * plane,)
    weights: np.ndarray  # (atom,): gamma_e times the sum of squared values
    energy: np.ndarray  # (2,): ||r||^2, gamma_e ||r||^2


class AtomSums(NamedTuple):
    """Sums that an atom of the bottom layer is drawn from, chunk by chunk."""

    lags: np.ndarray  # (chunk, 2 atom_row - 1, 2 atom_col - 1): gamma_e times the map's autocorrelation
    linear: np.ndarray  # (chunk, atom_row * atom_col * plane): gamma_e times the residual's correlation with the map
    gram: np.ndarray  # (chunk, plane, pixel, pixel), for lags where pixels are missing, else empty


class Entries(NamedTuple):
    """Blocks of one image that hold something: of one layer."""

    atoms: np.ndarray
    places: np.ndarray  # where their atoms begin in the layer's input
    values: np.ndarray


class Blocks(NamedTuple):
    """The same of one atom of the bottom layer."""

    rows: np.ndarray  # places in the map
    cols: np.ndarray
    values: np.ndarray


# Upper dictionaries


@kernel()
def solve_images(task, layer, each, direction, images, model, work, sums, key):
    """One pass of an upper dictionary's draw over images, ``each`` of them to a slot of ``sums``.

    task = PERTURB : gradient = A'(gamma_e r + sqrt(gamma_e) eps), weights = gamma_e * sum of squared values by atom
    task = APPLY   : gradient = A' gamma_e A direction
    task = FINISH  : r -= A direction; energy = ||r||^2, gamma_e ||r||^2

    Changes the residuals (FINISH), work and sums.
    """
    direction, images, model, work, sums = borrowed((direction, images, model, work, sums))
    here, top, kind = layer_of(model.table, layer), model.table.shape[0] - 1, images.w.dtype
    back, change, residuals = work.back, work.change, images.residuals
    blocks, pixels = here.atoms * here.grid_row * here.grid_col, residuals.shape[1]
    entries = Entries(np.empty(blocks, np.int64), np.empty(blocks, np.int64), np.empty(blocks, kind))
    own, noise, stream = np.empty(here.height * here.length, kind), np.zeros(pixels), np.empty(WORDS, np.uint64)
    for n in range(len(residuals)):
        image, slot = image_of(images, n, stream), n // each
        if layer < top:
            synthesise_values(layer + 1, image, model, work)
        found = list_blocks(image, layer, model.table, work.values, entries)
        if task == PERTURB:
            fill_key(stream, key, images.first + n)
            fill_normals(stream, noise)
            for p in range(pixels):
                added = noise[p] * image.mask[p] if image.mask.size > 0 else noise[p]
                back[p] = image.gamma_e * residuals[n, p] + math.sqrt(image.gamma_e) * added
        else:
            place_direction(entries, found, direction, here, change, work.box[layer])
            synthesise_down(layer, image.z, model, change, work.box)
            for p in range(pixels):
                seen = change[p] * image.mask[p] if image.mask.size > 0 else change[p]
                if task == APPLY:
                    back[p] = image.gamma_e * seen
                else:
                    residuals[n, p] -= seen
                    sums.energy[slot, 0] += np.float64(residuals[n, p]) ** 2
                    sums.energy[slot, 1] += image.gamma_e * np.float64(residuals[n, p]) ** 2
        if task != FINISH:
            whole_box(layer_of(model.table, 0), work.box[0])
            correlate_up(layer, image.z, model, back, work.box)
            add_gradient(entries, found, back, here, own, sums.gradient[slot])
            for e in range(found):
                sums.weights[slot, entries.atoms[e]] += image.gamma_e * np.float64(entries.values[e]) ** 2


@kernel()
def list_blocks(image, layer, table, values, entries):
    """Blocks of a layer that are not empty, atom by atom; returns how many. Changes ``entries``."""
    here, found = layer_of(table, layer), 0
    for k in range(here.atoms):
        for i in range(here.grid_row):
            for j in range(here.grid_col):
                b = block_of(k, i, j, here)
                m = image.z[here.block + b]
                if m >= 0:
                    row, col = place_in_map(i, j, m, here)
                    entries.atoms[found], entries.places[found] = k, place_of(here, row, col)
                    entries.values[found] = value_of(image, b, layer, table, values)
                    found += 1
    return found


@kernel()
def value_of(image, b, layer, table, values):
    """Value of a block that is not empty."""
    return image.w[b] if layer == table.shape[0] - 1 else values[layer_of(table, layer).output + b]


@kernel()
def place_direction(entries, found, direction, here, change, box):
    """Set the change of an upper layer's input to what a change of its dictionary does. Changes it and its box."""
    whole_box(here, box)
    clear(change, here, box)
    for e in range(found):
        atom = entries.atoms[e] * here.height * here.length
        window_add(change, entries.places[e], here.width, direction, atom, here.length, entries.values[e], here)


@kernel()
def add_gradient(entries, found, back, here, own, gradient):
    """Add the adjoint of one image's A, applied to what was correlated up. Changes ``gradient``, ``own``.

    own : the same of one atom of this image, scratch in the images' precision
    """
    e = 0
    while e < found:
        k, first = entries.atoms[e], entries.atoms[e] * own.size
        own[:] = 0
        while e < found and entries.atoms[e] == k:
            window_add(own, 0, here.length, back, entries.places[e], here.width, entries.values[e], here)
            e += 1
        for t in range(own.size):
            gradient[first + t] += own[t]


@kernel()
def block_values(layer, images, model, work, out):
    """Values of a layer's blocks, 0 where empty. Changes work and ``out`` (image, block)."""
    images, model, work, out = borrowed((images, model, work, out))
    here, stream = layer_of(model.table, layer), np.empty(WORDS, np.uint64)
    for n in range(out.shape[0]):
        image = image_of(images, n, stream)
        if layer < model.table.shape[0] - 1:
            synthesise_values(layer + 1, image, model, work)
        for b in range(out.shape[1]):
            empty = image.z[here.block + b] < 0
            out[n, b] = 0 if empty else value_of(image, b, layer, model.table, work.values)


# Bottom dictionary


@kernel()
def atom_images(k, step, values, images, model, sums):
    """Take ``step`` of atom k - 1 off every residual, then form the sums that atom k of the bottom layer is drawn from.

    Parameters
    ----------
    k : 0 to the number of atoms: at first there is no step to take off, at last no atom
    step : (atom_row * atom_col * plane,)       change of atom k - 1
    values : (image, block)                     values of the bottom layer's blocks

    Changes residuals and sums.
    """
    step, values, images, model, sums = borrowed((step, values, images, model, sums))
    here, residuals, masked = layer_of(model.table, 0), images.residuals, images.masks.shape[0] > 0
    size = here.grid_row * here.grid_col
    blocks = Blocks(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size))
    own, index = np.empty(step.size, step.dtype), np.empty((here.grid_row, here.grid_col), np.int64)
    for n in range(len(residuals)):
        residual, mask, chunk = residuals[n], images.masks[n] if masked else residuals[n, :0], n // CHUNK
        if k > 0:
            for e in range(list_atom(k - 1, images.z[n], values[n], here, blocks)):
                start = place_of(here, blocks.rows[e], blocks.cols[e])
                if masked:
                    take_off(residual, mask, start, blocks.values[e], step, here)
                else:
                    add_window(residual, start, here.width, step, 0, here.length, -blocks.values[e], here, model)
        if k < here.atoms:
            precision = np.float64(images.gamma_e[n if images.gamma_e.size > 1 else 0])
            found = list_atom(k, images.z[n], values[n], here, blocks)
            own[:] = 0
            for e in range(found):
                start = place_of(here, blocks.rows[e], blocks.cols[e])
                add_window(own, 0, here.length, residual, start, here.width, blocks.values[e], here, model)
            for t in range(own.size):
                sums.linear[chunk, t] += precision * own[t]
            if masked:
                add_masked_pairs(blocks, found, precision, mask, here, sums.gram[chunk])
            else:
                add_pairs(blocks, found, precision, here, index, sums.lags[chunk])


@kernel()
def add_window(onto, start, width, source, first, stride, value, here, model):
    """`window_add` for the bottom layer. Changes ``onto``."""
    value = onto.dtype.type(value)
    if here.static:
        static_add(onto, start, width, source, first, stride, value, model.rows, model.columns)
    else:
        window_add(onto, start, width, source, first, stride, value, here)


@kernel()
def list_atom(k, z, values, here, blocks):
    """Blocks of one atom in one image that hold something; returns how many. Changes ``blocks``."""
    found = 0
    for i in range(here.grid_row):
        for j in range(here.grid_col):
            b = block_of(k, i, j, here)
            m = z[b]
            if m >= 0 and values[b] != 0:
                blocks.rows[found], blocks.cols[found] = place_in_map(i, j, m, here)
                blocks.values[found] = values[b]
                found += 1
    return found


@kernel()
def take_off(residual, mask, start, weight, step, here):
    """Subtract weight * step at one place, where pixels are observed. Changes ``residual``."""
    for a in range(here.height):
        for t in range(here.length):
            pixel = start + a * here.width + t
            residual[pixel] -= weight * step[a * here.length + t] * mask[pixel]


@kernel()
def add_pairs(blocks, found, precision, here, index, lags):
    """Add a map's autocorrelation. Changes ``lags``: entry [h + p, w + q] is the sum of S(u) S(u - (p, q)).

    Every block meets those after it, row by row, that are near enough for their atoms to overlap wherever they are.

    index : (block_row, block_col), scratch: which entry a block is, -1 if none. Changed
    """
    h, w = lags.shape[0] // 2, lags.shape[1] // 2
    far_row, far_col = (h + here.pool_row - 1) // here.pool_row, (w + here.pool_col - 1) // here.pool_col
    index[:] = -1
    for e in range(found):
        index[blocks.rows[e] // here.pool_row, blocks.cols[e] // here.pool_col] = e
    for e in range(found):
        i, j = blocks.rows[e] // here.pool_row, blocks.cols[e] // here.pool_col
        scaled = precision * blocks.values[e]
        lags[h, w] += scaled * blocks.values[e]
        for other in range(i, min(i + far_row + 1, here.grid_row)):
            for beside in range(j + 1 if other == i else max(0, j - far_col), min(j + far_col + 1, here.grid_col)):
                f = index[other, beside]
                if f < 0:
                    continue
                row, col = blocks.rows[e] - blocks.rows[f], blocks.cols[e] - blocks.cols[f]
                if abs(row) <= h and abs(col) <= w:
                    product = scaled * blocks.values[f]
                    lags[h + row, w + col] += product
                    lags[h - row, w - col] += product


@kernel()
def add_masked_pairs(blocks, found, precision, mask, here, gram):
    """Add to the precision of an atom's pixels where some of the image's are missing. Changes ``gram``."""
    columns = here.length // here.planes
    for e in range(found):
        start = place_of(here, blocks.rows[e], blocks.cols[e])
        for f in range(found):
            row, col = blocks.rows[e] - blocks.rows[f], blocks.cols[e] - blocks.cols[f]
            product = precision * blocks.values[e] * blocks.values[f]
            for a in range(max(0, -row), min(here.height, here.height - row)):
                for b in range(max(0, -col), min(columns, columns - col)):
                    for c in range(here.planes):
                        if mask[start + a * here.width + b * here.planes + c] > 0:
                            gram[c, a * columns + b, (a + row) * columns + b + col] += product
