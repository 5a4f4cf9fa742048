"""States of a chain: tuples of arrays, in a local part with an image axis and a part shared by all images.

``z`` and ``w`` are compact: one position index and one value per pooling block, never a dense map. An atom of the MNIST
model's first layer takes 49 blocks x (2 + 4) bytes per image in single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.model.pooling import EMPTY as EMPTY
from gdd.model.pooling import map_indices, unpool
from gdd.model.spec import LayerShape, LayerSpec

Value = TypeVar("Value")
Result = TypeVar("Result")


class Shard(NamedTuple):
    """The images of a chain that one process holds; by default all.

    Every process makes the same sweeps on its own images. Where a draw depends on all images, every process receives
    the same reduced sums, so shared parameters stay identical.
    """

    first: int = 0  # number of this shard's first image
    images: int | None = None  # number of images of the chain; None: those of this shard
    meet: Callable[[Callable[[list], list], Any], Any] | None = None  # `exchange` with the other shards; None: alone

    def exchange(self, respond: Callable[[list], list], value: Any) -> Any:
        """Return this shard's entry of ``respond(values)``, of the values of all shards in their order.

        Every shard must call it, in the same order of calls.
        """
        return respond([value])[0] if self.meet is None else self.meet(respond, value)

    def reduce(self, combine: Callable[[list[Value]], Result], value: Value) -> Result:
        """Combine the values of all shards, in their order; every shard receives the same. As `exchange`."""
        return self.exchange(partial(_same_to_all, combine), value)


def _same_to_all(combine: Callable[[list], Any], values: list) -> list:
    return [combine(values)] * len(values)


class LayerData(NamedTuple):
    """Input of a layer: X in the paper, and the mask of observed pixels."""

    images: np.ndarray  # (image, plane, row, col)
    mask: np.ndarray | None = None  # (image, plane, row, col) of bool, True = observed; None: all
    shard: Shard = Shard()

    @property
    def count(self) -> int:
        """Number of images of the chain, over all shards."""
        return self.shard.images or len(self.images)


class Local(NamedTuple):
    """The part of a state that belongs to each image.

    theta is integrated out; `gdd.reference.conditionals.theta_given_z` gives its conditional.
    """

    z: np.ndarray  # (image, atom, block_row, block_col) of int16: active position, EMPTY for none
    w: np.ndarray  # (image, atom, block_row, block_col): weight of the active position, 0 where empty
    gamma_e: np.ndarray  # (image or 1,): precision of the noise


class Shared(NamedTuple):
    """The part of a state that all images share."""

    dictionary: np.ndarray  # (atom, plane, atom_row, atom_col)
    gamma_d: np.ndarray  # (atom or 1, plane or 1)
    gamma_w: np.ndarray  # (1,)


class LayerState(NamedTuple):
    """All unknowns of one layer."""

    local: Local
    shared: Shared


class JointLocal(NamedTuple):
    """The part of the joint model's state that belongs to each image; theta is integrated out.

    Only the top layer has weights. The value of a block of a pooled layer is synthesised from the layers above it.
    """

    positions: tuple[np.ndarray, ...]  # per pooled layer, bottom first: (image, atom, block_row, block_col) of int16
    z: np.ndarray  # top layer, (image, atom, row, col) of int16: 0 for active, EMPTY for not
    w: np.ndarray  # top layer, (image, atom, row, col): weight, 0 where not active
    gamma_e: np.ndarray  # (image or 1,): precision of the data's noise


class JointShared(NamedTuple):
    """The part of the joint model's state that all images share; one entry a layer, bottom first."""

    dictionaries: tuple[np.ndarray, ...]  # (atom, plane, atom_row, atom_col)
    gamma_d: tuple[np.ndarray, ...]  # (atom or 1, plane or 1)
    gamma_w: np.ndarray  # top layer, (1,)


class JointState(NamedTuple):
    """All unknowns of all layers."""

    local: JointLocal
    shared: JointShared


def map_local(function: Callable[..., np.ndarray], *states: LayerState | JointState) -> LayerState | JointState:
    """Return the first of ``states`` with ``function(array, ...)``, of all states' arrays, for what images own.

    states : of different images; what has no image axis stays the first one's
    """
    parts = [state.local for state in states]
    counts = [len(part.z) for part in parts]

    def mapped(*values):
        if isinstance(values[0], tuple):
            return tuple(map(mapped, *values))
        return function(*values) if [len(value) for value in values] == counts else values[0]

    return states[0]._replace(local=parts[0]._make(map(mapped, *parts)))


def of_images(
    state: LayerState | JointState, data: LayerData, images: slice
) -> tuple[LayerState | JointState, LayerData]:
    """State and data of some images alone."""
    mask = None if data.mask is None else data.mask[images]
    return map_local(itemgetter(images), state), LayerData(data.images[images], mask)


def with_block(state: LayerState | JointState, where, position, weight) -> LayerState | JointState:
    """Return the state with z and w replaced at an index of their axes, for instance that of one block."""
    z, w = state.local.z.copy(), state.local.w.copy()
    z[where], w[where] = position, weight
    return state._replace(local=state.local._replace(z=z, w=w))


def precision_shapes(spec: LayerSpec, images: int, planes: int) -> tuple[tuple, tuple, tuple]:
    """Shapes of gamma_e (image or 1,), gamma_d (atom or 1, plane or 1) and gamma_w (1,)."""
    sizes = {ATOM: spec.atoms, PLANE: planes}
    gamma_d = tuple(sizes[axis] if axis in spec.gamma_d.axes else 1 for axis in (ATOM, PLANE))
    return (images if IMAGE in spec.gamma_e.axes else 1,), gamma_d, (1,)


def positions_exist(shape: LayerShape) -> np.ndarray:
    """Whether each position of each block exists: (block_row, block_col, position) of bool; ragged blocks lack some."""
    return map_indices(shape.map_size, shape.block) >= 0


def maps_of(local: Local, shape: LayerShape) -> np.ndarray:
    """Activation maps S (image, atom, row, col): each block's weight at its active position, zero elsewhere."""
    return unpool(local.z, local.w, shape.map_size, shape.block)
