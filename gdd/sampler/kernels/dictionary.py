"""Sums over images for the draws of dictionaries.

An image depends linearly on an upper dictionary D of the joint model: image n is A_n D plus the contribution of all
else. `solve_images` applies A_n, its adjoint or both. The bottom dictionary of the joint model, or of masked images, is
drawn atom by atom from the residuals, with one call of `pass_atom` per atom. Sums are in double precision; the images
of an accumulator are added in index order.

*Checked:* tests/test_joint_sweep.py, tests/test_masked.py (same chain as the plain twins; mean, covariance of draws).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subroutine
from gdd.sampler.kernels.joint import (
    as_maps,
    clear,
    correlate_up,
    full_box,
    image_of,
    positions_of,
    synthesise_down,
    values_of,
)
from gdd.sampler.kernels.operations import CHUNK, list_active, make_active, window_start
from gdd.sampler.kernels.random import STREAM_SIZE, fill_key, fill_normals
from gdd.sampler.kernels.windows import add_observed, static_add, window_add

# Upper dictionaries

#: tasks of `solve_images`
PERTURB, APPLY, FINISH = range(3)


class SolveSums(NamedTuple):
    """Sums of one pass of an upper dictionary's draw; during the pass with a leading axis of accumulators."""

    gradient: np.ndarray  # (atom * atom_row * atom_col * plane,)
    weights: np.ndarray  # (atom,): gamma_e times the sum of squared values
    energy: np.ndarray  # (): ||r||^2
    weighted_energy: np.ndarray  # (): gamma_e ||r||^2


@kernel()
def solve_images(task, number, images_per_accumulator, direction, images, shared, work, sums, key):
    """One pass over images r for the draw of the dictionary of layer ``number``.

    task = PERTURB : gradient = A'(gamma_e r + sqrt(gamma_e) eps), weights = gamma_e * sum of squared values by atom
    task = APPLY   : gradient = A' gamma_e A direction
    task = FINISH  : r -= A direction; energies of r

    Changes the residuals (FINISH), ``work`` and ``sums``.

    Parameters
    ----------
    images_per_accumulator : number of images
    direction : (atom * atom_row * atom_col * plane,)
    images, shared, work : `gdd.sampler.kernels.joint`
    sums : `SolveSums` with a leading axis of accumulators
    key : (seed, stage, layer, sweep), of the noise eps
    """
    direction, images, shared, work, sums = borrowed((direction, images, shared, work, sums))
    layer, upward, delta, residuals = shared.layers[number], work.upward, work.delta, images.residuals
    active, pixels = make_active(layer.atoms * layer.grid_row * layer.grid_col), residuals.shape[1]
    atom, noise = np.empty(layer.height * layer.length, images.w.dtype), np.zeros(pixels)
    stream = np.empty(STREAM_SIZE, np.uint64)
    for n in range(len(residuals)):
        image, accumulator = borrowed(image_of(images, n, stream)), n // images_per_accumulator
        values = values_of(number, image, shared, work)
        blocks = values[: layer.atoms * layer.grid_row * layer.grid_col]
        count = list_active(positions_of(layer, image.z), as_maps(layer, blocks), layer, active)
        if task == PERTURB:
            fill_key(stream, key, images.first + n)
            fill_normals(stream, noise)
            for p in range(pixels):
                added = noise[p] * image.mask[p] if image.mask.size > 0 else noise[p]
                upward[p] = image.gamma_e * residuals[n, p] + math.sqrt(image.gamma_e) * added
        else:
            synthesise_direction(active, count, direction, layer, delta, work.box[number])
            synthesise_down(number, image.z, shared, delta, work.box)
            for p in range(pixels):
                observed = delta[p] * image.mask[p] if image.mask.size > 0 else delta[p]
                if task == APPLY:
                    upward[p] = image.gamma_e * observed
                else:
                    residuals[n, p] -= observed
                    sums.energy[accumulator] += np.float64(residuals[n, p]) ** 2
                    sums.weighted_energy[accumulator] += image.gamma_e * np.float64(residuals[n, p]) ** 2
        if task != FINISH:
            full_box(shared.layers[0], work.box[0])
            correlate_up(number, image.z, shared, upward, work.box)
            add_gradient(active, count, upward, layer, atom, sums.gradient[accumulator])
            for e in range(count):
                sums.weights[accumulator, active.places[e, 0]] += image.gamma_e * active.weights[e] ** 2


