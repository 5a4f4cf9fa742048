"""Sums over images, with the same bits however many threads, processes or machines hold the images.

Images are taken in *leaves* of `LEAF`. The images of a leaf share *slots*: one for every `CHUNK` images, or more where
that pays, as each slot is work for one thread. Slots are added one after another; leaves are added along a binary tree
over their numbers, the same for any partition. A process holds whole leaves, a contiguous range of them. It adds what
it can, and the few nodes of the tree that it is left with are all that travels.

*Checked:* tests/test_sums.py (one process against many, a tree against its definition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from gdd.base.compiling import share_out
from gdd.model.state import Shard
from gdd.sampler.kernels.operations import CHUNK

#: slots of a leaf, if they are large; with `CHUNK` it settles the order of every sum
SLOTS = 8
#: images of a leaf
LEAF = SLOTS * CHUNK

Sums = TypeVar("Sums", bound=tuple)


class Node(NamedTuple):
    """Sums over the leaves from ``number * 2**level`` to the next node's."""

    level: int
    number: int
    sums: tuple[np.ndarray, ...]


class Share(NamedTuple):
    """What one thread adds up of a leaf: images that fill a run of slots."""

    slots: tuple[np.ndarray, ...]  # of the sums' type, with an axis of slots first
    images: slice  # which of the shard's
    each: int  # images to a slot, the last one's may be fewer
    thread: int  # number of the thread


def leaves(shard: Shard, images: int) -> Iterator[tuple[int, slice]]:
    """Number of every leaf of a shard, and where its images are among the shard's ``images``."""
    for first in range(0, images, LEAF):
        yield (shard.first + first) // LEAF, slice(first, min(first + LEAF, images))


def add_up(empty: Sums, shard: Shard, images: int, run: Callable[[Share], None], most: int | None = None) -> Sums:
    """Sum over the images of all shards of what ``run(share)`` adds to the slots of its share, on several threads.

    empty : sums over no image; images : of this shard
    most : slots that the images of a leaf share evenly, with one image each at least; None: one slot a chunk
    """
    slots, nodes = empty._make(np.zeros((min(most or SLOTS, images), *array.shape)) for array in empty), []
    for leaf, where in leaves(shard, images):
        size, total = where.stop - where.start, [np.zeros(array.shape) for array in empty]
        used, each = (min(most, size), -(-size // min(most, size))) if most else (-(-size // CHUNK), CHUNK)
        for array in slots:
            array[:used] = 0.0
        share_out(used, partial(_run_share, run, slots, where, each))
        for whole, array in zip(total, slots, strict=True):
            for slot in range(used):
                whole += array[slot]
        push(nodes, Node(0, leaf, tuple(total)))
    return empty._make(map(np.array, shard.reduce(complete, nodes)))  # copies, to be changed


def _run_share(run: Callable[[Share], None], slots: Sums, leaf: slice, each: int, some: slice, thread: int) -> None:
    images = slice(leaf.start + some.start * each, min(leaf.start + some.stop * each, leaf.stop))
    run(Share(slots._make(array[some] for array in slots), images, each, thread))


def add_chunks(sums: Sums, shard: Shard) -> Sums:
    """Sum over the images of all shards of arrays (chunk, ...), given for the chunks of this shard."""
    nodes = []
    for leaf, where in leaves(shard, len(sums[0]) * CHUNK):
        some = slice(where.start // CHUNK, where.stop // CHUNK)
        push(nodes, Node(0, leaf, tuple(np.asarray(array[some].sum(axis=0)) for array in sums)))
    total = shard.reduce(complete, nodes)
    return total if type(sums) is tuple else sums._make(total)


def add_images(shard: Shard, *values: np.ndarray) -> tuple[float, ...]:
    """Sum over the images of all shards, and over all further axes, of arrays (image, ...) of this shard."""
    nodes = []
    for leaf, where in leaves(shard, len(values[0])):
        push(nodes, Node(0, leaf, tuple(np.asarray(array[where].sum(), float) for array in values)))
    return tuple(map(float, shard.reduce(complete, nodes)))


def add_entries(shard: Shard, values: np.ndarray, by_image: bool) -> float:
    """Sum of the entries (image or 1, ...) of what belongs to each image, of all shards, or else to all together."""
    return add_images(shard, values)[0] if by_image else float(values.sum())


def push(nodes: list[Node], node: Node) -> None:
    """Put a node behind those to its left; two that are one node of the next level become it. Changes ``nodes``."""
    while nodes and nodes[-1].level == node.level and node.number % 2:
        node = Node(node.level + 1, node.number // 2, _added(nodes.pop().sums, node.sums))
    nodes.append(node)


def complete(parts: Iterable[list[Node]]) -> tuple[np.ndarray, ...]:
    """Sum over all leaves from the nodes of all shards, in order."""
    nodes: list[Node] = []
    for node in chain.from_iterable(parts):
        push(nodes, node)
    total = nodes.pop().sums
    while nodes:
        total = _added(nodes.pop().sums, total)
    return total


def _added(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))
