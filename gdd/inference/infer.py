"""New images under a trained model: `infer`, by sampling or by mean field."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.checks import GddError, check_choice, check_kind
from gdd.inference.deconvolution import deconvolve
from gdd.inference.mean_field import mean_field
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined

METHODS = {"sampling": deconvolve, "mean field": mean_field}


def infer(
    trained: Pretrained | Refined, atoms: xr.DataArray | np.ndarray, images: xr.DataArray | np.ndarray,
    method: str = "sampling", **options,
) -> xr.Dataset:
    """Features of new images: deconvolution with projected atoms, under the precisions that training found.

    gamma_e is the mean over the training images, after pretraining that of the bottom layer; gamma_w is the top
    layer's.

    Parameters
    ----------
    trained : a pretrained or a refined model
    atoms : (atom, plane, atom_row, atom_col)   its projected top atoms, `gdd.project`
    images : (image, plane, row, col), in the units of training
    method : "sampling", a chain for each image; or "mean field", which has no random numbers
    **options : of sampling ``mask``, ``burn_in``, ``collect``, ``seed``, ``start``, ``first_image``,
        ``trace``, ``progress``, see `gdd.inference.deconvolution.deconvolve`; of mean field
        ``mask``, ``steps``, ``progress``, see `gdd.inference.mean_field.mean_field`

    Returns
    -------
    Dataset, what the method's function returns: ``mean``, ``inclusion``, ``magnitude`` of every coefficient, and more

    Raises
    ------
    GddError
        Another method; an option that it does not have; what its function refuses.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and 3; mean field: Sec. 4, "sampling or variational methods".
    Departs: P16.
    Checked: tests/test_pipeline.py, tests/test_projection_joint.py, tests/test_mean_field.py.
    """
    check_kind("trained", trained, (Pretrained, Refined))
    function = METHODS[check_choice("method", method, list(METHODS))]
    for name in options:
        if name not in (known := function.__kwdefaults__):
            raise GddError(f"{name}: not an option of infer by {method}; these are {', '.join(known)}")
    gamma_e, gamma_w = precisions_of(trained)
    return function(images, atoms, trained.model.stride, gamma_e=gamma_e, gamma_w=gamma_w, **options)


def precisions_of(trained: Pretrained | Refined) -> tuple[float, float]:
    """gamma_e and gamma_w under which new images are deconvolved, means over what was learned."""
    if isinstance(trained, Pretrained):
        local, shared = trained.layers[0].state.local, trained.layers[-1].state.shared
    else:
        local, shared = trained.state
    return float(np.mean(local.gamma_e)), float(np.mean(shared.gamma_w))
