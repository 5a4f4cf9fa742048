"""Table 1's protocol at several numbers of training digits, after pretraining, on several subsets of each.

Each subset is one run of `gdd_book.experiments.mnist_error`, its number the seed, and only its errors are kept. At
paper
scale the chains are shorter than the paper's, as there are many.
"""

from __future__ import annotations

import xarray as xr

from gdd.base.axes import LABEL
from gdd.data import datasets
from gdd.data.subsets import repeated
from gdd.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd.model.spec import ChainSpec
from gdd.projection import project_model
from gdd_book.experiments import Outcome, mnist_error
from gdd_book.training.training import digits, model_for, pretrained_model

NAME = "mnist-curve"
CHOICES = {"codes": mnist_error.CODES}
_COMMON = {"codes": ("ml_sample", "mean"), "noise_precision": 100.0, "weight_precision": 0.1}
PARAMETERS = {
    "demo": {
        "data": "digits", "sizes": (200, 400), "trials": 3, "trials_above": 2, "n_test": 500, "burn_in": 60,
        "collect": 20, "test_burn_in": 60, "test_collect": 20, **_COMMON,
    },
    "paper": {
        "data": "mnist", "sizes": (1000, 2000, 5000), "trials": 10, "trials_above": 2, "n_test": 10000, "burn_in": 300,
        "collect": 100, "test_burn_in": 100, "test_collect": 50, **_COMMON,
    },
}  # fmt: skip


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Pretrain, project, infer and classify for every subset; see the module.

    ``resumable``: keep checkpoints of the chains, and go on from those of an earlier call of any experiment.
    """
    p = parameters
    test = datasets.load(p["data"], "test", n=p["n_test"])
    runs = repeated(p["sizes"], p["trials"], p["trials_above"])
    for size, trial in runs:  # before any chain: are there so many digits, and enough of each to tune on?
        labels = digits(p | {"n_train": size, "seed": trial})[LABEL].values
        tuning_subset(labels, FIVE_FOLD, trial)
    found = [one_subset(p | {"n_train": size, "seed": trial}, test, progress, resumable) for size, trial in runs]
    places = {"size": ("run", [size for size, _ in runs]), "trial": ("run", [trial for _, trial in runs])}
    table = xr.concat(found, "run").assign_coords(places).set_index(run=["size", "trial"]).unstack("run")
    table = table.transpose("size", "trial", ...)
    model = model_for(p["noise_precision"], p["weight_precision"])
    spec = {"model": model, "chain": ChainSpec(p["burn_in"], p["collect"], 0), "protocol": FIVE_FOLD}
    return Outcome(table, spec, p["data"], test.attrs["checksum"], 0)


def one_subset(p: dict, test: xr.DataArray, progress, resumable: bool) -> xr.Dataset:
    """Test error in % of every feature, and how many coefficients of a test digit are active."""
    train = digits(p)
    fitted = pretrained_model(p, progress, resumable)
    atoms = project_model(fitted)
    features = mnist_error.features_of(fitted, atoms, train, test, p, progress)
    errors = [mnist_error.classify(*pair, train, test, p["seed"]).error.item() for pair in features.values()]
    return xr.Dataset({
        "error": ("feature_kind", errors),
        "active_at_test": mnist_error.active_in(features[p["codes"][0]][1]),
        "winning_share": atoms.attrs["winning_share"][0],
    }, {"feature_kind": list(features)})  # fmt: skip
