"""Table 2: accuracy on Caltech 101 with the dictionaries of all classes side by side.

For each split a model is learned of every class on its own, in several processes if asked for. The projected atoms of
all classes together explain every training and test image in one layer of deconvolution, and the weights go to the
classifier. Three features that owe nothing to the model stand beside: raw pixels, gradients, k-means of patches.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import xarray as xr
from skimage.feature import hog

from gdd.base.axes import ATOM, IMAGE, LABEL
from gdd.base.checks import check_whole
from gdd.base.files import written_whole
from gdd.data import datasets
from gdd.data.contrast import normalise_contrast
from gdd.data.subsets import generator
from gdd.evaluate.baselines import learn_patches, patch_features
from gdd.evaluate.classify import SvmProtocol, error
from gdd.inference.deconvolution import deconvolve
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.caltech import DATA, HEALTHY, MODELS, model_for
from gdd_book.training.class_training import learn_classes

NAME = "caltech-accuracy"
#: its run takes ``jobs``, a number of processes, on which the result does not depend
IN_PARALLEL = True
_COMMON = {
    "data": "caltech101", "model": "three layers", "refined": True, "seeds": (0,), "voters": 10, **HEALTHY,
}  # fmt: skip
PARAMETERS = {
    "demo": {
        "n_classes": 3, "per_class": 10, "n_test": 10, "burn_in": 15, "collect": 5, "refine_burn_in": 6,
        "refine_collect": 2, "test_burn_in": 30, "test_collect": 10, **_COMMON,
    },
    "paper": {
        "n_classes": 101, "per_class": 30, "n_test": 1000, "burn_in": 1500, "collect": 500, "refine_burn_in": 1500,
        "refine_collect": 500, "test_burn_in": 500, "test_collect": 200, **_COMMON,
    },
}  # fmt: skip
CHOICES = {"data": DATA, "model": tuple(MODELS)}
KINDS = ("ml_sample", "mean")
#: all training images of the table are tuned on, as a class has too few to leave any out; the grid is short, as each of
#: its points takes 505 machines on 2,424 images; C is as in `gdd_book.experiments.mnist_best`
PROTOCOL = SvmProtocol(costs=(10.0,), gammas=(0.1, 0.5, 2.0), tune_on=5000)
BASELINES = ("raw pixels", "gradients", "k-means patches")
COUNTS = ("over images", "mean over classes")
BACKGROUND = ("left out", "counted as wrong")
#: what is taken over from the records of the classes
KEPT = ("residual", "active", "cpu_seconds", "sweeps", "winning_share")
#: images whose codes are made, and kept on disk, at once
AT_ONCE = 1000
SMALL = 32  # rows and columns of images as raw pixels, and as what patches are cut from
REGIONS = 5  # along each side of an image, for sums of patches: as many as an atom has positions


def run(parameters: dict, progress, resumable: bool = True, jobs: int = 1) -> Outcome:
    """Learn every class, deconvolve, classify, for each split; see the module.

    ``n_classes`` evenly spaced ones of the alphabetical list are taken, at most ``n_test`` test images of each.
    ``resumable`` is there for the sake of form: classes, and codes of images, are kept always.
    """
    p = parameters
    check_enough(p)
    names = classes_of(p)
    folder = checkpoint_folder(NAME, p)
    splits = [
        one_split(p | {"classes": names, "seed": seed}, folder / str(seed), jobs, progress)
        for seed in p["seeds"]
    ]
    dataset = xr.concat([split for split, _ in splits], "split", data_vars="all")
    dataset = dataset.assign_coords(split=list(p["seeds"]))
    checksum = splits[0][1]
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    return Outcome(dataset, {"model": model, "protocol": PROTOCOL}, p["data"], checksum, p["seeds"][0])


def check_enough(p: dict) -> None:
    """Refuse what no classifier can be tuned on, before the chains of hours."""
    for name, least in (("n_classes", 2), ("per_class", PROTOCOL.folds)):
        check_whole(f"parameter {name}", p[name], least)


def classes_of(p: dict) -> tuple[str, ...]:
    """``p["n_classes"]`` evenly spaced names of the alphabetical list, or all, without the background."""
    known = [name for name in datasets.class_names(p["data"]) if name not in ("BACKGROUND_Google", "clutter")]
    n = min(p["n_classes"], len(known))
    return tuple(known[round(i * (len(known) - 1) / max(1, n - 1))] for i in range(n))


def one_split(p: dict, folder: Path, jobs: int, progress) -> tuple[xr.Dataset, str]:
    """Accuracy in % of every feature on one split, what the classes' chains cost, and the data's checksum.

    ``folder`` : where codes are kept
    """
    train, test = pictures(p)
    both = [normalised(part) for part in (train, test)]
    classes = learn_classes(p, both[0], jobs, progress)
    found, seconds, active = {}, [], []
    stages = classes[0].stage.values
    for stage in stages:
        codes = [
            encode(part, classes, stage, p, first, folder, progress)
            for part, first in zip(both, (0, 10**6), strict=True)
        ]
        seconds.append(sum(part["cpu_seconds"] for part in codes) / sum(map(len, both)))
        active.append(float((codes[1]["ml_sample"] != 0).sum(axis=1).mean()))
        for kind in KINDS:
            found[f"{stage}, {kind}"] = predict(codes[0][kind], codes[1][kind], train, test, p)
        del codes
    atoms = len(classes) * classes[0].sizes[ATOM]
    for name, features in baselines(train, test, atoms, p["seed"]).items():
        found[name] = predict(*features, train, test, p)
    truth, background = test[LABEL].values, min(background_images(p), p["n_test"])
    right = {name: predicted == truth for name, predicted in found.items()}
    own = np.array([[100 * hit[truth == label].mean() for label in np.unique(truth)] for hit in right.values()])
    chains = xr.concat([one[list(KEPT)] for one in classes], "class")
    shares = [rates(hit, part, background) for hit, part in zip(right.values(), own, strict=True)]
    dataset = xr.Dataset({
        "accuracy": (("feature_kind", "count", "background"), shares),
        "class_accuracy": (("feature_kind", "class"), own),
        "n_test_images": len(truth), "n_background": background, "n_atoms": atoms,
        "test_cpu_seconds": ("stage", seconds), "active_at_test": ("stage", active),
    }, {"feature_kind": list(found), "count": list(COUNTS), "background": list(BACKGROUND)})  # fmt: skip
    return dataset.merge(chains.assign_coords({"class": list(p["classes"])})), train.attrs["checksum"]


def rates(right: np.ndarray, by_class: np.ndarray, background: int) -> list[list[float]]:
    """Accuracy in %, in the order of `COUNTS` and `BACKGROUND`; background images are one class more, all wrong."""
    extra = background > 0
    return [
        [100 * right.mean(), 100 * right.sum() / (len(right) + background)],
        [by_class.mean(), by_class.sum() / (len(by_class) + extra)],
    ]


def pictures(p: dict) -> tuple[xr.DataArray, xr.DataArray]:
    """Training images, and at most ``p["n_test"]`` test images of each class, drawn by seed; pixels as they are."""
    known = {"classes": p["classes"], "per_class": p["per_class"], "seed": p["seed"]}
    known |= {"size": MODELS[p["model"]].image_size}
    train, test = (datasets.load(p["data"], split, **known) for split in ("train", "test"))
    order = generator(p["seed"]).permutation(len(test))
    labels = test[LABEL].values[order]
    chosen = np.concatenate([order[labels == label][: p["n_test"]] for label in np.unique(labels)])
    return train, test.isel(image=np.sort(chosen))


def background_images(p: dict) -> int:
    """How many pictures the background class has."""
    name = datasets.class_names(p["data"])[-1]
    return datasets.load(p["data"], "all", classes=[name], size=(2, 2)).sizes[IMAGE]


def normalised(images: xr.DataArray) -> xr.DataArray:
    """Contrast normalised, some images at a time: the double precision in between is large."""
    parts = [normalise_contrast(images.isel(image=slice(low, low + 200))) for low in range(0, len(images), 200)]
    return xr.concat(parts, IMAGE)


def together(classes: list[xr.Dataset], stage: str) -> tuple[np.ndarray, float, float]:
    """Projected atoms of all classes side by side, and the means of their noise and weight precisions."""
    atoms = np.concatenate([one.atoms.sel(stage=stage).values for one in classes])
    own = (np.array([one[name].sel(stage=stage) for one in classes]) for name in ("gamma_e", "gamma_w"))
    gamma_e, gamma_w = (float(values.mean()) for values in own)
    return atoms, gamma_e, gamma_w


def encode(
    images: xr.DataArray, classes: list[xr.Dataset], stage: str, p: dict, offset: int, folder: Path, progress,
    kinds: tuple[str, ...] = KINDS,
) -> dict:  # fmt: skip
    """One-layer deconvolution by the atoms of all classes, kept in ``folder`` in parts.

    Returns each of ``kinds``, (image, feature), and ``cpu_seconds`` of all images together.
    """
    atoms, gamma_e, gamma_w = together(classes, stage)
    parts = []
    stride = MODELS[p["model"]].stride
    with progress(len(images), f"deconvolving, {stage}") as bar:
        for low in range(0, len(images), AT_ONCE):
            some, path = images[low : low + AT_ONCE], folder / f"{stage}-{offset + low}.npz"
            if path.exists():
                bar.step(len(some))
            else:
                begun = time.process_time()
                codes = deconvolve(
                    some, atoms, stride, gamma_e=gamma_e, gamma_w=gamma_w, burn_in=p["test_burn_in"],
                    collect=p["test_collect"], seed=p["seed"], first_image=offset + low, progress=bar.step,
                )  # fmt: skip
                made = {kind: codes[kind].values.reshape(len(some), -1) for kind in kinds}
                keep(path, made | {"cpu_seconds": np.array(time.process_time() - begun)})
            with np.load(path) as stored:
                parts.append({name: stored[name] for name in stored.files})
    found = {kind: np.concatenate([part[kind] for part in parts]) for kind in kinds}
    return found | {"cpu_seconds": sum(float(part["cpu_seconds"]) for part in parts)}


def keep(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays, whole or not at all."""
    with written_whole(path) as part, open(part, "wb") as file:
        np.savez(file, **arrays)


def baselines(train: xr.DataArray, test: xr.DataArray, atoms: int, seed: int) -> dict[str, list]:
    """Features of training and test images by name: `BASELINES`, the last with as many numbers as the model's."""
    small = [shrink(part) for part in (train, test)]
    learned = learn_patches(small[0], atoms, seed=seed)
    gradients = [
        np.stack([hog(image, cells_per_block=(2, 2)) for image in part.values[:, 0]]) for part in (train, test)
    ]
    patches = [patch_features(part, learned, REGIONS) for part in small]
    return dict(zip(BASELINES, (small, gradients, patches), strict=True))


def shrink(images: xr.DataArray) -> xr.DataArray:
    """Means of squares of pixels, about `SMALL` of them along each side."""
    factor = max(1, images.sizes["row"] // SMALL)
    return images.coarsen(row=factor, col=factor, boundary="trim").mean()


def predict(train_features, test_features, train: xr.DataArray, test: xr.DataArray, p: dict) -> np.ndarray:
    """Labels of the test images, (image,); tuned and trained on the training images alone."""
    labels = train[LABEL].values, test[LABEL].values
    found = error(train_features, labels[0], test_features, labels[1], PROTOCOL, p["seed"])
    return found.predicted.values
