"""What the draws of dictionaries need from the images, compiled.

An upper dictionary D of the joint model enters an image linearly: image n is A_n D plus the rest. `solve_images`
applies A_n, its adjoint or both. A bottom dictionary that is not drawn from sums over whole images is drawn atom by
atom from the residuals, with a call of `pass_atom` for each. Sums are in double precision; the images of an accumulator
are added in index order.

*Checked:* tests/test_joint_sweep.py, tests/test_masked.py (same chain as the plain twins; mean, covariance of draws).
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
    maps_of,
    positions_of,
    synthesise_down,
    values_of,
    whole_box,
)
from gdd.sampler.kernels.operations import CHUNK, list_active, list_near, make_active, start_of
from gdd.sampler.kernels.random import WORDS, fill_key, fill_normals
from gdd.sampler.kernels.windows import add_observed, static_add, window_add

# Upper dictionaries

#: what `solve_images` does: adjoint of the residual, perturbed; A and its adjoint; take A off the residual
PERTURB, APPLY, FINISH = range(3)


class SolveSums(NamedTuple):
    """Sums of one pass of an upper dictionary's draw; one more axis, of accumulators, while under way."""

    gradient: np.ndarray  # (atom * atom_row * atom_col * plane,)
    weights: np.ndarray  # (atom,): gamma_e times the sum of squared values
    energy: np.ndarray  # (): ||r||^2
    weighted_energy: np.ndarray  # (): gamma_e ||r||^2


@kernel()
def solve_images(task, number, each, direction, images, shared, work, sums, key):
    """One pass of the draw of the dictionary of layer ``number`` over images, ``each`` of them to an accumulator.

    task = PERTURB : gradient = A'(gamma_e r + sqrt(gamma_e) eps), weights = gamma_e * sum of squared values by atom
    task = APPLY   : gradient = A' gamma_e A direction
    task = FINISH  : r -= A direction; energies of r

    Changes the residuals (FINISH), work and sums.
    """
    direction, images, shared, work, sums = borrowed((direction, images, shared, work, sums))
    layer, upward, delta, residuals = shared.layers[number], work.upward, work.delta, images.residuals
    active, pixels = make_active(layer.atoms * layer.grid_row * layer.grid_col), residuals.shape[1]
    atom, noise = np.empty(layer.height * layer.length, images.w.dtype), np.zeros(pixels)
    stream = np.empty(WORDS, np.uint64)
    for n in range(len(residuals)):
        image, part = image_of(images, n, stream), n // each
        values = values_of(number, image, shared, work)
        blocks = values[: layer.atoms * layer.grid_row * layer.grid_col]
        count = list_active(positions_of(layer, image.z), maps_of(layer, blocks), layer, active)
        if task == PERTURB:
            fill_key(stream, key, images.first + n)
            fill_normals(stream, noise)
            for p in range(pixels):
                added = noise[p] * image.mask[p] if image.mask.size > 0 else noise[p]
                upward[p] = image.gamma_e * residuals[n, p] + math.sqrt(image.gamma_e) * added
        else:
            place_direction(active, count, direction, layer, delta, work.box[number])
            synthesise_down(number, image.z, shared, delta, work.box)
            for p in range(pixels):
                observed = delta[p] * image.mask[p] if image.mask.size > 0 else delta[p]
                if task == APPLY:
                    upward[p] = image.gamma_e * observed
                else:
                    residuals[n, p] -= observed
                    sums.energy[part] += np.float64(residuals[n, p]) ** 2
                    sums.weighted_energy[part] += image.gamma_e * np.float64(residuals[n, p]) ** 2
        if task != FINISH:
            whole_box(shared.layers[0], work.box[0])
            correlate_up(number, image.z, shared, upward, work.box)
            add_gradient(active, count, upward, layer, atom, sums.gradient[part])
            for e in range(count):
                sums.weights[part, active.places[e, 0]] += image.gamma_e * active.weights[e] ** 2


@kernel()
def place_direction(active, count, direction, layer, delta, box):
    """Set the change of an upper layer's input to what a change of its dictionary does. Changes it and its box."""
    whole_box(layer, box)
    clear(delta, layer, box)
    for e in range(count):
        k, start = active.places[e, 0], start_of(active.places[e, 1], active.places[e, 2], layer)
        first, amount = k * layer.height * layer.length, delta.dtype.type(active.weights[e])
        window_add(delta, start, layer.width, direction, first, layer.length, amount, layer)


@kernel()
def add_gradient(active, count, upward, layer, atom, gradient):
    """Add the adjoint of one image's A, applied to what was carried up. Changes ``gradient``, ``atom``.

    atom : the same of one atom of this image, scratch in the images' precision
    """
    e = 0
    while e < count:
        k, first = active.places[e, 0], active.places[e, 0] * atom.size
        atom[:] = 0
        while e < count and active.places[e, 0] == k:
            start = start_of(active.places[e, 1], active.places[e, 2], layer)
            amount = atom.dtype.type(active.weights[e])
            window_add(atom, 0, layer.length, upward, start, layer.width, amount, layer)
            e += 1
        for t in range(atom.size):
            gradient[first + t] += atom[t]


@kernel()
def block_values(number, images, shared, work, out):
    """Values of a layer's blocks, 0 where empty. Changes work and ``out`` (image, block)."""
    images, shared, work, out = borrowed((images, shared, work, out))
    first, stream = shared.layers[number].block, np.empty(WORDS, np.uint64)
    for n in range(out.shape[0]):
        image = image_of(images, n, stream)
        values = values_of(number, image, shared, work)
        for b in range(out.shape[1]):
            out[n, b] = 0 if image.z[first + b] < 0 else values[b]


