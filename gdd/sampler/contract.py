"""What every sweep takes and returns, and how every sweep ends: scales, precisions, the running log joint.

`gdd.sampler.sweep` and `gdd.sampler.weighted` differ in how they see the images; what follows the dictionary's draw
needs no image and is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from gdd.base.checks import REMEDY, GddError
from gdd.model.distributions import LOG_TWO_PI
from gdd.model.layer import block_groups, log_precision
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import LayerState, Local, Shared
from gdd.sampler.shared import draw_precisions, draw_scales

#: width of a one-plane atom from which the image pass is compiled for that very width, at some seconds each
SPECIAL_FROM = 6


class Key(NamedTuple):
    """Names the random numbers of one sweep."""

    seed: int
    stage: int
    layer: int
    sweep: int


class Info(NamedTuple):
    """What a sweep tells besides the new state."""

    log_likelihood: float
    log_joint: float
    residual: float  # root mean square of E over observed pixels, before the dictionary's draw
    active: np.ndarray  # (atom,): active blocks over all images


@contextmanager
def within_range(what: str) -> Iterator[Callable[[float], None]]:
    """Say what to do when a sweep's numbers overflow: in a matrix, or in the log-likelihood given to the check."""

    def check(log_likelihood: float) -> None:
        if not np.isfinite(log_likelihood):
            raise GddError(f"images: {what} left the range of numbers, log-likelihood {log_likelihood}; {REMEDY}")

    try:
        yield check
    except np.linalg.LinAlgError as error:
        raise GddError(f"images: {what} left the range of numbers ({error}); {REMEDY}") from error


class Tally(NamedTuple):
    """What a sweep knows once the dictionary and gamma_e are drawn."""

    log_likelihood: float
    log_counts: float  # sum of lgamma(alpha + count) - lgamma(alpha) over images, maps, block shapes and outcomes
    per_atom: np.ndarray  # (2, atom): active blocks, sum of squared weights
    residual: float


def close_sweep(
    local: Local, dictionary: np.ndarray, tally: Tally, shared: Shared, spec: LayerSpec, shape: LayerShape,
    generator: np.random.Generator, scale: bool,
) -> tuple[LayerState, Info]:  # fmt: skip
    """Draw scales (if ``scale``), gamma_d and gamma_w, in this order, and account for the log joint.

    ``dictionary`` is the one just drawn, in double precision; ``shared`` still holds the precisions it was drawn under.
    """
    per_atom = tally.per_atom
    if scale:
        scales = draw_scales(dictionary, per_atom, shared, generator)
        dictionary = dictionary * scales[:, None, None, None]
        per_atom = per_atom / np.stack([np.ones_like(scales), scales**2])
        dtype = local.w.dtype
        local = local._replace(w=(local.w / scales[:, None, None].astype(dtype)).astype(dtype))
    gamma_d, gamma_w = draw_precisions(dictionary, per_atom, shared, spec, generator)
    state = LayerState(local, Shared(dictionary, gamma_d, gamma_w))
    joint = tally.log_likelihood + log_prior_from(state, tally.log_counts, per_atom, spec, shape)
    return state, Info(tally.log_likelihood, joint, tally.residual, tally.per_atom[0])


def log_prior_from(
    state: LayerState, log_counts: float, per_atom: np.ndarray, spec: LayerSpec, shape: LayerShape
) -> float:
    """Log prior of all unknowns, from sums: the running twin of the prior part of `gdd.model.layer.log_joint`."""
    shared = state.shared
    images = state.local.z.shape[0]
    active = per_atom[0].sum()
    if spec.elementwise:
        a, b = spec.beta
        total = active * np.log(a) + (state.local.z.size - active) * np.log(b)
    else:
        total = log_counts - images * shape.atoms * sum(gammaln(1.0 + g[0].sum()) for g in block_groups(shape))
    gamma_w = np.broadcast_to(shared.gamma_w, (shape.atoms,))
    gamma_d = np.broadcast_to(shared.gamma_d, (shape.atoms, shape.planes))
    total += (0.5 * per_atom[0] * (np.log(gamma_w) - LOG_TWO_PI) - 0.5 * gamma_w * per_atom[1]).sum()
    norms = (shared.dictionary**2).sum(axis=(2, 3))
    pixels = shared.dictionary[0, 0].size
    total += (0.5 * pixels * (np.log(gamma_d) - LOG_TWO_PI) - 0.5 * gamma_d * norms).sum()
    for prior, value in (
        (spec.gamma_e, state.local.gamma_e), (spec.gamma_d, shared.gamma_d), (spec.gamma_w, shared.gamma_w)
    ):  # fmt: skip
        total += log_precision(prior, value)
    return float(total)
