"""State and data of the joint model as its compiled passes need them: flat, plane last, layer after layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import MOST_THREADS
from gdd.model.spec import LayerShape, ModelSpec
from gdd.model.state import JointLocal, JointState, LayerData, Shard
from gdd.reference.screening import MeanAtomImages, mean_atom_images
from gdd.sampler.kernels.joint import ImageArrays, Layer, SharedArrays, Work
from gdd.sampler.kernels.windows import static_size


class Arrays(NamedTuple):
    """What the passes share."""

    images: ImageArrays
    shared: SharedArrays
    averages: tuple[MeanAtomImages, ...]  # of what is below each layer, and of the top layer's atoms
    work: tuple[Work, ...]  # one a thread
    shapes: tuple[LayerShape, ...]
    shard: Shard

    def layer(self, layer: int) -> Layer:
        """Return the sizes of a layer."""
        return Layer(*map(int, self.shared.table[layer]))

    def with_dictionary(self, layer: int, dictionary: np.ndarray) -> Arrays:
        """Return the same arrays with another dictionary (atom, plane, atom_row, atom_col) in one layer."""
        dictionaries, first = self.shared.dictionaries.copy(), self.layer(layer).atom
        dictionaries[first : first + dictionary.size] = plane_last(dictionary)
        return self._replace(shared=self.shared._replace(dictionaries=dictionaries))

    def by_layer(self, layer: int, blocks: np.ndarray) -> np.ndarray:
        """Return blocks of one layer, (image, row * col * atom), as (image, atom, block_row, block_col)."""
        shape = self.shapes[layer]
        return np.ascontiguousarray(blocks.reshape(-1, *shape.grid, shape.atoms).transpose(0, 3, 1, 2))

    def local(self) -> JointLocal:
        """Return the local part of the state that the arrays hold."""
        parts = np.split(self.images.z, self.shared.table[1:, Layer._fields.index("block")], axis=1)
        *positions, z = (self.by_layer(layer, part) for layer, part in enumerate(parts))
        w = self.by_layer(len(self.shapes) - 1, self.images.w)
        return JointLocal(tuple(positions), z, w, self.images.gamma_e)


def plane_last(dictionary: np.ndarray) -> np.ndarray:
    """Order (atom, atom_row, atom_col, plane), one axis."""
    return dictionary.transpose(0, 2, 3, 1).ravel()


def plane_second(flat: np.ndarray, shape: LayerShape) -> np.ndarray:
    """Return a flat dictionary to (atom, plane, atom_row, atom_col)."""
    return np.ascontiguousarray(flat.reshape(shape.atoms, *shape.atom_size, shape.planes).transpose(0, 3, 1, 2))


def flat_images(images: np.ndarray, dtype) -> np.ndarray:
    """A copy in the order (image, row, col, plane), flat but for the image; for blocks (image, row, col, atom)."""
    return np.array(images.transpose(0, 2, 3, 1), dtype, order="C").reshape(len(images), -1)


def as_arrays(state: JointState, data: LayerData, model: ModelSpec) -> Arrays:
    """Copy what a sweep changes, flatten what it reads."""
    shapes, dtype, (local, shared) = model.shapes(), data.images.dtype, state
    observed = True if data.mask is None else data.mask
    pixels = flat_images(np.where(observed, data.images, 0), dtype)
    masks = np.empty((0, 1), dtype) if data.mask is None else flat_images(data.mask, dtype)
    z = np.concatenate([flat_images(each, np.int16) for each in (*local.positions, local.z)], axis=1)
    gamma_e, residuals = local.gamma_e.astype(float), np.empty_like(pixels)
    images = ImageArrays(pixels, masks, z, flat_images(local.w, dtype), gamma_e, residuals, data.shard.first)
    averages = mean_atom_images(shared.dictionaries, [shape.block for shape in shapes])
    sizes = static_size(shapes[0].atom_size[0], shapes[0].atom_size[1] * shapes[0].planes)
    table, places = layer_table(shapes, bool(sizes[0]))
    flat = SharedArrays(
        table, np.concatenate([plane_last(each) for each in shared.dictionaries]).astype(dtype), places,
        np.concatenate([average.overlaps.ravel() for average in averages[1:]]), *sizes,
    )
    work = tuple(scratch(shapes, table, dtype) for _ in range(MOST_THREADS))
    return Arrays(images, flat, averages, work, shapes, data.shard)


def layer_table(shapes: tuple[LayerShape, ...], static: bool) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of all layers, (layer, field of `Layer`), and `SharedArrays.places`; ``static`` : of the bottom layer."""
    rows, places = [], []
    atom = place = lag = block = level = 0
    for shape in shapes:
        (h, w), (p, q), planes, width = shape.atom_size, shape.block, shape.planes, shape.input_size[1] * shape.planes
        output = level + shape.input_size[0] * width
        rows.append(Layer(
            shape.atoms, h, w * planes, planes, width, *shape.map_size, p, q, *shape.grid,
            atom, place, lag, block, level, output, int(static and not rows),
        ))
        places += [a * width + b * planes for a in range(p) for b in range(q)]
        atom, place, level = atom + shape.atoms * h * w * planes, place + p * q, output
        lag, block = lag + shape.atoms * (2 * p - 1) * (2 * q - 1), block + shape.atoms * shape.grid[0] * shape.grid[1]
    return np.array(rows), np.array(places)


def scratch(shapes: tuple[LayerShape, ...], table: np.ndarray, dtype) -> Work:
    """Scratch of a thread; the top maps, the last level, are never held."""
    levels = [np.zeros(int(Layer(*table[-1]).output), dtype) for _ in range(3)]
    positions, atoms = (max(each) for each in zip(*((s.block[0] * s.block[1], s.atoms) for s in shapes), strict=True))
    return Work(
        *levels, np.zeros((len(shapes), 4), np.int64), np.zeros((atoms, 4, positions + 1), np.int64),
        np.zeros(positions + 1), np.zeros(positions + 1), np.zeros((positions, 3), np.int64),
    )
