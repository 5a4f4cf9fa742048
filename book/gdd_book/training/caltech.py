"""Models of Caltech images as the experiments train them, one for each class or group; see also
`gdd_book.training.training`.

Pictures are grey, 128 x 128, local contrast normalised (`gdd.data.contrast`): the mean of a pixel's surroundings is
taken
away, and the rest is divided by their standard deviation where that is above the image's mean one. What is left are
edges and texture of about equal strength everywhere, around 0 and of standard deviation about 0.7; shadows are gone.

Like those of MNIST, checkpoints lie in folders named after exactly the parameters that a chain depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import xarray as xr

from gdd.data import datasets
from gdd.data.contrast import normalise_contrast
from gdd.model.spec import CALTECH101, FACES, FACES_INTERPOLATION, ChainSpec, LayerSpec, ModelSpec, Precision
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import Refined, refine
from gdd_book.training.training import folder_of, refinement_for

DATA = ("caltech101", "caltech256")
#: sizes by name. The paper does not print those of its two layers (Table 2): ours have the bottom atoms of the three
#: layers, pooled 8 x 8 at once, and top atoms that are carried to the same 96 x 96 pixels at the same 5 x 5 positions
TWO_LAYERS = ModelSpec((LayerSpec(8, (17, 17), (8, 8)), LayerSpec(16, (10, 10))), (128, 128))
MODELS = {
    "three layers": CALTECH101,
    "two layers": TWO_LAYERS,
    "faces": FACES,
    "faces, interpolation": FACES_INTERPOLATION,
}
#: what a pretraining chain depends on, and a refinement on top of it
PRETRAINING = (
    "data", "classes", "per_class", "seed", "model", "burn_in", "collect", "noise_precision", "weight_precision",
)  # fmt: skip
REFINEMENT = (*PRETRAINING, "refine_burn_in", "refine_collect", "refine_noise")
STAGES = ("pretrained", "refined")
#: settings whose chains stay healthy on normalised images (book, caltech/accuracy)
HELD = {"noise_precision": 3.0, "weight_precision": 0.1}
HEALTHY = HELD | {"refine_noise": 3.0}


def model_for(name: str, noise_precision: float, weight_precision: float) -> ModelSpec:
    """Return one of `MODELS` with precisions that keep its chains healthy; 0 for the printed priors, all learned.

    Layer 1: gamma_e and gamma_w fixed at these values. Layers above: one gamma_e for all images, learned; gamma_w fixed
    at a tenth, as their inputs are larger. A learned one can rise without end in a top layer of 30 images: weights and
    atoms shrink to nothing (faces: active as the prior has it, nothing explained).
    Every gamma_d is fixed at the number of an atom's values, so that atoms have about unit norm a priori.
    """
    model = MODELS[name]
    if noise_precision == 0:
        return model
    layers = []
    for number, (layer, shape) in enumerate(zip(model.layers, model.shapes(), strict=True)):
        noise = Precision() if number else Precision(fixed=noise_precision)
        weights = Precision(fixed=weight_precision / 10 if number else weight_precision)
        atoms = Precision(fixed=float(prod(shape.dictionary[1:])))
        layers.append(replace(layer, gamma_e=noise, gamma_d=atoms, gamma_w=weights))
    return replace(model, layers=tuple(layers))


def images_of(p: Mapping[str, Any], split: str = "train") -> xr.DataArray:
    """Normalised images of the classes ``p["classes"]``, ``p["per_class"]`` of each in training, by ``p["seed"]``."""
    return normalise_contrast(
        datasets.load(
            p["data"], split, classes=p["classes"], per_class=p["per_class"], seed=p["seed"],
            size=MODELS[p["model"]].image_size,
        )  # fmt: skip
    )


def chain_seed(p: Mapping[str, Any]) -> int:
    """Seed of the chains of these classes, another for each, lest atoms that they do not use be the same noise."""
    text = ",".join((str(p["seed"]), *p["classes"]))
    return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)


def pretrained_model(
    p: Mapping[str, Any], progress, resumable: bool = True, images: xr.DataArray | None = None
) -> Pretrained:
    """Only the first half of `trained_models`; ``p`` holds at least the names of `PRETRAINING`."""
    chain = ChainSpec(p["burn_in"], p["collect"], chain_seed(p))
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    folder = folder_of("caltech-pretrained", PRETRAINING, p) if resumable else None
    images = images_of(p) if images is None else images
    with progress(chain.sweeps * len(model.layers), "pretraining") as bar:
        return pretrain(images, model, chain, folder=folder, progress=bar)


def trained_models(
    p: Mapping[str, Any], progress, resumable: bool = True, images: xr.DataArray | None = None
) -> tuple[Pretrained, Refined]:
    """Pretrain on the training images of some classes taken together, then refine from there.

    Parameters
    ----------
    p : holds at least the names of `REFINEMENT`; ``classes`` is a sequence of names, one name for one class's model
    progress : ``progress(total, label)`` opens a bar, as `gdd_book.progress.Bar`
    resumable : keep checkpoints, and go on from those of an earlier call of any experiment
    images : those of `images_of`, if they are at hand

    Returns
    -------
    Pretrained, Refined

    Raises
    ------
    GddError
        Images that cannot be had; settings that no model has; a checkpoint that belongs to other data or code.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2, 2.3 and 4, Caltech 101. *Departs:* precisions held where flat priors run
    away (P15). *Checked:* tests/test_caltech.py.
    """
    images = images_of(p) if images is None else images
    fitted = pretrained_model(p, progress, resumable, images)
    chain = ChainSpec(p["refine_burn_in"], p["refine_collect"], chain_seed(p))
    with progress(chain.sweeps, "refinement") as bar:
        refined = refine(
            images, fitted.model, chain, refinement_for(p["refine_noise"]), start=fitted,
            folder=folder_of("caltech-refined", REFINEMENT, p) if resumable else None, progress=bar,
        )  # fmt: skip
    return fitted, refined


def pictures(p: Mapping[str, Any], classes: Sequence[str], per_class: int, held_out: int = 0) -> xr.DataArray:
    """Training images, ``per_class`` of each of these classes; or ``held_out`` others of all of them together.

    As they are, before `gdd.data.contrast.normalise_contrast`. The embedded digits stand in for Caltech images where
    ``p["data"]`` says so: their classes are "0" to "9", and they are enlarged to the same size.
    """
    known = {"classes": classes, "seed": p["seed"], "size": CALTECH101.image_size}
    split, n = ("test", held_out) if held_out else ("train", None)
    if p["data"] in DATA:
        return datasets.load(p["data"], split, per_class=per_class, n=n, **known)
    return datasets.load(p["data"], split, n=n or per_class * len(classes), **known)


def train_on(
    images: xr.DataArray, model: ModelSpec, p: Mapping[str, Any], seed: int, folder: Path | None, progress, label: str
) -> dict[str, Pretrained | Refined]:
    """Pretrain a model on these images and, if ``p["stages"]`` names it, refine it from there: a model for each stage.

    Parameters
    ----------
    images : normalised
    model : for instance of `model_for`
    p : holds the lengths of both chains, ``refine_noise`` and ``stages``
    seed : of both chains
    folder : of the checkpoints of both; None for none
    progress, label : ``progress(total, label)`` opens a bar
    """
    chain = ChainSpec(p["burn_in"], p["collect"], seed)
    with progress(chain.sweeps * len(model.layers), f"{label}, pretraining") as bar:
        trained = {STAGES[0]: pretrain(images, model, chain, folder=folder, progress=bar)}
    if STAGES[1] in p["stages"]:
        chain, start = ChainSpec(p["refine_burn_in"], p["refine_collect"], seed), trained[STAGES[0]]
        with progress(chain.sweeps, f"{label}, refinement") as bar:
            refinement = refinement_for(p["refine_noise"])
            trained[STAGES[1]] = refine(images, start.model, chain, refinement, start, folder=folder, progress=bar)
    return trained
