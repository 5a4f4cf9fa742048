"""Images drawn from one layer of the model itself, with the atoms and positions that made them."""

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, DICTIONARY, IMAGES
from gdd.model.convolution import synthesise
from gdd.model.pooling import unpool
from gdd_book.data.subsets import generator

NOISE_SD = 0.1  # in the unit of the pixels


def planted(
    seed: int, *, images: int = 300, size: tuple[int, int] = (28, 28), atoms: int = 8,
    atom_size: tuple[int, int] = (8, 8), pool: tuple[int, int] = (3, 3), active: float = 0.05,
) -> xr.Dataset:
    """Draw images whose atoms are known, to see whether a chain finds them again.

    Atoms are independent standard normal pixels, scaled to unit norm. Each block of each map is active with probability
    ``active``, its position uniform among the block's own, its weight N(0, 1). An image is the sum of the atoms placed
    so, times their weights, plus independent noise of standard deviation `NOISE_SD`.

    ``size``, ``atom_size``, ``pool`` are (rows, columns) of an image, an atom, a pooling block; edge blocks may be
    ragged.

    Returns ``images`` (image, plane, row, col); ``atoms`` (atom, plane, atom_row, atom_col); ``z`` (image, atom,
    block_row, block_col) int16: row in the block times block width plus column, -1 if empty; ``w``, axes of z: the
    weight, 0 where empty. Attributes: the settings.
    """
    random = generator(seed)
    dictionary = random.standard_normal((atoms, 1, *atom_size))
    dictionary /= np.sqrt((dictionary**2).sum(axis=(1, 2, 3), keepdims=True))
    map_size = tuple(n - a + 1 for n, a in zip(size, atom_size, strict=True))
    z, w = _draw_blocks(random, images, atoms, map_size, pool, active)
    clean = synthesise(dictionary, unpool(z, w, map_size, pool))
    noisy = clean + NOISE_SD * random.standard_normal(clean.shape)
    return xr.Dataset(
        {"images": (IMAGES, noisy), "atoms": (DICTIONARY, dictionary), "z": (BLOCKS, z), "w": (BLOCKS, w)},
        attrs={"name": "planted", "seed": seed, "active": active, "noise_sd": NOISE_SD, "pool": list(pool)},
    )


def _draw_blocks(random, images, atoms, map_size, pool, active):
    grid = [-(-size // width) for size, width in zip(map_size, pool, strict=True)]
    # height and width of every block: the last of an axis may be ragged
    height, width = (np.minimum(p, s - p * np.arange(g)) for p, s, g in zip(pool, map_size, grid, strict=True))
    shape = (images, atoms, *grid)
    on = random.random(shape) < active
    in_row = (random.random(shape) * height[:, None]).astype(np.int16)
    in_col = (random.random(shape) * width[None, :]).astype(np.int16)
    z = np.where(on, in_row * pool[1] + in_col, -1).astype(np.int16)
    return z, np.where(on, random.standard_normal(shape), 0.0)
