"""Readings of the paper's protocol on Caltech 101: one set of atoms, other scales and precisions, other features.

Page: book/caltech/accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr

from gdd.base.axes import LABEL
from gdd_book.experiments.caltech import CHOICES, Learned, baselines, check_enough, learn
from gdd_book.experiments.path import encode
from gdd_book.experiments.registry import Outcome, experiment
from gdd_book.progress import Run
from gdd_book.training import HEALTHY_CALTECH, MODELS, STAGES

#: of the atoms of all classes side by side: as learned, where all share the mean of the classes' weight precisions;
#: each class under its own; all atoms of one norm
AS_LEARNED, OWN_PRECISION, ONE_NORM = SCALES = (
    "as learned", "each class its own weight precision", "atoms of one norm",
)
#: numbers of regions along each side of a map, of which each gives its largest magnitude
LEVELS = (1, 2, 4)
#: what a classifier reads of one sample of the chain, the most likely; the last needs none
FEATURES = ("sample", "magnitudes", "largest magnitude of a region", "energy of each class", "class of most energy")


@experiment(
    "caltech-codes", choices=CHOICES, in_parallel=True, data="caltech101", model="two layers", refined=True, seed=0,
    voters=10, **HEALTHY_CALTECH,
    demo={"n_classes": 3, "per_class": 10, "n_test": 10, "burn_in": 15, "collect": 5, "refine_burn_in": 6,
          "refine_collect": 2, "noises": (3.0, 0.3), "test_burn_in": 30, "test_collect": 10},
    paper={"n_classes": 6, "per_class": 30, "n_test": 30, "burn_in": 1500, "collect": 500, "refine_burn_in": 1500,
           "refine_collect": 500, "noises": (3.0, 1.0, 0.3), "test_burn_in": 500, "test_collect": 200},
)
def caltech_codes(p: dict, run: Run) -> Outcome:
    """Test images right by way of coding and feature, ``right`` (way, feature, image).

    The atoms as learned code every image at each noise precision; at the first, also with the other `SCALES`. At the
    paper's scale the atoms are those of `caltech-accuracy` with as many classes.
    """
    check_enough(p)
    learned = learn(p, run)
    truth, stage = learned.test[LABEL].values, STAGES[p["refined"]]
    ways = [(AS_LEARNED, noise) for noise in p["noises"]] + [(scale, p["noises"][0]) for scale in SCALES[1:]]
    right, active = [], []
    with run.bar(len(ways) * sum(map(len, learned.both)), "deconvolving") as bar:
        for scale, noise in ways:
            atoms, gamma_w = scaled(learned, stage, scale)
            settings = atoms, MODELS[p["model"]].stride, (noise, gamma_w), p
            codes = [encode(images, *settings, progress=bar.step).ml_sample.values for images in learned.both]
            right.append([predicted == truth for predicted in _predictions(learned, codes, atoms)])
            active.append(np.mean([(part != 0).sum(axis=(1, 2, 3)).mean() for part in codes]))
    pixels = learned.predict(baselines(learned.train, learned.test, 8, p["seed"])["raw pixels"])
    names = [f"{scale}, noise precision {noise:g}" for scale, noise in ways]
    return learned.outcome(xr.Dataset({
        "right": (("way", "feature_kind", "image"), right), "active": ("way", active),
        "right_by_pixels": ("image", pixels == truth),
    }, {"way": names, "feature_kind": list(FEATURES), "class": list(learned.p["classes"]), LABEL: ("image", truth)}))


def scaled(learned: Learned, stage: str, scale: str) -> tuple[np.ndarray, float]:
    """Atoms of all classes, (atom, plane, row, col), on one of `SCALES`, and the weight precision of all.

    An atom divided by r, its weight precision divided by r^2, is the same model; so one precision will do for all.
    """
    atoms, (_, gamma_w) = learned.together(stage)
    if scale == ONE_NORM:
        norms = np.sqrt((atoms.astype(float) ** 2).sum(axis=(1, 2, 3), keepdims=True))
        atoms = atoms * (np.sqrt((norms**2).mean()) / norms)
    if scale == OWN_PRECISION:
        each = [float(one.gamma_w.sel(stage=stage)) for one in learned.classes]
        own = np.repeat(each, [one.sizes["atom"] for one in learned.classes])
        atoms = atoms * np.sqrt(gamma_w / own)[:, None, None, None]
    return atoms, gamma_w


def _predictions(learned: Learned, codes: Sequence[np.ndarray], atoms: np.ndarray) -> list[np.ndarray]:
    """Labels of the test images, by each of `FEATURES`, from weights (image, atom, row, col) of both sets."""
    energies = [energy_by_class(part, atoms, len(learned.classes)) for part in codes]
    pairs = (
        [part.reshape(len(part), -1) for part in codes], [np.abs(part).reshape(len(part), -1) for part in codes],
        [largest_of_regions(np.abs(part)) for part in codes], energies,
    )
    names = learned.train.attrs["label_names"].split(",")
    numbers = np.array([names.index(name) for name in learned.p["classes"]])
    return [*map(learned.predict, pairs), numbers[energies[1].argmax(axis=1)]]


def largest_of_regions(maps: np.ndarray) -> np.ndarray:
    """The largest entry of each map in each region of each of `LEVELS`, (image, feature)."""
    parts = []
    for level in LEVELS:
        rows, cols = (np.array_split(np.arange(size), level) for size in maps.shape[2:])
        parts += [maps[:, :, row][..., col].max(axis=(2, 3)) for row, col in product(rows, cols)]
    return np.concatenate(parts, axis=1)


def energy_by_class(weights: np.ndarray, atoms: np.ndarray, n_classes: int) -> np.ndarray:
    """Sum of squared weights times squared norms of atoms, over the atoms of each class in turn: (image, class)."""
    each = (weights**2).sum(axis=(2, 3)) * (atoms**2).sum(axis=(1, 2, 3))
    return each.reshape(len(weights), n_classes, -1).sum(axis=2)
