"""Draws of what all images share: dictionary and precisions.

The dictionary of whole images is drawn from sums of fixed size, which is all that travels from the image pass. Where
pixels are missing an atom's Gram is no matter of lags alone: there the residuals are held, with one pass over them for
each atom.
"""

from __future__ import annotations

import numpy as np

from gdd.base.compiling import kernel, share_out
from gdd.model.distributions import DiagonalShiftGaussian, Gamma, Gaussian
from gdd.model.spec import LayerShape, Precision
from gdd.model.state import Local, Shard, Shared
from gdd.reference.conditionals import sum_shared
from gdd.sampler.kernels import layer
from gdd.sampler.kernels.operations import Layout, Sums
from gdd.sampler.sums import Share, add_up

#: atoms drawn between two products that explain away all others at once; fewer atoms than this need no such product
GROUP = 32


def draw_atom(
    gram: np.ndarray, linear: np.ndarray, gamma_d: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw an atom (plane, hw), from gram (plane or 1, hw, hw), linear (plane, hw) and gamma_d (plane,)."""
    eye = np.eye(gram.shape[1])
    if len(gram) > 1:
        parts = [Gaussian(t + g * eye, b) for t, g, b in zip(gram, gamma_d, linear, strict=True)]
        return np.stack([part.sample(generator) for part in parts])
    if (gamma_d == gamma_d[0]).all():
        return Gaussian(gram[0] + gamma_d[0] * eye, linear).sample(generator)
    return DiagonalShiftGaussian(gram[0], gamma_d, linear).sample(generator)


def draw_dictionary(
    sums: Sums, dictionary: np.ndarray, gamma_d: np.ndarray, shape: LayerShape, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw every atom given the others, from the sums over whole images.

    Returns (dictionary (atom, plane, atom_row, atom_col), change of sum gamma_e ||E||^2).
    """
    planes, (h, w) = shape.planes, shape.atom_size
    atoms = np.array(dictionary.transpose(0, 2, 3, 1), float, order="C").reshape(shape.atoms, h, -1)  # a copy
    gamma_d = np.broadcast_to(gamma_d, (shape.atoms, planes))
    grams = toeplitz(np.stack([sums.pairs[k, k] for k in range(shape.atoms)]), shape.atom_size)
    linear_terms, change = sums.cross.copy(), 0.0
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
                    there = atoms[other, a + p, start + q * planes : stop + q * planes]
                    for t in range(stop - start):
                        line[t] -= value * there[t]


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
                there = atoms[:, a + p, start + q * planes : stop + q * planes]
                out[:, a, start:stop] -= value @ there


def pixel_pairs(atom_size: tuple[int, int], reach: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lag a' - a of every pair of pixels of an atom, counted from -reach: rows, columns, whether it is in reach.

    Each (row, col, row', col'), or broadcasts to it.
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


def draw_masked_dictionary(
    shared: Shared, local: Local, residual: np.ndarray, observed: tuple[np.ndarray, np.ndarray], shape: LayerShape,
    generator: np.random.Generator, shard: Shard,
) -> np.ndarray:
    """Draw every atom given the others: (atom, plane, atom_row, atom_col). Changes ``residual``, which stays current.

    residual : (image, row, col * plane), 0 where hidden
    observed : 1 or 0; (image, row, col * plane), and (image, plane or 1, row, col) with one plane if all agree
    """
    dictionary = shared.dictionary.astype(float).copy()
    gamma_d = np.broadcast_to(shared.gamma_d, (shape.atoms, shape.planes)).astype(float)
    gamma_e = np.ascontiguousarray(np.broadcast_to(local.gamma_e, len(residual)))
    for k in range(shape.atoms):
        gram, linear = atom_sums(local, residual, observed[1], gamma_e, shape, k, shard)
        linear += (gram @ dictionary[k].reshape(shape.planes, -1, 1))[..., 0]
        new = draw_atom(gram, linear, gamma_d[k], generator).reshape(1, shape.planes, *shape.atom_size)
        change = plane_last(new, residual.dtype) - plane_last(dictionary[k : k + 1], residual.dtype)

        def update(some: slice, _, k: int = k, change: np.ndarray = change) -> None:
            arrays = (array[some] for array in (residual, observed[0], local.z[:, k], local.w[:, k]))
            layer.change_atom(*arrays, change, layout_of(shape))

        share_out(len(residual), update)
        dictionary[k] = new[0]
    return dictionary


def atom_sums(
    local: Local, residual: np.ndarray, observed: np.ndarray, gamma_e: np.ndarray, shape: LayerShape, k: int,
    shard: Shard,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Sums over masked images for atom k: gram (plane or 1, hw, hw) and linear (plane, hw).

    .. math:: T_{aa'} = \sum_n \gamma_e \sum_u M_u S(u - a) S(u - a'), \qquad
              b_a = \sum_n \gamma_e \sum_u M_u E(u) S(u - a)

    with E the residual as it is, atom k not added back: that is T times the atom.
    ``observed`` (image, plane or 1, row, col) is M, ``gamma_e`` (image,).
    """
    (h, w), planes = shape.atom_size, shape.planes
    reach = tuple(2 * min(a, m) - 1 for a, m in zip(shape.atom_size, shape.map_size, strict=True))
    empty = layer.MaskedAtomSums(np.zeros((observed.shape[1], *reach, h, w)), np.zeros((h, w * planes)))
    z, w_k, layout = local.z[:, k], local.w[:, k], layout_of(shape)

    def run(share: Share) -> None:
        images = (array[share.images] for array in (residual, observed, gamma_e, z, w_k))
        layer.add_atom(*images, layout, share.sums)

    lags, linear = add_up(empty, shard, len(residual), run)
    row, col, inside = pixel_pairs(shape.atom_size, (reach[0] // 2, reach[1] // 2))
    half = lags[:, row, col, np.arange(h)[:, None, None, None], np.arange(w)[None, :, None, None]]
    half = np.where(inside, half, 0.0).reshape(-1, h * w, h * w)  # each pair of positions stands at one lag only
    gram = half + half.transpose(0, 2, 1) - half * np.eye(h * w)
    return gram, np.ascontiguousarray(linear.reshape(h * w, planes).T)


def layout_of(shape: LayerShape) -> Layout:
    """Sizes as the kernels want them."""
    return Layout(*shape.map_size, *shape.block, shape.planes, shape.input_size[1])


def plane_last(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(n, plane, row, col) to (n, row, col * plane)."""
    n, planes, rows, cols = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1), dtype).reshape(n, rows, cols * planes)


def draw_gamma_d(
    dictionary: np.ndarray, prior: Precision, current: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Precision of the atoms given them; a fixed one stays as it is."""
    norms = (dictionary**2).sum(axis=(2, 3))
    pixels = np.full(norms.shape, float(dictionary[0, 0].size))
    return draw_shared_precision(prior, pixels, norms, current, generator)


def draw_shared_precision(
    prior: Precision, number: np.ndarray, energy: np.ndarray, current: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw Gamma(shape + number/2, rate + energy/2), both summed over the axes along which ``current`` has size 1."""
    if prior.fixed is not None:
        return current
    number, energy = sum_shared(number, current.shape), sum_shared(energy, current.shape)
    return Gamma(prior.shape + number / 2, prior.rate + energy / 2).sample(generator)
