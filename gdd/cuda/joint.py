"""The image pass of the joint model on a graphics processor, an image to a block of threads.

`redraw_joint` is the twin of `gdd.sampler.kernels.joint_pass.pass_images`. The chain is the processor's own: the same
proposals in the same order, from the same random numbers. Every thread of a block runs the compiled draws themselves,
all alike, with a random stream and small scratch of its own. They meet in the loops over windows, boxes and atoms,
which they share out; those loops are here. Each ends when all threads are done with it. Sums over threads are the same
number for all of them, so they always decide alike.

A draw adds to the accumulator of its image. All threads run it, so only the first has the image's own; the others add
to one beyond the last, which nobody reads.

Arrays are in the device's memory and its caches, so no size is too large for the memory that a block shares. Results
differ from the processor's by rounding, where sums are taken in another order.

*Checked:* tests/test_cuda.py (the compiled passes; in numba's simulator, and compiled to PTX, without hardware).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import cuda, float64, uint64

from gdd.cuda.device import THREADS, on_device, to_device, total_of
from gdd.cuda.layer import advance
from gdd.reference.joint_sweep import MAX_WEIGHT_STEPS, WEIGHT_TOLERANCE
from gdd.sampler.kernels import joint, joint_coefficients, joint_positions, operations, random, windows
from gdd.sampler.kernels.joint import Image, JointImages, JointLayers, JointWork
from gdd.sampler.kernels.joint_pass import JointPriors, JointSums
from gdd.sampler.kernels.joint_positions import Bottom
from gdd.sampler.kernels.random import STREAM_SIZE

_known = on_device([
    random._high_word, random._refill, random.fill_key, random.next_uniform, random.next_normal, random.fill_normals,
    random.next_gamma, operations.block_at, operations.place_in_map, operations.window_start, operations.draw_noise,
    windows.window_dot, joint.number_of, joint.lower_box, joint.upper_box, joint.full_box, joint.image_of,
])
fill_key, next_uniform, next_normal = _known["fill_key"], _known["next_uniform"], _known["next_normal"]
fill_normals, draw_noise, image_of = _known["fill_normals"], _known["draw_noise"], _known["image_of"]
block_at, place_in_map, window_start = _known["block_at"], _known["place_in_map"], _known["window_start"]
number_of, lower_box, full_box = _known["number_of"], _known["lower_box"], _known["full_box"]
window_dot = _known["window_dot"]


class Work(NamedTuple):
    """`JointWork` on the device; the functions below get that of one image and, from ``box`` to ``places``, thread."""

    values: np.ndarray  # (image, all levels' entries)
    delta: np.ndarray
    upward: np.ndarray
    box: np.ndarray  # (image, axes as of `JointWork`, thread), and so the next five
    counts: np.ndarray
    prior: np.ndarray
    gains: np.ndarray
    weights: np.ndarray
    places: np.ndarray
    dots: np.ndarray  # (image, position): inner products of an atom at a block's positions with the residual
    solver: np.ndarray  # (image, 4, top block): residual, solution, direction, and product of the solver of weights


@cuda.jit(device=True)
def sum_of(value):
    """Sum of one number of every thread, in their order; for all of them."""
    return total_of(value, cuda.shared.array(0, float64))  # of the size that the launch gives, and the same everywhere


# Loops over windows and boxes, which all threads share out


@cuda.jit(device=True)
def add_where_observed(levels, mask, start, k, amount, layer, static):
    """Twin of `gdd.sampler.kernels.operations.add_where_observed`."""
    for q in range(cuda.threadIdx.x, layer.height * layer.length, THREADS):
        p = start + q // layer.length * layer.width + q % layer.length
        if mask.size == 0 or mask[p] > 0:
            levels[p] += amount * layer.dictionary[k * layer.height * layer.length + q]
    cuda.syncthreads()


@cuda.jit(device=True)
def add_atom(levels, start, k, amount, layer, static):
    """Twin of `gdd.sampler.kernels.operations.add_atom`."""
    add_where_observed(levels, levels[:0], start, k, amount, layer, static)


@cuda.jit(device=True)
def dot_atom(levels, start, k, layer, static):
    """Twin of `gdd.sampler.kernels.operations.dot_atom`."""
    total = 0.0
    for q in range(cuda.threadIdx.x, layer.height * layer.length, THREADS):
        number = levels[start + q // layer.length * layer.width + q % layer.length]
        total += float64(number) * layer.dictionary[k * layer.height * layer.length + q]
    return sum_of(total)


@cuda.jit(device=True)
def entry_of(p, layer, box):
    """Offset of entry number ``p`` of a box of a layer's input, which goes row by row."""
    length = (box[3] - box[2]) * layer.planes
    return window_start(box[0] + p // length, box[2], layer) + p % length


@cuda.jit(device=True)
def entries_of(layer, box):
    """Number of entries of a box of a layer's input."""
    return (box[1] - box[0]) * (box[3] - box[2]) * layer.planes


@cuda.jit(device=True)
def clear(levels, layer, box):
    """Twin of `gdd.sampler.kernels.joint.clear`."""
    for p in range(cuda.threadIdx.x, entries_of(layer, box), THREADS):
        levels[entry_of(p, layer, box)] = 0
    cuda.syncthreads()


@cuda.jit(device=True)
def copy_levels(source, target, level, shared, box):
    """Twin of `gdd.sampler.kernels.joint.copy_levels`."""
    for lower in range(1, level + 1):
        layer = shared.layers[lower]
        for p in range(cuda.threadIdx.x, entries_of(layer, box[lower]), THREADS):
            at = entry_of(p, layer, box[lower])
            target[at] = source[at]
    cuda.syncthreads()


@cuda.jit(device=True)
def place_blocks(layer, z, values, first, levels, above, box):
    """Synthesise a box of a layer's input from its blocks in the box ``above``: each entry, from what covers it.

    values : of the layer's blocks, from ``first`` on
    """
    for p in range(cuda.threadIdx.x, entries_of(layer, box), THREADS):
        at = entry_of(p, layer, box)
        row, col = (at - layer.input) // layer.width, (at - layer.input) % layer.width // layer.planes
        top, left = row - layer.height + 1, col - layer.length // layer.planes + 1  # an atom that covers it begins here
        levels[at] = 0
        total = levels[at]
        for i in range(max(above[0], top // layer.pool_row), min(above[1], row // layer.pool_row + 1)):
            for j in range(max(above[2], left // layer.pool_col), min(above[3], col // layer.pool_col + 1)):
                for k in range(layer.atoms):
                    b = number_of(k, i, j, layer)
                    value, m = values[first + b], z[layer.block + b]
                    if value != 0 and m >= 0:
                        place_row, place_col = place_in_map(i, j, m, layer)
                        if top <= place_row <= row and left <= place_col <= col:
                            q = at - window_start(place_row, place_col, layer)
                            q = (k * layer.height + q // layer.width) * layer.length + q % layer.width
                            total += value * layer.dictionary[q]
        levels[at] = total
    cuda.syncthreads()


@cuda.jit(device=True)
def synthesise_layer(layer, static, z, levels, above, box):
    """Twin of `gdd.sampler.kernels.joint.synthesise_layer`."""
    lower_box(layer, above, box)
    place_blocks(layer, z, levels, layer.output, levels, above, box)


@cuda.jit(device=True)
def synthesise_top(z, values, layer, levels, box):
    """Synthesise a top layer's input from the values of all its blocks. Changes ``levels`` and ``box``."""
    full_box(layer, box)
    place_blocks(layer, z, values, 0, levels, (0, layer.grid_row, 0, layer.grid_col), box)


@cuda.jit(device=True)
def correlate_layer(layer, static, z, levels, box):
    """Twin of `gdd.sampler.kernels.joint.correlate_layer`."""
    cols = box[3] - box[2]
    for p in range(cuda.threadIdx.x, (box[1] - box[0]) * cols * layer.atoms, THREADS):
        k, i, j = p % layer.atoms, box[0] + p // layer.atoms // cols, box[2] + p // layer.atoms % cols
        b = number_of(k, i, j, layer)
        m, total = z[layer.block + b], levels[0] * 0
        if m >= 0:
            row, col = place_in_map(i, j, m, layer)
            first = k * layer.height * layer.length
            total = window_dot(levels, window_start(row, col, layer), layer.dictionary, first, layer)
        levels[layer.output + b] = total
    cuda.syncthreads()


@cuda.jit(device=True)
def mask_and_dot(delta, mask, upward, bottom, box):
    """Twin of `gdd.sampler.kernels.joint.mask_and_dot`."""
    energy, product = 0.0, 0.0
    for p in range(cuda.threadIdx.x, entries_of(bottom, box), THREADS):
        at = entry_of(p, bottom, box)
        if mask.size > 0:
            delta[at] *= mask[at]
        energy += float64(delta[at]) * delta[at]
        product += float64(delta[at]) * upward[at]
    return sum_of(energy), sum_of(product)


@cuda.jit(device=True)
def subtract(delta, amount, upward, bottom, box):
    """Twin of `gdd.sampler.kernels.joint.subtract`."""
    for p in range(cuda.threadIdx.x, entries_of(bottom, box), THREADS):
        at = entry_of(p, bottom, box)
        upward[at] -= amount * delta[at]
    cuda.syncthreads()


@cuda.jit(device=True)
def fill_joint_residual(image, work):
    """Twin of `gdd.sampler.kernels.joint.fill_joint_residual`."""
    for p in range(cuda.threadIdx.x, image.pixels.size, THREADS):
        difference = image.pixels[p] - work.values[p]
        work.upward[p] = difference if image.mask.size == 0 else difference * image.mask[p]
    cuda.syncthreads()


@cuda.jit(device=True)
def count_positions(k, layer, z, counts):
    """Twin of `gdd.sampler.kernels.joint_positions.count_positions`; its loops are not shared out."""
    counts[:] = 0
    for i in range(layer.grid_row):
        for j in range(layer.grid_col):
            counts[block_at(i, j, layer).group, z[layer.block + number_of(k, i, j, layer)]] += 1


@cuda.jit(device=True)
def correlate_positions(k, value, number, layer, static, work):
    """Twin of `gdd.sampler.kernels.joint_positions.correlate_positions`, a position to a thread.

    Every thread that has read a block's position waits here, at least, before any goes on to change it.
    """
    for q in range(cuda.threadIdx.x, number, THREADS):
        work.dots[q] = 0
        if value != 0.0:
            start, first = window_start(work.places[q, 0], work.places[q, 1], layer), k * layer.height * layer.length
            work.dots[q] = window_dot(work.upward, start, layer.dictionary, first, layer)
    cuda.syncthreads()
    work.gains[0] = 0.0
    for q in range(number):
        work.gains[q + 1] = work.dots[q]
    cuda.syncthreads()


# The draws. All are the compiled ones, except that of the weights, whose vectors the threads share


_draws = on_device([
    operations.collapsed_prior_weights, operations.log_counts, operations.apply_gains, operations.sample_outcome,
    joint.synthesise_down, joint.synthesise_level, joint.correlate_within, joint.correlate_up,
    operations.slab_log_factor, operations.slab_log_odds, joint_coefficients.log_odds,
    joint_coefficients.log_one_plus_exp, joint_coefficients.unit_response,
    joint_coefficients.switch_off, joint_coefficients.switch_on, joint_coefficients.draw_switches,
    joint_positions.class_of, joint_positions.overlap_of, joint_positions.list_positions,
    joint_positions.position_weights, joint_positions.add_atom_at, joint_positions.draw_bottom_positions,
    joint_positions.proposal_log_weights, joint_positions.propose, joint_positions.log_proposal,
    joint_positions.move_unit, joint_positions.apply_move, joint_positions.undo_move,
    joint_positions.draw_upper_position, joint_positions.draw_upper_positions,
], _known | dict(
    add_atom=add_atom, add_where_observed=add_where_observed, dot_atom=dot_atom, clear=clear, copy_levels=copy_levels,
    synthesise_layer=synthesise_layer, correlate_layer=correlate_layer, mask_and_dot=mask_and_dot, subtract=subtract,
    count_positions=count_positions, correlate_positions=correlate_positions,
))
synthesise_down, synthesise_level = _draws["synthesise_down"], _draws["synthesise_level"]
correlate_up, draw_switches = _draws["correlate_up"], _draws["draw_switches"]
draw_upper_positions, draw_bottom_positions = _draws["draw_upper_positions"], _draws["draw_bottom_positions"]


@cuda.jit(device=True)
def synthesise_image(image, shared, work):
    """Synthesise the values of all levels, and compute the residual afresh."""
    last = len(shared.layers) - 1
    synthesise_top(image.z, image.w, shared.layers[last], work.values, work.box[last])
    for level in range(last - 1, -1, -1):
        synthesise_level(level, image.z, shared, work)
    fill_joint_residual(image, work)


@cuda.jit(device=True)
def perturb_image(image, shared, work):
    """Twin of `gdd.sampler.kernels.joint_coefficients.perturb_image`: two pixels to a thread, as they are drawn."""
    ahead, pair = cuda.local.array(STREAM_SIZE, uint64), cuda.local.array(2, float64)
    size, gamma_e, pairs = image.pixels.size, image.gamma_e, (image.pixels.size + 1) // 2
    for q in range(cuda.threadIdx.x, pairs, THREADS):
        advance(image.stream, 2 * q, ahead)
        fill_normals(ahead, pair)
        for p in range(2 * q, min(2 * q + 2, size)):
            noise = math.sqrt(gamma_e) * pair[p - 2 * q]
            total = gamma_e * (2.0 * float64(image.pixels[p]) - work.upward[p]) + noise
            work.values[p] = total if image.mask.size == 0 else total * image.mask[p]
    advance(image.stream, 2 * pairs, image.stream)
    cuda.syncthreads()
    full_box(shared.layers[0], work.box[0])
    correlate_up(len(shared.layers) - 1, image.z, shared, work.values, work.box)


@cuda.jit(device=True)
def apply_precision(active, image, gamma_w, shared, work, direction, product):
    """Twin of `gdd.sampler.kernels.joint_coefficients.apply_precision`; returns the two vectors' inner product.

    Vectors have an entry for every top block, 0 where it is not ``active`` (top block,).
    """
    last, delta, curvature = len(shared.layers) - 1, work.delta, 0.0
    top = shared.layers[last]
    synthesise_top(image.z, direction, top, delta, work.box[last])
    synthesise_down(last, image.z, shared, delta, work.box)
    for p in range(cuda.threadIdx.x, image.mask.size, THREADS):
        delta[p] *= image.mask[p]
    cuda.syncthreads()
    correlate_up(last, image.z, shared, delta, work.box)
    for b in range(cuda.threadIdx.x, active.size, THREADS):
        product[b] = 0.0
        if active[b] >= 0:
            product[b] = image.gamma_e * dot_at(b, delta, top) + gamma_w * direction[b]
            curvature += direction[b] * product[b]
    return sum_of(curvature)


@cuda.jit(device=True)
def dot_at(b, levels, top):
    """Inner product of a top layer's input with the atom of its block number ``b``, by one thread."""
    start = window_start(b // top.atoms // top.grid_col, b // top.atoms % top.grid_col, top)
    return float64(window_dot(levels, start, top.dictionary, b % top.atoms * top.height * top.length, top))


@cuda.jit(device=True)
def solve_weights(active, image, gamma_w, shared, work):
    """Twin of `gdd.sampler.kernels.joint_coefficients.solve_weights`, with vectors as of `apply_precision`."""
    t, rz, top = cuda.threadIdx.x, 0.0, shared.layers[len(shared.layers) - 1]
    residual, solved, direction, product = work.solver[0], work.solver[1], work.solver[2], work.solver[3]
    for b in range(t, active.size, THREADS):
        solved[b] = 0.0
        direction[b] = residual[b] / (image.gamma_e * top.overlaps[b % top.atoms] + gamma_w)
        rz += residual[b] * direction[b]
    rz = sum_of(rz)
    for step in range(MAX_WEIGHT_STEPS):
        if rz <= WEIGHT_TOLERANCE * WEIGHT_TOLERANCE:
            return step
        alpha = rz / apply_precision(active, image, gamma_w, shared, work, direction, product)
        former, rz = rz, 0.0
        for b in range(t, active.size, THREADS):
            solved[b] += alpha * direction[b]
            residual[b] -= alpha * product[b]
            rz += residual[b] * residual[b] / (image.gamma_e * top.overlaps[b % top.atoms] + gamma_w)
        rz = sum_of(rz)
        for b in range(t, active.size, THREADS):
            diagonal = image.gamma_e * top.overlaps[b % top.atoms] + gamma_w
            direction[b] = residual[b] / diagonal + rz / former * direction[b]
        cuda.syncthreads()
    return MAX_WEIGHT_STEPS


@cuda.jit(device=True)
def draw_weights(image, gamma_w, shared, work, sums):
    """Twin of `gdd.sampler.kernels.joint_coefficients.draw_weights`."""
    t, n, w, top = cuda.threadIdx.x, image.n, image.w, shared.layers[len(shared.layers) - 1]
    active, (residual, solved), count, log_ratio = image.z[top.block :], (work.solver[0], work.solver[1]), 0.0, 0.0
    for b in range(t, w.size, THREADS):
        count += active[b] >= 0
    if sum_of(count) == 0.0:
        return
    sums.weights_proposed[n] += 1
    perturb_image(image, shared, work)
    for k in range(top.atoms):  # in the order in which the compiled draw lists what is active
        for b in range(k, w.size, top.atoms):
            noise = math.sqrt(gamma_w) * next_normal(image.stream) if active[b] >= 0 else 0.0
            if b % THREADS == t:
                residual[b] = 0.0
                if active[b] >= 0:
                    residual[b] = dot_at(b, work.values, top) + (gamma_w * w[b] + noise)
    sums.weight_steps[n] += solve_weights(active, image, gamma_w, shared, work)
    for b in range(t, w.size, THREADS):
        log_ratio += (solved[b] - 2.0 * w[b]) * residual[b]
    if math.log(next_uniform(image.stream)) >= sum_of(log_ratio):
        return
    sums.weights_accepted[n] += 1
    for b in range(t, w.size, THREADS):
        if active[b] >= 0:
            w[b] = solved[b] - w[b]
    cuda.syncthreads()
    synthesise_image(image, shared, work)


# The pass


@cuda.jit(device=True)
def energy_of(residual, size):
    """Sum of squares of the first ``size`` entries."""
    energy = 0.0
    for p in range(cuda.threadIdx.x, size, THREADS):
        energy += float64(residual[p]) * residual[p]
    return sum_of(energy)


@cuda.jit
def redraw_joint(images, shared, squares, priors, scratch, sums, key):
    """Redraw the local part of every image; changes ``images``, ``scratch`` and ``sums``.

    squares : of the entries of the bottom dictionary; sums : of `JointSums`, an accumulator for each image and one more
    """
    stream, n, t = cuda.local.array(STREAM_SIZE, uint64), cuda.blockIdx.x, cuda.threadIdx.x
    last, bottom = len(shared.layers) - 1, Bottom(shared.layers[0], shared.static, squares, priors.empty)
    top, size, own = shared.layers[last], images.pixels.shape[1], n if t == 0 else images.pixels.shape[0]
    work = Work(
        scratch.values[n], scratch.delta[n], scratch.upward[n], scratch.box[n, :, :, t], scratch.counts[n, :, :, :, t],
        scratch.prior[n, :, t], scratch.gains[n, :, t], scratch.weights[n, :, t], scratch.places[n, :, :, t],
        scratch.dots[n], scratch.solver[n],
    )
    fill_key(stream, key, images.first + n)
    work.delta[0] = 0  # which begins sums, times 0
    image = image_of(images, n, stream)
    synthesise_image(image, shared, work)
    observed = float64(size) if image.mask.size == 0 else energy_of(image.mask, size)  # its entries are 0 and 1
    energy, gamma_e = energy_of(work.upward, size), image.gamma_e
    if priors.noise_drawn:
        gamma_e = draw_noise(priors.noise_shape, priors.noise_rate, observed, energy, stream)
        images.gamma_e[n] = gamma_e
    image = Image(own, image.pixels, image.mask, image.z, image.w, gamma_e, stream)
    draw_weights(image, priors.gamma_w, shared, work, sums)
    draw_switches(image, priors.log_odds, priors.gamma_w, shared, work, sums)
    synthesise_top(image.z, image.w, top, work.values, work.box[last])
    for level in range(last - 1, 0, -1):
        draw_upper_positions(level, image, priors.empty, shared, work, sums)
        synthesise_level(level, image.z, shared, work)
    if last > 0:
        draw_bottom_positions(image, bottom, work, sums)
    for p in range(t, size, THREADS):
        images.residuals[n, p] = work.upward[p]
    energy = energy_of(work.upward, size)
    sums.pixels[own] += observed
    sums.energy[own] += energy
    sums.weighted_energy[own] += gamma_e * energy
    sums.log_noise[own] += observed * math.log(gamma_e)
    for k in range(t, top.atoms, THREADS):
        for b in range(k, image.w.size, top.atoms):
            if image.z[top.block + b] >= 0:
                sums.active[n, k] += 1.0
                sums.squares[n, k] += float64(image.w[b]) * image.w[b]


def pass_joint(
    images: JointImages, shared: JointLayers, priors: JointPriors, work: JointWork, sums: JointSums, key: tuple
) -> None:
    """`gdd.sampler.kernels.joint_pass.pass_images` on the device; of ``work`` only the sizes are used."""
    number, kind, layers = len(images.pixels), images.pixels.dtype, shared.layers
    own = work._replace(counts=work.counts[: max([1, *(layer.atoms for layer in layers[1:-1])])])
    scratch = Work(
        *(cuda.device_array((number, array.size), kind) for array in own[:3]),
        *(cuda.device_array((number, *array.shape, THREADS), array.dtype) for array in own[3:]),
        cuda.device_array((number, len(work.places)), kind), cuda.device_array((number, 4, images.w.shape[1]), float),
    )
    local, squares = to_device(images), cuda.to_device(layers[0].dictionary ** 2)
    moved = JointLayers(tuple(map(to_device, layers)), 0)  # the size of atoms as types is of use to the processor only
    total = JointSums(*(cuda.to_device(np.zeros((number + 1, *array.shape[1:]))) for array in sums))
    redraw_joint[number, THREADS, 0, 8 * THREADS](local, moved, squares, priors, scratch, total, key)
    for name in ("z", "w", "residuals", *(["gamma_e"] if priors.noise_drawn else [])):
        getattr(local, name).copy_to_host(getattr(images, name))
    for array, new in zip(sums, total, strict=True):
        array += new.copy_to_host()[:number]
