"""Table 1 and the bottom of Fig. 2c: test error against the number of training digits, after pretraining.

Pretrain two layers on the training digits, project the top dictionary, deconvolve training and test digits in one
layer, classify; with very many training digits the kernel of the final classifier is approximated. Beside the paper's
feature (the sample of highest likelihood) stand averages over the same chain, and what needs no dictionary of the
second layer: raw pixels, and one-step features of the first layer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, DRAW, LABEL, PLANE
from gdd.data import datasets
from gdd.evaluate.baselines import MANY
from gdd.evaluate.classify import FIVE_FOLD, error
from gdd.inference.deconvolution import infer
from gdd.inference.features import one_step_features
from gdd.model.spec import ChainSpec
from gdd.projection import project_model
from gdd.sampler.pretrain import Pretrained
from gdd_book.experiments import Outcome
from gdd_book.training.training import digits, pretrained_model

NAME = "mnist-error"
_COMMON = {"data": "mnist", "seed": 0, "noise_precision": 100.0, "weight_precision": 0.1}
#: features from one test-time chain: the paper's, and what the whole chain says
CODES = ("ml_sample", "mean", "magnitude", "inclusion")
#: of very many training digits (`gdd.evaluate.baselines.MANY`) the final classifier sees the kernel through so
#: many of them
LANDMARKS = 2_000
CHOICES = {"codes": CODES}
PARAMETERS = {
    "demo": {
        "n_train": 1000, "n_test": 10000, "burn_in": 60, "collect": 20, "test_burn_in": 60, "test_collect": 20,
        "codes": CODES, **_COMMON,
    },
    "paper": {
        "n_train": 10000, "n_test": 10000, "burn_in": 1500, "collect": 500, "test_burn_in": 500, "test_collect": 200,
        "codes": ("ml_sample", "mean"), **_COMMON,
    },
}  # fmt: skip


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Pretrain, project, infer, classify; see the module.

    ``resumable``: keep checkpoints of the pretraining, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    train = digits(p)
    test = datasets.load(p["data"], "test", n=min(p["n_test"], datasets.load(p["data"], "test").sizes["image"]))
    fitted = pretrained_model(p, progress, resumable)
    atoms = project_model(fitted)
    features = features_of(fitted, atoms, train, test, p, progress)
    results = {kind: classify(*pair, train, test, p["seed"]) for kind, pair in features.items()}
    dataset = xr.Dataset({
        "error": ("feature_kind", [r.error.item() for r in results.values()]),
        "wrong": ("feature_kind", [r.wrong.item() for r in results.values()]),
        "cost": ("feature_kind", [r.attrs["chosen_cost"] for r in results.values()]),
        "gamma": ("feature_kind", [r.attrs["chosen_gamma"] for r in results.values()]),
        "tuned_on": ("feature_kind", [r.attrs["tuned_on"] for r in results.values()]),
        "landmarks": results["raw pixels"].attrs["landmarks"],
        "confusion": results[p["codes"][0]].confusion,
        "active_at_test": active_in(features[p["codes"][0]][1]),
        "winning_share": atoms.attrs["winning_share"][0],
    }, {"feature_kind": list(results)})  # fmt: skip
    dataset = dataset.merge(what_was_learned(fitted, atoms))
    spec = {"model": fitted.model, "chain": ChainSpec(p["burn_in"], p["collect"], p["seed"])}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def features_of(
    fitted: Pretrained, atoms: xr.DataArray, train: xr.DataArray, test: xr.DataArray, p: dict, progress
) -> dict[str, list[xr.DataArray]]:
    """Every feature of training and test digits that is compared, by its name."""
    codes = [code(fitted, atoms, images, p, progress) for images in (train, test)]
    features = {kind: [part[kind] for part in codes] for kind in p["codes"]}
    features["raw pixels"] = [train, test]
    features["one-step, layer 1"] = [one_step(fitted, images) for images in (train, test)]
    return features


def active_in(codes: xr.DataArray) -> float:
    """Mean number of coefficients of an image that are not zero."""
    return float((codes != 0).sum((ATOM, "row", "col")).mean())


def code(fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray, p: dict, progress) -> xr.Dataset:
    """One-layer deconvolution of training or test digits; the two use different random numbers."""
    offset = 0 if images.attrs["split"] == "train" else 10**6
    with progress(images.sizes["image"], f"deconvolving {images.attrs['split']}") as bar:
        return infer(
            fitted, atoms, images, burn_in=p["test_burn_in"], collect=p["test_collect"], seed=p["seed"],
            first_image=offset, progress=bar.step,
        )  # fmt: skip


def one_step(fitted: Pretrained, images: xr.DataArray) -> xr.DataArray:
    """Answer of every block of layer 1 to the image alone."""
    bottom = fitted.layers[0]
    shared = bottom.state.shared
    return one_step_features(
        images, shared.dictionary.astype(np.float32), bottom.spec.pool,
        gamma_e=float(bottom.state.local.gamma_e.mean()), gamma_w=float(shared.gamma_w.mean()),
    )  # fmt: skip


def classify(train_features, test_features, train: xr.DataArray, test: xr.DataArray, seed: int) -> xr.Dataset:
    """Tune and train on the training digits, count errors on the test digits."""
    protocol = FIVE_FOLD if len(train) < MANY else replace(FIVE_FOLD, landmarks=LANDMARKS)
    return error(train_features, train[LABEL].values, test_features, test[LABEL].values, protocol, seed)


def what_was_learned(fitted: Pretrained, atoms: xr.DataArray) -> xr.Dataset:
    """Dictionary of layer 1, projected atoms, how often each is used, and the traces of both chains."""
    top = fitted.layers[-1]
    out = xr.Dataset({
        "dictionary": (
            ("bottom_atom", PLANE, "bottom_row", "bottom_col"), fitted.layers[0].state.shared.dictionary.astype("f4")
        ),
        "projected_atoms": ((ATOM, PLANE, ATOM_ROW, ATOM_COL), atoms.values.astype("f4")),
        "uses": (ATOM, (top.state.local.z >= 0).sum(axis=(0, 2, 3))),
    })  # fmt: skip
    for number, layer in enumerate(fitted.layers, 1):
        for name, trace in layer.traces.items():
            out[f"{name}_{number}"] = (DRAW, trace.values[0].astype("f4" if name != "log_joint" else "f8"))
    return out
