"""Caltech images classified without a chain: one-step features over a spatial pyramid, a linear classifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import qr
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import normalize

from gdd.base.axes import LABEL
from gdd.base.checks import check_whole
from gdd.inference.features import one_step_features
from gdd.model.spec import ChainSpec
from gdd_book.data.subsets import generator
from gdd_book.experiments.caltech import CHOICES, baselines, check_enough, classes_of, train_and_test
from gdd_book.experiments.registry import Outcome, experiment
from gdd_book.feed_forward import FeedForward, learn_atoms
from gdd_book.progress import Run
from gdd_book.training import normalised

#: chosen on training images of the first split alone: 21 classes for layer 1, all for layer 2; two thirds of the images
#: to learn from and one third to judge
LOWER, LOWER_ATOMS, LOWER_SIZE = FeedForward((4, 4), 1, 25.0, 0.3), 64, (13, 13)
UPPER, UPPER_ATOMS, UPPER_SIZE = FeedForward((2, 2), 0, 10.0, 0.1, 0.0), 1024, (6, 6)


class Scale(NamedTuple):
    """A size at which images are read, with atoms that were learned at the model's size."""

    size: tuple[int, int]  # (row, col)
    levels: tuple[int, ...]  # regions along each side of an image, level by level of the pyramid
    weight: float  # share of the feature's squared norm


SCALES = (Scale((180, 180), (1, 2, 3, 4, 6), 0.8), Scale((64, 64), (1, 2, 3, 4), 0.2))
AT_ONCE = 250  # images whose maps are held
PATCHES = 400  # of the k-means features
PENALTIES = np.logspace(-4, 1, 11)
OURS = ("one-step features", "one-step features, two layers")


@experiment(
    "caltech-best", choices=CHOICES, in_parallel=True, data="caltech101", model="two layers",
    demo={"n_classes": 3, "per_class": 10, "counts": (5, 10), "n_test": 10, "seeds": (0,), "n_learn": 20,
          "burn_in": 10, "collect": 2},
    paper={"n_classes": 101, "per_class": 30, "counts": (15, 30), "n_test": 30, "seeds": (0, 1, 2), "n_learn": 101,
           "burn_in": 40, "collect": 5},
)
def caltech_best(p: dict, run: Run) -> Outcome:
    """Accuracy in % for each split, number of training images of a class, and feature.

    The atoms come from ``n_learn`` training images of all classes, without labels: those of layer 1, then those of
    layer 2 from its maps. The first of each class's training images are those of the smaller numbers in ``counts``.
    """
    check_enough(p)
    check_whole("parameter counts", max(p["counts"]), 1, p["per_class"])
    learned = {"features": (LOWER, UPPER), "sizes": (LOWER_SIZE, UPPER_SIZE), "atoms": (LOWER_ATOMS, UPPER_ATOMS)}
    own = [p | {"classes": classes_of(p), "seed": seed} for seed in p["seeds"]]
    depends = {"learned_with": json.dumps(learned, default=asdict)}
    tasks = [(one, run.folder("caltech-best", one | depends), run.for_tasks()) for one in own]
    splits = list(run.each(_one_split, tasks))
    dataset = xr.concat(splits, "split", data_vars=["accuracy", "n_test_images"]).assign_coords(split=list(p["seeds"]))
    checksum = dataset.attrs.pop("checksum")
    return Outcome(dataset, learned | {"scales": SCALES}, p["data"], checksum, p["seeds"][0])


def _one_split(p: dict, folder: Path | None, run: Run) -> xr.Dataset:
    """Accuracy of every feature, (count, feature_kind); ``folder`` : of checkpoints."""
    train, test = train_and_test(p)
    layers = _learn(normalised(train), p, folder, run)
    features = dict(zip(OURS, zip(*_coded(p, layers), strict=True), strict=True))
    features |= baselines(train, test, PATCHES, p["seed"])
    labels, shares = (train[LABEL].values, test[LABEL].values), []
    with run.bar(len(p["counts"]) * len(features), f"classifying, split {p['seed']}") as bar:
        for count in p["counts"]:
            chosen = first_of_each(labels[0], count)
            row = []
            for pair in features.values():
                row.append(accuracy((pair[0][chosen], pair[1]), (labels[0][chosen], labels[1])))
                bar.step()
            shares.append(row)
    return xr.Dataset(
        {"accuracy": (("count", "feature_kind"), shares), "n_test_images": len(test)},
        {"count": list(p["counts"]), "feature_kind": list(features)}, {"checksum": train.attrs["checksum"]},
    )


