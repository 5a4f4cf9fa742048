"""Images as people have them, and as the model wants them: the order of axes, missing pixels, and the scale.

The model has no term for a background, and its held precisions are meant for pixels of one scale. So every plane loses
its median, which is the black of digits and the mean grey of pictures, and all are divided by one number.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import NamedTuple
from warnings import warn

import numpy as np
import xarray as xr

from gdd.base.axes import COL, IMAGE, IMAGES, PLANE, ROW
from gdd.base.checks import GddError, as_array, as_pixels, as_plain, check_pair
from gdd.model.spec import PIXEL_RMS, Size
from gdd.model.state import LayerData

#: orders of axes by name
FLAT, ROWS, PLANES_FIRST, PLANES_LAST = "flat", "row, col", "plane, row, col", "row, col, plane"
#: sizes of an axis that may be planes: grey, red-green-blue, and a fourth
COLOURS = (1, 3, 4)
#: rows and columns that a picture has at least, where the shape of an array must tell what it is
LEAST_SIDE = 8


class Layout(NamedTuple):
    """Order of axes and sizes of the images that a model was fitted to."""

    axes: str
    planes: int
    size: Size

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image in these axes."""
        return {
            FLAT: (self.planes * prod(self.size),), ROWS: tuple(self.size), PLANES_FIRST: (self.planes, *self.size),
            PLANES_LAST: (*self.size, self.planes),
        }[self.axes]

    def arrange(self, array: np.ndarray) -> np.ndarray:
        """Array of images in these axes as (image, plane, row, col); GddError if it has other sizes."""
        if array.shape[1:] != self.shape:
            raise GddError(f"images: shape {array.shape} given; (image, {', '.join(map(str, self.shape))}) is needed")
        moved = np.moveaxis(array, -1, 1) if self.axes == PLANES_LAST else array
        return moved.reshape(len(array), self.planes, *self.size)

    def check_several(self, array: np.ndarray) -> None:
        """Refuse a single image, which has no axis of images."""
        if getattr(array, "shape", None) == self.shape:
            raise GddError(f"images: shape {self.shape} is that of one image. Reshape your data: images[None]")

    def restore(self, images: np.ndarray) -> np.ndarray:
        """Images (image, plane, row, col) in the axes of this layout."""
        return np.moveaxis(images, 1, -1) if self.axes == PLANES_LAST else images.reshape(len(images), *self.shape)


class Scale(NamedTuple):
    """What is subtracted from every plane, and what all are divided by."""

    centre: np.ndarray  # (plane,)
    unit: float

    def forward(self, images: np.ndarray) -> np.ndarray:
        """Pixels (image, plane, row, col) as the model has them."""
        return (images - self.centre[:, None, None]) / self.unit

    def backward(self, images: np.ndarray) -> np.ndarray:
        """Pixels as they were given."""
        return images * self.unit + self.centre[:, None, None]


def as_images(images: np.ndarray | xr.DataArray) -> np.ndarray:
    """Images as an array of numbers; labelled ones with their axes in the order (image, plane, row, col)."""
    if np.ma.isMaskedArray(images):
        raise GddError("images: a masked array given; give images.filled(numpy.nan)")
    if isinstance(images, xr.DataArray):
        dims = (IMAGE, ROW, COL) if PLANE not in images.dims else IMAGES
        images = as_plain(images, dims, "images")
    return as_array(images, "images")


def layout_of(
    images: np.ndarray, image_size: Size | None = None, model_size: tuple[int, int, int] | None = None
) -> Layout:
    """Find the layout of an array of images by its shape.

    Parameters
    ----------
    images : (image, row, col), (image, plane, row, col), (image, row, col, plane) or (image, feature)
    image_size : (row, col) of flat images; None: signals of one row, unless ``model_size`` fits
    model_size : (plane, row, col) of a model's images

    Raises
    ------
    GddError
        Another number of axes; flat images that are not of this size, or in colour: their order would be a guess.
    """
    if image_size is not None:
        image_size = check_pair("image_size", image_size)
    if images.ndim == 2:
        return _flat_layout(images.shape[1], image_size, model_size)
    if images.ndim == 3:
        if images.shape[2] in COLOURS[1:] and min(images.shape[:2]) >= LEAST_SIDE and model_size is None:
            raise GddError(f"images: shape {images.shape} looks like one colour picture; give images[None]")
        found = Layout(ROWS, 1, images.shape[1:])
    elif images.ndim == 4:
        last = images.shape[3] in COLOURS and images.shape[1] not in COLOURS
        _, *sizes = np.moveaxis(images, -1, 1).shape if last else images.shape
        found = Layout(PLANES_LAST if last else PLANES_FIRST, sizes[0], tuple(sizes[1:]))
    else:
        raise GddError(
            f"images: {images.ndim} axes of sizes {images.shape} given; (image, row, col), (image, plane, row, col),"
            " (image, row, col, plane) or (image, feature) is needed"
        )
    if image_size not in (None, found.size):
        raise GddError(f"image_size: {image_size} given; the images are {found.size}")
    return found


def _flat_layout(features: int, image_size: Size | None, model_size: tuple[int, int, int] | None) -> Layout:
    """Layout of flat images of so many numbers each; the sizes as of `layout_of`."""
    if image_size is not None:
        size, (planes, left) = image_size, divmod(features, prod(image_size))
        if left:
            raise GddError(f"image_size: {image_size} given; flat images of {features} numbers are not of that size")
    elif model_size is not None and prod(model_size) == features:
        planes, *size = model_size
    else:
        planes, size, side = 1, (1, features), isqrt(features)
        if side >= LEAST_SIDE and side**2 == features:
            warn(f"images: {features} numbers each are read as signals; for pictures give image_size={side, side}",
                 stacklevel=3)
    if planes > 1:
        raise GddError(f"images: flat ones of {planes} planes; give them with their axes, (image, row, col, plane)")
    return Layout(FLAT, 1, tuple(size))


def scale_of(images: np.ndarray) -> Scale:
    """Median of every plane, and the unit in which pixels have the root mean square `PIXEL_RMS`; NaN is left out."""
    unseen = np.isnan(images).all(axis=(0, 2, 3))
    if unseen.any():
        raise GddError(f"images: plane {int(unseen.argmax())} has no pixel but NaN in any image; leave that plane out")
    centre = np.nanmedian(images, axis=(0, 2, 3)).astype(float)
    rms = float(np.sqrt(np.nanmean((images.astype(float) - centre[:, None, None]) ** 2)))
    if not rms > 0:
        raise GddError("images: all pixels are alike; nothing can be learned from them")
    return Scale(centre, rms / PIXEL_RMS)


def scaled_data(images: np.ndarray, scale: Scale | None) -> tuple[LayerData, Scale]:
    """Images (image, plane, row, col) as a model's input: scaled, single precision, NaN hidden by a mask; their scale.

    ``scale`` : None: that of these images
    """
    seen = ~np.isnan(images)
    blank = ~seen.any(axis=(1, 2, 3))
    if blank.any():
        raise GddError(f"images: image {int(blank.argmax())} has no pixel but NaN; leave it out")
    mask = None if seen.all() else seen
    pixels = as_pixels(images.astype(float), "images", mask, constant=True)
    scale = scale_of(images) if scale is None else scale
    pixels = scale.forward(pixels).astype(np.float32)
    return LayerData(pixels if mask is None else np.where(mask, pixels, np.float32(0)), mask), scale
