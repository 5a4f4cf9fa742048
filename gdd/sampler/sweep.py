"""One sweep of one layer: an image pass that leaves sums, then the shared draws from them.

``sweep(state, data, spec, shape, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each image, every
block (z, w) with theta integrated out, the dictionary, a shared gamma_e, the scale of every atom, gamma_d, gamma_w.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve

from gdd.base.axes import IMAGE
from gdd.model.distributions import LOG_TWO_PI
from gdd.model.placement import gram_slabs
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState, Local, Shared
from gdd.sampler import weighted
from gdd.sampler.contract import SPECIAL_FROM, Info, Key, Tally, close_sweep
from gdd.sampler.kernels import gram_kernels
from gdd.sampler.kernels import layer as kernels
from gdd.sampler.random import shared_generator
from gdd.sampler.shared import (
    Sums,
    draw_atoms_in_turn,
    draw_shared_precision,
)

#: chunks of images whose sums are held at once; part of the order of summation only through CHUNK, so free to change
SLOTS = 8


def sweep(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, scale: bool = True
) -> tuple[LayerState, Info]:
    """Draw every unknown of a layer once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`
    spec, shape : of the layer
    key : names the random numbers; equal keys give equal sweeps, whatever the number of threads
    scale : whether to make the scale move (exact either way)

    Returns
    -------
    (LayerState, Info)

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, supplement, "Conditional Posteriori Distributions".
    *Departs:* exact conditionals throughout (P2-P7); theta integrated out; scale move added.
    *Checked:* tests/test_kernels.py, tests/test_joint.py, tests/test_calibration.py.
    """
    if data.mask is not None:
        return weighted.sweep(state, data, spec, shape, key, scale)
    local, sums = image_pass(state, data, spec, shape, key)
    return draw_shared_part(local, sums, state.shared, data, spec, shape, key, scale)


def image_pass(state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key) -> tuple[Local, Sums]:
    """Update every image given the shared part; return the local part and the sums."""
    dtype = data.images.dtype
    n, planes = data.images.shape[:2]
    images = np.ascontiguousarray(data.images.transpose(0, 2, 3, 1)).reshape(n, shape.input_size[0], -1)
    z, weights = state.local.z.copy(), state.local.w.astype(dtype)
    gamma_e = state.local.gamma_e[:, 0].astype(float)
    gamma_w = np.broadcast_to(state.shared.gamma_w, (shape.atoms,)).astype(float)
    by_image = IMAGE in spec.gamma_e.axes
    noise = spec.gamma_e.shape, spec.gamma_e.rate, float(spec.gamma_e.fixed is None and by_image), float(by_image)
    common = images, z, weights, gamma_e
    if by_gram(spec, shape):
        update = gram_kernels.pass_gram
        arguments = *common, *gram_arrays(state.shared, shape, dtype), gamma_w, planes, spec.beta, noise, tuple(key)
    else:
        update = kernels.pass_whole
        one_plane = planes == 1 and shape.atom_size[1] >= SPECIAL_FROM
        arguments = (
            *common, *residual_arrays(state.shared, shape, dtype), gamma_w,
            (*shape.map_size, *shape.block, planes, shape.input_size[1]),
            (*spec.beta, 0.0) if spec.elementwise else (0.0, 0.0, 1.0), noise,
            (0,) * shape.atom_size[1] if one_plane else (), tuple(key),
        )  # fmt: skip
    total = Sums(*(array[0] for array in empty_sums(1, shape)))
    part = empty_sums(min(SLOTS, -(-n // kernels.CHUNK)), shape)
    for first in range(0, n, SLOTS * kernels.CHUNK):
        used = min(SLOTS, -(-(n - first) // kernels.CHUNK))
        for array in part:
            array[:used] = 0.0
        update(*arguments, first, tuple(array[:used] for array in part))
        for slot in range(used):
            for whole, array in zip(total, part, strict=True):
                whole += array[slot]
    return Local(z, weights, gamma_e[:, None]), total


def by_gram(spec: LayerSpec, shape: LayerShape) -> bool:
    """Whether the correlations are kept current by the atoms' Gram matrix, see `gdd.sampler.kernels.gram_kernels`."""
    numbers = shape.atoms**2 * int(np.prod([2 * m - 1 for m in shape.map_size]))
    overlapping = all(m <= a for m, a in zip(shape.map_size, shape.atom_size, strict=True))
    return spec.elementwise and overlapping and numbers <= gram_kernels.LARGEST


def gram_arrays(shared: Shared, shape: LayerShape, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Atoms with the plane last and with the atom last, and their Gram matrix by offset."""
    flat = weighted.plane_last(shared.dictionary, dtype)
    gram = gram_slabs(shared.dictionary.astype(dtype), shape.input_size, (1, 1))
    return flat, np.ascontiguousarray(flat.transpose(1, 2, 0)), gram


def residual_arrays(shared: Shared, shape: LayerShape, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Atoms (atom, atom_row, atom_col * plane), and their autocorrelations followed by zeros."""
    h, w = shape.atom_size
    lags = np.zeros((shape.atoms, 2 * h - 1, 3 * w), dtype)
    lags[:, :, : 2 * w - 1] = autocorrelations(shared.dictionary)
    return weighted.plane_last(shared.dictionary, dtype), lags


def empty_sums(slots: int, shape: LayerShape) -> Sums:
    """Zeros, one slot a chunk."""
    (h, w), k = shape.atom_size, shape.atoms
    reach = tuple(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    return Sums(
        np.zeros((slots, k, k, *reach)), np.zeros((slots, k, h, w * shape.planes)), np.zeros((slots, 2, k)),
        np.zeros((slots, 4)),
    )  # fmt: skip


def autocorrelations(dictionary: np.ndarray) -> np.ndarray:
    """Each atom's autocorrelation summed over planes: (atom, 2 atom_row - 1, 2 atom_col - 1)."""
    atoms = dictionary.astype(float)
    return fftconvolve(atoms, atoms[:, :, ::-1, ::-1], axes=(2, 3)).sum(axis=1)


def draw_shared_part(
    local: Local, sums: Sums, shared: Shared, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, scale: bool
) -> tuple[LayerState, Info]:
    """Draw dictionary, precisions and scales from the sums of an image pass, and account for the log joint."""
    generator = shared_generator(*key)
    by_image = IMAGE in spec.gamma_e.axes
    gamma_e = 1.0 if by_image else float(local.gamma_e[0, 0])
    dictionary, change = draw_atoms_in_turn(sums.scaled(gamma_e), shared.dictionary, shared.gamma_d, shape, generator)
    energy = (sums.energy[1] if by_image else gamma_e * sums.energy[0]) + change
    if not by_image:
        pixels = np.full((1, 1), float(data.images.size))
        new = draw_shared_precision(spec.gamma_e, pixels, np.full((1, 1), energy / gamma_e), local.gamma_e, generator)
        energy *= float(new[0, 0]) / gamma_e
        local = local._replace(gamma_e=new)
    residual = float(np.sqrt(sums.energy[0] / data.images.size))
    tally = Tally(log_likelihood_from(local.gamma_e, energy, data), sums.energy[3], sums.per_atom, residual)
    return close_sweep(local, dictionary, tally, shared, spec, shape, generator, scale)


def log_likelihood_from(gamma_e: np.ndarray, energy: float, data: LayerData) -> float:
    """Log p(X | rest) of all images from ``energy`` = sum gamma_e ||E||^2."""
    gamma_e = np.broadcast_to(gamma_e, data.images.shape[:2])
    pixels = data.images[0, 0].size
    return float(0.5 * pixels * (np.log(gamma_e) - LOG_TWO_PI).sum() - 0.5 * energy)
