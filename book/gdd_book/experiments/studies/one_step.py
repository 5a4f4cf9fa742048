"""What `gdd.OneStepFeatures` brings a user: errors with few labels, beside simple features."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import xarray as xr
from skimage import data
from skimage.color import rgb2gray
from sklearn.base import clone
from sklearn.datasets import load_sample_image

from gdd import OneStepFeatures
from gdd.base.axes import IMAGES, LABEL
from gdd.inference.block_magnitudes import unfold
from gdd.sampler.checkpoint import digest_of
from gdd_book.data import datasets
from gdd_book.data.subsets import generator
from gdd_book.evaluate.baselines import (
    KYMATIO,
    learn_patch_atoms,
    learn_patches,
    patch_features,
    principal_components,
    scattered,
)
from gdd_book.evaluate.classify import error
from gdd_book.experiments.common import Outcome, along, experiment, outcome
from gdd_book.experiments.studies.mnist_features import PROTOCOL
from gdd_book.progress import Run

# ---- which picture is a patch from?
#: pictures that come with scikit-image and scikit-learn, grey; none has a part that is all alike
PICTURES = ("brick", "grass", "gravel", "moon", "hubble_deep_field", "immunohistochemistry", "coins", "chelsea",
            "china.jpg", "flower.jpg")
#: rows and columns of a patch
SIDE = 32
#: shares of a picture's width, from the left, between which patches lie
TRAIN, TEST = (0.0, 0.6), (0.6, 1.0)


def texture_patches(count: int, seed: int, between: tuple[float, float] = TRAIN) -> xr.DataArray:
    """Patches (image, plane, row, col), ``count`` of each of `PICTURES`, ``between`` these shares of its width."""
    random, found = generator(seed), []
    for name in PICTURES:
        picture = load_sample_image(name) if name.endswith(".jpg") else getattr(data, name)()
        grey = rgb2gray(picture) if picture.ndim == 3 else picture / 255
        low, high = (round(share * grey.shape[1]) for share in between)
        part = grey[:, low:high]
        corners = (random.integers(0, n - SIDE + 1, count) for n in part.shape)
        found += [part[row : row + SIDE, col : col + SIDE] for row, col in zip(*corners, strict=True)]
    patches = np.stack(found)[:, None].astype(np.float32)
    labels = np.repeat(np.arange(len(PICTURES)), count)
    checksum = f"sha256:{digest_of([patches])}"
    return xr.DataArray(patches, {LABEL: ("image", labels)}, IMAGES, attrs={"checksum": checksum})


# ---- few labels
DATA = ("digits", "textures")
#: features by what they are learned from
PIXELS, COMPONENTS, PATCHES, DEFAULT = "raw pixels", "principal components", "k-means patches", "OneStepFeatures()"
#: scikit-learn's, see `gdd_book.evaluate.baselines.learn_patch_atoms`
ATOMS = "patches, dictionary learning"
TUNED = {
    "digits": "OneStepFeatures.digits(pretrained=True)",
    "textures": "OneStepFeatures(regions=(1, 2, 4), whitening=False)",
}
#: settings of ``TUNED`` for patches, chosen by the error on training images that were held out
FOR_TEXTURES = {"regions": (1, 2, 4), "whitening": False}
#: parts along each side over which patches are summed, and octaves of scattering (J): of the least error on the same
#: images, among 1 or 2 to 4 or 5 parts and 2 to 3 or 4 octaves
PARTS, OCTAVES = {"digits": 4, "textures": 1}, {"digits": 3, "textures": 4}
SCATTERING = "scattering (kymatio, numpy)"
#: seed of the test patches
TEST_SEED = 10**6


@experiment(
    "few-labels", choices={"data": DATA}, data="digits", patches=100, seed=0,
    demo={"counts": (10, 20), "trials": 1, "n_test": 20},
    paper={"counts": (10, 20, 50, 100), "trials": 5, "n_test": 50},
)
def few_labels(p: dict, run: Run) -> Outcome:
    """Test error in % by labelled images of a class, subset and feature; nothing is learned from any other image.

    The dictionaries of ``pretrained=True`` alone were learned elsewhere, on MNIST. ``n_test`` : test images of a class
    """
    size = 10 * p["n_test"]
    textures = p["data"] == "textures"
    test = texture_patches(p["n_test"], TEST_SEED, TEST) if textures else datasets.load("digits", "test", n=size)
    counts = {count: {} for count in p["counts"]}
    with run.bar(len(counts) * p["trials"], "few labels") as bar:
        for count, trials in counts.items():
            for trial in range(p["trials"]):
                seed = p["seed"] + trial
                train = texture_patches(count, seed) if textures else datasets.load("digits", n=10 * count, seed=seed)
                trials[trial] = along("feature_kind", dict(_few(train, test, p, seed)))
                bar.step()
    dataset = along("count", {count: along("trial", trials) for count, trials in counts.items()}).drop_vars("trial")
    settings = {"textures": FOR_TEXTURES, "pictures": PICTURES, "parts": PARTS, "octaves": OCTAVES}
    return outcome(dataset, p, test, protocol=PROTOCOL, **settings)


def _few(train: xr.DataArray, test: xr.DataArray, p: dict, seed: int) -> Iterator[tuple[str, xr.Dataset]]:
    """By feature the error in %, and seconds of processor time to learn and make it."""
    parts = PARTS[p["data"]]
    plain = OneStepFeatures(verbose=False, random_state=seed)
    tuned = OneStepFeatures.digits(pretrained=True, verbose=False)

    def for_textures() -> OneStepFeatures:
        """Its dictionary is the one that ``plain`` has learned from the same patches."""
        return clone(plain).set_params(**FOR_TEXTURES, atoms=plain.dictionaries_)

    makers: dict[str, Callable] = {
        PIXELS: lambda: unfold,
        COMPONENTS: lambda: principal_components(train, min(50, len(train) - 1)),
        PATCHES: lambda: _patches(train, learn_patches, p["patches"], parts, seed),
        ATOMS: lambda: _patches(train, learn_patch_atoms, p["patches"] // 2, parts, seed),  # each with its negative
        DEFAULT: lambda: plain.fit(train).transform,
        TUNED[p["data"]]: lambda: (for_textures() if p["data"] == "textures" else tuned).fit(train).transform,
    }
    if KYMATIO in os.environ:
        makers[SCATTERING] = lambda: partial(scattered, octaves=OCTAVES[p["data"]])
    for name, make in makers.items():
        begun = time.process_time()
        features = make()
        spent = time.process_time() - begun
        (before, first), (after, second) = _timed(features, train), _timed(features, test)
        wrong = error(before, train[LABEL], after, test[LABEL], PROTOCOL, seed).error
        yield name, xr.Dataset({"error": wrong, "seconds": spent + first + second})


def _patches(train: xr.DataArray, learn: Callable, count: int, parts: int, seed: int) -> Callable:
    learned = learn(train, count, seed=seed)
    return lambda images: patch_features(images, learned, parts)


def _timed(features: Callable, images: xr.DataArray) -> tuple[np.ndarray, float]:
    """Features, and the processor time that they took, which those of another interpreter bring themselves."""
    begun = time.process_time()
    found = features(images)
    return found if isinstance(found, tuple) else (found, time.process_time() - begun)
