"""`gdd.reference.random.Stream`, compiled: the same random numbers from the same keys.

For the same key and counter these functions and numpy's Philox give the same 64-bit words.

*Checked:* tests/test_random.py.
"""

from __future__ import annotations

import math

import numpy as np

from gdd.base.compiling import kernel
from gdd.reference.random import TO_UNIT

STREAM_SIZE = 11  # words of a compiled stream: counter 0-3, key 4-5, buffer 6-9, number of words used 10


@kernel()
def _high_word(a, b):
    """Upper 64 bits of a 128-bit product, from products of 32-bit halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    middle = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half)
    cross = (a & low) * (b >> half) + (middle & low)
    return (a >> half) * (b >> half) + (middle >> half) + (cross >> half)


@kernel()
def fill_key(stream, key, image):
    """Set ``stream``, uint64 (STREAM_SIZE,), to the start of one image's numbers under a `Key`."""
    seed, stage, layer, sweep = key
    stream[0] = np.uint64(0)
    stream[1] = np.uint64(image)
    stream[2] = np.uint64(sweep)
    stream[3] = (np.uint64(stage) << np.uint64(32)) + np.uint64(layer)
    stream[4] = np.uint64(seed)
    stream[5] = np.uint64(0)
    stream[10] = np.uint64(4)


@kernel()
def _refill(stream):
    stream[0] += np.uint64(1)
    c0, c1, c2, c3 = stream[0], stream[1], stream[2], stream[3]
    k0, k1 = stream[4], stream[5]
    m0, m1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
    for _ in range(10):
        c0, c1, c2, c3 = _high_word(m1, c2) ^ c1 ^ k0, m1 * c2, _high_word(m0, c0) ^ c3 ^ k1, m0 * c0
        k0 += np.uint64(0x9E3779B97F4A7C15)
        k1 += np.uint64(0xBB67AE8584CAA73B)
    stream[6], stream[7], stream[8], stream[9] = c0, c1, c2, c3
    stream[10] = np.uint64(0)


@kernel()
def next_uniform(stream):
    """Compiled `Stream.uniform`. Changes ``stream``."""
    if stream[10] == np.uint64(4):
        _refill(stream)
    word = stream[np.int64(6) + np.int64(stream[10])]
    stream[10] += np.uint64(1)
    return (np.float64(word >> np.uint64(12)) + 0.5) * TO_UNIT


@kernel()
def next_normal(stream):
    """Compiled `Stream.normal`. Changes ``stream``."""
    radius = math.sqrt(-2.0 * math.log(next_uniform(stream)))
    return radius * math.cos(2.0 * math.pi * next_uniform(stream))


@kernel()
def fill_normals(stream, out):
    """Compiled `Stream.normals`. Changes ``stream`` and ``out``."""
    for t in range(0, out.size, 2):
        radius, angle = math.sqrt(-2.0 * math.log(next_uniform(stream))), 2.0 * math.pi * next_uniform(stream)
        out[t] = radius * math.cos(angle)
        if t + 1 < out.size:
            out[t + 1] = radius * math.sin(angle)


@kernel()
def next_gamma(stream, shape):
    """Compiled `Stream.gamma`. Changes ``stream``."""
    boost = 1.0
    if shape < 1.0:
        boost = next_uniform(stream) ** (1.0 / shape)
        shape = shape + 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = next_normal(stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(next_uniform(stream)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return boost * d * v
