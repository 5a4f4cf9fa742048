"""Pooling blocks: the operators f, f^-1, g and h of the paper, ragged edges, max and average pooling.

A map is cut into p x q blocks from its top left corner. Where the map's size is no multiple of the block's, the
blocks at the right and bottom edges are *ragged*: some of their positions do not exist. Positions are numbered
m = row_in_block * q + col_in_block with the full block's width q everywhere, so a number means the same place in
every block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.axes import BLOCKS, MAPS
from gdd.base.checks import (
    LARGEST_VALUE,
    GddError,
    as_array,
    as_finite,
    check_block,
    check_memory,
    check_pair,
    check_real,
)

EMPTY = -1  # z of a block without an active position
Size = tuple[int, int]


class Blocks(NamedTuple):
    """Active position and weight of every block: z and w, both (image, atom, block_row, block_col)."""

    z: np.ndarray
    w: np.ndarray


def block_grid(map_size: Size, pool: Size) -> Size:
    """Number of blocks per axis, ceil(map / pool); the last one may be ragged. GddError if a size is not positive."""
    (rows, cols), (p, q) = check_pair("map_size", map_size), check_pair("pool", pool)
    return -(-rows // p), -(-cols // q)


def block_places(map_size: Size, pool: Size) -> np.ndarray:
    """Where each position of each block lies in the map.

    Returns
    -------
    (block_row, block_col, position) of int
        row * map columns + col of the position, -1 where a ragged block does not have it.

    Raises
    ------
    GddError
        If a size is not a positive whole number.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.2, "assuming integer divisions".
    Departs: ragged blocks are allowed (P11, P19 in the errata).
    Checked: tests/test_pooling.py.
    """
    rows, cols = check_pair("map_size", map_size)
    check_memory("map_size", rows * cols)
    return _cut(np.arange(rows * cols).reshape(rows, cols), check_block("pool", pool), fill=-1)


def cut_into_blocks(maps: np.ndarray, pool: Size, fill: float = 0.0) -> np.ndarray:
    """Maps (..., row, col) as (..., block_row, block_col, position); `fill` where a position does not exist."""
    fill = check_real("fill", fill, -LARGEST_VALUE, LARGEST_VALUE)
    return _cut(_maps(maps), check_block("pool", pool), fill)


def pool_sum(maps: np.ndarray, pool: Size) -> np.ndarray:
    r"""Sum over each block: *f* in the paper.

    .. math:: f(X)_{i'j'} = \sum_{s, t} X_{(i' - 1) p + s, \, (j' - 1) q + t}

    On maps with at most one non-zero per block it returns that value: the input of the next layer.

    Parameters
    ----------
    maps : (..., row, col)
    pool : (rows, columns) of a full block

    Returns
    -------
    (..., block_row, block_col)

    Raises
    ------
    GddError
        If a pool size is not a positive whole number.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Notation", (1).
    Departs: ragged edge blocks sum what they have.
    Checked: tests/test_pooling.py (adjoint of `repeat_blocks`; inverse of `unpool`).
    """
    return cut_into_blocks(maps, pool).sum(-1)


def repeat_blocks(values: np.ndarray, pool: Size) -> np.ndarray:
    """Every value repeated over a p x q block: *g* in the paper. (..., i, j) to (..., i * p, j * q)."""
    p, q = check_pair("pool", pool)
    values = _maps(values, "values")
    check_memory("pool", values.size * p * q)
    return np.repeat(np.repeat(values, p, axis=-2), q, axis=-1)


def spread(values: np.ndarray, pool: Size) -> np.ndarray:
    r"""Zeros put between the values: *h* in the paper.

    .. math:: h(Y)_{(i - 1) p + 1, \, (j - 1) q + 1} = Y_{ij}, \quad 0 \text{ elsewhere}

    Parameters
    ----------
    values : (..., row, col)
    pool : (p, q), the new distance between neighbours; p - 1 rows of zeros go between two rows

    Returns
    -------
    (..., (rows - 1) * p + 1, (cols - 1) * q + 1)

    Raises
    ------
    GddError
        If a pool size is not a positive whole number.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Notation", (4).
    Departs: the printed size counts the unpooled rows and does not fit (P9 in the errata).
    Checked: tests/test_pooling.py (lemmas 3, 4 and 5; the printed size fails).
    """
    p, q = check_pair("pool", pool)
    values = _maps(values, "values")
    rows, cols = values.shape[-2:]
    check_memory("pool", values.size * p * q)
    out = np.zeros((*values.shape[:-2], (rows - 1) * p + 1, (cols - 1) * q + 1), values.dtype)
    out[..., ::p, ::q] = values
    return out


def one_hot(z: np.ndarray, map_size: Size, pool: Size) -> np.ndarray:
    """Mark the active positions: the paper's binary map *Z*, (image, atom, row, col), from the axes of `unpool`'s z."""
    z = as_finite(z, BLOCKS, "z")
    return unpool(z, np.ones(z.shape), map_size, pool)


def unpool(z: np.ndarray, w: np.ndarray, map_size: Size, pool: Size) -> np.ndarray:
    r"""Maps that hold each block's weight at its active position: *f*\ :sup:`-1` in the paper.

    Parameters
    ----------
    z : (image, atom, block_row, block_col) of int     active position m, -1 for none
    w : (image, atom, block_row, block_col)            weight, ignored where z is -1
    map_size : (rows, columns) of the map
    pool : (rows, columns) of a full block

    Returns
    -------
    (image, atom, row, col)

    Raises
    ------
    GddError
        If the blocks are not those of the map, or a position does not exist in its block.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Notation", (2), and eq. 6.
    Departs: ragged edge blocks; Z is kept as one number per block.
    Checked: tests/test_pooling.py (lemma 1; `blocks_of` takes it back).
    """
    z, w = as_finite(z, BLOCKS, "z"), as_finite(w, BLOCKS, "w")
    where = block_places(map_size, pool)
    _check_blocks(z, w, where)
    place = np.take_along_axis(where[None, None], np.maximum(z, 0)[..., None].astype(np.intp), axis=-1)[..., 0]
    active = z != EMPTY
    if (place[active] < 0).any():
        at = np.argwhere(active & (place < 0))[0]
        raise GddError(f"z: position {z[tuple(at)]} of block {_place(at)} lies outside the {tuple(map_size)} map")
    maps = np.zeros((*z.shape[:2], map_size[0] * map_size[1]), w.dtype)
    image, atom = np.nonzero(active)[:2]
    maps[image, atom, place[active]] = w[active]
    return maps.reshape(*z.shape[:2], *map_size)


def blocks_of(maps: np.ndarray, pool: Size) -> Blocks:
    """Position and weight of every block of maps with at most one non-zero per block: takes `unpool` back.

    An active position whose weight is exactly 0 cannot be seen in a map; its block comes back empty.

    Raises
    ------
    GddError
        If a block has two non-zero values, or `maps` has not the axes (image, atom, row, col).

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.2.
    Departs: nothing.
    Checked: tests/test_pooling.py.
    """
    blocks = cut_into_blocks(as_finite(maps, MAPS, "maps"), pool)
    count = np.count_nonzero(blocks, axis=-1)
    if (count > 1).any():
        at = np.argwhere(count > 1)[0]
        raise GddError(f"maps: block {_place(at)} has {count[tuple(at)]} non-zero values; at most 1 has a position")
    z = np.where(count == 0, EMPTY, np.argmax(blocks != 0, axis=-1)).astype(np.int16)
    return Blocks(z, blocks.sum(-1))


def max_pool(maps: np.ndarray, pool: Size) -> np.ndarray:
    """The value of largest magnitude in each block, with its sign; ties take the lowest position.

    Parameters, result and errors as in `pool_sum`; `max_blocks` gives the positions as well.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.2 ("largest-amplitude element") and Table 1, max pooling.
    Departs: the sign is kept, as probabilistic pooling keeps it; the paper does not say.
    Checked: tests/test_pooling.py (against a loop over blocks).
    """
    return max_blocks(maps, pool).w


def max_blocks(maps: np.ndarray, pool: Size) -> Blocks:
    """Position and value of the element of largest magnitude of each block; a block of zeros is empty."""
    blocks = cut_into_blocks(maps, pool)
    z = np.abs(blocks).argmax(-1)
    w = np.take_along_axis(blocks, z[..., None], axis=-1)[..., 0]
    return Blocks(np.where(w == 0, EMPTY, z).astype(np.int16), w)


def average_pool(maps: np.ndarray, pool: Size) -> np.ndarray:
    """Mean over the positions that each block has. Parameters, result and errors as in `pool_sum`.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Table 1, average pooling.
    Departs: a ragged block divides by the number of its own positions.
    Checked: tests/test_pooling.py (against a loop over blocks).
    """
    maps = _maps(maps)
    return pool_sum(maps, pool) / (block_places(maps.shape[-2:], pool) >= 0).sum(-1)


def _cut(maps: np.ndarray, pool: Size, fill: float) -> np.ndarray:
    (rows, cols), (p, q) = maps.shape[-2:], pool
    i, j = block_grid((rows, cols), pool)
    check_memory("pool", maps.size // (rows * cols) * i * p * j * q)
    full = np.full((*maps.shape[:-2], i * p, j * q), fill, maps.dtype)
    full[..., :rows, :cols] = maps
    blocks = full.reshape(*maps.shape[:-2], i, p, j, q)
    return np.moveaxis(blocks, -2, -3).reshape(*maps.shape[:-2], i, j, p * q)


def _maps(maps: np.ndarray, argument: str = "maps") -> np.ndarray:
    """An array (..., row, col) of finite numbers."""
    maps = as_array(maps, argument)
    leading = tuple(f"axis {number}" for number in range(maps.ndim - 2))
    return as_finite(maps, (*leading, *MAPS[2:]), argument)


def _check_blocks(z: np.ndarray, w: np.ndarray, where: np.ndarray) -> None:
    if not np.issubdtype(z.dtype, np.integer):
        raise GddError(f"z: numbers of type {z.dtype}; whole numbers are needed")
    if z.shape != w.shape or z.shape[2:] != where.shape[:2]:
        raise GddError(
            f"z: blocks of shape {z.shape}, w: {w.shape}; both need ({BLOCKS[0]}, {BLOCKS[1]}, *{where.shape[:2]})"
        )
    wrong = (z < EMPTY) | (z >= where.shape[2])
    if wrong.any():
        at = np.argwhere(wrong)[0]
        raise GddError(f"z: position {z[tuple(at)]} of block {_place(at)}; -1 .. {where.shape[2] - 1} are possible")


def _place(where: np.ndarray) -> str:
    return ", ".join(f"{axis} {int(i)}" for axis, i in zip(BLOCKS, where, strict=True))
