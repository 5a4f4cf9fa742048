"""Supplement, "Layer by Layer Classification Results", second table: Caltech 101, one deconvolution or layer by layer.

As in `gdd_book.experiments.caltech_accuracy` a model is pretrained of every class on its own. Every image gets its
features
twice: by one deconvolution with the projected atoms of all classes side by side, and from each class's own layers, from
the bottom up, the maps of all classes side by side. Layer by layer takes a chain for each class, layer and image, and
its features are thousands of numbers for each class, so a few classes are compared, and the chains are short.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.features import stack_features
from gdd.inference.held import infer_layers
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.experiments.caltech_accuracy import (
    KINDS,
    baselines,
    check_enough,
    classes_of,
    encode,
    keep,
    normalised,
    pictures,
    predict,
)
from gdd_book.training.caltech import DATA, HELD, MODELS, model_for, pretrained_model
from gdd_book.training.class_training import learn_classes

NAME = "caltech-layerwise"
#: its run takes ``jobs``, a number of processes, on which the result does not depend
IN_PARALLEL = True
_COMMON = {"data": "caltech101", "model": "three layers", "seed": 0, **HELD}
PARAMETERS = {
    "demo": {
        "n_classes": 2, "per_class": 10, "n_test": 5, "burn_in": 15, "collect": 5, "test_burn_in": 30,
        "test_collect": 10, "layer_burn_in": 6, "layer_collect": 4, **_COMMON,
    },
    "paper": {
        "n_classes": 6, "per_class": 30, "n_test": 15, "burn_in": 60, "collect": 20, "test_burn_in": 100,
        "test_collect": 50, "layer_burn_in": 20, "layer_collect": 10, **_COMMON,
    },
}  # fmt: skip
CHOICES = {"data": DATA, "model": tuple(MODELS)}
ONE_DECONVOLUTION, ALL_LAYERS = "one deconvolution, projected atoms", "layer by layer, all layers"


def run(parameters: dict, progress, resumable: bool = True, jobs: int = 1) -> Outcome:
    """Learn every class, infer in both ways, classify; see the module.

    ``resumable`` is there for the sake of form: classes, and codes of images, are kept always.
    """
    p = parameters
    check_enough(p)
    p = p | {"classes": classes_of(p), "refined": False}
    folder = checkpoint_folder(NAME, parameters)
    train, test = pictures(p)
    both = [normalised(part) for part in (train, test)]
    records = learn_classes(p, both[0], jobs, progress)
    firsts = (0, 10**6)
    codes = [
        encode(part, records, "pretrained", p, first, folder, progress)
        for part, first in zip(both, firsts, strict=True)
    ]
    features = {(ONE_DECONVOLUTION, kind): [part[kind] for part in codes] for kind in KINDS}
    layers = [
        in_layers(part, both[0], p, first, folder, progress) for part, first in zip(both, firsts, strict=True)
    ]
    for kind in KINDS:
        parts = [part[kind] for part in layers]
        flat = [[each for own in part for each in own] for part in parts]
        features[ALL_LAYERS, kind] = [stack_features(part, flat[0]) for part in flat]
        for number in range(len(parts[0][0])):
            chosen = [[own[number] for own in part] for part in parts]
            features[f"layer by layer, layer {number + 1}", kind] = [stack_features(part, chosen[0]) for part in chosen]
    ways = list(dict.fromkeys(way for way, _ in features))
    truth = test[LABEL].values
    right = {name: predict(*pair, train, test, p) == truth for name, pair in features.items()}
    atoms = sum(one.sizes["atom"] for one in records)
    without = baselines(train, test, atoms, p["seed"])
    dataset = xr.Dataset({
        "right": (("way", "feature_kind", IMAGE), [[right[way, kind] for kind in KINDS] for way in ways]),
        "n_features": ("way", [np.shape(features[way, KINDS[0]][0])[1] for way in ways]),
        "baseline_accuracy": (
            "baseline", [100 * (predict(*pair, train, test, p) == truth).mean() for pair in without.values()]
        ),
    }, {"way": ways, "feature_kind": list(KINDS), "baseline": list(without), "class": list(p["classes"])})  # fmt: skip
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    return Outcome(dataset, {"model": model}, p["data"], train.attrs["checksum"], p["seed"])


def in_layers(
    images: xr.DataArray, train: xr.DataArray, p: dict, first: int, folder: Path, progress
) -> dict[str, list[list[np.ndarray]]]:
    """Maps of images in the layers of every class: for each of `KINDS`, by class and layer, (image, feature).

    ``train`` : normalised training images of all classes, whose chains are finished
    ``first`` : number of the first image, from which its random numbers follow; names the files in ``folder``
    """
    known, found = train.attrs["label_names"].split(","), []
    sweeps = (p["layer_burn_in"] + p["layer_collect"]) * len(MODELS[p["model"]].layers)
    with progress(len(images) * sweeps * len(p["classes"]), "layer by layer") as bar:
        for name in p["classes"]:
            path = folder / f"layers-{name}-{first}.npz"
            if path.exists():
                bar.step(len(images) * sweeps)
            else:
                own = train.isel(image=train[LABEL].values == known.index(name))
                fitted = pretrained_model(p | {"classes": (name,)}, lambda *_: nullcontext(), images=own)
                maps = infer_layers(
                    fitted, images, p["layer_burn_in"], p["layer_collect"], p["seed"] + first, bar.step
                )
                keep(path, {
                    f"{kind} {number}": layer[kind].values.reshape(len(images), -1).astype(np.float32)
                    for kind in KINDS for number, layer in enumerate(maps)
                })  # fmt: skip
            with np.load(path) as stored:
                found.append({kind: [stored[n] for n in stored.files if n.startswith(f"{kind} ")] for kind in KINDS})
    return {kind: [one[kind] for one in found] for kind in KINDS}
