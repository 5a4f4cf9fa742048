"""Small deformations of images: copies to learn from, and features whitened against what deformations change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from skimage.transform import AffineTransform, warp

from gdd.base.axes import IMAGES
from gdd.base.checks import as_plain, check_seed
from gdd.inference.features import unfold


@dataclass(frozen=True)
class Deformations:
    """How far images are deformed, each way and back.

    Attributes
    ----------
    shift : pixels, in each direction
    turn : degrees
    scale : share of the image's size
    shear : radians
    """

    shift: float = 1.0
    turn: float = 8.0
    scale: float = 0.08
    shear: float = 0.12

    def transforms(self) -> list[dict]:
        """Arguments of `skimage.transform.AffineTransform`, ten in all."""
        return [
            argument
            for sign in (-1, 1)
            for argument in (
                {"translation": (sign * self.shift, 0)}, {"translation": (0, sign * self.shift)},
                {"rotation": np.deg2rad(sign * self.turn)}, {"scale": 1 + sign * self.scale},
                {"shear": sign * self.shear},
            )
        ]

    def draw(self, count: int, seed: int = 0) -> list[dict]:
        """Transforms that do all of it at once, each part drawn evenly between its two ends; the sides scale apart."""
        parts = np.random.Generator(np.random.Philox(check_seed(seed))).uniform(-1, 1, (count, 6))
        return [
            {"translation": (self.shift * right, self.shift * down), "rotation": np.deg2rad(self.turn * turn),
             "scale": (1 + self.scale * wide, 1 + self.scale * high), "shear": self.shear * shear}
            for right, down, turn, wide, high, shear in parts
        ]


def deform(images: xr.DataArray, transform: dict) -> xr.DataArray:
    """Images after an affine transform about their centre, linearly interpolated, zero beyond the edge.

    Parameters
    ----------
    images : (image, plane, row, col)
    transform : of `Deformations.transforms` or `Deformations.draw`
    """
    values = as_plain(images, IMAGES, "images")
    centre = AffineTransform(translation=(np.array(values.shape[:1:-1]) - 1) / 2)
    moved = centre.inverse + AffineTransform(**transform) + centre
    planes = values.reshape(-1, *values.shape[2:])
    out = np.stack([warp(one, moved.inverse, order=1, preserve_range=True) for one in planes])
    return images.transpose(*IMAGES).copy(data=out.reshape(values.shape).astype(values.dtype))


def learn_whitening(
    images: xr.DataArray, make: Callable[[xr.DataArray], xr.DataArray], deformations: Deformations, floor: float = 1.0
) -> Callable[[xr.DataArray], xr.DataArray]:
    r"""Learn from unlabelled images which directions of feature space small deformations move; return the linear map.

    With f the features, T the deformations, and v the mean variance of a feature over the images:

    .. math:: C = \langle (f(Tx) - f(x))(f(Tx) - f(x))^\top \rangle, \qquad
              f \mapsto (C + \mathrm{floor} \cdot v I)^{-1/2} (f - \langle f \rangle)

    Distances between images then count what no small deformation explains.

    Parameters
    ----------
    images : (image, plane, row, col)   labels, if any, are ignored
    make : features of images, (image, ...)
    deformations : how far images are deformed
    floor : in units of the mean variance of a feature; large values leave the features as they are

    Notes
    -----
    Source: none in the paper.
    Departs: the paper's classifier sees features as they are.
    Checked: tests/test_deformations.py.
    """
    plain = unfold(make(images)).values
    covariance = np.zeros((plain.shape[1],) * 2)
    transforms = deformations.transforms()
    for transform in transforms:
        change = unfold(make(deform(images, transform))).values - plain
        covariance += (change.T @ change) / (len(plain) * len(transforms))
    values, vectors = np.linalg.eigh(covariance + floor * plain.var(axis=0).mean() * np.eye(len(covariance)))
    centre, axes = plain.mean(axis=0), (vectors / np.sqrt(values)).astype(plain.dtype)

    def whitened(features: xr.DataArray) -> xr.DataArray:
        """Whitened features, (image, component) under the name ``feature``."""
        features = unfold(features)
        return features.copy(data=(features.values - centre) @ axes)

    return whitened
