"""The best honest use of the model: one-step features of layer 1, beside features that owe the model nothing.

The atoms are learned from training digits without their labels. How far blocks overlap is chosen by
cross-validation on training digits; the test digits are used once, for the errors. All features see the same
digits and the same classifier. Of very many training digits it sees the leading principal components of a feature:
its time is then that of inner products of all pairs of digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from math import nan

import numpy as np
import xarray as xr

from gdd.base.axes import FEATURE, LABEL
from gdd.data import datasets
from gdd.data.subsets import repeated
from gdd.evaluate.baselines import fewer_features, learn_patches, patch_features, principal_components
from gdd.evaluate.classify import SvmProtocol, error, fit_svm
from gdd.inference.features import FeedForward, feed_forward, learn_atoms, unfold
from gdd.model.spec import MNIST, ChainSpec
from gdd_book.experiments import Outcome
from gdd_book.training.training import folder_of

NAME = "mnist-best"
KINDS = ("one-step features", "raw pixels", "principal components", "k-means patches")
CHOICES = {"kinds": KINDS}
PARAMETERS = {
    "demo": {
        "data": "digits", "seed": 0, "n_learn": 200, "burn_in": 40, "collect": 10, "sizes": (200, 400), "trials": 3,
        "trials_above": 2, "n_test": 500, "choose_on": 2, "choose_size": 200, "components": 50, "kinds": KINDS,
    },
    "paper": {
        "data": "mnist", "seed": 0, "n_learn": 1000, "burn_in": 150, "collect": 20, "sizes": (1000, 2000, 5000, 10000),
        "trials": 5, "trials_above": 2, "n_test": 10000, "choose_on": 2, "choose_size": 1000, "components": 50,
        "kinds": KINDS,
    },
}  # fmt: skip
#: what the chain of layer 1 depends on
LEARNING = ("data", "n_learn", "seed", "burn_in", "collect")
#: what cross-validation chooses from
CANDIDATES = tuple(FeedForward(margin=margin) for margin in (0, 1, 2, 3))
#: a shorter grid than `gdd.evaluate.classify.FIVE_FOLD`, and fewer digits (a tenth, if that is more), as there are
#: many subsets
PROTOCOL = SvmProtocol(costs=(10.0,), gammas=(0.3, 1.0, 2.0, 4.0), tune_on=1000)
REGIONS = 4  # of the patches, along each side
MEASURED = ("error", "gamma", "cross_validation", "energy_kept")


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Learn, choose, classify; see the module.

    ``resumable``: keep checkpoints of the chain of layer 1, and go on from those of an earlier call.
    """
    p = parameters
    unlabelled = datasets.load(p["data"], "train", n=p["n_learn"])
    chain = ChainSpec(p["burn_in"], p["collect"], p["seed"])
    folder = folder_of("first-layer", LEARNING, p) if resumable else None
    bottom = MNIST.layers[0]
    with progress(chain.sweeps, "learning layer 1") as bar:
        atoms = learn_atoms(unlabelled, bottom.atoms, bottom.atom_size, FeedForward(), chain, folder, bar)
    with progress(p["choose_on"], "choosing") as bar:
        tables = [cross_validated(atoms, seed, p, bar) for seed in range(p["choose_on"])]
    chosen = CANDIDATES[int(np.mean(tables, axis=0).argmin())]
    dataset = xr.Dataset({
        "choice": (("subset", "candidate"), tables),
        "margin": ("candidate", [c.margin for c in CANDIDATES]),
        "chosen": int(CANDIDATES.index(chosen)),
        "atoms": atoms, "norms": ("atom_at_start", atoms.attrs.pop("norms")),
    })  # fmt: skip
    dataset = dataset.merge(errors(atoms, chosen, unlabelled, p, progress))
    spec = {"features": asdict(chosen), "protocol": PROTOCOL, "chain": chain}
    return Outcome(dataset, spec, p["data"], unlabelled.attrs["checksum"], p["seed"])


def cross_validated(atoms: xr.DataArray, seed: int, p: dict, bar) -> list[float]:
    """Cross-validation error in % of every candidate, on one subset of the training digits."""
    train = datasets.load(p["data"], "train", n=p["choose_size"], seed=seed)
    labels = train[LABEL].values
    found = [fit_svm(feed_forward(train, atoms, c), labels, PROTOCOL, seed).table.min() for c in CANDIDATES]
    bar.step()
    return [float(value) for value in found]


def errors(atoms: xr.DataArray, chosen: FeedForward, unlabelled: xr.DataArray, p: dict, progress) -> xr.Dataset:
    """Test errors in %, (size, trial, feature_kind), missing where a size has fewer trials; and what was chosen.

    ``energy_kept`` : share of the training features' variance in the principal components that the classifier saw
    """
    test = datasets.load(p["data"], "test", n=p["n_test"])
    runs = repeated(p["sizes"], p["trials"], p["trials_above"])
    kinds = p["kinds"]
    with progress(len(runs) * len(kinds), "classifying") as bar:
        make = feature_makers(atoms, chosen, unlabelled, p["seed"])
        after = {kind: make[kind](test) for kind in kinds}
        columns = {kind: part.sizes[FEATURE] for kind, part in after.items()} | {KINDS[2]: p["components"]}
        shape = len(p["sizes"]), max(trial for _, trial in runs) + 1, len(kinds)
        out = {name: np.full(shape, nan) for name in MEASURED}
        for size, trial in runs:
            train = datasets.load(p["data"], "train", n=size, seed=trial)
            for number, kind in enumerate(kinds):
                labels = train[LABEL].values, test[LABEL].values
                found = one_error(kind, (make[kind](train), after[kind]), labels, trial, p["components"])
                for name, value in zip(MEASURED, found, strict=True):
                    out[name][p["sizes"].index(size), trial, number] = value
                bar.step()
    axes = ("size", "trial", "feature_kind")
    return xr.Dataset(
        {name: (axes, values) for name, values in out.items()}
        | {"features": ("feature_kind", [columns[kind] for kind in kinds])},
        {"size": list(p["sizes"]), "feature_kind": list(kinds)},
    )


def feature_makers(
    atoms: xr.DataArray, chosen: FeedForward, unlabelled: xr.DataArray, seed: int
) -> dict[str, Callable[[xr.DataArray], xr.DataArray]]:
    """How to make each of `KINDS` of digits; from ``unlabelled`` as many patches as give equally many features."""
    count = feed_forward(unlabelled[:1], atoms, chosen).size
    patches = learn_patches(unlabelled, round(count / REGIONS**2), seed=seed)
    return {
        KINDS[0]: lambda digits: feed_forward(digits, atoms, chosen),
        KINDS[1]: unfold,
        KINDS[2]: unfold,
        KINDS[3]: lambda digits: patch_features(digits, patches, REGIONS),
    }


def one_error(
    kind: str,
    pair: tuple[xr.DataArray, xr.DataArray],
    labels: tuple[np.ndarray, np.ndarray],
    seed: int,
    components: int,
) -> tuple[float, ...]:
    """Tune and train on the first of ``pair``, judge on the second: the numbers of `MEASURED`."""
    *pair, energy = principal_components(*pair, components) if kind == KINDS[2] else fewer_features(*pair)
    protocol = replace(PROTOCOL, tune_on=max(PROTOCOL.tune_on, len(labels[0]) // 10))
    one = error(pair[0], labels[0], pair[1], labels[1], protocol, seed)
    return float(one.error), one.attrs["chosen_gamma"], float(one.cross_validation.min()), energy
