"""Sec. 2.3 on digits: what refinement does to a pretrained model, and what the noise precision has to do with it.

One pretrained model is refined twice, with the noise precision fixed and with it learned under the printed flat prior;
the second has lengths of its own, as it need not run long to show where it goes.
The record holds every sweep of all four chains, how freely positions and coefficients move, and the dictionaries before
and after, each as the kept draw and as the conditional mean given everything else. Chains that
`gdd_book.training.training.trained_models` has finished, in this process or another, are not run again.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, DRAW, IMAGE, PLANE
from gdd.evaluate.sharpness import gradient_kurtosis, high_frequency_share
from gdd.model.joint import joint_residual
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.model.state import JointState, LayerData
from gdd.projection.collapse import threshold
from gdd.projection.models import project_model, project_state, projection_error
from gdd.sampler.joint_sweep import STRENGTHS
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined, start_from
from gdd_book.experiments import Outcome
from gdd_book.training.means import joint_with_means, layers_with_means
from gdd_book.training.training import digits, trained_models

NAME = "mnist-refinement"
_COMMON = {"seed": 0, "noise_precision": 100.0, "weight_precision": 0.1, "noises": (44.0, 0.0)}
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "burn_in": 60, "collect": 20, "refine_burn_in": 60, "refine_collect": 20,
        "learned_burn_in": 60, "learned_collect": 20, **_COMMON,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "burn_in": 1500, "collect": 500, "refine_burn_in": 1500,
        "refine_collect": 500, "learned_burn_in": 60, "learned_collect": 20, **_COMMON,
    },
}  # fmt: skip
BEFORE = "pretrained"
ESTIMATES = ("kept draw", "conditional mean")
REFINE_DRAW = "refine_draw"  # sweeps of a refinement; ``draw`` counts those of pretraining
PER_SWEEP = ("log_joint", "log_likelihood", "residual", "active")
MORE = ("gamma_e", "gamma_w", "switched_on", "switched_off")


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Pretrain, refine under each noise precision, measure; see the module.

    ``resumable``: keep checkpoints, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    refined = {}
    for noise in p["noises"]:
        lengths = {f"refine_{part}": p[f"{'refine' if noise else 'learned'}_{part}"] for part in ("burn_in", "collect")}
        changed = p | {"refine_noise": noise} | lengths
        fitted, refined[name_of(noise)] = trained_models(changed, progress, resumable)
    first = next(iter(refined.values()))
    begun = start_from(fitted, first.refinement, ChainSpec(seed=p["seed"]))
    models = [describe_pretrained(fitted, begun, first.data)]
    models += [describe_refined(one) for one in refined.values()]
    names = [BEFORE, *refined]
    dataset = xr.concat(models, "model").assign_coords(model=names, estimate=list(ESTIMATES))
    dataset = dataset.merge(pretraining_traces(fitted)).merge(refinement_traces(refined))
    spec = {"model": fitted.model, **{name: one.refinement for name, one in refined.items()}}
    return Outcome(dataset, spec, p["data"], digits(p).attrs["checksum"], p["seed"])


def name_of(noise: float) -> str:
    """Name of a refinement in the record."""
    return f"noise fixed at {noise:g}" if noise else "noise learned"


def describe_refined(refined: Refined) -> xr.Dataset:
    """Dictionaries of a refined model, and what its kept sample makes of the digits."""
    kept, means = refined.state, joint_with_means(refined)
    atoms = [project_state(state, refined.data, refined.model) for state in (kept, means)]
    bottoms = [state.shared.dictionaries[0] for state in (kept, means)]
    return dictionaries(bottoms, atoms).merge(fit(kept, refined.data, refined.model, atoms[0]))


def describe_pretrained(fitted: Pretrained, begun: JointState, data: LayerData) -> xr.Dataset:
    """Describe a pretrained model likewise, read downwards as refinement finds it."""
    both = (fitted, layers_with_means(fitted))
    atoms = [project_model(one) for one in both]
    bottoms = [one.layers[0].state.shared.dictionary for one in both]
    return dictionaries(bottoms, atoms).merge(fit(begun, data, fitted.model, atoms[0]))


def dictionaries(bottoms: list[np.ndarray], atoms: list[xr.DataArray]) -> xr.Dataset:
    """Dictionary of layer 1 and projected atoms, kept draw and means, and how sharp the latter are.

    Projected atoms are kept in whole percents of each one's largest magnitude: for looking at.
    """
    plain = [np.asarray(part) for part in atoms]
    percents = [100 * part / np.abs(part).max(axis=(1, 2, 3), keepdims=True).clip(1e-12) for part in plain]
    each = {"": atoms, "thresholded_": [threshold(part) for part in atoms]}
    out = {
        f"{name}{measure.__name__}": (("estimate", ATOM), [measure(part) for part in parts])
        for name, parts in each.items()
        for measure in (high_frequency_share, gradient_kurtosis)
    }
    return xr.Dataset(out | {
        "bottom_dictionary": (("estimate", "bottom_atom", PLANE, "bottom_row", "bottom_col"), np.float32(bottoms)),
        "projected_atoms": (("estimate", ATOM, PLANE, ATOM_ROW, ATOM_COL), np.int8(np.round(percents))),
        "winning_share": ("estimate", [part.attrs["winning_share"][0] for part in atoms]),
    })  # fmt: skip


def fit(state: JointState, data: LayerData, model: ModelSpec, atoms: xr.DataArray) -> xr.Dataset:
    """What a state makes of its digits, layer by layer and with projected atoms.

    ``rms`` of what the layers leave of a pixel; ``projection_error`` (image,): squared distance of the picture that
    the projected atoms draw from the one that the layers draw, over the latter's energy; ``uses`` (atom,).
    """
    return xr.Dataset({
        "rms": float(np.sqrt((joint_residual(state, data, model) ** 2).mean())),
        "projection_error": (IMAGE, projection_error(state, model, atoms)),
        "uses": (ATOM, (state.local.z >= 0).sum(axis=(0, 2, 3))),
    })  # fmt: skip


def pretraining_traces(fitted: Pretrained) -> xr.Dataset:
    """Every sweep of both layers, (layer, draw), in names that begin with pre_; what each layer explains."""
    every = {
        f"pre_{name}": (("layer", DRAW), np.stack([layer.traces[name].values[0] for layer in fitted.layers]))
        for name in PER_SWEEP
    }
    return xr.Dataset(every | {"numbers_explained": ("layer", [data.images.size for data in fitted.inputs])})


def refinement_traces(refined: dict[str, Refined]) -> xr.Dataset:
    """Every sweep of each refinement, (noise, refine_draw), and how many blocks it visited and moved, by strength.

    A chain that is shorter than the longest ends in NaN.
    """
    every = [one.traces.isel(chain=0).rename({DRAW: REFINE_DRAW}) for one in refined.values()]
    longest = max(one.sizes[REFINE_DRAW] for one in every)
    names = [*PER_SWEEP, *MORE, "visited", "moved"]
    padded = [one[names].pad({REFINE_DRAW: (0, longest - one.sizes[REFINE_DRAW])}) for one in every]
    found = xr.concat(padded, "noise").assign_coords(noise=list(refined), strength=list(STRENGTHS))
    return found.rename({"visited": "blocks_visited", "moved": "blocks_moved"})
