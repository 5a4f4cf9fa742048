"""Sums over images, with the same bits however many threads, processes or machines hold the images.

Images are taken in *batches* of `BATCH`. The images of a batch share *accumulators*: one for every `CHUNK` images, or
more where that pays, as each is work for one thread. Accumulators are added one after another; batches are added along
a binary tree over their numbers, the same for any partition. A process holds whole batches, a contiguous range of them.
It adds what it can, and the few nodes of the tree that it is left with are all that travels.

*Checked:* tests/test_sums.py (one process against many, a tree against its definition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from gdd.base.compiling import share_out
from gdd.model.state import Shard
from gdd.sampler.kernels.operations import CHUNK

#: accumulators of a batch, if they are large; with `CHUNK` it settles the order of every sum
ACCUMULATORS = 8
#: images of a batch
BATCH = ACCUMULATORS * CHUNK

Sums = TypeVar("Sums", bound=tuple)


class Node(NamedTuple):
    """Sums over the batches from ``number * 2**level`` to the next node's."""

    level: int
    number: int
    sums: tuple[np.ndarray, ...]


class WorkItem(NamedTuple):
    """What one thread adds up of a batch: images that fill a run of accumulators."""

    sums: tuple[np.ndarray, ...]  # of the sums' type, with an axis of accumulators first
    images: slice  # which of the shard's
    images_per_accumulator: int  # the last one's may be fewer
    thread: int  # number of the thread


def batches(shard: Shard, images: int) -> Iterator[tuple[int, slice]]:
    """Number of every batch of a shard, and where its images are among the shard's ``images``."""
    for first in range(0, images, BATCH):
        yield (shard.first + first) // BATCH, slice(first, min(first + BATCH, images))


def add_up(
    empty: Sums, shard: Shard, images: int, run: Callable[[WorkItem], None], max_accumulators: int | None = None
) -> Sums:
    """Sum over the images of all shards of what ``run(item)`` adds to its accumulators, on several threads.

    empty : sums over no image; images : of this shard
    max_accumulators : that the images of a batch share evenly, with one image each at least; None: one a chunk
    """
    room = min(max_accumulators or ACCUMULATORS, images)
    accumulators = empty._make(np.zeros((room, *array.shape)) for array in empty)
    nodes: list[Node] = []
    for number, batch in batches(shard, images):
        size, batch_sums = batch.stop - batch.start, [np.zeros(array.shape) for array in empty]
        length = -(-size // min(max_accumulators, size)) if max_accumulators else CHUNK
        used = min(max_accumulators, size) if max_accumulators else -(-size // CHUNK)
        for array in accumulators:
            array[:used] = 0.0

        def run_part(part: slice, thread: int, length: int = length, batch: slice = batch) -> None:
            where = slice(batch.start + part.start * length, min(batch.start + part.stop * length, batch.stop))
            run(WorkItem(accumulators._make(array[part] for array in accumulators), where, length, thread))

        share_out(used, run_part)
        for total, array in zip(batch_sums, accumulators, strict=True):
            for accumulator in array[:used]:
                total += accumulator
        append_node(nodes, Node(0, number, tuple(batch_sums)))
    return empty._make(map(np.array, shard.reduce(tree_total, nodes)))  # copies, to be changed


def add_images(shard: Shard, *values: np.ndarray) -> tuple[float, ...]:
    """Sum over the images of all shards, and over all further axes, of arrays (image, ...) of this shard."""
    nodes = []
    for number, batch in batches(shard, len(values[0])):
        append_node(nodes, Node(0, number, tuple(np.asarray(array[batch].sum(), float) for array in values)))
    return tuple(map(float, shard.reduce(tree_total, nodes)))


def add_entries(shard: Shard, values: np.ndarray, by_image: bool) -> float:
    """Sum of the entries (image or 1, ...) of what belongs to each image, of all shards, or else to all together."""
    return add_images(shard, values)[0] if by_image else float(values.sum())


def append_node(nodes: list[Node], node: Node) -> None:
    """Put a node behind those to its left; two that are one node of the next level become it. Changes ``nodes``."""
    while nodes and nodes[-1].level == node.level and node.number % 2:
        node = Node(node.level + 1, node.number // 2, _added(nodes.pop().sums, node.sums))
    nodes.append(node)


def tree_total(parts: Iterable[list[Node]]) -> tuple[np.ndarray, ...]:
    """Sum over all batches from the nodes of all shards, in order."""
    nodes: list[Node] = []
    for node in chain.from_iterable(parts):
        append_node(nodes, node)
    total = nodes.pop().sums
    while nodes:
        total = _added(nodes.pop().sums, total)
    return total


def _added(first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))
