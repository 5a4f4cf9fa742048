"""The image pass of the joint model, compiled: top weights, top switches, upper positions, bottom positions.

All of an image's layers explain one residual. It is kept current, and with it, where that is needed next, its
correlations with a unit in every block of each level. So a coefficient or a position costs one small inner product.
Where the squared norm of an upper atom's image matters, a proposal is made under its expectation
(`gdd.reference.screening`) and corrected by an accept step with the true one, which costs a way down the layers.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel
from gdd.sampler.kernels.joint import fill_residual, image_of, synthesise_values, synthesise_whole
from gdd.sampler.kernels.joint_coefficients import draw_switches, draw_weights
from gdd.sampler.kernels.joint_positions import Bottom, draw_bottom_positions, draw_upper_positions
from gdd.sampler.kernels.operations import draw_noise
from gdd.sampler.kernels.random import WORDS, fill_key


class JointPriors(NamedTuple):
    """What the image pass needs of the priors."""

    log_odds: float  # of a top coefficient
    gamma_w: float
    empty: float  # 1 if a pooling block may be empty, else 0
    noise_shape: float
    noise_rate: float
    noise_drawn: bool  # with each image


class JointSums(NamedTuple):
    """What an image pass leaves, added up over images; one more axis, of accumulators, while under way."""

    active: np.ndarray  # (atom,): active top coefficients
    squares: np.ndarray  # (atom,): sum of their squared weights
    pixels: np.ndarray  # (): observed ones
    energy: np.ndarray  # (): ||E||^2
    weighted_energy: np.ndarray  # (): gamma_e ||E||^2
    log_noise: np.ndarray  # (): log gamma_e of every observed pixel
    log_counts: np.ndarray  # (): log prior of positions, but for a constant
    visited: np.ndarray  # (layer, class of strength): blocks whose position was drawn
    moved: np.ndarray  # (layer, class of strength): those that came out elsewhere
    proposed_on: np.ndarray  # (): top coefficients, as the next three
    switched_on: np.ndarray
    proposed_off: np.ndarray
    switched_off: np.ndarray
    weights_proposed: np.ndarray  # (): images whose top weights were proposed
    weights_accepted: np.ndarray  # (): and accepted
    weight_steps: np.ndarray  # (): of the solver of the weights


@kernel()
def pass_images(images, shared, priors, work, sums, key):
    """Update images, each with an accumulator of ``sums`` of its own; see the types of the arguments.

    key : (seed, stage, layer, sweep). Changes what ``images`` holds but pixels and masks, work and sums.
    """
    images, shared, work, sums = borrowed((images, shared, work, sums))
    top, stream, layer = len(shared.layers) - 1, np.empty(WORDS, np.uint64), shared.layers[0]
    bottom = Bottom(layer, shared.static, layer.dictionary * layer.dictionary, priors.empty)
    for n in range(len(images.pixels)):
        fill_key(stream, key, images.first + n)
        begin_image(n, images, shared, priors, work, stream, sums)
        image = image_of(images, n, stream)
        draw_weights(n, image, priors.gamma_w, shared, work, sums)
        draw_switches(n, image, priors.log_odds, priors.gamma_w, shared, work, sums)
        synthesise_values(top, image, shared, work)
        for level in range(top - 1, 0, -1):
            draw_upper_positions(n, level, image, priors.empty, shared, work, sums)
            synthesise_whole(level, image.z, shared, work)
        if top > 0:
            draw_bottom_positions(n, image, bottom, work, sums)
        images.residuals[n] = work.upward[: image.pixels.size]
        end_image(n, image, shared, work.upward, sums)


@kernel()
def begin_image(n, images, shared, priors, work, stream, sums):
    """Residual and noise precision of one image. Changes gamma_e, ``work``, stream, sums."""
    image, energy, observed = image_of(images, n, stream), 0.0, 0
    synthesise_values(np.int64(0), image, shared, work)
    fill_residual(image, work)
    for p in range(image.pixels.size):
        energy += np.float64(work.upward[p]) ** 2
        observed += image.mask.size == 0 or image.mask[p] > 0
    if priors.noise_drawn:
        images.gamma_e[n] = draw_noise(priors.noise_shape, priors.noise_rate, observed, energy, stream)
    sums.pixels[n] += observed


@kernel()
def end_image(n, image, shared, residual, sums):
    """Add one image to the sums. Changes them."""
    top, energy = shared.layers[len(shared.layers) - 1], 0.0
    for p in range(image.pixels.size):
        energy += np.float64(residual[p]) ** 2
    sums.energy[n] += energy
    sums.weighted_energy[n] += image.gamma_e * energy
    sums.log_noise[n] += sums.pixels[n] * math.log(image.gamma_e)
    for b in range(image.w.size):
        if image.z[top.block + b] >= 0:
            sums.active[n, b % top.atoms] += 1.0
            sums.squares[n, b % top.atoms] += np.float64(image.w[b]) ** 2
