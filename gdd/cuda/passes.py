"""The image passes of a graphics processor in one table, and the memory that they need."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gdd.cuda.device import THREADS, check_available, images_at_once
from gdd.cuda.joint import pass_joint
from gdd.cuda.layer import pass_masked, pass_top, pass_unmasked
from gdd.model.spec import LayerShape
from gdd.model.state import LayerData
from gdd.sampler.sums import ACCUMULATORS, BATCH
from gdd.sampler.sweep import Passes


def passes(shapes: Sequence[LayerShape], data: LayerData, joint: bool) -> Passes:
    """The passes of the device, for layers of these shapes, each alone or all of them as one ``joint`` model.

    GddError if there is none, or if its memory does not hold a batch of images.
    """
    check_available()
    number = min(BATCH, len(data.images))
    if joint:
        images_at_once("images, model", 1, 0, number * joint_bytes(shapes, data.images.itemsize))
    for level, shape in enumerate([] if joint else shapes, 1):
        fixed, each = layer_bytes(shape, data.images.itemsize)
        images_at_once(f"atoms of layer {level}", 1, fixed, number * each)
    return Passes(pass_unmasked, pass_masked, pass_top, pass_joint, 1)


def layer_bytes(shape: LayerShape, size: int) -> tuple[int, int]:
    """Bytes that passes of a layer need for all images, and for each; ``size`` of a number."""
    atoms, blocks, cells = shape.atoms, prod(shape.grid), prod(shape.map_size)
    pixels, reach = prod(shape.input_size) * shape.planes, map(min, shape.atom_size, shape.map_size)
    pairs = atoms**2 * prod(2 * side - 1 for side in reach)  # of the sums, and of a Gram matrix
    each = size * (3 * pixels + atoms * (blocks + cells)) + 2 * atoms * blocks + 64 * prod(shape.block)
    return (8 * ACCUMULATORS + size) * (pairs + prod(shape.dictionary)), each


def joint_bytes(shapes: Sequence[LayerShape], size: int) -> int:
    """Bytes that the pass of the joint model needs for each image; what all share is small beside it."""
    levels = [prod(shape.input_size) * shape.planes for shape in shapes]
    blocks, outcomes = [shape.atoms * prod(shape.grid) for shape in shapes], 1 + max(prod(s.block) for s in shapes)
    counted = max([1, *(shape.atoms for shape in shapes[1:-1])])
    own = 8 * (4 * len(shapes) + outcomes * (4 * counted + 6))  # of a thread
    each = size * (3 * sum(levels) + 3 * levels[0] + outcomes + blocks[-1]) + 2 * sum(blocks) + 32 * blocks[-1]
    return each + THREADS * own
