"""Every part of `gdd bench` but the peers: what is timed, and the rows, named by what they measure."""

import time
import tracemalloc
from collections.abc import Callable
from math import prod

import numpy as np
import xarray as xr
from joblib import Parallel, delayed
from scipy.ndimage import gaussian_filter

from gdd import infer, project
from gdd.inference.block_magnitudes import one_step_features
from gdd.inference.deconvolution import make_problem, run_problem
from gdd.model.spec import CALTECH101, ChainSpec, ModelSpec
from gdd.model.state import LayerData
from gdd.reference.random import PRETRAIN, REFINE, Key
from gdd.sampler.joint_sweep import joint_sweep
from gdd.sampler.placement import placement_grid
from gdd.sampler.pretrain import Fitted, Pretrained, fit_layer, pretrain
from gdd.sampler.refine import refine
from gdd.sampler.sweep import image_pass, sweep
from gdd_book.benchmarks import harness
from gdd_book.data import datasets
from gdd_book.data.sources import is_here
from gdd_book.progress import Run
from gdd_book.training import DEEP_DIGITS, refinement_for

#: repeats of timings that take seconds each; number of a sweep that no chain reaches
FEW, LATER = 3, 10**6


def all_digits(name: str) -> xr.DataArray:
    """Every training image of a data set; where that is not on this machine, the embedded digits, nothing fetched."""
    return datasets.load(name if is_here(name) else "digits", "train")


def some(images: xr.DataArray, n: int, seed: int) -> xr.DataArray:
    """``n`` of these images in an order drawn with the seed, from the first one again when they run out."""
    order = np.random.default_rng(seed).permutation(images.sizes["image"])
    return images.isel(image=order[np.arange(n) % len(order)])


def pass_job(layer: Fitted, data: LayerData, seed: int) -> Callable[[], object]:
    """One image pass."""
    return lambda: image_pass(layer.state, data, layer.spec, layer.shape, Key(seed, PRETRAIN, 0, LATER))


def sweep_job(layer: Fitted, data: LayerData, seed: int, sweeps: int = 1) -> Callable[[], object]:
    """Some whole sweeps, all from the same state."""
    keys = [Key(seed, PRETRAIN, 0, LATER + number) for number in range(sweeps)]
    return lambda: [sweep(layer.state, data, layer.spec, layer.shape, key) for key in keys]


# ---- kernels beside their bounds
#: sweeps (burn-in, collected) of a short and a long test-time chain; their difference is free of preparations
SHORT, LONG = (30, 1), (60, 10)
HALF_HIDDEN, ONE_STEP = "layer 1, half hidden: image pass", "one-step features: one image"
SWEEP = "deconvolution: one sweep"


def kernel_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, harness.Row]:
    """Every compiled kernel of a layer and of test time beside its bound."""
    n, seed, jobs, bounds = len(images), p["seed"], {}, {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True), 1):
        timed = {f"layer {number}: image pass": pass_job, f"layer {number}: whole sweep": sweep_job}
        jobs |= {name: harness.Timing(make(layer, data, seed), n) for name, make in timed.items()}
        jobs[f"layer {number}: bound"] = harness.bound(layer.shape, n)
        bounds |= dict.fromkeys(timed, f"layer {number}: bound")
    bottom, pixels, atoms = fitted.layers[0], images.astype(np.float32), project(fitted)
    hidden = fitted.inputs[0]._replace(mask=np.random.default_rng(seed).random(fitted.inputs[0].images.shape) < 0.5)
    jobs[HALF_HIDDEN] = harness.Timing(pass_job(bottom, hidden, seed), n)
    dictionary, settings = bottom.state.shared.dictionary.astype(np.float32), {
        "gamma_e": float(bottom.state.local.gamma_e.mean()), "gamma_w": float(bottom.state.shared.gamma_w.mean()),
    }
    jobs[ONE_STEP] = harness.Timing(lambda: one_step_features(pixels, dictionary, bottom.spec.pool, **settings), n)
    jobs["one-step features: bound"] = harness.bound(bottom.shape, n, draws=False)
    chain = lambda lengths: infer(fitted, atoms, pixels, burn_in=lengths[0], collect=lengths[1], seed=seed)  # noqa: E731
    jobs |= {"short": harness.Timing(lambda: chain(SHORT), n), "long": harness.Timing(lambda: chain(LONG), n)}
    codes = chain(LONG).ml_sample
    size, active = codes[0].size, max(1, round(float((codes != 0).sum()) / n))
    jobs["deconvolution: bound"] = harness.bare_work((size, active, 64), size, size, n, 64)
    seconds = harness.time_in_turn(jobs, p["repeats"], run)
    seconds[SWEEP] = (seconds.pop("long") - seconds.pop("short")) / (sum(LONG) - sum(SHORT))
    bounds |= {HALF_HIDDEN: "layer 1: bound", ONE_STEP: "one-step features: bound", SWEEP: "deconvolution: bound"}
    ratios = {f"{name} / bound": harness.ratio(seconds[name], seconds[below]) for name, below in bounds.items()}
    return {name: harness.row(values) for name, values in seconds.items()} | ratios


