"""Features of new images: deconvolution with projected atoms, under the precisions that training found."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.checks import check_kind
from gdd.inference.deconvolution import deconvolve
from gdd.model.spec import ModelSpec
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined


def infer(fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray | np.ndarray, **chain) -> xr.Dataset:
    """Deconvolve images with projected atoms, under the precisions that training found.

    ``chain`` goes to `gdd.inference.deconvolution.deconvolve`, which says what comes back. gamma_e is the bottom
    layer's mean
    over images; gamma_w is the top layer's.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4 and 3. *Departs:* P16. *Checked:* tests/test_pipeline.py.
    """
    check_kind("fitted", fitted, Pretrained)
    gamma_e = float(fitted.layers[0].state.local.gamma_e.mean(axis=0)[0])
    gamma_w = float(fitted.layers[-1].state.shared.gamma_w.mean())
    return _deconvolved(images, atoms, fitted.model, gamma_e, gamma_w, chain)


def infer_refined(refined: Refined, atoms: xr.DataArray, images: xr.DataArray | np.ndarray, **chain) -> xr.Dataset:
    """Deconvolve images with the projected atoms of a refined model, under the precisions that refinement found.

    As `infer`; gamma_e is the mean over images of the only noise that the joint model has.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4 and 3. *Departs:* P16. *Checked:* tests/test_projection_joint.py.
    """
    check_kind("refined", refined, Refined)
    state = refined.state
    gamma_e, gamma_w = (float(np.mean(values)) for values in (state.local.gamma_e, state.shared.gamma_w))
    return _deconvolved(images, atoms, refined.model, gamma_e, gamma_w, chain)


def _deconvolved(images, atoms, model: ModelSpec, gamma_e, gamma_w: float, chain: dict) -> xr.Dataset:
    return deconvolve(images, atoms, model.stride, gamma_e=gamma_e, gamma_w=gamma_w, **chain)
