"""The cost of the sampler, as multiples of what the arithmetic alone would take on the same machine in the same minute.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block, each timed alone and added up.

Everything is repeated in turn, so that a disturbance hits all alike; the median and the minimum over the repeats are
kept. One-core times are processor time, which other programs on the machine disturb little; two-core times cannot be
anything but wall time, and are worth reading only if the load average in the record is low.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd import datasets
from gdd.experiments import Outcome
from gdd.experiments.mnist_error import model_for
from gdd.pipeline import infer, project_model
from gdd.sampler.chain import Fitted, start
from gdd.sampler.plain import CORRECT, draw_image, one_image
from gdd.sampler.pretrain import Pretrained, pool_up
from gdd.sampler.random import PRETRAIN, Stream
from gdd.sampler.sweep import Key, draw_shared_part, image_pass
from gdd.spec import ChainSpec, ModelSpec
from gdd.state import LayerData
from gdd.timing import Timing, bound, copies_job, on_threads, seconds_of, time_in_turn

NAME = "bench"
_COMMON = {"warm_up": 60, "repeats": 9, "seed": 0}
PARAMETERS = {
    "demo": {"data": "digits", "images": 256, "sizes": (250, 1000), **_COMMON},
    "paper": {"data": "mnist", "images": 1000, "sizes": (250, 1000, 4000), **_COMMON},
}
#: precisions of the two layers that keep the chains healthy; see `gdd.experiments.mnist_error.model_for`
HEALTHY = (100.0, 0.1)
#: sweeps (burn-in, collected) of a short and a long test-time chain; their difference is free of preparations
SHORT, LONG = (0, 1), (30, 10)


def run(parameters: dict, progress) -> Outcome:
    """Warm chains up, time everything in turn, form the ratios; see the module."""
    p = parameters
    images = datasets.load(p["data"], "train", n=p["images"], seed=p["seed"])
    model = model_for(*HEALTHY)
    with on_threads(1):
        fitted = warm_up(images.values.astype(np.float32), model, p["warm_up"], p["seed"])
        timings = all_timings(fitted, images, p)
        before = os.getloadavg()[0]
        seconds = time_in_turn(timings, p["repeats"], progress)
        plain = seconds_of(Timing(lambda: plain_image(fitted, p["seed"])))
    load = np.array([before, os.getloadavg()[0]])
    table = summary({name: 1e3 * values for name, values in seconds.items()}, 1e3 * plain, load, fitted, p)
    table.attrs |= {
        "load_average_before": load[0], "load_average_after": load[1], "cores": os.cpu_count(),
        "active_per_image_layer_1": float((fitted.layers[0].state.local.z >= 0).sum() / len(images)),
        "active_per_image_layer_2": float((fitted.layers[1].state.local.z >= 0).sum() / len(images)),
    }  # fmt: skip
    return Outcome(table, model, p["data"], images.attrs["checksum"], p["seed"])


def warm_up(images: np.ndarray, model: ModelSpec, sweeps: int, seed: int) -> Pretrained:
    """Run both layers until their numbers of active blocks are those of a chain that has left its start."""
    data, layers, inputs = LayerData(images), [], []
    for number, (spec, shape) in enumerate(zip(model.layers, model.shapes(), strict=True)):
        state = start(data, spec, shape, ChainSpec(seed=seed), number)
        for sweep in range(sweeps):
            key = Key(seed, PRETRAIN, number, sweep)
            local, sums = image_pass(state, data, spec, shape, key)
            state, _ = draw_shared_part(local, sums, state.shared, data, spec, shape, key, False)
        layers.append(Fitted(spec, shape, state, xr.Dataset()))
        inputs.append(data)
        data = LayerData(pool_up(state, spec, shape))
    return Pretrained(model, tuple(layers), tuple(inputs))


def all_timings(fitted: Pretrained, images: xr.DataArray, p: dict) -> dict[str, Timing]:
    """Everything that is timed in turn, by name."""
    timings, n = {}, len(images)
    for number, layer in enumerate(fitted.layers):
        name, data = f"layer {number + 1}", fitted.inputs[number]
        key = Key(p["seed"], PRETRAIN, number, p["warm_up"])
        after = image_pass(layer.state, data, layer.spec, layer.shape, key)
        timings[f"{name}: image pass"] = Timing(pass_job(layer, data, key), n)
        timings[f"{name}: shared draws"] = Timing(shared_job(layer, data, key, after))  # per sweep, not per image
        timings |= {f"{name}: bound, {part}": timing for part, timing in bound(layer.shape, n).items()}
    bottom, data = fitted.layers[0], fitted.inputs[0]
    key = Key(p["seed"], PRETRAIN, 0, p["warm_up"])
    for size in p["sizes"]:
        job = pass_job(*repeated(bottom, data, size), key)
        timings[f"layer 1: image pass, {size} images"] = Timing(job, size)
    for threads in (1, 2):
        copies = [[part.job for part in bound(bottom.shape, n).values()] for _ in range(threads)]
        timings[f"wall, {threads}: pass"] = Timing(pass_job(bottom, data, key), n, threads, True)
        timings[f"wall, {threads}: bound"] = Timing(copies_job(copies), n * threads, threads, True)
    atoms, pixels = project_model(fitted), images.astype(np.float32)
    for name, (burn_in, collect) in (("short", SHORT), ("long", LONG)):
        timings[f"deconvolution, {name}"] = Timing(
            lambda b=burn_in, c=collect: infer(fitted, atoms, pixels, burn_in=b, collect=c, seed=p["seed"]), n
        )
    return timings


def pass_job(layer: Fitted, data: LayerData, key: Key) -> Callable[[], object]:
    """One image pass."""
    return lambda: image_pass(layer.state, data, layer.spec, layer.shape, key)


def shared_job(layer: Fitted, data: LayerData, key: Key, after: tuple) -> Callable[[], object]:
    """Draw all that images share, from the sums of a pass."""
    local, sums = after
    return lambda: draw_shared_part(local, sums, layer.state.shared, data, layer.spec, layer.shape, key, False)


def repeated(layer: Fitted, data: LayerData, size: int) -> tuple[Fitted, LayerData]:
    """Return the same layer on ``size`` images, taken again from the first when they run out."""
    which = np.arange(size) % len(data.images)
    local = layer.state.local
    local = local._replace(z=local.z[which], w=local.w[which], gamma_e=local.gamma_e[which[: len(local.gamma_e)]])
    return layer._replace(state=layer.state._replace(local=local)), LayerData(data.images[which])


def plain_image(fitted: Pretrained, seed: int) -> None:
    """One image pass over one image by the plain conditionals."""
    bottom = fitted.layers[0]
    draw_image(
        one_image(bottom.state.as_double(), fitted.inputs[0], 0), bottom.spec, bottom.shape,
        Stream(seed, PRETRAIN, 0, 0, 0), CORRECT,
    )  # fmt: skip


class Row(NamedTuple):
    """One line of the table."""

    median: float
    minimum: float
    unit: str


def row(values: np.ndarray, unit: str = "ms per image") -> Row:
    """Median and minimum over the repeats."""
    return Row(float(np.median(values)), float(values.min()), unit)


def ratio(above: np.ndarray, below: np.ndarray, factor: float = 1.0) -> Row:
    """Ratio of the medians, and of the minima."""
    return Row(factor * float(np.median(above) / np.median(below)), factor * float(above.min() / below.min()), "ratio")


def summary(times: dict[str, np.ndarray], plain: float, load: np.ndarray, fitted: Pretrained, p: dict) -> xr.Dataset:
    """Times (milliseconds per image, by turn) and their ratios as one table, a row a quantity.

    ``load`` is the machine's load average before and after: well above 1, it spoils what two threads are said to gain.
    """
    rows = {}
    for number in (1, 2):
        rows |= layer_rows(f"layer {number}", times, p["images"])
    rows |= thread_rows(times)
    for size in p["sizes"]:
        rows[f"layer 1: image pass, {size} images"] = row(times[f"layer 1: image pass, {size} images"])
    sweeps = sum(LONG) - sum(SHORT)
    rows["deconvolution: one sweep"] = row((times["deconvolution, long"] - times["deconvolution, short"]) / sweeps)
    rows["layer 1: plain twin, once"] = row(np.array([plain]))
    rows["layer 1: plain twin / image pass"] = ratio(np.array([plain]), times["layer 1: image pass"])
    for number, layer in enumerate(fitted.layers, 1):
        size = sum(part.nbytes for part in layer.state.local) / len(layer.state.local.z)
        rows[f"layer {number}: local state"] = Row(size, size, "bytes per image")
    rows["load average of the machine"] = row(load, "programs")
    columns = zip(*rows.values(), strict=True)
    return xr.Dataset({name: ("quantity", list(c)) for name, c in zip(Row._fields, columns, strict=True)}, {
        "quantity": list(rows)
    })  # fmt: skip


def layer_rows(name: str, times: dict[str, np.ndarray], images: int) -> dict[str, Row]:
    """One layer's pass and sweep beside its bound."""
    parts = {part: values for part, values in times.items() if part.startswith(f"{name}: bound")}
    whole = sum(parts.values())
    image_pass, draws = times[f"{name}: image pass"], times[f"{name}: shared draws"]
    return {
        f"{name}: image pass": row(image_pass),
        f"{name}: shared draws, per sweep": row(draws, "ms"),
        f"{name}: whole sweep of {images} images": row(image_pass + draws / images),
        **{part: row(values) for part, values in parts.items()},
        f"{name}: bound": row(whole),
        f"{name}: image pass / bound": ratio(image_pass, whole),
        f"{name}: whole sweep / bound": ratio(image_pass + draws / images, whole),
    }


def thread_rows(times: dict[str, np.ndarray]) -> dict[str, Row]:
    """Speed-up of the pass on two threads, beside that of two independent copies of the bound."""
    speed_up = {what: ratio(times[f"wall, 1: {what}"], times[f"wall, 2: {what}"]) for what in ("pass", "bound")}
    mine, best = speed_up["pass"], speed_up["bound"]
    return {
        "two threads: speed-up of the pass": mine,
        "two threads: speed-up of two copies of the bound": best,
        "two threads: pass / bound": Row(mine.median / best.median, mine.minimum / best.minimum, "ratio"),
    }
