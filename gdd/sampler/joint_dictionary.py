"""Draws of the joint model's dictionaries: upper ones by perturbation and conjugate gradients, the bottom one by atom.

An upper dictionary has many unknowns, and its precision P is costly to form. A draw from N(P^-1 b, P^-1) needs only
products with P, see `gdd.reference.solver`. `TOLERANCE` sets the residual at which the solver stops.
"""

from __future__ import annotations

import numpy as np

from gdd.base.compiling import share_out
from gdd.model.pooling import unpool
from gdd.reference.random import shared_generator
from gdd.reference.solver import conjugate_gradients
from gdd.sampler.arrays import JointBuffers, plane_last, plane_second
from gdd.sampler.dictionary import draw_from_residuals
from gdd.sampler.kernels import dictionary as kernels
from gdd.sampler.kernels.dictionary import MapArrays, SolveSums
from gdd.sampler.preconditioner import precondition_by_atom, precondition_by_frequency, precondition_by_plane
from gdd.sampler.sums import ACCUMULATORS, WorkItem, add_up

#: preconditioned residual norm, relative to its start, at which the solver stops
TOLERANCE = 1e-2
MAX_STEPS = 500
#: with more atoms than this, inverting their coupling costs more than the steps that it saves
MAX_COUPLED_ATOMS = 64


def draw_upper_dictionary(
    buffers: JointBuffers, layer: int, dictionary: np.ndarray, gamma_d: np.ndarray, key: tuple[int, int, int, int],
) -> tuple[np.ndarray, dict[str, np.ndarray], int]:
    """Draw all atoms of a layer above the bottom one, given all else.

    Changes the residuals of ``buffers`` to those under the new dictionary.

    Returns (dictionary (atom, plane, atom_row, atom_col), energies of the new residuals by their names in
    `gdd.sampler.kernels.joint_pass.JointSums`, steps of the solver).

    *Source:* the paper draws elementwise. *Departs:* P4. *Checked:* tests/test_joint_sweep.py (covariance of draws).
    """
    shape, dtype, old = buffers.shapes[layer], buffers.images.pixels.dtype, plane_last(dictionary, float).ravel()
    prior = plane_last(np.broadcast_to(gamma_d[:, :, None, None], shape.dictionary), float).ravel()
    perturbed = solve_pass(buffers, kernels.PERTURB, layer, np.zeros(prior.size, dtype), key)
    noise = plane_last(shared_generator(*key).standard_normal(dictionary.shape), float).ravel()
    rhs = perturbed.gradient - prior * old + np.sqrt(prior) * noise
    below = buffers.means[layer]
    if gamma_d.shape[1] > 1:
        precondition = precondition_by_plane(below, shape, perturbed.weights, gamma_d)
    elif shape.atoms > MAX_COUPLED_ATOMS:
        precondition = precondition_by_atom(below, shape, perturbed.weights, gamma_d)
    else:
        values = buffers.blocks_of(layer, flat_values(buffers, layer))
        maps = unpool(buffers.positions(layer), values, shape.map_size, shape.block)
        gamma_e = np.broadcast_to(buffers.images.gamma_e, len(maps))
        precondition = precondition_by_frequency(below, shape, maps, gamma_e, gamma_d, buffers.shard)

    def apply_precision(direction: np.ndarray) -> np.ndarray:
        return solve_pass(buffers, kernels.APPLY, layer, direction.astype(dtype), key).gradient + prior * direction

    step, _, steps = conjugate_gradients(apply_precision, rhs, precondition, MAX_STEPS, relative=TOLERANCE)
    new = old + step
    change = new.astype(dtype) - old.astype(dtype)  # in the precision of the next pass
    finished = solve_pass(buffers, kernels.FINISH, layer, change, key)
    return plane_second(new, shape), {name: getattr(finished, name) for name in ("energy", "weighted_energy")}, steps


def solve_pass(buffers: JointBuffers, task: int, layer: int, direction: np.ndarray, key: tuple) -> SolveSums:
    """Run `gdd.sampler.kernels.dictionary.solve_images` over all images."""
    sizes = (direction.size,), (buffers.shapes[layer].atoms,), (), ()

    def run(item: WorkItem) -> None:
        images, work, length = buffers.images.slice(item.images), buffers.work[item.thread], item.images_per_accumulator
        kernels.solve_images(task, layer, length, direction, images, buffers.shared, work, item.sums, key)

    empty = SolveSums(*map(np.zeros, sizes))
    return add_up(empty, buffers.shard, len(buffers.images.pixels), run, max_accumulators=ACCUMULATORS)


def flat_values(buffers: JointBuffers, layer: int) -> np.ndarray:
    """Values of a layer's blocks, 0 where empty: (image, row * col * atom)."""
    shape = buffers.shapes[layer]
    out = np.empty((len(buffers.images.pixels), shape.atoms * shape.grid[0] * shape.grid[1]), buffers.images.w.dtype)

    def run(batch: slice, thread: int) -> None:
        kernels.block_values(layer, buffers.images.slice(batch), buffers.shared, buffers.work[thread], out[batch])

    share_out(len(out), run)
    return out


def draw_bottom_dictionary(
    buffers: JointBuffers, dictionary: np.ndarray, gamma_d: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw the bottom layer's atoms one after another, each given all else, as of `draw_from_residuals`.

    Changes the residuals of ``buffers``. Returns (dictionary, change of sum gamma_e ||r||^2).
    """
    values, (layer, *_) = buffers.blocks_of(0, flat_values(buffers, 0)), buffers.shared.layers
    maps = MapArrays(
        buffers.positions(0), values, buffers.images.gamma_e, buffers.images.residuals, buffers.images.masks
    )
    return draw_from_residuals(dictionary, gamma_d, maps, layer, buffers.shared.static, generator, buffers.shard)
