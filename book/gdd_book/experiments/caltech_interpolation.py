"""Fig. 4: half of every face hidden and filled in, by one layer, by two, and by methods that know no layers.

The faces are others than those of training. Two ways of hiding half of the pixels: at random, and as a left, right,
upper or lower half in turn. The judge is the squared error on what was hidden.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import COL, ROW
from gdd.data.contrast import normalise_contrast
from gdd.evaluate.baselines import choose_components
from gdd.inference.held import Chain
from gdd.inference.interpolation import hide_at_random, hide_halves
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.caltech import DATA, HEALTHY, STAGES, model_for, pictures, train_on
from gdd_book.training.completion import compare_filled, fill_by_models, fill_plainly

NAME = "caltech-interpolation"
CHOICES = {"data": ("digits", *DATA)}
PARAMETERS = {
    "demo": {
        "data": "digits", "class_name": "0", "n_train": 10, "n_test": 2, "burn_in": 6, "collect": 2,
        "refine_burn_in": 2, "refine_collect": 1, "test_burn_in": 2, "test_collect": 2, "seed": 0, **HEALTHY,
    },
    "paper": {
        "data": "caltech101", "class_name": "Faces_easy", "n_train": 64, "n_test": 16, "burn_in": 60, "collect": 20,
        "refine_burn_in": 15, "refine_collect": 5, "test_burn_in": 20, "test_collect": 10, "seed": 0, **HEALTHY,
    },
}  # fmt: skip
HIDING = ("half as a block", "at random")
EXAMPLES = 4
LEVELS = 0.01  # pictures of the record are rounded to this; a pixel's standard deviation is about 0.7


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train, hide, fill in, judge; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call.
    """
    p = parameters
    which = (p, (p["class_name"],), p["n_train"])
    train, test = (normalise_contrast(pictures(*which, held_out)) for held_out in (0, p["n_test"]))
    model = model_for("faces, interpolation", p["noise_precision"], p["weight_precision"])
    folder = checkpoint_folder(NAME, p) if resumable else None
    fitted, refined = train_on(train, model, p | {"stages": STAGES}, p["seed"], folder, progress, "faces").values()
    chain, parts = Chain(p["test_burn_in"], p["test_collect"], p["seed"]), []
    for hiding, mask in zip(HIDING, (hide_halves(test.shape), hide_at_random(test.shape, p["seed"])), strict=True):
        components = choose_components(train, mask)
        filled = fill_plainly(test, mask, train, components, "face")
        filled |= fill_by_models(test, mask, fitted, refined, chain, progress, f"filling in, hidden {hiding}")
        parts.append(compare_filled(filled, test, mask, EXAMPLES).assign(components=components))
    dataset = xr.concat(parts, "hiding").assign_coords(hiding=list(HIDING))
    dataset["truth"] = ("example", ROW, COL), test.values[:EXAMPLES, 0]
    for name in ("filled", "truth"):
        dataset[name] = rounded(dataset[name])
    spec = {"model": fitted.model, "refinement": refined.refinement}
    return Outcome(dataset, spec, p["data"], train.attrs["checksum"], p["seed"])


def rounded(pictures: xr.DataArray) -> xr.DataArray:
    """Pictures in whole steps of `LEVELS`, which compress well."""
    return (np.rint(pictures / LEVELS) * LEVELS).astype("f4")
