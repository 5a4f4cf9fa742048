"""Every part of `gdd bench` but the peers: jobs, and the rows that are made of their times.

Rows are named by what they measure; times on one core are processor time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

from gdd import infer, project
from gdd.inference.deconvolution import make_problem, run_problem
from gdd.inference.features import one_step_features
from gdd.inference.infer import precisions_of
from gdd.model.placement import dense_gram, placement_grid
from gdd.model.spec import CALTECH101, ChainSpec, ModelSpec, Precision, layer_shape
from gdd.model.state import LayerData
from gdd.reference.deconvolution import plain_coefficients
from gdd.reference.layer_sweep import CORRECT, draw_image, one_image
from gdd.reference.random import PRETRAIN, REFINE, TEST, Stream
from gdd.sampler.joint_sweep import joint_sweep
from gdd.sampler.pretrain import Fitted, Pretrained, fit_layer, initial_state, pretrain
from gdd.sampler.refine import refine
from gdd.sampler.sweep import Key, draw_shared_part, image_pass, sweep
from gdd_book.benchmarks.harness import (
    Row,
    Timing,
    bare_work,
    bound,
    bound_in_processes,
    bound_of,
    ratio,
    row,
    seconds_of,
    single,
    time_in_turn,
)
from gdd_book.data import datasets
from gdd_book.data.sources import inventory
from gdd_book.progress import Run
from gdd_book.training import DEEP_DIGITS, refinement_for

# ---- digits, and jobs on a layer whose chain has left its start


def all_digits(name: str) -> xr.DataArray:
    """Every training image of a data set; where that is not on this machine, the embedded digits, nothing fetched."""
    here = all(file.path is not None for file in inventory() if file.dataset == name)
    return datasets.load(name if here else "digits", "train")


def some(images: xr.DataArray, n: int, seed: int) -> xr.DataArray:
    """``n`` of these images in an order drawn with the seed, from the first one again when they run out."""
    order = np.random.default_rng(seed).permutation(images.sizes["image"])
    return images.isel(image=order[np.arange(n) % len(order)])


def on_images(layer: Fitted, images: np.ndarray, seed: int) -> tuple[Fitted, LayerData]:
    """Return the layer on other images: its shared part kept, their own part from three passes from empty maps."""
    data = LayerData(images)
    state = initial_state(data, layer.spec, layer.shape, ChainSpec(seed=seed), 0)._replace(shared=layer.state.shared)
    for number in range(3):
        local = image_pass(state, data, layer.spec, layer.shape, Key(seed, PRETRAIN, 0, number)).local
        state = state._replace(local=local)
    return layer._replace(state=state), data


def first_images(layer: Fitted, data: LayerData, n: int) -> tuple[Fitted, LayerData]:
    """Layer and data of the first n images alone."""
    local = layer.state.local
    local = local._replace(z=local.z[:n], w=local.w[:n], gamma_e=local.gamma_e[:n])
    return layer._replace(state=layer.state._replace(local=local)), LayerData(data.images[:n])


def pass_job(layer: Fitted, data: LayerData, key: Key) -> Callable[[], object]:
    """One image pass."""
    return lambda: image_pass(layer.state, data, layer.spec, layer.shape, key)


def sweep_job(layer: Fitted, data: LayerData, sweeps: int, seed: int) -> Callable[[], object]:
    """Some whole sweeps, all from the same state."""

    def job():
        for number in range(sweeps):
            sweep(layer.state, data, layer.spec, layer.shape, Key(seed, PRETRAIN, 0, 10**6 + number))

    return job


# ---- kernels beside their bounds and their plain twins

#: sweeps (burn-in, collected) of a short and a long test-time chain; their difference is free of preparations
SHORT, LONG = (30, 1), (60, 10)
HALF_HIDDEN, ONE_STEP, DECONVOLUTION = "layer 1, half hidden", "one-step features", "deconvolution"


def kernel_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, Row]:
    """Every compiled kernel of a layer and of test time beside its bound and beside its plain twin."""
    n, bottom = len(images), fitted.inputs[0]
    hidden = bottom._replace(mask=np.random.default_rng(p["seed"]).random(bottom.images.shape) < 0.5)
    jobs = _layer_jobs(fitted, p) | _other_jobs(fitted, hidden, images, p)
    seconds = time_in_turn(jobs, p["repeats"], run)
    one_sweep = (seconds[f"{DECONVOLUTION}, long"] - seconds[f"{DECONVOLUTION}, short"]) / (sum(LONG) - sum(SHORT))
    compiled, rows = {HALF_HIDDEN: seconds[HALF_HIDDEN], DECONVOLUTION: one_sweep}, {}
    for number in range(1, len(fitted.layers) + 1):
        name = f"layer {number}"
        compiled[name], draws = seconds[f"{name}: image pass"], seconds[f"{name}: shared draws"]
        whole = compiled[name] + draws / n
        rows |= {
            f"{name}: image pass": row(compiled[name]), f"{name}: shared draws, per sweep": row(draws, "ms"),
            f"{name}: whole sweep of {n} images": row(whole), **_bound_rows(name, seconds),
            f"{name}: image pass / bound": ratio(compiled[name], bound_of(name, seconds)),
            f"{name}: whole sweep / bound": ratio(whole, bound_of(name, seconds)),
        }
    below = bound_of("layer 1", seconds)  # of those too that correlate all of its atoms with all of an image
    rows |= {
        f"{HALF_HIDDEN}: image pass": row(seconds[HALF_HIDDEN]),
        f"{HALF_HIDDEN}: image pass / bound": ratio(seconds[HALF_HIDDEN], below),
        f"{ONE_STEP}: one image": row(seconds[ONE_STEP]),
        f"{ONE_STEP}: one image / bound": ratio(seconds[ONE_STEP], below - seconds["layer 1: bound, generator"]),
        f"{DECONVOLUTION}: one sweep": row(one_sweep), **_bound_rows(DECONVOLUTION, seconds),
        f"{DECONVOLUTION}: one sweep / bound": ratio(one_sweep, bound_of(DECONVOLUTION, seconds)),
    }
    for name, job in _plain_twins(fitted, hidden, images, p["seed"]).items():
        once = np.array([seconds_of(Timing(job))])
        rows |= {f"{name}: plain twin, once": row(once), f"{name}: plain twin / compiled": ratio(once, compiled[name])}
    for number, layer in enumerate(fitted.layers, 1):
        active = (layer.state.local.z >= 0).sum() / len(layer.state.local.z)
        rows[f"layer {number}: active blocks"] = single(active, "per image")
    return rows


def _bound_rows(name: str, seconds: dict[str, np.ndarray]) -> dict[str, Row]:
    """Parts of a bound, and their sum."""
    parts = {part: row(values) for part, values in seconds.items() if part.startswith(f"{name}: bound,")}
    return parts | {f"{name}: bound": row(bound_of(name, seconds))}


def _layer_jobs(fitted: Pretrained, p: dict) -> dict[str, Timing]:
    """Image pass, shared draws and bound of every layer."""
    jobs = {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True)):
        name, n, key = f"layer {number + 1}", len(data.images), Key(p["seed"], PRETRAIN, number, p["warm_up"])
        passed = image_pass(layer.state, data, layer.spec, layer.shape, key)
        draws = passed, layer.state.shared, data, layer.spec, layer.shape, key
        jobs[f"{name}: image pass"] = Timing(pass_job(layer, data, key), n)
        jobs[f"{name}: shared draws"] = Timing(lambda draws=draws: draw_shared_part(*draws))  # per sweep, not per image
        jobs |= bound(name, layer.shape, n)
    return jobs


def _other_jobs(fitted: Pretrained, hidden: LayerData, images: xr.DataArray, p: dict) -> dict[str, Timing]:
    """Missing pixels, one-step features, test-time deconvolution."""
    bottom, n, seed = fitted.layers[0], len(images), p["seed"]
    shared, key = bottom.state.shared, Key(seed, PRETRAIN, 0, p["warm_up"])
    settings = {"gamma_e": float(bottom.state.local.gamma_e.mean()), "gamma_w": float(shared.gamma_w.mean())}
    atoms, pixels, dictionary = project(fitted), images.astype(np.float32), shared.dictionary.astype(np.float32)
    chain = lambda lengths: infer(fitted, atoms, pixels, burn_in=lengths[0], collect=lengths[1], seed=seed)  # noqa: E731
    codes = chain(LONG).ml_sample
    coefficients, active = codes[0].size, max(1, round(float((codes != 0).sum()) / n))
    work = bare_work(DECONVOLUTION, (coefficients, active, 64), coefficients, coefficients, n, 64)
    return {
        HALF_HIDDEN: Timing(lambda: image_pass(bottom.state, hidden, bottom.spec, bottom.shape, key), n),
        ONE_STEP: Timing(lambda: one_step_features(pixels, dictionary, bottom.spec.pool, **settings), n),
        f"{DECONVOLUTION}, short": Timing(lambda: chain(SHORT), n),
        f"{DECONVOLUTION}, long": Timing(lambda: chain(LONG), n), **work,
    }


def _plain_twins(fitted: Pretrained, hidden: LayerData, images: xr.DataArray, seed: int) -> dict[str, Callable]:
    """One pass over one image by the plain conditionals."""

    def twin(number: int, data: LayerData) -> Callable:
        layer, stream = fitted.layers[number], Stream(seed, PRETRAIN, number, 0, 0)
        return lambda: draw_image(
            one_image(layer.state.as_double(), data, 0), layer.spec, layer.shape, stream, CORRECT
        )

    twins = {f"layer {n + 1}": twin(n, data) for n, data in enumerate(fitted.inputs)} | {HALF_HIDDEN: twin(0, hidden)}
    atoms = project(fitted)
    problem = make_problem(atoms.values, images.shape[2:], fitted.model.stride, *precisions_of(fitted))
    weight = infer(fitted, atoms, images[:1].astype(float), burn_in=LONG[0], collect=1).ml_sample
    weight = weight.values[0].transpose(1, 2, 0).ravel()
    gram, odds = dense_gram(problem.gram, problem.row_slab, problem.col_slab), 1 / (len(atoms) - 1)
    given = weight, np.zeros_like(weight), gram, problem.gamma_w, odds  # any correlations take the same time
    return twins | {DECONVOLUTION: lambda: plain_coefficients(*given, Stream(seed, TEST, 0, 0, 0))}


# ---- threads, numbers of images, sizes of atoms, memory

#: image-sweeps that one timing covers at least, so that few images are timed as finely as many; repeats of timings that
#: take seconds each
LEAST_WORK, FEW = 8000, 3


def thread_rows(fitted: Pretrained, p: dict, run: Run) -> dict[str, Row]:
    """Speed-up by a second thread of the image pass and of the whole sweep, and of two copies of the bound.

    In wall time: only worth reading if nothing else runs on the machine; the record keeps the load average.
    """
    data = fitted.inputs[0]
    n = 2 * len(data.images)  # a turn must outlast the start of a thread
    layer, data = on_images(fitted.layers[0], data.images[np.arange(n) % len(data.images)], p["seed"])
    jobs = {}
    for threads in (1, 2):
        key = Key(p["seed"], PRETRAIN, 0, 10**6)
        jobs[f"pass, {threads}"] = Timing(pass_job(layer, data, key), n, threads, True)
        jobs[f"sweep, {threads}"] = Timing(sweep_job(layer, data, 1, p["seed"]), n, threads, True)
        jobs[f"bound, {threads}"] = Timing(bound_in_processes(threads, layer.shape, n), n * threads, 1, True)
    seconds = time_in_turn(jobs, p["repeats"], run)
    gains = {what: ratio(seconds[f"{what}, 1"], seconds[f"{what}, 2"]) for what in ("pass", "sweep", "bound")}
    best = gains["bound"]
    per_job = {name: row(values, "ms of wall time per image") for name, values in seconds.items()}
    return {
        **{f"two threads: {name.replace(',', ' on')}": one for name, one in per_job.items()},
        "two threads: speed-up of the image pass": gains["pass"],
        f"two threads: speed-up of a sweep of {n} images": gains["sweep"],
        "two threads: speed-up of two copies of the bound": best,
        "two threads: image pass / bound": _share(gains["pass"], best),
        "two threads: sweep / bound": _share(gains["sweep"], best),
    }


def _share(gain: Row, best: Row) -> Row:
    """Share of the best speed-up."""
    return Row(gain.median / best.median, gain.minimum / best.minimum, "ratio")


def image_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, Row]:
    """Cost of a whole sweep against the number of images: first so many of the same, in turn."""
    sizes, seed, jobs = sorted(p["sizes"]), p["seed"], {}
    layer, data = on_images(fitted.layers[0], some(images, sizes[-1], seed).values.astype(np.float32), seed)
    for size in sizes:
        sweeps = max(1, min(LEAST_WORK, sizes[-1]) // size)
        jobs[size] = Timing(sweep_job(*first_images(layer, data, size), sweeps, seed), size * sweeps)
    seconds = time_in_turn(jobs, FEW, run)
    return {f"sweep of {size} images": row(seconds[size], size=size) for size in sizes} | {
        f"sweep of {size} images / of {sizes[0]}": ratio(seconds[size], seconds[sizes[0]], size) for size in sizes[1:]
    }


def atom_rows(fitted: Pretrained, p: dict, run: Run) -> dict[str, Row]:
    """Cost of an image pass against the size of the atoms, beside the bound of each size."""
    data, key, jobs, rows = fitted.inputs[0], Key(p["seed"], PRETRAIN, 0, 10**6), {}, {}
    n, planes, *image_size = data.images.shape
    names = {size: f"atoms of {size} x {size}" for size in p["atom_sizes"]}
    for size, name in names.items():
        spec = replace(fitted.layers[0].spec, atom_size=(size, size), gamma_d=Precision(fixed=float(size**2)))
        chain = ChainSpec(p["warm_up"] // 2, 1, p["seed"])
        layer = fit_layer(data, spec, layer_shape(spec, tuple(image_size), planes), chain)
        jobs[f"{name}: image pass"] = Timing(pass_job(layer, data, key), n)
        jobs |= bound(name, layer.shape, n)
    seconds = time_in_turn(jobs, p["repeats"], run)
    for size, name in names.items():
        image_pass, below = seconds[f"{name}: image pass"], bound_of(name, seconds)
        rows[f"{name}: image pass"] = row(image_pass, size=size)
        rows[f"{name}: bound"] = row(below, size=size)
        rows[f"{name}: image pass / bound"] = ratio(image_pass, below, size)
    return rows


def memory_rows(fitted: Pretrained, p: dict) -> dict[str, Row]:
    """Bytes per image: of the state, as `gdd.model.state` states, and by which a running chain's peak grows."""
    rows = {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True), 1):
        held = sum(part.nbytes for part in layer.state.local) / len(data.images)
        slope, offset = _memory_of(layer, data.images, p["seed"])
        blocks = layer.shape.atoms * prod(layer.shape.grid)
        rows |= {
            f"layer {number}: local state": single(held, "bytes per image"),
            f"layer {number}: stated, 2 + 4 bytes a block": single(6 * blocks, "bytes per image"),
            f"layer {number}: peak of a running chain": single(slope, "bytes per image"),
            f"layer {number}: peak of a running chain, whatever the images": single(offset / 1e6, "MB"),
        }
    return rows


