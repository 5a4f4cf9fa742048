"""What a classifier can read off the same projected atoms: from a chain, and from each atom alone with the image.

As in `gdd.experiments.caltech_accuracy` a model is pretrained of every class on its own, and the projected atoms of all
classes stand side by side. Every image is coded by them in two ways: by the paper's chain, in which atoms share what
they explain, and in one step, each coefficient as if it were alone with the image. Weights are read with their sign or
without. Windows cut from the training images take the atoms' place once, and the pixels stand beside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from gdd.axes import IMAGE, LABEL
from gdd.caltech import DATA, HELD, MODELS, model_for
from gdd.class_training import learn_classes
from gdd.experiments import Outcome, checkpoint_folder
from gdd.experiments.caltech_accuracy import (
    SMALL,
    check_enough,
    classes_of,
    encode,
    normalised,
    pictures,
    predict,
    shrink,
    together,
)
from gdd.features import one_step_codes
from gdd.subsets import generator

NAME = "caltech-readings"
#: its run takes ``jobs``, a number of processes, on which the result does not depend
IN_PARALLEL = True
_COMMON = {"data": "caltech101", "model": "three layers", "seed": 0, **HELD}
PARAMETERS = {
    "demo": {
        "n_classes": 2, "per_class": 10, "n_test": 5, "burn_in": 15, "collect": 5, "test_burn_in": 30,
        "test_collect": 10, **_COMMON,
    },
    "paper": {
        "n_classes": 101, "per_class": 15, "n_test": 10, "burn_in": 60, "collect": 20, "test_burn_in": 30,
        "test_collect": 20, **_COMMON,
    },
}  # fmt: skip
CHOICES = {"data": DATA, "model": tuple(MODELS)}
#: what is taken from a chain, and of it or of an atom alone with the image, by the words of the record
SAMPLE, AVERAGES = "ml_sample", {"mean": "mean", "mean magnitude": "magnitude", "how probably active": "inclusion"}
PRINTED, PIXELS = "chain, sample", "raw pixels"  # the paper's reading; what needs no model


def run(parameters: dict, progress, resumable: bool = True, jobs: int = 1) -> Outcome:
    """Learn every class, code images in both ways, classify each reading; see the module.

    ``resumable`` is there for the sake of form: classes, and codes of images, are kept always.
    """
    p = parameters
    check_enough(p)
    p = p | {"classes": classes_of(p), "refined": False}
    train, test = pictures(p)
    both = [normalised(part) for part in (train, test)]
    classes = learn_classes(p, both[0], jobs, progress)
    folder = checkpoint_folder(NAME, parameters)
    kinds = (SAMPLE, *AVERAGES.values())
    codes = [
        encode(part, classes, "pretrained", p, first, folder, progress, kinds)
        for part, first in zip(both, (0, 10**6), strict=True)
    ]
    right, truth = {}, test[LABEL].values
    for name, pair in readings(codes, both, together(classes, "pretrained"), p):
        right[name] = predict(*pair, train, test, p) == truth
    small = [shrink(part, max(1, part.sizes["row"] // SMALL)) for part in (train, test)]
    right[PIXELS] = predict(*small, train, test, p) == truth
    dataset = xr.Dataset({
        "right": (("reading", IMAGE), list(right.values())),
        "active": (IMAGE, (codes[1][SAMPLE] != 0).sum(axis=1)),
    }, {"reading": list(right), "class": list(p["classes"]), LABEL: (IMAGE, truth)})  # fmt: skip
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    return Outcome(dataset, {"model": model}, p["data"], train.attrs["checksum"], p["seed"])


def readings(
    codes: list[dict[str, np.ndarray]], both: list[xr.DataArray], known: tuple[np.ndarray, float, float], p: dict
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield the name of each reading and its features of the training and the test images, (image, feature) each.

    ``codes`` : of the chains; ``both`` : normalised images; ``known`` : atoms, gamma_e and gamma_w
    """
    atoms, gamma_e, gamma_w = known
    yield PRINTED, [part[SAMPLE] for part in codes]
    yield "chain, sample without signs", [np.abs(part[SAMPLE]) for part in codes]
    for words, name in AVERAGES.items():
        yield f"chain, {words}", [part[name] for part in codes]
    stride, given = MODELS[p["model"]].stride, {"gamma_e": gamma_e, "gamma_w": gamma_w}
    alone = [one_step_codes(part, atoms, stride, **given) for part in both]
    for words, name in AVERAGES.items():
        yield f"alone, {words}", [part[name].values.reshape(len(part[name]), -1) for part in alone]
    windows = cut_windows(both[0], atoms, p)
    alone = [one_step_codes(part, windows, stride, **given)["magnitude"].values for part in both]
    yield "windows of images alone, mean magnitude", [part.reshape(len(part), -1) for part in alone]


def cut_windows(images: xr.DataArray, atoms: np.ndarray, p: dict) -> np.ndarray:
    """As many windows of training images as there are atoms, of their size, all of the atoms' mean squared norm.

    Each class gives as many; which image, and where in it, is drawn. Returned in the shape of ``atoms``.
    """
    random, values, labels = generator(p["seed"]), images.values, images[LABEL].values
    size, names = atoms.shape[2:], np.unique(labels)
    of_class = np.repeat(names, len(atoms) // len(names))
    cut = []
    for name in of_class:
        image = values[random.choice(np.flatnonzero(labels == name))]
        top, left = (random.integers(whole - part + 1) for whole, part in zip(image.shape[1:], size, strict=True))
        cut.append(image[:, top : top + size[0], left : left + size[1]])
    windows = np.stack(cut)
    norms = [np.sqrt((each**2).sum((1, 2, 3), keepdims=True, dtype=float)) for each in (windows, atoms)]
    return (windows / norms[0] * np.sqrt((norms[1] ** 2).mean())).astype(atoms.dtype)
