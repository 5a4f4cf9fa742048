"""Which features of digits classify well: the best honest use of the model, and one factor changed at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from math import nan

import numpy as np
import xarray as xr

from gdd import OneStepFeatures, project
from gdd.base.axes import IMAGE, LABEL
from gdd.features import DIGIT_SIZES, LEAST_NORM
from gdd.inference.deformations import Deformations, deform
from gdd.inference.features import one_step_features, unfold
from gdd.inference.fixed_dictionary import infer_layers
from gdd.inference.infer import precisions_of
from gdd.model.convolution import correlate
from gdd.model.spec import LayerSpec, ModelSpec, Precision
from gdd.model.state import LayerState, Local, Shared
from gdd.sampler.pretrain import Fitted, Pretrained
from gdd_book.data import datasets
from gdd_book.evaluate.baselines import learn_patches, patch_features, principal_components
from gdd_book.evaluate.classify import Copies, SvmProtocol, best_of, error, fit_svm
from gdd_book.experiments.atoms import uses_of
from gdd_book.experiments.path import FIRST_TEST_IMAGE, classify, encode, repeated
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.class_wise import class_energies, learn_class_atoms, least_residual_error
from gdd_book.progress import Run
from gdd_book.training import (
    DIGITS_CHAIN,
    HEALTHY_DIGITS,
    HELD_CALTECH,
    STAGES,
    Setup,
    chain_of,
    digits,
    digits_model,
    normalised,
    pretrained_model,
)

# ---- one-step features of layer 1, beside features that owe the model nothing

KINDS = ("one-step features", "raw pixels", "principal components", "k-means patches", "whitened one-step features")
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
MEASURED = ("error", "gamma", "cross_validation")


@experiment(
    "mnist-best", choices={"kinds": KINDS}, seed=0, choose_on=2, components=50, copies=0,
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
    features = settings_of(readers[chosen])
    return outcome(dataset, p, unlabelled, features=features, protocol=PROTOCOL, chain=chain_of(p))


def reader(dictionaries: list[xr.DataArray], margin: int = 1, **changes) -> OneStepFeatures:
    """Features of digits from 0 to 1 with these dictionaries, not whitened unless ``changes`` say so."""
    asked = {"dictionaries": list(dictionaries), "margin": margin, "rescale": False, "verbose": False}
    return OneStepFeatures.digits(**asked | {"whitening": False} | changes)


def settings_of(model: OneStepFeatures) -> dict:
    """Settings that a record names."""
    return {name: getattr(model, name) for name in ("pool", "margin", "noise_precision", "weight_precision", "blur")}


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
    with run.bar(len(runs) * len(kinds), "classifying") as bar:
        make = _feature_makers(dictionaries, margin, unlabelled, p)
        after = {kind: make[kind](test) for kind in kinds}
        columns = {kind: part.shape[1] for kind, part in after.items()} | {KINDS[2]: p["components"]}
        found = np.full((len(MEASURED), len(p["sizes"]), max(trial for _, trial in runs) + 1, len(kinds)), nan)
        for size, trial in runs:
            train = datasets.load(p["data"], "train", n=size, seed=trial)
            for number, kind in enumerate(kinds):
                measured = _measured(kind, make[kind], (train, test, after[kind]), trial, p)
                found[:, p["sizes"].index(size), trial, number] = measured
                bar.step()
    axes = ("size", "trial", "feature_kind")
    return xr.Dataset(
        {name: (axes, values) for name, values in zip(MEASURED, found, strict=True)}
        | {"features": ("feature_kind", [columns[kind] for kind in kinds])},
        {"size": list(p["sizes"]), "feature_kind": [COPIED.format(k) if p["copies"] else k for k in kinds]},
    )


def _measured(
    kind: str, make: Callable, digits: tuple[xr.DataArray, xr.DataArray, xr.DataArray], trial: int, p: dict
) -> tuple[float, ...]:
    """Return what `MEASURED` names, of one subset; ``digits`` : training digits, test digits, features of these."""
    train, test, after = digits
    before = make(train)
    if kind == KINDS[2]:
        reduce = principal_components(before, p["components"])
        before, after, make = reduce(before), reduce(after), lambda part: reduce(unfold(part))
    protocol = replace(PROTOCOL, tune_on=max(PROTOCOL.tune_on, len(train) // 10))
    copies = copies_of(train, make, p["copies"], p["seed"])
    one = classify((before, after), train, test, trial, protocol, copies)
    return float(one.error), one.attrs["chosen_gamma"], float(one.cross_validation.min())


def copies_of(images: xr.DataArray, make: Callable, count: int, seed: int) -> Copies | None:
    """How to make the features of ``count`` deformed copies of some of these images; None where there are none."""
    transforms = COPIES.draw(count, seed)
    return (lambda used: (make(deform(images[used], one)) for one in transforms)) if transforms else None


def _feature_makers(
    dictionaries: list[xr.DataArray], margin: int, unlabelled: xr.DataArray, p: dict
) -> dict[str, Callable[[xr.DataArray], np.ndarray | xr.DataArray]]:
    """How to make each kind of features; from ``unlabelled`` as many patches as give equally many features."""
    plain, kinds = reader(dictionaries[:1], margin).fit(unlabelled), p["kinds"]
    makers = {KINDS[0]: plain.transform, KINDS[1]: unfold, KINDS[2]: unfold}
    if KINDS[3] in kinds:
        count = len(plain.get_feature_names_out())
        patches = learn_patches(unlabelled, round(count / REGIONS**2), seed=p["seed"])
        makers[KINDS[3]] = lambda images: patch_features(images, patches, REGIONS)
    if KINDS[4] in kinds:
        more = {"whitening": DEFORMATIONS, "learn_from": p["n_learn"]}
        makers[KINDS[4]] = reader(dictionaries, margin, **more).fit(unlabelled).transform
    return makers


# ---- where the error of the paper's protocol comes from

#: the rows: what is changed, and into what; the first is the protocol
PROTOCOL_ROW = ("the paper's protocol", "highest-likelihood sample")
SCALED = ("scaling", "every feature alike")
MORE_DIGITS = ("atoms", "from more digits, unlabelled")
NORMALISED = ("atoms", "from contrast-normalised digits")
BY_CLASS = {
    STAGES[0]: ("atoms", "each class's, together"), STAGES[1]: ("atoms", "each class's, refined, together")
}
ENERGIES = {
    STAGES[0]: ("no classifier", "least residual under a class's atoms"),
    STAGES[1]: ("no classifier", "least residual under its refined atoms"),
}
EVERYWHERE = ("at every pixel, summed", "noise precision held"), ("at every pixel, summed", "drawn for each digit")
ROWS = (
    PROTOCOL_ROW,
    ("readout", "posterior mean"), ("readout", "mean magnitude"), ("readout", "inclusion probability"),
    ("chain", "a fifth of the sweeps"), ("chain", "twice the sweeps"),
    ("several chains", "mean of their samples"), ("several chains", "mean of their means"),
    ("noise precision", "a quarter"), ("noise precision", "four times"),
    ("atoms", "the half used most"), ("atoms", "the quarter used most"), MORE_DIGITS, NORMALISED, *BY_CLASS.values(),
    SCALED, *ENERGIES.values(), *EVERYWHERE,
    ("nothing explained away", "correlations with the same atoms"),
    ("layer 1 only, no chain", "one-step features"), ("layer 1 only, no chain", "the same, on high-pass digits"),
    ("no model", "raw pixels"),
)
READOUTS = dict(zip(("ml_sample", "mean", "magnitude", "inclusion"), ROWS[:4], strict=True))


@experiment(
    "mnist-ablation", **HEALTHY_DIGITS,
    dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_test": 500, "seeds": (0, 1), "burn_in": 40, "collect": 10,
          "refine_burn_in": 20, "refine_collect": 5, "test_burn_in": 20, "test_collect": 10, "chains": 3,
          "n_learn": 400},
    paper={"data": "mnist", "n_train": 1000, "n_test": 2000, "seeds": (0, 1, 2, 3, 4), "burn_in": 1500,
           "collect": 500, "refine_burn_in": 1500, "refine_collect": 500, "test_burn_in": 500, "test_collect": 200,
           "chains": 10, "n_learn": 5000},
)
def mnist_ablation(p: dict, run: Run) -> Outcome:
    """One factor of the paper's protocol changed at a time, on the same digits and models, for several subsets.

    The protocol deconvolves training and test digits with projected top atoms, keeps the sample of highest likelihood
    and classifies it. Every other row changes one thing: what is read from the chain, its length, how many chains, the
    noise precision, the number of atoms, the digits that they are learned from, their places, the scaling of the
    features; or leaves out the explaining away, the upper layer, the model, the classifier. Only the models of single
    classes are refined too.
    """
    test = datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    more = project(pretrained_model(p | {"n_train": p["n_learn"], "seed": p["seeds"][0]}, run))
    subsets = [_ablated(p | {"seed": seed}, more.values.astype(np.float32), test, run) for seed in p["seeds"]]
    dataset = xr.Dataset(
        {"error": (("subset", "row"), [[errors[row] for row in ROWS] for errors in subsets])},
        {"subset": list(p["seeds"]), "factor": ("row", [row[0] for row in ROWS]),
         "setting": ("row", [row[1] for row in ROWS])},
    )
    return outcome(dataset, p, test, seeds=p["seeds"], svm=PROTOCOL)


def _ablated(p: dict, more: np.ndarray, test: xr.DataArray, run: Run) -> dict[tuple[str, str], float]:
    """Errors in % by row, on one subset of the training digits; ``more``: atoms learned from more digits."""
    train = digits(p)
    fitted = pretrained_model(p, run)
    by_class = learn_class_atoms(train, p, run)
    gamma_e, gamma_w = precisions_of(fitted)
    setting = {"atoms": project(fitted).values.astype(np.float32), "stride": fitted.model.stride, "chain": 0,
               "length": 1.0, "gamma_e": gamma_e, "gamma_w": gamma_w}
    others = {MORE_DIGITS: more} | {
        BY_CLASS[stage]: np.concatenate(by_class.sel(stage=stage).values) for stage in STAGES
    }
    with run.bar(9 + p["chains"], f"subset {p['seed']}") as bar:
        features = coded(setting, uses_of(fitted), others, (train, test), p, bar)
        features |= fed_forward(fitted.layers[0], setting, (train, test))
        features[NORMALISED] = from_normalised(train, test, p, run)
        features |= everywhere(setting, (train, test), p)
        features[SCALED] = features[PROTOCOL_ROW]
        errors = classified(features, train, test, p["seed"])
        for stage, row in ENERGIES.items():
            own = by_class.sel(stage=stage)
            energies = class_energies(test, own, setting["stride"], (gamma_e, gamma_w), p)
            errors[row] = least_residual_error(energies, own[LABEL].values, test)
    return errors


def coded(setting: dict, uses: np.ndarray, other_atoms: dict, images: tuple, p: dict, bar) -> dict:
    """Features of all rows that need a chain, (training, test) each.

    ``uses`` : of the atoms in training. ``other_atoms`` : atoms from elsewhere, by the row that uses them
    """

    def codes(**change):
        found = [code(part, setting | change, p) for part in images]
        bar.step()
        return found

    first = codes()
    features = {row: [part[name] for part in first] for name, row in READOUTS.items()}
    chains = [first, *(codes(chain=number) for number in range(1, p["chains"]))]
    for name, words in (("ml_sample", "mean of their samples"), ("mean", "mean of their means")):
        features["several chains", words] = [sum(one[part][name] for one in chains) / p["chains"] for part in (0, 1)]
    order = np.argsort(-uses, kind="stable")
    changes = {
        ("chain", "a fifth of the sweeps"): {"length": 0.2}, ("chain", "twice the sweeps"): {"length": 2.0},
        ("noise precision", "a quarter"): {"gamma_e": setting["gamma_e"] / 4},
        ("noise precision", "four times"): {"gamma_e": setting["gamma_e"] * 4},
        ("atoms", "the half used most"): {"atoms": setting["atoms"][order[: len(order) // 2]]},
        ("atoms", "the quarter used most"): {"atoms": setting["atoms"][order[: len(order) // 4]]},
    } | {row: {"atoms": atoms} for row, atoms in other_atoms.items()}
    for row, change in changes.items():
        features[row] = [part.ml_sample for part in codes(**change)]
    return features


def code(images: xr.DataArray, setting: dict, p: dict) -> xr.Dataset:
    """One-layer deconvolution under a setting; training and test digits, and chains, use different random numbers."""
    lengths = {name: max(1, round(setting["length"] * p[f"test_{name}"])) for name in ("burn_in", "collect")}
    precisions, seed = (setting["gamma_e"], setting["gamma_w"]), 1000 * setting["chain"] + p["seed"]
    return encode(images, setting["atoms"], setting["stride"], precisions, p, seed=seed, **lengths)


def fed_forward(bottom: Fitted, setting: dict, images: tuple) -> dict:
    """Features of the rows without a chain, (training, test) each."""
    shared = bottom.state.shared
    atoms, (rows, cols) = shared.dictionary.astype(np.float32), setting["stride"]
    norms = np.sqrt((atoms**2).sum(axis=(1, 2, 3)))
    used = norms >= LEAST_NORM * norms.max()
    unit = atoms[used] / norms[used, None, None, None]
    precisions = {"gamma_e": setting["gamma_e"], "gamma_w": float(shared.gamma_w.mean())}
    makers = {
        ROWS[-4]: lambda part: correlate(part.values, setting["atoms"])[:, :, ::rows, ::cols],
        ROWS[-3]: lambda part: one_step_features(part, atoms, bottom.spec.pool, **precisions),
        ROWS[-2]: reader([unit], 0).fit(images[0]).transform,
        ROWS[-1]: lambda part: part,
    }
    return {row: [make(part) for part in images] for row, make in makers.items()}


def from_normalised(train: xr.DataArray, test: xr.DataArray, p: dict, run: Run) -> list[xr.DataArray]:
    """Features of the protocol where all digits are contrast normalised first, precisions as for Caltech's images."""
    p, images = p | HELD_CALTECH, [normalised(part) for part in (train, test)]
    model = digits_model(p)
    folder = run.folder("pretrained-normalised", {name: p[name] for name in DIGITS_CHAIN})
    fitted = pretrained_model(p, run, Setup(images[0], model, p["seed"], (folder, None)))
    atoms, precisions = project(fitted).values, precisions_of(fitted)
    return [encode(part, atoms, model.stride, precisions, p).ml_sample for part in images]


