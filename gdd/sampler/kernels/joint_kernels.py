"""The image pass of the joint model, compiled: top weights, top switches, upper positions, bottom positions.

All of an image's layers explain one residual. It is kept current, and with it, where that is needed next, what it is
when carried up to each level (``back``), so that the correlation of any coefficient or position costs one small inner
product. Where the squared norm of an upper atom's image matters, a proposal is made with a guess of it
(`gdd.sampler.screening`) and corrected by an accept step with the true one, which costs a way down the layers.

Arguments come in groups, see `run_images`. *Checked:* tests/test_refine_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from gdd.base.compiling import BURIED, INNER, kernel
from gdd.sampler.kernels.joint_coefficients import draw_switches
from gdd.sampler.kernels.joint_kernels_math import layout_of, lower_values, render, slots_of
from gdd.sampler.kernels.joint_positions import draw_bottom_positions
from gdd.sampler.kernels.joint_upper_positions import draw_upper_positions
from gdd.sampler.kernels.joint_weights import draw_weights
from gdd.sampler.kernels.layer import CHUNK, fill_key
from gdd.sampler.random import WORDS, next_truncated_gamma


@kernel(**INNER, **BURIED)
def begin_image(n, image, mask, w, gamma_e, noise, model, values, back, box, stream):
    """Residual of one image, and its noise precision. Changes gamma_e[n], values, back[0], box, stream."""
    positions, dictionaries, layout, size = model
    render(n, np.int64(0), positions, w, dictionaries, layout, values, box, size)
    energy, pixels = 0.0, 0
    for p in range(image.size):
        left = image[p] - values[0][p]
        if mask.size > 0:
            left *= mask[p]
        back[0][p] = left
        energy += np.float64(left) ** 2
        pixels += mask.size == 0 or mask[p] > 0
    if noise[3] > 0.0:
        gamma_e[n] = next_truncated_gamma(stream, noise[0] + 0.5 * pixels, noise[1] + 0.5 * energy, noise[2])
    return gamma_e[n if gamma_e.size > 1 else 0], pixels


@kernel(**INNER, **BURIED)
def end_image(n, precision, pixels, positions, w, residual, per_atom, energy):
    """Add one image to the sums. Changes ``per_atom`` and ``energy``."""
    top = len(positions) - 1
    after = 0.0
    for p in range(residual.size):
        after += np.float64(residual[p]) ** 2
    energy[0] += after
    energy[1] += precision * after
    energy[2] += pixels * math.log(precision)
    energy[4] += pixels
    for k in range(w.shape[1]):
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                if positions[top][n, k, i, j] >= 0:
                    per_atom[0, k] += 1.0
                    per_atom[1, k] += np.float64(w[n, k, i, j]) ** 2


@kernel(parallel=True, nogil=True)
def run_images(images, masks, w, gamma_e, model, priors, guesses, work, key, first, residuals, sums):
    """Update images ``first``... in chunks, one slot of ``work`` and ``sums`` each.

    Parameters
    ----------
    images : (image, row * col * plane)          masks : the same of 0 and 1, or no image at all
    w : (image, atom, row, col), top weights     gamma_e : (image,) or (1,)
    model : positions, dictionaries, layout as a table (see `gdd.sampler.kernels.joint_kernels_math`), and the two
    parts of
        ``size`` (`gdd.sampler.kernels.windows`)
    priors : (log prior odds of a top coefficient, gamma_w (atom,), 1 if a block may be empty else 0,
        (shape, rate, ceiling of gamma_e, 1 to draw it by image else 0))
    guesses : per layer (atom, lag_row, lag_col), see `gdd.sampler.screening`; exact in the bottom layer
    work : per slot scratch: values, change, back (a tuple over levels each), box, counts, weights, gains, places
    key : (seed, stage, layer, sweep)            first : index of the first image
    residuals : (image, row * col * plane)       what is left of each image, an output
    sums : per_atom (slot, 2, atom): active, sum of squared weights; energy (slot, 5): ||E||^2, gamma_e ||E||^2,
        log gamma_e and 1 for every observed pixel, log prior of positions [order 0, 1, 2, 4, 3];
        visited, moved (slot, layer, class); tally (slot, 7), see `joint_coefficients` and `joint_weights`

    Changes positions, w, gamma_e, work, residuals and sums.
    """
    positions, dictionaries, table, rows, columns = model
    odds, gamma_w, empty, noise = priors
    values, change, back, box, counts, weights, gains, places = work
    per_atom, energy, visited, moved, tally = sums
    for slot in prange(per_atom.shape[0]):  # signed, or the turn would be compiled twice
        run_chunk(
            np.int64(slot), first + slot * CHUNK, images, masks, w, gamma_e, positions, dictionaries, table, rows,
            columns, odds, gamma_w, empty, noise, guesses, values, change, back, box[slot],
            (counts[slot], weights[slot], gains[slot], places[slot]), key, residuals, per_atom[slot], energy[slot],
            visited[slot], moved[slot], tally[slot],
        )  # fmt: skip


@kernel(**BURIED)
def run_chunk(
    slot, first, images, masks, w, gamma_e, positions, dictionaries, table, rows, columns, odds, gamma_w, empty,
    noise, guesses, all_values, all_change, all_back, box, scratch, key, residuals, per_atom, energy, visited,
    moved, tally,
):  # fmt: skip
    """One turn of the loop of `run_images`."""
    layout, size, top = layout_of(table, dictionaries), (rows, columns), len(dictionaries) - 1
    values, change, back = slots_of(all_values, slot), slots_of(all_change, slot), slots_of(all_back, slot)
    model = (positions, dictionaries, layout, size)
    stream, squares = np.empty(WORDS, np.uint64), dictionaries[0] * dictionaries[0]
    for n in range(first, min(first + CHUNK, images.shape[0])):
        fill_key(stream, key, n)
        mask = masks[n] if masks.shape[0] > 0 else images[n, :0]
        precision, pixels = begin_image(n, images[n], mask, w, gamma_e, noise, model, values, back, box, stream)
        norms = guesses[top][:, 0, 0]
        draw_weights(
            n, images[n], w, precision, gamma_w, norms, mask, model, values, change, back, box, tally, stream
        )  # fmt: skip
        draw_switches(n, w, precision, odds, gamma_w, norms, mask, model, change, back, box, tally, stream)
        render(n, top, positions, w, dictionaries, layout, values, box, size)
        for layer in range(top - 1, 0, -1):
            energy[3] += draw_upper_positions(
                layer, n, empty, precision, guesses[layer], mask, model, values, change, back, box, scratch, visited,
                moved, stream,
            )  # fmt: skip
            lower_values(layer, n, positions, dictionaries, layout, values, box, size)
        if top > 0:
            energy[3] += draw_bottom_positions(
                n, empty, precision, guesses[0], (mask, squares), model, values, back, scratch, visited, moved, stream
            )  # fmt: skip
        residuals[n] = back[0]
        end_image(n, precision, pixels, positions, w, back[0], per_atom, energy)
