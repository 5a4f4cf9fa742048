"""Supplement, "Generated Images": digits drawn from the model, and whether a classifier can tell them from real ones.

The paper does not say which of its random numbers are drawn from what. So there are three sources: everything from its
prior; the top coefficients as often and as strong as in the training digits; and, besides, positions from the theta of
one training digit. Real digits that training never saw stand beside them.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from sklearn.metrics import pairwise_distances_argmin_min

from gdd.base.axes import COL, IMAGE, ROW
from gdd.data import datasets
from gdd.evaluate.classify import error
from gdd.inference.generation import draw_from_prior, positions_of_one_image, render_local, resample_top
from gdd.inference.held import shared_of
from gdd.model.spec import ChainSpec
from gdd.model.state import JointState
from gdd.sampler.refine import Refined, start_from
from gdd_book.experiments import Outcome
from gdd_book.training.training import HEALTHY, digits, trained_models

NAME = "mnist-generated"
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 200, "n_generated": 200, "burn_in": 60, "collect": 20, "refine_burn_in": 60,
        "refine_collect": 20, "seed": 0, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 1000, "n_generated": 1000, "burn_in": 1500, "collect": 500,
        "refine_burn_in": 150, "refine_collect": 50, "seed": 0, **HEALTHY,
    },
}  # fmt: skip
MODELS = ("pretrained", "refined")
SOURCES = ("prior", "coefficients of training digits", "positions of one digit too")
REAL = "real digits"
EXAMPLES = 30


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train, draw, judge; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    train, number = digits(p), p["n_generated"]
    real = datasets.load(p["data"], "test", n=2 * number, seed=p["seed"]).values
    fitted, refined = trained_models(p, progress, resumable)
    begun = start_from(fitted, refined.refinement, ChainSpec(seed=p["seed"]))
    states = (begun._replace(shared=shared_of(fitted)), refined.state)
    kinds = {
        (model, source): pictures
        for model, state in zip(MODELS, states, strict=True)
        for source, pictures in generate(state, refined, number, p["seed"]).items()
    }
    kinds[REAL, REAL] = real[1::2]
    parts = [describe(pictures, real[::2], train.values, p["seed"]) for pictures in kinds.values()]
    dataset = xr.concat(parts, "kind").assign_coords(
        model=("kind", [model for model, _ in kinds]), source=("kind", [source for _, source in kinds])
    )
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def generate(state: JointState, refined: Refined, number: int, seed: int) -> dict[str, np.ndarray]:
    """Pictures (image, plane, row, col) of every source, from one state of the joint model."""
    model, refinement, generator = refined.model, refined.refinement, np.random.default_rng(seed)
    prior = draw_from_prior(number, model, state.shared, refinement, generator)
    resampled = resample_top(prior, state.local, generator)
    borrowed = positions_of_one_image(resampled, state.local, model, refinement, generator)
    locals_ = zip(SOURCES, (prior, resampled, borrowed), strict=True)
    return {source: render_local(local, model, state.shared).values for source, local in locals_}


def describe(pictures: np.ndarray, real: np.ndarray, train: np.ndarray, seed: int) -> xr.Dataset:
    """Judge one kind of pictures.

    ``told_apart``: share in % of held-back pictures that a classifier, trained on as many others of this kind and of
    real digits, puts on the right side; 50 is guessing. ``nearest`` (image,): distance from a picture to the training
    digit nearest to it, root mean square over pixels. ``rms`` of a pixel, ``negative``: share of the energy below zero.
    """
    both = np.concatenate([pictures, real]).astype(np.float32)
    made = np.arange(len(both)) < len(pictures)
    held = np.arange(len(both)) % 2 == 1
    wrong = error(both[~held], made[~held], both[held], made[held], seed=seed)
    flat, known = pictures.reshape(len(pictures), -1), train.reshape(len(train), -1)
    distance = pairwise_distances_argmin_min(flat, known)[1] / np.sqrt(flat.shape[1])
    return xr.Dataset({
        "told_apart": 100.0 - float(wrong.error),
        "nearest": (IMAGE, distance.astype("f4")),
        "rms": float(np.sqrt((flat**2).mean())),
        "negative": float((np.minimum(flat, 0) ** 2).sum() / (flat**2).sum()),
        "pictures": (("example", ROW, COL), pictures[:EXAMPLES, 0].astype("f4").round(3)),
    })  # fmt: skip
