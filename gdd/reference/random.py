"""Counter-based random numbers: every image's stream follows from (seed, stage, layer, sweep, image) alone.

The generator is Philox 4x64-10 (Salmon et al. 2011), as in numpy. There is no hidden state, so a chain is the same for
any number of threads, for any sharding of the images, and after a restart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

#: stages of training and inference, as part of the key of a random number
PRETRAIN, REFINE, TEST, START = range(4)

TO_UNIT = 2.0**-52  # 52 bits plus a half: with 53 bits the largest number would round to 1


class Key(NamedTuple):
    """Key of the random numbers of one sweep."""

    seed: int
    stage: int
    layer: int
    sweep: int


def _counter(stage: int, layer: int, sweep: int, image: int) -> list[int]:
    return [0, image, sweep, (stage << 32) + layer]


def shared_generator(seed: int, stage: int, layer: int, sweep: int, batch: int = 0) -> np.random.Generator:
    """Generator of the shared draws (dictionary, shared precisions) of one sweep.

    The initial local state of a ``batch`` of images (`gdd.sampler.sums`) has a generator per batch.
    """
    counter = _counter(stage, layer, sweep, 2**63 + batch)
    return np.random.Generator(np.random.Philox(counter=counter, key=[seed, 0]))


class Stream:
    """Random numbers of one image in one sweep; compiled in `gdd.sampler.kernels.random`."""

    def __init__(self, seed: int, stage: int, layer: int, sweep: int, image: int) -> None:
        self._bits = np.random.Philox(counter=_counter(stage, layer, sweep, image), key=[seed, 0])

    def uniform(self) -> float:
        """Draw from the open interval (0, 1)."""
        return ((int(self._bits.random_raw()) >> 12) + 0.5) * TO_UNIT

    def normal(self) -> float:
        """Draw a standard normal number (Box & Muller 1958, one of the pair)."""
        radius = math.sqrt(-2.0 * math.log(self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def normals(self, number: int) -> np.ndarray:
        """Draw ``number`` standard normal numbers, both of every pair; if odd, only the first of the last pair."""
        out = []
        while len(out) < number:
            radius, angle = math.sqrt(-2.0 * math.log(self.uniform())), 2.0 * math.pi * self.uniform()
            out += [radius * math.cos(angle), radius * math.sin(angle)]
        return np.array(out[:number])

    def gamma(self, shape: float) -> float:
        """Draw a Gamma(shape, 1) number (Marsaglia & Tsang 2000; their boost below shape 1)."""
        if shape < 1.0:
            boost = self.uniform() ** (1.0 / shape)
            return self.gamma(shape + 1.0) * boost
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log(self.uniform()) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v
