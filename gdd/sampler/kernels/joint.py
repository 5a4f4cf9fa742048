"""Synthesis and correlation through all layers of one image: primitives shared by the kernels of the joint model.

Arrays are flat. *Level* 0 is the image, level l the input of layer l (from 0): the values of the blocks of layer l - 1.
All levels are in one array, one after another, each (row, col, plane). Blocks are in the order of their values,
(row, col, atom), layer after layer; so ``z[layer.block + b]`` is the position of the block whose value is
``values[layer.output + b]``. A *box* holds first row, last row + 1, first column and last column + 1 of the part of
a level that a change affects.

*Checked:* tests/test_joint_sweep.py (running residuals and correlations equal recomputed ones).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gdd.base.compiling import FAST, subroutine
from gdd.sampler.kernels.operations import Layer, add_atom, dot_atom, window_start
from gdd.sampler.kernels.windows import Static


class JointLayers(NamedTuple):
    """The layers, which all images share."""

    layers: tuple[Layer, ...]  # bottom first
    static: Static  # size of the bottom layer's atoms


class JointImages(NamedTuple):
    """A batch of images and the local part of the joint state."""

    pixels: np.ndarray  # (image, row * col * plane), 0 where missing
    masks: np.ndarray  # (image, row * col * plane), 1 where observed, else 0; (0, ...) if every pixel is observed
    z: np.ndarray  # (image, block): positions, layer after layer
    w: np.ndarray  # (image, block of the top layer): weights
    gamma_e: np.ndarray  # (image or 1,)
    residuals: np.ndarray  # (image, row * col * plane), 0 where missing
    first: int  # number of the first image in the chain

    def slice(self, where: slice) -> JointImages:
        """Views of a slice of the images."""
        masks, gamma_e = (array[where] if len(array) > 1 else array for array in (self.masks, self.gamma_e))
        pixels, z, w, residuals = (array[where] for array in (self.pixels, self.z, self.w, self.residuals))
        return JointImages(pixels, masks, z, w, gamma_e, residuals, self.first + where.start)


class JointWork(NamedTuple):
    """Scratch of a thread; outcome 0 of a block is empty, outcome t + 1 its t-th position."""

    values: np.ndarray  # (all levels' entries,): the values
    delta: np.ndarray  # (all levels' entries,): a change of the values
    upward: np.ndarray  # (all levels' entries,): residual, and its inner products with a unit in every block
    box: np.ndarray  # (level, 4)
    counts: np.ndarray  # (atom, group, position + 1)
    prior: np.ndarray  # (outcome,): prior weights
    gains: np.ndarray  # (outcome,): log likelihood ratios, or log weights of a proposal
    weights: np.ndarray  # (outcome,): unnormalised probabilities
    places: np.ndarray  # (position, 3): row and column in the map, and number within a full block


class Image(NamedTuple):
    """One image of `JointImages`."""

    n: int  # its number in the batch, and that of its accumulator
    pixels: np.ndarray  # (row * col * plane,)
    mask: np.ndarray  # (row * col * plane,); (0,) if every pixel is observed
    z: np.ndarray  # (block,)
    w: np.ndarray  # (block of the top layer,)
    gamma_e: float
    stream: np.ndarray  # (STREAM_SIZE,): its random numbers


class BlockIndex(NamedTuple):
    """A block of one image: its atom, and its row and column in the grid of blocks."""

    k: int
    i: int
    j: int


@subroutine()
def image_of(images, n, stream):
    """`Image` n of a batch."""
    mask = images.masks[n] if images.masks.shape[0] > 0 else images.pixels[n, :0]
    gamma_e = images.gamma_e[n if images.gamma_e.size > 1 else 0]
    return Image(n, images.pixels[n], mask, images.z[n], images.w[n], gamma_e, stream)


@subroutine()
def number_of(k, i, j, layer):
    """Index of block (i, j) of atom k among a layer's blocks."""
    return (i * layer.grid_col + j) * layer.atoms + k


@subroutine()
def as_maps(layer, blocks):
    """View of a layer's blocks (row * col * atom,) as maps (atom, row, col); numba compiles `transpose` for seconds."""
    step, shape = blocks.itemsize, (layer.atoms, layer.grid_row, layer.grid_col)
    return as_strided(blocks, shape, (step, layer.grid_col * layer.atoms * step, layer.atoms * step))


@subroutine()
def positions_of(layer, z):
    """`as_maps` a layer's positions, from those of all layers."""
    return as_maps(layer, z[layer.block : layer.block + layer.grid_row * layer.grid_col * layer.atoms])


# Boxes


@subroutine()
def lower_box(layer, above, box):
    """Part of a layer's input that the blocks in the box ``above`` affect, into ``box`` (4,)."""
    box[0] = above[0] * layer.pool_row
    box[1] = min(above[1] * layer.pool_row, layer.map_row) + layer.height - 1
    box[2] = above[2] * layer.pool_col
    box[3] = min(above[3] * layer.pool_col, layer.map_col) + layer.length // layer.planes - 1


