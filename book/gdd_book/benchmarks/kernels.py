"""Every compiled kernel beside its bound and beside its plain twin, in processor time of one core.

The kernels of the joint model have an experiment of their own, `gdd_book.experiments.refinement_cost`.
*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from gdd.inference.deconvolution import infer, make_problem
from gdd.inference.features import one_step_features
from gdd.model.state import LayerData
from gdd.projection import project_model
from gdd.sampler import weighted
from gdd.sampler.chain import Fitted
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.random import PRETRAIN, TEST, Stream
from gdd.sampler.sweep import Key, draw_shared_part, image_pass
from gdd.testing.deconvolution_plain import sweep_plain
from gdd.testing.plain import CORRECT, draw_image, one_image
from gdd_book.benchmarks.rows import Row, ratio, row, single
from gdd_book.benchmarks.timing import Timing, bare_work, bound, seconds_of, time_in_turn

#: sweeps (burn-in, collected) of a short and a long test-time chain; their difference is free of preparations
SHORT, LONG = (30, 1), (60, 10)
HALF_HIDDEN, ONE_STEP, DECONVOLUTION = "layer 1, half hidden", "one-step features", "deconvolution"


def kernel_rows(fitted: Pretrained, images: xr.DataArray, p: dict, progress) -> dict[str, Row]:
    """Time everything in turn, form the ratios."""
    hidden = half_hidden(fitted.inputs[0], p["seed"])
    jobs = layer_jobs(fitted, p) | other_jobs(fitted, hidden, images, p)
    seconds = time_in_turn(jobs, p["repeats"], progress)
    rows = {}
    for number, data in enumerate(fitted.inputs, 1):
        rows |= pass_rows(f"layer {number}", seconds, len(data.images))
    rows |= other_rows(seconds)
    for name, job in plain_twins(fitted, hidden, images, p["seed"]).items():
        taken = np.array([seconds_of(Timing(job))])
        rows[f"{name}: plain twin, once"] = row(taken)
        rows[f"{name}: plain twin / compiled"] = ratio(taken, compiled_seconds(name, seconds))
    for number, layer in enumerate(fitted.layers, 1):
        active = (layer.state.local.z >= 0).sum() / len(layer.state.local.z)
        rows[f"layer {number}: active blocks"] = single(active, "per image")
    return rows


def layer_jobs(fitted: Pretrained, p: dict) -> dict[str, Timing]:
    """Image pass, shared draws and bound of every layer."""
    jobs = {}
    for number, (layer, data) in enumerate(zip(fitted.layers, fitted.inputs, strict=True)):
        name, n, key = f"layer {number + 1}", len(data.images), Key(p["seed"], PRETRAIN, number, p["warm_up"])
        after = image_pass(layer.state, data, layer.spec, layer.shape, key)
        jobs[f"{name}: image pass"] = Timing(pass_job(layer, data, key), n)
        jobs[f"{name}: shared draws"] = Timing(shared_job(layer, data, key, after))  # per sweep, not per image
        jobs |= {f"{name}: bound, {part}": timing for part, timing in bound(layer.shape, n).items()}
    return jobs


def other_jobs(fitted: Pretrained, hidden: LayerData, images: xr.DataArray, p: dict) -> dict[str, Timing]:
    """Missing pixels, one-step features, test-time deconvolution."""
    bottom, n, seed = fitted.layers[0], len(images), p["seed"]
    shared, key = bottom.state.shared, Key(seed, PRETRAIN, 0, p["warm_up"])
    settings = {"gamma_e": float(bottom.state.local.gamma_e.mean()), "gamma_w": float(shared.gamma_w.mean())}
    seen = weighted.weigh_pixels(hidden, bottom.spec)
    atoms, pixels = project_model(fitted), images.astype(np.float32)
    dictionary = shared.dictionary.astype(np.float32)
    chain = lambda lengths: infer(fitted, atoms, pixels, burn_in=lengths[0], collect=lengths[1], seed=seed)  # noqa: E731
    codes = chain(LONG).ml_sample
    coefficients, active = codes[0].size, max(1, round(float((codes != 0).sum()) / n))
    work = bare_work(coefficients, active, 64, coefficients, coefficients, n)
    return {
        HALF_HIDDEN: Timing(lambda: weighted.image_pass(bottom.state, hidden, seen, bottom.spec, bottom.shape, key), n),
        ONE_STEP: Timing(lambda: one_step_features(pixels, dictionary, bottom.spec.pool, **settings), n),
        f"{DECONVOLUTION}, short": Timing(lambda: chain(SHORT), n),
        f"{DECONVOLUTION}, long": Timing(lambda: chain(LONG), n),
        **{f"{DECONVOLUTION}: bound, {part}": timing for part, timing in work.items()},
    }


def pass_job(layer: Fitted, data: LayerData, key: Key) -> Callable[[], object]:
    """One image pass."""
    return lambda: image_pass(layer.state, data, layer.spec, layer.shape, key)


def shared_job(layer: Fitted, data: LayerData, key: Key, after: tuple) -> Callable[[], object]:
    """Draw all that images share, from the sums of a pass."""
    local, sums = after
    return lambda: draw_shared_part(local, sums, layer.state.shared, data, layer.spec, layer.shape, key, False)


def half_hidden(data: LayerData, seed: int) -> LayerData:
    """The same images, each pixel hidden with probability one half."""
    return data._replace(mask=np.random.default_rng(seed).random(data.images.shape) < 0.5)


def plain_twins(fitted: Pretrained, hidden: LayerData, images: xr.DataArray, seed: int) -> dict[str, Callable]:
    """One pass over one image by the plain conditionals."""

    def layer_twin(number, data):
        layer = fitted.layers[number]
        return lambda: draw_image(
            one_image(layer.state.as_double(), data, 0), layer.spec, layer.shape, Stream(seed, PRETRAIN, number, 0, 0),
            CORRECT,
        )  # fmt: skip

    twins = {f"layer {n + 1}": layer_twin(n, data) for n, data in enumerate(fitted.inputs)}
    twins[HALF_HIDDEN] = layer_twin(0, hidden)
    bottom, top = fitted.layers[0].state, fitted.layers[-1].state
    gamma_e, gamma_w = float(bottom.local.gamma_e.mean()), float(top.shared.gamma_w.mean())
    atoms = project_model(fitted).values
    problem = make_problem(atoms, images.shape[2:], fitted.model.stride, gamma_e, gamma_w)
    weight = infer(fitted, project_model(fitted), images[:1].astype(float), burn_in=LONG[0], collect=1).ml_sample
    weight = weight.values[0].transpose(1, 2, 0).ravel()
    correlation = np.zeros_like(weight)  # any will do: a plain sweep takes the same time
    return twins | {DECONVOLUTION: lambda: sweep_plain(weight, correlation, problem, Stream(seed, TEST, 0, 0, 0))}


def compiled_seconds(name: str, seconds: dict[str, np.ndarray]) -> np.ndarray:
    """Time of what a plain twin is the twin of."""
    if name == DECONVOLUTION:
        return (seconds[f"{name}, long"] - seconds[f"{name}, short"]) / (sum(LONG) - sum(SHORT))
    return seconds[f"{name}: image pass"] if f"{name}: image pass" in seconds else seconds[name]


def pass_rows(name: str, seconds: dict[str, np.ndarray], images: int) -> dict[str, Row]:
    """One layer's pass and sweep beside its bound."""
    image_pass, draws = seconds[f"{name}: image pass"], seconds[f"{name}: shared draws"]
    return {
        f"{name}: image pass": row(image_pass),
        f"{name}: shared draws, per sweep": row(draws, "ms"),
        f"{name}: whole sweep of {images} images": row(image_pass + draws / images),
        **bound_rows(name, seconds),
        f"{name}: image pass / bound": ratio(image_pass, bound_of(name, seconds)),
        f"{name}: whole sweep / bound": ratio(image_pass + draws / images, bound_of(name, seconds)),
    }


