"""The sweep for data with missing pixels, and for a noise precision that varies by plane.

The same order of draws as `gdd.sampler.sweep`, from the same random numbers: if every pixel is observed both give the
same chain, to rounding. Here the residual is kept from block to block and from atom to atom, and the dictionary is
drawn atom by atom, with one pass over the residuals for each: an atom's Gram is no longer a matter of lags alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.axes import IMAGE, PLANE
from gdd.base.checks import GddError
from gdd.model.distributions import LOG_TWO_PI, DiagonalShiftGaussian, Gaussian
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState, Local
from gdd.sampler import weighted_sums
from gdd.sampler.contract import SPECIAL_FROM, Info, Key, Tally, close_sweep
from gdd.sampler.kernels import weighted_kernels
from gdd.sampler.kernels.layer import CHUNK
from gdd.sampler.random import shared_generator
from gdd.sampler.shared import draw_shared_precision

#: a Gamma of a smaller shape falls below the smallest double in a draw one can expect to meet
LEAST_SHAPE = 0.1


class Seen(NamedTuple):
    """Which pixels count."""

    flat: np.ndarray  # (image, row, col * plane): 1 where observed, else 0
    planes: np.ndarray  # (image, plane or 1, row, col): the same; one plane if every plane has equal weights
    pixels: np.ndarray  # (image, plane): how many are observed


def sweep(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, scale: bool = True
) -> tuple[LayerState, Info]:
    """Draw every unknown of a layer once, hidden pixels having no weight; nothing given is changed.

    Parameters and results are those of `gdd.sampler.sweep.sweep`. Values at hidden pixels may be anything, also NaN.

    Raises
    ------
    GddError
        If the spec asks for a joint draw of the dictionary, which exists for fully observed images only; if a gamma_e
        has no observed pixel and a prior too flat to draw it from.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 4 (interpolation) and supplement, with a weight of zero for missing pixels.
    *Departs:* as `gdd.sampler.sweep.sweep`; an atom's norm and the precision of its pixels follow the mask.
    *Checked:* tests/test_weighted.py.
    """
    if spec.joint_dictionary and shape.planes == 1:
        raise GddError(
            "joint_dictionary: True given with missing pixels or a gamma_e by plane, where atoms are drawn in turn;"
            " set it to False"
        )
    seen = weigh_pixels(data, spec)
    refuse_unseen(seen.pixels, state.local.gamma_e.shape, spec)
    local, left, energy, tally = image_pass(state, data, seen, spec, shape, key)
    generator = shared_generator(*key)
    dictionary = draw_dictionary(state, local, left, seen, shape, generator)
    weighted_sums.energies(left, shape.planes, energy)
    if IMAGE not in spec.gamma_e.axes:
        gamma_e = draw_shared_precision(spec.gamma_e, seen.pixels, energy, local.gamma_e, generator)
        local = local._replace(gamma_e=gamma_e)
    terms = 0.5 * seen.pixels * (np.log(local.gamma_e) - LOG_TWO_PI) - 0.5 * local.gamma_e * energy
    tally = tally._replace(log_likelihood=float(terms.sum()))
    return close_sweep(local, dictionary, tally, state.shared, spec, shape, generator, scale)


def weigh_pixels(data: LayerData, spec: LayerSpec) -> Seen:
    """Which pixels count, as the kernels want it, in the images' precision."""
    dtype = data.images.dtype
    mask = np.ones(data.images.shape, bool) if data.mask is None else data.mask
    flat = np.ascontiguousarray(mask.transpose(0, 2, 3, 1), dtype).reshape(len(mask), mask.shape[2], -1)
    alike = PLANE not in spec.gamma_e.axes and bool((mask == mask[:, :1]).all())
    planes = np.ascontiguousarray(mask[:, :1] if alike else mask, dtype)
    return Seen(flat, planes, mask.sum(axis=(2, 3)).astype(float))


def refuse_unseen(pixels: np.ndarray, entries: tuple[int, int], spec: LayerSpec) -> None:
    """Refuse to draw a gamma_e from no pixel and an all but improper prior: the draw would underflow to zero."""
    if spec.gamma_e.fixed is not None or spec.gamma_e.shape >= LEAST_SHAPE:
        return
    for axis, size in enumerate(entries):
        if size == 1:
            pixels = pixels.sum(axis=axis, keepdims=True)
    if not pixels.all():
        image, plane = np.argwhere(pixels == 0)[0]
        raise GddError(
            f"mask: no pixel observed for entry (image {image}, plane {plane}) of gamma_e, whose prior has shape"
            f" {spec.gamma_e.shape}; a shape of at least {LEAST_SHAPE} or fewer axes of gamma_e are needed"
        )


