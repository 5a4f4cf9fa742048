"""Test-time inference: which projected atoms an image is made of, at which positions, how strongly.

The model of one image is ``X = sum_k Dtilde_k * h(S_k) + E`` with the atoms fixed: an atom at a position of the grid is
one fixed picture, and a coefficient of S is its weight. The inner products of all placed atoms (their Gram matrix) are
the same for every image; the chain of an image then needs the pixels only once, for its correlations.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, prod
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import (
    COL,
    DICTIONARY,
    DRAW,
    IMAGE,
    MAPS,
    ROW,
    GddError,
    as_array,
    as_finite,
    as_pixels,
    check_memory,
    shown,
)
from gdd.base.checks import (
    LARGEST_PRECISION,
    REMEDY,
    SMALLEST_PRECISION,
    check_lengths,
    check_pair,
    check_precision,
    check_seed,
    check_whole,
)
from gdd.inference.deconvolution_kernels import run_chains
from gdd.model.placement import gram_slabs, placement_grid, slab_index

Size = tuple[int, int]

#: coefficients, of all images together, whose chains are held at once
_AT_ONCE = 2**19


class Problem(NamedTuple):
    """All that the chains of different images share. Atoms are scaled to noise precision 1."""

    atoms: np.ndarray  # (atom, plane, atom_row, atom_col); in memory the atoms are side by side
    stride: Size
    grid: Size  # positions (row, col) of an atom
    gram: np.ndarray  # (atom, row slab, col slab, atom), see `gram_slabs`
    slabs: tuple[np.ndarray, np.ndarray]  # (rows, rows), (cols, cols): which entry of it a pair of positions has
    norm: np.ndarray  # (row, col, atom): squared norm of a placed atom
    gamma_w: float

    @property
    def prior_odds(self) -> float:
        """Odds of a coefficient being active before the image is seen: a0 / b0 = 1 / (K - 1)."""
        return 1.0 / (len(self.atoms) - 1)


def make_problem(atoms: np.ndarray, image_size: Size, stride: Size, gamma_e, gamma_w: float) -> Problem:
    """Check and prepare what the chains of all images share. ``gamma_e``: a number, or one per plane."""
    atoms, stride = as_finite(atoms, DICTIONARY, "atoms"), check_pair("stride", stride)
    check_atoms(atoms, image_size)
    scale = np.sqrt(noise_precision(gamma_e, atoms.shape[1])).astype(atoms.dtype)
    gamma_w = check_precision("gamma_w", gamma_w)
    atoms = atoms * scale[:, None, None]
    grid = placement_grid(image_size, atoms.shape[2:], stride)
    check_memory("atoms, stride", 4 * len(atoms) ** 2 * grid[0] * grid[1], atoms.itemsize)
    gram = gram_slabs(atoms, image_size, stride)
    slabs = tuple(slab_index(*sizes) for sizes in zip(grid, image_size, atoms.shape[2:], stride, strict=True))
    row, col = (np.diagonal(index) for index in slabs)
    norm = np.ascontiguousarray(np.diagonal(gram, axis1=0, axis2=3)[row[:, None], col[None, :]])
    side_by_side = np.ascontiguousarray(atoms.transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)
    return Problem(side_by_side, stride, grid, gram, slabs, norm, gamma_w)


def check_atoms(atoms: np.ndarray, image_size: Size) -> None:
    """Refuse a single atom, and atoms larger than the image."""
    if len(atoms) < 2:
        raise GddError(f"atoms: {len(atoms)} along axis 'atom'; the prior odds 1 / (K - 1) need 2 or more")
    for axis, inner, outer in zip((ROW, COL), atoms.shape[2:], image_size, strict=True):
        if inner > outer:
            raise GddError(f"atoms: size {inner} along axis '{axis}' is larger than the image's {outer}")


def noise_precision(gamma_e, planes: int) -> np.ndarray:
    """Return the noise precision as one positive number per plane; GddError otherwise."""
    gamma_e = as_array(gamma_e, "gamma_e").astype(float)
    usual = (gamma_e >= SMALLEST_PRECISION) & (gamma_e <= LARGEST_PRECISION)
    if gamma_e.ndim > 1 or gamma_e.size not in (1, planes) or not usual.all():
        raise GddError(
            f"gamma_e: {shown(gamma_e)} given; a positive finite number from {SMALLEST_PRECISION:g} to "
            f"{LARGEST_PRECISION:g} is needed, or one per plane ({planes})"
        )
    return np.broadcast_to(gamma_e, (planes,))


def deconvolve(
    images: np.ndarray | xr.DataArray,
    atoms: np.ndarray | xr.DataArray,
    stride: Size,
    *,
    gamma_e: float | np.ndarray,
    gamma_w: float,
    burn_in: int = 500,
    collect: int = 200,
    seed: int = 0,
    start: np.ndarray | None = None,
    first_image: int = 0,
    trace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> xr.Dataset:
    r"""Infer the maps of new images by Gibbs sampling, the atoms being known.

    .. math:: X = \sum_k \tilde D_k * h(S_k) + E, \qquad S = Z \circ W

    Parameters
    ----------
    images : (image, plane, row, col)           labels of a DataArray along ``image`` are kept
    atoms : (atom, plane, atom_row, atom_col)   projected top atoms, Dtilde in the paper; or the atoms of one layer
    stride : pixels (row, col) between positions: product of the pools below the top layer
    gamma_e : noise precision, a number or one per plane; fixed, from training
    gamma_w : precision of the weights; fixed, from training
    burn_in, collect : sweeps (the paper's: 500, 200)
    seed : of every random number; image n uses the stream (seed, TEST, 0, sweep, first_image + n)
    start : (image, atom, row, col), optional   weights to start from; if not given, those of a greedy pursuit: the
        coefficient most probably active gets its conditional mean, until none is more probable than not
    first_image : number of the first image in the data set, so that a part gives the same as the whole
    trace : keep the log-likelihood after every sweep
    progress : called with a number of images whenever so many more are done

    Returns
    -------
    Dataset, float32 or float64 as the images are
        ``ml_sample`` (image, atom, row, col): the collected sample of highest log p(X | S), per image;
        ``log_likelihood`` (image,): its log p(X | S);
        ``mean``, ``inclusion``, ``magnitude`` (image, atom, row, col): posterior mean of S, of Z and of \|S\|, as
        averages over the collected sweeps of the conditional expectation at each visit, given all the other
        coefficients (Rao-Blackwell: less Monte Carlo noise than averaging the draws themselves);
        ``trace`` (image, draw) if asked for.

    Raises
    ------
    GddError
        Bad pixels (see `gdd.base.axes.check_images`), one atom only, atoms larger than the image or of another number
        of
        planes, a precision that is not positive, no collected sweep.

    Notes
    -----
    Memory: the Gram matrix takes (2 rows - 1) (2 cols - 1) K^2 numbers, for 1616 atoms at 5 x 5 positions 846 MB in
    single precision (2 rows, 2 cols where atoms stick out of the image). The results take 4 numbers per coefficient
    and image; for the images at work, at most 16 or half a million coefficients, there are 5 more.
    The images that the maps stand for: `gdd.projection.render_projected`.

    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and 3; supplement, "Testing".
    Departs: positions at the stride (P16); posterior averages beside the sample of highest likelihood; begins with a
    greedy pursuit, from which fewer sweeps lead to where the chain stays, and cheaper ones (the paper does not say).
    Checked: tests/test_deconvolution.py (ratio, cache, plain twin, enumeration, exact start, threads).
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    images, atoms = as_pixels(images), as_finite(atoms, DICTIONARY, "atoms")
    if images.shape[1] != atoms.shape[1]:
        raise GddError(f"atoms: {atoms.shape[1]} planes along axis 'plane', the images have {images.shape[1]}")
    burn_in, collect, _ = check_lengths(burn_in, collect)
    seed, first_image = check_seed(seed), check_whole("first_image", first_image, 0)
    dtype = images.dtype.type
    problem = make_problem(atoms.astype(dtype), images.shape[2:], stride, gamma_e, gamma_w)
    check_memory("images, burn_in, collect", len(images) * (burn_in + collect) if trace else 0)
    result = _empty_result(len(images), problem, dtype, burn_in + collect if trace else 0)
    begin = None if start is None else _check_start(start, result["ml_sample"])
    scale = np.sqrt(noise_precision(gamma_e, images.shape[1])).astype(dtype)[:, None, None]
    constant = 0.5 * np.prod(images.shape[2:]) * np.log(noise_precision(gamma_e, images.shape[1]) / (2 * pi)).sum()
    chunk = max(16, _AT_ONCE // problem.norm.size)
    for low in range(0, len(images), chunk):
        part = slice(low, low + chunk)
        scaled = images[part] * scale
        given = None if begin is None else begin[part]
        chains = run_problem(problem, scaled, given, (seed, first_image + low, burn_in, collect), trace)
        for name, values in zip(result, chains, strict=True):
            result[name][part] = values
        if progress is not None:
            progress(len(scaled))
    if not np.isfinite(result["log_likelihood"]).all():
        n = int(np.isfinite(result["log_likelihood"]).argmin())
        raise GddError(f"images: the chain of image {n} left the range of numbers; {REMEDY}")
    for name in ("log_likelihood", "trace"):
        result[name] = constant - 0.5 * result[name]
    settings = {"stride": problem.stride, "gamma_e": gamma_e, "gamma_w": gamma_w}
    return _labelled(result, labels, settings | {"burn_in": burn_in, "collect": collect, "seed": seed})


def run_problem(
    problem: Problem, scaled: np.ndarray, begin: np.ndarray | None, run: tuple[int, int, int, int], trace: bool
):  # fmt: skip
    """Run one chunk of scaled images; arrays in the order of `_empty_result`, squared residuals for log-likelihoods.

    ``begin`` : (image, atom, row, col), or None for a greedy pursuit
    ``run`` : (seed, number of the first image, burn_in, collect)
    """
    images, (rows, cols), atoms = len(scaled), problem.grid, len(problem.atoms)
    atoms_last = problem.atoms.transpose(1, 2, 3, 0)
    norm = problem.norm.ravel().astype(np.float64)
    inverse = 1.0 / (norm + problem.gamma_w)
    log_odds = log(problem.prior_odds) + 0.5 * np.log(problem.gamma_w * inverse)
    best, pursued = np.zeros((images, norm.size), scaled.dtype), begin is None
    if begin is not None:
        best[:] = begin.transpose(0, 2, 3, 1).reshape(images, -1)
    averages = np.empty((images, 3, norm.size), scaled.dtype)
    residual, history = np.empty(images), np.empty((images, sum(run[2:]) if trace else 0))
    run_chains(
        scaled, atoms_last, problem.stride, pursued, problem.gram, *problem.slabs,
        norm, inverse, log_odds, *run, best, residual, averages, history,
    )  # fmt: skip
    as_maps = [v.reshape(images, rows, cols, atoms).transpose(0, 3, 1, 2) for v in (best, *averages.transpose(1, 0, 2))]
    return *as_maps, residual, history


def _empty_result(images: int, problem: Problem, dtype: type, sweeps: int) -> dict[str, np.ndarray]:
    shape = (images, len(problem.atoms), *problem.grid)
    check_memory("images, atoms, stride", 4 * prod(shape), np.dtype(dtype).itemsize)
    maps = {name: np.empty(shape, dtype) for name in ("ml_sample", "mean", "inclusion", "magnitude")}
    return maps | {"log_likelihood": np.empty(images), "trace": np.empty((images, sweeps))}


def _check_start(start: np.ndarray, like: np.ndarray) -> np.ndarray:
    start = as_finite(start, MAPS, "start")
    if start.shape != like.shape:
        raise GddError(f"start: {start.shape} given; finite weights of shape {like.shape} {MAPS} are needed")
    return start.astype(like.dtype)


def _labelled(result: dict[str, np.ndarray], labels, attrs: dict) -> xr.Dataset:
    dims = dict.fromkeys(("ml_sample", "mean", "inclusion", "magnitude"), MAPS)
    dims |= {"log_likelihood": (IMAGE,), "trace": (IMAGE, DRAW)}
    kept = {name: values for name, values in result.items() if name != "trace" or values.shape[1]}
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    return xr.Dataset({name: (dims[name], values) for name, values in kept.items()}, along, attrs)
