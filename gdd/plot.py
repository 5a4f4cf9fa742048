"""Pictures of a model: labelled arrays in, matplotlib axes out. Every function draws on ``ax``, or on new axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from skimage.util import montage

from gdd.base.axes import CHAIN, DICTIONARY, DRAW, IMAGES, MAPS
from gdd.base.checks import GddError, as_plain, check_choice, check_whole

#: empty pixels between pictures of a mosaic
GAP = 1
POSITIVE, NEGATIVE = "#D55E00", "#0072B2"  # Okabe and Ito's, distinct for all common kinds of colour vision


def plot_atoms(atoms: np.ndarray | xr.DataArray, ax: Axes | None = None) -> Axes:
    """All atoms in one grid, each over its own largest magnitude; zero is mid grey.

    atoms : (atom, plane, atom_row, atom_col)      of one plane, or three (red, green, blue); GddError for others
    """
    atoms = _pictures(atoms, DICTIONARY, "atoms").astype(float)
    return draw_mosaic(_bare(ax), over_largest(atoms), min(len(atoms), ceil((2 * len(atoms)) ** 0.5)))


def plot_reconstruction(
    images: np.ndarray | xr.DataArray, rebuilt: np.ndarray | xr.DataArray, ax: Axes | None = None
) -> Axes:
    """Images in the upper row, the same rebuilt in the lower one; missing pixels, NaN, are white.

    All have one scale, from the lowest to the highest pixel of the images; rebuilt pixels beyond it are clipped.

    images, rebuilt : (image, plane, row, col)      of one plane, or three (red, green, blue)
    """
    images, rebuilt = _pictures(images, IMAGES, "images"), as_plain(rebuilt, IMAGES, "rebuilt")
    if images.shape != rebuilt.shape:
        raise GddError(f"rebuilt: shape {rebuilt.shape} given; that of images, {images.shape}, is needed")
    both = _stretched(np.concatenate([images, rebuilt]), images).clip(-1, 1)
    ax = draw_mosaic(_bare(ax), both, len(images))
    height = images.shape[2]
    ax.set_yticks([height / 2, height * 1.5 + GAP], ["image", "rebuilt"])
    ax.tick_params(length=0)
    return ax


def plot_trace(traces: xr.Dataset, name: str = "log_joint", ax: Axes | None = None) -> Axes:
    """One number of every sweep, a line for each chain.

    traces : of a chain, dims (chain, draw)
    name : of the trace, such as "log_joint", "residual", "active" or "gamma_e"
    """
    simple = [key for key, values in traces.items() if values.dims == (CHAIN, DRAW)]
    values = traces[check_choice("name", name, simple)]
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    for number, line in enumerate(values.values):
        ax.plot(np.arange(1, len(line) + 1), line, label=f"chain {number + 1}")
    ax.set(xlabel="sweep", ylabel=name.replace("_", " "))
    if len(values) > 1:
        ax.legend(frameon=False)
    return ax


def plot_activations(
    image: np.ndarray | xr.DataArray, maps: np.ndarray | xr.DataArray, atom: int, stride: tuple[int, int],
    atom_size: tuple[int, int], ax: Axes | None = None,
) -> Axes:
    """Where in an image an atom is used: a frame at each place, thick where its weight is large, blue if negative.

    image : (plane, row, col)
    maps : (atom, row, col)            weights of all atoms, such as ``mean`` of a deconvolution
    atom : number of the atom
    stride : pixels (row, col) between places
    atom_size : pixels (row, col) that the atom covers
    """
    image, maps = _pictures(image, IMAGES[1:], "image"), as_plain(maps, MAPS[1:], "maps")
    weights = maps[check_whole("atom", atom, 0, len(maps) - 1)]
    ax = draw_mosaic(_bare(ax), _stretched(image[None].astype(float), image), 1)
    largest = max(float(np.abs(maps).max()), 1e-12)
    for row, col in np.argwhere(np.abs(weights) > 0.02 * largest):
        weight, corner = weights[row, col], (col * stride[1] - 0.5, row * stride[0] - 0.5)
        colour = POSITIVE if weight > 0 else NEGATIVE
        width = 0.5 + 3 * abs(weight) / largest
        ax.add_patch(Rectangle(corner, *atom_size[::-1], fill=False, edgecolor=colour, linewidth=width))
    ax.set_title(f"atom {atom}")
    return ax


def plot_maps(
    image: np.ndarray | xr.DataArray, maps: np.ndarray | xr.DataArray, numbers: Sequence[int], ax: Axes | None = None
) -> Axes:
    """An image, and maps of features beside it, white where the largest of all of them is.

    image : (plane, row, col), of one plane, or three (red, green, blue)
    maps : (atom, row, col), never negative
    numbers : of their atoms, for the labels
    """
    image, maps = _pictures(image, IMAGES[1:], "image"), as_plain(maps, MAPS[1:], "maps")
    height, width = image.shape[1:]
    rows, cols = (np.arange(n) * m // n for n, m in zip((height, width), maps.shape[1:], strict=True))
    enlarged = np.broadcast_to(maps[:, None, rows][..., cols], (len(maps), *image.shape))
    panels = np.concatenate([_stretched(image[None].astype(float), image), _stretched(enlarged, np.append(maps, 0))])
    ax = draw_mosaic(_bare(ax), panels, len(panels))
    ax.set_xticks([n * (width + GAP) + width / 2 for n in range(len(panels))], ["image", *(str(n) for n in numbers)])
    ax.tick_params(length=0)
    return ax


def over_largest(atoms: np.ndarray, percentile: float = 100) -> np.ndarray:
    """Each atom (atom, plane, row, col) over its largest magnitude, or over a percentile; 0 where it is all zero."""
    largest = np.nanpercentile(np.abs(atoms), percentile, axis=(1, 2, 3), keepdims=True)
    return np.divide(atoms, largest, out=np.zeros(atoms.shape), where=largest > 0)


def mosaic(pictures: np.ndarray, columns: int) -> np.ndarray:
    """Pictures (picture, plane, row, col) side by side: (row, col), NaN between them, or (row, col, 3), 1 between."""
    planes_last = np.moveaxis(pictures.astype(float), 1, -1)
    grid, planes = (ceil(len(pictures) / columns), columns), planes_last.shape[-1]
    picture = montage(planes_last, [np.nan] * planes, grid_shape=grid, padding_width=GAP, channel_axis=-1)
    picture = picture[GAP:-GAP, GAP:-GAP]  # no frame around all
    return picture[..., 0] if planes == 1 else np.where(np.isnan(picture), 1.0, picture)


def draw_mosaic(ax: Axes, pictures: np.ndarray, columns: int) -> Axes:
    """`mosaic` of pictures from -1, black, to 1, white; NaN is white."""
    grid = mosaic(pictures, columns)
    ax.imshow((grid + 1) / 2 if grid.ndim == 3 else grid, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
    return ax


def _stretched(pixels: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Pixels on the scale of `draw_mosaic`: -1 at the lowest pixel of ``images``, 1 at the highest."""
    low, high = np.nanmin(images), np.nanmax(images)
    return 2 * (pixels - low) / max(high - low, 1e-12) - 1


def _pictures(pictures: np.ndarray | xr.DataArray, dims: Sequence[str], argument: str) -> np.ndarray:
    """`as_plain` of pictures (..., plane, row, col); another number of planes has no colours."""
    pictures = as_plain(pictures, dims, argument)
    if (planes := pictures.shape[-3]) not in (1, 3):
        raise GddError(f"{argument}: {planes} along axis 'plane'; 1 or 3 can be shown: choose planes, such as"
                       f" {argument}[..., :1, :, :]")
    return pictures


def _bare(ax: Axes | None) -> Axes:
    """New axes if none are given; without ticks and frame."""
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax
