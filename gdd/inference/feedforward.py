"""Layer 1 as a feed-forward feature extractor: learn its atoms from images without labels, then one step, no chain.

Everything that a feature depends on is a field of `FeedForward`, the atoms, and the image itself: no label, and no
other image. `gdd.inference.features.one_step_features` is the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.axes import DICTIONARY, FEATURE, IMAGE, IMAGES
from gdd.base.checks import (
    GddError,
    as_finite,
    as_labelled,
    as_plain,
    check_block,
    check_kind,
    check_precision,
    check_real,
    check_whole,
)
from gdd.data.contrast import high_pass
from gdd.inference.features import one_step_features, unfold
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision
from gdd.sampler.pretrain import pretrain

#: atoms whose norm is below this share of the largest one explain nothing: draws from nearly the prior
LEAST_NORM = 0.25


@dataclass(frozen=True)
class FeedForward:
    """Settings of the features.

    Attributes
    ----------
    pool : (row, col) of a block of layer 1
    margin : positions by which a block reaches into its neighbours, see `gdd.inference.features.one_step_features`
    noise_precision, weight_precision : gamma_e and gamma_w, held fixed in learning and in use
    blur : pixels; what is wider is taken away from every image, see `gdd.data.contrast.high_pass`
    """

    pool: tuple[int, int] = (3, 3)
    margin: int = 1
    noise_precision: float = 100.0
    weight_precision: float = 0.1
    blur: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool", check_block("pool", self.pool))
        object.__setattr__(self, "margin", check_whole("margin", self.margin, 0))
        check_precision("noise_precision", self.noise_precision)
        check_precision("weight_precision", self.weight_precision)
        check_real("blur", self.blur, 0.01, 1e3, "a number of pixels")


def learn_atoms(
    images: np.ndarray | xr.DataArray, atoms: int, atom_size: tuple[int, int], spec: FeedForward, chain: ChainSpec,
    folder: Path | None = None, progress=None,
) -> xr.DataArray:  # fmt: skip
    """Pretrain layer 1 on images less their blur, and keep the atoms that explain something, at unit norm.

    Parameters
    ----------
    images : (image, plane, row, col)   without labels, or with labels that are not looked at
    atoms, atom_size : number of atoms at the start, (row, col) of each
    spec : settings of the features
    chain : lengths and seed
    folder : of checkpoints; a run that finds its own there goes on from them
    progress : ``gdd_book.progress.Bar`` over sweeps, optional

    Returns
    -------
    (atom, plane, atom_row, atom_col)   those in use; attributes: all norms before scaling, ``residual``, ``active``

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.1 and 2.2, layer 1.
    Departs: high-pass images, precisions held (P15); the atoms' norms are dropped, as they say how often an atom
    is used in the training images and not what it looks like.
    Checked: tests/test_feedforward.py.
    """
    check_kind("spec", spec, FeedForward)
    images = as_plain(images, IMAGES, "images")
    layer = LayerSpec(
        atoms, atom_size, spec.pool, gamma_e=Precision(fixed=spec.noise_precision),
        gamma_d=Precision(fixed=float(np.prod(atom_size))), gamma_w=Precision(fixed=spec.weight_precision),
    )  # fmt: skip
    model = ModelSpec((layer,), images.shape[2:], images.shape[1])
    (fitted,) = pretrain(high_pass(images, spec.blur), model, chain, folder=folder, progress=progress).layers
    found = fitted.state.shared.dictionary
    norms = np.sqrt((found.astype(float) ** 2).sum(axis=(1, 2, 3)))
    used = norms >= LEAST_NORM * norms.max()
    last = {name: float(fitted.traces[name].values[0, -1]) for name in ("residual", "active")}
    unit = (found[used] / norms[used, None, None, None]).astype(np.float32)
    return as_labelled(unit, DICTIONARY, "atoms", norms=norms, **last)


def feed_forward(
    images: np.ndarray | xr.DataArray,
    dictionaries: np.ndarray | xr.DataArray | Sequence[np.ndarray | xr.DataArray],
    spec: FeedForward,
) -> xr.DataArray:
    """Features of images: the one-step answer of every block to the image less its blur.

    Parameters
    ----------
    images : (image, plane, row, col)
    dictionaries : one, or several, (atom, plane, atom_row, atom_col), as `learn_atoms` returns; several are put beside
        each other
    spec : settings of the features

    Returns
    -------
    (image, feature)    an image's row depends on that image alone

    Raises
    ------
    GddError
        Bad images, none or bad dictionaries, sizes that do not fit.

    Notes
    -----
    Source: none in the paper. Departs: see `gdd.inference.features.one_step_features`.
    Checked: tests/test_feedforward.py (no label, no other image has an influence).
    """
    check_kind("spec", spec, FeedForward)
    several = list(dictionaries) if isinstance(dictionaries, list | tuple) else [dictionaries]
    if not several:
        raise GddError("dictionaries: none given; one or more are needed")
    passed = high_pass(images, spec.blur)
    parts = [
        unfold(one_step_features(
            passed, as_finite(atoms, DICTIONARY, "dictionaries"), spec.pool, gamma_e=spec.noise_precision,
            gamma_w=spec.weight_precision, margin=spec.margin,
        ))
        for atoms in several
    ]  # fmt: skip
    return xr.DataArray(np.concatenate(parts, axis=1), parts[0].coords, (IMAGE, FEATURE), "feed_forward")
