"""The image pass of the joint model: draws top weights, top switches, upper positions and bottom positions.

All layers of an image share one residual. The pass keeps it current, and, where the next draw needs them, its
correlations with a unit in every block of each level. So a coefficient or a position costs one small inner product.
The squared norm of an upper atom's image is costly; proposals use its expectation (`gdd.reference.screening`), and an
accept step with the true norm, which takes a synthesis down the layers, corrects for the difference.

*Checked:* tests/test_joint_sweep.py (same chain as the plain twin).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdd.base.compiling import borrowed, kernel, subroutine
from gdd.sampler.kernels.joint import fill_joint_residual, image_of, synthesise_level, synthesise_values
from gdd.sampler.kernels.joint_coefficients import draw_switches, draw_weights
from gdd.sampler.kernels.joint_positions import Bottom, draw_bottom_positions, draw_upper_positions
from gdd.sampler.kernels.operations import draw_noise
from gdd.sampler.kernels.random import STREAM_SIZE, fill_key


class JointPriors(NamedTuple):
    """Priors of the local part of the joint model."""

    log_odds: float  # of a top coefficient being active
    gamma_w: float
    empty: float  # 1 if a pooling block may be empty, else 0
    noise_shape: float
    noise_rate: float
    noise_drawn: bool  # whether each image draws a noise precision


class JointSums(NamedTuple):
    """Sufficient statistics and diagnostics, summed over images; during a pass with a leading axis of accumulators."""

    active: np.ndarray  # (atom,): active top coefficients
    squares: np.ndarray  # (atom,): sum of their squared weights
    pixels: np.ndarray  # (): observed ones
    energy: np.ndarray  # (): ||E||^2
    weighted_energy: np.ndarray  # (): gamma_e ||E||^2
    log_noise: np.ndarray  # (): sum of log gamma_e over observed pixels
    log_counts: np.ndarray  # (): log prior of positions, up to a constant
    visited: np.ndarray  # (layer, class of strength): blocks whose position was drawn
    moved: np.ndarray  # (layer, class of strength): blocks whose position changed
    proposed_on: np.ndarray  # (): numbers of top coefficients, as the next three
    switched_on: np.ndarray
    proposed_off: np.ndarray
    switched_off: np.ndarray
    weights_proposed: np.ndarray  # (): images whose top weights were proposed
    weights_accepted: np.ndarray  # (): images whose top weights were accepted
    weight_steps: np.ndarray  # (): steps of the solver of the weights


@kernel()
def pass_images(images, shared, priors, work, sums, key):
    """Redraw the local part of a batch of images; each image has an accumulator.

    Changes ``work``, ``sums``, and all of ``images`` except pixels and masks.

    Parameters
    ----------
    images, shared, work : `gdd.sampler.kernels.joint`
    priors : `JointPriors`
    sums : `JointSums` with a leading axis of accumulators
    key : (seed, stage, layer, sweep)
    """
    images, shared, work, sums = borrowed((images, shared, work, sums))
    top, stream, layer = len(shared.layers) - 1, np.empty(STREAM_SIZE, np.uint64), shared.layers[0]
    bottom = Bottom(layer, shared.static, layer.dictionary * layer.dictionary, priors.empty)
    for n in range(len(images.pixels)):
        fill_key(stream, key, images.first + n)
        initialise_image(n, images, shared, priors, work, stream, sums)
        image = borrowed(image_of(images, n, stream))
        draw_weights(image, priors.gamma_w, shared, work, sums)
        draw_switches(image, priors.log_odds, priors.gamma_w, shared, work, sums)
        synthesise_values(top, image, shared, work)
        for level in range(top - 1, 0, -1):
            draw_upper_positions(level, image, priors.empty, shared, work, sums)
            synthesise_level(level, image.z, shared, work)
        if top > 0:
            draw_bottom_positions(image, bottom, work, sums)
        for p in range(image.pixels.size):  # numba compiles an assignment of slices for seconds
            images.residuals[n, p] = work.upward[p]
        accumulate_image(image, shared, work.upward, sums)


@subroutine()
def initialise_image(n, images, shared, priors, work, stream, sums):
    """Compute the residual of one image, and draw its noise precision. Changes gamma_e, ``work``, stream, ``sums``."""
    image, energy, observed = borrowed(image_of(images, n, stream)), 0.0, 0
    synthesise_values(np.int64(0), image, shared, work)
    fill_joint_residual(image, work)
    for p in range(image.pixels.size):
        energy += np.float64(work.upward[p]) ** 2
        observed += image.mask.size == 0 or image.mask[p] > 0
    if priors.noise_drawn:
        images.gamma_e[n] = draw_noise(priors.noise_shape, priors.noise_rate, observed, energy, stream)
    sums.pixels[n] += observed


@subroutine()
def accumulate_image(image, shared, residual, sums):
    """Add one image to its accumulator of ``sums``."""
    n, top, energy = image.n, shared.layers[len(shared.layers) - 1], 0.0
    for p in range(image.pixels.size):
        energy += np.float64(residual[p]) ** 2
    sums.energy[n] += energy
    sums.weighted_energy[n] += image.gamma_e * energy
    sums.log_noise[n] += sums.pixels[n] * math.log(image.gamma_e)
    for b in range(image.w.size):
        if image.z[top.block + b] >= 0:
            sums.active[n, b % top.atoms] += 1.0
            sums.squares[n, b % top.atoms] += np.float64(image.w[b]) ** 2
