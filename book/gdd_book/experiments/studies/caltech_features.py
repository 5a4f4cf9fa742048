"""Caltech images classified without a chain: one-step features over a spatial pyramid, a linear classifier."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.linalg import qr
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import normalize

from gdd.base.axes import LABEL
from gdd.base.checks import check_whole
from gdd.one_step import OneStepFeatures
from gdd_book.data.subsets import generator
from gdd_book.experiments.caltech import CHOICES, baselines, check_enough, classes_of, train_and_test
from gdd_book.experiments.common import Outcome, experiment
from gdd_book.progress import Run


class Scale(NamedTuple):
    """A size at which images are read, with atoms that were learned at the model's size."""

    size: tuple[int, int]  # (row, col)
    levels: tuple[int, ...]  # regions along each side of an image, level by level of the pyramid
    weight: float  # share of the feature's squared norm


SCALES = (Scale((180, 180), (1, 2, 3, 4, 6), 0.8), Scale((64, 64), (1, 2, 3, 4), 0.2))
PATCHES = 400  # of the k-means features
PENALTIES = np.logspace(-4, 1, 11)
OURS = ("one-step features", "one-step features, two layers")
#: settings that a record names
NAMED = ("pool", "margin", "noise_precision", "weight_precision", "blur", "local_contrast", "second")


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
    The settings of `gdd.OneStepFeatures.photos` were chosen on training images of the first split alone, 21 classes
    for layer 1, all for layer 2; two thirds of the images to learn from and one third to judge.
    """
    check_enough(p)
    check_whole("parameter counts", max(p["counts"]), 1, p["per_class"])
    photos = OneStepFeatures.photos()
    learned = {"atoms": photos.atoms, "sizes": photos.sizes} | {name: getattr(photos.settings, name) for name in NAMED}
    own = [p | {"classes": classes_of(p), "seed": seed} for seed in p["seeds"]]
    depends = {"learned_with": json.dumps(learned, default=asdict)}
    tasks = [(one, run.folder("caltech-best", one | depends), run.for_tasks()) for one in own]
    splits = list(run.each(_one_split, tasks))
    dataset = xr.concat(splits, "split", data_vars=["accuracy", "n_test_images"]).assign_coords(split=list(p["seeds"]))
    checksum = dataset.attrs.pop("checksum")
    return Outcome(dataset, learned | {"scales": SCALES}, p["data"], checksum, p["seeds"][0])


def _one_split(p: dict, folder: Path | None, run: Run) -> xr.Dataset:
    """Accuracy of every feature, (count, feature_kind); ``folder`` : of checkpoints."""
    (train, test), scaled = train_and_test(p), [train_and_test(p, scale.size) for scale in SCALES]
    learned = _learn(train, p, folder)
    coded = [code(part, learned) for part in zip(*scaled, strict=True)]
    features = dict(zip(OURS, zip(*coded, strict=True), strict=True))
    features |= baselines(train, test, PATCHES, p["seed"])
    labels, shares = (train[LABEL].values, test[LABEL].values), []
    with run.bar(len(p["counts"]) * len(features), f"classifying, split {p['seed']}") as bar:
        for count in p["counts"]:
            chosen, row = pd.Series(labels[0]).groupby(labels[0]).cumcount().values < count, []
            for pair in features.values():
                row.append(accuracy((pair[0][chosen], pair[1]), (labels[0][chosen], labels[1])))
                bar.step()
            shares.append(row)
    return xr.Dataset(
        {"accuracy": (("count", "feature_kind"), shares), "n_test_images": len(test)},
        {"count": list(p["counts"]), "feature_kind": list(features)}, {"checksum": train.attrs["checksum"]},
    )


def _learn(images: xr.DataArray, p: dict, folder: Path | None) -> OneStepFeatures:
    """Two layers from some of the training images."""
    some = images[np.sort(generator(p["seed"]).permutation(len(images))[: p["n_learn"]])]
    asked = {"sweeps": (p["burn_in"], p["collect"]), "random_state": p["seed"], "checkpoint": folder}
    return OneStepFeatures.photos(**asked, learn_from=len(some), rescale=False).fit(some)


def code(scaled: Sequence[xr.DataArray], learned: OneStepFeatures) -> tuple[np.ndarray, np.ndarray]:
    """Features (image, feature) of layer 1 and of both side by side; ``scaled`` : images at each of `SCALES`."""
    lower, both = [], []
    for images, scale in zip(scaled, SCALES, strict=True):
        read = learned.for_size(scale.size, regions=scale.levels)
        both.append(read.transform(images) * np.float32(scale.weight**0.5))
        lower.append(both[-1][:, : len(learned.dictionaries_[0]) * sum(level**2 for level in scale.levels)])
    return np.concatenate(lower, axis=1), np.concatenate(both, axis=1)


def accuracy(features: tuple[np.ndarray, np.ndarray], labels: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy in % of a linear classifier, by features (image, feature) and labels of training and of test images.

    Least squares with a penalty chosen by leave-one-out error, in coordinates of what the training images, of unit
    norm, span: no weight ever leaves that space.
    """
    train, test = map(normalize, features)
    basis, coordinates = qr(train.T, overwrite_a=True, mode="economic", check_finite=False)  # in place: gigabytes
    machine = RidgeClassifierCV(PENALTIES).fit(coordinates.T, labels[0])
    return 100 * machine.score(test @ basis, labels[1])
