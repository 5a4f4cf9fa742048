"""One sweep of one layer: an image pass that returns sufficient statistics, then the shared draws.

``sweep(state, data, spec, shape, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each image, every
block (z, w) with theta integrated out, the dictionary, a shared gamma_e, gamma_d, gamma_w.

Missing pixels have weight zero, which excludes the shortcuts for fully observed images, so masked images have kernels
of their own. Order of draws and random numbers are the same: if every pixel is observed both give the same chain, up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import log, prod
from typing import NamedTuple

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import gammaln

from gdd.base.axes import IMAGE
from gdd.base.checks import check_choice
from gdd.base.compiling import MOST_THREADS, on_threads, thread_count
from gdd.model.distributions import LOG_TWO_PI, Gamma
from gdd.model.layer import block_groups, log_atoms, log_gaussian, log_precision
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState, Local, Shared
from gdd.reference.random import Key, shared_generator
from gdd.sampler.arrays import make_layers, observed_pixels, plane_last
from gdd.sampler.dictionary import draw_from_residuals, draw_from_sums, draw_gamma_d, draw_shared_precision
from gdd.sampler.kernels import layer as kernels
from gdd.sampler.kernels.coefficients import Problem, pass_top
from gdd.sampler.kernels.dictionary import MapArrays
from gdd.sampler.kernels.joint_pass import pass_images
from gdd.sampler.kernels.layer import LayerConstants
from gdd.sampler.kernels.operations import ImageArrays, Prior, Sums
from gdd.sampler.kernels.windows import Static, static_size
from gdd.sampler.placement import place_atoms
from gdd.sampler.sums import WorkItem, add_entries, add_images, add_up

#: largest Gram matrix of a top layer, in numbers, that is worth its memory: 134 MB in single precision
LARGEST_GRAM = 2**25


class Info(NamedTuple):
    """Diagnostics of one sweep."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the dictionary's draw
    active: np.ndarray  # (atom,): active blocks over all images


class Passes(NamedTuple):
    """Image passes of a processor, each with the arguments of its namesake in `gdd.sampler.kernels`."""

    whole: Callable[..., None]
    masked: Callable[..., None]
    top: Callable[..., None]  # of layers that `uses_gram`
    joint: Callable[..., None]  # of all layers
    threads: int  # that share out a batch of images


PROCESSOR = Passes(kernels.pass_unmasked, kernels.pass_masked, pass_top, pass_images, MOST_THREADS)


def passes_on(device: str, shapes: Sequence[LayerShape], data: LayerData, joint: bool = False) -> Passes:
    """Passes of "cpu" or "cuda", which is imported only here.

    GddError if it cannot run layers of these shapes, each alone or all of them as one ``joint`` model.
    """
    if check_choice("device", device, ("cpu", "cuda")) == "cpu":
        return PROCESSOR
    return import_module("gdd.cuda.passes").passes(shapes, data, joint)


def sweep(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, passes: Passes = PROCESSOR
) -> tuple[LayerState, Info]:
    """Draw every unknown of a layer once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`; values at hidden pixels may be anything, also NaN
    spec, shape : of the layer
    key : names the random numbers; equal keys give equal sweeps, whatever the number of threads
    passes : of the device

    Returns
    -------
    (LayerState, Info)

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, supplement, "Conditional Posteriori Distributions"; Sec. 4 for missing pixels.
    *Departs:* exact conditionals throughout (P2-P7); theta integrated out.
    *Checked:* tests/test_kernels.py, tests/test_masked.py, tests/test_joint.py, tests/test_calibration.py.
    """
    return draw_shared_part(image_pass(state, data, spec, shape, key, passes), state.shared, data, spec, shape, key)


class ImagePass(NamedTuple):
    """Result of an image pass."""

    local: Local
    sums: Sums
    residuals: np.ndarray  # (image, row * col * plane), 0 where hidden; (0, ...) if all pixels are observed


def image_pass(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key, passes: Passes = PROCESSOR
) -> ImagePass:
    """Draw the local part of the state given the shared part."""
    (local, shared), dtype, (pixels, masks) = state, data.images.dtype, observed_pixels(data)
    z, w, gamma_e = local.z.copy(), local.w.astype(dtype), local.gamma_e.astype(float)
    images = ImageArrays(pixels, masks, z, w, gamma_e, data.shard.first)
    constants = layer_constants(shared, spec, shape, dtype)
    if data.mask is not None:
        update, atom_terms = passes.masked, constants.layer.dictionary**2
    elif uses_gram(spec, shape):
        update, atom_terms = passes.top, placed_top(shared, spec, shape, dtype)
    else:
        update, atom_terms = passes.whole, padded_autocorrelations(shared.dictionary, dtype)

    def run(item: WorkItem) -> None:
        update(images.slice(item.images), atom_terms, constants, key, item.sums)

    with on_threads(min(passes.threads, thread_count())):
        sums = add_up(empty_sums(shape, data.mask is not None), data.shard, len(pixels), run)
    return ImagePass(Local(z, w, gamma_e), sums, pixels if data.mask is not None else pixels[:0])


def layer_constants(shared: Shared, spec: LayerSpec, shape: LayerShape, dtype: np.dtype) -> LayerConstants:
    """`LayerConstants` of a layer."""
    beta, noise, by_image = spec.beta if spec.elementwise else (0.0, 0.0), spec.gamma_e, IMAGE in spec.gamma_e.axes
    drawn = noise.fixed is None and by_image
    prior = Prior(*beta, not spec.elementwise, float(shared.gamma_w[0]), noise.shape, noise.rate, drawn, by_image)
    static = static_size(*shape.atom_size) if shape.planes == 1 else Static((), ())
    return LayerConstants(make_layers([shape], [shared.dictionary], dtype, static)[0], prior, static)


