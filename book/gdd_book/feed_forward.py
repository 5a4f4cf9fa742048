"""A feature extractor without a chain at test time: atoms of one layer learned without labels, read in one step.

The features of an image depend only on the fields of `FeedForward`, the atoms, and the image itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.axes import DICTIONARY, FEATURE, IMAGE, IMAGES
from gdd.base.checks import as_plain
from gdd.inference.contrast import high_pass
from gdd.inference.features import one_step_features, unfold
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision
from gdd.sampler.pretrain import pretrain

Array = np.ndarray | xr.DataArray

#: atoms whose norm is below this share of the largest one explain nothing: draws from nearly the prior
LEAST_NORM = 0.25


@dataclass(frozen=True)
class FeedForward:
    """Settings of feed-forward features.

    Attributes
    ----------
    pool : (row, col) of a block of layer 1
    margin : positions by which a block reaches into its neighbours, see `gdd.inference.features.one_step_features`
    noise_precision, weight_precision : gamma_e and gamma_w, held fixed in learning and in use
    blur : pixels; what is wider is subtracted from every image, see `gdd.inference.contrast.high_pass`. 0: nothing is
    """

    pool: tuple[int, int] = (3, 3)
    margin: int = 1
    noise_precision: float = 100.0
    weight_precision: float = 0.1
    blur: float = 3.0

    def less_blur(self, images: Array) -> Array:
        """Images without what is wider than ``blur``."""
        return high_pass(images, self.blur) if self.blur else images


def learn_atoms(
    images: Array, atoms: int, atom_size: tuple[int, int], spec: FeedForward, chain: ChainSpec,
    folder: Path | None = None, progress=None,
) -> xr.DataArray:
    """Pretrain one layer on high-pass images, and keep the atoms that explain something, at unit norm.

    Parameters
    ----------
    images : (image, plane, row, col)   labels, if any, are ignored
    atoms, atom_size : number of atoms at the start, (row, col) of each
    spec : settings of the features
    chain : lengths and seed
    folder, progress : see `gdd.pretrain`

    Returns
    -------
    (atom, plane, atom_row, atom_col)   those in use; attribute: all norms before scaling

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.1 and 2.2, layer 1.
    Departs: high-pass images, precisions held (P15); the atoms' norms are dropped, as they say how often an atom
    is used in the training images and not what it looks like.
    Checked: tests/test_feedforward.py.
    """
    images = as_plain(images, IMAGES, "images")
    layer = LayerSpec(
        atoms, atom_size, spec.pool, gamma_e=Precision(fixed=spec.noise_precision),
        gamma_d=Precision(fixed=float(images.shape[1] * np.prod(atom_size))),
        gamma_w=Precision(fixed=spec.weight_precision),
    )
    model = ModelSpec((layer,), images.shape[2:], images.shape[1])
    (fitted,) = pretrain(spec.less_blur(images), model, chain, folder=folder, progress=progress).layers
    found = fitted.state.shared.dictionary
    norms = np.sqrt((found.astype(float) ** 2).sum(axis=(1, 2, 3)))
    used = norms >= LEAST_NORM * norms.max()
    unit = (found[used] / norms[used, None, None, None]).astype(np.float32)
    return xr.DataArray(unit, dims=DICTIONARY, name="atoms", attrs={"norms": norms})


def feed_forward(images: Array, dictionaries: Array | Sequence[Array], spec: FeedForward) -> xr.DataArray:
    """Features of images, (image, feature): `one_step_features` of high-pass images, unfolded.

    Parameters
    ----------
    images : (image, plane, row, col)
    dictionaries : one, or a list of several that are put side by side, as `learn_atoms` returns
    spec : settings of the features

    Notes
    -----
    Source: none in the paper.
    Departs: see `one_step_features`.
    Checked: tests/test_feedforward.py (no label, no other image has an influence).
    """
    several = dictionaries if isinstance(dictionaries, list | tuple) else [dictionaries]
    passed, given = spec.less_blur(images), {"gamma_e": spec.noise_precision, "gamma_w": spec.weight_precision}
    parts = [unfold(one_step_features(passed, atoms, spec.pool, margin=spec.margin, **given)) for atoms in several]
    return xr.DataArray(np.concatenate(parts, axis=1), parts[0].coords, (IMAGE, FEATURE), "feed_forward")
