"""The image pass of the joint model, compiled: top weights, top switches, upper positions, bottom positions.

All of an image's layers explain one residual. It is kept current, and with it, where that is needed next, its
correlations with a unit in every block of each level. So a coefficient or a position costs one small inner product.
Where the squared norm of an upper atom's image matters, a proposal is made with a guess of it
(`gdd.reference.screening`) and corrected by an accept step with the true one, which costs a way down the layers.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel
from gdd.sampler.kernels.joint import image_of, layer_of, synthesise_values, synthesise_whole
from gdd.sampler.kernels.joint_coefficients import draw_switches, draw_weights
from gdd.sampler.kernels.joint_positions import draw_bottom_positions, draw_upper_positions
from gdd.sampler.kernels.random import WORDS, fill_key, next_gamma


class Priors(NamedTuple):
    """What the image pass needs of the priors."""

    log_odds: float  # of a top coefficient
    gamma_w: float
    empty: float  # 1 if a pooling block may be empty, else 0
    shape: float  # of gamma_e
    rate: float
    by_image: bool  # whether gamma_e is drawn with each image


class Sums(NamedTuple):
    """What an image pass leaves behind, added up over images; one more axis, of accumulators, while under way."""

    per_atom: np.ndarray  # (2, atom): active coefficients, sum of squared weights
    energy: np.ndarray  # (5,): ||E||^2, gamma_e ||E||^2, log gamma_e of every observed pixel, log prior of positions,
    # observed pixels
    visited: np.ndarray  # (layer, class of strength): blocks whose position was drawn
    moved: np.ndarray  # those that came out elsewhere
    tally: np.ndarray  # (7,), see `gdd.sampler.kernels.joint_coefficients`


@kernel()
def run_images(images, shared, priors, work, sums, key):
    """Update images, each with an accumulator of ``sums`` of its own; see the types of the arguments.

    key : (seed, stage, layer, sweep). Changes what ``images`` holds but pixels and masks, work and sums.
    """
    images, shared, work, sums = borrowed((images, shared, work, sums))
    top, bottom, stream = shared.table.shape[0] - 1, layer_of(shared.table, 0), np.empty(WORDS, np.uint64)
    atoms = shared.dictionaries[: bottom.atoms * bottom.height * bottom.length]
    squares = atoms * atoms
    for n in range(len(images.pixels)):
        part = Sums(sums.per_atom[n], sums.energy[n], sums.visited[n], sums.moved[n], sums.tally[n])
        fill_key(stream, key, images.first + n)
        observed = begin_image(n, images, shared, priors, work, stream)
        image = image_of(images, n, stream)
        draw_weights(image, priors.gamma_w, shared, work, part.tally)
        draw_switches(image, priors.log_odds, priors.gamma_w, shared, work, part.tally)
        synthesise_values(top, image, shared, work)
        for layer in range(top - 1, 0, -1):
            part.energy[3] += draw_upper_positions(layer, image, priors.empty, shared, work, part)
            synthesise_whole(layer, image.z, shared, work)
        if top > 0:
            part.energy[3] += draw_bottom_positions(image, priors.empty, shared, squares, work, part)
        images.residuals[n] = work.back[: image.pixels.size]
        end_image(image, observed, shared, work.back, part)


@kernel()
def begin_image(n, images, shared, priors, work, stream):
    """Residual and noise precision of one image; returns its observed pixels. Changes gamma_e, ``work``, stream."""
    image, energy, observed = image_of(images, n, stream), 0.0, 0
    synthesise_values(np.int64(0), image, shared, work)
    for p in range(image.pixels.size):
        difference = image.pixels[p] - work.values[p]
        if image.mask.size > 0:
            difference *= image.mask[p]
        work.back[p] = difference
        energy += np.float64(difference) ** 2
        observed += image.mask.size == 0 or image.mask[p] > 0
    if priors.by_image:
        shape, rate = priors.shape + 0.5 * observed, priors.rate + 0.5 * energy
        images.gamma_e[n] = next_gamma(stream, shape) / rate
    return observed


@kernel()
def end_image(image, observed, shared, back, sums):
    """Add one image to the sums. Changes them."""
    top, after = layer_of(shared.table, shared.table.shape[0] - 1), 0.0
    for p in range(image.pixels.size):
        after += np.float64(back[p]) ** 2
    sums.energy[0] += after
    sums.energy[1] += image.gamma_e * after
    sums.energy[2] += observed * math.log(image.gamma_e)
    sums.energy[4] += observed
    for b in range(image.w.size):
        if image.z[top.block + b] >= 0:
            sums.per_atom[0, b % top.atoms] += 1.0
            sums.per_atom[1, b % top.atoms] += np.float64(image.w[b]) ** 2
