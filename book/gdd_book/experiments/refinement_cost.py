"""What a sweep of the joint model costs, part by part, in processor time of one core, beside its multiply-adds.

A model is pretrained and refined for a short while, so that its chain is where chains are; then every part of a sweep
is timed alone, from the same state. MNIST shapes on digits, and the paper's three layers of Caltech 101 on real images.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from gdd.base.compiling import kernel
from gdd.data import datasets
from gdd.data.contrast import normalise_contrast
from gdd.model.spec import CALTECH101, ChainSpec, LayerShape, ModelSpec, Precision, RefinementSpec
from gdd.sampler import joint_dictionary as dictionary
from gdd.sampler.contract import Key
from gdd.sampler.joint_arrays import Arrays, as_arrays
from gdd.sampler.joint_sweep import empty_sums, image_priors
from gdd.sampler.kernels.joint import image_of, model_of, slot_of, synthesise_values, synthesise_whole
from gdd.sampler.kernels.joint_coefficients import draw_switches, draw_weights
from gdd.sampler.kernels.joint_pass import begin_image
from gdd.sampler.kernels.joint_positions import Moves, draw_bottom_positions, draw_upper_positions
from gdd.sampler.kernels.layer import fill_key
from gdd.sampler.pretrain import pretrain
from gdd.sampler.random import REFINE, WORDS, shared_generator
from gdd.sampler.refine import Refined, refine
from gdd_book.benchmarks.timing import on_threads
from gdd_book.experiments import Outcome
from gdd_book.training.training import model_for

NAME = "refinement-cost"
CHOICES = {"shapes": ("digits", "mnist", "caltech101")}
PARAMETERS = {
    "demo": {"shapes": ("digits",), "images": 64, "burn_in": 30, "collect": 10, "sweeps": 20, "repeats": 3, "seed": 0},
    "paper": {
        "shapes": ("mnist", "caltech101"), "images": 256, "burn_in": 60, "collect": 20, "sweeps": 40, "repeats": 3,
        "seed": 0,
    },
}  # fmt: skip
#: parts of the image pass; the first is what every other needs before it: the residual
PARTS = ("beginning", "top weights", "top switches", "upper positions", "bottom positions")
#: last sweeps of the chain over which its own counts are averaged
MEASURED = 10


def run(parameters: dict, progress) -> Outcome:
    """Time every part for every shape; see the module."""
    p = parameters
    tables, models, checksum = [], {}, ""
    with on_threads(1), threadpool_limits(1, user_api="blas"):
        for name in p["shapes"]:
            images, models[name], refinement = material(name, p)
            checksum = checksum or images.attrs["checksum"]
            fitted = pretrain(images, models[name], ChainSpec(p["burn_in"], p["collect"], p["seed"]))
            refined = refine(images, fitted.model, ChainSpec(p["sweeps"], 1, p["seed"]), refinement, start=fitted)
            with progress(p["repeats"], name) as bar:
                tables.append(table(refined, p, bar))
    dataset = xr.concat(tables, "shape", join="outer", fill_value=np.nan).assign_coords(shape=list(p["shapes"]))
    return Outcome(dataset, models, p["shapes"][0], checksum, p["seed"])


def material(name: str, p: dict) -> tuple[xr.DataArray, ModelSpec, RefinementSpec]:
    """Images, model and refinement of one shape; of Caltech the thirty images that a class has, or fewer if asked."""
    if name != "caltech101":
        images = datasets.load(name, "train", n=p["images"], seed=p["seed"])
        return images, model_for(100.0, 0.1), RefinementSpec()
    images = datasets.load(name, "train", classes=["Faces_easy"], per_class=30, seed=p["seed"])
    images = normalise_contrast(images.isel(image=slice(p["images"])))
    layers = []
    for spec, shape in zip(CALTECH101.layers, CALTECH101.shapes(), strict=True):
        held = Precision(fixed=float(np.prod(shape.dictionary[1:])))
        layers.append(replace(spec, gamma_d=held, gamma_e=Precision()))
    layers[0] = replace(layers[0], gamma_e=Precision(fixed=10.0), gamma_w=Precision(fixed=0.1))
    return images, replace(CALTECH101, layers=tuple(layers)), RefinementSpec(Precision(fixed=10.0))


def table(refined, p: dict, bar) -> xr.Dataset:
    """Milliseconds per image of every part, median over repeats, and multiply-adds in millions."""
    jobs, steps = parts(refined, p["seed"])
    seconds = {part: [] for part in jobs}
    for _ in range(p["repeats"]):
        for part, job in jobs.items():
            begun = time.process_time()
            job()
            seconds[part].append(time.process_time() - begun)
        bar.step()
    images = len(refined.data.images)
    milli = {part: 1e3 * float(np.median(values)) / images for part, values in seconds.items()}
    for part in PARTS[1:]:
        milli[part] = max(milli[part] - milli[PARTS[0]], 0.0)  # each was timed together with the beginning
    adds = multiply_adds(refined, steps)
    names = list(milli)
    state, switched = refined.last, mean_trace(refined, "switched_on", "switched_off")
    return xr.Dataset({
        "ms_per_image": ("part", [milli[name] for name in names]),
        "multiply_adds": ("part", [adds[name] for name in names]),
        "active": float((state.local.z >= 0).sum() / images),
        "steps": ("part", [float(steps.get(name, 0)) for name in names]),
        "scan_switches_per_second": 1e3 * switched / max(milli["top switches"], 1e-6),
    }, {"part": names})


def mean_trace(refined, *names: str) -> float:
    """Sum of some traces, which are per image, averaged over the last sweeps."""
    return sum(float(refined.traces[name].isel(chain=0)[-MEASURED:].mean()) for name in names)


def parts(refined, seed: int) -> tuple[dict[str, Callable[[], object]], dict[str, int]]:
    """Jobs that each do one part of a sweep from the same state; steps that the solver takes in those that need it."""
    state, data, model = refined.last, refined.data, refined.model
    key = Key(seed, REFINE, 0, 10**6)
    jobs: dict[str, Callable[[], object]] = {
        part: lambda part=part: run_part(part, as_arrays(state, data, model), refined, key)
        for part in PARTS
    }
    steps, shapes = {}, model.shapes()
    ready = as_arrays(state, data, model)
    run_part(PARTS[0], ready, refined, key)
    for layer in range(len(shapes) - 1, 0, -1):
        name = f"dictionary {layer + 1}"
        draw = lambda layer=layer: dictionary.draw_upper_dictionary(  # noqa: E731
            own_residuals(ready), layer, state.shared.dictionaries[layer], state.shared.gamma_d[layer],
            (seed, REFINE, layer + 1, 10**6), refined.refinement.tolerance,
        )
        jobs[name], steps[name] = draw, draw()[2]
    jobs["dictionary 1"] = lambda: dictionary.draw_bottom_dictionary(
        own_residuals(ready), state.shared.dictionaries[0], state.shared.gamma_d[0],
        shared_generator(seed, REFINE, 1, 10**6),
    )
    jobs["dictionary 1"]()
    steps["top weights"] = round(mean_trace(refined, "weight_steps"))
    return jobs, steps


def own_residuals(arrays: Arrays) -> Arrays:
    """Arrays whose residuals may be changed."""
    return arrays._replace(images=arrays.images._replace(residuals=arrays.images.residuals.copy()))


def run_part(part: str, arrays: Arrays, refined: Refined, key: Key) -> None:
    """Run the beginning of an image pass and one of `PARTS` over all images. Changes ``arrays``."""
    priors = image_priors(refined.last.shared, refined.model, refined.refinement)
    run_images_part(
        PARTS.index(part), arrays.images, arrays.shared, *arrays.sizes, priors, arrays.work, empty_sums(refined.model),
        (key.seed, key.stage, 0, key.sweep),
    )


@kernel()
def run_images_part(part, images, shared, rows, columns, priors, work, sums, key):
    """Compiled loop of `run_part`: `gdd.sampler.kernels.joint_pass.run_chunk` with the other parts left out."""
    model, slot, stream = model_of(shared, rows, columns), slot_of(work, 0), np.empty(WORDS, np.uint64)
    top, moves, squares = model.table.shape[0] - 1, Moves(sums.visited, sums.moved), model.dictionaries**2
    for n in range(len(images.pixels)):
        fill_key(stream, key, n)
        begin_image(n, images, model, priors, slot, stream)
        image = image_of(images, n, stream)
        if part == 1:
            draw_weights(image, priors.gamma_w, model, slot, sums.tally)
        if part == 2:
            draw_switches(image, priors.log_odds, priors.gamma_w, model, slot, sums.tally)
        synthesise_values(top, image, model, slot)
        for layer in range(top - 1, 0, -1):
            if part == 3:
                draw_upper_positions(layer, image, priors.empty, model, slot, moves)
            synthesise_whole(layer, image.z, model, slot)
        if top > 0 and part == 4:
            draw_bottom_positions(image, priors.empty, model, squares, slot, moves)
        images.residuals[n] = slot.back[: image.pixels.size]


def multiply_adds(refined, steps: dict[str, int]) -> dict[str, float]:
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
    count = {PARTS[0]: ways[top] + active * atom[top]}
    whole = ways[top] + active * atom[top]
    count["top weights"] = 2 * (steps["top weights"] + 1) * whole
    proposed, made = (mean_trace(refined, f"{did}_on", f"{did}_off") for did in ("proposed", "switched"))
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
