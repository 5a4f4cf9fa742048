"""One sweep of one layer: an image pass that leaves sums, then the shared draws from them.

``sweep(state, data, spec, shape, key) -> (state, info)``. A sweep updates, in this order: gamma_e of each image, every
block (z, w) with theta integrated out, the dictionary, a shared gamma_e, gamma_d, gamma_w.

Missing pixels have no weight. They cost the shortcuts of whole images, so those have kernels of their own. The order of
draws and the random numbers are the same: if every pixel is observed both ways give the same chain, to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import gammaln

from gdd.base.axes import IMAGE
from gdd.base.compiling import share_out
from gdd.model.distributions import LOG_TWO_PI, Gamma
from gdd.model.layer import block_groups, log_atoms, log_gaussian, log_precision
from gdd.model.placement import gram_slabs, slab_index
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerData, LayerState, Local, Shared
from gdd.reference.random import Key, shared_generator
from gdd.sampler.dictionary import (
    draw_dictionary,
    draw_gamma_d,
    draw_masked_dictionary,
    draw_shared_precision,
    layout_of,
    plane_last,
)
from gdd.sampler.kernels import gram
from gdd.sampler.kernels import layer as kernels
from gdd.sampler.kernels.operations import CHUNK, ImageArrays, LayerConstants, Prior, Sums
from gdd.sampler.kernels.windows import SHORTEST
from gdd.sampler.sums import add_chunks, add_entries, add_images, add_up


class Info(NamedTuple):
    """What a sweep reports besides the new state."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the dictionary's draw
    active: np.ndarray  # (atom,): active blocks over all images


class MaskedPass(NamedTuple):
    """What a pass over masked images leaves for the shared draws; the counterpart of `Sums`."""

    residual: np.ndarray  # (image, row, col * plane), 0 where hidden
    observed: tuple[np.ndarray, np.ndarray]  # see `gdd.sampler.dictionary.draw_masked_dictionary`
    pixels: np.ndarray  # (image,): how many are observed
    per_atom: np.ndarray  # (2, atom): active blocks, sum of squared weights
    log_counts: float
    energy: np.ndarray  # (image,): ||E||^2


def sweep(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key
) -> tuple[LayerState, Info]:
    """Draw every unknown of a layer once; neither ``state`` nor ``data`` is changed.

    Parameters
    ----------
    state, data : see `gdd.model.state`; values at hidden pixels may be anything, also NaN
    spec, shape : of the layer
    key : names the random numbers; equal keys give equal sweeps, whatever the number of threads

    Returns
    -------
    (LayerState, Info)

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, supplement, "Conditional Posteriori Distributions"; Sec. 4 for missing pixels.
    *Departs:* exact conditionals throughout (P2-P7); theta integrated out.
    *Checked:* tests/test_kernels.py, tests/test_masked.py, tests/test_joint.py, tests/test_calibration.py.
    """
    local, sums = image_pass(state, data, spec, shape, key)
    return draw_shared_part(local, sums, state.shared, data, spec, shape, key)


def image_pass(
    state: LayerState, data: LayerData, spec: LayerSpec, shape: LayerShape, key: Key
) -> tuple[Local, Sums | MaskedPass]:
    """Update every image given the shared part; return the local part, and what the shared draws need."""
    dtype = data.images.dtype
    pixels, z, w = plane_last(data.images, dtype), state.local.z.copy(), state.local.w.astype(dtype)
    images = ImageArrays(pixels, z, w, state.local.gamma_e.astype(float), data.shard.first)
    run = whole_pass if data.mask is None else masked_pass
    sums = run(images, data, state.shared, spec, shape, key)
    return Local(z, w, images.gamma_e), sums


def whole_pass(
    images: ImageArrays, data: LayerData, shared: Shared, spec: LayerSpec, shape: LayerShape, key: Key
) -> Sums:
    """Update fully observed images, a few chunks at a time; the chunks' sums are added in order."""
    by_gram = uses_gram(spec, shape)
    update, atoms = (gram.pass_gram, top_atoms) if by_gram else (kernels.pass_whole, whole_atoms)
    constants = LayerConstants(layout_of(shape), prior_of(spec), () if by_gram else static_width_of(shape))
    atoms = atoms(shared, shape, data.images.dtype)
    run = lambda share: update(images.some(share.images), atoms, constants, key, share.sums)  # noqa: E731
    return add_up(empty_sums(shape), data.shard, len(images.pixels), run)


