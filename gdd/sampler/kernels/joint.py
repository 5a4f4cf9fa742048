"""Up and down the layers of one image, compiled: what the kernels of the joint model have in common.

Everything is flat. *Level* 0 is the image, level l the input of layer l (from 0): the values of the blocks of layer
l - 1. A stack of levels is one array, level after level, each (row, col, plane). Blocks have the order of the values
that they hold, (row, col, atom), layer after layer; so ``z[here.block + b]`` is the position of the block whose value
is ``values[here.output + b]``. A *box* is the first and last + 1 row and column of a level that a change touches.

*Checked:* tests/test_joint_sweep.py (running residuals and back-projections equal recomputed ones).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import FAST, kernel
from gdd.sampler.kernels.operations import place_in_map
from gdd.sampler.kernels.windows import static_add, static_dot, window_add, window_dot


class Layer(NamedTuple):
    """Sizes of a layer, and where it starts in the flat arrays: a row of `SharedArrays.table`."""

    atoms: int
    height: int  # of an atom
    length: int  # of an atom's row: atom_col * plane
    planes: int
    width: int  # of its input's rows: col * plane
    map_row: int
    map_col: int
    pool_row: int
    pool_col: int
    grid_row: int
    grid_col: int
    atom: int  # start of its dictionary
    place: int  # of its `SharedArrays.places`
    lag: int  # of its `SharedArrays.lags`
    block: int  # of its blocks
    input: int  # of its input, a level
    output: int  # of the values of its blocks, the level above
    static: int  # 1 if the sizes of its atoms are known when compiled: `SharedArrays.rows`, `SharedArrays.columns`


class SharedArrays(NamedTuple):
    """What all images share."""

    table: np.ndarray  # (layer, field of `Layer`) of int64
    dictionaries: np.ndarray  # layer after layer, (atom, atom_row, atom_col, plane)
    places: np.ndarray  # layer after layer, (position,): where it is in the input, from the block's first place
    lags: np.ndarray  # layer after layer, (atom, lag_row, lag_col): see `gdd.reference.screening`; exact in the bottom
    rows: tuple  # as many zeros as an atom of the bottom layer has rows: a size known when compiled
    columns: tuple  # or columns; both empty for sizes known when run


class ImageArrays(NamedTuple):
    """What belongs to the images."""

    pixels: np.ndarray  # (image, row * col * plane), 0 where missing
    masks: np.ndarray  # the same, 1 where observed, else 0; no image at all if every pixel is observed
    z: np.ndarray  # (image, block): positions, layer after layer
    w: np.ndarray  # (image, block of the top layer): weights
    gamma_e: np.ndarray  # (image or 1,)
    residuals: np.ndarray  # (image, row * col * plane), 0 where missing
    first: int  # number of the first one in its chain

    def some(self, where: slice) -> ImageArrays:
        """Views of these of the images."""
        masks, gamma_e = (each[where] if len(each) > 1 else each for each in (self.masks, self.gamma_e))
        pixels, z, w, residuals = (each[where] for each in (self.pixels, self.z, self.w, self.residuals))
        return ImageArrays(pixels, masks, z, w, gamma_e, residuals, self.first + where.start)


class Work(NamedTuple):
    """Scratch of a thread."""

    values: np.ndarray  # (level after level,): values of all levels
    change: np.ndarray  # the same of a change
    back: np.ndarray  # the residual and its inner products with a unit in every block
    box: np.ndarray  # (level, 4)
    counts: np.ndarray  # (atom, 4, position + 1)
    weights: np.ndarray  # (position + 1,); 0 is empty, t + 1 the t-th position that a block has
    gains: np.ndarray  # the same
    steps: np.ndarray  # (position, 3): rows and columns of positions in the map, and their numbers


class Image(NamedTuple):
    """One image."""

    pixels: np.ndarray
    mask: np.ndarray  # empty if every pixel is observed
    z: np.ndarray
    w: np.ndarray
    gamma_e: float
    stream: np.ndarray  # its random numbers


class Entries(NamedTuple):
    """Blocks of a layer of one image that are not empty, atom by atom; each (entry,)."""

    atoms: np.ndarray
    blocks: np.ndarray  # numbers, see `block_of`
    rows: np.ndarray  # places in the map
    cols: np.ndarray
    values: np.ndarray


class Block(NamedTuple):
    """A block of one image: of which atom, and where in the grid."""

    k: int
    i: int
    j: int


@kernel()
def layer_of(table, layer):
    """One row of the table."""
    t = table[layer]
    return Layer(
        t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15], t[16],
        t[17],
    )


@kernel()
def image_of(images, n, stream):
    """One image, its residual aside."""
    mask = images.masks[n] if images.masks.shape[0] > 0 else images.pixels[n, :0]
    gamma_e = images.gamma_e[n if images.gamma_e.size > 1 else 0]
    return Image(images.pixels[n], mask, images.z[n], images.w[n], gamma_e, stream)


# Boxes and single atoms


@kernel()
def set_box(box, first_row, last_row, first_col, last_col):
    """Changes ``box`` (4,)."""
    box[0], box[1], box[2], box[3] = first_row, last_row, first_col, last_col


@kernel()
def whole_box(here, box):
    """Set a layer's box, (4,), to all of its input. Changes ``box``."""
    set_box(box, 0, here.map_row + here.height - 1, 0, here.width // here.planes)


@kernel()
def lower_box(here, above, box):
    """Set a layer's box to what the blocks in the box ``above`` can reach. Changes ``box``."""
    set_box(
        box, above[0] * here.pool_row, min(above[1] * here.pool_row, here.map_row) + here.height - 1,
        above[2] * here.pool_col, min(above[3] * here.pool_col, here.map_col) + here.length // here.planes - 1,
    )


@kernel()
def upper_box(here, below, box):
    """Set the box above a layer to the blocks that can reach the box ``below``. Changes ``box``."""
    set_box(
        box, max(0, (below[0] - here.height + 1) // here.pool_row),
        min(here.grid_row, (below[1] - 1) // here.pool_row + 1),
        max(0, (below[2] - here.length // here.planes + 1) // here.pool_col),
        min(here.grid_col, (below[3] - 1) // here.pool_col + 1),
    )


@kernel()
def clear(levels, here, box):
    """Set a box of a layer's input to zero. Changes ``levels``."""
    for row in range(box[0], box[1]):
        start = here.input + row * here.width
        levels[start + box[2] * here.planes : start + box[3] * here.planes] = 0


@kernel()
def copy_levels(source, target, level, table, box):
    """Copy levels 1 to ``level`` within their boxes. Changes ``target``."""
    for lower in range(1, level + 1):
        here = layer_of(table, lower)
        for row in range(box[lower, 0], box[lower, 1]):
            start = here.input + row * here.width
            for p in range(start + box[lower, 2] * here.planes, start + box[lower, 3] * here.planes):
                target[p] = source[p]


@kernel(forceinline=True)
def add_atom(levels, start, k, value, here, shared):
    """Add ``value`` times atom k at a place of a layer's input. Changes ``levels``.

    Inlined, like `dot_atom`: otherwise a sweep takes 1.7 times as long at Caltech's sizes (at MNIST's it does not).
    """
    atom = here.atom + k * here.height * here.length
    if here.static:  # written out: one more call slows the innermost loop down
        static_add(
            levels, start, here.width, shared.dictionaries, atom, here.length, value, shared.rows, shared.columns
        )
    else:
        window_add(levels, start, here.width, shared.dictionaries, atom, here.length, value, here)


@kernel(forceinline=True)
def dot_atom(levels, start, k, here, shared):
    """Inner product of atom k with a place of a layer's input."""
    atom = here.atom + k * here.height * here.length
    if here.static:
        return static_dot(levels, start, here.width, shared.dictionaries, atom, shared.rows, shared.columns)
    return window_dot(levels, start, shared.dictionaries, atom, here)


@kernel()
def block_of(k, i, j, here):
    """Which of a layer's blocks that of atom k at (i, j) is."""
    return (i * here.grid_col + j) * here.atoms + k


@kernel()
def place_of(here, row, col):
    """Where row and column of a layer's map are in its input."""
    return here.input + row * here.width + col * here.planes


@kernel()
def make_entries(size, values):
    """Room for so many entries, in the type of ``values``."""
    integers = np.empty((4, size), np.int64)
    return Entries(integers[0], integers[1], integers[2], integers[3], np.empty(size, values.dtype))


@kernel()
def list_entries(first, last, here, z, values, entries):
    """List the blocks of atoms from ``first`` to before ``last`` into ``entries``; returns how many.

    z : (block,), of all layers; values : (block,), of this one
    """
    count = 0
    for k in range(first, last):
        for i in range(here.grid_row):
            for j in range(here.grid_col):
                b = block_of(k, i, j, here)
                m = z[here.block + b]
                if m >= 0:
                    entries.atoms[count], entries.blocks[count] = k, b
                    entries.rows[count], entries.cols[count] = place_in_map(i, j, m, here)
                    entries.values[count] = values[b]
                    count += 1
    return count


@kernel()
def place_unit(block, value, here, shared, levels, box):
    """Set the top layer's input to ``value`` times the atom of one block. Changes ``levels`` and ``box``."""
    set_box(box, block.i, block.i + here.height, block.j, block.j + here.length // here.planes)
    clear(levels, here, box)
    add_atom(levels, place_of(here, block.i, block.j), block.k, value, here, shared)


# Down: values from those above. Up: inner products of the residual with a unit in every block.


@kernel()
def synthesise_down(level, z, shared, levels, box):
    """Levels below ``level`` from that one, within its box. Changes ``levels`` and ``box`` below ``level``."""
    for layer in range(level - 1, -1, -1):
        synthesise_layer(layer, z, shared, levels, box)


@kernel()
def synthesise_layer(layer, z, shared, levels, box):
    """Input of a layer from the values of its blocks in the box above. Changes ``levels``, and ``box`` at ``layer``."""
    here = layer_of(shared.table, layer)
    lower_box(here, box[layer + 1], box[layer])
    clear(levels, here, box[layer])
    for i in range(box[layer + 1, 0], box[layer + 1, 1]):
        for j in range(box[layer + 1, 2], box[layer + 1, 3]):
            corner, first = place_of(here, i * here.pool_row, j * here.pool_col), block_of(0, i, j, here)
            for k in range(here.atoms):
                value, m = levels[here.output + first + k], z[here.block + first + k]
                if value != 0 and m >= 0:
                    add_atom(levels, corner + shared.places[here.place + m], k, value, here, shared)


@kernel()
def synthesise_values(lowest, image, shared, work):
    """Values of every level from the top one down to ``lowest``. Changes values and box of ``work``."""
    top = shared.table.shape[0] - 1
    here = layer_of(shared.table, top)
    work.values[here.input : here.output] = 0
    for k in range(here.atoms):
        for i in range(here.grid_row):
            for j in range(here.grid_col):
                b = block_of(k, i, j, here)
                if image.z[here.block + b] >= 0:
                    add_atom(work.values, place_of(here, i, j), k, image.w[b], here, shared)
    whole_box(here, work.box[top])
    for layer in range(top - 1, lowest - 1, -1):
        synthesise_whole(layer, image.z, shared, work)


@kernel()
def values_of(layer, image, shared, work):
    """Values of a layer's blocks: the top layer's weights, or what the layers above give. Changes ``work``."""
    if layer == shared.table.shape[0] - 1:
        return image.w
    synthesise_values(layer + 1, image, shared, work)
    return work.values[layer_of(shared.table, layer).output :]


@kernel()
def synthesise_whole(layer, z, shared, work):
    """All values of a layer's input from those of the level above. Changes values and box of ``work``."""
    whole_box(layer_of(shared.table, layer + 1), work.box[layer + 1])
    synthesise_layer(layer, z, shared, work.values, work.box)


@kernel()
def correlate_up(level, z, shared, back, box):
    """What changed within the box of the image, up to a level. Changes ``back`` and ``box`` above the image."""
    for layer in range(level):
        upper_box(layer_of(shared.table, layer), box[layer], box[layer + 1])
        correlate_layer(layer, z, shared, back, box)


@kernel()
def correlate_within(level, z, shared, back, box):
    """The same within boxes that are set already. Changes ``back``."""
    for layer in range(level):
        correlate_layer(layer, z, shared, back, box)


@kernel()
def correlate_layer(layer, z, shared, back, box):
    """Inner products of a layer's input with its atoms, for the blocks in the box above. Changes ``back``."""
    here = layer_of(shared.table, layer)
    for i in range(box[layer + 1, 0], box[layer + 1, 1]):
        for j in range(box[layer + 1, 2], box[layer + 1, 3]):
            corner, first = place_of(here, i * here.pool_row, j * here.pool_col), block_of(0, i, j, here)
            for k in range(here.atoms):
                m, total = z[here.block + first + k], back[0] * 0
                if m >= 0:
                    total = dot_atom(back, corner + shared.places[here.place + m], k, here, shared)
                back[here.output + first + k] = total


# Changes of the image


@kernel()
def row_of(row, here, box):
    """First entry and last + 1 of a row of the image within a box; unsigned, so that no index is looked at twice."""
    start = row * here.width
    return np.uintp(start + box[2] * here.planes), np.uintp(start + box[3] * here.planes)


@kernel(fastmath=FAST)
def mask_and_dot(change, mask, back, here, box):
    """Set a change of the image to 0 where pixels are missing; return its energy and its product with the residual.

    Changes ``change``.
    """
    energy, product = 0.0, 0.0
    for row in range(box[0], box[1]):
        first, last = row_of(row, here, box)
        if mask.size > 0:
            for p in range(first, last):
                change[p] *= mask[p]
        part, other = change[0] * 0, change[0] * 0
        for p in range(first, last):
            part += change[p] * change[p]
            other += change[p] * back[p]
        energy += part
        product += other
    return energy, product


@kernel(fastmath=FAST)
def subtract(change, weight, back, here, box):
    """Residual -= weight * change of the image, within a box. Changes ``back``."""
    for row in range(box[0], box[1]):
        first, last = row_of(row, here, box)
        for p in range(first, last):
            back[p] -= weight * change[p]
