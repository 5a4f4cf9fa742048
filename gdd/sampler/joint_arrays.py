"""State and data of the joint model as the compiled passes take them: flat, plane last, one tuple entry a layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.model.spec import LayerShape, ModelSpec
from gdd.model.state import JointLocal, JointState, LayerData
from gdd.sampler.kernels.windows import window_size
from gdd.sampler.screening import Average, average_images

#: chunks of images whose sums are held at once; free to change
SLOTS = 8


class Arrays(NamedTuple):
    """What the passes share. See `gdd.sampler.kernels.joint_kernels.run_images` for the axes."""

    images: np.ndarray
    masks: np.ndarray
    w: np.ndarray
    gamma_e: np.ndarray
    positions: tuple[np.ndarray, ...]
    dictionaries: tuple[np.ndarray, ...]
    table: np.ndarray
    size: tuple
    averages: tuple[Average, ...]
    work: tuple
    residuals: np.ndarray

    @property
    def model(self) -> tuple:
        """Positions, dictionaries, table of sizes and the parts of ``size``, as the kernels take them."""
        return self.positions, self.dictionaries, self.table, *self.size

    @property
    def guesses(self) -> tuple[np.ndarray, ...]:
        """Expected products of an atom's images at two positions, a layer each."""
        return tuple(layer.overlaps for layer in self.averages)

    def with_dictionary(self, layer: int, dictionary: np.ndarray) -> Arrays:
        """Return the same arrays with another dictionary (atom, plane, atom_row, atom_col) in one layer."""
        new = list(self.dictionaries)
        new[layer] = flat_dictionary(dictionary, self.images.dtype)
        return self._replace(dictionaries=tuple(new))

    def local(self) -> JointLocal:
        """Return the local part of the state that the arrays hold."""
        return JointLocal(self.positions[:-1], self.positions[-1], self.w, self.gamma_e)


def flat_dictionary(dictionary: np.ndarray, dtype) -> np.ndarray:
    """Order (atom, atom_row, atom_col, plane), flat."""
    return np.ascontiguousarray(dictionary.transpose(0, 2, 3, 1), dtype).ravel()


def plane_second(flat: np.ndarray, shape: LayerShape) -> np.ndarray:
    """Return a flat dictionary to (atom, plane, atom_row, atom_col)."""
    h, w = shape.atom_size
    return np.ascontiguousarray(flat.reshape(shape.atoms, h, w, shape.planes).transpose(0, 3, 1, 2))


def flat_images(images: np.ndarray, dtype) -> np.ndarray:
    """Order (image, row, col, plane), flat but for the image."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1), dtype).reshape(len(images), -1)


def layout_of(shape: LayerShape) -> tuple[int, ...]:
    """Sizes of a layer, in the order of `gdd.sampler.kernels.joint_kernels_math`."""
    h, w = shape.atom_size
    return (
        shape.atoms, h, w * shape.planes, shape.planes, shape.input_size[1] * shape.planes, *shape.map_size,
        *shape.block, *shape.grid,
    )  # fmt: skip


def as_arrays(state: JointState, data: LayerData, model: ModelSpec) -> Arrays:
    """Copy what a sweep changes, flatten what it reads."""
    shapes, dtype = model.shapes(), data.images.dtype
    local, shared = state
    mask = np.empty((0, 1)) if data.mask is None else flat_images(data.mask, dtype)
    images = flat_images(np.where(True if data.mask is None else data.mask, data.images, 0), dtype)
    dictionaries = tuple(flat_dictionary(part, dtype) for part in shared.dictionaries)
    pools = [layer.pool for layer in model.layers[:-1]]
    layout = tuple(map(layout_of, shapes))
    return Arrays(
        images, mask.astype(dtype), local.w.astype(dtype), local.gamma_e.astype(float),
        (*(part.copy() for part in local.positions), local.z.copy()), dictionaries,
        np.array(layout), window_size(shapes[0].atom_size[0], layout[0][2]),
        average_images(shared.dictionaries, pools), scratch(shapes, layout, dtype), np.empty_like(images),
    )  # fmt: skip


def scratch(shapes: tuple[LayerShape, ...], layout: tuple, dtype) -> tuple:
    """Scratch of the passes, one slot a chunk. The last level is the top maps, where nothing is ever kept."""
    sizes = [shape.input_size[0] * row[4] for shape, row in zip(shapes, layout, strict=True)] + [1]
    levels = lambda: tuple(np.zeros((SLOTS, size), dtype) for size in sizes)  # noqa: E731
    positions = max(shape.block[0] * shape.block[1] for shape in shapes)
    atoms = max(shape.atoms for shape in shapes)
    return (
        levels(), levels(), levels(), np.zeros((SLOTS, len(sizes), 4), np.int64),
        np.zeros((SLOTS, atoms, 4, positions + 1), np.int64), np.zeros((SLOTS, positions + 1)),
        np.zeros((SLOTS, positions + 1)), np.zeros((SLOTS, positions, 3), np.int64),
    )  # fmt: skip


def batches(images: int, chunk: int):
    """Yield the first image and the number of chunks of every batch of `SLOTS` chunks."""
    for first in range(0, images, SLOTS * chunk):
        yield first, min(SLOTS, -(-(images - first) // chunk))
