"""Draws of the joint model's dictionaries: upper ones by perturb and solve, the bottom one atom by atom.

An upper dictionary has as many unknowns as a small image collection has pixels, and its precision P is dear to form.
A draw from N(P^-1 b, P^-1) needs only products with P: perturb b by noise of covariance P, and solve (Papandreou and
Yuille 2010). The solver stops at a small residual; how small is `RefinementSpec.tolerance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gdd.model.distributions import DiagonalShiftGaussian, Gaussian
from gdd.model.pooling import unpool
from gdd.model.spec import LayerShape
from gdd.sampler.dictionary import toeplitz
from gdd.sampler.joint_arrays import SLOTS, Arrays, batches, plane_second
from gdd.sampler.kernels import joint_dictionary_kernels as kernels
from gdd.sampler.kernels.joint_atom_kernels import atom_images
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.preconditioner import guess_by_atom
from gdd.sampler.preconditioner_by_frequency import guess_by_frequency

MOST_STEPS = 500
#: with more atoms than this, what couples them would cost more to invert than the steps that it saves
MOST_COUPLED = 64


class Pass(NamedTuple):
    """Sums of one pass over all images."""

    gradient: np.ndarray  # (atom * atom_row * atom_col * plane,)
    weights: np.ndarray  # (atom,): gamma_e times the sum of squared values
    energy: np.ndarray  # (2,): ||r||^2, gamma_e ||r||^2


def solve_pass(arrays: Arrays, task: int, layer: int, direction: np.ndarray, key: tuple) -> Pass:
    """Run `joint_dictionary_kernels.solve_images` over all images and add the slots in order."""
    total = Pass(np.zeros(arrays.dictionaries[layer].size), np.zeros(arrays.table[layer, 0]), np.zeros(2))
    part = Pass(*(np.zeros((SLOTS, array.size)) for array in total))
    for first, used in batches(len(arrays.images), CHUNK):
        for array in part:
            array[:used] = 0.0
        kernels.solve_images(
            task, layer, direction, arrays.residuals, arrays.masks, arrays.w, arrays.gamma_e, arrays.model, arrays.work,
            key, first, tuple(array[:used] for array in part),
        )  # fmt: skip
        for slot in range(used):
            for whole, array in zip(total, part, strict=True):
                whole += array[slot]
    return total


def draw_upper_dictionary(
    arrays: Arrays, layer: int, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, key: tuple,
    generator: np.random.Generator, tolerance: float,
) -> tuple[np.ndarray, np.ndarray, int]:  # fmt: skip
    """Draw all atoms of a layer above the bottom one, given all else.

    Changes ``arrays.residuals`` to what is left under the new dictionary.

    Returns (dictionary (atom, plane, atom_row, atom_col), (||r||^2, sum gamma_e ||r||^2), steps of the solver).

    *Source:* the paper draws elementwise. *Departs:* P4. *Checked:* tests/test_refine_sweep.py (covariance of draws).
    """
    dtype, before = arrays.images.dtype, flat(dictionary)
    noise = flat(generator.standard_normal(shape.dictionary))
    step, steps = solve(arrays, layer, dictionary, gamma_d, shape, key, noise, tolerance)
    after = before + step
    change = after.astype(dtype) - before.astype(dtype)  # as the next pass will see it
    energy = solve_pass(arrays, kernels.FINISH, layer, change, key).energy
    return plane_second(after, shape), energy, steps


def mean_dictionary(
    arrays: Arrays, layer: int, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, tolerance: float
) -> np.ndarray:
    """Mean of a layer's dictionary given all else: what `draw_upper_dictionary` draws around, for any layer."""
    step, _ = solve(arrays, layer, dictionary, gamma_d, shape, (0, 0, 0, 0), None, tolerance)
    return plane_second(flat(dictionary) + step, shape)


