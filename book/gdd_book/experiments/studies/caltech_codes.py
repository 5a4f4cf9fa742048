"""Readings of the paper's protocol on Caltech 101: the same atoms at other noise precisions, other features of a code.

Page: book/caltech/coding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.features import unfold
from gdd_book.data.subsets import generator
from gdd_book.experiments.caltech import CHOICES, PIXELS, Learned, check_enough, cut_windows, learn, shrink
from gdd_book.experiments.path import encode
from gdd_book.experiments.registry import Outcome, experiment
from gdd_book.progress import Run
from gdd_book.training import HEALTHY_CALTECH, MODELS

#: what stands in the atoms' place, beside the atoms of each stage as learned
ONE_NORM, WINDOWS = "atoms of one norm", "windows of training images"
#: of the baselines
UNSIGNED = PIXELS[1]
#: numbers of regions along each side of a map, of which each gives its largest magnitude
LEVELS = (1, 2, 4)
#: pairs of codes, of which the cosine is taken, with their signs and without
PAIRS, SIGNS = ("same class", "other classes", "one of the two shuffled"), ("with signs", "without signs")
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
    """Test images right, ``right`` (atoms, noise, feature_kind, image), by what codes them and by feature.

    ``energy`` (atoms, noise, image, class): what the atoms of each class draw of a test image; ``cosine``
    (atoms, noise, signs, pair): mean over pairs of test images.

    The projected atoms of all classes side by side, of each stage; those of the last at one norm; and windows cut from
    each class's training images in their place, as a control. At the paper's scale the atoms are those of
    `caltech-accuracy` with as many classes.
    """
    check_enough(p)
    learned = learn(p, run)
    truth, kinds = learned.test[LABEL].values, atoms_of(learned)
    _, (_, gamma_w) = learned.together(learned.classes[0].stage.values[-1])
    right, active, energy, cosine = [], [], [], []
    with run.bar(len(kinds) * len(p["noises"]) * sum(map(len, learned.both)), "deconvolving") as bar:
        for atoms, noise in product(kinds.values(), p["noises"]):
            settings = atoms, MODELS[p["model"]].stride, (noise, gamma_w), p
            codes = [encode(images, *settings, progress=bar.step).ml_sample.values for images in learned.both]
            energies = [energy_by_class(part, atoms, len(learned.classes)) for part in codes]
            right.append([predicted == truth for predicted in _predictions(learned, codes, energies)])
            energy.append(energies[1])
            cosine.append(cosines(codes[1], truth))
            active.append(np.mean([(part != 0).sum(axis=(1, 2, 3)).mean() for part in codes]))
    without = learned.baselines() | {UNSIGNED: [unfold(shrink(np.abs(part))).values for part in learned.both]}
    right_without = [learned.predict(pair) == truth for pair in without.values()]
    shape = len(kinds), len(p["noises"])
    return learned.outcome(xr.Dataset({
        "right": (("atoms", "noise", "feature_kind", IMAGE), np.reshape(right, (*shape, len(FEATURES), -1))),
        "active": (("atoms", "noise"), np.reshape(active, shape)),
        "energy": (("atoms", "noise", IMAGE, "class"), np.float32(energy).reshape(*shape, *energy[0].shape)),
        "cosine": (("atoms", "noise", "signs", "pair"), np.reshape(cosine, (*shape, *cosine[0].shape))),
        "right_without": (("baseline", IMAGE), right_without),
    }, {"atoms": list(kinds), "noise": list(p["noises"]), "feature_kind": list(FEATURES), "baseline": list(without),
        "signs": list(SIGNS), "pair": list(PAIRS), "class": list(learned.p["classes"]), LABEL: (IMAGE, truth)}))


def atoms_of(learned: Learned) -> dict[str, np.ndarray]:
    """What codes the images, (atom, plane, row, col) each: as many of each class, class by class."""
    stages = [str(stage) for stage in learned.classes[0].stage.values]
    found = {stage: learned.together(stage)[0] for stage in stages}
    last = found[stages[-1]]
    norms = np.sqrt((last.astype(float) ** 2).sum(axis=(1, 2, 3), keepdims=True))
    found[ONE_NORM] = last * (np.sqrt((norms**2).mean()) / norms)
    found[WINDOWS] = cut_windows(learned.both[0], last, generator(learned.p["seed"]))
    return found


def _predictions(learned: Learned, codes: Sequence[np.ndarray], energies: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Labels of the test images by each of `FEATURES`, from the codes of both sets and what their classes draw."""
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


def cosines(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean cosine between codes (image, atom, row, col) of two images, (signs, pair) as `SIGNS` and `PAIRS` have them.

    Shuffled are the numbers of one of two codes of the same class: what two codes as sparse have in common by chance.
    """
    same = labels[:, None] == labels
    apart, found = ~np.eye(len(labels), dtype=bool), []
    for read in (np.asarray, np.abs):
        flat = read(weights).reshape(len(weights), -1).astype(float)
        flat /= np.linalg.norm(flat, axis=1, keepdims=True).clip(1e-12)
        between, chance = flat @ flat.T, generator(0).permuted(flat, axis=1) @ flat.T
        found.append([between[same & apart].mean(), between[~same].mean(), chance[same & apart].mean()])
    return np.array(found)
