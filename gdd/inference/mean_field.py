"""Test-time inference without random numbers: the mean-field posterior of the maps, the atoms being known."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, IMAGES, MAPS
from gdd.base.checks import as_plain, check_whole
from gdd.inference.deconvolution import AVERAGES, along_images, refuse_overflow
from gdd.inference.features import CHUNK, Placed, place

#: power iterations for the largest eigenvalue of the atoms' cosines
_ITERATIONS = 30


def mean_field(
    images: np.ndarray | xr.DataArray, atoms: np.ndarray | xr.DataArray, stride: tuple[int, int], *, gamma_e: float,
    gamma_w: float, mask: np.ndarray | xr.DataArray | None = None, steps: int = 150,
    progress: Callable[[int], None] | None = None,
) -> xr.Dataset:
    r"""Maps of new images under the factorised posterior that all coefficients reach together, the atoms being known.

    The model is that of `gdd.inference.deconvolution.deconvolve`. Its posterior is approximated by a product,

    .. math:: q(S) = \prod_i \big[(1 - \pi_i)\, \delta_0(s_i) + \pi_i\, \mathcal N(s_i; \mu_i, \lambda_i^{-1})\big],

    and a fixed point of the factors is a stationary point of the bound on log p(X). There each factor is the
    conditional of `gdd.inference.features.one_step_codes`, given the means of all others. From all means zero, every
    step moves every mean by the same share of its way to that of its conditional: one over the largest eigenvalue of
    the placed atoms' cosines, the largest share at which steps of all at once cannot grow. No random numbers.

    Parameters
    ----------
    images, atoms, stride, gamma_e, gamma_w, mask : as of `deconvolve`
    steps : 0: the moments of each coefficient alone, which are those of `one_step_codes`
    progress : called with a number of images whenever so many more are done

    Returns
    -------
    Dataset, in the type of the images
        ``mean``, ``inclusion``, ``magnitude`` (image, atom, row, col): of S, of Z and of \|S\| under the factors;
        ``damped_mean``: the means from which the last step computed the factors; ``mean`` at a fixed point;
        ``bound`` (image,): lower bound of the log evidence log p(X) of observed pixels, in nats;
        ``change`` (image,): root mean square by which a further whole step would move the means, over that of the
        means: 0 at a fixed point.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 4, "sampling or variational methods"; no algorithm is given there.
    Departs: written from the model of its supplement, "Testing".
    Checked: tests/test_mean_field.py (stationary point of the bound; bound below the enumerated evidence, and equal to
    it where atoms do not overlap; missing pixels).
    """
    coords = along_images(images)
    seen = None if mask is None else as_plain(mask, IMAGES, "mask").astype(bool)
    images, placed = place(images, atoms, stride, gamma_e, gamma_w, len(AVERAGES), seen)
    steps = check_whole("steps", steps, 0)
    whole = np.ones_like(images[:1])
    share = np.float32(1 / _largest_eigenvalue(placed))
    if seen is None or seen.all():
        parts = [(images[low : low + CHUNK], whole) for low in range(0, len(images), CHUNK)]
    else:
        shown = seen.astype(images.dtype)
        parts = [(np.where(shown[n], images[n], 0)[None], shown[n : n + 1]) for n in range(len(images))]
    found, damped, fits = [], [], []
    for part, visible in parts:
        norm = placed.norms(visible)[0]
        moments = placed.moments(placed.correlations(part), norm)
        mean = np.zeros_like(moments[0])
        for _ in range(steps):
            mean = mean + share * (moments[0] - mean)
            moments = _given(placed, part, visible, mean, norm)
        found.append(moments)
        damped.append(mean)
        again = _given(placed, part, visible, moments[0], norm)[0] - moments[0]
        change = [_size(again) / np.maximum(_size(moments[0]), 1e-12)]
        fits.append(np.stack([bound_of(placed, part, visible, moments, norm, gamma_e), *change]))
        if progress is not None:
            progress(len(part))
    bound, change = np.concatenate(fits, axis=1)
    refuse_overflow(bound)
    out = {name: (MAPS, values) for name, values in zip(AVERAGES, np.concatenate(found, axis=1), strict=True)}
    out["damped_mean"] = MAPS, np.concatenate(damped)
    attrs = {"stride": placed.stride, "gamma_e": gamma_e, "gamma_w": gamma_w, "steps": steps}
    return xr.Dataset(out | {"bound": (IMAGE, bound), "change": (IMAGE, change)}, coords, attrs)


def _given(placed: Placed, images, visible, mean: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Moments of every coefficient given the means of all others."""
    left = (images - placed.sums(mean)) * visible
    return placed.moments(placed.correlations(left) + norm * mean, norm)


def bound_of(placed: Placed, images, visible, moments: np.ndarray, norm: np.ndarray, gamma_e: float) -> np.ndarray:
    """Lower bound of log p of what is visible, (image,), by factors of these moments; images as `place` has them."""
    mean, inclusion, _ = moments.astype(float)
    precision, atoms = norm.astype(float) + placed.gamma_w, len(placed.atoms)
    on, off = np.maximum(inclusion, 1e-300), np.maximum(1 - inclusion, 1e-300)
    square = mean**2 / on + inclusion / precision  # E s^2
    left = (images - placed.sums(moments[0])) * visible
    spread = np.tensordot(square - mean**2, norm.astype(float), 3)
    slab = log(1 / atoms) + 0.5 * np.log(placed.gamma_w / precision) + 0.5
    terms = inclusion * (slab - np.log(on)) + (1 - inclusion) * (log(1 - 1 / atoms) - np.log(off))
    terms = (terms - 0.5 * placed.gamma_w * square).sum(axis=(1, 2, 3))
    fit = 0.5 * visible.sum() * log(gamma_e / (2 * pi)) - 0.5 * (left.astype(float) ** 2).sum(axis=(1, 2, 3))
    return fit - 0.5 * spread + terms


def _size(maps: np.ndarray) -> np.ndarray:
    """Root mean square of each image's maps."""
    return np.sqrt((maps.astype(float) ** 2).mean(axis=(1, 2, 3)))


def _largest_eigenvalue(placed: Placed) -> float:
    """Of the matrix of cosines of all placed atoms."""
    scale = 1 / np.sqrt(np.maximum(placed.norms(np.ones((1, placed.atoms.shape[1], *placed.image_size))), 1e-12))
    vector = np.ones_like(scale)
    for _ in range(_ITERATIONS):
        vector /= np.linalg.norm(vector)
        vector = scale * placed.correlations(placed.sums(scale * vector))
    return max(float(np.linalg.norm(vector)), 1.0)
