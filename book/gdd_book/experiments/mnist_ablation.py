"""Where the error of the paper's protocol comes from: one factor changed at a time, on the same digits and models.

For each of several subsets of the training digits a model is pretrained and its top atoms are projected. The protocol
deconvolves training and test digits, keeps the sample of highest likelihood and classifies it. Every other row changes
one thing: what is read from the chain, its length, how many chains, the noise precision, the number of atoms, the
digits that they are learned from, the scaling of the features; or leaves out the explaining away, the upper layer, the
model, the classifier.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from gdd.base.axes import LABEL
from gdd.data import datasets
from gdd.evaluate.classify import best_of, error
from gdd.inference.deconvolution import deconvolve
from gdd.inference.features import LEAST_NORM, FeedForward, feed_forward, one_step_features
from gdd.model.convolution import correlate
from gdd.projection import project_model
from gdd_book.experiments import Outcome
from gdd_book.experiments.mnist_best import PROTOCOL
from gdd_book.training.class_atoms import class_energies, learn_class_atoms
from gdd_book.training.training import HEALTHY, digits, pretrained_model

NAME = "mnist-ablation"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_test": 500, "seeds": (0, 1), "burn_in": 40, "collect": 10,
        "test_burn_in": 20, "test_collect": 10, "chains": 3, "n_learn": 400, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "n_test": 2000, "seeds": (0, 1, 2, 3, 4), "burn_in": 1500, "collect": 500,
        "test_burn_in": 500, "test_collect": 200, "chains": 10, "n_learn": 5000, **HEALTHY,
    },
}  # fmt: skip
#: the rows: what is changed, and into what; the first is the protocol
PROTOCOL_ROW = ("the paper's protocol", "highest-likelihood sample")
SCALED = ("scaling", "every feature alike")
MORE_DIGITS = ("atoms", "from more digits, unlabelled")
BY_CLASS = ("atoms", "each class's, together")
ENERGIES = ("no classifier", "least residual under a class's atoms")
ROWS = (
    PROTOCOL_ROW,
    ("readout", "posterior mean"), ("readout", "mean magnitude"), ("readout", "inclusion probability"),
    ("chain", "a fifth of the sweeps"), ("chain", "twice the sweeps"),
    ("several chains", "mean of their samples"), ("several chains", "mean of their means"),
    ("noise precision", "a quarter"), ("noise precision", "four times"),
    ("atoms", "the half used most"), ("atoms", "the quarter used most"), MORE_DIGITS, BY_CLASS,
    SCALED, ENERGIES,
    ("nothing explained away", "correlations with the same atoms"),
    ("layer 1 only, no chain", "one-step features"), ("layer 1 only, no chain", "the same, on high-pass digits"),
    ("no model", "raw pixels"),
)  # fmt: skip
READOUTS = dict(zip(("ml_sample", "mean", "magnitude", "inclusion"), ROWS[:4], strict=True))


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train on every subset, change one thing at a time, classify; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    test = datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    more = pretrained_model(p | {"n_train": p["n_learn"], "seed": p["seeds"][0]}, progress, resumable)
    wider = project_model(more).values.astype(np.float32)
    subsets = [one_subset(p | {"seed": seed}, wider, test, progress, resumable) for seed in p["seeds"]]
    coordinates = {"subset": list(p["seeds"]), "factor": ("row", [row[0] for row in ROWS]),
                   "setting": ("row", [row[1] for row in ROWS])}  # fmt: skip
    dataset = xr.Dataset({
        "error": (("subset", "row"), [found["error"] for found in subsets]),
        "winning_share": ("subset", [found["winning_share"] for found in subsets]),
        "active_at_test": ("subset", [found["active_at_test"] for found in subsets]),
    }, coordinates)  # fmt: skip
    return Outcome(dataset, {"seeds": p["seeds"], "svm": PROTOCOL}, p["data"], test.attrs["checksum"], p["seeds"][0])


def one_subset(p: dict, wider: np.ndarray, test: xr.DataArray, progress, resumable: bool) -> dict:
    """Errors in % of every row, on one subset of the training digits; ``wider``: atoms learned from more digits."""
    train = digits(p)
    fitted = pretrained_model(p, progress, resumable)
    by_class = learn_class_atoms(train, p, progress, resumable).astype(np.float32)
    projected = project_model(fitted)
    top, bottom = fitted.layers[-1], fitted.layers[0]
    uses = (top.state.local.z >= 0).sum(axis=(0, 2, 3))
    setting = {
        "atoms": projected.values.astype(np.float32), "stride": fitted.model.stride, "chain": 0, "length": 1.0,
        "gamma_e": float(bottom.state.local.gamma_e.mean()), "gamma_w": float(top.state.shared.gamma_w.mean()),
    }  # fmt: skip
    together = by_class.values.reshape(-1, *by_class.shape[2:])
    with progress(9 + p["chains"], f"subset {p['seed']}") as bar:
        features, active = coded(setting, uses, {MORE_DIGITS: wider, BY_CLASS: together}, (train, test), p, bar)
        features |= fed_forward(bottom, setting, (train, test))
        bar.step()
        features[SCALED] = features[PROTOCOL_ROW]
        errors = classified(features, train, test, p["seed"])
        errors[ENERGIES] = 100.0 * float((nearest_class(test, by_class, setting, p) != test[LABEL].values).mean())
    return {
        "error": [errors[row] for row in ROWS], "winning_share": projected.attrs["winning_share"][0],
        "active_at_test": active,
    }  # fmt: skip


def coded(setting: dict, uses: np.ndarray, other_atoms: dict, images: tuple, p: dict, bar) -> tuple[dict, float]:
    """Features of all rows that need a chain, (training, test) each; active coefficients of a test digit.

    ``other_atoms``: atoms from elsewhere, by the row that uses them
    """

    def codes(**change):
        found = [code(part, setting | change, offset, p) for part, offset in zip(images, (0, 10**6), strict=True)]
        bar.step()
        return found

    first = codes()
    features = {row: [part[name] for part in first] for name, row in READOUTS.items()}
    others = [codes(chain=number) for number in range(1, p["chains"])]
    for name, words in (("ml_sample", "mean of their samples"), ("mean", "mean of their means")):
        features["several chains", words] = [
            sum(chain[part][name] for chain in [first, *others]) / p["chains"] for part in (0, 1)
        ]
    order = np.argsort(-uses, kind="stable")
    changes = {
        ("chain", "a fifth of the sweeps"): {"length": 0.2}, ("chain", "twice the sweeps"): {"length": 2.0},
        ("noise precision", "a quarter"): {"gamma_e": setting["gamma_e"] / 4},
        ("noise precision", "four times"): {"gamma_e": setting["gamma_e"] * 4},
        ("atoms", "the half used most"): {"atoms": setting["atoms"][order[: len(order) // 2]]},
        ("atoms", "the quarter used most"): {"atoms": setting["atoms"][order[: len(order) // 4]]},
    } | {row: {"atoms": atoms} for row, atoms in other_atoms.items()}  # fmt: skip
    for row, change in changes.items():
        features[row] = [part.ml_sample for part in codes(**change)]
    return features, float((first[1].ml_sample != 0).sum(("atom", "row", "col")).mean())


def code(images: xr.DataArray, setting: dict, offset: int, p: dict) -> xr.Dataset:
    """One-layer deconvolution under a setting; training and test digits, and chains, use different random numbers."""
    return deconvolve(images, setting["atoms"], setting["stride"], first_image=offset, **chain_of(setting, p))


def chain_of(setting: dict, p: dict) -> dict:
    """Arguments of a test-time chain under a setting."""
    lengths = [max(1, round(setting["length"] * p[name])) for name in ("test_burn_in", "test_collect")]
    return {
        "gamma_e": setting["gamma_e"], "gamma_w": setting["gamma_w"], "burn_in": lengths[0], "collect": lengths[1],
        "seed": 1000 * setting["chain"] + p["seed"],
    }  # fmt: skip


def nearest_class(images: xr.DataArray, by_class: xr.DataArray, setting: dict, p: dict) -> np.ndarray:
    """Class whose atoms alone leave the least residual of every test digit."""
    energies = class_energies(images, by_class, setting["stride"], first_image=10**6, **chain_of(setting, p))
    return by_class[LABEL].values[energies.argmin(axis=1)]


def fed_forward(bottom, setting: dict, images: tuple) -> dict:
    """Features of the rows without a chain, (training, test) each."""
    shared = bottom.state.shared
    atoms, gamma_w = shared.dictionary.astype(np.float32), float(shared.gamma_w.mean())
    norms = np.sqrt((atoms**2).sum(axis=(1, 2, 3)))
    used = norms >= LEAST_NORM * norms.max()
    unit = atoms[used] / norms[used, None, None, None]
    rows, cols = setting["stride"]
    answers = [correlate(part.values, setting["atoms"])[:, :, ::rows, ::cols] for part in images]
    precisions = {"gamma_e": setting["gamma_e"], "gamma_w": gamma_w}
    steps = [one_step_features(part, atoms, bottom.spec.pool, **precisions) for part in images]
    return {
        ("nothing explained away", "correlations with the same atoms"): answers,
        ("layer 1 only, no chain", "one-step features"): steps,
        ("layer 1 only, no chain", "the same, on high-pass digits"):
            [feed_forward(part, unit, FeedForward(margin=0)) for part in images],
        ("no model", "raw pixels"): list(images),
    }  # fmt: skip


def classified(features: dict, train: xr.DataArray, test: xr.DataArray, seed: int) -> dict[tuple[str, str], float]:
    """Test error in % by row: tuned and trained on the training digits alone.

    Where the atoms saw labels, the kernel has the width that the protocol's row chose: cross-validation would find
    every fold's labels in the atoms.
    """
    labels, found = (train[LABEL].values, test[LABEL].values), {}
    chosen = None
    for row, pair in features.items():  # the protocol's row comes first
        protocol = replace(PROTOCOL, scaling="feature") if row == SCALED else PROTOCOL
        if row == BY_CLASS:
            protocol = replace(protocol, gammas=(chosen,))
        one = error(pair[0], labels[0], pair[1], labels[1], protocol, seed)
        if row == PROTOCOL_ROW:
            chosen = best_of(one.cross_validation)[1]
        found[row] = float(one.error)
    return found
