"""What a classifier can read off the same projected atoms: from a chain, and from each atom alone with the image.

As in `gdd_book.experiments.caltech_accuracy` a model is pretrained of every class on its own, and the projected atoms
of all
classes stand side by side. Every image is coded by them in two ways: by the paper's chain, in which atoms share what
they explain, and in one step, each coefficient as if it were alone with the image. Weights are read with their sign or
without. Windows cut from the training images take the atoms' place, three times; pixels stand beside.
The book's page is caltech/accuracy, "How much the reading loses".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.data.subsets import generator
from gdd.inference.features import one_step_codes, unfold
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.experiments.caltech_accuracy import (
    check_enough,
    classes_of,
    encode,
    normalised,
    pictures,
    predict,
    shrink,
    together,
)
from gdd_book.training.caltech import DATA, HELD, MODELS, model_for
from gdd_book.training.class_training import learn_classes

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
#: averages of a chain, or of an atom alone with the image, by the words of the record
AVERAGES = {"mean": "mean", "mean magnitude": "magnitude", "how probably active": "inclusion"}
SAMPLE = "ml_sample"  # of a chain, the one of highest likelihood: what the paper takes
PAPERS_READING = "chain, sample"
#: the normalised pictures themselves, which atoms are held against, and the pictures as they were
PIXELS = ("normalised pixels", "normalised pixels without signs", "raw pixels")
WINDOWS = tuple(f"windows {draw} alone, mean magnitude" for draw in (1, 2, 3))
READINGS = (
    PAPERS_READING, "chain, sample without signs", *(f"chain, {words}" for words in AVERAGES),
    *(f"alone, {words}" for words in AVERAGES), *WINDOWS, *PIXELS,
)  # fmt: skip


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
    active, truth = (codes[1][SAMPLE] != 0).sum(axis=1), test[LABEL].values
    features = chain_readings(codes), one_step_readings(both, together(classes, "pretrained"), p)
    pixels = ([shrink(part) for part in pair] for pair in (both, [np.abs(part) for part in both], (train, test)))
    right = [predict(*pair, train, test, p) == truth for pair in chain(*features, pixels)]
    dataset = xr.Dataset(
        {"right": (("reading", IMAGE), right), "active": (IMAGE, active)},
        {"reading": list(READINGS), "class": list(p["classes"]), LABEL: (IMAGE, truth)},
    )
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    return Outcome(dataset, {"model": model}, p["data"], train.attrs["checksum"], p["seed"])


def chain_readings(codes: list[dict[str, np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Yield features of training and test images, (image, feature) each, in the order of `READINGS`.

    ``codes`` : of `encode`, which are used up, as each takes some hundred MB
    """
    sample = [part.pop(SAMPLE) for part in codes]
    yield sample
    yield [np.abs(part) for part in sample]
    del sample
    for name in AVERAGES.values():
        yield [part.pop(name) for part in codes]


def one_step_readings(
    both: list[xr.DataArray], known: tuple[np.ndarray, float, float], p: dict
) -> Iterator[list[np.ndarray]]:
    """Yield such features without a chain, by the atoms and then by windows in their place.

    ``both`` : normalised training and test images; ``known`` : atoms, gamma_e and gamma_w
    """
    atoms, gamma_e, gamma_w = known
    stride, random = MODELS[p["model"]].stride, generator(p["seed"])

    def alone(placed: np.ndarray) -> list[xr.Dataset]:
        return [one_step_codes(part, placed, stride, gamma_e=gamma_e, gamma_w=gamma_w) for part in both]

    codes = alone(atoms)
    for name in AVERAGES.values():
        yield [unfold(code[name]).values for code in codes]
    del codes
    for _ in WINDOWS:
        yield [unfold(code["magnitude"]).values for code in alone(cut_windows(both[0], atoms, random))]


def cut_windows(images: xr.DataArray, atoms: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """As many windows of training images as there are atoms, of their size, all of the atoms' mean squared norm.

    Each class gives as many; which image, and where in it, is drawn. Returned in the shape of ``atoms``.
    """
    values, labels = images.values, images[LABEL].values
    size, names = atoms.shape[2:], np.unique(labels)
    cut = []
    for name in np.repeat(names, len(atoms) // len(names)):
        image = values[random.choice(np.flatnonzero(labels == name))]
        top, left = (random.integers(whole - part + 1) for whole, part in zip(image.shape[1:], size, strict=True))
        cut.append(image[:, top : top + size[0], left : left + size[1]])
    windows = np.stack(cut)
    norms = [np.sqrt((each**2).sum((1, 2, 3), keepdims=True, dtype=float)) for each in (windows, atoms)]
    return (windows / norms[0] * np.sqrt((norms[1] ** 2).mean())).astype(atoms.dtype)
