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
from gdd.base.checks import LARGEST_PIXEL, LEAST_CONTRAST, GddError, as_array, as_plain, check_pair, first_wrong
from gdd.model.spec import PIXEL_RMS, Size
from gdd.model.state import LayerData

#: orders of axes by name
FLAT, ROWS, PLANES_FIRST, PLANES_LAST = "flat", "row, col", "plane, row, col", "row, col, plane"
#: sizes of an axis that may be planes: grey, red-green-blue, and a fourth
COLOURS = (1, 3, 4)
#: rows and columns that a picture has at least, where the shape of an array must tell what it is
LEAST_SIDE = 8
#: raw pixels beyond it overflow even in double precision once a median is subtracted
LARGEST_RAW = 1e300


class ImageLayout(NamedTuple):
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
        """Array of images in these axes as (image, plane, row, col); GddError if it has other sizes.

        Grey images may come without the axis of the only plane.
        """
        grey = self.planes == 1 and array.shape[1:] == tuple(self.size)
        if array.shape[1:] != self.shape and not grey:
            raise GddError(f"images: shape {array.shape} given; (image, {', '.join(map(str, self.shape))}) is needed")
        moved = np.moveaxis(array, -1, 1) if self.axes == PLANES_LAST and not grey else array
        return moved.reshape(len(array), self.planes, *self.size)

    def reject_single_image(self, array: np.ndarray) -> None:
        """Refuse a single image, which has no axis of images."""
        if getattr(array, "shape", None) == self.shape:
            raise GddError(f"images: shape {self.shape} is that of one image. Reshape your data: images[None]")

    def from_labelled(self, images: np.ndarray) -> np.ndarray:
        """Images (image, row, col) or (image, plane, row, col), as `as_images` makes them, in these axes."""
        planes_first = images[:, None] if images.ndim == 3 else images
        if planes_first.shape[1:] != (wanted := (self.planes, *self.size)):
            raise GddError(f"images: {planes_first.shape[1:]} along (plane, row, col) given; {wanted} is needed")
        return self.restore(planes_first)

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
        raise GddError("images: a masked array given; give images.astype(float).filled(numpy.nan)")
    if isinstance(images, list | tuple):
        sizes = sorted({one.shape for one in images if isinstance(one, np.ndarray)})
        if len(sizes) > 1:
            raise GddError(f"images: some of shape {sizes[0]}, some of {sizes[-1]}; crop or resize them to one size")
    if isinstance(images, xr.DataArray):
        dims = (IMAGE, ROW, COL) if PLANE not in images.dims else IMAGES
        images = as_plain(images, dims, "images")
    return as_array(images, "images")


def find_layout(
    images: np.ndarray, image_size: Size | None = None, model_size: tuple[int, int, int] | None = None,
    labelled: bool = False,
) -> ImageLayout:
    """Find the layout of an array of images by its shape; GddError where that would be a guess.

    images : (image, row, col), (image, plane, row, col), (image, row, col, plane) or (image, feature)
    image_size : (row, col) of flat images; None: signals of one row, unless ``model_size`` fits
    model_size : (plane, row, col) of a model's images
    labelled : whether the axes had names, so that they are (image, row, col) or (image, plane, row, col) for certain
    """
    if image_size is not None:
        image_size = check_pair("image_size", image_size)
    if images.ndim == 2:
        return _flat_layout(images.shape[1], image_size, model_size)
    if images.ndim == 3:
        certain = labelled or model_size is not None
        if images.shape[2] in COLOURS[1:] and min(images.shape[:2]) >= LEAST_SIDE and not certain:
            raise GddError(f"images: shape {images.shape} looks like one colour picture; give images[None]")
        layout = ImageLayout(ROWS, 1, images.shape[1:])
    elif images.ndim == 4:
        _, *sizes = images.shape
        layout = ImageLayout(PLANES_FIRST, sizes[0], tuple(sizes[1:]))
        layout = layout if labelled else _first_or_last(layout, image_size, model_size)
    else:
        raise GddError(
            f"images: {images.ndim} axes of sizes {images.shape} given; (image, row, col), (image, plane, row, col),"
            " (image, row, col, plane) or (image, feature) is needed"
        )
    if image_size not in (None, layout.size):
        raise GddError(f"image_size: {image_size} given; the images are {layout.size}")
    return layout


