r"""Pooling blocks: the operators f, f\ :sup:`-1`, g and h of the paper, and ragged edges.

A map is cut into p x q blocks from its top left corner. Where the map's size is no multiple of the block's, the
blocks at the right and bottom edges are *ragged*: they lack some positions. Positions are numbered
m = row_in_block * q + col_in_block with the width q of a full block, so a number means the same place in every block.
Sizes of maps, and of full blocks (``pool``), are (rows, columns).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

EMPTY = -1  # z of a block without an active position
Size = tuple[int, int]


class Blocks(NamedTuple):
    """Active position and weight of every block: z and w, both (image, atom, block_row, block_col)."""

    z: np.ndarray
    w: np.ndarray


def block_grid(map_size: Size, pool: Size) -> Size:
    """Number of blocks per axis, ceil(map / pool); the last one may be ragged."""
    return tuple(-(-size // width) for size, width in zip(map_size, pool, strict=True))


def map_indices(map_size: Size, pool: Size) -> np.ndarray:
    """Index in the map, row * columns + col, of each position of each block: (block_row, block_col, position) of int.

    It is -1 where a ragged block does not have the position.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2, "assuming integer divisions".
    *Departs:* ragged blocks are allowed (P11, P19 in the errata).
    *Checked:* tests/test_pooling.py.
    """
    return cut_into_blocks(np.arange(map_size[0] * map_size[1]).reshape(map_size), pool, fill=-1)


def cut_into_blocks(maps: np.ndarray, pool: Size, fill: float = 0.0) -> np.ndarray:
    """Maps (..., row, col) as (..., block_row, block_col, position); ``fill`` where a position does not exist."""
    maps = np.asarray(maps)
    (rows, cols), (p, q) = maps.shape[-2:], pool
    i, j = block_grid((rows, cols), pool)
    full = np.full((*maps.shape[:-2], i * p, j * q), fill, maps.dtype)
    full[..., :rows, :cols] = maps
    blocks = full.reshape(*maps.shape[:-2], i, p, j, q)
    return np.moveaxis(blocks, -2, -3).reshape(*maps.shape[:-2], i, j, p * q)


def pool_sum(maps: np.ndarray, pool: Size) -> np.ndarray:
    r"""Sum over each block, *f* in the paper: (..., row, col) to (..., block_row, block_col).

    .. math:: f(X)_{i'j'} = \sum_{s, t} X_{(i' - 1) p + s, \, (j' - 1) q + t}

    On maps with at most one non-zero per block it returns that value: the input of the next layer.

    *Source:* Pu, Yuan & Carin 2015, supplement, "Notation", (1).
    *Departs:* ragged edge blocks sum what they have.
    *Checked:* tests/test_pooling.py (adjoint of `repeat_blocks`; inverse of `unpool`).
    """
    return cut_into_blocks(maps, pool).sum(-1)


def repeat_blocks(values: np.ndarray, pool: Size) -> np.ndarray:
    """Every value repeated over a p x q block: *g* in the paper. (..., i, j) to (..., i * p, j * q)."""
    return np.repeat(np.repeat(values, pool[0], axis=-2), pool[1], axis=-1)


def spread(values: np.ndarray, pool: Size) -> np.ndarray:
    r"""Zeros put between the values, *h* in the paper: (..., i, j) to (..., (i - 1) * p + 1, (j - 1) * q + 1).

    .. math:: h(Y)_{(i - 1) p + 1, \, (j - 1) q + 1} = Y_{ij}, \quad 0 \text{ elsewhere}

    *Source:* Pu, Yuan & Carin 2015, supplement, "Notation", (4).
    *Departs:* the printed size counts the unpooled rows and does not fit (P9 in the errata).
    *Checked:* tests/test_pooling.py (lemmas 3, 4 and 5; the printed size fails).
    """
    values = np.asarray(values)
    (rows, cols), (p, q) = values.shape[-2:], pool
    out = np.zeros((*values.shape[:-2], (rows - 1) * p + 1, (cols - 1) * q + 1), values.dtype)
    out[..., ::p, ::q] = values
    return out


def one_hot(z: np.ndarray, map_size: Size, pool: Size) -> np.ndarray:
    """Mark the active positions: the paper's binary map *Z*, (image, atom, row, col), from the axes of `unpool`'s z."""
    return unpool(z, np.ones(z.shape), map_size, pool)


def unpool(z: np.ndarray, w: np.ndarray, map_size: Size, pool: Size) -> np.ndarray:
    r"""Maps (image, atom, row, col) of each block's weight at its active position: *f*\ :sup:`-1` in the paper.

    z : (image, atom, block_row, block_col) of int     active position m, -1 for none
    w : (image, atom, block_row, block_col)            weight, ignored where z is -1

    *Source:* Pu, Yuan & Carin 2015, supplement, "Notation", (2), and eq. 8.
    *Departs:* ragged edge blocks; Z is kept as one number per block.
    *Checked:* tests/test_pooling.py (lemma 1; `pool_sum` inverts it).
    """
    image, atom, row, col = active = np.nonzero(np.asarray(z) != EMPTY)
    maps = np.zeros((*z.shape[:2], map_size[0] * map_size[1]), w.dtype)
    maps[image, atom, map_indices(map_size, pool)[row, col, z[active]]] = w[active]
    return maps.reshape(*z.shape[:2], *map_size)
