"""Up and down the layers of one image, compiled: what the kernels of the joint model have in common.

Everything is flat. *Level* 0 is the image, level l the input of layer l (from 0): the values of the blocks of layer
l - 1. A stack of levels is one array, level after level, each (row, col, plane). Blocks have the order of the values
that they hold, (row, col, atom), layer after layer; so ``z[layer.block + b]`` is the position of the block whose value
is ``values[layer.output + b]``. A *box* is the first and last + 1 row and column of a level that a change touches.

*Checked:* tests/test_joint_sweep.py (running residuals and back-projections equal recomputed ones).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import FAST, kernel
from gdd.sampler.kernels.operations import Layer, add_atom, dot_atom, start_of
from gdd.sampler.kernels.windows import Static


class JointShared(NamedTuple):
    """What all images share."""

    layers: tuple[Layer, ...]  # bottom first
    static: Static  # size of the bottom layer's atoms


class JointImages(NamedTuple):
    """What belongs to the images."""

    pixels: np.ndarray  # (image, row * col * plane), 0 where missing
    masks: np.ndarray  # the same, 1 where observed, else 0; no image at all if every pixel is observed
    z: np.ndarray  # (image, block): positions, layer after layer
    w: np.ndarray  # (image, block of the top layer): weights
    gamma_e: np.ndarray  # (image or 1,)
    residuals: np.ndarray  # (image, row * col * plane), 0 where missing
    first: int  # number of the first one in its chain

    def slice(self, where: slice) -> JointImages:
        """Views of these of the images."""
        masks, gamma_e = (array[where] if len(array) > 1 else array for array in (self.masks, self.gamma_e))
        pixels, z, w, residuals = (array[where] for array in (self.pixels, self.z, self.w, self.residuals))
        return JointImages(pixels, masks, z, w, gamma_e, residuals, self.first + where.start)


class Work(NamedTuple):
    """Scratch of a thread."""

    values: np.ndarray  # (level after level,): values of all levels
    delta: np.ndarray  # the same of a change
    upward: np.ndarray  # the residual and its inner products with a unit in every block
    box: np.ndarray  # (level, 4)
    counts: np.ndarray  # (atom, 4, position + 1)
    prior: np.ndarray  # (position + 1,): prior weights; 0 is empty, t + 1 the t-th position that a block has
    gains: np.ndarray  # the same: log odds by the likelihood, or of a proposal
    weights: np.ndarray  # the same: probabilities up to a factor
    places: np.ndarray  # (position, 3): rows and columns of positions in the map, and their numbers


class Image(NamedTuple):
    """One image."""

    pixels: np.ndarray
    mask: np.ndarray  # empty if every pixel is observed
    z: np.ndarray
    w: np.ndarray
    gamma_e: float
    stream: np.ndarray  # its random numbers


class BlockIndex(NamedTuple):
    """A block of one image: of which atom, and where in the grid."""

    k: int
    i: int
    j: int


@kernel()
def image_of(images, n, stream):
    """One image, its residual aside."""
    mask = images.masks[n] if images.masks.shape[0] > 0 else images.pixels[n, :0]
    gamma_e = images.gamma_e[n if images.gamma_e.size > 1 else 0]
    return Image(images.pixels[n], mask, images.z[n], images.w[n], gamma_e, stream)


@kernel()
def number_of(k, i, j, layer):
    """Number of the block of atom k at (i, j) among a layer's blocks."""
    return (i * layer.grid_col + j) * layer.atoms + k


@kernel()
def maps_of(layer, blocks):
    """Blocks of a layer, (row * col * atom,), as its maps: (atom, row, col)."""
    return blocks.reshape((layer.grid_row, layer.grid_col, layer.atoms)).transpose(2, 0, 1)


@kernel()
def positions_of(layer, z):
    """`maps_of` a layer's positions among those of all layers."""
    return maps_of(layer, z[layer.block : layer.block + layer.grid_row * layer.grid_col * layer.atoms])


# Boxes


@kernel()
def lower_box(layer, above, box):
    """Set a layer's box, (4,), to what the blocks in the box ``above`` reach of its input. Changes ``box``."""
    box[0] = above[0] * layer.pool_row
    box[1] = min(above[1] * layer.pool_row, layer.map_row) + layer.height - 1
    box[2] = above[2] * layer.pool_col
    box[3] = min(above[3] * layer.pool_col, layer.map_col) + layer.length // layer.planes - 1


