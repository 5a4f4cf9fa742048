"""Dictionaries in the image plane: packed for a record, paired layer by layer, judged on images not seen before.

Atoms of the layers differ in size, so a record has one array for each layer, and one axis that numbers the atoms of all
layers from the bottom one up, with the coordinate ``layer``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, DICTIONARY, IMAGE, GddError
from gdd.evaluate.atoms import match_atoms
from gdd.inference.deconvolution import deconvolve
from gdd.inference.held import Chain
from gdd.model.spec import ModelSpec
from gdd.projection import render_projected

LAYER = "layer"
LEVELS = 127  # grey levels on either side of zero
REACH = 4  # pixels; atoms of any layer may be looked for that far


def pack(stacks: Sequence[Sequence[np.ndarray | xr.DataArray]], axis: str) -> xr.Dataset:
    """Dictionaries of several models as one Dataset of small whole numbers: each atom over its own largest magnitude.

    Parameters
    ----------
    stacks : for each model its layers, bottom first, each (atom, plane, atom_row, atom_col); the same sizes in all
    axis : name of the axis over models

    Returns
    -------
    Dataset
        ``layer_1``, ... (axis, atom_1, plane, row_1, col_1) from -127 to 127; `unpack` gives a layer back.

    Notes
    -----
    *Source:* none. *Departs:* not applicable. *Checked:* tests/test_dictionaries.py.
    """
    out = {}
    for number, layers in enumerate(zip(*stacks, strict=True), 1):
        atoms = np.stack([np.asarray(one, float) for one in layers])
        largest = np.abs(atoms).max(axis=(-3, -2, -1), keepdims=True)
        scaled = np.divide(atoms, largest, out=np.zeros_like(atoms), where=largest > 0)
        axes = (axis, f"atom_{number}", "plane", f"row_{number}", f"col_{number}")
        out[f"layer_{number}"] = (axes, np.rint(LEVELS * scaled).astype(np.int8))
    return xr.Dataset(out)


def unpack(record: xr.Dataset, layer: int, **chosen) -> xr.DataArray:
    """Atoms of one layer, numbered from 1, of one model: (atom, plane, atom_row, atom_col), each from -1 to 1.

    ``chosen`` names the model along the axis that `pack` was given, for instance ``stage="refined"``.

    Raises
    ------
    GddError
        A layer that the record does not have.
    """
    name = f"layer_{layer}"
    if name not in record:
        raise GddError(f"layer: {layer} given; the record has no such layer")
    atoms = record[name].sel(chosen) / LEVELS
    return xr.DataArray(atoms.values, dims=DICTIONARY)


def join_layers(values: Sequence[np.ndarray | xr.DataArray]) -> xr.DataArray:
    """Numbers of the atoms of every layer, bottom first, on one axis, with the coordinate ``layer``, from 1.

    ``values`` are (atom,) or (atom, image).
    """
    layers = np.repeat(np.arange(1, len(values) + 1), [len(part) for part in values])
    joined = np.concatenate([np.asarray(part) for part in values])
    return xr.DataArray(joined, {LAYER: (ATOM, layers)}, (ATOM, IMAGE)[: joined.ndim])


def reaches_of(model: ModelSpec) -> list[int]:
    """Widest shift in pixels at which an atom of each layer is looked for: its stride, free of cost, or `REACH`."""
    return [max(REACH, *shape.stride) for shape in model.shapes()]


def match_layers(
    found: Sequence[np.ndarray | xr.DataArray], true: Sequence[np.ndarray | xr.DataArray], reaches: Sequence[int]
) -> xr.DataArray:
    """Magnitude of the correlation of every atom of ``true`` with its partner in ``found``, layer by layer: (atom,).

    Parameters
    ----------
    found, true : layers, bottom first, as `gdd.projection.project_layers` gives them
    reaches : for every layer, the widest shift in pixels that `gdd.evaluate.atoms.match_atoms` tries

    Notes
    -----
    *Source:* not in the paper, which compares dictionaries by eye. *Departs:* not applicable.
    *Checked:* tests/test_dictionaries.py.
    """
    pairs = zip(found, true, reaches, strict=True)
    return join_layers([np.abs(match_atoms(one, other, reach).correlation) for one, other, reach in pairs])


def cut_atoms(images: np.ndarray, count: int, size: tuple[int, int]) -> np.ndarray:
    """Take the first ``count`` images, cut to the middle, as atoms; the first again if there are too few."""
    top, left = ((have - want) // 2 for have, want in zip(images.shape[2:], size, strict=True))
    chosen = np.arange(count) % len(images)
    return images[chosen][:, :, top : top + size[0], left : left + size[1]].astype(float)


def rebuild(
    images: xr.DataArray, atoms: np.ndarray | xr.DataArray, stride: tuple[int, int], chain: Chain, gamma_e: float,
    gamma_w: float,
) -> tuple[float, float]:  # fmt: skip
    """Put images together from atoms of unit norm, and say how well that goes.

    Parameters
    ----------
    images : (image, plane, row, col)
    atoms : (atom, plane, atom_row, atom_col), of any norm
    stride : pixels between places of an atom
    chain : lengths and seed of `gdd.inference.deconvolution.deconvolve`, whose sample of highest likelihood counts
    gamma_e, gamma_w : precisions of noise and weights

    Returns
    -------
    float, float
        Root mean square of what is left of a pixel; active coefficients per image.

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_dictionaries.py.
    """
    plain = np.asarray(atoms, np.float32)
    plain = plain / np.sqrt((plain**2).sum(axis=(1, 2, 3), keepdims=True)).clip(1e-12)
    code = deconvolve(
        images, plain, stride, gamma_e=gamma_e, gamma_w=gamma_w, burn_in=chain.burn_in, collect=chain.collect,
        seed=chain.seed,
    ).ml_sample.values  # fmt: skip
    left = images.values - render_projected(plain, code, stride, images.shape[2:])
    return float(np.sqrt((left**2).mean())), float((code != 0).sum() / len(images))
