"""New images under a trained model: `infer`."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.checks import GddError, check_kind
from gdd.inference.deconvolution import InferenceChain, deconvolve
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined


def infer(
    trained: Pretrained | Refined, atoms: xr.DataArray | np.ndarray, images: xr.DataArray | np.ndarray, **options
) -> xr.Dataset:
    """Features of new images: deconvolution with projected atoms, under the precisions of training.

    gamma_e is the mean over the training images, after pretraining that of the bottom layer; gamma_w is the top
    layer's.

    Parameters
    ----------
    trained : a pretrained or a refined model
    atoms : (atom, plane, atom_row, atom_col)   its projected top atoms, `gdd.project`
    images : (image, plane, row, col), in the units of training
    **options : ``mask``, ``burn_in``, ``collect``, ``seed``, ``start``, ``first_image``, ``trace``, ``progress``,
        ``device``, see `gdd.inference.deconvolution.deconvolve` and `InferenceChain`

    Returns
    -------
    Dataset, as of `deconvolve`: ``mean``, ``inclusion``, ``magnitude`` of every coefficient, and more

    Raises
    ------
    GddError
        An unknown option; arguments that `deconvolve` refuses.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and 3.
    Departs: P16.
    Checked: tests/test_pipeline.py, tests/test_projection_joint.py.
    """
    check_kind("trained", trained, (Pretrained, Refined))
    gamma_e, gamma_w = precisions_of(trained)
    chain = {name: options.pop(name) for name in InferenceChain._fields if name in options}
    known = [*InferenceChain._fields, *(name for name in deconvolve.__kwdefaults__ if name != "chain")]
    for name in options:
        if name not in known:
            raise GddError(f"{name}: not an option of infer; these are {', '.join(known)}")
    chain = InferenceChain(**chain)
    return deconvolve(images, atoms, trained.model.stride, gamma_e=gamma_e, gamma_w=gamma_w, chain=chain, **options)


def precisions_of(trained: Pretrained | Refined) -> tuple[float, float]:
    """gamma_e and gamma_w for the deconvolution of new images, means over the trained entries."""
    if isinstance(trained, Pretrained):
        local, shared = trained.layers[0].state.local, trained.layers[-1].state.shared
    else:
        local, shared = trained.state
    return float(np.mean(local.gamma_e)), float(np.mean(shared.gamma_w))