@subroutine()
def synthesise_direction(active, count, direction, layer, delta, box):
    """Change of an upper layer's input by a change ``direction`` of its dictionary, into ``delta`` and ``box``."""
    full_box(layer, box)
    clear(delta, layer, box)
    for e in range(count):
        k, start = active.places[e, 0], window_start(active.places[e, 1], active.places[e, 2], layer)
        first, amount = k * layer.height * layer.length, delta.dtype.type(active.weights[e])
        window_add(delta, start, layer.width, direction, first, layer.length, amount, layer)


@subroutine()
def add_gradient(active, count, upward, layer, atom, gradient):
    """Add the adjoint of one image's A, applied to ``upward``, to ``gradient`` (atom * atom_row * atom_col * plane,).

    atom : (atom_row * atom_col * plane,), scratch in the images' precision
    """
    e = 0
    while e < count:
        k, first = active.places[e, 0], active.places[e, 0] * atom.size
        atom[:] = 0
        while e < count and active.places[e, 0] == k:
            start = window_start(active.places[e, 1], active.places[e, 2], layer)
            amount = atom.dtype.type(active.weights[e])
            window_add(atom, 0, layer.length, upward, start, layer.width, amount, layer)
            e += 1
        for t in range(atom.size):
            gradient[first + t] += atom[t]


@kernel()
def block_values(number, images, shared, work, out):
    """Values of a layer's blocks, 0 where empty, into ``out`` (image, block). Changes ``work``."""
    images, shared, work, out = borrowed((images, shared, work, out))
    first, stream = shared.layers[number].block, np.empty(STREAM_SIZE, np.uint64)
    for n in range(out.shape[0]):
        image = borrowed(image_of(images, n, stream))
        values = values_of(number, image, shared, work)
        for b in range(out.shape[1]):
            out[n, b] = 0 if image.z[first + b] < 0 else values[b]


# Bottom dictionaries, from residuals


class MapArrays(NamedTuple):
    """Maps of a bottom layer, noise precisions and residuals of a batch of images."""

    z: np.ndarray  # (image, atom, block_row, block_col)
    w: np.ndarray  # (image, atom, block_row, block_col)
    gamma_e: np.ndarray  # (image or 1,)
    residuals: np.ndarray  # (image, row * col * plane), 0 where hidden
    masks: np.ndarray  # (image, row * col * plane), 1 where observed, else 0; (0, ...) if every pixel is observed

    def slice(self, where: slice) -> MapArrays:
        """Views of a slice of the images."""
        return MapArrays(*(array[where] if len(array) > 1 else array for array in self))


class AtomSums(NamedTuple):
    """Sufficient statistics for the draw of one atom; during a pass with a leading axis of accumulators."""

    # (lag_row, lag_col, 1): sum of gamma_e w w' over pairs of active positions by their lag; under a mask
    # (lag_row, lag_col, atom_row * atom_col * plane): times the mask under the first position, each pair at one lag
    lags: np.ndarray
    linear: np.ndarray  # (atom_row * atom_col * plane,): gamma_e times the residual's correlation with the map


