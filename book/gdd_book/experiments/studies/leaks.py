"""What small errors look like where labels leak: traps for whoever repeats the paper, each beside its honest form.

None of this says anything about what the authors did. Page: book/mnist/coding.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd_book.evaluate.classify import SvmProtocol
from gdd_book.experiments.path import classify, encode
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.class_wise import class_energies, learn_class_atoms, least_residual_error
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, STAGES, digits, model_for

#: nothing is tuned: cross-validation would see labels in the atoms
WIDTH = SvmProtocol(costs=(10.0,), gammas=(1.0,))
#: what is measured: honest, and the same with a leak
ROWS = (
    "codes by all classes' atoms", "codes by the atoms of each digit's own class",
    "cross-validation on the digits that the atoms were learned from",
    "least residual, atoms of training digits", "a machine on all classes' residuals, the same atoms",
    "least residual, test digits among those that atoms were learned from",
)


@experiment(
    "label-leaks", seed=0, **HELD_DIGITS,
    demo={"data": "digits", "n_train": 200, "n_test": 100, "burn_in": 20, "collect": 5, "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "n_train": 1000, "n_test": 1000, "burn_in": 150, "collect": 50, "test_burn_in": 100,
           "test_collect": 50},
)
def label_leaks(p: dict, run: Run) -> Outcome:
    """Error in % by row, atoms being learned from each class's digits apart; pretrained.

    Each leak stands beside its honest form; the third row's is the first.
    """
    train, test = digits(p), digits(p, "test")
    precisions = p["noise_precision"], p["weight_precision"]
    stride = model_for(*precisions).stride
    own_chains = p | {"stages": STAGES[:1]}
    atoms = learn_class_atoms(train, own_chains, run).isel(stage=0)
    both = xr.concat([train, test], IMAGE, combine_attrs="override")
    seen = learn_class_atoms(both, own_chains | {"data": f"{p['data']}, test digits too"}, run).isel(stage=0)
    joined = atoms.stack(every=(LABEL, "atom")).transpose("every", ...).values
    honest = [encode(images, joined, stride, precisions, p).ml_sample for images in (train, test)]
    own = [_by_own_class(images, atoms, stride, precisions, p) for images in (train, test)]
    judged, leaked = (classify(pair, train, test, p["seed"], WIDTH) for pair in (honest, own))
    cases = (train, atoms), (test, atoms), (test, seen)
    *residuals, leaky = (class_energies(images, one, stride, precisions, p) for images, one in cases)
    machine = classify(residuals, train, test, p["seed"], WIDTH)
    least, leaky_least = (least_residual_error(one, atoms[LABEL].values, test) for one in (residuals[1], leaky))
    errors = [judged.error, leaked.error, judged.cross_validation.min(), least, machine.error, leaky_least]
    return outcome(xr.Dataset({"error": ("row", [float(one) for one in errors])}, {"row": list(ROWS)}), p, test)


def _by_own_class(images: xr.DataArray, atoms: xr.DataArray, stride, precisions, p: Mapping) -> np.ndarray:
    """Codes in which only the atoms of the digit's own label can be active, (image, number)."""
    parts = []
    for name in atoms[LABEL].values:
        code = encode(images, atoms.sel({LABEL: name}), stride, precisions, p).ml_sample.values
        parts.append(code.reshape(len(images), -1) * (images[LABEL].values == name)[:, None])
    return np.concatenate(parts, axis=1)
