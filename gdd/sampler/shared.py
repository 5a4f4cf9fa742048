"""Draws of what all images share, from sums of fixed size: dictionary, precisions, scales.

Nothing here sees an image. ``Sums`` is all that travels from the image pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdd.base.compiling import INNER, kernel
from gdd.model.distributions import DiagonalShiftGaussian, Gamma, Gaussian, GeneralisedInverseGaussian
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import Shared


class Sums(NamedTuple):
    """What one image pass leaves behind, summed over images in double precision."""

    pairs: np.ndarray  # (atom, atom, lag_row, lag_col): sum gamma_e S_k(u) S_k'(u - lag), for k <= k'
    cross: np.ndarray  # (atom, atom_row, atom_col * plane): sum gamma_e <X, S_k shifted>
    per_atom: np.ndarray  # (2, atom): active blocks, sum of squared weights
    energy: np.ndarray  # (4,): ||E||^2, sum gamma_e ||E||^2, sum log gamma_e, log counts of the positions

    def scaled(self, gamma_e: float) -> Sums:
        """Return the sums as if every image had been weighted by one noise precision."""
        return self._replace(pairs=self.pairs * gamma_e, cross=self.cross * gamma_e)


#: atoms drawn between two products that explain away all others at once; fewer atoms than this need no such product
GROUP = 32


@kernel()
def linear_term(k, pairs, cross, atoms, planes, out):
    """Linear term of atom k, all other atoms explained away: cross_k - sum over k' != k of T_kk' D_k'. Changes ``out``.

    atoms, out : (atom, atom_row, atom_col * plane) and (atom_row, atom_col * plane)
    """
    out[:] = cross[k]
    explain_atoms(k, 0, len(atoms), pairs, atoms, planes, out)


@kernel(**INNER)
def explain_atoms(k, first, last, pairs, atoms, planes, out):
    """Subtract T_kk' D_k' for k' from ``first`` to ``last``, k left out. Changes ``out``, see `linear_term`."""
    height, length = out.shape
    reach_row, reach_col = pairs.shape[2] // 2, pairs.shape[3] // 2
    for other in range(first, last):
        if other == k:
            continue
        for p in range(-reach_row, reach_row + 1):
            for q in range(-reach_col, reach_col + 1):
                if k < other:
                    value = pairs[k, other, reach_row + p, reach_col + q]
                else:
                    value = pairs[other, k, reach_row - p, reach_col - q]
                if value == 0.0:
                    continue
                start, stop = max(0, -q * planes), min(length, length - q * planes)
                if stop <= start:
                    continue
                for a in range(max(0, -p), min(height, height - p)):
                    line = out[a, start:stop]
                    there = atoms[other, a + p, start + q * planes : stop + q * planes]
                    for t in range(stop - start):
                        line[t] -= value * there[t]


def explain_outside(first: int, last: int, pairs: np.ndarray, atoms: np.ndarray, planes: int, out: np.ndarray) -> None:
    """Subtract T_kk' D_k' for k from ``first`` to ``last`` and all k' outside, as matrix products. Changes ``out``.

    out : (last - first, atom_row, atom_col * plane)
    """
    height, length = atoms.shape[1:]
    reach_row, reach_col = pairs.shape[2] // 2, pairs.shape[3] // 2
    value = np.zeros((last - first, len(atoms)))
    for p in range(-reach_row, reach_row + 1):
        for q in range(-reach_col, reach_col + 1):
            value[:, :first] = pairs[:first, first:last, reach_row - p, reach_col - q].T
            value[:, last:] = pairs[first:last, last:, reach_row + p, reach_col + q]
            start, stop = max(0, -q * planes), min(length, length - q * planes)
            for a in range(max(0, -p), min(height, height - p)):
                there = atoms[:, a + p, start + q * planes : stop + q * planes]
                out[:, a, start:stop] -= value @ there


def toeplitz(lags: np.ndarray, atom_size: tuple[int, int]) -> np.ndarray:
    """Precision T (..., hw, hw) from autocorrelations (..., lag_row, lag_col): T[a, a'] = lags[a' - a], 0 beyond."""
    h, w = atom_size
    reach = lags.shape[-2] // 2, lags.shape[-1] // 2
    row = np.arange(h)[None, :] - np.arange(h)[:, None]  # a' - a
    col = np.arange(w)[None, :] - np.arange(w)[:, None]
    inside = (np.abs(row) <= reach[0])[:, None, :, None] & (np.abs(col) <= reach[1])[None, :, None, :]
    picked = lags[..., np.clip(row + reach[0], 0, 2 * reach[0])[:, None, :, None],
                  np.clip(col + reach[1], 0, 2 * reach[1])[None, :, None, :]]  # fmt: skip
    return np.where(inside, picked, 0.0).reshape(*lags.shape[:-2], h * w, h * w)


