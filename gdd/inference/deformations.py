"""Small deformations of images: deformed copies for training, and whitening of features against deformations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.ndimage import affine_transform
from threadpoolctl import threadpool_limits

from gdd.base.axes import IMAGES, ROW
from gdd.base.checks import LEAST_CONTRAST, GddError, as_plain, check_memory, check_real, check_seed
from gdd.base.compiling import share_out
from gdd.inference.block_magnitudes import triangular_product, unfold

#: rows of a covariance that are updated at once
_BAND = 512


@dataclass(frozen=True)
class Deformations:
    """Largest deformations of images, in both directions, to learn copies or a whitening from.

    Attributes
    ----------
    shift : pixels, in each direction
    turn : degrees
    scale : share of the image's size
    shear : radians
    floor : of a whitening, in mean variances of a feature; large ones leave the features as they are
    """

    shift: float = 1.0
    turn: float = 8.0
    scale: float = 0.08
    shear: float = 0.12
    floor: float = 1.0

    def __post_init__(self) -> None:
        check_real("floor", self.floor, 1e-9, 1e9)
        for name, largest in (("shift", 1e4), ("turn", 180.0), ("scale", 0.9), ("shear", 1.5)):
            check_real(name, getattr(self, name), 0, largest)

    def transforms(self, rows: int = 2) -> list[dict]:
        """Arguments of `affine`, ten in all; four of signals, which have one row."""
        out = []
        for sign in (-1, 1):
            out += [{"translation": (sign * self.shift, 0)}, {"scale": 1 + sign * self.scale}]
            if rows > 1:
                out += [{"translation": (0, sign * self.shift)}, {"rotation": np.deg2rad(sign * self.turn)},
                        {"shear": sign * self.shear}]
        return out

    def draw(self, count: int, seed: int = 0) -> list[dict]:
        """Draw transforms that combine all deformations, each uniform in its range; the axes scale separately."""
        parts = np.random.Generator(np.random.Philox(check_seed(seed))).uniform(-1, 1, (count, 6))
        return [
            {"translation": (self.shift * col, self.shift * row), "rotation": np.deg2rad(self.turn * turn),
             "scale": (1 + self.scale * scale_col, 1 + self.scale * scale_row), "shear": self.shear * shear}
            for col, row, turn, scale_col, scale_row, shear in parts
        ]


def affine(
    scale: float | tuple[float, float] = 1.0, rotation: float = 0.0, shear: float = 0.0,
    translation: tuple[float, float] = (0.0, 0.0),
) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and shift of an affine map of (row, col): scale, shear and rotate, in this order, then translate.

    ``scale``, ``translation`` : of columns, of rows; ``rotation``, ``shear`` : radians, from columns to rows
    """
    (right, down), (sine, cosine), tilt = np.broadcast_to(scale, 2), (np.sin(rotation), np.cos(rotation)), np.tan(shear)
    rows = [down * (cosine - tilt * sine), right * sine]
    cols = [-down * (tilt * cosine + sine), right * cosine]
    return np.array([rows, cols]), np.array(translation[::-1], float)


def deform(images: xr.DataArray, transform: dict) -> xr.DataArray:
    """Images (image, plane, row, col) after an affine transform about their centre, linearly interpolated, zero beyond.

    transform : of `Deformations.transforms` or `Deformations.draw`
    """
    values = as_plain(images, IMAGES, "images")
    matrix, shift = affine(**transform)
    inverse, centre = np.linalg.inv(matrix), (np.array(values.shape[2:]) - 1) / 2
    offset, planes = centre - inverse @ (centre + shift), values.reshape(-1, *values.shape[2:])
    options = {"order": 1, "mode": "grid-constant", "output": float}
    out = np.stack([affine_transform(plane, inverse, offset, **options) for plane in planes])
    return images.transpose(*IMAGES).copy(data=out.reshape(values.shape).astype(values.dtype))


class Whitening(NamedTuple):
    """An affine map of features, learned by `learn_whitening`."""

    centre: np.ndarray  # (feature,): subtracted
    axes: np.ndarray  # (feature, component), square, 0 below the diagonal

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Whiten features (image, feature) to (image, component), in single precision; the same bits in any batch."""
        centred = np.zeros((len(features) + len(features) % 2, len(self.centre)), np.float32)
        np.subtract(features, self.centre, out=centred[: len(features)], casting="same_kind")
        out = np.empty_like(centred)
        share_out(
            len(out) // 2,
            lambda pairs, _: triangular_product((2 * pairs.start, 2 * pairs.stop), centred, self.axes, out),
        )
        return out[: len(features)]


def learn_whitening(
    images: xr.DataArray, make: Callable[[xr.DataArray], xr.DataArray | np.ndarray], deformations: Deformations,
    progress: Callable[[], None] | None = None,
) -> Whitening:
    r"""Learn, from unlabelled images, a whitening of features against their changes under small deformations.

    With f the features, T the deformations, and v the mean variance of a feature over the images:

    .. math:: C = \langle (f(Tx) - f(x))(f(Tx) - f(x))^\top \rangle, \qquad
              L L^\top = C + \mathrm{floor} \cdot v I, \qquad f \mapsto L^{-1} (f - \langle f \rangle)

    Distances between whitened features count changes that no small deformation explains. Any other root of the inverse
    gives the same distances; this one is triangular, which halves the work.

    images : (image, plane, row, col)
    make : features of images, (image, ...)
    progress : called after every deformation

    *Source:* none in the paper, whose classifier sees features as they are. *Checked:* tests/test_deformations.py.
    """
    plain = unfold(make(images)).values.astype(float)
    check_memory("images, features", plain.shape[1] ** 2)
    spread = check_differ(plain)
    covariance, transforms = np.zeros((plain.shape[1],) * 2), deformations.transforms(images.sizes[ROW])
    with threadpool_limits(limits=1, user_api="blas"):  # sums inside BLAS must not depend on the number of threads
        for transform in transforms:
            _add_squares(unfold(make(deform(images, transform))).values - plain, covariance)
            if progress is not None:
                progress()
        covariance /= len(plain) * len(transforms)
        covariance.flat[:: len(covariance) + 1] += deformations.floor * spread
        root = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        inverse, _ = dtrtri(root, lower=1, overwrite_c=1)
    return Whitening(plain.mean(axis=0).astype(np.float32), inverse.T.astype(np.float32, order="C"))


def check_differ(values: np.ndarray) -> float:
    """Mean variance over images of values (image, ...); GddError if images do not differ in single precision."""
    spread, square = float(values.var(axis=0, dtype=float).mean()), float(np.square(values, dtype=float).mean())
    if not spread > LEAST_CONTRAST**2 * square:
        what = "a whitening needs images that differ, or whitening=False"
        raise GddError(f"images: one sample, or several that are alike, given; {what}")
    return spread


def _add_squares(differences: np.ndarray, covariance: np.ndarray) -> None:
    """Add the lower triangle of ``differences.T @ differences`` band by band; no sum depends on the threads."""
    lows = range(0, len(covariance), _BAND)

    def add_bands(parts: slice, _) -> None:
        for low in lows[parts]:
            high = low + _BAND
            covariance[low:high, :high] += differences[:, low:high].T @ differences[:, :high]

    share_out(len(lows), add_bands)
