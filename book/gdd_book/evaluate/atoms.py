"""Atoms compared: partners in two dictionaries, two measures of sharpness, and one of strokes.

The measures of sharpness were defined before any atom was seen, that of strokes after they had favoured speckle.
Neither measure of sharpness says whether an atom is good. White noise scores higher than any drawing on the first, a
single bright pixel on the second. So they are shown only beside two criteria: whether a chain on other data finds the
same atoms (`match_atoms`), and how well images that training never saw are put together from them. `stroke_share` is
low for speckle and for a flat ground alike. None is in the paper, which calls refined atoms sharper by eye (Sec. 4,
Fig. 2a). All take atoms (atom, plane, atom_row, atom_col); tests/test_atoms.py checks them.
"""

import numpy as np
import xarray as xr
from scipy import ndimage
from scipy.optimize import linear_sum_assignment

from gdd.base.axes import ATOM, DICTIONARY
from gdd.base.checks import as_plain
from gdd.model.convolution import correlate
from gdd.plot import over_largest

Array = np.ndarray | xr.DataArray

#: pixels; the widest shift tried by default
REACH = 2
#: cycles per pixel; the Nyquist frequency is 1/2
HALF_NYQUIST = 0.25
#: of an atom's largest magnitude; pixels above it are part of a stroke
STROKE = 0.3


def match_atoms(found: Array, true: Array, reach: int = REACH) -> xr.Dataset:
    """Pair every true atom with at most one found atom so that the sum of their correlations is largest.

    The correlation of two atoms is the inner product over the norms, both on the pixels where the two overlap after a
    whole-pixel shift; of all shifts up to ``reach`` in each axis the one with the largest magnitude counts.

    Returns for every true atom (``atom``): ``correlation`` in -1..1, 0 without a partner; ``partner``, index of the
    found atom, -1 for none; ``row``, ``col``, the shift in pixels that puts the true atom under its partner:
    found[a + row, b + col] is compared with true[a, b].
    """
    found, true = (as_plain(part, DICTIONARY, "atoms").astype(float) for part in (found, true))
    shifts = [(i, j) for i in range(-reach, reach + 1) for j in range(-reach, reach + 1)]
    each = np.stack([_correlations(found, true, shift) for shift in shifts])  # (shift, found, true)
    best = np.abs(each).argmax(axis=0)
    strongest = np.take_along_axis(each, best[None], axis=0)[0]
    rows, columns = linear_sum_assignment(-np.abs(strongest))
    partner, shift, correlation = np.full(len(true), -1), np.zeros((len(true), 2), int), np.zeros(len(true))
    partner[columns], correlation[columns] = rows, strongest[rows, columns]
    shift[columns] = np.array(shifts)[best[rows, columns]]
    out = {"correlation": correlation, "partner": partner, "row": shift[:, 0], "col": shift[:, 1]}
    return xr.Dataset({name: (ATOM, value) for name, value in out.items()})


def _correlations(found: np.ndarray, true: np.ndarray, shift: tuple[int, int]) -> np.ndarray:
    """Inner products over norms on the overlap after a shift: (found atom, true atom)."""
    sizes = list(zip(true.shape[2:], shift, strict=True))
    left = found[:, :, *(slice(max(0, s), n + min(0, s)) for n, s in sizes)].reshape(len(found), -1)
    right = true[:, :, *(slice(max(0, -s), n + min(0, -s)) for n, s in sizes)].reshape(len(true), -1)
    norms = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)
    return np.divide(left @ right.T, norms, out=np.zeros(norms.shape), where=norms > 0)


def high_frequency_share(atoms: Array) -> xr.DataArray:
    r"""Share of an atom's spectral energy above half the Nyquist frequency, in 0..1: (atom,), NaN if all is zero.

    .. math:: \sum_{|f| > 1/4} |\hat D(f)|^2 \Big/ \sum_f |\hat D(f)|^2

    with f in cycles per pixel, radial; energies of all planes are added. The atom stands on a background of zeros, as
    it does in an image: it is padded to twice its size, so that its rim counts as the edge that it is, and its mean is
    kept. White noise and a single pixel give about 0.80, the area outside the circle.
    """
    atoms = scaled(atoms)
    size = [2 * n for n in atoms.shape[2:]]
    energy = (np.abs(np.fft.fft2(atoms, s=size)) ** 2).sum(axis=1)
    radius = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.fftfreq(size[1]))
    return _ratio((energy * (radius > HALF_NYQUIST)).sum(axis=(1, 2)), energy.sum(axis=(1, 2)))


def gradient_kurtosis(atoms: Array) -> xr.DataArray:
    """Fourth moment of an atom's gradients over the square of their second, about zero: (atom,), NaN if it has none.

    The gradients are all differences between neighbours along rows and along columns inside the atom, of all planes.
    Gaussian noise has 3; few steep edges on a flat ground have much more; a ramp along one axis has 2.
    """
    atoms = scaled(atoms)
    steps = np.concatenate([np.diff(atoms, axis=axis).reshape(len(atoms), -1) for axis in (2, 3)], axis=1)
    return _ratio((steps**4).mean(axis=1), (steps**2).mean(axis=1) ** 2)


def stroke_share(atoms: Array) -> xr.DataArray:
    """Share of an atom's energy in its largest stroke, in 0..1, planes added: (atom,), NaN if all is zero.

    A stroke is a connected set of pixels of one sign whose magnitude is at least `STROKE` of the atom's largest;
    neighbours share an edge. White noise of 25 x 25 pixels has about 0.05, a drawn line 1.
    """
    atoms = scaled(atoms).sum(axis=1)
    energy, least = atoms**2, STROKE * np.abs(atoms).max(axis=(1, 2), keepdims=True)
    largest = np.zeros(len(atoms))
    for strong in (atoms >= least, atoms <= -least):
        for k, (inside, own) in enumerate(zip(strong, energy, strict=True)):
            label, number = ndimage.label(inside)
            if number:
                largest[k] = max(largest[k], ndimage.sum_labels(own, label, range(1, number + 1)).max())
    return _ratio(largest, energy.sum(axis=(1, 2)))


def best_parts(pictures: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Of each picture (picture, plane, row, col) what one atom explains at most, at its best place and weight."""
    unit = bottom / np.sqrt((bottom**2).sum(axis=(1, 2, 3), keepdims=True)).clip(1e-12)
    parts, (height, width) = np.zeros_like(pictures), bottom.shape[2:]
    for part, gains in zip(parts, correlate(pictures, unit), strict=True):
        k, row, col = np.unravel_index(np.abs(gains).argmax(), gains.shape)
        part[:, row : row + height, col : col + width] = gains[k, row, col] * unit[k]
    return parts


def scaled(atoms: Array) -> np.ndarray:
    """Atoms over their largest magnitude, which no measure depends on."""
    return over_largest(as_plain(atoms, DICTIONARY, "atoms").astype(float))


def _ratio(above: np.ndarray, below: np.ndarray) -> xr.DataArray:
    return xr.DataArray(np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0), dims=ATOM)