# ---- threads, numbers of images, memory
#: image-sweeps that one timing covers at least, so that few images are timed as finely as many
LEAST_WORK = 8000


def young(fitted: Pretrained, images: np.ndarray, seed: int) -> tuple[Fitted, LayerData]:
    """Layer 1 after three sweeps of its own on other images."""
    data, layer = LayerData(images), fitted.layers[0]
    return fit_layer(data, layer.spec, layer.shape, ChainSpec(2, 1, seed)), data


def thread_rows(fitted: Pretrained, p: dict, run: Run) -> dict[str, harness.Row]:
    """Speed-up by a second thread, in wall time, of the whole sweep, and of two copies of the bound."""
    images, jobs = fitted.inputs[0].images, {}
    layer, data = young(fitted, np.concatenate([images, images]), p["seed"])  # a turn must outlast a thread's start
    for threads in (1, 2):
        copies = [harness.bound(layer.shape, len(data.images)) for _ in range(threads)]
        side_by_side = lambda copies=copies: Parallel(len(copies), "threading")(delayed(one.job)() for one in copies)  # noqa: E731
        jobs["sweep", threads] = harness.Timing(sweep_job(layer, data, p["seed"]), len(data.images), threads, True)
        jobs["bound", threads] = harness.Timing(side_by_side, sum(one.images for one in copies), 1, True)
    seconds = harness.time_in_turn(jobs, p["repeats"], run)
    gain, best = (harness.ratio(seconds[what, 1], seconds[what, 2]) for what in ("sweep", "bound"))
    times = {f"two threads: {what} on {number}": harness.row(values, "ms of wall time per image")
             for (what, number), values in seconds.items()}
    return times | {
        f"two threads: speed-up of a sweep of {len(data.images)} images": gain,
        "two threads: speed-up of two copies of the bound": best,
        "two threads: sweep / bound": harness.Row(gain.median / best.median, gain.minimum / best.minimum, "ratio"),
    }


def image_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, harness.Row]:
    """Cost of a whole sweep against the number of images: first so many of the same, in turn."""
    sizes, seed, jobs = sorted(p["sizes"]), p["seed"], {}
    layer, data = young(fitted, some(images, sizes[-1], seed).values.astype(np.float32), seed)
    for size in sizes:
        sweeps = max(1, min(LEAST_WORK, sizes[-1]) // size)
        local = layer.state.local
        local = local._replace(z=local.z[:size], w=local.w[:size], gamma_e=local.gamma_e[:size])
        first = layer._replace(state=layer.state._replace(local=local)), LayerData(data.images[:size])
        jobs[size] = harness.Timing(sweep_job(*first, seed, sweeps), size * sweeps)
    seconds = harness.time_in_turn(jobs, FEW, run)
    return {f"sweep of {size} images": harness.row(seconds[size]) for size in sizes} | {
        f"sweep of {size} images / of {sizes[0]}": harness.ratio(seconds[size], seconds[sizes[0]]) for size in sizes[1:]
    }


def memory_rows(fitted: Pretrained, p: dict) -> dict[str, harness.Row]:
    """Bytes per image: of the state, as `gdd.model.state` states, and by which a running chain's peak grows."""
    rows = {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True), 1):
        held = sum(part.nbytes for part in layer.state.local) / len(data.images)
        few, many = (_peak(layer, data.images, n, p["seed"]) for n in (1024, 4096))  # images are most of the peak
        slope, stated = (many - few) / (4096 - 1024), 6 * layer.shape.atoms * prod(layer.shape.grid)
        found = {"local state": held, "stated, 2 + 4 bytes a block": stated, "peak of a running chain": slope}
        rows |= {f"layer {number}: {what}": harness.single(value, "bytes per image") for what, value in found.items()}
        fixed = harness.single((few - 1024 * slope) / 1e6, "MB")
        rows[f"layer {number}: peak of a running chain, whatever the images"] = fixed
    return rows


def _peak(layer: Fitted, images: np.ndarray, n: int, seed: int) -> int:
    """Bytes that a running chain of so many images needs beyond its input."""
    data, peaks = LayerData(images[np.arange(n) % len(images)]), []
    for _ in range(2):  # the first loads code
        tracemalloc.start()
        try:
            fit_layer(data, layer.spec, layer.shape, ChainSpec(1, 2, seed))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return peaks[-1]


# ---- refinement
#: digits and pictures that are refined, and sweeps of both stages before the timing
REFINED_DIGITS, REFINED_PICTURES, BEFORE = 250, 4, 8


