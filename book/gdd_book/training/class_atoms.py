"""Atoms learned from the digits of each class apart: all classes' together, or each class against the others.

Labels go into these atoms. So a classifier of their code must not be tuned by cross-validation on the same digits:
the atoms would have seen the labels that a fold holds back.

*Checked:* tests/test_class_atoms.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.deconvolution import deconvolve
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.projection import project_model
from gdd.sampler.pretrain import pretrain
from gdd_book.training.training import PRETRAINING, folder_of, model_for


def learn_class_atoms(train: xr.DataArray, p: Mapping[str, Any], progress, resumable: bool = True) -> xr.DataArray:
    """Pretrain a model on every class's training digits, whose top layers together have the atoms of one usual model.

    Parameters
    ----------
    train : (image, plane, row, col) with labels
    p : holds at least the names of `gdd_book.training.training.PRETRAINING`, of which ``train`` was made
    progress, resumable : see `gdd_book.training.training.trained_models`

    Returns
    -------
    DataArray (label, atom, plane, atom_row, atom_col)
        Projected to the image plane.

    Raises
    ------
    GddError
        Settings that no model has; a checkpoint that belongs to other data or code.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 4, Caltech 101, where every class has its dictionaries. *Departs:* on digits.
    *Checked:* tests/test_class_atoms.py.
    """
    names = np.unique(train[LABEL].values)
    model, chain = class_model(p, len(names)), ChainSpec(p["burn_in"], p["collect"], p["seed"])
    found = []
    with progress(chain.sweeps * len(model.layers) * len(names), "pretraining class by class") as bar:
        for name in names.tolist():
            own = train.isel({IMAGE: train[LABEL].values == name})
            folder = folder_of("pretrained-class", (*PRETRAINING, LABEL), {**p, LABEL: name}) if resumable else None
            found.append(project_model(pretrain(own, model, chain, folder=folder, progress=bar)))
    return xr.concat(found, LABEL, combine_attrs="drop").assign_coords({LABEL: names})


def class_model(p: Mapping[str, Any], classes: int) -> ModelSpec:
    """Return the usual model with its share of top atoms for one of so many classes."""
    model = model_for(p["noise_precision"], p["weight_precision"])
    *lower, top = model.layers
    return replace(model, layers=(*lower, replace(top, atoms=top.atoms // classes)))


def class_energies(images: xr.DataArray, atoms: xr.DataArray, stride: tuple[int, int], **chain) -> np.ndarray:
    """Squared residual of every image under each class's atoms alone: (image, label), in units of the noise variance.

    Up to a constant; the least tells the class without a classifier. ``chain`` goes to
    `gdd.inference.deconvolution.deconvolve`.

    Notes
    -----
    *Source:* none; the paper has no such use. *Departs:* does not apply. *Checked:* tests/test_class_atoms.py.
    """
    codes = [deconvolve(images, one.values.astype(images.dtype), stride, **chain) for one in atoms]
    return np.stack([-2.0 * code.log_likelihood.values for code in codes], axis=1)