def uses_gram(spec: LayerSpec, shape: LayerShape) -> bool:
    """Whether the pass uses the atoms' Gram matrix, as for a top layer whose atoms overlap at all positions."""
    numbers = shape.atoms**2 * prod(2 * size - 1 for size in shape.map_size)
    overlapping = all(size <= atom for size, atom in zip(shape.map_size, shape.atom_size, strict=True))
    return spec.elementwise and overlapping and numbers <= LARGEST_GRAM


def placed_top(shared: Shared, spec: LayerSpec, shape: LayerShape, dtype: np.dtype) -> Problem:
    """`Problem` of a top layer's placed atoms."""
    (a, b), atoms = spec.beta, shared.dictionary.astype(dtype)
    return place_atoms(atoms, shape.input_size, (1, 1), float(shared.gamma_w[0]), log(a / b))


def padded_autocorrelations(dictionary: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Autocorrelation of each atom, summed over planes, padded with zeros: (atom, 2 atom_row - 1, 3 atom_col)."""
    atoms, (h, w) = dictionary.astype(float), dictionary.shape[2:]
    lags = np.zeros((len(atoms), 2 * h - 1, 3 * w), dtype)
    lags[:, :, : 2 * w - 1] = fftconvolve(atoms, atoms[:, :, ::-1, ::-1], axes=(2, 3)).sum(axis=1)
    return lags


def empty_sums(shape: LayerShape, masked: bool) -> Sums:
    """Sums over no image."""
    (h, w), k = shape.atom_size, 0 if masked else shape.atoms
    reach = tuple(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    sizes = (k, k, *reach), (k, h * w * shape.planes), (shape.atoms,), (shape.atoms,), (), (), ()
    return Sums(*map(np.zeros, sizes))


def draw_shared_part(
    passed: ImagePass, shared: Shared, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key
) -> tuple[LayerState, Info]:
    """Draw dictionary, shared gamma_e, gamma_d and gamma_w, given the result of an image pass."""
    generator, (local, sums, residuals), by_image = shared_generator(*key), passed, IMAGE in spec.gamma_e.axes
    gamma_e = 1.0 if by_image else float(local.gamma_e[0])
    if data.mask is None:
        pixels = np.full(len(data.images), data.images[0].size)
        scaled = sums.scaled(gamma_e)
        dictionary, change = draw_from_sums(scaled, shared.dictionary, shared.gamma_d, shape, generator)
    else:
        pixels, constants = data.mask.sum(axis=(1, 2, 3)), layer_constants(shared, spec, shape, residuals.dtype)
        maps = MapArrays(local.z, local.w, local.gamma_e, residuals, plane_last(data.mask, residuals.dtype))
        dictionary, change = draw_from_residuals(
            shared.dictionary, shared.gamma_d, maps, constants.layer, constants.static, generator, data.shard
        )
    energy, (number,) = gamma_e * float(sums.weighted_energy) + change, add_images(data.shard, pixels)
    if not by_image:
        counted = np.array([number]), np.array([energy / gamma_e])
        new = draw_shared_precision(spec.gamma_e, *counted, local.gamma_e, generator)
        energy *= float(new[0]) / gamma_e
        local = local._replace(gamma_e=new)
    gamma_d = draw_gamma_d(dictionary, spec.gamma_d, shared.gamma_d, generator)
    gamma_w = draw_shared_precision(spec.gamma_w, sums.active, sums.squares, shared.gamma_w, generator)
    state = LayerState(local, Shared(dictionary, gamma_d, gamma_w))
    noise, = add_images(data.shard, pixels * (np.log(local.gamma_e) - LOG_TWO_PI))
    likelihood, residual = 0.5 * (noise - energy), float(np.sqrt(sums.energy / max(number, 1.0)))
    joint = likelihood + log_prior_from(state, sums, data, spec, shape)
    return state, Info(likelihood, joint, residual, sums.active)


def log_prior_from(state: LayerState, sums: Sums, data: LayerData, spec: LayerSpec, shape: LayerShape) -> float:
    """Log prior of all unknowns, from sums: the running twin of the prior part of `gdd.model.layer.log_joint`."""
    (local, shared), active = state, sums.active.sum()
    if spec.elementwise:
        a, b = spec.beta
        total = active * log(a) + (data.count * local.z[0].size - active) * log(b)
    else:
        total = float(sums.log_counts) + data.count * log_count_norm(shape)
    total += log_gaussian(shared.gamma_w, sums.active, sums.squares) + log_atoms(shared.dictionary, shared.gamma_d)
    if spec.gamma_e.fixed is None:
        terms = Gamma(spec.gamma_e.shape, spec.gamma_e.rate).logpdf(local.gamma_e)
        total += add_entries(data.shard, terms, IMAGE in spec.gamma_e.axes)
    return float(total + log_precision(spec.gamma_d, shared.gamma_d) + log_precision(spec.gamma_w, shared.gamma_w))


def log_count_norm(shape: LayerShape) -> float:
    """Constant of an image's log prior of positions that `gdd.sampler.kernels.operations.log_counts` omits."""
    return -shape.atoms * sum(float(gammaln(1.0 + blocks.sum())) for blocks, _ in block_groups(shape))
