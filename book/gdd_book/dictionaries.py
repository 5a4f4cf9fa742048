"""Dictionaries in the image plane: packed for a record, paired layer by layer, judged on images not seen before.

A record has one array for each layer, and one axis of the atoms of all layers, with the coordinate ``layer``.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, DICTIONARY, IMAGE
from gdd.base.checks import GddError
from gdd.inference.deconvolution import deconvolve
from gdd.model.convolution import synthesise
from gdd.model.joint import layer_values
from gdd.model.pooling import Blocks
from gdd.model.spec import ModelSpec
from gdd.model.state import JointState
from gdd.projection import render_projected
from gdd.sampler.placement import placement_grid
from gdd_book.evaluate.atoms import match_atoms, scaled

LAYER = "layer"
LEVELS = 127  # grey levels on either side of zero
REACH = 4  # pixels; atoms of any layer may be looked for that far

Atoms = np.ndarray | xr.DataArray


def pack(stacks: Sequence[Sequence[Atoms]]) -> xr.Dataset:
    """Dictionaries of several models as small whole numbers: each atom over its own largest magnitude.

    ``stacks`` : for each model its layers, bottom first, each (atom, plane, atom_row, atom_col); the same sizes in all.
    Returns ``layer_1``, ... (stage, atom_1, plane, row_1, col_1) from -127 to 127; `unpack` gives a layer back.
    """
    out = {}
    for number, layers in enumerate(zip(*stacks, strict=True), 1):
        axes = ("stage", f"atom_{number}", "plane", f"row_{number}", f"col_{number}")
        out[f"layer_{number}"] = (axes, np.rint(LEVELS * np.stack([*map(scaled, layers)])).astype(np.int8))
    return xr.Dataset(out)


def unpack(record: xr.Dataset, layer: int, **chosen) -> xr.DataArray:
    """Atoms of one layer, numbered from 1, of the model ``chosen``: (atom, plane, atom_row, atom_col), from -1 to 1."""
    name = f"layer_{layer}"
    if name not in record:
        raise GddError(f"layer: {layer} given; the record has no such layer")
    return xr.DataArray((record[name].sel(chosen) / LEVELS).values, dims=DICTIONARY)


def rounded(array: Atoms, bits: int = 8) -> Atoms:
    """Array of single precision in whole steps, 2 ** ``bits`` of them to its largest value, rounded up to 2 ** n."""
    step = 2.0 ** (np.ceil(np.log2(np.abs(array).max().item() or 1)) - bits)
    return (np.rint(array / step) * step).astype(np.float32)


def join_layers(values: Sequence[Atoms]) -> xr.DataArray:
    """Numbers of the atoms of every layer, (atom,) or (atom, image), on one axis with the coordinate ``layer``."""
    layers = np.repeat(np.arange(1, len(values) + 1), [len(part) for part in values])
    joined = np.concatenate([np.asarray(part) for part in values])
    return xr.DataArray(joined, {LAYER: (ATOM, layers)}, (ATOM, IMAGE)[: joined.ndim])


def reaches_of(model: ModelSpec) -> list[int]:
    """Widest shift in pixels at which an atom of each layer is looked for: its stride, free of cost, or `REACH`."""
    return [max(REACH, *shape.stride) for shape in model.shapes()]


def match_layers(found: Sequence[Atoms], true: Sequence[Atoms], reaches: Sequence[int]) -> xr.DataArray:
    """Magnitude of the correlation of every atom of ``true`` with its partner in ``found``, layer by layer: (atom,)."""
    pairs = zip(found, true, reaches, strict=True)
    return join_layers([np.abs(match_atoms(one, other, reach).correlation) for one, other, reach in pairs])


def cut_atoms(images: np.ndarray, count: int, size: tuple[int, int]) -> np.ndarray:
    """Cut the middle of the first ``count`` images as atoms; of the first ones again if there are too few."""
    top, left = ((have - want) // 2 for have, want in zip(images.shape[2:], size, strict=True))
    chosen = np.arange(count) % len(images)
    return images[chosen][:, :, top : top + size[0], left : left + size[1]].astype(float)


def rebuild(images: xr.DataArray, atoms: Atoms, stride: tuple[int, int], **options) -> tuple[float, float]:
    """Root mean square that atoms of unit norm leave of a pixel, by the ML sample; active coefficients per image."""
    plain = np.asarray(atoms, np.float32)
    plain = plain / np.sqrt((plain**2).sum(axis=(1, 2, 3), keepdims=True)).clip(1e-12)
    code = deconvolve(images, plain, stride, **options).ml_sample.values
    left = images.values - render_projected(plain, code, stride, images.shape[2:])
    return float(np.sqrt((left**2).mean())), float((code != 0).sum() / len(images))


def placed_atoms(atoms: Atoms, stride: tuple[int, int], image_size: tuple[int, int]) -> np.ndarray:
    """Every atom, of unit norm, at every place of an image: (atom * place, pixel), the place running fastest."""
    atoms = np.asarray(atoms)
    unit = atoms / np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True)).clip(1e-12)
    shape = len(unit), *placement_grid(image_size, unit.shape[2:], stride)
    codes = np.eye(np.prod(shape), dtype=np.float32).reshape(-1, *shape)
    return render_projected(unit, codes, stride, image_size).reshape(len(codes), -1)


def threshold(atoms: Atoms, share: float = 0.3) -> np.ndarray:
    """Set pixels below ``share`` of their atom's strongest pixel, made positive, to zero, and those of the other sign.

    Source: Pu, Yuan & Carin 2015, Sec. 4 (Fig. 2a, right). Departs: neither threshold nor signs are printed.
    Checked: tests/test_projection_joint.py.
    """
    atoms = np.asarray(atoms, float)
    flat = atoms.reshape(len(atoms), -1)
    strongest = np.take_along_axis(flat, np.abs(flat).argmax(axis=1)[:, None], axis=1)[:, :, None, None]
    flipped = atoms * np.sign(strongest)
    return np.where(flipped >= share * np.abs(strongest), flipped, 0.0)


def projection_error(state: JointState, model: ModelSpec, atoms: xr.DataArray) -> np.ndarray:
    """Squared distance of projected from layered images, (image,), as a share of the layered image's energy."""
    layered = layer_values(state.local, state.shared.dictionaries, model.shapes())[0]
    drawn = render_projected(np.asarray(atoms), state.local.w, model.stride, model.image_size)
    return ((layered - drawn) ** 2).sum(axis=(1, 2, 3)) / (layered**2).sum(axis=(1, 2, 3)).clip(1e-12)


def blocks_from_votes(positions, upper_dictionary, upper_maps) -> Blocks:
    """Blocks under maps of the layer above, each at the position that its largest contribution voted for.

    A block's value is the sum of all contributions; a block that none reaches has the value 0 at position 0. Where only
    one coefficient reaches each block, `gdd.projection.collapse` is exact for these blocks.

    ``positions`` (`Vote.positions`) and ``upper_dictionary`` are (atom, plane, atom_row, atom_col), ``upper_maps``
    (image, atom, row, col); z and w of the blocks are (image, plane, block_row, block_col).
    """
    w = synthesise(upper_dictionary, upper_maps)
    z, most = np.zeros(w.shape, np.int16), np.zeros(w.shape)
    rows, cols = upper_dictionary.shape[2:]
    for image, atom, row, col in np.argwhere(upper_maps):
        reach = np.s_[image, :, row : row + rows, col : col + cols]
        contribution = np.abs(upper_maps[image, atom, row, col] * upper_dictionary[atom])
        z[reach] = np.where(contribution > most[reach], positions[atom], z[reach])
        most[reach] = np.maximum(contribution, most[reach])
    return Blocks(z, np.where(most > 0, w, 0))
