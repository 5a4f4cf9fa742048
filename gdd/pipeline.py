"""From a pretrained model to projected atoms and to features of new images: the few calls that a researcher needs.

fitted = gdd.pretrain(images, gdd.MNIST, gdd.ChainSpec(burn_in=60, collect=20))
atoms = gdd.project_model(fitted)
codes = gdd.infer(fitted, atoms, new_images)
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.axes import DICTIONARY, as_labelled
from gdd.deconvolution import deconvolve
from gdd.projection import project, vote_positions
from gdd.sampler.pretrain import Pretrained
from gdd.state import maps_of


def project_model(fitted: Pretrained) -> xr.DataArray:
    """Carry the top dictionary of a pretrained model to the image plane.

    Returns
    -------
    DataArray (atom, plane, atom_row, atom_col)
        Its attribute ``winning_share`` tells, for every pooled layer from the bottom, how much of the weight the
        winning positions hold: 1 if pooling always went where the projection says, 1/B if it was indifferent.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4. *Departs:* each layer votes on its own residual, as pretraining has no
    joint one. *Checked:* tests/test_projection.py, tests/test_pipeline.py.
    """
    positions, shares = [], []
    for number, (below, above) in enumerate(zip(fitted.layers, fitted.layers[1:], strict=False)):
        if below.spec.pooling == "probabilistic":
            data, state = fitted.inputs[number], below.state
            vote = vote_positions(
                data.images, state.shared.dictionary, state.local.z, state.local.w, state.local.gamma_e,
                below.spec.pool, above.state.shared.dictionary, maps_of(above.state.local, above.shape), data.mask,
            )  # fmt: skip
            positions.append(vote.positions)
            shares.append(float(np.nanmean(vote.share)))
        else:
            positions.append(None)
            shares.append(float("nan"))
    dictionaries = [layer.state.shared.dictionary for layer in fitted.layers]
    atoms = project(dictionaries, [layer.spec.pool for layer in fitted.layers[:-1]], positions)
    return as_labelled(atoms, DICTIONARY, "projected_atoms", winning_share=shares)


def infer(fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray | np.ndarray, **chain) -> xr.Dataset:
    """Deconvolve images with projected atoms, under the precisions that training found.

    ``chain`` goes to `gdd.deconvolution.deconvolve`, which says what comes back. gamma_e is the bottom layer's mean
    over images; gamma_w is the top layer's.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4 and 3. *Departs:* P16. *Checked:* tests/test_pipeline.py.
    """
    gamma_e = fitted.layers[0].state.local.gamma_e.mean(axis=0)
    gamma_w = float(fitted.layers[-1].state.shared.gamma_w.mean())
    return deconvolve(
        images, np.asarray(atoms, np.asarray(images).dtype), fitted.model.stride,
        gamma_e=float(gamma_e[0]) if len(gamma_e) == 1 else gamma_e, gamma_w=gamma_w, **chain,
    )  # fmt: skip