@subroutine()
def upper_box(layer, below, box):
    """Blocks of a layer that overlap the box ``below`` of its input, into ``box`` (4,)."""
    box[0] = max(0, (below[0] - layer.height + 1) // layer.pool_row)
    box[1] = min(layer.grid_row, (below[1] - 1) // layer.pool_row + 1)
    box[2] = max(0, (below[2] - layer.length // layer.planes + 1) // layer.pool_col)
    box[3] = min(layer.grid_col, (below[3] - 1) // layer.pool_col + 1)


@subroutine()
def full_box(layer, box):
    """All of a layer's input, into ``box`` (4,)."""
    lower_box(layer, (0, layer.grid_row, 0, layer.grid_col), box)


@subroutine()
def clear(levels, layer, box):
    """Set a box of a layer's input to zero. Changes ``levels``."""
    for row in range(box[0], box[1]):
        levels[window_start(row, box[2], layer) : window_start(row, box[3], layer)] = 0


@subroutine()
def copy_levels(source, target, level, shared, box):
    """Copy levels 1 to ``level`` within their boxes. Changes ``target``."""
    for lower in range(1, level + 1):
        layer = shared.layers[lower]
        for row in range(box[lower, 0], box[lower, 1]):
            for p in range(window_start(row, box[lower, 2], layer), window_start(row, box[lower, 3], layer)):
                target[p] = source[p]


# Downward: synthesis of values from those above. Upward: inner products of the residual with a unit in every block.


@subroutine()
def synthesise_layer(layer, static, z, levels, above, box):
    """Synthesise a layer's input from the values of its blocks in the box ``above``. Changes ``levels`` and ``box``."""
    lower_box(layer, above, box)
    clear(levels, layer, box)
    for i in range(above[0], above[1]):
        for j in range(above[2], above[3]):
            corner, b = window_start(i * layer.pool_row, j * layer.pool_col, layer), number_of(0, i, j, layer)
            for k in range(layer.atoms):
                value, m = levels[layer.output + b + k], z[layer.block + b + k]
                if value != 0 and m >= 0:
                    add_atom(levels, corner + layer.places[m], k, value, layer, static)


@subroutine()
def synthesise_down(level, z, shared, levels, box):
    """Synthesise all levels below ``level`` from its box. Changes ``levels`` and ``box`` below ``level``."""
    for lower in range(level - 1, -1, -1):
        synthesise_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1], box[lower])


@subroutine()
def synthesise_level(level, z, shared, work):
    """Synthesise all values of a level from those of the level above. Changes values and box of ``work``."""
    full_box(shared.layers[level + 1], work.box[level + 1])
    synthesise_layer(shared.layers[level], shared.static, z, work.values, work.box[level + 1], work.box[level])


@subroutine()
def synthesise_values(lowest, image, shared, work):
    """Synthesise the values of all levels from the top one down to ``lowest``. Changes values and box of ``work``."""
    top = len(shared.layers) - 1
    layer = shared.layers[top]
    work.values[layer.input : layer.output] = 0
    for k in range(layer.atoms):
        for i in range(layer.grid_row):
            for j in range(layer.grid_col):
                b = number_of(k, i, j, layer)
                if image.z[layer.block + b] >= 0:
                    add_atom(work.values, window_start(i, j, layer), k, image.w[b], layer, shared.static)
    for level in range(top - 1, lowest - 1, -1):
        synthesise_level(level, image.z, shared, work)


@subroutine()
def values_of(number, image, shared, work):
    """Values of a layer's blocks: weights in the top layer, else synthesised from above. Changes ``work``."""
    if number == len(shared.layers) - 1:
        return image.w
    synthesise_values(number + 1, image, shared, work)
    return work.values[shared.layers[number].output :]


@subroutine()
def correlate_layer(layer, static, z, levels, box):
    """Inner products of a layer's input with its atoms at the positions of blocks in a box. Changes ``levels``."""
    for i in range(box[0], box[1]):
        for j in range(box[2], box[3]):
            corner, b = window_start(i * layer.pool_row, j * layer.pool_col, layer), number_of(0, i, j, layer)
            for k in range(layer.atoms):
                m, total = z[layer.block + b + k], levels[0] * 0
                if m >= 0:
                    total = dot_atom(levels, corner + layer.places[m], k, layer, static)
                levels[layer.output + b + k] = total


@subroutine()
def correlate_within(level, z, shared, levels, box):
    """Correlate the image up to a level, within the given boxes. Changes ``levels`` above the image."""
    for lower in range(level):
        correlate_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1])


@subroutine()
def correlate_up(level, z, shared, levels, box):
    """Correlate a box of the image up to a level. Changes ``levels`` and ``box`` above the image."""
    for lower in range(level):
        upper_box(shared.layers[lower], box[lower], box[lower + 1])
        correlate_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1])


# Changes of the image


@subroutine()
def row_of(row, layer, box):
    """First entry and last + 1 of a row of the image within a box; unsigned: no checks for negative indices."""
    return np.uintp(window_start(row, box[2], layer)), np.uintp(window_start(row, box[3], layer))


@subroutine(fastmath=FAST)
def mask_and_dot(delta, mask, upward, bottom, box):
    """Mask a change of the image; return its energy and its inner product with the residual. Changes ``delta``."""
    energy, product = 0.0, 0.0
    for row in range(box[0], box[1]):
        first, last = row_of(row, bottom, box)
        if mask.size > 0:
            for p in range(first, last):
                delta[p] *= mask[p]
        square, dot = delta[0] * 0, delta[0] * 0
        for p in range(first, last):
            square += delta[p] * delta[p]
            dot += delta[p] * upward[p]
        energy += square
        product += dot
    return energy, product


@subroutine(fastmath=FAST)
def subtract(delta, amount, upward, bottom, box):
    """Subtract ``amount`` times a change of the image from the residual, within a box. Changes ``upward``."""
    for row in range(box[0], box[1]):
        first, last = row_of(row, bottom, box)
        for p in range(first, last):
            upward[p] -= amount * delta[p]


@subroutine()
def fill_joint_residual(image, work):
    """Residual of the pixels under the values of level 0, into ``work.upward``."""
    for p in range(image.pixels.size):
        difference = image.pixels[p] - work.values[p]
        work.upward[p] = difference if image.mask.size == 0 else difference * image.mask[p]