def everywhere(setting: dict, images: tuple, p: dict) -> dict[tuple[str, str], list[np.ndarray]]:
    """Features summed over places, atoms at every pixel: gamma_e held; drawn for each digit under the flat prior."""
    atoms = setting["atoms"]
    weights, found = Precision(fixed=setting["gamma_w"]), {}
    for row, noise in zip(EVERYWHERE, (Precision(fixed=setting["gamma_e"]), Precision((IMAGE,))), strict=True):
        spec = LayerSpec(len(atoms), atoms.shape[2:], gamma_e=noise, gamma_w=weights)
        model = ModelSpec((spec,), images[0].shape[2:])
        shared = Shared(atoms, np.ones((1, 1)), np.array([setting["gamma_w"]]))
        state = LayerState(Local(np.zeros(0), np.zeros(0), np.array([[setting["gamma_e"]]])), shared)
        one = Pretrained(model, (Fitted(spec, model.shapes()[0], state, xr.Dataset()),), ())
        lengths = p["test_burn_in"], p["test_collect"]
        found[row] = [
            infer_layers(one, part, *lengths, p["seed"] + first)[0].ml_sample.values.sum(axis=(2, 3))
            for part, first in zip(images, (0, FIRST_TEST_IMAGE), strict=True)
        ]
    return found


def classified(features: dict, train: xr.DataArray, test: xr.DataArray, seed: int) -> dict[tuple[str, str], float]:
    """Test error in % by row: tuned and trained on the training digits alone.

    Where the atoms saw labels, the kernel has the width that the protocol's row chose: cross-validation would find
    every fold's labels in the atoms.
    """
    labels, found = (train[LABEL].values, test[LABEL].values), {}
    chosen = None
    for row, pair in features.items():  # the protocol's row comes first
        protocol = replace(PROTOCOL, scaling="feature") if row == SCALED else PROTOCOL
        protocol = replace(protocol, gammas=(chosen,)) if row in BY_CLASS.values() else protocol
        one = error(pair[0], labels[0], pair[1], labels[1], protocol, seed)
        chosen = best_of(one.cross_validation)[1] if row == PROTOCOL_ROW else chosen
        found[row] = float(one.error)
    return found
