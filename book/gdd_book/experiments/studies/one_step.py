"""What `gdd.OneStepFeatures` brings a user: errors with few labels, beside simple features; cost; and of chains, seeds.

Every feature sees the same images and the same classifier. No test image reaches a feature or the tuning.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import xarray as xr
from skimage import data
from skimage.color import rgb2gray
from sklearn.base import clone
from sklearn.datasets import load_sample_image

from gdd import DeepDeconvolution, OneStepFeatures
from gdd.base.axes import IMAGES, LABEL
from gdd.features import DIGIT_SIZES
from gdd.inference.features import unfold
from gdd.sampler.checkpoint import digest_of
from gdd_book.benchmarks.harness import on_threads
from gdd_book.data import datasets
from gdd_book.data.subsets import generator
from gdd_book.evaluate.baselines import learn_patch_atoms, learn_patches, patch_features, principal_components
from gdd_book.evaluate.classify import error
from gdd_book.experiments.registry import Outcome, experiment, outcome
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
#: parts of ``TRAIN`` on which settings are chosen
TRIED, HELD = (0.0, 0.36), (0.36, 0.6)


def texture_patches(count: int, seed: int, between: tuple[float, float] = TRAIN) -> xr.DataArray:
    """Patches of `PICTURES`, ``count`` of each, at random places of a strip of each picture.

    Parameters
    ----------
    between : shares of the picture's width, from the left

    Returns
    -------
    (image, plane, row, col) of float32, 0 to 1, with ``label``, the number of the picture
    """
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
#: settings of ``TUNED`` for patches, chosen on training images, see `few_labels_settings`
FOR_TEXTURES = {"regions": (1, 2, 4), "whitening": False}
#: parts along each side over which patches are summed, and octaves of scattering (J): of the least error on the images
#: of `few_labels_settings`, among 1 or 2 to 4 or 5 parts and 2 to 3 or 4 octaves
PARTS, OCTAVES = {"digits": 4, "textures": 1}, {"digits": 3, "textures": 4}
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
    errors, seconds = [], []
    with run.bar(len(p["counts"]) * p["trials"], "few labels") as bar:
        for count in p["counts"]:
            rows = []
            for trial in range(p["trials"]):
                seed = p["seed"] + trial
                train = texture_patches(count, seed) if textures else datasets.load("digits", n=10 * count, seed=seed)
                rows.append(dict(_few(train, test, p, seed)))
                bar.step()
            errors.append([[error for error, _ in row.values()] for row in rows])
            seconds.append([[spent for _, spent in row.values()] for row in rows])
    axes = ("count", "trial", "feature_kind")
    dataset = xr.Dataset(
        {"error": (axes, errors), "seconds": (axes, seconds)},
        {"count": list(p["counts"]), "feature_kind": list(rows[0])},
    )
    settings = {"textures": FOR_TEXTURES, "pictures": PICTURES, "parts": PARTS, "octaves": OCTAVES}
    return outcome(dataset, p, test, protocol=PROTOCOL, **settings)


def _few(train: xr.DataArray, test: xr.DataArray, p: dict, seed: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Error in %, and seconds of processor time to learn and make the features, by feature."""
    parts = PARTS[p["data"]]
    plain = OneStepFeatures(verbose=False, random_state=seed)
    tuned = OneStepFeatures.digits(pretrained=True, verbose=False)

    def for_textures() -> OneStepFeatures:
        """Its dictionary is the one that ``plain`` has learned from the same patches."""
        return clone(plain).set_params(**FOR_TEXTURES, dictionaries=plain.dictionaries_)

    makers: dict[str, Callable] = {
        PIXELS: lambda: unfold,
        COMPONENTS: lambda: principal_components(train, min(50, len(train) - 1)),
        PATCHES: lambda: _patches(train, learn_patches, p["patches"], parts, seed),
        ATOMS: lambda: _patches(train, learn_patch_atoms, p["patches"] // 2, parts, seed),  # each with its negative
        DEFAULT: lambda: plain.fit(train).transform,
        TUNED[p["data"]]: lambda: (for_textures() if p["data"] == "textures" else tuned).fit(train).transform,
    }
    if interpreter := os.environ.get(KYMATIO):
        makers[SCATTERING] = lambda: partial(scattered, interpreter=interpreter, octaves=OCTAVES[p["data"]])
    for name, make in makers.items():
        begun = time.process_time()
        features = make()
        spent = time.process_time() - begun
        (before, first), (after, second) = _timed(features, train), _timed(features, test)
        wrong = error(before, train[LABEL], after, test[LABEL], PROTOCOL, seed).error
        yield name, (float(wrong), spent + first + second)


def _patches(train: xr.DataArray, learn: Callable, count: int, parts: int, seed: int) -> Callable:
    learned = learn(train, count, seed=seed)
    return lambda images: patch_features(images, learned, parts)


def _timed(features: Callable, images: xr.DataArray) -> tuple[np.ndarray, float]:
    """Features, and the processor time that they took, which those of another interpreter bring themselves."""
    begun = time.process_time()
    found = features(images)
    return found if isinstance(found, tuple) else (found, time.process_time() - begun)


# ---- scattering

#: interpreter with kymatio, whose scipy is another; rows of scattering are left out where the variable is not set
KYMATIO = "GDD_KYMATIO"
SCATTERING, ON_TORCH = "scattering (kymatio, numpy)", "scattering (kymatio, torch)"
#: what kymatio computes with, and how it takes an array
ENGINES = {
    SCATTERING: ("numpy", "numpy.asarray"), ON_TORCH: ("torch", "torch.set_num_threads(1) or torch.from_numpy"),
}
SCATTER = """
import sys, time, numpy, {0}
from kymatio.{0} import Scattering2D
images = numpy.load(sys.argv[1])
scatter, take = Scattering2D(J=int(sys.argv[3]), shape=images.shape[1:], L=8), {1}
scatter(take(images[:1]))
begun = time.process_time()
parts = [numpy.asarray(scatter(take(images[low:low + 100]))) for low in range(0, len(images), 100)]
spent = time.process_time() - begun
numpy.savez(sys.argv[2], features=numpy.concatenate(parts).reshape(len(images), -1).astype("float32"), spent=spent)
"""


def scattered(
    images: xr.DataArray, interpreter: str, kind: str = SCATTERING, octaves: int = 2
) -> tuple[np.ndarray, float]:
    """Features (image, feature) of one-plane images, and the processor time that they took; another interpreter's."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "images.npy", Path(folder) / "features.npz"
        np.save(before, images.values[:, 0])
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        script = SCATTER.format(*ENGINES[kind])
        command = [interpreter, "-c", script, str(before), str(after), str(octaves)]
        subprocess.run(command, check=True, env=alone)
        with np.load(after) as file:
            return file["features"], float(file["spent"])


# ---- settings, chosen on training images

ALL_BLOCKS = "blocks"
WAYS = {ALL_BLOCKS: None, "1, 2": (1, 2), "1, 2, 4": (1, 2, 4)}


@experiment(
    "few-labels-settings", choices={"data": DATA, "regions": tuple(WAYS)}, data="digits", seed=0, regions=tuple(WAYS),
    demo={"count": 5, "trials": 1}, paper={"count": 20, "trials": 5},
)
def few_labels_settings(p: dict, run: Run) -> Outcome:
    """Error in % on training images that were held out, by setting of `gdd.OneStepFeatures`; no test image is read.

    Digits: ``count`` of a class have labels, all other training digits are held out. Patches: those with labels are of
    ``TRIED``, those held out of ``HELD``. The setting for patches is that of the least mean error. Whether the default
    whitens is chosen by the product of both sets' mean errors, with blocks and no contrast normalised.
    """
    axes = ("trial", "local_contrast", "regions", "whitening")
    contrasts, ways, whitenings = (False, True), p["regions"], (True, False)
    errors = np.full((p["trials"], len(contrasts), len(ways), len(whitenings)), np.nan)
    with run.bar(p["trials"] * len(contrasts), "settings") as bar:
        for trial, (c, contrast) in product(range(p["trials"]), enumerate(contrasts)):
            seed = p["seed"] + trial
            train, held = _held_out(p["data"], p["count"], seed)
            first = OneStepFeatures(local_contrast=contrast, whitening=False, verbose=False, random_state=seed)
            known = first.fit(train).dictionaries_
            for (w, way), (n, whitening) in product(enumerate(ways), enumerate(whitenings)):
                asked = {"regions": WAYS[way], "whitening": whitening, "dictionaries": known}
                features = clone(first).set_params(**asked).fit(train).transform
                found = error(features(train), train[LABEL], features(held), held[LABEL], PROTOCOL, seed)
                errors[trial, c, w, n] = found.error
            bar.step()
    values = [int(one) for one in contrasts], list(ways), [int(one) for one in whitenings]
    dataset = xr.Dataset({"error": (axes, errors)}, dict(zip(axes[1:], values, strict=True)))
    return outcome(dataset, p, train, protocol=PROTOCOL)


def _held_out(data_name: str, count: int, seed: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Training images with labels, ``count`` of a class, and training images to judge by."""
    if data_name == "textures":
        return texture_patches(count, seed, TRIED), texture_patches(50, TEST_SEED + seed, HELD)
    train, every = datasets.load("digits", n=10 * count, seed=seed), datasets.load("digits")
    return train, every[~np.isin(every[datasets.NUMBER], train[datasets.NUMBER])]


# ---- cost, beside others

#: rows whose dictionaries are those of another
ADDED = {"one, whitened": "one dictionary", "four, whitened": "four dictionaries"}
ONE, FROM_FEW = DIGIT_SIZES[:1], "four, whitened, learned from 200"


@experiment(
    "one-step-cost", seed=0, patches=90,
    demo={"data": "digits", "n_train": 200, "n_test": 500},
    paper={"data": "mnist", "n_train": 1000, "n_test": 10000},
)
def one_step_cost(p: dict, run: Run) -> Outcome:
    """Test error in %, milliseconds an image and seconds of learning on one thread, in processor time, by feature.

    Features are learned from the labelled training digits alone, without labels. Compiling is not counted.
    """
    train = datasets.load(p["data"], "train", n=p["n_train"], seed=p["seed"])
    test = datasets.load(p["data"], "test", n=p["n_test"])
    plain, known = {"whitening": False}, {}
    asked = {
        "one dictionary": plain | {"sizes": ONE}, "one, whitened": {}, "four dictionaries": plain, "four, whitened": {},
        FROM_FEW: {"learn_from": 200}, "four, whitened, pretrained": {"pretrained": True},
    }

    def learned(name: str) -> Callable:
        """Whitened dictionaries are those of the row before; their learning is added below."""
        changes = asked[name] | ({"dictionaries": known["last"]} if name in ADDED else {})
        model = OneStepFeatures.digits(verbose=False, random_state=p["seed"], **changes).fit(train)
        known["last"] = model.dictionaries_
        return model.transform

    makers: dict[str, Callable] = {
        PIXELS: lambda: unfold,
        PATCHES: lambda: _patches(train, learn_patches, p["patches"], 4, p["seed"]),
        ATOMS: lambda: _patches(train, learn_patch_atoms, p["patches"] // 2, 4, p["seed"]),
    } | {name: partial(learned, name) for name in asked}
    if interpreter := os.environ.get(KYMATIO):
        makers |= {kind: partial(partial, scattered, interpreter=interpreter, kind=kind) for kind in ENGINES}
    found = {}
    with on_threads(1), run.bar(len(makers), "cost of features") as bar:
        OneStepFeatures(sweeps=(1, 1), atoms=4, verbose=False).fit(train[:50]).transform(train[:2])  # compiles
        for name, make in makers.items():
            begun = time.process_time()
            features = make()
            learning = time.process_time() - begun + (found[ADDED[name]][2] if name in ADDED else 0.0)
            before, _ = _timed(features, train)
            after, spent = _timed(features, test)
            wrong = float(error(before, train[LABEL], after, test[LABEL], PROTOCOL, p["seed"]).error)
            found[name] = wrong, 1000 * spent / len(test), learning, after.shape[1]
            bar.step()
    names, columns = ("error", "milliseconds", "learning", "numbers"), zip(*found.values(), strict=True)
    dataset = xr.Dataset(
        {name: ("feature_kind", list(values)) for name, values in zip(names, columns, strict=True)},
        {"feature_kind": list(found)},
    )
    return outcome(dataset, p, train, protocol=PROTOCOL)


# ---- features of chains, from seed to seed


@experiment(
    "chain-seeds", data="digits", seed=0,
    demo={"n_train": 60, "n_test": 20, "burn_in": 5, "collect": 3, "lengths": (10, 20), "chains": (1, 2)},
    paper={"n_train": 500, "n_test": 50, "burn_in": 60, "collect": 20, "lengths": (80, 320), "chains": (1, 4, 8)},
)
def chain_seeds(p: dict, run: Run) -> Outcome:
    """Correlation of features of `gdd.DeepDeconvolution` at two seeds, by sweeps and by chains that are averaged.

    A quarter of the sweeps is averaged, three quarters are thrown away.
    """
    train, test = (datasets.load(p["data"], split, n=p[n]) for split, n in (("train", "n_train"), ("test", "n_test")))
    model = DeepDeconvolution(pretrain=(p["burn_in"], p["collect"]), random_state=p["seed"], verbose=False).fit(train)
    most, found, milliseconds = max(p["chains"]), [], []
    with run.bar(len(p["lengths"]) * 2 * most, "chains") as bar:
        for length in p["lengths"]:
            model.set_params(infer=(length - length // 4, length // 4))
            begun, chains = time.process_time(), []
            for number in range(2 * most):
                model.seed_ = p["seed"] + number
                chains.append(model.transform(test))
                bar.step()
            milliseconds.append(1000 * (time.process_time() - begun) / len(test) / len(chains))
            halves = chains[:most], chains[most:]
            means = [[np.mean(half[:count], axis=0).ravel() for half in halves] for count in p["chains"]]
            found.append([float(np.corrcoef(*pair)[0, 1]) for pair in means])
    dataset = xr.Dataset(
        {"correlation": (("sweeps", "chains"), found), "milliseconds": ("sweeps", milliseconds)},
        {"sweeps": list(p["lengths"]), "chains": list(p["chains"])},
    )
    return outcome(dataset, p, train)
