"""Draws of the joint model's dictionaries: upper ones by perturb and solve, the bottom one atom by atom.

An upper dictionary has as many unknowns as a small image collection has pixels, and its precision P is costly to form.
A draw from N(P^-1 b, P^-1) needs only products with P: perturb b by noise of covariance P, and solve (Papandreou and
Yuille 2010). The solver stops at a small residual; how small is `TOLERANCE`.
"""

from __future__ import annotations

import numpy as np

from gdd.base.compiling import share_out
from gdd.model.pooling import unpool
from gdd.reference.random import shared_generator
from gdd.reference.solver import conjugate_gradients
from gdd.sampler.dictionary import draw_atom, toeplitz
from gdd.sampler.joint_arrays import Arrays, plane_last, plane_second
from gdd.sampler.kernels import joint_dictionary as kernels
from gdd.sampler.kernels.joint_dictionary import AtomSums, SolveSums
from gdd.sampler.kernels.operations import CHUNK
from gdd.sampler.preconditioner import precondition_by_atom, precondition_by_frequency, precondition_by_plane
from gdd.sampler.sums import ACCUMULATORS, Share, add_chunks, add_up

#: the solver stops when about this share of the way to the exact draw is left
TOLERANCE = 1e-2
MOST_STEPS = 500
#: with more atoms than this, what couples them would cost more to invert than the steps that it saves
MOST_COUPLED = 64


def draw_upper_dictionary(
    arrays: Arrays, layer: int, dictionary: np.ndarray, gamma_d: np.ndarray, key: tuple[int, int, int, int],
) -> tuple[np.ndarray, np.ndarray, int]:
    """Draw all atoms of a layer above the bottom one, given all else.

    Changes the residuals of ``arrays`` to what is left under the new dictionary.

    Returns (dictionary (atom, plane, atom_row, atom_col), (||r||^2, sum gamma_e ||r||^2), steps of the solver).

    *Source:* the paper draws elementwise. *Departs:* P4. *Checked:* tests/test_joint_sweep.py (covariance of draws).
    """
    shape, dtype, before = arrays.shapes[layer], arrays.images.pixels.dtype, plane_last(dictionary)
    prior = plane_last(np.broadcast_to(gamma_d[:, :, None, None], shape.dictionary)).astype(float)
    start = solve_pass(arrays, kernels.PERTURB, layer, np.zeros(prior.size, dtype), key)
    noise = plane_last(shared_generator(*key).standard_normal(dictionary.shape))
    right = start.gradient - prior * before + np.sqrt(prior) * noise
    if gamma_d.shape[1] > 1:
        guess = precondition_by_plane(arrays.averages[layer], shape, start.weights, gamma_d)
    elif shape.atoms > MOST_COUPLED:
        guess = precondition_by_atom(arrays.averages[layer], shape, start.weights, gamma_d)
    else:
        z = arrays.local()
        z = [*z.positions, z.z][layer]
        maps = unpool(z, arrays.by_layer(layer, flat_values(arrays, layer)), shape.map_size, shape.block)
        gamma_e = np.broadcast_to(arrays.images.gamma_e, len(maps))
        guess = precondition_by_frequency(arrays.averages[layer], shape, maps, gamma_e, gamma_d, arrays.shard)

    def times(direction: np.ndarray) -> np.ndarray:
        return solve_pass(arrays, kernels.APPLY, layer, direction.astype(dtype), key).gradient + prior * direction

    step, _, steps = conjugate_gradients(times, right, guess, MOST_STEPS, relative=TOLERANCE)
    after = before + step
    change = after.astype(dtype) - before.astype(dtype)  # as the next pass will see it
    energy = solve_pass(arrays, kernels.FINISH, layer, change, key).energy
    return plane_second(after, shape), energy, steps


def solve_pass(arrays: Arrays, task: int, layer: int, direction: np.ndarray, key: tuple) -> SolveSums:
    """Run `kernels.solve_images` over all images."""
    empty = SolveSums(np.zeros(direction.size), np.zeros(arrays.shapes[layer].atoms), np.zeros(2))

    def run(share: Share) -> None:
        images, work = arrays.images.some(share.images), arrays.work[share.thread]
        kernels.solve_images(task, layer, share.each, direction, images, arrays.shared, work, share.sums, key)

    return add_up(empty, arrays.shard, len(arrays.images.pixels), run, most=ACCUMULATORS)


def flat_values(arrays: Arrays, layer: int) -> np.ndarray:
    """Values of a layer's blocks, 0 where one is empty: (image, row * col * atom)."""
    shape = arrays.shapes[layer]
    out = np.empty((len(arrays.images.pixels), shape.atoms * shape.grid[0] * shape.grid[1]), arrays.images.w.dtype)

    def run(some: slice, thread: int) -> None:
        kernels.block_values(layer, arrays.images.some(some), arrays.shared, arrays.work[thread], out[some])

    share_out(len(out), run)
    return out


def draw_bottom_dictionary(
    arrays: Arrays, dictionary: np.ndarray, gamma_d: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw the bottom layer's atoms one after another, each given all else.

    Changes the residuals of ``arrays``. Returns (dictionary, change of sum gamma_e ||r||^2).

    *Source:* supplement, "Sample D". *Departs:* P4. *Checked:* tests/test_joint_sweep.py.
    """
    (atoms, planes, h, w), dtype = dictionary.shape, arrays.images.pixels.dtype
    pixels, chunks = h * w, -(-len(arrays.images.pixels) // CHUNK)
    values = flat_values(arrays, 0)
    gram_size = (planes, pixels, pixels) if len(arrays.images.masks) else (0, 0, 0)
    sums = AtomSums(*(np.empty((chunks, *size)) for size in ((2 * h - 1, 2 * w - 1), (pixels * planes,), gram_size)))
    new, gamma_d = dictionary.astype(float), np.broadcast_to(gamma_d, (atoms, planes))
    step, change = np.zeros(pixels * planes, dtype), 0.0
    for k in range(atoms + 1):
        for array in sums:
            array[:] = 0.0

        def run(some: slice, _, k: int = k, step: np.ndarray = step) -> None:
            where, mine = slice(some.start * CHUNK, some.stop * CHUNK), sums._make(array[some] for array in sums)
            kernels.atom_images(k, step, values[where], arrays.images.some(where), arrays.shared, mine)

        share_out(chunks, run)
        if k == atoms:
            break
        lags, linear, gram = add_chunks(sums, arrays.shard)
        gram = gram if len(gram) else toeplitz(lags, (h, w))[None]
        old = new[k].reshape(planes, pixels)
        linear = linear.reshape(pixels, planes).T + np.einsum("cab,cb->ca", gram, old)
        drawn = draw_atom(gram, linear, gamma_d[k], generator)
        for part, sign in ((drawn, 1), (old, -1)):
            change += sign * float(((np.einsum("cab,cb->ca", gram, part) - 2 * linear) * part).sum())
        before = new[k].astype(dtype)
        new[k] = drawn.reshape(new[k].shape)
        step = plane_last((new[k].astype(dtype) - before)[None])
    return new, change
