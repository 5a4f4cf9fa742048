"""From a model to its dictionaries in the image plane: after pretraining, after refinement, of every layer."""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import DICTIONARY, as_labelled
from gdd.base.checks import check_kind, check_whole
from gdd.model.joint import layer_values
from gdd.model.spec import ModelSpec
from gdd.model.state import JointState, LayerData, maps_of
from gdd.projection.collapse import project, render_projected, vote_positions
from gdd.projection.voting_joint import vote_joint
from gdd.sampler.joint_conditionals import of_images
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined


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
    check_kind("fitted", fitted, Pretrained)
    return _carried_down(*_votes_on_own_residuals(fitted))



def project_refined(refined: Refined) -> xr.DataArray:
    """Carry the top dictionary of a refined model to the image plane.

    Returns
    -------
    DataArray (atom, plane, atom_row, atom_col)
        With the attribute ``winning_share``, as `project_model`.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4. *Departs:* the vote's weighting is ours; the paper gives none.
    *Checked:* tests/test_projection_joint.py.
    """
    check_kind("refined", refined, Refined)
    return project_state(refined.state, refined.data, refined.model)



def project_state(state: JointState, data: LayerData, model: ModelSpec) -> xr.DataArray:
    """Project any state of the joint model; see `project_refined`."""
    return _carried_down(*_votes_on_images(state, data, model))



def projection_error(state: JointState, model: ModelSpec, atoms: xr.DataArray) -> np.ndarray:
    """How far the pictures that projected atoms draw are from those that the layers draw: (image,), share of energy."""
    layered = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    drawn = render_projected(np.asarray(atoms), state.local.w, model.stride, model.image_size)
    return ((layered - drawn) ** 2).sum(axis=(1, 2, 3)) / (layered**2).sum(axis=(1, 2, 3)).clip(1e-12)



def project_layers(trained: Pretrained | Refined, images: int | None = None) -> tuple[xr.DataArray, ...]:
    """Carry the dictionary of every layer to the image plane, bottom first.

    Parameters
    ----------
    trained : a pretrained or a refined model
    images : so many of its training images, the first ones, vote in a refined model; None for all. With three layers a
        vote of all takes longer than many sweeps

    Returns
    -------
    tuple of DataArray (atom, plane, atom_row, atom_col)
        The first is the bottom dictionary as it is, the last what `project_model` or `project_refined` gives.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4, Fig. 3 and 5. *Departs:* as `project_model`, `project_refined`.
    *Checked:* tests/test_projection_joint.py.
    """
    check_kind("trained", trained, (Pretrained, Refined))
    images = None if images is None else check_whole("images", images, 1)
    if isinstance(trained, Pretrained):
        found = _votes_on_own_residuals(trained)
    else:
        found = _votes_on_images(*of_images(trained.state, trained.data, slice(images)), trained.model)
    dictionaries, model, positions, shares = found
    return tuple(
        _carried_down(dictionaries[: top + 1], model, positions[:top], shares[:top])
        for top in range(len(dictionaries))
    )



def _votes_on_own_residuals(fitted: Pretrained):
    """Arguments of `_carried_down` for a pretrained model."""
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
    return [layer.state.shared.dictionary for layer in fitted.layers], fitted.model, positions, shares



def _votes_on_images(state: JointState, data: LayerData, model: ModelSpec):
    """Arguments of `_carried_down` for a state of the joint model."""
    votes = vote_joint(state, data, model)
    shares = [float(np.nanmean(vote.share)) for vote in votes]
    return state.shared.dictionaries, model, [vote.positions for vote in votes], shares



def _carried_down(dictionaries, model: ModelSpec, positions, shares: list[float]) -> xr.DataArray:
    atoms = project(dictionaries, [layer.pool for layer in model.layers[: len(positions)]], positions)
    return as_labelled(atoms, DICTIONARY, "projected_atoms", winning_share=shares)