def image_pass(
    state: LayerState, data: LayerData, seen: Seen, spec: LayerSpec, shape: LayerShape, key: Key
) -> tuple[Local, np.ndarray, np.ndarray, Tally]:
    """Update every image given the shared part.

    Returns
    -------
    local : Local
    left : (image, row, col * plane)    the residual, 0 where hidden
    energy : (image, plane)             its squared norms
    tally : Tally                       the likelihood still missing
    """
    dtype = data.images.dtype
    n, planes = data.images.shape[:2]
    (rows, cols), width = shape.map_size, shape.atom_size[1]
    left = np.ascontiguousarray(data.images.transpose(0, 2, 3, 1)).reshape(seen.flat.shape)
    left = np.where(seen.flat > 0, left, dtype.type(0))
    z, weights = state.local.z.copy(), state.local.w.astype(dtype)
    gamma_e = state.local.gamma_e.astype(float)
    chunks = -(-n // CHUNK)
    per_atom, counted, energy = np.zeros((chunks, 2, shape.atoms)), np.zeros((chunks, 1)), np.zeros((n, planes))
    one_plane, by_image = planes == 1 and width >= SPECIAL_FROM, IMAGE in spec.gamma_e.axes
    weighted_kernels.pass_weighted(
        left, seen.flat, seen.pixels, z, weights, gamma_e, plane_last(state.shared.dictionary, dtype),
        np.broadcast_to(state.shared.gamma_w, (shape.atoms,)).astype(float),
        (rows, cols, *shape.block, planes), (*spec.beta, 0.0) if spec.elementwise else (0.0, 0.0, 1.0),
        (spec.gamma_e.shape, spec.gamma_e.rate, float(spec.gamma_e.fixed is None and by_image)),
        (0,) * width if one_plane else (), tuple(key), (per_atom, counted, energy),
    )  # fmt: skip
    residual = float(np.sqrt(energy.sum() / max(seen.pixels.sum(), 1.0)))
    tally = Tally(np.nan, float(counted.sum(axis=0)[0]), per_atom.sum(axis=0), residual)
    return Local(z, weights, gamma_e), left, energy, tally


def draw_dictionary(
    state: LayerState, local: Local, left: np.ndarray, seen: Seen, shape: LayerShape, generator: np.random.Generator
) -> np.ndarray:
    """Draw every atom given the others: (atom, plane, atom_row, atom_col). Changes ``left``; it stays the residual."""
    dictionary = state.shared.dictionary.astype(float).copy()
    gamma_d = np.broadcast_to(state.shared.gamma_d, (shape.atoms, shape.planes)).astype(float)
    gamma_e = np.ascontiguousarray(np.broadcast_to(local.gamma_e, seen.pixels.shape))
    for k in range(shape.atoms):
        gram, linear = weighted_sums.atom_sums(local, left, seen.planes, gamma_e, shape, k)
        old = dictionary[k].reshape(shape.planes, -1)
        linear += (gram @ old[..., None])[..., 0]
        new = draw_atom(gram, linear, gamma_d[k], generator)
        new = new.reshape(1, shape.planes, *shape.atom_size)
        change = plane_last(new, left.dtype) - plane_last(dictionary[k : k + 1], left.dtype)
        weighted_sums.change_atom(left, seen.flat, local.z[:, k], local.w[:, k], change[0], shape.block, shape.planes)
        dictionary[k] = new[0]
    return dictionary


def draw_atom(
    gram: np.ndarray, linear: np.ndarray, gamma_d: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw an atom (plane, hw), from gram (plane or 1, hw, hw), linear (plane, hw) and gamma_d (plane,)."""
    eye = np.eye(gram.shape[1])
    if len(gram) > 1:
        parts = [Gaussian(t + g * eye, b) for t, g, b in zip(gram, gamma_d, linear, strict=True)]
        return np.stack([part.sample(generator) for part in parts])
    if (gamma_d == gamma_d[0]).all():
        return Gaussian(gram[0] + gamma_d[0] * eye, linear).sample(generator)
    return DiagonalShiftGaussian(gram[0], gamma_d, linear).sample(generator)


def plane_last(dictionary: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(atom, plane, atom_row, atom_col) to (atom, atom_row, atom_col * plane)."""
    atoms, planes, h, w = dictionary.shape
    return np.ascontiguousarray(dictionary.transpose(0, 2, 3, 1), dtype).reshape(atoms, h, w * planes)
