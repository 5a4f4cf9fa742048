"""Are the numbers of atoms inferred? Chains that start with many atoms and drop those seldom used, from several starts.

If pruning finds how many atoms the digits need, chains that start with more end with as many, and so do chains that
call other atoms seldom used. Both layers are tried, the upper one always on one and the same lower layer, not pruned.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import xarray as xr

from gdd.axes import DRAW
from gdd.experiments import Outcome, checkpoint_folder
from gdd.sampler.chain import Fitted
from gdd.sampler.pretrain import pretrain
from gdd.spec import ChainSpec, ModelSpec, Pruning
from gdd.training import digits, model_for

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
    """
    p = parameters
    model = model_for(p["noise_precision"], p["weight_precision"])
    folder = checkpoint_folder(NAME, p) if resumable else None
    sweeps = p["burn_in"] + p["collect"]
    starts = (p["starts_1"], p["starts_2"])
    chains = len(p["seeds"]) * (1 + sum(map(len, starts)) * len(p["shares"]))
    found = ([], [])
    with progress(chains * sweeps, NAME) as bar:
        for seed in p["seeds"]:
            images = digits(p | {"seed": seed})
            plain = ChainSpec(p["burn_in"], p["collect"], seed)
            below = pretrain(images, replace(model, layers=model.layers[:1]), plain, None, of(folder, seed), bar)
            inputs = (images.values, below.layers[0].state.local.w)
            for layer in (0, 1):
                for start in starts[layer]:
                    for share in p["shares"]:
                        alone = single(model, layer, start)
                        chain = replace(plain, pruning=Pruning(p["prune_from"], p["prune_every"], share))
                        name = of(folder, seed, layer, start, share)
                        fitted = pretrain(inputs[layer], alone, chain, None, name, bar).layers[0]
                        found[layer].append(describe(fitted, max(starts[layer])))
    parts = []
    for layer, name in enumerate(("1", "2")):
        axes = {"seed": p["seeds"], f"start_{name}": starts[layer], "share": p["shares"]}
        parts.append(stacked(found[layer], axes, name))
    checksum = digits(p | {"seed": p["seeds"][0]}).attrs["checksum"]
    return Outcome(xr.merge(parts), {"model": model}, p["data"], checksum, p["seeds"][0])


def of(folder, *names):
    """Folder of one chain's checkpoints."""
    return folder and folder / "-".join(map(str, names))


def single(model: ModelSpec, layer: int, atoms: int) -> ModelSpec:
    """One layer of a model by itself, with another number of atoms."""
    shape = model.shapes()[layer]
    return ModelSpec((replace(model.layers[layer], atoms=atoms),), shape.input_size, shape.planes)


def describe(fitted: Fitted, widest: int) -> list[np.ndarray]:
    """Atoms after every sweep, what is left of a pixel after every sweep, and how often the kept sample uses each atom.

    Uses are those of a block, most used atom first, NaN behind the last up to ``widest`` atoms.
    """
    traces = fitted.traces.isel(chain=0)
    z = fitted.state.local.z
    uses = np.full(widest, np.nan)
    uses[: z.shape[1]] = np.sort((z >= 0).sum(axis=(0, 2, 3)))[::-1] / (len(z) * prod(z.shape[2:]))
    return [traces["atoms"].values, traces["residual"].values, uses]


def stacked(found: list[list[np.ndarray]], axes: dict, name: str) -> xr.Dataset:
    """Results of all chains of one layer, in the order of ``axes``."""
    shape = [len(values) for values in axes.values()]
    dims = ((*axes, DRAW), (*axes, DRAW), (*axes, f"rank_{name}"))
    names = ("atoms", "residual", "uses")
    columns = zip(names, dims, zip(*found, strict=True), strict=True)
    return xr.Dataset(
        {f"{one}_{name}": (dim, np.reshape(values, (*shape, -1))) for one, dim, values in columns},
        {axis: list(values) for axis, values in axes.items()},
    )
