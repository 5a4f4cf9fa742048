"""Signs of a code's weights: does an image decide them, does its class? Page: caltech/accuracy."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from gdd.base import files
from gdd.base.axes import LABEL
from gdd.base.checks import GddError
from gdd.inference.deconvolution import precisions_of
from gdd_book import checkout, models, training
from gdd_book.evaluate.classify import FIVE_FOLD, SvmProtocol
from gdd_book.experiments import caltech
from gdd_book.experiments.common import Outcome, along, classify, encode, experiment, outcome
from gdd_book.experiments.studies.caltech_precisions import MODEL, READINGS, SETTINGS, SHIPPED, class_atoms
from gdd_book.experiments.studies.precisions import AT_TEST, ATOMS, SECOND_CHAIN, STRIDE, learned_atoms, precisions
from gdd_book.progress import Run

#: two codes that are compared
PAIRS = ("one image, two chains", "two images of a class", "images of two classes")


@experiment(
    "code-signs", choices={"digits": ("digits", "mnist"), "data": training.CALTECH[:1], "classes": SHIPPED},
    data="caltech101", per_class=30, seed=0,
    demo={"digits": "digits", "n_train": 100, "n_test": 100, "classes": SHIPPED[:2], "test_burn_in": 4,
          "test_collect": 2},
    paper={"digits": "mnist", "n_train": 1000, "n_test": 10000, "classes": SHIPPED, "test_burn_in": 40,
           "test_collect": 20},
)
def code_signs(p: dict, run: Run) -> Outcome:
    """Code digits and Caltech images by refined atoms, at the precisions of training and at chosen ones.

    On digits the latter are those of the book, on Caltech those chosen for magnitudes in the record of
    `caltech-precisions`. (images, setting): what `describe_signs` returns of training images, and ``right``, in %, of
    test images by the sample with its signs and without, (reading,). ``noise``, ``weights``: precisions.
    """
    own = p | {"data": p["digits"]}
    digits = [training.digits(own, split) for split in ("train", "test")]
    atoms = learned_atoms(ATOMS[2], p["seed"]).astype(np.float32)
    pairs = precisions_of(models.load("mnist-1000-refined").chain_), precisions(atoms, *AT_TEST.values())
    found = {"digits": _at_each(pairs, digits, atoms, STRIDE, FIVE_FOLD, p)}
    own = p | {"model": MODEL}
    pictures = [training.normalised(part) for part in caltech.train_and_test(own)]
    atoms, trained = class_atoms(training.STAGES[1], own, pictures[0])
    stride = training.MODELS[MODEL].stride
    found["Caltech"] = _at_each((trained, _chosen()), pictures, atoms, stride, caltech.PROTOCOL, p)
    return outcome(along("images", found), p, digits[0], protocol=FIVE_FOLD)


def _chosen() -> tuple[float, float]:
    """Precisions chosen for the magnitudes of refined atoms' samples on Caltech."""
    path = checkout.results() / "caltech-precisions--paper.nc"
    if not path.exists():
        raise GddError(f"precisions: no {path}; gdd run caltech-precisions --scale paper makes it")
    at = files.load(path).coded_at.sel(atoms=training.STAGES[1], setting=SETTINGS[1], reading=READINGS[-1])
    return tuple(map(float, at))


def _at_each(
    pairs: Sequence[tuple[float, float]], both: Sequence[xr.DataArray], atoms: np.ndarray, stride: tuple[int, int],
    protocol: SvmProtocol, p: Mapping,
) -> xr.Dataset:
    """All settings of training and test images."""
    truth, settings = both[1][LABEL].values, {}
    for setting, pair in zip(SETTINGS, pairs, strict=True):
        train, test = (encode(images, atoms, stride, pair, p).ml_sample for images in both)
        again = encode(both[0], atoms, stride, pair, p, seed=p["seed"] + SECOND_CHAIN).ml_sample
        readings = {"with signs": (train, test), "without": (np.abs(train), np.abs(test))}
        hits = [classify(pair, *both, p["seed"], protocol).predicted.values == truth for pair in readings.values()]
        settings[setting] = describe_signs(train.values, again.values, both[0][LABEL].values).assign(
            right=("reading", [100 * hit.mean() for hit in hits]), noise=pair[0], weights=pair[1],
        ).assign_coords(reading=list(readings))
    return along("setting", settings)


def describe_signs(code: np.ndarray, other: np.ndarray, labels: np.ndarray) -> xr.Dataset:
    """``negative``: the share of the weights' sum of magnitudes that is below 0; ``agreement`` of signs by `PAIRS`.

    ``code``, ``other`` (image, ...) are samples of two chains. Two codes agree by the share of ``sum(abs(a * b))`` in
    coefficients where their signs are equal: 1/2 if signs are random.
    """
    code, other = (one.reshape(len(one), -1).astype(float) for one in (code, other))
    signed, unsigned = (np.stack([a @ a.T, a @ b.T]) for a, b in ((code, other), (np.abs(code), np.abs(other))))
    same = labels[:, None] == labels
    pairs = (1, np.eye(len(code), dtype=bool)), (0, same & ~np.eye(len(code), dtype=bool)), (0, ~same)
    agreement = [(1 + signed[which][mask].sum() / unsigned[which][mask].sum()) / 2 for which, mask in pairs]
    negative = -code[code < 0].sum() / np.abs(code).sum()
    return xr.Dataset({"negative": negative, "agreement": ("pair", agreement)}, {"pair": list(PAIRS)})