def refinement_rows(images: xr.DataArray, model: ModelSpec, p: dict, run: Run) -> dict[str, harness.Row]:
    """A sweep of refinement, and over a sweep of every layer in pretraining, at the shapes of MNIST and Caltech 101."""
    seed, chain, jobs = p["seed"], ChainSpec(BEFORE - 1, 1, p["seed"]), {}
    pictures = stand_ins(PLACED, CALTECH101, seed, REFINED_PICTURES)[1]
    digits = images[:REFINED_DIGITS].values.astype(np.float32)
    given = {
        "MNIST shapes": (digits, model, DEEP_DIGITS["refine_noise"]),
        "Caltech shapes": (pictures, CALTECH101.with_fixed_precisions(GAMMA_E, GAMMA_W), GAMMA_E),
    }
    for name, (pixels, own, noise) in given.items():
        fitted = pretrain(pixels, own, chain)
        refined = refine(pixels, own, chain, refinement_for(noise), start=fitted)
        layers = [sweep_job(layer, inputs, seed) for layer, inputs in zip(fitted.layers, fitted.inputs, strict=True)]
        below = lambda layers=layers: [job() for job in layers]  # noqa: E731
        key = Key(seed, REFINE, 0, LATER)
        above = lambda r=refined, key=key: joint_sweep(r.last, r.data, r.model, r.refinement, key)  # noqa: E731
        jobs[f"{name}: pretraining, a sweep of every layer"] = harness.Timing(below, len(pixels))
        jobs[f"{name}: refinement, a sweep"] = harness.Timing(above, len(pixels))
    seconds = harness.time_in_turn(jobs, FEW, run)
    return {name: harness.row(values) for name, values in seconds.items()} | {
        f"{name}: refinement / pretraining": harness.ratio(
            seconds[f"{name}: refinement, a sweep"], seconds[f"{name}: pretraining, a sweep of every layer"]
        ) for name in given
    }


# ---- test time
#: the paper's burn-in and collected sweeps at test time (Sec. 3)
SWEEPS = 500, 200
MNIST_IMAGES, CALTECH_IMAGES = 32, 2
#: stand-ins: placed atoms in an image, their typical weight, noise and precisions
PLACED, WEIGHT, NOISE, GAMMA_E, GAMMA_W = 60, 10.0, 0.03, 100.0, 0.05


def testing_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, harness.Row]:
    """One-layer deconvolution at the paper's chain lengths, at the shapes of MNIST and of Caltech 101.

    Caltech's images and atoms are stand-ins: dictionaries of all 101 classes take hours. The time per image is that of
    full chains on few images; the atoms' Gram matrix, which all share, is a row of its own.
    """
    atoms, pixels = project(fitted), images[:MNIST_IMAGES].astype(np.float32)
    size, stride = CALTECH101.image_size, CALTECH101.stride
    own_atoms, pictures = stand_ins(p["caltech_atoms"], CALTECH101, p["seed"], CALTECH_IMAGES)
    begun = time.process_time()
    problem = make_problem(own_atoms, size, stride, GAMMA_E, GAMMA_W)
    shared, chain = time.process_time() - begun, (p["seed"], 0, 1, *SWEEPS)
    scaled = pictures * np.float32(GAMMA_E**0.5)
    lengths = {"burn_in": SWEEPS[0], "collect": SWEEPS[1], "seed": p["seed"]}
    jobs = {
        "MNIST": harness.Timing(lambda: infer(fitted, atoms, pixels, **lengths).ml_sample, len(pixels)),
        "Caltech": harness.Timing(lambda: run_problem(problem, scaled, None, None, chain, False)[0], len(pictures)),
    }
    seconds = harness.time_in_turn(jobs, 1, run)
    rows = {
        "Caltech shapes: Gram matrix, once for all images": harness.row(np.array([shared]), "ms"),
        "Caltech shapes: Gram matrix": harness.single(problem.gram.nbytes / 1e6, "MB"),
    }
    for name, timing in jobs.items():
        codes = timing.job()
        what = f"{name} shapes, {codes[0].size} coefficients, {sum(SWEEPS)} sweeps"
        active = harness.single((codes != 0).sum() / timing.images, "per image")
        rows |= {what: harness.row(seconds[name]), f"{what}: active": active}
    return rows


def stand_ins(number: int, model: ModelSpec, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooth random atoms of unit norm (atom, 1, row, col) of a model's sizes, and noisy images of some of them."""
    generator, reach, stride = np.random.default_rng(seed), model.projected_size, model.stride
    atoms = generator.standard_normal((number, *reach), np.float32)
    for atom, width in zip(atoms, generator.uniform(1.5, 4.0, number), strict=True):
        atom[:] = gaussian_filter(atom, width)
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2), keepdims=True))
    grid = placement_grid(model.image_size, reach, stride)
    images = NOISE * generator.standard_normal((count, *model.image_size))
    for image in images:
        for atom in generator.integers(number, size=PLACED):
            top, left = (int(generator.integers(n)) * s for n, s in zip(grid, stride, strict=True))
            image[top : top + reach[0], left : left + reach[1]] += WEIGHT * generator.standard_normal() * atoms[atom]
    return atoms[:, None], images[:, None].astype(np.float32)
