"""The compiled chain of test-time deconvolution where pixels are missing: a mask is a weight of pixels, 1 or 0.

No Gram matrix holds under a mask, so nothing is kept but the residual. It is 0 at hidden pixels; each coefficient reads
its correlation off it at the visit, and a change of a weight is written back at once. All of a place's atoms cover the
same window, which is kept flat while they are visited. Coefficients, scaling and random numbers are those of
`gdd.inference.deconvolution_kernels`, and so is the plain twin.

*Checked:* tests/test_deconvolution.py (same chain as the plain conditionals, exact ratio, enumeration).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import FAST, borrowed, kernel
from gdd.inference.deconvolution_kernels import (
    REFRESH,
    add_expected,
    correlate_image,
    draw_gap,
    draw_weight,
    most_probable,
    picture,
)
from gdd.sampler.random import TEST, WORDS, fill_stream


class MaskedImage(NamedTuple):
    """An image and what is seen of it, with a margin of 0 where atoms stick out of the image."""

    left: np.ndarray  # (plane, row, col): the residual, 0 where hidden
    seen: np.ndarray  # (plane, row, col): 1 where seen, 0 elsewhere


class Window(NamedTuple):
    """What the atoms of one place cover, flat."""

    left: np.ndarray  # (pixel,)
    seen: np.ndarray  # (pixel,)


@kernel(fastmath=FAST)
def dot(one, other):
    """Inner product."""
    total = one[0] * 0
    for t in range(len(one)):
        total += one[t] * other[t]
    return total


@kernel()
def subtract_seen(window, atom, weight):
    """Subtract ``weight`` times an atom (pixel,) from the residual, where seen."""
    left, seen = window
    for t in range(len(left)):
        left[t] -= weight * seen[t] * atom[t]


@kernel()
def copy_window(whole, flat, place, problem, out):
    """Copy the window of a place from (plane, row, col) into (pixel,), or if ``out`` the other way."""
    planes, rows, cols = problem.atoms.shape[:3]
    across = problem.col_slab.shape[0]
    top, left = (place // across) * problem.stride[0], (place % across) * problem.stride[1]
    t = 0
    for plane in range(planes):
        for a in range(rows):
            here, line = whole[plane, top + a, left : left + cols], flat[t : t + cols]
            for b in range(cols):
                if out:
                    here[b] = line[b]
                else:
                    line[b] = here[b]
            t += cols


@kernel()
def enter(masked, window, place, problem):
    """Fill the window of a place."""
    copy_window(masked.left, window.left, place, problem, False)
    copy_window(masked.seen, window.seen, place, problem, False)


@kernel()
def refresh_left(image, seen, weight, problem, masked):
    """Form the residual afresh."""
    rows, cols = image.shape[1:]
    inside = masked.left[:, :rows, :cols]
    picture(weight, problem, inside)
    for place in np.ndindex(image.shape):
        inside[place] = image[place] - inside[place] if seen[place] else 0.0


@kernel()
def correlate_near(masked, window, place, problem, atoms, correlation):
    """Form afresh the correlations of all atoms that overlap those of a place."""
    across, (down, right) = problem.col_slab.shape[0], problem.stride
    rows, cols = problem.atoms.shape[1:3]
    for other in range(problem.row_slab.shape[0] * across):
        apart = abs(other // across - place // across) * down, abs(other % across - place % across) * right
        if apart[0] < rows and apart[1] < cols:
            copy_window(masked.left, window.left, other, problem, False)
            for k in range(len(atoms)):
                correlation[other * len(atoms) + k] = dot(window.left, atoms[k])


@kernel()
def pursue_seen(weight, masked, window, problem, atoms):
    """`gdd.inference.deconvolution_kernels.pursue` on the pixels seen. Changes ``weight`` and the residual."""
    correlation = np.empty_like(weight)
    correlate_image(masked.left, problem, correlation)
    while True:
        i = most_probable(weight, correlation, problem)
        if i < 0:
            return
        weight[i] = np.float64(correlation[i]) * problem.inverse[i]
        place = i // len(atoms)
        enter(masked, window, place, problem)
        subtract_seen(window, atoms[i % len(atoms)], weight[i])
        copy_window(masked.left, window.left, place, problem, True)
        correlate_near(masked, window, place, problem, atoms, correlation)


@kernel()
def sweep_seen(weight, masked, window, problem, atoms, stream, sums, collected):
    """Redraw every coefficient once. Changes ``weight``, the residual, and if ``collected`` the ``sums``."""
    norm, inverse, log_odds, number = problem.norm, problem.inverse, problem.log_odds, len(atoms)
    proposed = draw_gap(stream)
    for place in range(len(weight) // number):
        enter(masked, window, place, problem)
        for k in range(number):
            i = place * number + k
            old = weight[i]
            c = np.float64(dot(window.left, atoms[k])) + np.float64(old) * norm[i]
            if collected:
                add_expected(i, c, inverse, log_odds, sums)
            weight[i] = draw_weight(c, inverse[i], log_odds[i], i == proposed, stream)
            if weight[i] != old:
                subtract_seen(window, atoms[k], weight[i] - old)
            if i == proposed:
                proposed += 1 + draw_gap(stream)
        copy_window(masked.left, window.left, place, problem, True)


@kernel()
def run_seen(image, seen, problem, atoms, run, chains, pursued):
    """Run the chain of one image (plane, row, col), 0 where hidden; changes all arrays of ``chains``, of that image.

    problem : with norms and odds under the mask, see `gdd.inference.deconvolution.under_mask`
    atoms : (atom, pixel)
    run, chains, pursued : as of `gdd.inference.deconvolution_kernels.run_chains`
    """
    image, seen, problem, atoms, chains = borrowed((image, seen, problem, atoms, chains))
    best, best_residual, averages, trace = chains
    planes, rows, cols = problem.atoms.shape[:3]
    tall = max(image.shape[1], (problem.row_slab.shape[0] - 1) * problem.stride[0] + rows)
    wide = max(image.shape[2], (problem.col_slab.shape[0] - 1) * problem.stride[1] + cols)
    masked = MaskedImage(np.zeros((planes, tall, wide), image.dtype), np.zeros((planes, tall, wide), image.dtype))
    masked.seen[:, : image.shape[1], : image.shape[2]] = seen
    window = Window(np.empty(atoms.shape[1], image.dtype), np.empty(atoms.shape[1], image.dtype))
    stream, weight, sums = np.empty(WORDS, np.uint64), best[0].copy(), np.zeros((3, best.shape[1]))
    if pursued:
        refresh_left(image, seen, weight, problem, masked)
        pursue_seen(weight, masked, window, problem, atoms)
    best_residual[0] = np.inf
    for t in range(run.burn_in + run.collect):
        fill_stream(stream, run.seed, TEST, 0, t, run.first)
        if t % REFRESH == 0:
            refresh_left(image, seen, weight, problem, masked)
        collected = t >= run.burn_in
        sweep_seen(weight, masked, window, problem, atoms, stream, sums, collected)
        if collected or trace.shape[1] > 0:
            residual = 0.0
            for value in masked.left.flat:
                residual += np.float64(value) ** 2
            if trace.shape[1] > 0:
                trace[0, t] = residual
            if collected and residual < best_residual[0]:
                best_residual[0] = residual
                best[0] = weight
    averages[0] = sums / run.collect
