"""Fig. 2b and the top of 2c: half of every test digit hidden and filled in, by one layer, by two, and by none.

Two ways of hiding half of the pixels: at random, and as a left, right, upper or lower half in turn. Each method is
judged by the squared error on what it did not see, and by how often a classifier trained on whole digits knows the
digit again once the hidden half is filled in. Methods that know no layers stand beside the models; they see the same
training digits.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import COL, LABEL, ROW
from gdd.data import datasets
from gdd.evaluate.baselines import choose_components
from gdd.evaluate.classify import Svm, fit_svm
from gdd.inference.held import Chain
from gdd.inference.interpolation import hide_at_random, hide_halves
from gdd_book.experiments import Outcome
from gdd_book.training.completion import MODELS, baselines, compare_filled, fill_by_models, fill_plainly
from gdd_book.training.training import HEALTHY, digits, trained_models

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
METHODS = (*baselines("digit"), *MODELS)
HIDING = ("at random", "half as a block")
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
    chain, parts = Chain(p["test_burn_in"], p["test_collect"], p["seed"]), []
    for hiding, mask in zip(HIDING, masks, strict=True):
        components = choose_components(train, mask)
        filled = fill_plainly(test, mask, train, components, "digit")
        filled |= fill_by_models(test, mask, fitted, refined, chain, progress, f"filling in, hidden {hiding}")
        parts.append(judge(filled, test, mask, knows).assign(components=components))
    dataset = xr.concat(parts, "hiding").assign_coords(hiding=list(HIDING))
    dataset["truth"] = ("example", ROW, COL), test.values[:EXAMPLES, 0]
    dataset["wrong_whole"] = float(100 * (knows.predict(test) != test[LABEL].values).mean())
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def judge(filled: dict[str, np.ndarray], test: xr.DataArray, mask: np.ndarray, knows: Svm) -> xr.Dataset:
    """Squared error on hidden pixels, share of filled-in digits classified wrongly, and examples, for every method.

    Before a digit is classified its seen pixels are put back as they were.
    """
    whole = {name: np.where(mask, test.values, pixels) for name, pixels in filled.items()}
    labels = [knows.predict(pixels) for pixels in whole.values()]
    wrong = [100 * (found != test[LABEL].values).mean() for found in labels]
    return compare_filled(filled, test, mask, EXAMPLES).assign(wrong=("way", wrong))