# Bottom dictionaries, from residuals


class MapArrays(NamedTuple):
    """Maps of a bottom layer, their noise precisions, and what the maps leave of the images."""

    z: np.ndarray  # (image, atom, block_row, block_col)
    w: np.ndarray  # the same
    gamma_e: np.ndarray  # (image or 1,)
    residuals: np.ndarray  # (image, row * col * plane), 0 where hidden
    masks: np.ndarray  # the same, 1 where observed, else 0; no image at all if every pixel is observed

    def slice(self, where: slice) -> MapArrays:
        """Views of these of the images."""
        return MapArrays(*(array[where] if len(array) > 1 else array for array in self))


class AtomSums(NamedTuple):
    """Sums that one atom is drawn from; one more axis, of accumulators, while under way.

    ``lags`` are of pairs of active positions: gamma_e times the products of their weights, by lag; under a mask that
    times the mask under the first, and only of pairs whose first comes before the second in the map.
    """

    lags: np.ndarray  # (lag_row, lag_col, 1), or under a mask (lag_row, lag_col, atom_row * atom_col * plane)
    linear: np.ndarray  # (atom_row * atom_col * plane,): gamma_e times the residual's correlation with the map


@kernel()
def pass_atom(k, step, maps, layer, static, sums):
    """Take ``step`` of atom k - 1 off every residual, then form the sums that atom k is drawn from.

    Parameters
    ----------
    k : 0 to the number of atoms: at first there is no step to take off, at last no atom
    step : (atom_row * atom_col * plane,)       change of atom k - 1
    maps, layer, static, sums : `MapArrays`, `Layer`, `Static`, `AtomSums`

    Changes residuals and sums.
    """
    step, maps, layer, sums = borrowed((step, maps, layer, sums))
    active, near = make_active(layer.grid_row * layer.grid_col), np.empty(layer.grid_row * layer.grid_col, np.int64)
    linear, masked = np.empty(step.size, step.dtype), maps.masks.shape[0] > 0
    for n in range(len(maps.residuals)):
        residual = maps.residuals[n]
        mask = maps.masks[n] if masked else residual[:0]
        if k > 0:
            for e in range(list_active(maps.z[n, k - 1 : k], maps.w[n, k - 1 : k], layer, active)):
                start = start_of(active.places[e, 1], active.places[e, 2], layer)
                amount = step.dtype.type(-active.weights[e])
                if masked:
                    add_observed(residual, mask, start, step, 0, amount, layer)
                else:
                    add_window(residual, start, layer.width, step, 0, layer.length, amount, layer, static)
        if k < layer.atoms:
            precision = np.float64(maps.gamma_e[n if maps.gamma_e.size > 1 else 0])
            count = list_active(maps.z[n, k : k + 1], maps.w[n, k : k + 1], layer, active)
            linear[:] = 0
            for e in range(count):
                start = start_of(active.places[e, 1], active.places[e, 2], layer)
                amount = step.dtype.type(active.weights[e])
                add_window(linear, 0, layer.length, residual, start, layer.width, amount, layer, static)
            for t in range(linear.size):
                sums.linear[n // CHUNK, t] += precision * linear[t]
            add_lags(active, count, precision, mask, layer, near, sums.lags[n // CHUNK])


@kernel()
def add_window(onto, start, width, source, first, stride, amount, layer, static):
    """`window_add` for the bottom layer. Changes ``onto``."""
    if layer.static:
        static_add(onto, start, width, source, first, stride, amount, static.rows, static.columns)
    else:
        window_add(onto, start, width, source, first, stride, amount, layer)


@kernel()
def add_lags(active, count, precision, mask, layer, near, lags):
    """Add the pairs of active positions of one map. Changes ``lags``; near : scratch."""
    h, w, stop, places = lags.shape[0] // 2, lags.shape[1] // 2, 0, active.places
    for e in range(count):
        row, col, scaled = places[e, 1], places[e, 2], precision * active.weights[e]
        while stop < count and places[stop, 1] // layer.pool_row <= (row + h) // layer.pool_row:
            stop += 1  # entries come row of blocks by row of blocks: from here on all are too far below
        add_pair(0, 0, scaled * active.weights[e], start_of(row, col, layer), mask, layer, lags[h, w])
        for q in range(list_near(places, e, stop, h, w, near)):
            f = near[q]
            lag_row, lag_col = row - places[f, 1], col - places[f, 2]
            product, line = scaled * active.weights[f], lags[h + lag_row, w + lag_col]
            add_pair(lag_row, lag_col, product, start_of(row, col, layer), mask, layer, line)
            if mask.size == 0:
                lags[h - lag_row, w - lag_col, 0] += product


@kernel()
def add_pair(lag_row, lag_col, product, start, mask, layer, out):
    """Add a product to ``out``; under a mask, that times the mask under the part of an atom that both positions share.

    ``start`` : of the first position's window
    """
    if mask.size == 0:
        out[0] += product
        return
    first, last = max(0, -lag_col) * layer.planes, layer.length - max(0, lag_col) * layer.planes
    for a in range(max(0, -lag_row), min(layer.height, layer.height - lag_row)):
        p, q = np.uintp(start + a * layer.width), np.uintp(a * layer.length)
        for t in range(np.uintp(first), np.uintp(last)):
            out[q + t] += product * mask[p + t]