def _coded(p: dict, layers: Layers) -> list[tuple[np.ndarray, np.ndarray]]:
    """What `code` makes of training and of test images."""
    scaled = [[normalised(part) for part in train_and_test(p, scale.size)] for scale in SCALES]
    return [code(part, layers) for part in zip(*scaled, strict=True)]


class Layers(NamedTuple):
    """What one-step features of two layers are made with."""

    lower: xr.DataArray  # (atom, plane, atom_row, atom_col)
    centre: np.ndarray  # (plane, 1, 1): mean of layer 1's maps over images and places
    scale: float
    upper: xr.DataArray | None = None

    def pass_on(self, maps: np.ndarray) -> np.ndarray:
        """Layer 1's maps as layer 2 sees them, in the units of the model."""
        return (maps - self.centre) * self.scale

    def maps(self, images: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
        """Answers of both layers, each (image, atom, row, col)."""
        lower = answers(images, self.lower, LOWER)
        return lower, answers(self.pass_on(lower), self.upper, UPPER)


def _learn(images: xr.DataArray, p: dict, folder: Path | None, run: Run) -> Layers:
    """Dictionaries from some of the training images, of layer 2 from layer 1's maps."""
    some = images[np.sort(generator(p["seed"]).permutation(len(images))[: p["n_learn"]])]
    chain = ChainSpec(p["burn_in"], p["collect"], p["seed"])
    folders = [folder and folder / layer for layer in ("1", "2")]
    with run.bar(2 * chain.sweeps, f"learning, split {p['seed']}") as bar:
        lower = learn_atoms(some, LOWER_ATOMS, LOWER_SIZE, LOWER, chain, folders[0], bar)
        maps = answers(some, lower, LOWER)
        centre = maps.mean(axis=(0, 2, 3))[:, None, None]
        layers = Layers(lower, centre, float(1 / (3 * (maps - centre).std())))
        upper = learn_atoms(layers.pass_on(maps), UPPER_ATOMS, UPPER_SIZE, UPPER, chain, folders[1], bar)
    return layers._replace(upper=upper)


def answers(images: xr.DataArray | np.ndarray, atoms: xr.DataArray, spec: FeedForward) -> np.ndarray:
    """One-step features (image, atom, row, col), at each block over their norm there.

    The norm is kept above the image's root mean square.
    """
    given = {"gamma_e": spec.noise_precision, "gamma_w": spec.weight_precision, "margin": spec.margin}
    maps = one_step_features(images, atoms, spec.pool, **given).values
    energy = (maps**2).sum(axis=1, keepdims=True)
    return maps / np.sqrt(energy + energy.mean(axis=(2, 3), keepdims=True))


def code(scaled: Sequence[xr.DataArray], layers: Layers) -> tuple[np.ndarray, np.ndarray]:
    """Features, (image, feature), of layer 1 and of both layers side by side.

    ``scaled`` : the normalised images at each of `SCALES`
    """
    found = []
    for low in range(0, len(scaled[0]), AT_ONCE):
        maps = [layers.maps(images[low : low + AT_ONCE]) for images in scaled]
        parts = [[pyramid(part, scale) for part in both] for both, scale in zip(maps, SCALES, strict=True)]
        lower, upper = (np.concatenate(kind, axis=1) for kind in zip(*parts, strict=True))
        found.append((lower, np.concatenate([lower, upper], axis=1)))
    return tuple(np.concatenate(kind) for kind in zip(*found, strict=True))


def pyramid(maps: np.ndarray, scale: Scale) -> np.ndarray:
    """Square root of what is largest of every map in each region, all levels of one norm: (image, feature).

    Maps (image, atom, row, col).
    """
    found = []
    for level in scale.levels:
        rows, cols = ([part[0] for part in np.array_split(np.arange(n), level)] for n in maps.shape[2:])
        largest = np.maximum.reduceat(np.maximum.reduceat(maps, rows, axis=2), cols, axis=3)
        found.append(normalize(np.sqrt(largest.reshape(len(maps), -1))))
    return np.concatenate(found, axis=1) * maps.dtype.type((scale.weight / len(found)) ** 0.5)


def accuracy(features: tuple[np.ndarray, np.ndarray], labels: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy in % of a linear classifier, by features (image, feature) and labels of training and of test images.

    Least squares with a penalty that leave-one-out error on the training images chooses. It sees images of unit norm,
    in coordinates of what the training images span: no weight ever leaves that space, and they are far fewer than
    features.
    """
    train, test = map(normalize, features)
    basis, coordinates = qr(train.T, overwrite_a=True, mode="economic", check_finite=False)  # in place: gigabytes
    machine = RidgeClassifierCV(PENALTIES).fit(coordinates.T, labels[0])
    return 100 * machine.score(test @ basis, labels[1])


def first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first ``count`` images of every label."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))