def masked_pass(
    images: ImageArrays, data: LayerData, shared: Shared, spec: LayerSpec, shape: LayerShape, key: Key
) -> MaskedPass:
    """Update images with missing pixels; the images become their residuals."""
    mask, dtype, n = data.mask, data.images.dtype, len(data.images)
    alike = data.shard.reduce(all, bool((mask == mask[:, :1]).all()))
    observed = plane_last(mask, dtype), np.ascontiguousarray(mask[:, :1] if alike else mask, dtype)
    pixels = mask.sum(axis=(1, 2, 3)).astype(float)
    images = images._replace(pixels=np.where(observed[0] > 0, images.pixels, dtype.type(0)))
    chunks, atoms = -(-n // CHUNK), plane_last(shared.dictionary, dtype)
    atoms = kernels.MaskedAtoms(atoms, atoms**2, float(shared.gamma_w[0]))
    constants = LayerConstants(layout_of(shape), prior_of(spec), static_width_of(shape))
    sums = kernels.MaskedSums(np.zeros((chunks, 2, shape.atoms)), np.zeros(chunks), np.zeros(n))

    def run(some: slice, _) -> None:
        where = slice(some.start * CHUNK, some.stop * CHUNK)
        mine = kernels.MaskedSums(sums.per_atom[some], sums.log_counts[some], sums.energy[where])
        kernels.pass_masked(images.some(where), observed[0][where], pixels[where], atoms, constants, key, mine)

    share_out(chunks, run)
    per_atom, log_counts = add_chunks((sums.per_atom, sums.log_counts), data.shard)
    return MaskedPass(images.pixels, observed, pixels, per_atom, float(log_counts), sums.energy)


def prior_of(spec: LayerSpec) -> Prior:
    """Priors as the kernels want them."""
    beta = spec.beta if spec.elementwise else (0.0, 0.0)
    noise, by_image = spec.gamma_e, IMAGE in spec.gamma_e.axes
    return Prior(*beta, not spec.elementwise, noise.shape, noise.rate, noise.fixed is None and by_image, by_image)


def static_width_of(shape: LayerShape) -> tuple[int, ...]:
    """Zeros, one a column of an atom of one plane for whose width the kernels are compiled, at some seconds each."""
    return (0,) * shape.atom_size[1] if shape.planes == 1 and shape.atom_size[1] >= SHORTEST else ()


def uses_gram(spec: LayerSpec, shape: LayerShape) -> bool:
    """Whether the correlations are kept current by the atoms' Gram matrix, see `gdd.sampler.kernels.gram`."""
    numbers = shape.atoms**2 * int(np.prod([2 * m - 1 for m in shape.map_size]))
    overlapping = all(m <= a for m, a in zip(shape.map_size, shape.atom_size, strict=True))
    return spec.elementwise and overlapping and numbers <= gram.LARGEST


def whole_atoms(shared: Shared, shape: LayerShape, dtype: np.dtype) -> kernels.Atoms:
    """The shared part as `gdd.sampler.kernels.layer` wants it."""
    lags = padded_autocorrelations(shared.dictionary, dtype)
    return kernels.Atoms(plane_last(shared.dictionary, dtype), lags, float(shared.gamma_w[0]))


def top_atoms(shared: Shared, shape: LayerShape, dtype: np.dtype) -> gram.TopAtoms:
    """The shared part as `gdd.sampler.kernels.gram` wants it."""
    flat = plane_last(shared.dictionary, dtype)
    products = gram_slabs(shared.dictionary.astype(dtype), shape.input_size, (1, 1))
    slabs = [slab_index(*sizes, 1) for sizes in zip(shape.map_size, shape.input_size, shape.atom_size, strict=True)]
    placed = np.ascontiguousarray(flat.transpose(1, 2, 0))
    return gram.TopAtoms(flat, placed, products, *slabs, float(shared.gamma_w[0]))


def padded_autocorrelations(dictionary: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Each atom's autocorrelation summed over planes, then zeros: (atom, 2 atom_row - 1, 3 atom_col)."""
    atoms, (h, w) = dictionary.astype(float), dictionary.shape[2:]
    lags = np.zeros((len(atoms), 2 * h - 1, 3 * w), dtype)
    lags[:, :, : 2 * w - 1] = fftconvolve(atoms, atoms[:, :, ::-1, ::-1], axes=(2, 3)).sum(axis=1)
    return lags


def empty_sums(shape: LayerShape) -> Sums:
    """Sums over no image."""
    (h, w), k = shape.atom_size, shape.atoms
    reach = tuple(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    return Sums(np.zeros((k, k, *reach)), np.zeros((k, h, w * shape.planes)), np.zeros((2, k)), np.zeros(3))


def draw_shared_part(
    local: Local, sums: Sums | MaskedPass, shared: Shared, data: LayerData, spec: LayerSpec, shape: LayerShape,
    key: Key,
) -> tuple[LayerState, Info]:
    """Draw what images share, given what an image pass left: dictionary, gamma_e, gamma_d and gamma_w."""
    generator = shared_generator(*key)
    draw = draw_from_sums if isinstance(sums, Sums) else draw_from_residuals
    local, dictionary, likelihood, residual, log_counts = draw(local, sums, shared, data, spec, shape, generator)
    gamma_d = draw_gamma_d(dictionary, spec.gamma_d, shared.gamma_d, generator)
    gamma_w = draw_shared_precision(spec.gamma_w, *sums.per_atom, shared.gamma_w, generator)
    state = LayerState(local, Shared(dictionary, gamma_d, gamma_w))
    joint = likelihood + log_prior_from(state, log_counts, sums.per_atom, data, spec, shape)
    return state, Info(likelihood, joint, residual, sums.per_atom[0])


def draw_from_sums(
    local: Local, sums: Sums, shared: Shared, data: LayerData, spec: LayerSpec, shape: LayerShape,
    generator: np.random.Generator,
) -> tuple[Local, np.ndarray, float, float, float]:
    """Dictionary and shared gamma_e of whole images: (local, dictionary, log likelihood, residual, log counts)."""
    by_image = IMAGE in spec.gamma_e.axes
    gamma_e, size = 1.0 if by_image else float(local.gamma_e[0]), data.count * data.images[0].size
    dictionary, change = draw_dictionary(sums.scaled(gamma_e), shared.dictionary, shared.gamma_d, shape, generator)
    energy = (sums.energy[1] if by_image else gamma_e * sums.energy[0]) + change  # sum gamma_e ||E||^2
    if not by_image:
        pixels, squares = np.array([float(size)]), np.array([energy / gamma_e])
        new = draw_shared_precision(spec.gamma_e, pixels, squares, local.gamma_e, generator)
        energy *= float(new[0]) / gamma_e
        local = local._replace(gamma_e=new)
    precisions = np.broadcast_to(local.gamma_e[:, None], data.images.shape[:2])
    noise, = add_images(data.shard, np.log(precisions) - LOG_TWO_PI)
    likelihood = 0.5 * data.images[0, 0].size * noise - 0.5 * energy
    residual = np.sqrt(sums.energy[0] / size)
    return local, dictionary, float(likelihood), float(residual), sums.energy[2]


def draw_from_residuals(
    local: Local, sums: MaskedPass, shared: Shared, data: LayerData, spec: LayerSpec, shape: LayerShape,
    generator: np.random.Generator,
) -> tuple[Local, np.ndarray, float, float, float]:
    """Dictionary and shared gamma_e of masked images, as `draw_from_sums`; changes ``sums.residual``."""
    number, squares = add_images(data.shard, sums.pixels, sums.energy)
    residual = np.sqrt(squares / max(number, 1.0))
    dictionary = draw_masked_dictionary(shared, local, sums.residual, sums.observed, shape, generator, data.shard)
    share_out(len(sums.residual), lambda some, _: kernels.energies(sums.residual[some], sums.energy[some]))
    pixels, energy = sums.pixels, sums.energy
    if IMAGE not in spec.gamma_e.axes:
        everywhere = (np.array([value]) for value in add_images(data.shard, pixels, energy))
        local = local._replace(gamma_e=draw_shared_precision(spec.gamma_e, *everywhere, local.gamma_e, generator))
    terms = 0.5 * pixels * (np.log(local.gamma_e) - LOG_TWO_PI) - 0.5 * local.gamma_e * energy
    return local, dictionary, *add_images(data.shard, terms), float(residual), sums.log_counts


def log_prior_from(
    state: LayerState, log_counts: float, per_atom: np.ndarray, data: LayerData, spec: LayerSpec, shape: LayerShape
) -> float:
    """Log prior of all unknowns, from sums: the running twin of the prior part of `gdd.model.layer.log_joint`.

    log_counts : sum of lgamma(alpha + count) - lgamma(alpha) over images, maps, block shapes and outcomes
    per_atom : (2, atom), active blocks and sum of squared weights
    """
    local, shared = state
    active = per_atom[0].sum()
    if spec.elementwise:
        a, b = spec.beta
        total = active * np.log(a) + (data.count * local.z[0].size - active) * np.log(b)
    else:
        total = log_counts - data.count * shape.atoms * sum(gammaln(1.0 + g[0].sum()) for g in block_groups(shape))
    total += log_gaussian(shared.gamma_w, *per_atom)
    total += log_atoms(shared.dictionary, shared.gamma_d)
    if spec.gamma_e.fixed is None:
        terms = Gamma(spec.gamma_e.shape, spec.gamma_e.rate).logpdf(local.gamma_e.astype(float))
        total += add_entries(data.shard, terms, IMAGE in spec.gamma_e.axes)
    for prior, value in ((spec.gamma_d, shared.gamma_d), (spec.gamma_w, shared.gamma_w)):
        total += log_precision(prior, value)
    return float(total)
