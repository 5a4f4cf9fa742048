"""Conversion of states and data to the arrays of the kernels: flat, plane last, layer after layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import MOST_THREADS
from gdd.model.spec import LayerShape, ModelSpec
from gdd.model.state import JointLocal, JointState, LayerData, Shard
from gdd.reference.screening import MeanAtomImages, mean_atom_images
from gdd.sampler.kernels.joint import JointImages, JointLayers, JointWork
from gdd.sampler.kernels.operations import Layer
from gdd.sampler.kernels.windows import Static, static_size


def plane_last(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Reshape (n, plane, row, col) to (n, row * col * plane); blocks (image, atom, row, col) likewise."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1), dtype).reshape(len(array), -1)


def plane_second(flat: np.ndarray, shape: LayerShape) -> np.ndarray:
    """Reshape a flat dictionary, plane last, to (atom, plane, atom_row, atom_col)."""
    atoms = flat.reshape(shape.atoms, *shape.atom_size, shape.planes)
    return np.ascontiguousarray(atoms.transpose(0, 3, 1, 2))


def observed_pixels(data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, 0 where hidden, and mask, both (image, row * col * plane); the mask is (0, 1) if there is none."""
    dtype = data.images.dtype
    if data.mask is None:
        return plane_last(data.images, dtype), np.empty((0, 1), dtype)
    return plane_last(np.where(data.mask, data.images, 0), dtype), plane_last(data.mask, dtype)


def make_layers(
    shapes: Sequence[LayerShape], dictionaries: Sequence[np.ndarray], dtype: np.dtype, static: Static,
    overlaps: Sequence[np.ndarray] = (),
) -> tuple[Layer, ...]:
    """`Layer` of every layer, bottom first.

    dictionaries : (atom, plane, atom_row, atom_col) of each; overlaps : as in `Layer`, empty for a single layer
    """
    layers, block, level = [], 0, 0
    for number, (shape, dictionary) in enumerate(zip(shapes, dictionaries, strict=True)):
        (h, w), (p, q), planes, width = shape.atom_size, shape.block, shape.planes, shape.input_size[1] * shape.planes
        output = level + shape.input_size[0] * width
        places = np.array([a * width + b * planes for a in range(p) for b in range(q)])
        layers.append(Layer(
            shape.atoms, h, w * planes, planes, width, *shape.map_size, p, q, *shape.grid, block, level, output,
            number == 0 and bool(static.rows), plane_last(dictionary, dtype).ravel(), places,
            overlaps[number].ravel() if overlaps else np.empty(0),
        ))
        block, level = block + shape.atoms * shape.grid[0] * shape.grid[1], output
    return tuple(layers)


class JointBuffers(NamedTuple):
    """Arrays of a chain of the joint model, allocated once per chain."""

    shapes: tuple[LayerShape, ...]
    shard: Shard
    images: JointImages  # pixels and masks of the data, and the local part of the loaded state
    work: tuple[JointWork, ...]  # one per thread
    shared: JointLayers | None = None  # of the loaded state
    means: tuple[MeanAtomImages, ...] = ()  # of a pixel, then of every layer's atoms

    def load(self, state: JointState) -> JointBuffers:
        """Load a state; its local part overwrites the previous one. Returns the buffers with its shared part."""
        (local, shared), shapes, dtype = state, self.shapes, self.images.pixels.dtype
        np.concatenate([plane_last(z, np.int16) for z in (*local.positions, local.z)], axis=1, out=self.images.z)
        self.images.w[:] = plane_last(local.w, dtype)
        means = mean_atom_images(shared.dictionaries, [shape.block for shape in shapes])
        static = static_size(shapes[0].atom_size[0], shapes[0].atom_size[1] * shapes[0].planes)
        layers = make_layers(shapes, shared.dictionaries, dtype, static, [mean.overlaps for mean in means[1:]])
        images = self.images._replace(gamma_e=local.gamma_e.astype(float))
        return self._replace(images=images, shared=JointLayers(layers, static), means=means)

    def with_dictionary(self, number: int, dictionary: np.ndarray) -> JointBuffers:
        """Return the buffers with another dictionary (atom, plane, atom_row, atom_col) in one layer."""
        layers, dtype = list(self.shared.layers), self.images.pixels.dtype
        layers[number] = layers[number]._replace(dictionary=plane_last(dictionary, dtype).ravel())
        return self._replace(shared=self.shared._replace(layers=tuple(layers)))

    def blocks_of(self, number: int, blocks: np.ndarray) -> np.ndarray:
        """Return a copy of blocks of one layer, (image, row * col * atom), as (image, atom, block_row, block_col)."""
        shape = self.shapes[number]
        return blocks.reshape(-1, *shape.grid, shape.atoms).transpose(0, 3, 1, 2).copy()

    def positions(self, number: int) -> np.ndarray:
        """Return a copy of the positions of one layer, (image, atom, block_row, block_col)."""
        shape, first = self.shapes[number], self.shared.layers[number].block
        return self.blocks_of(number, self.images.z[:, first : first + shape.atoms * shape.grid[0] * shape.grid[1]])

    def local(self) -> JointLocal:
        """Return a copy of the local part of the state that the buffers hold."""
        *positions, z = (self.positions(number) for number in range(len(self.shapes)))
        return JointLocal(tuple(positions), z, self.blocks_of(-1, self.images.w), self.images.gamma_e.copy())


def allocate_buffers(data: LayerData, model: ModelSpec) -> JointBuffers:
    """Allocate the buffers of a chain."""
    shapes, dtype, (pixels, masks) = model.shapes(), data.images.dtype, observed_pixels(data)
    blocks = [shape.atoms * shape.grid[0] * shape.grid[1] for shape in shapes]
    z, w = np.empty((len(pixels), sum(blocks)), np.int16), np.empty((len(pixels), blocks[-1]), dtype)
    images = JointImages(pixels, masks, z, w, np.empty(0), np.empty_like(pixels), data.shard.first)
    return JointBuffers(shapes, data.shard, images, tuple(scratch(shapes, dtype) for _ in range(MOST_THREADS)))


def scratch(shapes: tuple[LayerShape, ...], dtype: np.dtype) -> JointWork:
    """Allocate scratch of a thread; there is no level for the top maps."""
    size = sum(shape.planes * shape.input_size[0] * shape.input_size[1] for shape in shapes)
    positions = max(shape.block[0] * shape.block[1] for shape in shapes)
    counts = np.zeros((max(shape.atoms for shape in shapes), 4, positions + 1), np.int64)
    levels, outcomes = np.zeros((3, size), dtype), np.zeros((3, positions + 1))
    box, places = np.zeros((len(shapes), 4), np.int64), np.zeros((positions, 3), np.int64)
    return JointWork(*levels, box, counts, *outcomes, places)
