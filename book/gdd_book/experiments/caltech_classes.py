"""Fig. 5 and its like in the supplement: each class alone, and how alike the classes' dictionaries are, by layer.

Every class is learned twice, from disjoint sets of its images. How well the atoms of two classes match is compared with
how well those of two sets of one class do: a layer whose atoms match between classes as well as within one is common to
the classes, one whose atoms do not belongs to its class.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import xarray as xr

from gdd.data.contrast import normalise_contrast
from gdd.projection import project_layers
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.caltech import DATA, HEALTHY, STAGES, model_for, pictures, train_on
from gdd_book.training.dictionaries import match_layers, pack, reaches_of
from gdd_book.training.training import refinement_for

NAME = "caltech-classes"
CHOICES = {"data": ("digits", *DATA), "stages": STAGES}
PARAMETERS = {
    "demo": {
        "data": "digits", "classes": ("0", "1"), "n_train": 3, "burn_in": 6, "collect": 2, "refine_burn_in": 2,
        "refine_collect": 1, "voters": 1, "seed": 0, "stages": STAGES, **HEALTHY,
    },
    "paper": {
        "data": "caltech101", "classes": ("nautilus", "pyramid", "revolver", "umbrella"), "n_train": 15, "burn_in": 60,
        "collect": 20, "refine_burn_in": 30, "refine_collect": 10, "voters": 4, "seed": 0, "stages": STAGES, **HEALTHY,
    },
}  # fmt: skip
EXAMPLES = 6


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train every class on each set of its images, project every layer, match; see the module.

    ``n_train`` images of a class make one set; ``voters`` of them decide where the pixels of a refined model's atoms
    go. ``resumable``: keep checkpoints, and go on from those of an earlier call.
    """
    p = parameters
    model = model_for("three layers", p["noise_precision"], p["weight_precision"])
    stacks, shown = {}, []
    for number, name in enumerate(p["classes"]):
        images = normalise_contrast(pictures(p, (name,), 2 * p["n_train"]))
        shown.append(np.rint(100 * images.values[:EXAMPLES, 0]).clip(-127, 127).astype(np.int8))
        for half in (0, 1):
            part = images.isel(image=slice(half, None, 2))
            seed = 2 * (p["seed"] * len(p["classes"]) + number) + half  # unused atoms must not be the same noise
            folder = checkpoint_folder(NAME, p) / f"{name}{half}" if resumable else None
            trained = train_on(part, model, p, seed, folder, progress, f"{name}, set {half + 1}")
            for stage, one in trained.items():
                stacks.setdefault(stage, []).append(project_layers(one, min(p["voters"], len(part))))
    parts = [pack(layers[::2], "class").assign(match_classes(layers, reaches_of(model))) for layers in stacks.values()]
    dataset = xr.concat(parts, "stage").assign_coords({"stage": list(stacks), "class": list(p["classes"])})
    dataset["images"] = ("class", "example", "row", "col"), np.array(shown)
    spec = {"model": model, "refinement": refinement_for(p["refine_noise"])}
    return Outcome(dataset, spec, p["data"], images.attrs["checksum"], p["seed"])


def match_classes(layers: list, reaches: list[int]) -> xr.Dataset:
    """Correlations of matched atoms, (pairing, atom), between sets of one class and between sets of two classes.

    Parameters
    ----------
    layers : of the first set and of the second set of every class in turn
    reaches : see `gdd_book.training.dictionaries.match_layers`

    Returns
    -------
    Dataset
        ``same`` (class, atom), between the two sets of a class; ``different`` (pair, atom), between the first sets of
        two classes; the axis ``atom`` has the coordinate ``layer``.
    """
    first, second = layers[::2], layers[1::2]
    same = [match_layers(b, a, reaches) for a, b in zip(first, second, strict=True)]
    different = [match_layers(b, a, reaches) for a, b in combinations(first, 2)]
    return xr.Dataset({"same": xr.concat(same, "class"), "different": xr.concat(different, "pair")})