def other_rows(seconds: dict[str, np.ndarray]) -> dict[str, Row]:
    """The other kernels; the bound of layer 1 serves those that correlate all of its atoms with all of an image."""
    below = bound_of("layer 1", seconds)
    random_free = below - seconds["layer 1: bound, generator"]
    sweep = compiled_seconds(DECONVOLUTION, seconds)
    return {
        f"{HALF_HIDDEN}: image pass": row(seconds[HALF_HIDDEN]),
        f"{HALF_HIDDEN}: image pass / bound": ratio(seconds[HALF_HIDDEN], below),
        f"{ONE_STEP}: one image": row(seconds[ONE_STEP]),
        f"{ONE_STEP}: one image / bound": ratio(seconds[ONE_STEP], random_free),
        f"{DECONVOLUTION}: one sweep": row(sweep),
        **bound_rows(DECONVOLUTION, seconds),
        f"{DECONVOLUTION}: one sweep / bound": ratio(sweep, bound_of(DECONVOLUTION, seconds)),
    }


def bound_rows(name: str, seconds: dict[str, np.ndarray]) -> dict[str, Row]:
    """Parts of a bound, and their sum."""
    parts = {part: row(values) for part, values in seconds.items() if part.startswith(f"{name}: bound,")}
    return parts | {f"{name}: bound": row(bound_of(name, seconds))}


def bound_of(name: str, seconds: dict[str, np.ndarray]) -> np.ndarray:
    """Sum of a bound's parts, turn by turn."""
    return np.sum([values for part, values in seconds.items() if part.startswith(f"{name}: bound,")], axis=0)
