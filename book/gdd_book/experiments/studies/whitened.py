"""Is it the atoms or the whitening? Features of digits that owe the model nothing, whitened as the best ones are.

Windows of digits take the atoms' place, k-means patches and scattering the features'. Page: book/mnist/best.
"""

import os
from collections.abc import Callable

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

from gdd import OneStepFeatures
from gdd.base.axes import ATOM, DICTIONARY
from gdd.inference.deformations import learn_whitening
from gdd_book.data import datasets
from gdd_book.data.subsets import generator
from gdd_book.evaluate.baselines import KYMATIO, learn_patches, patch_features, scattered
from gdd_book.experiments.common import Outcome, classify, experiment, outcome
from gdd_book.experiments.studies.mnist_features import DEFORMATIONS, PROTOCOL, reader
from gdd_book.experiments.studies.one_step import SCATTERING
from gdd_book.progress import Run

ATOMS, PATCHES = "atoms of layer 1", "k-means patches"
#: octaves of scattering; parts along each side over which patches are summed; pixels of the blur that is subtracted
OCTAVES, REGIONS, BLUR = 3, 4, 3.0


@experiment(
    "mnist-whitened", seed=0, draws=3,
    demo={"data": "digits", "n_learn": 100, "n_train": 100, "n_test": 100, "trials": 1, "patches": 40},
    paper={"data": "mnist", "n_learn": 1000, "n_train": 1000, "n_test": 10000, "trials": 5, "patches": 160},
)
def mnist_whitened(p: dict, run: Run) -> Outcome:
    """Whiten features that owe the model nothing as the best ones are. Error in %, (feature_kind, whitened, trial).

    ``windows 1`` and so on, ``draws`` times: windows of digits, as of `windows_like`. Scattering stands beside them
    where the variable `KYMATIO` names an interpreter that has kymatio. Atoms, windows, patches and whitening come from
    ``n_learn`` digits without labels.
    """
    unlabelled = datasets.load(p["data"], "train", n=p["n_learn"])
    test = datasets.load(p["data"], "test", n=p["n_test"])
    trains = [datasets.load(p["data"], "train", n=p["n_train"], seed=trial) for trial in range(p["trials"])]
    makers, rows, numbers = _makers(unlabelled, p), [], []
    with run.bar(2 * len(makers), "features") as bar:
        for make in makers.values():
            before, after, row = [make(train) for train in trains], make(test), []
            white = learn_whitening(unlabelled, make, DEFORMATIONS)
            for read in (lambda features: features, white.apply):
                pairs = [(read(features), read(after)) for features in before]
                row.append([
                    float(classify(pair, train, test, trial, PROTOCOL).error)
                    for trial, (pair, train) in enumerate(zip(pairs, trains, strict=True))
                ])
                bar.step()
            rows.append(row)
            numbers.append(after.shape[1])
    return outcome(xr.Dataset(
        {"error": (("feature_kind", "whitened", "trial"), rows), "features": ("feature_kind", numbers)},
        {"feature_kind": list(makers), "whitened": [False, True]},
    ), p, unlabelled, protocol=PROTOCOL)


def _makers(unlabelled: xr.DataArray, p: dict) -> dict[str, Callable[[xr.DataArray], np.ndarray]]:
    """How to make each kind of features, (image, feature), each set of about unit variance."""
    atoms = OneStepFeatures.digits(pretrained=True).dictionaries_
    dictionaries = {ATOMS: atoms} | {
        f"windows {draw}": windows_like(atoms, unlabelled, draw) for draw in range(1, p["draws"] + 1)
    }
    found = {name: reader(some).fit(unlabelled).transform for name, some in dictionaries.items()}
    patches = learn_patches(unlabelled, p["patches"], seed=p["seed"])
    plain = {PATCHES: lambda images: patch_features(images, patches, REGIONS).values}
    if KYMATIO in os.environ:
        plain[SCATTERING] = lambda images: scattered(images, OCTAVES)[0]
    for name, make in plain.items():
        unit = make(unlabelled).std()
        found[name] = lambda images, make=make, unit=unit: make(images) / unit
    return found


def windows_like(dictionaries: list[xr.DataArray], images: xr.DataArray, seed: int) -> list[xr.DataArray]:
    """As many windows as dictionaries have atoms, as large, high-pass, of unit norm; drawn by what they hold."""
    random, found = generator(seed), []
    sharp = images.values - gaussian_filter(images.values, (0, 0, BLUR, BLUR))
    for one in dictionaries:
        view = np.lib.stride_tricks.sliding_window_view(sharp, one.shape[2:], (2, 3))
        strong = (view**2).sum(axis=(1, 4, 5))
        chosen = random.choice(strong.size, one.sizes[ATOM], replace=False, p=strong.ravel() / strong.sum())
        image, row, col = np.unravel_index(chosen, strong.shape)
        cut = view[image, :, row, col]
        found.append(xr.DataArray(cut / np.sqrt((cut**2).sum(axis=(1, 2, 3), keepdims=True)), dims=DICTIONARY))
    return found
