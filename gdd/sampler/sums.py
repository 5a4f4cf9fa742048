"""Sums over images, in one order whatever the number of threads: within a chunk, then chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gdd.sampler.kernels.operations import CHUNK

#: chunks of images whose sums are held at once; free to change
SLOTS = 8

Sums = TypeVar("Sums", bound=tuple)


def add_up(total: Sums, images: int, run: Callable[[Sums, int], None]) -> Sums:
    """Add to ``total`` what ``run(slots, first image)`` adds to its slots, chunk after chunk. Changes ``total``."""
    part = total._make(np.zeros((SLOTS, *array.shape)) for array in total)
    for first in range(0, images, SLOTS * CHUNK):
        used = min(SLOTS, -(-(images - first) // CHUNK))
        for array in part:
            array[:used] = 0.0
        run(part._make(array[:used] for array in part), first)
        for slot in range(used):
            for whole, array in zip(total, part, strict=True):
                whole += array[slot]
    return total