def _memory_of(layer: Fitted, images: np.ndarray, seed: int) -> tuple[float, float]:
    """Bytes that a running chain needs beyond its input: by image, and besides. From two numbers of images."""
    few, many, peaks = 1024, 4096, []  # enough for what grows with images to be the peak
    for n in (few, few, many):  # the first loads code, and does not count
        data = LayerData(images[np.arange(n) % len(images)])
        tracemalloc.start()
        try:
            fit_layer(data, layer.spec, layer.shape, ChainSpec(1, 2, seed))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    slope = (peaks[2] - peaks[1]) / (many - few)
    return slope, peaks[1] - few * slope


# ---- refinement

#: digits and pictures that are refined, and sweeps of both stages before the timing
REFINED_DIGITS, REFINED_PICTURES, BEFORE = 250, 4, 8


def refinement_rows(images: xr.DataArray, model: ModelSpec, p: dict, run: Run) -> dict[str, Row]:
    """A sweep of refinement, and over a sweep of every layer in pretraining: at the shapes of MNIST and Caltech 101.

    Caltech's images are stand-ins of the right shape.
    """
    size, reach, stride, seed = CALTECH101.image_size, CALTECH101.projected_size, CALTECH101.stride, p["seed"]
    pictures = stand_ins(PLACED, size, reach, stride, seed, REFINED_PICTURES)[1]
    digits = images[:REFINED_DIGITS].values.astype(np.float32)
    given = {
        "MNIST shapes": (digits, model, DEEP_DIGITS["refine_noise"]),
        "Caltech shapes": (pictures, CALTECH101.with_held(GAMMA_E, GAMMA_W), GAMMA_E),
    }
    stages, jobs = ("pretraining, a sweep of every layer", "refinement, a sweep"), {}
    for name, (pixels, own, noise) in given.items():
        chain = ChainSpec(BEFORE - 1, 1, seed)
        fitted = pretrain(pixels, own, chain)
        refined = refine(pixels, own, chain, refinement_for(noise), start=fitted)
        layers = [sweep_job(layer, data, 1, seed) for layer, data in zip(fitted.layers, fitted.inputs, strict=True)]
        key = Key(seed, REFINE, 0, 10**6)
        both = (
            lambda layers=layers: [job() for job in layers],
            lambda r=refined, key=key: joint_sweep(r.last, r.data, r.model, r.refinement, key),
        )
        jobs |= {f"{name}: {what}": Timing(job, len(pixels)) for what, job in zip(stages, both, strict=True)}
    seconds = time_in_turn(jobs, FEW, run)
    ratios = {
        f"{name}: refinement / pretraining": ratio(*(seconds[f"{name}: {what}"] for what in reversed(stages)))
        for name in given
    }
    return {name: row(values) for name, values in seconds.items()} | ratios


