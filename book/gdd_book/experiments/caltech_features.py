"""Caltech images classified by layer 1 alone: one-step features, pooled over a spatial pyramid, a linear classifier."""

from __future__ import annotations

import time

import numpy as np
import xarray as xr
from skimage.feature import hog
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from gdd.base.axes import LABEL
from gdd.data.subsets import generator
from gdd.evaluate.baselines import learn_patches, patch_features
from gdd.inference.features import FeedForward, learn_atoms, one_step_features, unfold
from gdd.model.spec import ChainSpec
from gdd_book.experiments.caltech import AT_ONCE, REGIONS, check_enough, classes_of, shrink, train_and_test
from gdd_book.experiments.registry import Outcome, experiment
from gdd_book.progress import Run
from gdd_book.training import CALTECH, normalised

#: chosen on training images of the first split alone, 21 classes, two thirds to learn from and one third to judge
SIZES, ATOMS, FEATURES = (13,), 64, FeedForward((4, 4), 1, 25.0, 0.3)
LEVELS = (1, 2, 3, 4, 6)  # regions along each side of an image, level by level of the pyramid
PATCHES = 400  # of the k-means features
PENALTIES = np.logspace(-4, 1, 11)
OURS = "one-step features"
BY_SPLIT = ("accuracy", "cpu_seconds", "n_test_images")


@experiment(
    "caltech-best", choices={"data": CALTECH}, data="caltech101", model="two layers",
    demo={"n_classes": 3, "per_class": 10, "counts": (5, 10), "n_test": 10, "seeds": (0,), "n_learn": 20,
          "burn_in": 10, "collect": 2},
    paper={"n_classes": 101, "per_class": 30, "counts": (15, 30), "n_test": 30, "seeds": (0, 1, 2), "n_learn": 101,
           "burn_in": 40, "collect": 5},
)
def caltech_best(p: dict, run: Run) -> Outcome:
    """Accuracy in % for each split, number of training images of a class, and feature.

    The atoms of layer 1 come from ``n_learn`` training images of all classes, without labels. The first of each
    class's training images are those of the smaller numbers in ``counts``.
    """
    check_enough(p)
    p = p | {"classes": classes_of(p)}
    splits = [_one_split(p | {"seed": seed}, run) for seed in p["seeds"]]
    dataset = xr.concat(splits, "split", data_vars=list(BY_SPLIT)).assign_coords(split=list(p["seeds"]))
    checksum = dataset.attrs.pop("checksum")
    spec = {"features": FEATURES, "sizes": SIZES, "atoms": ATOMS, "levels": LEVELS}
    return Outcome(dataset, spec, p["data"], checksum, p["seeds"][0])


def _one_split(p: dict, run: Run) -> xr.Dataset:
    """Accuracy of every feature, (count, feature_kind), and what our features take."""
    train, test = train_and_test(p)
    both = [normalised(part) for part in (train, test)]
    atoms = _learn(both[0], p, run)
    begun = time.process_time()
    features = {OURS: [code(part, atoms) for part in both]}
    seconds = (time.process_time() - begun) / (len(train) + len(test))
    features |= baselines(train, test, p["seed"])
    labels, shares = (train[LABEL].values, test[LABEL].values), []
    with run.bar(len(p["counts"]) * len(features), f"classifying, split {p['seed']}") as bar:
        for count in p["counts"]:
            chosen = first_of_each(labels[0], count)
            row = []
            for pair in features.values():
                machine = classifier().fit(pair[0][chosen], labels[0][chosen])
                row.append(100 * machine.score(pair[1], labels[1]))
                bar.step()
            shares.append(row)
    return xr.Dataset(
        {"accuracy": (("count", "feature_kind"), shares), "cpu_seconds": seconds, "n_test_images": len(test),
         "n_features": ("feature_kind", [pair[0].shape[1] for pair in features.values()])},
        {"count": list(p["counts"]), "feature_kind": list(features)}, {"checksum": train.attrs["checksum"]},
    )


def _learn(images: xr.DataArray, p: dict, run: Run) -> list[xr.DataArray]:
    """Dictionaries of layer 1, of every size, from some of the training images."""
    some = images[np.sort(generator(p["seed"]).permutation(len(images))[: p["n_learn"]])]
    chain, found = ChainSpec(p["burn_in"], p["collect"], p["seed"]), []
    for side in SIZES:
        with run.bar(chain.sweeps, f"learning layer 1, {side} x {side}, split {p['seed']}") as bar:
            folder = run.folder("caltech-best", p, str(side))
            found.append(learn_atoms(some, ATOMS, (side, side), FEATURES, chain, folder, bar))
    return found


def code(images: xr.DataArray, dictionaries: list[xr.DataArray]) -> np.ndarray:
    """Features of normalised images, (image, feature): what is largest of every atom in each region of the pyramid.

    At each block the features of a dictionary's atoms are divided by their norm, which is kept above the image's root
    mean square.
    """
    given = {"gamma_e": FEATURES.noise_precision, "gamma_w": FEATURES.weight_precision, "margin": FEATURES.margin}
    parts = []
    for atoms in dictionaries:
        for low in range(0, len(images), AT_ONCE):
            maps = one_step_features(images[low : low + AT_ONCE], atoms, FEATURES.pool, **given).values
            energy = (maps**2).sum(axis=1, keepdims=True)
            maps /= np.sqrt(energy + energy.mean(axis=(2, 3), keepdims=True))
            parts.append(pyramid(maps))
    return np.concatenate(np.split(np.concatenate(parts), len(dictionaries)), axis=1)


def pyramid(maps: np.ndarray) -> np.ndarray:
    """Largest value of every map in each region, (image, feature); maps (image, atom, row, col)."""
    found = []
    for level in LEVELS:
        rows, cols = ([part[0] for part in np.array_split(np.arange(n), level)] for n in maps.shape[2:])
        largest = np.maximum.reduceat(np.maximum.reduceat(maps, rows, axis=2), cols, axis=3)
        found.append(largest.reshape(len(maps), -1))
    return np.concatenate(found, axis=1)


def baselines(train: xr.DataArray, test: xr.DataArray, seed: int) -> dict[str, list[np.ndarray]]:
    """Features that owe nothing to the model."""
    both = train, test
    small = [shrink(part) for part in both]
    patches = learn_patches(small[0], PATCHES, seed=seed)
    return {
        "gradients": [np.stack([hog(image, cells_per_block=(2, 2)) for image in part.values[:, 0]]) for part in both],
        "k-means patches": [patch_features(part, patches, REGIONS).values for part in small],
        "raw pixels": [unfold(part).values for part in small],
    }


def classifier():
    """Linear: least squares with a penalty that leave-one-out error on the training images chooses."""
    return make_pipeline(Normalizer(), RidgeClassifierCV(PENALTIES))


def first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first ``count`` images of every label."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))
