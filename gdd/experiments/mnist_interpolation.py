"""Fig. 2b and the top of 2c: half of every test digit hidden and filled in, by one layer, by two, and by none.

Two ways of hiding half of the pixels: at random, and as a left, right, upper or lower half in turn. Each method is
judged by the squared error on what it did not see, and by how often a classifier trained on whole digits knows the
digit again once the hidden half is filled in. Methods that know no layers stand beside the models; they see the same
training digits.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd import datasets
from gdd.axes import COL, IMAGE, LABEL, ROW
from gdd.classify import Svm, fit_svm
from gdd.experiments import Outcome
from gdd.filling import choose_components, fill_by_neighbour, fill_by_pca
from gdd.interpolation import hidden_error, hide_at_random, hide_halves, interpolate_joint, interpolate_one_layer
from gdd.joint_inference import shared_of
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined
from gdd.training import HEALTHY, digits, trained_models

NAME = "mnist-interpolation"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_test": 40, "burn_in": 60, "collect": 20, "refine_burn_in": 60,
        "refine_collect": 20, "test_burn_in": 60, "test_collect": 30, "seed": 0, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "n_test": 500, "burn_in": 1500, "collect": 500, "refine_burn_in": 1500,
        "refine_collect": 500, "test_burn_in": 30, "test_collect": 20, "seed": 0, **HEALTHY,
    },
}  # fmt: skip
MODELS = ("one layer", "two layers, pretrained", "two layers, refined")
#: methods that know no layers
BASELINES = ("left blank", "mean training digit", "nearest training digit", "10 nearest", "principal components")
METHODS = (*BASELINES, *MODELS)
HIDING = ("at random", "half as a block")
NEIGHBOURS = 10
EXAMPLES = 12


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train, hide, fill in, judge; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    train, test = digits(p), datasets.load(p["data"], "test", n=p["n_test"], seed=p["seed"])
    knows = fit_svm(train, train[LABEL].values, seed=p["seed"])
    fitted, refined = trained_models(p, progress, resumable)
    masks = (hide_at_random(test.shape, p["seed"]), hide_halves(test.shape))
    parts = []
    for hiding, mask in zip(HIDING, masks, strict=True):
        components = choose_components(train, mask)
        filled = fill_all(test, mask, train, components) | infer_all(test, mask, fitted, refined, p, progress, hiding)
        parts.append(judge(filled, test, mask, knows).assign(components=components))
    dataset = xr.concat(parts, "hiding").assign_coords(hiding=list(HIDING))
    dataset["truth"] = ("example", ROW, COL), test.values[:EXAMPLES, 0]
    dataset["wrong_whole"] = float(100 * (knows.predict(test) != test[LABEL].values).mean())
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def fill_all(test: xr.DataArray, mask: np.ndarray, train: xr.DataArray, components: int) -> dict[str, np.ndarray]:
    """Every baseline's images, (image, plane, row, col) each."""
    mean = np.broadcast_to(train.values.mean(axis=0), test.shape)
    return {
        "left blank": np.zeros(test.shape),
        "mean training digit": mean,
        "nearest training digit": fill_by_neighbour(test, mask, train),
        "10 nearest": fill_by_neighbour(test, mask, train, min(NEIGHBOURS, len(train))),
        "principal components": fill_by_pca(test, mask, train, components),
    }


def infer_all(
    test: xr.DataArray, mask: np.ndarray, fitted: Pretrained, refined: Refined, p: dict, progress, hiding: str
) -> dict[str, np.ndarray]:
    """Every model's images: posterior means."""
    chain = {"burn_in": p["test_burn_in"], "collect": p["test_collect"], "seed": p["seed"]}
    sweeps = len(MODELS) * test.sizes[IMAGE] * (p["test_burn_in"] + p["test_collect"])
    with progress(sweeps, f"filling in, hidden {hiding}") as bar:
        one = interpolate_one_layer(test, mask, fitted.layers[0], **chain, progress=bar.step)
        noise = float(refined.state.local.gamma_e.mean())  # of both, as the pretrained layers have no common one
        two = [
            interpolate_joint(
                test, mask, fitted.model, shared, refined.refinement, **chain, gamma_e=noise, progress=bar.step
            )
            for shared in (shared_of(fitted), refined.state.shared)
        ]
    return {name: found["mean"].values for name, found in zip(MODELS, (one, *two), strict=True)}


def judge(filled: dict[str, np.ndarray], test: xr.DataArray, mask: np.ndarray, knows: Svm) -> xr.Dataset:
    """Squared error on hidden pixels, share of filled-in digits classified wrongly, and examples, for every method.

    Before a digit is classified its seen pixels are put back as they were.
    """
    whole = {name: np.where(mask, test.values, pixels) for name, pixels in filled.items()}
    labels = [knows.predict(pixels) for pixels in whole.values()]
    errors = [hidden_error(pixels, test, mask) for pixels in filled.values()]
    return xr.Dataset({
        "hidden_error": (("way", IMAGE), np.array(errors, "f4")),
        "wrong": ("way", [100 * (found != test[LABEL].values).mean() for found in labels]),
        "filled": (("way", "example", ROW, COL), np.array([part[:EXAMPLES, 0] for part in filled.values()], "f4")),
        "mask": (("example", ROW, COL), mask[:EXAMPLES, 0]),
    }, {"way": list(filled)})  # fmt: skip