@kernel()
def pass_atom(k, step, maps, layer, static, sums):
    """Subtract the contribution of ``step`` from every residual, then compute the sums for the draw of atom k.

    Changes residuals and ``sums``.

    Parameters
    ----------
    k : 0 to the number of atoms; the first pass has no step to subtract, the last one no atom to draw
    step : (atom_row * atom_col * plane,), change of atom k - 1
    maps, layer, static, sums : `MapArrays`, `Layer`, `Static`, `AtomSums`
    """
    step, maps, layer, sums = borrowed((step, maps, layer, sums))
    entries = np.empty((layer.grid_row, layer.grid_col), np.int64)
    active = make_active(entries.size)
    linear, masked = np.empty(step.size, step.dtype), maps.masks.shape[0] > 0
    for n in range(len(maps.residuals)):
        residual = maps.residuals[n]
        mask = maps.masks[n] if masked else residual[:0]
        if k > 0:
            for e in range(list_active(maps.z[n, k - 1 : k], maps.w[n, k - 1 : k], layer, active)):
                start = window_start(active.places[e, 1], active.places[e, 2], layer)
                amount = step.dtype.type(-active.weights[e])
                if masked:
                    add_observed(residual, mask, start, step, 0, amount, layer)
                else:
                    add_window(residual, start, layer.width, step, 0, layer.length, amount, layer, static)
        if k < layer.atoms:
            gamma_e = np.float64(maps.gamma_e[n if maps.gamma_e.size > 1 else 0])
            count = list_active(maps.z[n, k : k + 1], maps.w[n, k : k + 1], layer, active)
            linear[:] = 0
            for e in range(count):
                start = window_start(active.places[e, 1], active.places[e, 2], layer)
                amount = step.dtype.type(active.weights[e])
                add_window(linear, 0, layer.length, residual, start, layer.width, amount, layer, static)
            for t in range(linear.size):
                sums.linear[n // CHUNK, t] += gamma_e * linear[t]
            add_lags(active, count, gamma_e, mask, layer, entries, sums.lags[n // CHUNK])


@subroutine()
def add_window(onto, start, width, source, first, stride, amount, layer, static):
    """`window_add` or `static_add`, whichever fits the layer. Changes ``onto``."""
    if layer.static:
        static_add(onto, start, width, source, first, stride, amount, static.rows, static.columns)
    else:
        window_add(onto, start, width, source, first, stride, amount, layer)


@subroutine()
def add_lags(active, count, gamma_e, mask, layer, entries, lags):
    """Add the pairs of active positions of one map to ``lags``.

    entries : (block_row, block_col), scratch: number of a block's active position, -1 if it is empty
    """
    h, w, places = lags.shape[0] // 2, lags.shape[1] // 2, active.places
    entries[:] = -1
    for e in range(count):
        entries[places[e, 1] // layer.pool_row, places[e, 2] // layer.pool_col] = e
    for e in range(count):
        row, col, scaled = places[e, 1], places[e, 2], gamma_e * active.weights[e]
        add_pair(0, 0, scaled * active.weights[e], window_start(row, col, layer), mask, layer, lags[h, w])
        for i in range(row // layer.pool_row, min((row + h) // layer.pool_row + 1, layer.grid_row)):
            for j in range(max(0, col - w) // layer.pool_col, min((col + w) // layer.pool_col + 1, layer.grid_col)):
                f = entries[i, j]
                lag_row, lag_col = row - places[f, 1], col - places[f, 2]
                if f > e and abs(lag_row) <= h and abs(lag_col) <= w:
                    product, line = scaled * active.weights[f], lags[h + lag_row, w + lag_col]
                    add_pair(lag_row, lag_col, product, window_start(row, col, layer), mask, layer, line)
                    if mask.size == 0:
                        lags[h - lag_row, w - lag_col, 0] += product


@subroutine(forceinline=True)
def add_pair(lag_row, lag_col, product, start, mask, layer, out):
    """Add ``product`` to ``out``, under a mask times the mask where the atoms at both positions overlap.

    start : offset of the first position's window
    """
    if mask.size == 0:
        out[0] += product
        return
    first, last = max(0, -lag_col) * layer.planes, layer.length - max(0, lag_col) * layer.planes
    for a in range(max(0, -lag_row), min(layer.height, layer.height - lag_row)):
        p, q = np.uintp(start + a * layer.width), np.uintp(a * layer.length)
        for t in range(np.uintp(first), np.uintp(last)):
            out[q + t] += product * mask[p + t]