def draw_atoms_in_turn(
    sums: Sums, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw every atom given the others.

    Returns (dictionary (atom, plane, atom_row, atom_col), change of sum gamma_e ||E||^2).
    """
    h, w = shape.atom_size
    atoms = np.array(dictionary.transpose(0, 2, 3, 1), float, order="C").reshape(shape.atoms, h, -1)  # a copy
    gamma_d = np.broadcast_to(gamma_d, (shape.atoms, shape.planes))
    own = toeplitz(np.stack([sums.pairs[k, k] for k in range(shape.atoms)]), shape.atom_size)
    alike = bool((gamma_d == gamma_d[:, :1]).all())
    eigen = None if alike else np.linalg.eigh(own)
    precisions = own + gamma_d[:, 0, None, None] * np.eye(h * w) if alike else None
    linear_terms = sums.cross.copy()
    change = 0.0
    for k in range(shape.atoms):
        first, last = k - k % GROUP, min(k - k % GROUP + GROUP, shape.atoms)
        if k == first and shape.atoms > GROUP:
            explain_outside(first, last, sums.pairs, atoms, shape.planes, linear_terms[first:last])
        linear = linear_terms[k]
        explain_atoms(k, first, last, sums.pairs, atoms, shape.planes, linear)
        rows = np.ascontiguousarray(linear.reshape(h * w, shape.planes).T)  # (plane, hw)
        old = atoms[k].reshape(h * w, shape.planes).T.copy()
        if alike:
            new = Gaussian(precisions[k], rows).sample(generator)
        else:
            choice = DiagonalShiftGaussian(own[k], gamma_d[k], rows)
            new = choice.sample_given_eigen(eigen[0][k], eigen[1][k], generator)
        change += float(np.vdot((new + old) @ own[k] - 2 * rows, new - old))
        atoms[k] = new.T.reshape(h, w * shape.planes)
    return np.ascontiguousarray(atoms.reshape(shape.atoms, h, w, shape.planes).transpose(0, 3, 1, 2)), change


def draw_precisions(
    dictionary: np.ndarray, per_atom: np.ndarray, shared: Shared, spec: LayerSpec, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """gamma_d and gamma_w given the dictionary and the sums over weights; a fixed one stays as it is."""
    norms = (dictionary**2).sum(axis=(2, 3))
    pixels = np.full(norms.shape, float(dictionary[0, 0].size))
    return (
        draw_shared_precision(spec.gamma_d, pixels, norms, shared.gamma_d, generator),
        draw_shared_precision(spec.gamma_w, per_atom[0], per_atom[1], shared.gamma_w, generator),
    )


def draw_shared_precision(prior, number, energy, current: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw Gamma(shape + number/2, rate + energy/2), both summed over the axes along which ``current`` has size 1."""
    if prior.fixed is not None:
        return current
    for axis, size in enumerate(current.shape):
        if size == 1:
            number, energy = number.sum(axis=axis, keepdims=True), energy.sum(axis=axis, keepdims=True)
    return Gamma(prior.shape + number / 2, prior.rate + energy / 2).sample(generator)


def draw_scales(
    dictionary: np.ndarray, per_atom: np.ndarray, shared: Shared, generator: np.random.Generator
) -> np.ndarray:
    """Scale s of every atom for the move (D_k, w_k) -> (s D_k, w_k / s): (atom,)."""
    atoms, planes = dictionary.shape[:2]
    gamma_d = np.broadcast_to(shared.gamma_d, (atoms, planes))
    gamma_w = np.broadcast_to(shared.gamma_w, (atoms,))
    a = (gamma_d * (dictionary**2).sum(axis=(2, 3))).sum(axis=1)
    b = np.where(per_atom[0] > 0, gamma_w * per_atom[1], 0.0)
    p = (dictionary[0].size - per_atom[0]) / 2
    squared = [GeneralisedInverseGaussian(*pab).sample(generator) for pab in zip(p, a, b, strict=True)]
    return np.sqrt(np.array(squared))
