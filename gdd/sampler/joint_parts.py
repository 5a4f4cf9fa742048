"""One part of the joint model's image pass alone, for timing: the same kernels in order, the others left out."""

from __future__ import annotations

import numpy as np

from gdd.base.compiling import kernel
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import JointShared
from gdd.sampler.contract import Key
from gdd.sampler.joint_arrays import Arrays
from gdd.sampler.kernels.joint_coefficients import draw_switches
from gdd.sampler.kernels.joint_kernels import begin_image
from gdd.sampler.kernels.joint_kernels_math import layout_of, lower_values, render, slots_of
from gdd.sampler.kernels.joint_positions import draw_bottom_positions
from gdd.sampler.kernels.joint_upper_positions import draw_upper_positions
from gdd.sampler.kernels.joint_weights import draw_weights
from gdd.sampler.kernels.layer import fill_key
from gdd.sampler.random import WORDS

#: the first is what every part needs before it: the residual
PARTS = ("beginning", "top weights", "top switches", "upper positions", "bottom positions")


def run_part(
    part: str, arrays: Arrays, shared: JointShared, model: ModelSpec, refinement: RefinementSpec, key: Key
) -> None:
    """Run the beginning of an image pass and one of `PARTS` over all images. Changes ``arrays``."""
    a, b = model.layers[-1].beta
    shape = model.shapes()[-1]
    gamma_w = np.broadcast_to(shared.gamma_w, (shape.atoms,)).astype(float)
    run_images_part(
        PARTS.index(part), arrays.images, arrays.w, arrays.gamma_e, arrays.model, np.log(a / b), gamma_w,
        float(refinement.empty_blocks), arrays.guesses, arrays.work, (key.seed, key.stage, 0, key.sweep),
        arrays.residuals,
    )  # fmt: skip


@kernel()
def run_images_part(part, images, w, gamma_e, model, odds, gamma_w, empty, guesses, work, key, residuals):
    """Compiled loop of `run_part`; whole images only. Changes what its parts change."""
    positions, dictionaries, table, rows, columns = model
    layout, size, top = layout_of(table, dictionaries), (rows, columns), len(dictionaries) - 1
    values, change, back = slots_of(work[0], 0), slots_of(work[1], 0), slots_of(work[2], 0)
    box, scratch = work[3][0], (work[4][0], work[5][0], work[6][0], work[7][0])
    model = (positions, dictionaries, layout, size)
    stream, tally, squares = np.empty(WORDS, np.uint64), np.zeros(7), dictionaries[0] * dictionaries[0]
    visited, moved = np.zeros((top + 1, 4)), np.zeros((top + 1, 4))
    for n in range(images.shape[0]):
        fill_key(stream, key, n)
        mask = images[n, :0]
        noise = (1.0, 1.0, np.inf, 0.0)
        precision, _ = begin_image(n, images[n], mask, w, gamma_e, noise, model, values, back, box, stream)
        norms = guesses[top][:, 0, 0]
        if part == 1:
            draw_weights(
                n, images[n], w, precision, gamma_w, norms, mask, model, values, change, back, box, tally, stream
            )  # fmt: skip
        if part == 2:
            draw_switches(n, w, precision, odds, gamma_w, norms, mask, model, change, back, box, tally, stream)
        render(n, top, positions, w, dictionaries, layout, values, box, size)
        for layer in range(top - 1, 0, -1):
            if part == 3:
                draw_upper_positions(
                    layer, n, empty, precision, guesses[layer], mask, model, values, change, back, box, scratch,
                    visited, moved, stream,
                )  # fmt: skip
            lower_values(layer, n, positions, dictionaries, layout, values, box, size)
        if top > 0 and part == 4:
            draw_bottom_positions(
                n, empty, precision, guesses[0], (mask, squares), model, values, back, scratch, visited, moved, stream
            )  # fmt: skip
        residuals[n] = back[0]
