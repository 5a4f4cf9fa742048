"""What the pooling costs: digits classified after probabilistic, max and average pooling, at equal precisions at test.

With max pooling the first layer is that of the model's predecessor, the hierarchical beta process (HBP in Table 1):
every element of a map has a Bernoulli of its own, under a Beta(1/K, 1 - 1/K), and maps are pooled afterwards. Models
differ in the sizes of their projected atoms and in gamma_w, so one deconvolution is compared at the same gamma_e and
rho (`gdd_book.experiments.studies.precisions`), each with its number of active coefficients. Page: book/mnist/error.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import ATOM
from gdd_book.experiments.atoms import with_pooling
from gdd_book.experiments.mnist import KINDS
from gdd_book.experiments.path import encode, error_of
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.precisions import STRIDE, precisions
from gdd_book.progress import Run
from gdd_book.training import DIGITS_CHAIN, HELD_DIGITS, digits, digits_model, pretrained_model, setup_of

POOLINGS = ("probabilistic", "max", "average")


@experiment(
    "mnist-pooling", choices={"poolings": POOLINGS}, seeds=(0, 1, 2), poolings=POOLINGS, learned_planes=True,
    **HELD_DIGITS,
    demo={"data": "digits", "n_train": 200, "n_test": 200, "burn_in": 20, "collect": 10, "test_burn_in": 20,
          "test_collect": 10, "noises": (44.0,), "ratios": (0.004, 4.0)},
    paper={"data": "mnist", "n_train": 1000, "n_test": 10000, "burn_in": 60, "collect": 20, "test_burn_in": 60,
           "test_collect": 40, "noises": (44.0, 1000.0), "ratios": (0.004, 1.0, 20.0)},
)
def mnist_pooling(p: dict, run: Run) -> Outcome:
    """Pretrain with each pooling, code all digits in one deconvolution, classify the sample and the mean.

    (subset, pooling, noise, ratio): ``error`` in % by kind of feature, ``active`` coefficients of a test digit;
    ``norm`` (subset, pooling, atom), mean squared one of the projected atoms.
    """
    test = digits(p | {"seed": 0}, "test")
    subsets = []
    for seed in p["seeds"]:
        one, rows = p | {"seed": seed}, []
        train = digits(one)
        for pooling in p["poolings"]:
            setup = setup_of(one, run, train)
            depends = {name: one[name] for name in (*DIGITS_CHAIN, "learned_planes")} | {"pooling": pooling}
            folder = run.folder("mnist-pooling", depends)
            setup = setup._replace(model=with_pooling(setup.model, pooling), folders=(folder, None))
            atoms = project(pretrained_model(one, run, setup, f"{pooling} pooling, ")).values.astype(np.float32)
            rows.append(_at_all_precisions(atoms, train, test, one, run, pooling))
        subsets.append(xr.concat(rows, "pooling"))
    dataset = xr.concat(subsets, "subset").assign_coords(
        subset=list(p["seeds"]), pooling=list(p["poolings"]), noise=list(p["noises"]), ratio=list(p["ratios"])
    )
    return outcome(dataset, p, test, model=digits_model(p))


def _at_all_precisions(
    atoms: np.ndarray, train: xr.DataArray, test: xr.DataArray, p: dict, run: Run, label: str
) -> xr.Dataset:
    """Errors and active coefficients with these atoms, (noise, ratio)."""
    errors = np.empty((len(p["noises"]), len(p["ratios"]), len(KINDS)))
    active = np.empty(errors.shape[:2])
    with run.bar(active.size, f"{label} pooling, coding") as bar:
        for cell in np.ndindex(active.shape):
            pair = precisions(atoms, p["noises"][cell[0]], p["ratios"][cell[1]])
            codes = [encode(images, atoms, STRIDE, pair, p) for images in (train, test)]
            errors[cell] = [error_of([code[kind] for code in codes], train, test, p) for kind in KINDS]
            active[cell] = (codes[1].ml_sample.values != 0).sum() / len(test)
            bar.step()
    return xr.Dataset(
        {"error": (("noise", "ratio", "feature_kind"), errors), "active": (("noise", "ratio"), active),
         "norm": (ATOM, (atoms.astype(float) ** 2).sum(axis=(1, 2, 3)))}, {"feature_kind": list(KINDS)},
    )
