"""How sharp atoms are: two measures, defined before any atom was looked at.

Neither says whether an atom is good. White noise scores higher than any drawing on the first, a single bright pixel on
the second. So they are shown only beside two judges: whether a chain on other data finds the same atoms
(`gdd.evaluate.matching`), and how well images that training never saw are put together from them.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, DICTIONARY
from gdd.base.checks import GddError, as_finite

#: cycles per pixel; the Nyquist frequency is 1/2
HALF_NYQUIST = 0.25


def high_frequency_share(atoms: np.ndarray | xr.DataArray) -> xr.DataArray:
    r"""Share of an atom's spectral energy above half the Nyquist frequency, in 0..1.

    .. math:: \sum_{|f| > 1/4} |\hat D(f)|^2 \Big/ \sum_f |\hat D(f)|^2

    with f in cycles per pixel, radial. The atom stands on a background of zeros, as it does in an image: it is padded
    to twice its size, so that its rim counts as the edge that it is, and its mean is kept.

    Parameters
    ----------
    atoms : (atom, plane, atom_row, atom_col)     energies of all planes are added

    Returns
    -------
    DataArray (atom,)
        White noise and a single pixel give about 0.80, the area outside the circle. NaN for an atom that is all zero.

    Raises
    ------
    GddError
        A value that is not finite.

    Notes
    -----
    *Source:* not in the paper, which calls refined atoms sharper by eye (Sec. 4, Fig. 2a).
    *Departs:* not applicable. *Checked:* tests/test_sharpness.py.
    """
    atoms = _finite(atoms)
    size = [2 * n for n in atoms.shape[2:]]
    energy = (np.abs(np.fft.fft2(atoms, s=size)) ** 2).sum(axis=1)
    radius = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.fftfreq(size[1]))
    return _ratio((energy * (radius > HALF_NYQUIST)).sum(axis=(1, 2)), energy.sum(axis=(1, 2)))


def gradient_kurtosis(atoms: np.ndarray | xr.DataArray) -> xr.DataArray:
    r"""Fourth moment of an atom's gradients over the square of their second, both about zero.

    The gradients are all differences between neighbours along rows and along columns inside the atom. Gaussian noise
    has 3; few steep edges on a flat ground have much more; a ramp along one axis has 2.

    Parameters
    ----------
    atoms : (atom, plane, atom_row, atom_col)     differences of all planes are taken together

    Returns
    -------
    DataArray (atom,)
        NaN for an atom without any gradient.

    Raises
    ------
    GddError
        A value that is not finite; atoms of one pixel.

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_sharpness.py.
    """
    atoms = _finite(atoms)
    if atoms.shape[2:] == (1, 1):
        raise GddError("atoms: one pixel each; a gradient needs at least two along axis 'atom_row' or 'atom_col'")
    steps = np.concatenate([np.diff(atoms, axis=axis).reshape(len(atoms), -1) for axis in (2, 3)], axis=1)
    return _ratio((steps**4).mean(axis=1), (steps**2).mean(axis=1) ** 2)


def _finite(atoms) -> np.ndarray:
    atoms = as_finite(atoms, DICTIONARY, "atoms").astype(float)
    largest = np.abs(atoms).max(axis=(1, 2, 3), keepdims=True)  # no measure depends on an atom's scale
    return np.divide(atoms, largest, out=np.zeros_like(atoms), where=largest > 0)


def _ratio(above: np.ndarray, below: np.ndarray) -> xr.DataArray:
    return xr.DataArray(np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0), dims=ATOM)