# ---- test time

#: the paper's burn-in and collected sweeps at test time (Sec. 3), and how often a chain is timed
SWEEPS, REPEATS = (500, 200), 2
MNIST_IMAGES, CALTECH_IMAGES = 32, 2
#: stand-ins: placed atoms in an image, their typical weight, noise and precisions
PLACED, WEIGHT, NOISE, GAMMA_E, GAMMA_W = 60, 10.0, 0.03, 100.0, 0.05


def testing_rows(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[str, Row]:
    """One-layer deconvolution at the paper's chain lengths, at the shapes of MNIST and of Caltech 101.

    Caltech's images and atoms are stand-ins of the right shapes: dictionaries of all 101 classes take hours. Chains are
    run in full on few images; the time per image is theirs divided by their number. What beginning with a greedy
    pursuit saves stands beside it. What all images share, the Gram matrix of the atoms, is a row of its own.
    """
    atoms, pixels = project(fitted), images[:MNIST_IMAGES].astype(np.float32)
    job = lambda: infer(fitted, atoms, pixels, burn_in=SWEEPS[0], collect=SWEEPS[1], seed=p["seed"])  # noqa: E731
    active = float((job().ml_sample != 0).sum()) / len(pixels)
    seconds = time_in_turn({"MNIST": Timing(job, len(pixels))}, REPEATS, run)["MNIST"]
    coefficients = len(atoms) * prod(fitted.layers[-1].shape.map_size)
    name = f"MNIST shapes, {coefficients} coefficients, {sum(SWEEPS)} sweeps"
    rows = {name: row(seconds), f"{name}: active": single(active, "per image")}
    return rows | _caltech_rows(p["caltech_atoms"], p["seed"], run)


def _caltech_rows(number: int, seed: int, run: Run) -> dict[str, Row]:
    """The paper's shapes with this many atoms; the Gram matrix is made once and timed once."""
    size, stride = CALTECH101.image_size, CALTECH101.stride
    atoms, images = stand_ins(number, size, CALTECH101.projected_size, stride, seed)
    begun = time.process_time()
    problem = make_problem(atoms, size, stride, GAMMA_E, GAMMA_W)
    shared = time.process_time() - begun
    scaled = images * np.float32(GAMMA_E**0.5)
    zeros = np.zeros((len(images), number, *problem.grid), np.float32)
    job = lambda start=None: run_problem(problem, scaled, None, start, (seed, 0, 1, *SWEEPS), False)  # noqa: E731
    active = float((job()[0] != 0).sum()) / len(images)
    jobs = {"Caltech": Timing(job, len(images)), "from zeros": Timing(lambda: job(zeros), len(images))}
    seconds = time_in_turn(jobs, REPEATS - 1, run)
    name = f"Caltech shapes, {number * prod(problem.grid)} coefficients, {sum(SWEEPS)} sweeps"
    return {
        name: row(seconds["Caltech"]), f"{name}: active": single(active, "per image"),
        f"{name}: begun with zeros": row(seconds["from zeros"]),
        f"{name}: begun with zeros / with the pursuit": ratio(seconds["from zeros"], seconds["Caltech"]),
        "Caltech shapes: Gram matrix, once for all images": row(np.array([shared]), "ms"),
        "Caltech shapes: Gram matrix": single(problem.gram.nbytes / 1e6, "MB"),
    }


def stand_ins(
    number: int, size, reach, stride, seed: int, count: int = CALTECH_IMAGES
) -> tuple[np.ndarray, np.ndarray]:
    """Smooth random atoms of unit norm (atom, 1, row, col), and noisy images of some of them (image, 1, row, col)."""
    generator = np.random.default_rng(seed)
    atoms = generator.standard_normal((number, *reach), np.float32)
    for atom, width in zip(atoms, generator.uniform(1.5, 4.0, number), strict=True):
        atom[:] = gaussian_filter(atom, width)
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2), keepdims=True))
    grid = placement_grid(size, reach, stride)
    images = NOISE * generator.standard_normal((count, *size))
    for image in images:
        for atom in generator.integers(number, size=PLACED):
            top, left = (int(generator.integers(n)) * s for n, s in zip(grid, stride, strict=True))
            image[top : top + reach[0], left : left + reach[1]] += WEIGHT * generator.standard_normal() * atoms[atom]
    return atoms[:, None], images[:, None].astype(np.float32)
