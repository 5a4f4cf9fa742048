"""The supplement's figure of several classes learned together: whose atoms they are, layer by layer.

The images of an atom are where pretraining placed it. An atom that one class alone uses belongs to that class; one that
all classes use alike is general. The measure is the share of an atom's weight that the class with most of it has.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, IMAGE, LABEL
from gdd.data.contrast import normalise_contrast
from gdd.projection import project_layers
from gdd.sampler.pretrain import Pretrained
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.caltech import DATA, HEALTHY, MODELS, STAGES, model_for, pictures, train_on
from gdd_book.training.dictionaries import join_layers, pack
from gdd_book.training.training import refinement_for

NAME = "caltech-joint"
CHOICES = {"data": ("digits", *DATA), "stages": STAGES, "model": tuple(MODELS)}
PARAMETERS = {
    "demo": {
        "data": "digits", "classes": ("0", "1"), "model": "three layers", "n_train": 3, "burn_in": 6, "collect": 2,
        "refine_burn_in": 2, "refine_collect": 1, "voters": 1, "seed": 0, "stages": STAGES, **HEALTHY,
    },
    "paper": {
        "data": "caltech101",
        "classes": ("ketch", "nautilus", "revolver", "stop_sign", "umbrella", "windsor_chair"),
        "model": "faces", "n_train": 6, "burn_in": 60, "collect": 20, "refine_burn_in": 30, "refine_collect": 10,
        "voters": 6, "seed": 0, "stages": STAGES, **HEALTHY,
    },
}  # fmt: skip


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train on images of all classes together, project every layer, count whose atoms they are; see the module.

    ``n_train`` images of every class; ``voters`` of them, classes in turn, decide where the pixels of a refined
    model's atoms go. ``resumable``: keep checkpoints, and go on from those of an earlier call.
    """
    p = parameters
    images = normalise_contrast(in_turn(pictures(p, p["classes"], p["n_train"])))
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    folder = checkpoint_folder(NAME, p) if resumable else None
    trained = train_on(images, model, p, p["seed"], folder, progress, "all classes")
    stacks = [project_layers(one, min(p["voters"], len(images))) for one in trained.values()]
    dataset = pack(stacks, "stage").assign_coords(stage=list(trained))
    dataset["weight_share"] = weight_shares(trained[STAGES[0]])
    known = images.attrs["label_names"].split(",")
    dataset = dataset.assign_coords({"class": (IMAGE, [known[label] for label in images[LABEL].values])})
    shown = np.rint(100 * images.values[: len(p["classes"]), 0]).clip(-127, 127).astype(np.int8)
    dataset["images"] = ("example", "row", "col"), shown
    spec = {"model": model, "refinement": refinement_for(p["refine_noise"])}
    return Outcome(dataset, spec, p["data"], images.attrs["checksum"], p["seed"])


def in_turn(images: xr.DataArray) -> xr.DataArray:
    """Images reordered so that the classes take turns: the first ones hold one of every class."""
    labels = images[LABEL].values
    rank = np.empty(len(labels), int)
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    return images.isel({IMAGE: np.lexsort((labels, rank))})


def weight_shares(fitted: Pretrained) -> xr.DataArray:
    """Share of the squared weight of every atom that each training image has, (image, atom).

    The axis ``atom`` runs over all layers, with the coordinate ``layer``. NaN for an atom that is never used.
    """
    energy = [(layer.state.local.w.astype(float) ** 2).sum(axis=(2, 3)).T for layer in fitted.layers]
    each = join_layers(energy).transpose(IMAGE, ATOM)
    total = each.sum(IMAGE)
    return each / total.where(total > 0)
