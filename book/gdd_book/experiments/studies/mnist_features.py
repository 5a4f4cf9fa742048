"""Which features of digits classify well: one-step features of layer 1, beside features that owe the model nothing."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd import OneStepFeatures
from gdd.base.axes import LABEL
from gdd.base.checks import GddError
from gdd.inference.block_magnitudes import unfold
from gdd.inference.deformations import Deformations, deform
from gdd.one_step import DIGIT_SIZES
from gdd_book.data import datasets
from gdd_book.evaluate.baselines import KYMATIO, learn_patches, patch_features, principal_components, scattered
from gdd_book.evaluate.classify import SvmProtocol, fit_svm
from gdd_book.experiments.common import Outcome, along, by_size, classify, experiment, outcome, repeated
from gdd_book.progress import Run
from gdd_book.training import chain_of

KINDS = ("one-step features", "raw pixels", "principal components", "k-means patches", "whitened one-step features")
SCATTERED = "scattering"  # by kymatio: two orders, J = 2, 8 angles; made only if it is asked for
#: of the whitened ones: sizes of the dictionaries, the first of which is that of the others; how far digits are
#: deformed. Chosen on training digits alone: three subsets of 1,000, judged on 4,000 other training digits
SIZES, DEFORMATIONS = DIGIT_SIZES, Deformations()
#: how far copies of support vectors are deformed
COPIES = Deformations(shift=1.5, turn=12.0, scale=0.12, shear=0.18)
#: what is added to the name of a feature where copies were learned from too
COPIED = "{}, deformed copies"
#: what the chain of layer 1 depends on
LEARNING = ("data", "n_learn", "seed", "burn_in", "collect")
#: what cross-validation chooses from: how far blocks overlap
MARGINS = 0, 1, 2, 3
#: a shorter grid than `gdd_book.evaluate.classify.FIVE_FOLD`, and fewer digits (a tenth, if that is more), as there are
#: many subsets
PROTOCOL = SvmProtocol(costs=(10.0,), gammas=(0.3, 1.0, 2.0, 4.0), tune_on=1000)
REGIONS = 4  # of the patches, along each side
#: settings that a record names
NAMED = ("pool", "margin", "noise_precision", "weight_precision", "blur")


@experiment(
    "mnist-best", choices={"kinds": (*KINDS, SCATTERED)}, seed=0, choose_on=2, components=50, copies=0,
    demo={"data": "digits", "n_learn": 200, "burn_in": 40, "collect": 10, "sizes": (200, 400), "trials": 3,
          "trials_above": 2, "n_test": 500, "choose_size": 200, "kinds": KINDS[:4]},
    paper={"data": "mnist", "n_learn": 1000, "burn_in": 150, "collect": 20, "sizes": (1000, 2000, 5000, 10000),
           "trials": 5, "trials_above": 2, "n_test": 10000, "choose_size": 1000, "kinds": KINDS},
)
def mnist_best(p: dict, run: Run) -> Outcome:
    """Learn atoms from digits without labels, choose by cross-validation on training digits, count test errors once.

    All features see the same digits and the same classifier. With ``copies`` each support vector is learned from again
    in so many deformed copies; no test digit is deformed.
    """
    if SCATTERED in p["kinds"] and KYMATIO not in os.environ:
        raise GddError(f"kinds: scattering given; a python with kymatio is needed, named by the variable {KYMATIO}")
    unlabelled = datasets.load(p["data"], "train", n=p["n_learn"])
    dictionaries = _dictionaries(unlabelled, p, run, several=KINDS[4] in p["kinds"])
    readers = [reader(dictionaries[:1], margin).fit(unlabelled) for margin in MARGINS]
    tables = []
    with run.bar(p["choose_on"], "choosing") as bar:
        for seed in range(p["choose_on"]):
            train = datasets.load(p["data"], "train", n=p["choose_size"], seed=seed)
            features = [one.transform(train) for one in readers]
            tables.append([float(fit_svm(f, train[LABEL].values, PROTOCOL, seed).table.min()) for f in features])
            bar.step()
    chosen = int(np.mean(tables, axis=0).argmin())
    dataset = xr.Dataset({
        "choice": (("subset", "candidate"), tables), "margin": ("candidate", list(MARGINS)), "chosen": chosen,
        "atoms": dictionaries[0], "norms": ("atom_at_start", dictionaries[0].attrs.pop("norms")),
    }).merge(_errors(dictionaries, MARGINS[chosen], unlabelled, p, run))
    settings = {name: getattr(readers[chosen].settings, name) for name in NAMED}
    return outcome(dataset, p, unlabelled, features=settings, protocol=PROTOCOL, chain=chain_of(p))


def reader(dictionaries: list[xr.DataArray], margin: int = 1, **changes) -> OneStepFeatures:
    """Features of digits from 0 to 1 with these dictionaries, not whitened unless ``changes`` say so."""
    asked = {"atoms": list(dictionaries), "margin": margin, "rescale": False, "verbose": False}
    return OneStepFeatures.digits(**asked | {"whitening": False} | changes)


def _dictionaries(unlabelled: xr.DataArray, p: dict, run: Run, *, several: bool) -> list[xr.DataArray]:
    """Learn the dictionary of the one-step features, and behind it those that whitened ones have besides."""
    return OneStepFeatures.digits(
        sizes=SIZES if several else SIZES[:1], sweeps=(p["burn_in"], p["collect"]), random_state=p["seed"],
        checkpoint=run.folder("first-layer", {name: p[name] for name in LEARNING}), learn_from=p["n_learn"],
        rescale=False, whitening=False, verbose=sys.stderr.isatty(),
    ).fit(unlabelled).dictionaries_


def _errors(
    dictionaries: list[xr.DataArray], margin: int, unlabelled: xr.DataArray, p: dict, run: Run
) -> xr.Dataset:
    """Test errors in %, (size, trial, feature_kind), missing where a size has fewer trials; and what was chosen."""
    test = datasets.load(p["data"], "test", n=p["n_test"])
    runs, kinds = repeated(p["sizes"], p["trials"], p["trials_above"]), p["kinds"]
    found, name = {}, COPIED if p["copies"] else "{}"
    with run.bar(len(runs), "classifying") as bar:
        make = _feature_makers(dictionaries, margin, unlabelled, p)
        after = {kind: make[kind](test) for kind in kinds}
        columns = {kind: part.shape[1] for kind, part in after.items()} | {KINDS[2]: p["components"]}
        for size, trial in runs:
            train = datasets.load(p["data"], "train", n=size, seed=trial)
            found[size, trial] = along("feature_kind", {
                name.format(kind): _measured(kind, make[kind], (train, test, after[kind]), trial, p) for kind in kinds
            })
            bar.step()
    features = {"features": ("feature_kind", [columns[kind] for kind in kinds])}
    return by_size(found).drop_vars("trial").assign(features)


def _measured(
    kind: str, make: Callable, digits: tuple[xr.DataArray, xr.DataArray, xr.DataArray], trial: int, p: dict
) -> xr.Dataset:
    """Test error of one subset, and what was chosen; ``digits`` : training digits, test digits, features of these."""
    train, test, after = digits
    before = make(train)
    if kind == KINDS[2]:
        reduce = principal_components(before, p["components"])
        before, after, make = reduce(before), reduce(after), lambda part: reduce(unfold(part))
    protocol = replace(PROTOCOL, tune_on=max(PROTOCOL.tune_on, len(train) // 10))
    transforms = COPIES.draw(p["copies"], p["seed"])
    copies = (lambda used: (make(deform(train[used], one)) for one in transforms)) if transforms else None
    one = classify((before, after), train, test, trial, protocol, copies)
    best = float(one.cross_validation.min())
    return xr.Dataset({"error": one.error, "gamma": one.attrs["chosen_gamma"], "cross_validation": best})


def _feature_makers(
    dictionaries: list[xr.DataArray], margin: int, unlabelled: xr.DataArray, p: dict
) -> dict[str, Callable[[xr.DataArray], np.ndarray | xr.DataArray]]:
    """How to make each kind of features; from ``unlabelled`` as many patches as give equally many features."""
    plain, kinds = reader(dictionaries[:1], margin).fit(unlabelled), p["kinds"]
    makers = {KINDS[0]: plain.transform, KINDS[1]: unfold, KINDS[2]: unfold}
    makers[SCATTERED] = lambda images: scattered(images)[0]
    if KINDS[3] in kinds:
        count = len(plain.get_feature_names_out())
        patches = learn_patches(unlabelled, round(count / REGIONS**2), seed=p["seed"])
        makers[KINDS[3]] = lambda images: patch_features(images, patches, REGIONS)
    if KINDS[4] in kinds:
        more = {"whitening": DEFORMATIONS, "learn_from": p["n_learn"]}
        makers[KINDS[4]] = reader(dictionaries, margin, **more).fit(unlabelled).transform
    return makers
