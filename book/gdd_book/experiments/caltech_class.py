"""One class of Caltech 101, from its images to refined atoms: what it costs, and what every layer has learned.

The record holds the CPU time of every part over all stretches of the run, all traces, and the dictionary of every layer
carried to the image plane, before and after refinement.
"""

from __future__ import annotations

import time

import numpy as np
import xarray as xr

from gdd.base.axes import DRAW
from gdd.projection import project_layers, projection_error
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined
from gdd_book.experiments import Outcome
from gdd_book.training.caltech import DATA, HEALTHY, MODELS, images_of, trained_models

NAME = "caltech-class"
_COMMON = {
    "data": "caltech101", "classes": ("revolver",), "per_class": 30, "seed": 0, "model": "three layers", "voters": 10,
    **HEALTHY,
}  # fmt: skip
PARAMETERS = {
    "demo": {"burn_in": 15, "collect": 5, "refine_burn_in": 6, "refine_collect": 2, **_COMMON},
    "paper": {"burn_in": 1500, "collect": 500, "refine_burn_in": 1500, "refine_collect": 500, **_COMMON},
}
CHOICES = {"data": DATA, "model": tuple(MODELS)}
STAGES = ("pretrained", "refined")
#: traces kept, one number a sweep
PRETRAINING = ("log_likelihood", "log_joint", "residual", "active", "gamma_e", "gamma_w")
REFINEMENT = ("log_likelihood", "log_joint", "residual", "active", "gamma_w")
EXAMPLES = 6


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train, project, add up; see the module. ``voters`` training images decide where refined atoms' pixels go.

    ``resumable``: keep checkpoints, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    images = images_of(p)
    fitted, refined = trained_models(p, progress, resumable, images)
    projected, seconds = [], {}
    for stage, one in zip(STAGES, (fitted, refined), strict=True):
        begun = time.process_time()
        projected.append(project_layers(one, min(p["voters"], len(images))))
        seconds[f"projection, {stage}"] = time.process_time() - begun
    dataset = xr.merge([cost(fitted, refined, seconds), traces(fitted, refined), dictionaries(projected)])
    dataset["images"] = ("example", "row", "col"), in_percents(images.values[:EXAMPLES, 0])
    dataset["uses"] = ("stage", "atom_top"), [
        (local.z >= 0).sum(axis=(0, 2, 3)) for local in (fitted.layers[-1].state.local, refined.state.local)
    ]
    dataset["projection_error"] = "image", projection_error(refined.state, refined.model, projected[1][-1])
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], images.attrs["checksum"], p["seed"])


def cost(fitted: Pretrained, refined: Refined, more: dict[str, float]) -> xr.Dataset:
    """CPU seconds of every part over all its stretches, and its sweeps: (part,). ``more``: of parts without sweeps."""
    chains = {f"layer {number}": layer.traces for number, layer in enumerate(fitted.layers, 1)}
    chains["refinement"] = refined.traces
    found = [(one.attrs["cpu_seconds"], one.attrs["seconds"], one.sizes[DRAW]) for one in chains.values()]
    found += [(seconds, np.nan, 0) for seconds in more.values()]
    cpu, wall, sweeps = (list(column) for column in zip(*found, strict=True))
    parts = {"part": [*chains, *more]}
    return xr.Dataset({"cpu_seconds": ("part", cpu), "wall_seconds": ("part", wall), "sweeps": ("part", sweeps)}, parts)


def traces(fitted: Pretrained, refined: Refined) -> xr.Dataset:
    """Every sweep: of pretraining (layer, draw) in names that begin with pre_, of refinement (refine_draw,)."""
    out = {
        f"pre_{name}": (("layer", DRAW), np.stack([layer.traces[name].values[0] for layer in fitted.layers]))
        for name in PRETRAINING
    }
    out |= {name: ("refine_draw", refined.traces[name].values[0]) for name in REFINEMENT}
    for name in ("visited", "moved"):
        out[name] = (("refine_draw", "pooled_layer", "strength"), refined.traces[name].values[0])
    return xr.Dataset(out, {"strength": refined.traces.strength.values})


def dictionaries(projected: list[tuple[xr.DataArray, ...]]) -> xr.Dataset:
    """Atoms of every layer in whole percents of each one's largest magnitude, and the shares of the winning positions.

    ``atoms_1`` (stage, atom_1, row_1, col_1) and so on; the axis of the top layer's atoms is ``atom_top``.
    """
    out = {}
    for number, pair in enumerate(zip(*projected, strict=True), 1):
        atom = "atom_top" if number == len(projected[0]) else f"atom_{number}"
        out[f"atoms_{number}"] = (
            ("stage", atom, f"row_{number}", f"col_{number}"), np.stack([in_percents(one.values[:, 0]) for one in pair])
        )  # fmt: skip
    shares = [one[-1].attrs["winning_share"] for one in projected]
    return xr.Dataset(out | {"winning_share": (("stage", "pooled_layer"), shares)}, {"stage": list(STAGES)})


def in_percents(pictures: np.ndarray) -> np.ndarray:
    """Each picture (..., row, col) in whole percents of its largest magnitude: for looking at."""
    largest = np.abs(pictures).max(axis=(-2, -1), keepdims=True).clip(1e-12)
    return np.rint(100 * pictures / largest).astype(np.int8)
