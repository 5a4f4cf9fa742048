"""The cost of the sampler: what `gdd bench` measures, and the parts of a sweep of the joint model.

Times are multiples of what the arithmetic alone would take on the same machine in the same minute, see
`gdd_book.benchmarks.harness`. Everything is repeated in turn, so that a disturbance hits all alike; the median and the
minimum over the repeats are kept. One-core times are processor time, which other programs on the machine disturb
little; two-core times cannot be anything but wall time, and are worth reading only if the load average in the record is
low.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import xarray as xr
from sklearn.metrics.pairwise import paired_cosine_distances

from gdd.base.axes import DRAW
from gdd.base.compiling import kernel
from gdd.inference.contrast import normalise_contrast
from gdd.model.spec import CALTECH101, ChainSpec, LayerShape, ModelSpec, Precision, RefinementSpec
from gdd.reference.random import REFINE, Key, shared_generator
from gdd.sampler import joint_dictionary as dictionary
from gdd.sampler.joint_arrays import Arrays, as_arrays
from gdd.sampler.joint_sweep import empty_sums, image_priors, joint_sweep
from gdd.sampler.kernels.joint import image_of, synthesise_values, synthesise_whole
from gdd.sampler.kernels.joint_coefficients import draw_switches, draw_weights
from gdd.sampler.kernels.joint_pass import begin_image
from gdd.sampler.kernels.joint_positions import draw_bottom_positions, draw_upper_positions
from gdd.sampler.kernels.random import WORDS, fill_key
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import Refined, refine, start_from
from gdd_book.benchmarks import cost, peers
from gdd_book.benchmarks.harness import as_dataset, on_threads, single
from gdd_book.data import datasets
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, chain_of, model_for, pretrained_model, refinement_for, setup_of

# ---- gdd bench

PARTS = ("kernels", "refinement", "threads", "images", "atoms", "memory", "testing", "peers")


@experiment("bench", {
    "parts": PARTS, "data": "mnist", "images": 1000, "warm_up": 60, "repeats": 9, "seed": 0,
    "sizes": (1000, 4000, 16000, 60000), "atom_sizes": (4, 8, 12, 16), "caltech_atoms": 1616, "peer_images": 200,
}, choices={"parts": PARTS})
def bench(p: dict, run: Run) -> Outcome:
    """Warm chains up, time every part that is asked for, form the ratios.

    Where MNIST is not on this machine, the embedded digits stand in, repeated; the record's ``data_name`` says which.
    """
    everything, model = cost.all_digits(p["data"]), model_for(**HELD_DIGITS)
    images = cost.some(everything, p["images"], p["seed"])
    before = os.getloadavg()[0]
    with on_threads(1):
        fitted = pretrain(images, model, ChainSpec(p["warm_up"], 1, p["seed"]))
        parts = {
            "kernels": lambda: cost.kernel_rows(fitted, images, p, run),
            "refinement": lambda: cost.refinement_rows(images, model, p, run),
            "threads": lambda: cost.thread_rows(fitted, p, run),
            "images": lambda: cost.image_rows(fitted, everything, p, run),
            "atoms": lambda: cost.atom_rows(fitted, p, run),
            "memory": lambda: cost.memory_rows(fitted, p),
            "testing": lambda: cost.testing_rows(fitted, images, p, run),
        }
        found = {part: rows() for part, rows in parts.items() if part in p["parts"]}
        found["machine"] = {
            "load average before": single(before, "programs"),
            "load average after": single(os.getloadavg()[0], "programs"),
        }
        table = as_dataset(found)
        if "peers" in p["parts"]:
            digits = cost.some(everything, p["peer_images"], p["seed"])
            table = table.merge(peers.contest(digits, model, p["seed"], run))
    table.attrs |= {"cores": os.cpu_count(), "distinct_images": everything.sizes["image"]}
    return Outcome(table, model, everything.attrs["name"], everything.attrs["checksum"], p["seed"])


# ---- a sweep of the joint model, part by part

#: parts of the image pass; the first is what every other needs before it: the residual
SWEEP_PARTS = ("beginning", "top weights", "top switches", "upper positions", "bottom positions")
#: last sweeps of the chain over which its own counts are averaged
MEASURED = 10


@experiment(
    "refinement-cost", choices={"shapes": ("digits", "mnist", "caltech101")}, repeats=3, seed=0,
    demo={"shapes": ("digits",), "images": 64, "burn_in": 30, "collect": 10, "sweeps": 20},
    paper={"shapes": ("mnist", "caltech101"), "images": 256, "burn_in": 60, "collect": 20, "sweeps": 40},
)
def refinement_cost(p: dict, run: Run) -> Outcome:
    """What a sweep of the joint model costs, part by part, in processor time of one core, beside its multiply-adds.

    A model is pretrained and refined for a short while, so that its chain is where chains are; then every part of a
    sweep is timed alone, from the same state. MNIST shapes on digits, and the paper's three layers of Caltech 101 on
    real images.
    """
    tables, models, checksum = [], {}, ""
    with on_threads(1):
        for name in p["shapes"]:
            images, models[name], refinement = _material(name, p)
            checksum = checksum or images.attrs["checksum"]
            fitted = pretrain(images, models[name], chain_of(p))
            refined = refine(images, fitted.model, ChainSpec(p["sweeps"], 1, p["seed"]), refinement, start=fitted)
            with run.bar(p["repeats"], name) as bar:
                tables.append(_table(refined, p, bar))
    dataset = xr.concat(tables, "shape", join="outer", fill_value=np.nan).assign_coords(shape=list(p["shapes"]))
    return Outcome(dataset, models, p["shapes"][0], checksum, p["seed"])


def _material(name: str, p: dict) -> tuple[xr.DataArray, ModelSpec, RefinementSpec]:
    """Images, model and refinement of one shape; of Caltech the thirty images that a class has, or fewer if asked."""
    if name != "caltech101":
        images = datasets.load(name, "train", n=p["images"], seed=p["seed"])
        return images, model_for(**HELD_DIGITS), RefinementSpec()
    images = datasets.load(name, "train", classes=["Faces_easy"], per_class=30, seed=p["seed"])
    images = normalise_contrast(images.isel(image=slice(p["images"])))
    return images, CALTECH101.as_printed().with_held(10.0), RefinementSpec(Precision(fixed=10.0))


def _table(refined: Refined, p: dict, bar) -> xr.Dataset:
    """Milliseconds per image of every part, median over repeats, and multiply-adds in millions."""
    jobs, steps = _parts(refined, p["seed"])
    seconds = {part: [] for part in jobs}
    for _ in range(p["repeats"]):
        for part, job in jobs.items():
            begun = time.process_time()
            job()
            seconds[part].append(time.process_time() - begun)
        bar.step()
    images, first = len(refined.data.images), SWEEP_PARTS[0]
    milli = {part: 1e3 * float(np.median(values)) / images for part, values in seconds.items()}
    for part in SWEEP_PARTS[1:]:
        milli[part] = max(milli[part] - milli[first], 0.0)  # each was timed together with the beginning
    adds, names = multiply_adds(refined, steps), list(milli)
    return xr.Dataset({
        "ms_per_image": ("part", [milli[name] for name in names]),
        "multiply_adds": ("part", [adds[name] for name in names]),
        "active": float((refined.last.local.z >= 0).sum() / images),
    }, {"part": names})


def _mean_trace(refined: Refined, *names: str) -> float:
    """Sum of some traces, which are per image, averaged over the last sweeps."""
    return sum(float(refined.traces[name].isel(chain=0)[-MEASURED:].mean()) for name in names)


@experiment(
    "refinement-pace", seed=0, every=(1, 2, 4, 8), refine_noise=44.0, learned_planes=True, **HELD_DIGITS,
    demo={"data": "digits", "n_train": 64, "burn_in": 30, "collect": 10, "sweeps": 20},
    paper={"data": "mnist", "n_train": 500, "burn_in": 300, "collect": 100, "sweeps": 120},
)
def refinement_pace(p: dict, run: Run) -> Outcome:
    """What refinement gets for a second of one core, if each dictionary is drawn once in so many sweeps.

    Chains from one pretrained model, one for each of ``every``, go a sweep each in turn. The record has what a sweep
    cost, (every, draw) in seconds of processor time, and where the chain then was: log joint, residual, active
    coefficients, strong positions that moved, and ``turned``, one less the mean cosine of the top layer's atoms with
    those that the chain began with.
    """
    setup = setup_of(p, run)
    fitted = pretrained_model(p, run, setup)
    chain = ChainSpec(seed=p["seed"])
    specs = [refinement_for(p["refine_noise"], dictionary_every=every) for every in p["every"]]
    states = [start_from(fitted, spec, chain) for spec in specs]
    flat = lambda atoms: atoms.reshape(len(atoms), -1)  # noqa: E731
    atoms, data, rows = flat(fitted.layers[-1].state.shared.dictionary), fitted.inputs[0], [[] for _ in specs]
    with on_threads(1), run.bar(p["sweeps"], "refinement-pace") as bar:
        joint_sweep(states[0], data, fitted.model, specs[0], Key(p["seed"], REFINE, 0, 0))  # compiles
        for sweep in range(p["sweeps"]):
            for number, spec in enumerate(specs):
                begun = time.process_time()
                states[number], info = joint_sweep(
                    states[number], data, fitted.model, spec, Key(p["seed"], REFINE, 0, sweep)
                )
                seconds = time.process_time() - begun
                turned = float(paired_cosine_distances(flat(states[number].shared.dictionaries[-1]), atoms).mean())
                values = info.log_joint, info.residual, info.active.sum() / len(data.images), info.moved[0, -1], turned
                rows[number].append((seconds, *values))
            bar.step()
    names = ("cpu_seconds", "log_joint", "residual", "active", "strong_moved", "turned")
    values = np.moveaxis(np.array(rows, float), -1, 0)
    table = {name: (("every", DRAW), one) for name, one in zip(names, values, strict=True)}
    return outcome(xr.Dataset(table, {"every": list(p["every"])}), p, setup.images, model=fitted.model)


def _parts(refined: Refined, seed: int) -> tuple[dict[str, Callable[[], object]], dict[str, int]]:
    """Jobs that each do one part of a sweep from the same state; steps that the solver takes in those that need it.

    Making arrays of a state is part of every sweep and is counted in the first part.
    """
    (state, data, model), key = (refined.last, refined.data, refined.model), Key(seed, REFINE, 0, 10**6)

    def part_job(part: str) -> Callable[[], object]:
        return lambda: run_part(part, as_arrays(state, data, model), refined, key)

    jobs, steps = {part: part_job(part) for part in SWEEP_PARTS}, {}
    ready, shared = as_arrays(state, data, model), state.shared
    run_part(SWEEP_PARTS[0], ready, refined, key)

    def upper(layer: int) -> Callable[[], tuple]:
        return lambda: dictionary.draw_upper_dictionary(
            _own_residuals(ready), layer, shared.dictionaries[layer], shared.gamma_d[layer],
            (seed, REFINE, layer + 1, 10**6),
        )

    for layer in range(len(model.layers) - 1, 0, -1):
        name = f"dictionary {layer + 1}"
        jobs[name] = upper(layer)
        steps[name] = jobs[name]()[2]
    jobs["dictionary 1"] = lambda: dictionary.draw_bottom_dictionary(
        _own_residuals(ready), shared.dictionaries[0], shared.gamma_d[0], shared_generator(seed, REFINE, 1, 10**6)
    )
    jobs["dictionary 1"]()
    steps["top weights"] = round(_mean_trace(refined, "weight_steps"))
    return jobs, steps


def _own_residuals(arrays: Arrays) -> Arrays:
    """Arrays whose residuals may be changed."""
    return arrays._replace(images=arrays.images._replace(residuals=arrays.images.residuals.copy()))


def run_part(part: str, arrays: Arrays, refined: Refined, key: Key) -> None:
    """Run the beginning of an image pass and one of `SWEEP_PARTS` over all images. Changes ``arrays``."""
    priors = image_priors(refined.last.shared, refined.model, refined.refinement)
    run_images_part(
        SWEEP_PARTS.index(part), arrays.images, arrays.shared, priors, arrays.work[0], empty_sums(refined.model),
        (key.seed, key.stage, 0, key.sweep),
    )


@kernel()
def run_images_part(part, images, shared, priors, work, sums, key):
    """Compiled loop of `run_part`: `gdd.sampler.kernels.joint_pass.run_images` with the other parts left out."""
    top, stream, squares = shared.table.shape[0] - 1, np.empty(WORDS, np.uint64), shared.dictionaries**2
    for n in range(len(images.pixels)):
        fill_key(stream, key, n)
        begin_image(n, images, shared, priors, work, stream)
        image = image_of(images, n, stream)
        if part == 1:
            draw_weights(image, priors.gamma_w, shared, work, sums.tally)
        if part == 2:
            draw_switches(image, priors.log_odds, priors.gamma_w, shared, work, sums.tally)
        synthesise_values(top, image, shared, work)
        for layer in range(top - 1, 0, -1):
            if part == 3:
                draw_upper_positions(layer, image, priors.empty, shared, work, sums)
            synthesise_whole(layer, image.z, shared, work)
        if top > 0 and part == 4:
            draw_bottom_positions(image, priors.empty, shared, squares, work, sums)
        images.residuals[n] = work.back[: image.pixels.size]


def multiply_adds(refined: Refined, steps: dict[str, int]) -> dict[str, float]:
    """Millions of multiply-adds that each part needs for an image, counted from the shapes and the active coefficients.

    A way down or up the layers is one multiply-add for every pixel of every atom that a block places: all blocks, or
    those in the window that one upper atom reaches. The top weights need a way up at first, a way down at last, and
    both for every step of their solver. A switch needs an inner product; one that is proposed a way down within its
    window, one that is made a way up. An upper position that moves needs both within its own.
    """
    shapes, images = refined.model.shapes(), len(refined.data.images)
    atom = [s.planes * s.atom_size[0] * s.atom_size[1] for s in shapes]
    blocks = [s.atoms * s.grid[0] * s.grid[1] for s in shapes]
    active = float((refined.last.local.z >= 0).sum() / images)
    top = len(shapes) - 1
    ways = [sum(blocks[m] * atom[m] for m in range(level)) for level in range(len(shapes) + 1)]
    whole = ways[top] + active * atom[top]
    count = {SWEEP_PARTS[0]: whole, "top weights": 2 * (steps["top weights"] + 1) * whole}
    proposed, made = (_mean_trace(refined, f"{did}_on", f"{did}_off") for did in ("proposed", "switched"))
    count["top switches"] = blocks[top] * atom[top] + (made + 1) * ways[top]
    count["top switches"] += proposed * way_in_window(shapes, atom, top)
    count["upper positions"] = 0.0
    for layer in range(1, top):
        tried = blocks[layer] * shapes[layer].block[0] * shapes[layer].block[1] * atom[layer]
        moved = float(refined.traces.moved.isel(chain=0, draw=-1, pooled_layer=layer).sum())
        places = shapes[layer].grid[0] * shapes[layer].grid[1]
        count["upper positions"] += tried + (2 * moved + places) * way_in_window(shapes, atom, layer)
    positions = shapes[0].block[0] * shapes[0].block[1]
    count["bottom positions"] = blocks[0] * atom[0] * (positions + 2) if top else 0.0
    for layer in range(1, top + 1):
        own = (active if layer == top else blocks[layer]) * atom[layer]
        name = f"dictionary {layer + 1}"
        count[name] = (steps[name] + 1) * 2 * (own + ways[layer])
    count["dictionary 1"] = 3 * blocks[0] * atom[0]
    return {name: value / 1e6 for name, value in count.items()}


def way_in_window(shapes: tuple[LayerShape, ...], atom: list[int], layer: int) -> int:
    """Multiply-adds from one atom of a layer down to the image, or up: every block in its window places one atom."""
    (rows, cols), total = shapes[layer].atom_size, 0
    for shape, pixels in reversed(list(zip(shapes[:layer], atom[:layer], strict=True))):
        total += rows * cols * shape.atoms * pixels
        rows, cols = (n * b + a - 1 for n, b, a in zip((rows, cols), shape.block, shape.atom_size, strict=True))
    return total
