"""How the cost of a layer-1 sweep grows: with the number of images, with the size of the atoms; memory per image.

*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, Precision, layer_shape
from gdd.model.state import LayerData
from gdd.sampler.pretrain import Fitted, Pretrained, fit_layer
from gdd.sampler.random import PRETRAIN
from gdd.sampler.sweep import Key
from gdd_book.benchmarks.kernels import bound_of, pass_job
from gdd_book.benchmarks.material import first_images, on_images, one_sweep, some, warm_layer
from gdd_book.benchmarks.rows import Row, ratio, row, single
from gdd_book.benchmarks.timing import Timing, bound, time_in_turn

#: image-sweeps that one timing covers at least, so that few images are timed as finely as many
LEAST_WORK = 8000
#: passes that give every image its own state under the warmed-up dictionary
PASSES = 3
#: repeats of timings that take seconds each
FEW = 3


def image_rows(fitted: Pretrained, images: xr.DataArray, p: dict, progress) -> dict[str, Row]:
    """Cost of a whole sweep against the number of images: first so many of the same, in turn."""
    sizes, seed = sorted(p["sizes"]), p["seed"]
    pixels = some(images, sizes[-1], seed).values.astype(np.float32)
    layer, data = on_images(fitted.layers[0], pixels, PASSES, seed)
    jobs = {}
    for size in sizes:
        sweeps = max(1, min(LEAST_WORK, sizes[-1]) // size)
        job = sweep_job(*first_images(layer, data, size), sweeps, seed)
        jobs[f"sweep of {size} images"] = Timing(job, size * sweeps)
    seconds = time_in_turn(jobs, FEW, progress)
    smallest = seconds[f"sweep of {sizes[0]} images"]
    rows = {name: row(values, size=size) for size, (name, values) in zip(sizes, seconds.items(), strict=True)}
    for size in sizes[1:]:
        name = f"sweep of {size} images / of {sizes[0]}"
        rows[name] = ratio(seconds[f"sweep of {size} images"], smallest, size)
    return rows


def sweep_job(layer: Fitted, data: LayerData, sweeps: int, seed: int) -> Callable[[], object]:
    """Some whole sweeps, all from the same state."""

    def job():
        for number in range(sweeps):
            one_sweep(layer.state, data, layer.spec, layer.shape, Key(seed, PRETRAIN, 0, 10**6 + number))

    return job


def atom_rows(fitted: Pretrained, p: dict, progress) -> dict[str, Row]:
    """Cost of an image pass against the size of the atoms, beside the bound of each size."""
    data, key, jobs = fitted.inputs[0], Key(p["seed"], PRETRAIN, 0, 10**6), {}
    n, planes, *image_size = data.images.shape
    for size in p["atom_sizes"]:
        spec = replace(fitted.layers[0].spec, atom_size=(size, size), gamma_d=Precision(fixed=float(size**2)))
        layer = warm_layer(data, spec, layer_shape(spec, tuple(image_size), planes), p["warm_up"] // 2, p["seed"])
        name = f"atoms of {size} x {size}"
        jobs[f"{name}: image pass"] = Timing(pass_job(layer, data, key), n)
        jobs |= {f"{name}: bound, {part}": timing for part, timing in bound(layer.shape, n).items()}
    seconds = time_in_turn(jobs, p["repeats"], progress)
    rows = {}
    for size in p["atom_sizes"]:
        name = f"atoms of {size} x {size}"
        taken, below = seconds[f"{name}: image pass"], bound_of(name, seconds)
        rows[f"{name}: image pass"] = row(taken, size=size)
        rows[f"{name}: bound"] = row(below, size=size)
        rows[f"{name}: image pass / bound"] = ratio(taken, below, size)
    return rows


def memory_rows(fitted: Pretrained, p: dict) -> dict[str, Row]:
    """Bytes per image: what the state holds, what `gdd.model.state` states, and by how much a running chain's peak
    grows.
    """
    rows = {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True), 1):
        shape, name = layer.shape, f"layer {number}"
        held = sum(part.nbytes for part in layer.state.local) / len(data.images)
        slope, offset = memory_of(layer.spec, shape, data.images, p["seed"])
        rows |= {
            f"{name}: local state": single(held, "bytes per image"),
            f"{name}: stated, 2 + 4 bytes a block": single(6 * shape.atoms * np.prod(shape.grid), "bytes per image"),
            f"{name}: peak of a running chain": single(slope, "bytes per image"),
            f"{name}: peak of a running chain, whatever the images": single(offset / 1e6, "MB"),
        }
    return rows


def memory_of(spec: LayerSpec, shape: LayerShape, images: np.ndarray, seed: int) -> tuple[float, float]:
    """Bytes that a running chain needs beyond its input: by image, and besides. From two numbers of images."""
    few, many = 512, 2048
    peaks = []
    for n in (few, many):
        data = LayerData(images[np.arange(n) % len(images)])
        tracemalloc.start()
        try:
            fit_layer(data, spec, shape, ChainSpec(1, 2, seed))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    slope = (peaks[1] - peaks[0]) / (many - few)
    return slope, peaks[0] - few * slope