@kernel()
def upper_box(layer, below, box):
    """Set the box above a layer to the blocks that reach the box ``below``. Changes ``box``."""
    box[0] = max(0, (below[0] - layer.height + 1) // layer.pool_row)
    box[1] = min(layer.grid_row, (below[1] - 1) // layer.pool_row + 1)
    box[2] = max(0, (below[2] - layer.length // layer.planes + 1) // layer.pool_col)
    box[3] = min(layer.grid_col, (below[3] - 1) // layer.pool_col + 1)


@kernel()
def whole_box(layer, box):
    """Set a layer's box to all of its input. Changes ``box``."""
    lower_box(layer, (0, layer.grid_row, 0, layer.grid_col), box)


@kernel()
def clear(levels, layer, box):
    """Set a box of a layer's input to zero. Changes ``levels``."""
    for row in range(box[0], box[1]):
        levels[start_of(row, box[2], layer) : start_of(row, box[3], layer)] = 0


@kernel()
def copy_levels(source, target, level, shared, box):
    """Copy levels 1 to ``level`` within their boxes. Changes ``target``."""
    for lower in range(1, level + 1):
        layer = shared.layers[lower]
        for row in range(box[lower, 0], box[lower, 1]):
            for p in range(start_of(row, box[lower, 2], layer), start_of(row, box[lower, 3], layer)):
                target[p] = source[p]


# Down: values from those above. Up: inner products of the residual with a unit in every block.


@kernel()
def synthesise_layer(layer, static, z, levels, above, box):
    """Input of a layer from the values of its blocks in the box ``above``. Changes ``levels`` and ``box``, its own."""
    lower_box(layer, above, box)
    clear(levels, layer, box)
    for i in range(above[0], above[1]):
        for j in range(above[2], above[3]):
            corner, b = start_of(i * layer.pool_row, j * layer.pool_col, layer), number_of(0, i, j, layer)
            for k in range(layer.atoms):
                value, m = levels[layer.output + b + k], z[layer.block + b + k]
                if value != 0 and m >= 0:
                    add_atom(levels, corner + layer.places[m], k, value, layer, static)


@kernel()
def synthesise_down(level, z, shared, levels, box):
    """Levels below ``level`` from that one, within its box. Changes ``levels`` and ``box`` below ``level``."""
    for lower in range(level - 1, -1, -1):
        synthesise_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1], box[lower])


@kernel()
def synthesise_whole(level, z, shared, work):
    """All values of a level from those of the level above. Changes values and box of ``work``."""
    whole_box(shared.layers[level + 1], work.box[level + 1])
    synthesise_layer(shared.layers[level], shared.static, z, work.values, work.box[level + 1], work.box[level])


@kernel()
def synthesise_values(lowest, image, shared, work):
    """Values of every level from the top one down to ``lowest``. Changes values and box of ``work``."""
    top = len(shared.layers) - 1
    layer = shared.layers[top]
    work.values[layer.input : layer.output] = 0
    for k in range(layer.atoms):
        for i in range(layer.grid_row):
            for j in range(layer.grid_col):
                b = number_of(k, i, j, layer)
                if image.z[layer.block + b] >= 0:
                    add_atom(work.values, start_of(i, j, layer), k, image.w[b], layer, shared.static)
    for level in range(top - 1, lowest - 1, -1):
        synthesise_whole(level, image.z, shared, work)


@kernel()
def values_of(number, image, shared, work):
    """Values of the blocks of a layer: the top layer's weights, or what the layers above give. Changes ``work``."""
    if number == len(shared.layers) - 1:
        return image.w
    synthesise_values(number + 1, image, shared, work)
    return work.values[shared.layers[number].output :]


@kernel()
def correlate_layer(layer, static, z, levels, box):
    """Inner products of a layer's input with its atoms, for the blocks in the box above. Changes ``levels``."""
    for i in range(box[0], box[1]):
        for j in range(box[2], box[3]):
            corner, b = start_of(i * layer.pool_row, j * layer.pool_col, layer), number_of(0, i, j, layer)
            for k in range(layer.atoms):
                m, total = z[layer.block + b + k], levels[0] * 0
                if m >= 0:
                    total = dot_atom(levels, corner + layer.places[m], k, layer, static)
                levels[layer.output + b + k] = total


@kernel()
def correlate_within(level, z, shared, levels, box):
    """Carry the image up to a level, within boxes that are set already. Changes ``levels`` above the image."""
    for lower in range(level):
        correlate_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1])


@kernel()
def correlate_up(level, z, shared, levels, box):
    """Carry what changed within the box of the image up to a level. Changes ``levels`` and ``box`` above the image."""
    for lower in range(level):
        upper_box(shared.layers[lower], box[lower], box[lower + 1])
        correlate_layer(shared.layers[lower], shared.static, z, levels, box[lower + 1])


# Changes of the image


@kernel()
def row_of(row, layer, box):
    """First entry and last + 1 of a row of the image within a box; unsigned, so that no index is looked at twice."""
    return np.uintp(start_of(row, box[2], layer)), np.uintp(start_of(row, box[3], layer))


@kernel(fastmath=FAST)
def mask_and_dot(delta, mask, upward, bottom, box):
    """Set a change of the image to 0 where pixels are missing; return its energy and its product with the residual.

    Changes ``delta``.
    """
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


@kernel(fastmath=FAST)
def subtract(delta, amount, upward, bottom, box):
    """Residual -= amount * change of the image, within a box. Changes ``upward``."""
    for row in range(box[0], box[1]):
        first, last = row_of(row, bottom, box)
        for p in range(first, last):
            upward[p] -= amount * delta[p]


@kernel()
def fill_residual(image, work):
    """The residual from the pixels and the values of level 0. Changes ``work.upward``."""
    for p in range(image.pixels.size):
        difference = image.pixels[p] - work.values[p]
        work.upward[p] = difference if image.mask.size == 0 else difference * image.mask[p]
