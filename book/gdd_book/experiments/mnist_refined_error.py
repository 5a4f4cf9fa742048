"""Table 1, before and after refinement: test error with pretrained and with refined atoms, on the same digits.

For each of several subsets of the training digits a model is pretrained and refined. Both kinds of projected atoms then
take the same way: training and test digits are deconvolved in one layer and classified under one protocol. Refined
atoms are used twice, under the noise precision of their own model and under that of the pretrained one, as that number
alone changes how many coefficients a digit gets. At paper scale the refinements are shorter than the paper's, as there
are five.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import LABEL
from gdd.data import datasets
from gdd.evaluate.classify import error
from gdd.inference.deconvolution import deconvolve
from gdd.projection import project_model, project_refined
from gdd_book.experiments import Outcome
from gdd_book.training.training import HEALTHY, digits, trained_models

NAME = "mnist-refined-error"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_test": 200, "seeds": (0, 1), "burn_in": 60, "collect": 20,
        "refine_burn_in": 60, "refine_collect": 20, "test_burn_in": 60, "test_collect": 20, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "n_test": 1000, "seeds": (0, 1, 2, 3, 4), "burn_in": 300, "collect": 100,
        "refine_burn_in": 80, "refine_collect": 20, "test_burn_in": 100, "test_collect": 50, **HEALTHY,
    },
}  # fmt: skip
ATOMS = ("pretrained", "refined", "refined, pretraining's noise")
CODES = ("ml_sample", "mean")


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train on every subset, deconvolve, classify; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    test = datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    subsets = [one_subset(p | {"seed": seed}, test, progress, resumable) for seed in p["seeds"]]
    dataset = xr.concat(subsets, "subset").assign_coords(subset=list(p["seeds"]))
    return Outcome(dataset, {"seeds": p["seeds"]}, p["data"], test.attrs["checksum"], p["seeds"][0])


def one_subset(p: dict, test: xr.DataArray, progress, resumable: bool) -> xr.Dataset:
    """Errors in % (atoms, feature_kind) and active coefficients of a test digit (atoms,), for one subset."""
    train = digits(p)
    fitted, refined = trained_models(p, progress, resumable)
    layers = fitted.layers
    own = float(layers[0].state.local.gamma_e.mean()), float(layers[-1].state.shared.gamma_w.mean())
    noise, weights = (float(np.mean(v)) for v in (refined.state.local.gamma_e, refined.state.shared.gamma_w))
    after = project_refined(refined)
    kinds = ((project_model(fitted), *own), (after, noise, weights), (after, own[0], weights))
    errors, active = [], []
    for atoms, gamma_e, gamma_w in kinds:
        codes = [
            code(images, atoms, fitted.model.stride, gamma_e, gamma_w, offset, p)
            for images, offset in ((train, 0), (test, 10**6))
        ]
        errors.append([wrong_share(codes, kind, train, test, p["seed"]) for kind in CODES])
        active.append(float((codes[1].ml_sample != 0).sum(("atom", "row", "col")).mean()))
    out = {"error": (("atoms", "feature_kind"), errors), "active_at_test": ("atoms", active)}
    pixels = float(error(train, train[LABEL].values, test, test[LABEL].values, seed=p["seed"]).error)
    shares = [one.attrs["winning_share"][0] for one, _, _ in kinds]
    out |= {"error_of_pixels": ((), pixels), "winning_share": ("atoms", shares)}
    return xr.Dataset(out, {"atoms": list(ATOMS), "feature_kind": list(CODES)})


def code(images: xr.DataArray, atoms, stride, gamma_e: float, gamma_w: float, offset: int, p: dict) -> xr.Dataset:
    """One-layer deconvolution; training and test digits use different random numbers."""
    return deconvolve(
        images, np.asarray(atoms, np.float32), stride, gamma_e=gamma_e, gamma_w=gamma_w, burn_in=p["test_burn_in"],
        collect=p["test_collect"], seed=p["seed"], first_image=offset,
    )  # fmt: skip


def wrong_share(codes: list[xr.Dataset], kind: str, train: xr.DataArray, test: xr.DataArray, seed: int) -> float:
    """Test error in % of one kind of feature."""
    found = error(codes[0][kind], train[LABEL].values, codes[1][kind], test[LABEL].values, seed=seed)
    return float(found.error)
