"""Images drawn from one layer of the model itself, with the atoms and positions that made them."""

import numpy as np
import xarray as xr

from gdd.base.axes import BLOCKS, DICTIONARY, IMAGES
from gdd_book.data.subsets import generator


def planted(
    seed: int, *, images: int = 300, size: tuple[int, int] = (28, 28), planes: int = 1, atoms: int = 8,
    atom_size: tuple[int, int] = (8, 8), pool: tuple[int, int] = (3, 3), active: float = 0.05, noise_sd: float = 0.1,
) -> xr.Dataset:
    """Draw images whose atoms are known, to see whether a chain finds them again.

    Atoms are independent standard normal pixels, scaled to unit norm over planes and pixels. Each block of each map
    is active with probability ``active``, its position uniform among the block's own, its weight N(0, 1). An image is
    the sum of the atoms placed so, times their weights, plus independent noise.

    ``size``, ``atom_size``, ``pool`` are (rows, columns) of an image, an atom, a pooling block; edge blocks may be
    ragged. ``noise_sd`` is in the unit of the pixels.

    Returns
    -------
    Dataset
        ``images`` (image, plane, row, col); ``atoms`` (atom, plane, atom_row, atom_col);
        ``z`` (image, atom, block_row, block_col) int16: row in the block times block width plus column, -1 if empty;
        ``w``, axes of z: the weight, 0 where empty. Attributes: the settings.
    """
    random = generator(seed)
    dictionary = random.standard_normal((atoms, planes, *atom_size))
    dictionary /= np.sqrt((dictionary**2).sum(axis=(1, 2, 3), keepdims=True))
    map_size = np.subtract(size, atom_size) + 1
    z, w = _draw_blocks(random, images, atoms, map_size, pool, active)
    clean = _place(dictionary, z, w, size, pool)
    noisy = clean + noise_sd * random.standard_normal(clean.shape)
    return xr.Dataset(
        {"images": (IMAGES, noisy), "atoms": (DICTIONARY, dictionary), "z": (BLOCKS, z), "w": (BLOCKS, w)},
        attrs={"name": "planted", "seed": seed, "active": active, "noise_sd": noise_sd, "pool": list(pool)},
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


def _place(dictionary, z, w, size, pool):
    """Sum the atoms at the active positions: (image, plane, row, col)."""
    planes, *atom_size = dictionary.shape[1:]
    clean = np.zeros((z.shape[0], planes, *size))
    for image, atom, i, j in np.argwhere(z >= 0):
        down, right = divmod(z[image, atom, i, j], pool[1])
        row, col = i * pool[0] + down, j * pool[1] + right
        placed = w[image, atom, i, j] * dictionary[atom]
        clean[image, :, row : row + atom_size[0], col : col + atom_size[1]] += placed
    return clean