def solve(
    arrays: Arrays, layer: int, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, key: tuple,
    noise: np.ndarray | None, tolerance: float,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Step from a dictionary to the mean given all else, perturbed if there is ``noise``; and steps of the solver."""
    dtype = arrays.images.dtype
    prior = flat(np.broadcast_to(gamma_d[:, :, None, None], shape.dictionary)).astype(float)
    task = kernels.LOOK if noise is None else kernels.PERTURB
    start = solve_pass(arrays, task, layer, np.zeros(prior.size, dtype), key)
    right = start.gradient - prior * flat(dictionary) + (0.0 if noise is None else np.sqrt(prior) * noise)
    if layer and shape.atoms > MOST_COUPLED:
        guess = guess_by_atom(arrays.averages[layer - 1], shape, start.weights, gamma_d)
    elif layer:
        maps = unpool(arrays.positions[layer], values_of(arrays, layer, shape), shape.map_size, shape.block)
        gamma_e = np.broadcast_to(arrays.gamma_e, len(maps))
        guess = guess_by_frequency(arrays.averages[layer - 1], shape, maps, gamma_e, gamma_d)
    else:
        diagonal = prior + np.repeat(start.weights, prior.size // shape.atoms)
        guess = lambda vector: vector / diagonal  # noqa: E731

    def times(direction: np.ndarray) -> np.ndarray:
        return solve_pass(arrays, kernels.APPLY, layer, direction.astype(dtype), key).gradient + prior * direction

    return conjugate_gradients(times, right, guess, tolerance)


def flat_values(arrays: Arrays, layer: int, shape: LayerShape) -> np.ndarray:
    """Values of a layer's blocks, 0 where one is empty: (image, row * col * atom)."""
    out = np.empty((len(arrays.images), shape.atoms * shape.grid[0] * shape.grid[1]), arrays.images.dtype)
    for first, used in batches(len(out), CHUNK):
        part = (*arrays.work[:3], arrays.work[3][:used])
        kernels.block_values(layer, arrays.w, arrays.model, part, first, out)
    return out


def values_of(arrays: Arrays, layer: int, shape: LayerShape) -> np.ndarray:
    """`flat_values` as (image, atom, block_row, block_col)."""
    return flat_values(arrays, layer, shape).reshape(-1, *shape.grid, shape.atoms).transpose(0, 3, 1, 2)


def flat(dictionary: np.ndarray) -> np.ndarray:
    """Order (atom, atom_row, atom_col, plane), one axis."""
    return dictionary.transpose(0, 2, 3, 1).ravel()


def conjugate_gradients(
    times: Callable[[np.ndarray], np.ndarray], right: np.ndarray, guess: Callable[[np.ndarray], np.ndarray],
    tolerance: float,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Solve P x = right from x = 0 until the residual, in the norm of the guessed inverse of P, is small enough.

    ``tolerance`` is relative to the norm of ``right``. Returns (x, number of products with P). It is not scipy's ``cg``
    because that judges by the plain norm, which tells less of what is left of a move.
    """
    x, left = np.zeros_like(right), right.copy()
    direction = guess(left)
    size = first = float(left @ direction)
    for steps in range(MOST_STEPS):
        if size <= tolerance**2 * first:
            return x, steps
        product = times(direction)
        length = size / float(direction @ product)
        x += length * direction
        left -= length * product
        scaled = guess(left)
        size, former = float(left @ scaled), size
        direction = scaled + (size / former) * direction
    return x, MOST_STEPS


def draw_bottom_dictionary(
    arrays: Arrays, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw the bottom layer's atoms one after another, each given all else.

    Changes ``arrays.residuals``. Returns (dictionary, change of sum gamma_e ||r||^2).

    *Source:* supplement, "Sample D". *Departs:* P4. *Checked:* tests/test_refine_sweep.py.
    """
    (h, w), planes, dtype = shape.atom_size, shape.planes, arrays.images.dtype
    pixels, images = h * w, len(arrays.images)
    chunks = -(-images // CHUNK)
    blocks = flat_values(arrays, 0, shape)
    inner = (planes, pixels, pixels) if len(arrays.masks) else (0, 0, 0)
    sums = (
        np.empty((chunks, 2 * h - 1, 2 * w - 1)), np.empty((chunks, pixels * planes)), np.empty((chunks, *inner))
    )  # fmt: skip
    new = dictionary.astype(float)
    gamma_d = np.broadcast_to(gamma_d, (shape.atoms, planes))
    step, change = np.zeros(pixels * planes, dtype), 0.0
    for k in range(shape.atoms + 1):
        for array in sums:
            array[:] = 0.0
        atom_images(
            k if k < shape.atoms else -1, k - 1, step, blocks, arrays.residuals, arrays.masks, arrays.gamma_e,
            arrays.positions[0], tuple(int(n) for n in arrays.table[0]), *arrays.size, sums,
        )  # fmt: skip
        if k < shape.atoms:
            lags, linear, gram = (array.sum(axis=0) for array in sums)
            gram = gram if len(gram) else np.broadcast_to(toeplitz(lags, (h, w)), (planes, pixels, pixels))
            old = new[k].reshape(planes, pixels)
            linear = linear.reshape(pixels, planes).T + np.einsum("cab,cb->ca", gram, old)
            drawn = draw_atom(gram, gamma_d[k], linear, generator)
            energy = lambda part, gram=gram, linear=linear: ((np.einsum("cab,cb->ca", gram, part) - 2 * linear) * part)  # noqa: E731
            change += float(energy(drawn).sum() - energy(old).sum())
            before = new[k].astype(dtype)
            new[k] = drawn.reshape(new[k].shape)
            step = np.ascontiguousarray((new[k].astype(dtype) - before).transpose(1, 2, 0)).ravel()
    return new, change


def draw_atom(
    gram: np.ndarray, gamma_d: np.ndarray, linear: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw every plane of an atom, (plane, pixel), from N(P^-1 linear, P^-1) with P = gram + gamma_d I."""
    if (gram == gram[0]).all() and (gamma_d == gamma_d[0]).all():
        return Gaussian(gram[0] + gamma_d[0] * np.eye(gram.shape[1]), linear).sample(generator)
    if (gram == gram[0]).all():
        eigen = np.linalg.eigh(gram[0])
        return DiagonalShiftGaussian(gram[0], gamma_d, linear).sample_given_eigen(*eigen, generator)
    eye = np.eye(gram.shape[1])
    return np.stack([Gaussian(g + d * eye, b).sample(generator) for g, d, b in zip(gram, gamma_d, linear, strict=True)])
