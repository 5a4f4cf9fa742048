"""Are the numbers of atoms inferred? Chains that start with many atoms and drop those seldom used, from several starts.

If pruning finds how many atoms the digits need, chains that start with more end with as many, and so do chains that
call other atoms seldom used. Both layers are tried, the upper one always on one and the same lower layer, not pruned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.axes import DRAW
from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, ModelSpec, Pruning
from gdd.sampler.chain import Fitted
from gdd.sampler.pretrain import pretrain
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.training import digits, model_for

NAME = "mnist-atoms"
_COMMON = {"seeds": (0,), "noise_precision": 100.0, "weight_precision": 0.1}
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 60, "starts_1": (16, 32), "starts_2": (20, 40), "shares": (0.01, 0.2),
        "burn_in": 20, "collect": 5, "prune_from": 8, "prune_every": 4, **_COMMON,
    },
    "paper": {
        "data": "mnist", "n_train": 300, "starts_1": (32, 64, 128), "starts_2": (160, 320),
        "shares": (0.01, 0.05, 0.2), "burn_in": 200, "collect": 20, "prune_from": 60, "prune_every": 20, **_COMMON,
    },
}  # fmt: skip


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """A chain for every layer, start, share and seed; see the module.

    ``starts_1``, ``starts_2`` are numbers of atoms of the two layers; atoms used less than one of ``shares`` times as
    often as the mean atom are dropped every ``prune_every`` sweeps from sweep ``prune_from`` on, in burn-in only.
    ``resumable``: keep checkpoints, and go on from those of an earlier call.

    The record holds for each of the two layers ``atoms_1`` and ``residual_1`` (seed, start_1, share, draw), before the
    pruning that is due in a sweep, and ``uses_1`` (seed, start_1, share, rank_1); see `describe`.
    """
    p = parameters
    if p["prune_from"] >= p["burn_in"]:
        raise GddError(f"prune_from: {p['prune_from']} given; below burn_in, {p['burn_in']}, is needed")
    model = model_for(p["noise_precision"], p["weight_precision"])
    starts = (p["starts_1"], p["starts_2"])
    models = [[single(model, layer, atoms) for atoms in starts[layer]] for layer in (0, 1)]
    folder = checkpoint_folder(NAME, p) if resumable else None
    chains = len(p["seeds"]) * (1 + sum(map(len, starts)) * len(p["shares"]))
    found = ([], [])
    with progress(chains * (p["burn_in"] + p["collect"]), NAME) as bar:
        for seed in p["seeds"]:
            images, plain = digits(p | {"seed": seed}), ChainSpec(p["burn_in"], p["collect"], seed)
            lower = replace(model, layers=model.layers[:1])
            below = pretrain(images, lower, plain, None, chain_folder(folder, seed), bar).layers[0]
            inputs = (images.values, below.state.local.w)
            for layer, alone, share in every_setting(models, p["shares"]):
                chain = replace(plain, pruning=Pruning(p["prune_from"], p["prune_every"], share))
                name = chain_folder(folder, seed, layer, alone.layers[0].atoms, share)
                fitted = pretrain(inputs[layer], alone, chain, None, name, bar).layers[0]
                found[layer].append(describe(fitted, max(starts[layer])))
    parts = [
        stacked(found[layer], {"seed": p["seeds"], f"start_{name}": starts[layer], "share": p["shares"]}, name)
        for layer, name in enumerate(("1", "2"))
    ]
    checksum = digits(p | {"seed": p["seeds"][0]}).attrs["checksum"]
    return Outcome(xr.merge(parts), {"model": model}, p["data"], checksum, p["seeds"][0])


def every_setting(models: list[list[ModelSpec]], shares: tuple[float, ...]) -> Iterator[tuple[int, ModelSpec, float]]:
    """Layer (from 0), model of that layer alone, and share, in the order of a record."""
    for layer, of_layer in enumerate(models):
        for alone, share in product(of_layer, shares):
            yield layer, alone, share


def chain_folder(folder: Path | None, *names: float) -> Path | None:
    """Folder of the checkpoints of the chain with these settings; None without a folder."""
    return folder and folder / "-".join(map(str, names))


def single(model: ModelSpec, layer: int, atoms: int) -> ModelSpec:
    """One layer of a model by itself, with another number of atoms."""
    shape = model.shapes()[layer]
    return ModelSpec((replace(model.layers[layer], atoms=atoms),), shape.input_size, shape.planes)


def describe(fitted: Fitted, widest: int) -> list[np.ndarray]:
    """How many atoms a chain has and what is left of a value in every sweep, both (draw,), and how its atoms are used.

    Uses (rank,), of length ``widest``: the share of blocks in which an atom of the kept sample is active, the most used
    atom first, NaN behind the last.
    """
    traces = fitted.traces.isel(chain=0)
    z = fitted.state.local.z
    uses = np.full(widest, np.nan)
    uses[: z.shape[1]] = np.sort((z >= 0).sum(axis=(0, 2, 3)))[::-1] / (len(z) * prod(z.shape[2:]))
    return [traces["atoms"].values, traces["residual"].values, uses]


def stacked(found: list[list[np.ndarray]], axes: dict, name: str) -> xr.Dataset:
    """Results of all chains of one layer in the order of ``axes``; ``name`` of the layer ends the variables' names."""
    shape = [len(values) for values in axes.values()]
    dims = ((*axes, DRAW), (*axes, DRAW), (*axes, f"rank_{name}"))
    names = ("atoms", "residual", "uses")
    columns = zip(names, dims, zip(*found, strict=True), strict=True)
    return xr.Dataset(
        {f"{one}_{name}": (dim, np.reshape(values, (*shape, -1))) for one, dim, values in columns},
        {axis: list(values) for axis, values in axes.items()},
    )
