"""Digits as the paper does Caltech: every class learns a model of its own, and all of their atoms code a digit.

Labels go into these atoms: what leaks stands beside what is honest. Page: book/mnist/coding.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import IMAGE, LABEL
from gdd.model.spec import ModelSpec
from gdd_book import training
from gdd_book.evaluate.classify import SvmProtocol
from gdd_book.experiments.common import Outcome, classify, encode, experiment, outcome
from gdd_book.experiments.studies.precisions import AT_TEST, precisions
from gdd_book.progress import Run

#: nothing is tuned: cross-validation would see labels in the atoms
WIDTH = SvmProtocol(costs=(10.0,), gammas=(1.0,))
#: gamma_e and rho: about those that training leaves, and those chosen on training digits
SETTINGS = {"as trained": (44.0, 0.004), "chosen": tuple(AT_TEST.values())}
ROWS = (
    "codes by all classes' atoms", "least residual", "a machine on all classes' residuals",
    "codes by the atoms of each digit's own class, a leak",
)


@experiment(
    "mnist-classes", seed=0, **training.DEEP_DIGITS, dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_test": 100, **training.lengths((20, 5), refine=(4, 1), test=(20, 10))},
    paper={"data": "mnist", "n_train": 1000, "n_test": 10000,
           **training.lengths((1500, 500), refine=(1500, 500), test=(100, 50))},
)
def mnist_classes(p: dict, run: Run) -> Outcome:
    """Digits coded by 16 atoms of each class: together the paper's 160. Error in %, (stage, setting, row)."""
    train, test = training.digits(p), training.digits(p, "test")
    every, stride, rows = learn_class_atoms(train, p, run), training.digits_model(p).stride, []
    with run.bar(len(training.STAGES) * len(SETTINGS), "classifying") as bar:
        for stage in training.STAGES:
            for setting in SETTINGS.values():
                rows.append(_errors(every.sel(stage=stage), train, test, stride, setting, p))
                bar.step()
    errors = np.reshape(rows, (len(training.STAGES), len(SETTINGS), len(ROWS)))
    return outcome(xr.Dataset(
        {"error": (("stage", "setting", "row"), errors)},
        {"stage": list(training.STAGES), "setting": list(SETTINGS), "row": list(ROWS)},
    ), p, test, model=class_model(p, 10), settings=SETTINGS)


def _errors(
    atoms: xr.DataArray, train: xr.DataArray, test: xr.DataArray, stride: tuple[int, int],
    setting: tuple[float, float], p: Mapping,
) -> list[float]:
    """Errors of `ROWS`."""
    joined = atoms.stack(every=(LABEL, "atom")).transpose("every", ...).values
    pair, both = precisions(joined, *setting), (train, test)
    codes = [encode(images, joined, stride, pair, p).ml_sample for images in both]
    own = [np.concatenate([  # only the atoms of the digit's own label can be active
        encode(images, one, stride, pair, p).ml_sample.values.reshape(len(images), -1)
        * (images[LABEL] == one[LABEL]).values[:, None] for one in atoms], axis=1) for images in both]
    residuals = [class_energies(images, atoms, stride, pair, p) for images in both]
    judged, machine, leaked = (
        float(classify(features, train, test, p["seed"], WIDTH).error) for features in (codes, residuals, own)
    )
    least = atoms[LABEL].values[residuals[1].argmin(axis=1)]
    return [judged, 100 * float((least != test[LABEL].values).mean()), machine, leaked]


def learn_class_atoms(train: xr.DataArray, p: dict, run: Run) -> xr.DataArray:
    """Learn a model of every class's digits, whose top layers together have the atoms of one usual model.

    Returns atoms in the image plane, (stage, label, atom, plane, atom_row, atom_col). A classifier of their code must
    not be tuned by cross-validation on the same digits: the atoms would have seen the labels that a fold holds back.
    """
    names = np.unique(train[LABEL].values)
    model, found = class_model(p, len(names)), []
    for name in names.tolist():
        own = train.isel({IMAGE: train[LABEL].values == name})
        stages = training.trained_models(p, run, training.Setup(own, model, p["seed"]), f"class {name}, ")
        found.append(xr.concat([project(one) for one in stages.values()], "stage", combine_attrs="drop"))
    atoms = xr.concat(found, LABEL).assign_coords({LABEL: names, "stage": list(stages)})
    return atoms.transpose("stage", ...).astype(np.float32)


def class_model(p: dict, classes: int) -> ModelSpec:
    """Return the usual model with its share of top atoms for one of so many classes; its refinement stays healthy."""
    model = training.digits_model(p | {"learned_planes": True})
    *lower, top = model.layers
    return replace(model, layers=(*lower, replace(top, atoms=top.atoms // classes)))


def class_energies(
    images: xr.DataArray, atoms: xr.DataArray, stride: tuple[int, int], precisions: tuple[float, float], p: dict
) -> np.ndarray:
    """Squared residual of every image under each class's atoms alone: (image, label); noise variance 1."""
    codes = [encode(images, one, stride, precisions, p) for one in atoms]
    return np.stack([-2.0 * code.log_likelihood.values for code in codes], axis=1)
