"""Sums over images whose bits do not depend on the number of threads, processes or machines.

Images come in *batches* of `BATCH`. The images of a batch share *accumulators*, one for every `CHUNK` images, or more
where that pays; an accumulator is the work of one thread. Accumulators are added in order; batches are added along a
binary tree over their numbers, the same for any partition. A process holds a contiguous range of whole batches. It adds
its complete subtrees, and sends only their few nodes.

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

#: accumulators of a batch, if they are large; with `CHUNK` it determines the order of every sum
ACCUMULATORS = 8
#: images of a batch
BATCH = ACCUMULATORS * CHUNK

Sums = TypeVar("Sums", bound=tuple)


class Node(NamedTuple):
    """Node of the tree: sums over the batches from ``number * 2**level`` to before ``(number + 1) * 2**level``."""

    level: int
    number: int
    sums: tuple[np.ndarray, ...]


class WorkItem(NamedTuple):
    """Work of one thread on a batch: the images of a range of accumulators."""

    sums: tuple[np.ndarray, ...]  # of the sums' type, with a leading axis of accumulators
    images: slice  # of the shard's images
    images_per_accumulator: int  # the last accumulator may have fewer
    thread: int  # number of the thread


def batches(shard: Shard, images: int) -> Iterator[tuple[int, slice]]:
    """Number of every batch of a shard, and the slice of its images among the shard's ``images``."""
    for first in range(0, images, BATCH):
        yield (shard.first + first) // BATCH, slice(first, min(first + BATCH, images))


def add_up(
    empty: Sums, shard: Shard, images: int, run: Callable[[WorkItem], None], max_accumulators: int | None = None
) -> Sums:
    """Sum over the images of all shards; ``run(item)`` adds its images to its accumulators, on several threads.

    empty : sums over no image; images : number of images of this shard
    max_accumulators : accumulators over which the images of a batch are spread evenly; None: one per chunk
    """
    capacity = min(max_accumulators or ACCUMULATORS, images)
    accumulators = empty._make(np.zeros((capacity, *array.shape)) for array in empty)
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
    """Sum of entries (image, ...) over all shards if ``by_image``, else of shared entries (1, ...)."""
    return add_images(shard, values)[0] if by_image else float(values.sum())


def append_node(nodes: list[Node], node: Node) -> None:
    """Append a node; siblings are merged into their parent. Changes ``nodes``."""
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
