"""Models of MNIST as the experiments train them, pretrained and refined; a finished chain serves all experiments.

Checkpoints lie in folders named after exactly the parameters that a chain depends on. So experiments that share those
share the chain, in whatever order they run, and two refinements of one pretrained model can run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import xarray as xr

from gdd.base.axes import IMAGE
from gdd.data import datasets
from gdd.model.spec import MNIST, ChainSpec, ModelSpec, Precision, RefinementSpec
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import Refined, refine
from gdd_book.folders import checkpoint_folder

#: what a pretraining chain depends on, and a refinement on top of it
PRETRAINING = ("data", "n_train", "seed", "burn_in", "collect", "noise_precision", "weight_precision")
REFINEMENT = (*PRETRAINING, "refine_burn_in", "refine_collect", "refine_noise")
#: the settings whose chains are healthy (book, inference/gibbs and model/refinement)
HEALTHY = {"noise_precision": 100.0, "weight_precision": 0.1, "refine_noise": 44.0}


def model_for(noise_precision: float, weight_precision: float) -> ModelSpec:
    """Return the paper's MNIST model with the precisions that keep its chains healthy (book, inference/gibbs).

    Layer 1: gamma_e and gamma_w fixed at these values, atoms of about unit norm a priori (gamma_d fixed at their number
    of pixels). Layer 2: one gamma_e for all images, learned; gamma_d fixed likewise; gamma_w learned.
    A ``noise_precision`` of 0 gives the printed priors instead, everything learned.
    """
    if noise_precision == 0:
        return MNIST
    lower, upper = MNIST.layers
    lower = replace(
        lower, gamma_e=Precision(fixed=noise_precision), gamma_d=Precision(fixed=64.0),
        gamma_w=Precision(fixed=weight_precision),
    )  # fmt: skip
    upper = replace(upper, gamma_e=Precision(), gamma_d=Precision(fixed=6.0 * 6 * 32))
    return replace(MNIST, layers=(lower, upper))


def refinement_for(refine_noise: float) -> RefinementSpec:
    """Return the refinement with this noise precision; 0: learned for each image under the printed flat prior (P15)."""
    return RefinementSpec(noise=Precision(fixed=refine_noise) if refine_noise else Precision((IMAGE,)))


def trained_models(p: Mapping[str, Any], progress, resumable: bool = True) -> tuple[Pretrained, Refined]:
    """Pretrain on digits, then refine from there.

    Parameters
    ----------
    p : holds at least the names of `REFINEMENT`
    progress : ``progress(total, label)`` opens a bar, as `gdd_book.progress.Bar`
    resumable : keep checkpoints, and go on from those of an earlier call of any experiment

    Returns
    -------
    Pretrained, Refined

    Raises
    ------
    GddError
        Digits that cannot be had; settings that no model has; a checkpoint that belongs to other data or code.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2, 2.3 and 3. *Departs:* precisions held where flat priors run away (P15).
    *Checked:* tests/test_training.py.
    """
    fitted = pretrained_model(p, progress, resumable)
    chain = ChainSpec(p["refine_burn_in"], p["refine_collect"], p["seed"])
    with progress(chain.sweeps, "refinement") as bar:
        refined = refine(
            digits(p), fitted.model, chain, refinement_for(p["refine_noise"]), start=fitted,
            folder=folder_of("refined", REFINEMENT, p) if resumable else None, progress=bar,
        )  # fmt: skip
    return fitted, refined


def pretrained_model(p: Mapping[str, Any], progress, resumable: bool = True) -> Pretrained:
    """Only the first half of `trained_models`; ``p`` holds at least the names of `PRETRAINING`."""
    chain = ChainSpec(p["burn_in"], p["collect"], p["seed"])
    model = model_for(p["noise_precision"], p["weight_precision"])
    folder = folder_of("pretrained", PRETRAINING, p) if resumable else None
    with progress(chain.sweeps * len(model.layers), "pretraining") as bar:
        return pretrain(digits(p), model, chain, folder=folder, progress=bar)


def digits(p: Mapping[str, Any]) -> xr.DataArray:
    """Training digits of these parameters."""
    return datasets.load(p["data"], "train", n=p["n_train"], seed=p["seed"])


def folder_of(stage: str, names: tuple[str, ...], p: Mapping[str, Any]) -> Path:
    """Checkpoint folder of a stage whose chain depends on these parameters."""
    return checkpoint_folder(stage, {name: p[name] for name in names})
