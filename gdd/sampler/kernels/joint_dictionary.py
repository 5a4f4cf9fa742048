"""What the draws of the joint model's dictionaries need from the images, compiled.

An upper dictionary D enters an image linearly: image n is A_n D plus the rest. `solve_images` applies A_n, its adjoint
or both. The bottom dictionary is drawn atom by atom from `atom_images`. Sums are in double precision; the images of an
accumulator are added in index order.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin; mean and covariance of draws).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel
from gdd.sampler.kernels.joint import (
    clear,
    correlate_up,
    image_of,
    layer_of,
    list_entries,
    make_entries,
    place_of,
    synthesise_down,
    values_of,
    whole_box,
)
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.kernels.random import WORDS, fill_key, fill_normals
from gdd.sampler.kernels.windows import add_observed, static_add, window_add

#: what `solve_images` does: adjoint of the residual, perturbed; A and its adjoint; take A off the residual
PERTURB, APPLY, FINISH = range(3)


class SolveSums(NamedTuple):
    """Sums of one pass of an upper dictionary's draw; one more axis, of accumulators, while under way."""

    gradient: np.ndarray  # (atom * atom_row * atom_col * plane,)
    weights: np.ndarray  # (atom,): gamma_e times the sum of squared values
    energy: np.ndarray  # (2,): ||r||^2, gamma_e ||r||^2


class AtomSums(NamedTuple):
    """Sums that an atom of the bottom layer is drawn from, chunk by chunk."""

    lags: np.ndarray  # (chunk, 2 atom_row - 1, 2 atom_col - 1): gamma_e times the map's autocorrelation
    linear: np.ndarray  # (chunk, atom_row * atom_col * plane): gamma_e times the residual's correlation with the map
    gram: np.ndarray  # (chunk, plane, pixel, pixel), for lags where pixels are missing, else empty


#: `add_observed` without products fused with sums
add_observed_unfused = kernel()(add_observed)


# Upper dictionaries


@kernel()
def solve_images(task, layer, each, direction, images, shared, work, sums, key):
    """One pass of an upper dictionary's draw over images, ``each`` of them to an accumulator of ``sums``.

    task = PERTURB : gradient = A'(gamma_e r + sqrt(gamma_e) eps), weights = gamma_e * sum of squared values by atom
    task = APPLY   : gradient = A' gamma_e A direction
    task = FINISH  : r -= A direction; energy = ||r||^2, gamma_e ||r||^2

    Changes the residuals (FINISH), work and sums.
    """
    direction, images, shared, work, sums = borrowed((direction, images, shared, work, sums))
    here, back, change, residuals = layer_of(shared.table, layer), work.back, work.change, images.residuals
    entries, pixels = make_entries(here.atoms * here.grid_row * here.grid_col, images.w), residuals.shape[1]
    atom, noise = np.empty(here.height * here.length, images.w.dtype), np.zeros(pixels)
    stream = np.empty(WORDS, np.uint64)
    for n in range(len(residuals)):
        image, part = image_of(images, n, stream), n // each
        values = values_of(layer, image, shared, work)
        count = list_entries(0, here.atoms, here, image.z, values, entries)
        if task == PERTURB:
            fill_key(stream, key, images.first + n)
            fill_normals(stream, noise)
            for p in range(pixels):
                added = noise[p] * image.mask[p] if image.mask.size > 0 else noise[p]
                back[p] = image.gamma_e * residuals[n, p] + math.sqrt(image.gamma_e) * added
        else:
            place_direction(entries, count, direction, here, change, work.box[layer])
            synthesise_down(layer, image.z, shared, change, work.box)
            for p in range(pixels):
                observed = change[p] * image.mask[p] if image.mask.size > 0 else change[p]
                if task == APPLY:
                    back[p] = image.gamma_e * observed
                else:
                    residuals[n, p] -= observed
                    sums.energy[part, 0] += np.float64(residuals[n, p]) ** 2
                    sums.energy[part, 1] += image.gamma_e * np.float64(residuals[n, p]) ** 2
        if task != FINISH:
            whole_box(layer_of(shared.table, 0), work.box[0])
            correlate_up(layer, image.z, shared, back, work.box)
            add_gradient(entries, count, back, here, atom, sums.gradient[part])
            for e in range(count):
                sums.weights[part, entries.atoms[e]] += image.gamma_e * np.float64(entries.values[e]) ** 2


@kernel()
def place_direction(entries, count, direction, here, change, box):
    """Set the change of an upper layer's input to what a change of its dictionary does. Changes it and its box."""
    whole_box(here, box)
    clear(change, here, box)
    for e in range(count):
        start, atom = place_of(here, entries.rows[e], entries.cols[e]), entries.atoms[e] * here.height * here.length
        window_add(change, start, here.width, direction, atom, here.length, entries.values[e], here)


@kernel()
def add_gradient(entries, count, back, here, atom, gradient):
    """Add the adjoint of one image's A, applied to what was correlated up. Changes ``gradient``, ``atom``.

    atom : the same of one atom of this image, scratch in the images' precision
    """
    e = 0
    while e < count:
        k, first = entries.atoms[e], entries.atoms[e] * atom.size
        atom[:] = 0
        while e < count and entries.atoms[e] == k:
            start = place_of(here, entries.rows[e], entries.cols[e])
            window_add(atom, 0, here.length, back, start, here.width, entries.values[e], here)
            e += 1
        for t in range(atom.size):
            gradient[first + t] += atom[t]


