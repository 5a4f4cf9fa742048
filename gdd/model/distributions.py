"""Distributions with ``logpdf`` and ``sample``, which the conditionals of the model return.

So a conditional can be drawn from, or its density compared with the reference log density. ``sample`` takes a numpy
generator, or, for what is drawn image by image, a `gdd.reference.random.Stream`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg.lapack import dpotrf, dtrtrs  # without checks: called many times per sweep on small matrices

LOG_TWO_PI = math.log(2 * math.pi)


class Gamma(NamedTuple):
    """Gamma distribution with density proportional to x^(shape-1) exp(-rate x), elementwise."""

    shape: np.ndarray
    rate: np.ndarray

    def logpdf(self, x: np.ndarray) -> np.ndarray:
        """Log density at x, elementwise."""
        shape, rate = np.asarray(self.shape, float), np.asarray(self.rate, float)
        return shape * np.log(rate) - special.gammaln(shape) + (shape - 1) * np.log(x) - rate * x

    def sample(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all entries."""
        return generator.standard_gamma(self.shape) / self.rate


class Gaussian(NamedTuple):
    """Gaussian in information form: precision P (..., d, d) and linear term b (..., d); mean P^-1 b."""

    precision: np.ndarray
    linear: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """P^-1 b."""
        return np.linalg.solve(self.precision, self.linear[..., None])[..., 0]

    def logpdf(self, x: np.ndarray) -> np.ndarray:
        """Log density of x (..., d)."""
        deviation = x - self.mean
        quad = np.einsum("...i,...ij,...j->...", deviation, self.precision, deviation)
        return 0.5 * (np.linalg.slogdet(self.precision)[1] - quad - deviation.shape[-1] * LOG_TWO_PI)

    def sample(self, generator: np.random.Generator) -> np.ndarray:
        """Draw one vector; the precision must be a single (d, d) matrix, the linear term may be (rows, d)."""
        root, failed = dpotrf(self.precision, lower=1)
        if failed:
            raise np.linalg.LinAlgError(f"precision: not positive definite, seen at row {failed - 1}")
        noise = generator.standard_normal(self.linear.shape)
        half, _ = dtrtrs(root, np.atleast_2d(self.linear).T, lower=1)
        draw, _ = dtrtrs(root, half + np.atleast_2d(noise).T, lower=1, trans=1)
        return draw.T.reshape(self.linear.shape)


class DiagonalShiftGaussian(NamedTuple):
    """Gaussians whose precisions T + g_c I share one symmetric T (d, d) and differ by a number g_c; b is (c, d).

    One eigendecomposition serves all c.
    """

    common: np.ndarray  # (d, d): T
    shift: np.ndarray  # (c,): g
    linear: np.ndarray  # (c, d): b

    def logpdf(self, x: np.ndarray) -> float:
        """Log density of x (c, d)."""
        eye = np.eye(len(self.common))
        parts = [Gaussian(self.common + g * eye, b) for g, b in zip(self.shift, self.linear, strict=True)]
        return float(sum(part.logpdf(row) for part, row in zip(parts, x, strict=True)))

    def sample(self, generator: np.random.Generator) -> np.ndarray:
        """Draw (c, d); the distribution does not depend on the choice of eigenvectors."""
        values, vectors = np.linalg.eigh(self.common)
        precision = np.maximum(values, 0.0) + self.shift[:, None]
        noise = generator.standard_normal(self.linear.shape)
        return ((self.linear @ vectors) / precision + (noise @ vectors) / np.sqrt(precision)) @ vectors.T


class Dirichlet(NamedTuple):
    """Dirichlet distribution over the last axis."""

    alpha: np.ndarray

    def logpdf(self, theta: np.ndarray) -> np.ndarray:
        """Log density of probability vectors (..., outcome)."""
        alpha = np.asarray(self.alpha, float)
        norm = special.gammaln(alpha.sum(-1)) - special.gammaln(alpha).sum(-1)
        return norm + ((alpha - 1) * np.log(theta)).sum(-1)

    def sample(self, generator: np.random.Generator) -> np.ndarray:
        """Draw one vector per leading index, in the log domain, as small shapes would underflow to zero."""
        alpha = np.asarray(self.alpha, float)
        log_draw = np.log(generator.standard_gamma(alpha + 1)) + np.log(generator.random(alpha.shape)) / alpha
        log_draw -= special.logsumexp(log_draw, axis=-1, keepdims=True)
        return np.exp(np.maximum(log_draw, -700.0))


class PositionChoice(NamedTuple):
    """Categorical distribution of a block's position: outcomes 0..B-1 are positions, the last one is empty."""

    log_weight: np.ndarray  # (outcome,), not normalised; -inf where the block has no such outcome

    @property
    def log_probability(self) -> np.ndarray:
        """Normalised log probabilities of the outcomes."""
        return self.log_weight - special.logsumexp(self.log_weight)

    def logpdf(self, z: int) -> float:
        """Log probability of position z (-1: empty)."""
        return float(self.log_probability[z])

    def sample(self, stream) -> int:
        """Draw z with one uniform number: empty first, then the positions in order."""
        weight = np.exp(self.log_weight - self.log_weight.max())
        target = stream.uniform() * weight.sum()
        total = weight[-1]
        if target < total:
            return -1
        for m in np.flatnonzero(weight[:-1]):
            total += weight[m]
            if target < total:
                break
        return int(m)


class BlockChoice(NamedTuple):
    """Spike-and-slab distribution of a block's position and weight; the last of the outcomes 0..B is empty."""

    log_weight: np.ndarray  # (outcome,), not normalised; -inf where the block has no such position
    mean: np.ndarray  # (position,)
    precision: np.ndarray  # (position,)

    @property
    def log_probability(self) -> np.ndarray:
        """Normalised log probabilities of the outcomes."""
        return PositionChoice(self.log_weight).log_probability

    def logpdf(self, z: int, w: float) -> float:
        """Log density of position z (-1: empty) with weight w."""
        if z < 0:
            return float(self.log_probability[-1])
        deviation = w - self.mean[z]
        return float(
            self.log_probability[z]
            + 0.5 * (math.log(self.precision[z]) - LOG_TWO_PI - self.precision[z] * deviation * deviation)
        )

    def sample(self, stream) -> tuple[int, float]:
        """Draw (z, w): uses one uniform number, and a normal one (two uniforms) if the block is active."""
        z = PositionChoice(self.log_weight).sample(stream)
        if z < 0:
            return z, 0.0
        return z, float(self.mean[z] + stream.normal() / math.sqrt(self.precision[z]))
