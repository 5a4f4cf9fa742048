"""Fig. 2a: top atoms in the image plane, after pretraining by kind of pooling, after refinement, and thresholded.

Each model is trained twice, on disjoint halves of the training digits. Its projected atoms get the two measures of
sharpness of `gdd.evaluate.atoms`, and two judges: how well atoms of one half match those of the other, and how
well digits
that training never saw are put together from them, all kinds under the same settings. Beside the models stand two
yardsticks: our pretrained atoms projected without the vote, and training digits taken as atoms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, DRAW, PLANE
from gdd.data import datasets
from gdd.evaluate.atoms import gradient_kurtosis, high_frequency_share, match_atoms
from gdd.inference.held import Chain
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.projection import collapse, project_model, project_refined, threshold
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import Refined, refine
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.dictionaries import cut_atoms, rebuild
from gdd_book.training.training import HEALTHY, model_for, refinement_for

NAME = "mnist-dictionary"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_held_out": 100, "burn_in": 60, "collect": 20, "refine_burn_in": 60,
        "refine_collect": 20, "test_burn_in": 60, "test_collect": 20, "seed": 0, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 2000, "n_held_out": 500, "burn_in": 300, "collect": 100, "refine_burn_in": 80,
        "refine_collect": 20, "test_burn_in": 150, "test_collect": 50, "seed": 0, **HEALTHY,
    },
}  # fmt: skip
POOLINGS = ("probabilistic", "average")
#: what the record compares: two pretrained models, two yardsticks, and the first model after refinement
KINDS = (*POOLINGS, "probabilistic, no vote", "training digits", "refined", "refined, thresholded")
REACH = 3  # pixels; a whole stride, by which an atom can move at no cost
TEST_GAMMA_E, TEST_GAMMA_W = 100.0, 0.1  # precisions of noise and weights for the second judge, the same for every kind


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train each kind on each half, project, measure, judge; see the module.

    ``resumable``: keep checkpoints, and go on from those of an earlier call.
    """
    p = parameters
    train = datasets.load(p["data"], "train", n=p["n_train"], seed=p["seed"])
    held_out = datasets.load(p["data"], "test", n=p["n_held_out"], seed=p["seed"])
    halves = [train.isel(image=slice(start, None, 2)) for start in (0, 1)]
    model = model_for(p["noise_precision"], p["weight_precision"])
    chains = [ChainSpec(p["burn_in"], p["collect"], 2 * p["seed"] + half) for half in (0, 1)]
    kept, atoms, uses = {}, {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
    with progress(2 * len(POOLINGS) * sum(2 * [chains[0].sweeps]), "pretraining") as bar:
        for pooling in POOLINGS:
            for half, (images, chain) in enumerate(zip(halves, chains, strict=True)):
                folder = checkpoint_folder(NAME, p) / f"{pooling}{half}" if resumable else None
                fitted = pretrain(images, with_pooling(model, pooling), chain, folder=folder, progress=bar)
                add_atoms(atoms, uses, fitted, images)
                kept[pooling, half] = fitted
    chains += [ChainSpec(p["refine_burn_in"], p["refine_collect"], chain.seed) for chain in chains]
    with progress(2 * chains[-1].sweeps, "refinement") as bar:
        for half, (images, chain) in enumerate(zip(halves, chains[2:], strict=True)):
            folder = checkpoint_folder(NAME, p) / f"refined{half}" if resumable else None
            start, refinement = kept["probabilistic", half], refinement_for(p["refine_noise"])
            refined = refine(images, start.model, chain, refinement, start=start, folder=folder, progress=bar)
            add_refined_atoms(atoms, uses, refined)
    dataset = measure(atoms, uses).merge(judge(atoms, held_out, model.stride, p)).merge(traces(kept))
    return Outcome(dataset, {"model": model, "chains": chains}, p["data"], train.attrs["checksum"], p["seed"])


def with_pooling(model: ModelSpec, pooling: str) -> ModelSpec:
    """Return the same model with another pooling of its first layer."""
    lower, *upper = model.layers
    return replace(model, layers=(replace(lower, pooling=pooling), *upper))


def add_atoms(atoms: dict, uses: dict, fitted: Pretrained, images: xr.DataArray) -> None:
    """Add one pretrained model's projected atoms to the lists, and those of the yardsticks where it is their turn."""
    pooling = fitted.layers[0].spec.pooling
    top = fitted.layers[-1].state
    used = (top.local.z >= 0).sum(axis=(0, 2, 3))
    atoms[pooling].append(project_model(fitted))
    uses[pooling].append(used)
    if pooling == "probabilistic":
        dictionaries = [layer.state.shared.dictionary for layer in fitted.layers]
        atoms[KINDS[2]].append(collapse(dictionaries, [fitted.layers[0].spec.pool], [None])[-1])
        atoms[KINDS[3]].append(cut_atoms(images.values, len(used), fitted.model.projected_size))
        uses[KINDS[2]].append(used)
        uses[KINDS[3]].append(np.ones_like(used))


def add_refined_atoms(atoms: dict, uses: dict, refined: Refined) -> None:
    """Add one refined model's projected atoms to the lists, as they are and with a threshold."""
    projected = project_refined(refined)
    atoms[KINDS[4]].append(projected)
    atoms[KINDS[5]].append(threshold(projected))
    for kind in KINDS[4:]:
        uses[kind].append((refined.state.local.z >= 0).sum(axis=(0, 2, 3)))


def measure(atoms: dict, uses: dict) -> xr.Dataset:
    """Sharpness of every atom, (kind, half, atom); correlation with its match in the other half, (kind, atom)."""
    each = (("kind", "half", ATOM), (high_frequency_share, gradient_kurtosis))
    out = {f.__name__: (each[0], [[f(part) for part in atoms[kind]] for kind in KINDS]) for f in each[1]}
    out["uses"] = (each[0], [uses[kind] for kind in KINDS])
    matches = [match_atoms(atoms[kind][1], atoms[kind][0], REACH) for kind in KINDS]
    out["correlation"] = (("kind", ATOM), [np.abs(match.correlation) for match in matches])
    first = np.stack([np.asarray(atoms[kind][0]) for kind in KINDS])
    scaled = first / np.abs(first).max(axis=(2, 3, 4), keepdims=True).clip(1e-12)
    out["projected_atoms"] = (("kind", ATOM, PLANE, ATOM_ROW, ATOM_COL), scaled.round(3).astype("f4"))
    voted = ("probabilistic", "refined")
    shares = [[part.attrs["winning_share"][0] for part in atoms[kind]] for kind in voted]
    out["winning_share"] = (("voted", "half"), shares)
    return xr.Dataset(out, {"kind": list(KINDS), "voted": list(voted)})


def judge(atoms: dict, held_out: xr.DataArray, stride: tuple[int, int], p: dict) -> xr.Dataset:
    """Put held-out images together from atoms of unit norm, every kind under the same precisions and chain.

    ``rms`` (kind, half): of what is left of a pixel; ``active``: coefficients per image; ``rms_of_images``: with none.
    """
    chain = Chain(p["test_burn_in"], p["test_collect"], p["seed"])
    rms, active = np.empty((2, len(KINDS), 2))
    for (i, kind), half in ((pair, half) for pair in enumerate(KINDS) for half in (0, 1)):
        rms[i, half], active[i, half] = rebuild(
            held_out, atoms[kind][half], stride, chain, TEST_GAMMA_E, TEST_GAMMA_W
        )  # fmt: skip
    out = {"rms": (("kind", "half"), rms), "active": (("kind", "half"), active)}
    return xr.Dataset(out | {"rms_of_images": float(np.sqrt((held_out.values**2).mean()))})


def traces(fitted: dict) -> xr.Dataset:
    """Residual and active blocks at every sweep: (pooling, half, layer, draw)."""
    axes = ("pooling", "half", "layer", DRAW)
    every = [[fitted[pooling, half].layers for half in (0, 1)] for pooling in POOLINGS]
    return xr.Dataset({
        f"trace_{name}": (axes, [[[la.traces[name].values[0] for la in part] for part in pair] for pair in every])
        for name in ("residual", "active")
    }, {"pooling": list(POOLINGS)})  # fmt: skip
