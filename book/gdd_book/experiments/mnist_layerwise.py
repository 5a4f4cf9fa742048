"""Supplement, "Layer by Layer Classification Results": one deconvolution with projected atoms, or layer by layer.

The same digits get codes in three ways: one layer of deconvolution with the projected top atoms; layer by layer, each
layer's maps from those below it; and all layers at once under the joint model. Each way is tried with the pretrained
dictionaries and with the refined ones, and classified under the protocol of `gdd_book.experiments.mnist_error`.
"""

from __future__ import annotations

import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.data import datasets
from gdd.evaluate.classify import error
from gdd.inference.deconvolution import infer, infer_refined
from gdd.inference.features import stack_features
from gdd.inference.held import Chain, infer_jointly, infer_layers, shared_of, with_dictionaries
from gdd.projection import project_model, project_refined
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined
from gdd_book.experiments import Outcome
from gdd_book.training.training import HEALTHY, digits, trained_models

NAME = "mnist-layerwise"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_test": 200, "burn_in": 60, "collect": 20, "refine_burn_in": 60,
        "refine_collect": 20, "test_burn_in": 60, "test_collect": 20, "joint_burn_in": 30, "joint_collect": 10,
        "seed": 0, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "n_test": 1000, "burn_in": 1500, "collect": 500, "refine_burn_in": 150,
        "refine_collect": 50, "test_burn_in": 100, "test_collect": 50, "joint_burn_in": 60, "joint_collect": 30,
        "seed": 0, **HEALTHY,
    },
}  # fmt: skip
MODELS = ("pretrained", "refined")
KINDS = ("ml_sample", "mean")
#: ways to a digit's features: what is classified
WAYS = (
    "one deconvolution, projected atoms", "layer by layer, all layers", "layer by layer, layer 1",
    "layer by layer, top layer", "all layers at once, top layer",
)  # fmt: skip


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train, infer in every way, classify; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    train, test = digits(p), datasets.load(p["data"], "test", n=p["n_test"], seed=p["seed"])
    fitted, refined = trained_models(p, progress, resumable)
    both = [infer_all(fitted, refined, images, p, progress) for images in (train, test)]
    for name, part in [(name, part) for name in MODELS for part in both]:
        part[name, WAYS[1]] = {
            kind: stack_features(*([one[name, way][kind] for way in WAYS[2:4]] for one in (part, both[0])))
            for kind in KINDS
        }
    errors = [
        [[classify([part[model, way][kind] for part in both], train, test, p) for kind in KINDS] for way in WAYS]
        for model in MODELS
    ]
    out = {"error": (("model", "way", "feature_kind"), errors)}
    out["error_of_pixels"] = classify([train, test], train, test, p)
    dataset = xr.Dataset(out, {"model": list(MODELS), "way": list(WAYS), "feature_kind": list(KINDS)})
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def infer_all(fitted: Pretrained, refined: Refined, images: xr.DataArray, p: dict, progress) -> dict:
    """Features of these images for every model and way but all layers' together, each a Dataset with `KINDS`.

    Training and test digits use different random numbers.
    """
    offset = 0 if images.attrs["split"] == "train" else 1
    chain = {"burn_in": p["test_burn_in"], "collect": p["test_collect"]}
    joint = Chain(p["joint_burn_in"], p["joint_collect"], 2 * p["seed"] + offset)
    single = chain | {"seed": p["seed"], "first_image": 10**6 * offset}
    both = (fitted, with_dictionaries(fitted, refined.state.shared))
    found = {
        ("pretrained", WAYS[0]): infer(fitted, project_model(fitted), images, **single),
        ("refined", WAYS[0]): infer_refined(refined, project_refined(refined), images, **single),
    }
    sweeps = len(MODELS) * images.sizes[IMAGE] * (2 * sum(chain.values()) + joint.burn_in + joint.collect)
    with progress(sweeps, f"inferring {images.attrs['split']}") as bar:
        for name, model in zip(MODELS, both, strict=True):
            bottom, top = infer_layers(model, images, **chain, seed=joint.seed, progress=bar.step)
            noise = float(refined.state.local.gamma_e.mean())
            shared = shared_of(fitted) if name == "pretrained" else refined.state.shared
            at_once = infer_jointly(images, fitted.model, shared, refined.refinement, joint, noise, bar.step)
            found |= zip(((name, way) for way in WAYS[2:]), (bottom, top, at_once), strict=True)
    return found


def classify(pair: list, train: xr.DataArray, test: xr.DataArray, p: dict) -> float:
    """Test error in %: tune and train on the training digits alone."""
    return float(error(pair[0], train[LABEL].values, pair[1], test[LABEL].values, seed=p["seed"]).error)