def _first_or_last(first: ImageLayout, image_size: Size | None, model_size: tuple[int, int, int] | None) -> ImageLayout:
    """``first``, or the layout of the same array whose planes stand last; GddError if neither is more likely."""
    last = ImageLayout(PLANES_LAST, first.size[1], (first.planes, first.size[0]))
    tests = (
        lambda one: (one.planes, *one.size) == model_size, lambda one: one.size == image_size,
        lambda one: one.planes in COLOURS,
    )
    for test in tests:
        fits = [one for one in (first, last) if test(one)]
        if len(fits) == 1:
            return fits[0]
    if 2 * first.planes <= min(first.size):
        return first
    raise GddError(
        f"images: shape (image, {', '.join(map(str, first.shape))}) given, in which planes may stand second or last; "
        "name the axes, such as xarray.DataArray(images, dims=('image', 'row', 'col', 'plane'))"
    )


def _flat_layout(features: int, image_size: Size | None, model_size: tuple[int, int, int] | None) -> ImageLayout:
    """ImageLayout of flat images of so many numbers each; the sizes as of `find_layout`."""
    if image_size is not None:
        size, (planes, remainder) = image_size, divmod(features, prod(image_size))
        if remainder:
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
    return ImageLayout(FLAT, 1, tuple(size))


def scale_of(images: np.ndarray) -> Scale:
    """Median of every plane, and the unit in which pixels have the root mean square `PIXEL_RMS`; NaN is left out."""
    if (hidden := np.isnan(images).all(axis=(0, 2, 3))).any():
        raise GddError(f"images: plane {int(hidden.argmax())} has no pixel but NaN in any image; leave that plane out")
    centre = np.nanmedian(images, axis=(0, 2, 3)).astype(float)
    moved = images.astype(float) - centre[:, None, None]
    power = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(moved)))[1])  # squares of what it divides do not overflow
    rms = float(power * np.sqrt(np.nanmean((moved / power) ** 2)))
    if not rms > 0:
        raise GddError("images: all pixels are alike; nothing can be learned from them")
    return Scale(centre, rms / PIXEL_RMS)


def from_means(images: np.ndarray) -> np.ndarray:
    """Images (image, plane, row, col) without the mean of every plane; 0 where a pixel is NaN."""
    observed = ~np.isnan(images)
    count = np.maximum(observed.sum(axis=(0, 2, 3), keepdims=True), 1)
    means = np.where(observed, images, 0).sum(axis=(0, 2, 3), keepdims=True) / count
    return np.where(observed, images - means, 0)


def warn_of_units(pixels: np.ndarray) -> None:
    """Warn where new images, scaled as those of the fit, are ten times as large, or spread a hundredth as widely."""
    observed = max(int((~np.isnan(pixels)).sum()), 1)
    size, spread = (np.sqrt(np.nansum(part**2) / observed) / PIXEL_RMS for part in (pixels, from_means(pixels)))
    if size > 10 or LEAST_CONTRAST < spread < 0.01:
        warn(
            f"images: their pixels spread {spread:.2g} times as widely as those of fit, and lie {size:.2g} times as far"
            " from its median; give new images in the units of those of fit, such as 0 to 255", stacklevel=4,
        )


def scaled_data(images: np.ndarray, scale: Scale | None, new: bool = False) -> tuple[LayerData, Scale]:
    """Images (image, plane, row, col) as a model's input: scaled, single precision, NaN hidden by a mask; their scale.

    ``scale`` : None: that of these images; ``new`` : whether to warn if they seem to be in other units than those of it
    """
    images = as_plain(images, IMAGES, "images").astype(float)
    observed = ~np.isnan(images)
    if (blank := ~observed.any(axis=(1, 2, 3))).any():
        raise GddError(f"images: image {int(blank.argmax())} has no pixel but NaN; leave it out")
    if (endless := np.abs(images) > LARGEST_RAW).any():
        raise GddError(f"images: pixel {first_wrong(endless, images)}; replace it, or give NaN for a missing pixel")
    scale = scale or scale_of(images)
    pixels = scale.forward(images)
    largest = np.nanmax(np.abs(pixels), axis=(1, 2, 3))
    if largest.max() > LARGEST_PIXEL:
        n = int(largest.argmax())
        raise GddError(
            f"images: image {n} has a pixel {largest[n]:.2g} units of scale_ from its median; at most {LARGEST_PIXEL:g}"
            " is possible: give pixels of the same units, such as 0 to 1, to fit and after it"
        )
    if new:
        warn_of_units(pixels)
    pixels, mask = pixels.astype(np.float32), None if observed.all() else observed
    return LayerData(pixels if mask is None else np.where(mask, pixels, np.float32(0)), mask), scale
