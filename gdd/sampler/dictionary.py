"""Draws of shared unknowns: the dictionary of a bottom layer, and precisions.

For fully observed images the dictionary is drawn from sufficient statistics of fixed size, the only result that the
image pass sends to it. Where pixels are missing, or the layer above sets the bottom layer's values, it is drawn from
the residuals, with one pass over them per atom.
"""

from __future__ import annotations

import numpy as np

from gdd.base.checks import SMALLEST_PRECISION
from gdd.base.compiling import kernel
from gdd.model.distributions import DiagonalShiftGaussian, Gamma, Gaussian
from gdd.model.spec import LayerShape, Precision
from gdd.model.state import Shard
from gdd.reference.conditionals import sum_shared
from gdd.sampler.arrays import plane_last
from gdd.sampler.kernels import dictionary as kernels
from gdd.sampler.kernels.dictionary import AtomSums, MapArrays
from gdd.sampler.kernels.operations import Layer, Sums
from gdd.sampler.kernels.windows import Static
from gdd.sampler.sums import WorkItem, add_up

#: atoms drawn between two matrix products that subtract the contributions of all other atoms at once
GROUP = 32


def draw_atom(
    gram: np.ndarray, linear: np.ndarray, gamma_d: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw an atom (plane, hw), from gram (plane or 1, hw, hw), linear (plane, hw) and gamma_d (plane,)."""
    eye = np.eye(gram.shape[1])
    if (gram != gram[0]).any():  # planes with masks of their own
        parts = [Gaussian(t + g * eye, b) for t, g, b in zip(gram, gamma_d, linear, strict=True)]
        return np.stack([part.sample(generator) for part in parts])
    if (gamma_d == gamma_d[0]).all():
        return Gaussian(gram[0] + gamma_d[0] * eye, linear).sample(generator)
    return DiagonalShiftGaussian(gram[0], gamma_d, linear).sample(generator)


# ---- from sufficient statistics


def draw_from_sums(
    sums: Sums, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw every atom given the others, from the sufficient statistics of fully observed images.

    Returns (dictionary (atom, plane, atom_row, atom_col), change of sum gamma_e ||E||^2).
    """
    planes, (h, w) = shape.planes, shape.atom_size
    atoms = np.array(dictionary.transpose(0, 2, 3, 1), float, order="C").reshape(shape.atoms, h, -1)  # a copy
    gamma_d = np.broadcast_to(gamma_d, (shape.atoms, planes))
    grams = toeplitz(np.stack([sums.pairs[k, k] for k in range(shape.atoms)]), shape.atom_size)
    linear_terms, change = sums.cross.reshape(atoms.shape).copy(), 0.0
    for k in range(shape.atoms):
        first, last = k - k % GROUP, min(k - k % GROUP + GROUP, shape.atoms)
        if k == first and shape.atoms > GROUP:
            explain_outside(first, last, sums.pairs, atoms, planes, linear_terms[first:last])
        explain_atoms(k, first, last, sums.pairs, atoms, planes, linear_terms[k])
        linear = np.ascontiguousarray(linear_terms[k].reshape(h * w, planes).T)  # (plane, hw)
        old = atoms[k].reshape(h * w, planes).T.copy()
        new = draw_atom(grams[k : k + 1], linear, gamma_d[k], generator)
        change += float(np.vdot((new + old) @ grams[k] - 2 * linear, new - old))
        atoms[k] = new.T.reshape(h, w * planes)
    return np.ascontiguousarray(atoms.reshape(shape.atoms, h, w, planes).transpose(0, 3, 1, 2)), change


@kernel()
def explain_atoms(k, first, last, pairs, atoms, planes, out):
    """Subtract T_kk' D_k' for k' from ``first`` to ``last``, k left out, from ``out`` (atom_row, atom_col * plane).

    T_kk' D_k' (a) = sum over lags u of pairs[k, k', u] D_k'(a + u); ``atoms`` (atom, atom_row, atom_col * plane)
    """
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
                start, stop = max(0, -q * planes), min(length, length - q * planes)
                if value == 0.0 or stop <= start:
                    continue
                for a in range(max(0, -p), min(height, height - p)):
                    line = out[a, start:stop]
                    shifted = atoms[other, a + p, start + q * planes : stop + q * planes]
                    for t in range(stop - start):
                        line[t] -= value * shifted[t]


def explain_outside(first: int, last: int, pairs: np.ndarray, atoms: np.ndarray, planes: int, out: np.ndarray) -> None:
    """`explain_atoms` for k from ``first`` to ``last`` and all k' outside, as matrix products. Changes ``out``.

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
                shifted = atoms[:, a + p, start + q * planes : stop + q * planes]
                out[:, a, start:stop] -= value @ shifted


def pixel_pairs(atom_size: tuple[int, int], reach: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lags a' - a of all pairs of an atom's pixels, offset by ``reach``: rows, columns, and whether within reach.

    Each array broadcasts to (row, col, row', col').
    """
    row, col = (np.arange(n)[None, :] - np.arange(n)[:, None] + r for n, r in zip(atom_size, reach, strict=True))
    row, col = row[:, None, :, None], col[None, :, None, :]
    inside = (row >= 0) & (row <= 2 * reach[0]) & (col >= 0) & (col <= 2 * reach[1])
    return np.clip(row, 0, 2 * reach[0]), np.clip(col, 0, 2 * reach[1]), inside


def toeplitz(lags: np.ndarray, atom_size: tuple[int, int]) -> np.ndarray:
    """Precision T (..., hw, hw) from autocorrelations (..., lag_row, lag_col): T[a, a'] = lags[a' - a], 0 beyond."""
    row, col, inside = pixel_pairs(atom_size, (lags.shape[-2] // 2, lags.shape[-1] // 2))
    size = atom_size[0] * atom_size[1]
    return np.where(inside, lags[..., row, col], 0.0).reshape(*lags.shape[:-2], size, size)


# ---- from residuals


def draw_from_residuals(
    dictionary: np.ndarray, gamma_d: np.ndarray, maps: MapArrays, layer: Layer, static: Static,
    generator: np.random.Generator, shard: Shard,
) -> tuple[np.ndarray, float]:
    r"""Draw every atom given the others, one after another, and update the residuals of ``maps``.

    The sums over images for an atom, of maps S, masks M and residuals E, are

    .. math:: T_{aa'} = \sum_n \gamma_e \sum_u M_u S(u - a) S(u - a'), \qquad
              b_a = \sum_n \gamma_e \sum_u M_u E(u) S(u - a)

    and T times the atom is added to b.

    Returns (dictionary (atom, plane, atom_row, atom_col), change of sum gamma_e ||E||^2).

    *Source:* supplement, "Sample D". *Departs:* P4. *Checked:* tests/test_masked.py, tests/test_joint_sweep.py.
    """
    (atoms, planes, h, w), dtype = dictionary.shape, maps.residuals.dtype
    reach = 2 * min(h, layer.map_row) - 1, 2 * min(w, layer.map_col) - 1
    size = h * w * planes
    empty = AtomSums(np.zeros((*reach, size if len(maps.masks) else 1)), np.zeros(size))
    new, gamma_d = dictionary.astype(float), np.broadcast_to(gamma_d, (atoms, planes))
    step, change = np.zeros(size, dtype), 0.0
    for k in range(atoms + 1):  # the last pass only subtracts the last atom's step

        def run(item: WorkItem, k: int = k, step: np.ndarray = step) -> None:
            kernels.pass_atom(k, step, maps.slice(item.images), layer, static, item.sums)

        sums = add_up(empty, shard, len(maps.residuals), run)
        if k == atoms:
            break
        gram, old = gram_of(sums.lags, (h, w)), new[k].reshape(planes, -1)
        linear = sums.linear.reshape(h * w, planes).T + _apply_gram(gram, old)
        drawn = draw_atom(gram, linear, gamma_d[k], generator)
        for part, sign in ((drawn, 1), (old, -1)):
            change += sign * float(((_apply_gram(gram, part) - 2 * linear) * part).sum())
        before = new[k : k + 1].astype(dtype)
        new[k] = drawn.reshape(new[k].shape)
        step = plane_last(new[k : k + 1].astype(dtype) - before, dtype)[0]
    return new, change


def _apply_gram(gram: np.ndarray, atom: np.ndarray) -> np.ndarray:
    """Gram (plane or 1, hw, hw) times an atom (plane, hw)."""
    return np.einsum("cab,cb->ca", gram, atom)


def gram_of(lags: np.ndarray, atom_size: tuple[int, int]) -> np.ndarray:
    """T of `draw_from_residuals`, (plane or 1, hw, hw), from ``lags`` of `AtomSums`."""
    (h, w), reach = atom_size, (lags.shape[0] // 2, lags.shape[1] // 2)
    if lags.shape[2] == 1:
        return toeplitz(lags[..., 0], atom_size)[None]
    row, col, inside = pixel_pairs(atom_size, reach)
    windows = lags.reshape(*lags.shape[:2], h, w, -1)
    half = windows[row, col, np.arange(h)[:, None, None, None], np.arange(w)[None, :, None, None]]
    half = np.where(inside[..., None], half, 0.0).reshape(h * w, h * w, -1).transpose(2, 0, 1)
    return half + half.transpose(0, 2, 1) - half * np.eye(h * w)  # each pair is at one lag only


# ---- precisions


def draw_gamma_d(
    dictionary: np.ndarray, prior: Precision, current: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw the precision of the atoms given the atoms; a fixed one stays as it is."""
    norms = (dictionary**2).sum(axis=(2, 3))
    pixels = np.full(norms.shape, float(dictionary[0, 0].size))
    return draw_shared_precision(prior, pixels, norms, current, generator)


def draw_shared_precision(
    prior: Precision, number: np.ndarray, energy: np.ndarray, current: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw Gamma(shape + number/2, rate + energy/2), both summed over the axes along which ``current`` has size 1.

    Without data only the flat prior remains, nearly all of whose draws would be 0 in double precision.
    """
    if prior.fixed is not None:
        return current
    number, energy = sum_shared(number, current.shape), sum_shared(energy, current.shape)
    drawn = Gamma(prior.shape + number / 2, prior.rate + energy / 2).sample(generator)
    return np.maximum(drawn, SMALLEST_PRECISION)
