"""The part ``cuda`` of `gdd bench`: image passes on a graphics processor, beside those on all cores of this machine."""

from __future__ import annotations

import timeit
from collections.abc import Callable

import numpy as np
import xarray as xr

from gdd import infer, project
from gdd.base.compiling import MOST_THREADS
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.reference.random import PRETRAIN, Key
from gdd.sampler.arrays import allocate_buffers
from gdd.sampler.joint_sweep import image_pass as joint_pass
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import start_from
from gdd.sampler.sweep import image_pass, passes_on
from gdd_book.benchmarks import harness
from gdd_book.benchmarks.cost import FEW, LATER, some
from gdd_book.progress import Run
from gdd_book.training import DEEP_DIGITS, refinement_for

DEVICES = "cuda", "cpu"
#: numbers of digits that are timed; few of which the first call of a pass is made, which compiles it
SIZES, FIRST = (1000, 60000), 16
#: sweeps before the timing, and of the chain of test time, (burn-in, collected)
BEFORE, CODING = (2, 1), (8, 2)
#: bytes that are copied within the device's memory, each read and written
COPIED = 2**30


def device_rows(everything: xr.DataArray, model: ModelSpec, p: dict, run: Run) -> dict[str, harness.Row]:
    """Seconds of compiling, the rate at which the device's memory is copied, and every pass on either device.

    A pass begins and ends in the memory of the machine, as in a chain. In wall time: only worth reading if nothing else
    runs there.
    """
    rows, seed = {"copy within the device's memory": harness.single(copy_rate() / 1e9, "GB a second")}, p["seed"]
    few = some(everything, FIRST, seed).astype(np.float32)
    fitted = pretrain(few, model, ChainSpec(*BEFORE, seed))
    atoms = project(fitted)
    for name, job in jobs_of(fitted, fitted, atoms, few, seed).items():
        first, again = seconds_of(lambda job=job: job(DEVICES[0]), 2)
        rows[f"{name}: first call, which compiles"] = harness.single(first - again, "s")
    with run.bar(len(SIZES), "sizes") as bar:
        for n in SIZES:
            images = some(everything, n, seed).astype(np.float32)
            warm = pretrain(images, model, ChainSpec(*BEFORE, seed), device=DEVICES[0])
            for name, job in jobs_of(warm, fitted, atoms, images, seed).items():
                for device in DEVICES:
                    with harness.on_threads(MOST_THREADS):
                        seconds = seconds_of(lambda job=job, device=device: job(device), 1 + FEW)[1:]
                    rows[f"{name}: {n} digits, {device}"] = harness.row(seconds, "ms")
            bar.step()
    return rows


def jobs_of(
    warm: Pretrained, fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray, seed: int
) -> dict[str, Callable[[str], object]]:
    """What is timed: image passes from the state of a chain, ``warm``; a chain of test time with ``fitted`` atoms."""
    data, shapes, refinement = warm.inputs[0], warm.model.shapes(), refinement_for(DEEP_DIGITS["refine_noise"])
    begun, key = start_from(warm, refinement, ChainSpec(*BEFORE, seed)), Key(seed, PRETRAIN, 0, LATER)
    buffers = allocate_buffers(data, warm.model).load(begun)
    jobs = {f"layer {number}": lambda device, one=layer, inputs=inputs: image_pass(
        one.state, inputs, one.spec, one.shape, key, passes_on(device, [one.shape], inputs)
    ) for number, (layer, inputs) in enumerate(zip(warm.layers, warm.inputs, strict=True), 1)}
    return jobs | {
        "refinement": lambda device: joint_pass(
            buffers, begun.shared, warm.model, refinement, key, passes_on(device, shapes, data, joint=True)
        ),
        f"deconvolution, {sum(CODING)} sweeps": lambda device: infer(
            fitted, atoms, images, burn_in=CODING[0], collect=CODING[1], seed=seed, device=device
        ),
    }


def seconds_of(job: Callable[[], object], calls: int) -> np.ndarray:
    """Wall time of every call."""
    return np.array(timeit.repeat(job, number=1, repeat=calls))


def copy_rate() -> float:
    """Bytes a second that the device reads and writes when it copies."""
    from numba import cuda

    one, other = (cuda.device_array(COPIED, np.uint8) for _ in range(2))
    seconds = seconds_of(lambda: (other.copy_to_device(one), cuda.synchronize()), 1 + FEW)
    return 2 * COPIED / seconds[1:].min()
