"""Test-time inference, `infer`: Gibbs sampling of an image's coefficients under fixed, projected atoms.

The model of one image is ``X = sum_k Dtilde_k * h(S_k) + E`` with the atoms fixed: an atom at a position of the grid is
one fixed image, and a coefficient of S is its weight. The Gram matrix of all placed atoms is the same for every image,
so a chain uses the pixels only once, for their correlations with the atoms. Where pixels are missing, inner products
are over observed pixels, and the chain keeps the residual instead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, prod
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import COL, DICTIONARY, DRAW, IMAGE, IMAGES, MAPS, OURS, ROW
from gdd.base.checks import (
    REMEDY,
    GddError,
    as_finite,
    as_pixels,
    as_plain,
    check_choice,
    check_kind,
    check_lengths,
    check_memory,
    check_pair,
    check_precision,
    check_seed,
    check_whole,
)
from gdd.base.compiling import share_out
from gdd.model.pooling import Size
from gdd.sampler.kernels.coefficients import Chains, Problem, Run, correlate_image, run_chains, run_masked_chain
from gdd.sampler.placement import place_atoms, placement_grid
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined

#: coefficients, of all images together, whose chains are in memory at once
_COEFFICIENTS_AT_ONCE = 2**19
#: results that are maps: posterior means of S, Z and |S|
AVERAGES = ("mean", "inclusion", "magnitude")


class InferenceChain(NamedTuple):
    """Length and random numbers of the chains of new images.

    Attributes
    ----------
    burn_in, collect : sweeps (the paper's: 500, 200)
    seed : of every random number; image n uses the stream (seed, TEST, 0, sweep, first_image + n)
    first_image : number of the first image in the data set, so that a part gives the same as the whole; None: all
        images use the stream of image 0, so that what an image gives depends on it alone
    """

    burn_in: int = 500
    collect: int = 200
    seed: int = 0
    first_image: int | None = 0


PAPER_CHAIN = InferenceChain()


def deconvolve(
    images: np.ndarray | xr.DataArray, atoms: np.ndarray | xr.DataArray, stride: Size, *, gamma_e: float,
    gamma_w: float, chain: InferenceChain = PAPER_CHAIN, mask: np.ndarray | xr.DataArray | None = None,
    start: np.ndarray | None = None, trace: bool = False, progress: Callable[[int], None] | None = None,
    device: str = "cpu",
) -> xr.Dataset:
    r"""Infer the maps of new images by Gibbs sampling, the atoms being known.

    .. math:: X = \sum_k \tilde D_k * h(S_k) + E, \qquad S = Z \circ W

    Parameters
    ----------
    images : (image, plane, row, col)           labels of a DataArray along ``image`` are kept
    atoms : (atom, plane, atom_row, atom_col)   projected top atoms, Dtilde in the paper; or the atoms of one layer
    stride : pixels (row, col) between positions: product of the pools below the top layer
    gamma_e : noise precision; fixed, from training
    gamma_w : precision of the weights; fixed, from training
    chain : its length, seed and number of the first image
    mask : (image, plane, row, col) of bool, True = observed; None: all observed. A hidden pixel has weight zero
    start : (image, atom, row, col), optional   weights to start from; if not given, those of a greedy pursuit: the
        coefficient most probably active gets its conditional mean, until none is more probable than not
    trace : keep the log-likelihood after every sweep
    progress : called with a number of images whenever so many more are done
    device : "cpu", or "cuda" for an NVIDIA graphics processor: the same chains, to rounding

    Returns
    -------
    Dataset, float32 or float64 as the images are
        ``ml_sample`` (image, atom, row, col): the collected sample of highest log p(X | S), per image;
        ``log_likelihood`` (image,): its log p(X | S), of observed pixels;
        ``mean``, ``inclusion``, ``magnitude`` (image, atom, row, col): posterior mean of S, of Z and of \|S\|, as
        averages over the collected sweeps of the conditional expectation at each visit, given all the other
        coefficients (Rao-Blackwell: less Monte Carlo noise than averaging the draws themselves);
        ``trace`` (image, draw) if asked for.

    Notes
    -----
    A missing pixel has weight zero in every inner product and norm (P34), in the pursuit as in the sweeps, as it has in
    training. No Gram matrix holds then; the chain keeps the residual, and a sweep of MNIST's 640 coefficients takes
    0.06 ms of a core in place of 0.006.

    Memory: the Gram matrix takes (2 rows - 1) (2 cols - 1) K^2 numbers, for 1616 atoms at 5 x 5 positions 846 MB in
    single precision (2 rows, 2 cols where atoms stick out of the image). The results take 4 numbers per coefficient
    and image; for the images at work, at most 16 or half a million coefficients, there are 5 more.
    `gdd.projection.render_projected` draws the images that the maps stand for.

    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and 3; supplement, "Testing".
    Departs: positions at the stride (P16); posterior averages beside the sample of highest likelihood; starts from a
    greedy pursuit, which needs fewer and cheaper sweeps to reach the stationary distribution (the paper does not say).
    Checked: tests/test_deconvolution.py (ratio, cache, plain twin, enumeration, exact start, threads; all but the
    cache with missing pixels too).
    """
    coords = along_images(images)
    observed = None if mask is None else as_plain(mask, IMAGES, "mask").copy(order="C")
    images = as_pixels(images, "images", observed, mask is not None)
    atoms = check_atoms(atoms, images, least=2)
    check_device(device)
    (burn_in, collect), seed = check_lengths(chain.burn_in, chain.collect), check_seed(chain.seed)
    first = None if chain.first_image is None else check_whole("first_image", chain.first_image, 0)
    run = Run(seed, first or 0, int(first is not None), burn_in, collect)
    stride = check_pair("stride", stride)
    gamma_e, gamma_w = check_precision("gamma_e", gamma_e), check_precision("gamma_w", gamma_w)
    problem = make_problem(atoms.astype(images.dtype), images.shape[2:], stride, gamma_e, gamma_w)
    check_memory("images, burn_in, collect", len(images) * (burn_in + collect) if trace else 0)
    shape = (len(images), atoms.shape[0], *problem.grid)
    check_memory("images, atoms, stride", 4 * prod(shape), images.itemsize)
    if start is not None and np.shape(start) != shape:
        raise GddError(f"start: {np.shape(start)} given; finite weights of shape {shape} {MAPS} are needed")
    start = None if start is None else as_finite(start, MAPS, "start").astype(images.dtype)
    scale = np.sqrt(gamma_e).astype(images.dtype)
    maps = {name: np.empty(shape, images.dtype) for name in ("ml_sample", *AVERAGES)}
    residual, history = np.empty(len(images)), np.empty((len(images), burn_in + collect if trace else 0))
    chunk = max(16, _COEFFICIENTS_AT_ONCE // problem.norm.size) if device == "cpu" else len(images)
    for low in range(0, len(images), chunk):
        part = slice(low, low + chunk)
        part_observed, part_start = (None if array is None else array[part] for array in (observed, start))
        part_run = run._replace(first=run.first + low * run.stream_step)
        codes = run_problem(problem, images[part] * scale, part_observed, part_start, part_run, trace, device)
        for array, values in zip((*maps.values(), residual, history), codes, strict=True):
            array[part] = values
        if progress is not None:
            progress(len(codes.residual))
    refuse_overflow(residual)
    pixels = np.full(len(images), images[0].size) if observed is None else observed.sum(axis=(1, 2, 3))
    constant = 0.5 * pixels * log(gamma_e / (2 * pi))
    out = {name: (MAPS, values) for name, values in maps.items()}
    out["log_likelihood"] = IMAGE, constant - 0.5 * residual
    if trace:
        out["trace"] = (IMAGE, DRAW), constant[:, None] - 0.5 * history
    attrs = {"stride": tuple(problem.stride.tolist()), "gamma_e": gamma_e, "gamma_w": problem.gamma_w}
    return xr.Dataset(out, coords, attrs | {"burn_in": burn_in, "collect": collect, "seed": seed})


def infer(
    trained: Pretrained | Refined, atoms: xr.DataArray | np.ndarray, images: xr.DataArray | np.ndarray, **options
) -> xr.Dataset:
    """Features of new images: deconvolution with projected atoms, under the precisions of training.

    gamma_e is the mean over the training images, after pretraining that of the bottom layer; gamma_w is the top
    layer's.

    Parameters
    ----------
    trained : a pretrained or a refined model
    atoms : (atom, plane, atom_row, atom_col)   its projected top atoms, `gdd.project`
    images : (image, plane, row, col), in the units of training
    **options : ``mask``, ``burn_in``, ``collect``, ``seed``, ``start``, ``first_image``, ``trace``, ``progress``,
        ``device``, see `deconvolve` and `InferenceChain`

    Returns
    -------
    Dataset, as of `deconvolve`: ``mean``, ``inclusion``, ``magnitude`` of every coefficient, and more

    Raises
    ------
    GddError
        An unknown option; arguments that `deconvolve` refuses.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4 and 3.
    Departs: P16.
    Checked: tests/test_pipeline.py, tests/test_projection_joint.py.
    """
    check_kind("trained", trained, (Pretrained, Refined))
    gamma_e, gamma_w = precisions_of(trained)
    chain = {name: options.pop(name) for name in InferenceChain._fields if name in options}
    known = [*InferenceChain._fields, *(name for name in deconvolve.__kwdefaults__ if name != "chain")]
    for name in options:
        if name not in known:
            raise GddError(f"{name}: not an option of infer; these are {', '.join(known)}")
    chain = InferenceChain(**chain)
    return deconvolve(images, atoms, trained.model.stride, gamma_e=gamma_e, gamma_w=gamma_w, chain=chain, **options)


def precisions_of(trained: Pretrained | Refined) -> tuple[float, float]:
    """gamma_e and gamma_w for the deconvolution of new images, means over the trained entries."""
    if isinstance(trained, Pretrained):
        local, shared = trained.layers[0].state.local, trained.layers[-1].state.shared
    else:
        local, shared = trained.state
    return float(np.mean(local.gamma_e)), float(np.mean(shared.gamma_w))


class Codes(NamedTuple):
    """Results of the chains of a batch of images."""

    ml_sample: np.ndarray  # (image, atom, row, col): collected sample of least residual
    mean: np.ndarray  # (image, atom, row, col): posterior mean of S
    inclusion: np.ndarray  # (image, atom, row, col): of Z
    magnitude: np.ndarray  # (image, atom, row, col): of |S|
    residual: np.ndarray  # (image,): squared residual of that sample
    trace: np.ndarray  # (image, draw): squared residual after every sweep; (image, 0) for no trace


def make_problem(atoms: np.ndarray, image_size: Size, stride: Size, gamma_e: float, gamma_w: float) -> Problem:
    """Constants of the chains of all images; the arguments are those of `deconvolve`, checked."""
    atoms = atoms * np.sqrt(gamma_e).astype(atoms.dtype)
    places = prod(placement_grid(image_size, atoms.shape[2:], stride))
    check_memory("atoms, stride", 4 * len(atoms) ** 2 * places, atoms.itemsize)
    return place_atoms(atoms, image_size, stride, float(gamma_w), log(prior_odds(len(atoms))))


def under_mask(problem: Problem, observed: np.ndarray) -> Problem:
    """Return the problem with the atoms' norms over the ``observed`` pixels (row, col * plane) of one image."""
    norm = np.empty(problem.norm.size, problem.atoms.dtype)
    correlate_image(observed.astype(norm.dtype), problem._replace(atoms=problem.atoms**2), norm)
    return problem._replace(norm=norm.astype(np.float64))


def run_problem(
    problem: Problem, scaled: np.ndarray, observed: np.ndarray | None, start: np.ndarray | None, run: Run, trace: bool,
    device: str = "cpu",
) -> Codes:
    """Run the chains of a batch of scaled images, from ``start`` (image, atom, row, col) or else a greedy pursuit.

    observed : (image, plane, row, col) of bool, True where a pixel was observed; None: all observed
    """
    number, run = len(scaled), Run(*run)
    best = np.zeros((number, problem.norm.size), scaled.dtype)
    if start is not None:
        best[:] = start.transpose(0, 2, 3, 1).reshape(number, -1)
    averages = np.empty((number, 3, problem.norm.size), scaled.dtype)
    chains = Chains(best, np.empty(number), averages, np.empty((number, run.burn_in + run.collect if trace else 0)))
    has_hidden = np.zeros(number, bool) if observed is None else ~observed.all(axis=(1, 2, 3))
    pixels, atoms = _plane_last(scaled), problem.atoms.reshape(-1, problem.atoms.shape[2]).T.ravel()
    masks = None if observed is None else _plane_last(observed)

    def run_batch(batch: slice, _) -> None:
        for part in [slice(n, n + 1) for n in range(batch.start, batch.stop)] if has_hidden.any() else [batch]:
            part_run = run._replace(first=run.first + part.start * run.stream_step)
            part_chains = chains.slice(part)
            if not has_hidden[part].any():
                run_chains(pixels[part], problem, part_run, part_chains, start is None)
            else:
                (image,), (mask,) = pixels[part], masks[part]
                run_masked_chain(image, mask, under_mask(problem, mask), atoms, part_run, part_chains, start is None)

    if device == "cuda":
        from gdd.cuda import coefficients  # not before it is asked for

        coefficients.run_chains(pixels, masks if has_hidden.any() else None, problem, run, chains, start is None)
    else:
        share_out(number, run_batch)
    maps = [v.reshape(number, *problem.grid, -1).transpose(0, 3, 1, 2) for v in (best, *averages.transpose(1, 0, 2))]
    return Codes(*maps, chains.residual, chains.trace)


def _plane_last(images: np.ndarray) -> np.ndarray:
    """(image, plane, row, col) to (image, row, col * plane)."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(len(images), images.shape[2], -1)


def check_device(device: str) -> None:
    """GddError unless the chains can run there."""
    check_choice("device", device, ("cpu", "cuda"))
    if device == "cuda":
        from gdd.cuda.device import check_available  # not before it is asked for

        check_available()


def prior_odds(atoms: int) -> float:
    """Prior odds of a coefficient being active, a0 / b0 = 1 / (K - 1)."""
    return 1.0 / (atoms - 1)


def check_atoms(
    atoms: np.ndarray | xr.DataArray, images: np.ndarray, argument: str = "atoms", least: int = 1
) -> np.ndarray:
    """Check atoms (atom, plane, atom_row, atom_col): at least ``least``, with the images' planes, not larger."""
    atoms = as_finite(atoms, DICTIONARY, argument)
    if atoms.shape[1] != images.shape[1]:
        raise GddError(f"{argument}: {atoms.shape[1]} along axis 'plane', the images have {images.shape[1]}")
    if len(atoms) < least:
        raise GddError(f"{argument}: {len(atoms)} along axis 'atom'; the prior odds 1 / (K - 1) need {least} or more")
    for axis, inner, outer in zip((ROW, COL), atoms.shape[2:], images.shape[2:], strict=True):
        if inner > outer:
            raise GddError(f"{argument}: size {inner} along axis '{axis}' is larger than the image's {outer}")
    return atoms


def refuse_overflow(fits: np.ndarray) -> None:
    """Raise GddError if a chain overflowed; ``fits`` (image,) holds a residual or likelihood of each."""
    if not np.isfinite(fits).all():
        n = int(np.isfinite(fits).argmin())
        raise GddError(f"images: the chain of image {n} left the range of numbers; {REMEDY}")


def along_images(images: np.ndarray | xr.DataArray) -> dict[str, xr.Variable]:
    """Coordinates of ``images`` along ``image``, for results of the same images; empty without labels.

    GddError if one of them has the name of an array or an axis of the results.
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    coords = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    for name in coords:
        if OURS.fullmatch(str(name)):
            raise GddError(
                f"images: coordinate {name!r} has the name of an array of the results; rename it:"
                f" images.rename({{{name!r}: 'my_{name}'}})"
            )
    return coords