@kernel()
def block_values(layer, images, shared, work, out):
    """Values of a layer's blocks, 0 where empty. Changes work and ``out`` (image, block)."""
    images, shared, work, out = borrowed((images, shared, work, out))
    here, stream = layer_of(shared.table, layer), np.empty(WORDS, np.uint64)
    for n in range(out.shape[0]):
        image = image_of(images, n, stream)
        values = values_of(layer, image, shared, work)
        for b in range(out.shape[1]):
            out[n, b] = 0 if image.z[here.block + b] < 0 else values[b]


# Bottom dictionary


@kernel()
def atom_images(k, step, values, images, shared, sums):
    """Take ``step`` of atom k - 1 off every residual, then form the sums that atom k of the bottom layer is drawn from.

    Parameters
    ----------
    k : 0 to the number of atoms: at first there is no step to take off, at last no atom
    step : (atom_row * atom_col * plane,)       change of atom k - 1
    values : (image, block)                     values of the bottom layer's blocks

    Changes residuals and sums.
    """
    step, values, images, shared, sums = borrowed((step, values, images, shared, sums))
    here, residuals, masked = layer_of(shared.table, 0), images.residuals, images.masks.shape[0] > 0
    entries = make_entries(here.grid_row * here.grid_col, np.empty(0))
    linear, index = np.empty(step.size, step.dtype), np.empty((here.grid_row, here.grid_col), np.int64)
    for n in range(len(residuals)):
        residual, mask, chunk = residuals[n], images.masks[n] if masked else residuals[n, :0], n // CHUNK
        if k > 0:
            for e in range(list_entries(k - 1, k, here, images.z[n], values[n], entries)):
                start, value = place_of(here, entries.rows[e], entries.cols[e]), -entries.values[e]
                if masked:
                    add_observed_unfused(residual, mask, start, step, 0, value, here)
                else:
                    add_window(residual, start, here.width, step, 0, here.length, value, here, shared)
        if k < here.atoms:
            precision = np.float64(images.gamma_e[n if images.gamma_e.size > 1 else 0])
            count = list_entries(k, k + 1, here, images.z[n], values[n], entries)
            linear[:] = 0
            for e in range(count):
                start = place_of(here, entries.rows[e], entries.cols[e])
                add_window(linear, 0, here.length, residual, start, here.width, entries.values[e], here, shared)
            for t in range(linear.size):
                sums.linear[chunk, t] += precision * linear[t]
            if masked:
                add_masked_pairs(entries, count, precision, mask, here, sums.gram[chunk])
            else:
                add_pairs(entries, count, precision, here, index, sums.lags[chunk])


@kernel()
def add_window(onto, start, width, source, first, stride, value, here, shared):
    """`window_add` for the bottom layer. Changes ``onto``."""
    value = onto.dtype.type(value)
    if here.static:
        static_add(onto, start, width, source, first, stride, value, shared.rows, shared.columns)
    else:
        window_add(onto, start, width, source, first, stride, value, here)


@kernel()
def add_pairs(entries, count, precision, here, index, lags):
    """Add a map's autocorrelation. Changes ``lags``: entry [h + p, w + q] is the sum of S(u) S(u - (p, q)).

    Every block meets those after it, row by row, that are near enough for their atoms to overlap wherever they are.

    index : (block_row, block_col), scratch: which entry a block is, -1 if none. Changed
    """
    h, w = lags.shape[0] // 2, lags.shape[1] // 2
    far_row, far_col = (h + here.pool_row - 1) // here.pool_row, (w + here.pool_col - 1) // here.pool_col
    index[:] = -1
    for e in range(count):
        index[entries.rows[e] // here.pool_row, entries.cols[e] // here.pool_col] = e
    for e in range(count):
        i, j = entries.rows[e] // here.pool_row, entries.cols[e] // here.pool_col
        scaled = precision * entries.values[e]
        lags[h, w] += scaled * entries.values[e]
        for other in range(i, min(i + far_row + 1, here.grid_row)):
            for beside in range(j + 1 if other == i else max(0, j - far_col), min(j + far_col + 1, here.grid_col)):
                f = index[other, beside]
                if f < 0:
                    continue
                row, col = entries.rows[e] - entries.rows[f], entries.cols[e] - entries.cols[f]
                if abs(row) <= h and abs(col) <= w:
                    product = scaled * entries.values[f]
                    lags[h + row, w + col] += product
                    lags[h - row, w - col] += product


@kernel()
def add_masked_pairs(entries, count, precision, mask, here, gram):
    """Add to the precision of an atom's pixels where some of the image's are missing. Changes ``gram``."""
    columns = here.length // here.planes
    for e in range(count):
        start = place_of(here, entries.rows[e], entries.cols[e])
        for f in range(count):
            row, col = entries.rows[e] - entries.rows[f], entries.cols[e] - entries.cols[f]
            product = precision * entries.values[e] * entries.values[f]
            for a in range(max(0, -row), min(here.height, here.height - row)):
                for b in range(max(0, -col), min(columns, columns - col)):
                    for c in range(here.planes):
                        if mask[start + a * here.width + b * here.planes + c] > 0:
                            gram[c, a * columns + b, (a + row) * columns + b + col] += product
