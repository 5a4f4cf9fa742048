"""The vote: to which position of its block each pixel of an upper atom is sent, in all images and at all shifts.

Under a deep model an atom of an upper layer looks different in every image, because each pixel of it goes to
whichever position of its block suits that image. The projection needs one position for good. Every image and every
shift at which the atom is used casts a vote, weighted by how much the likelihood gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from gdd.base.axes import BLOCKS, DICTIONARY, IMAGE, IMAGES, MAPS
from gdd.base.checks import GddError, as_plain
from gdd.base.compiling import kernel
from gdd.model.convolution import CHUNK, correlate, synthesise
from gdd.model.pooling import EMPTY, Size, block_places, cut_into_blocks


class Vote(NamedTuple):
    """Winning positions, and the share of the weight v^2 that they hold (NaN where there was none).

    Both (atom, plane, atom_row, atom_col): the axes of the dictionary above.
    """

    positions: np.ndarray
    share: np.ndarray


class Tally(NamedTuple):
    """Sums over images and shifts, all (atom, plane, atom_row * atom_col, position), for a pixel of value 1.

    gain : S gamma_e <r, phi_m>;  energy : S^2 gamma_e ||phi_m||^2;  weight : S^2 where m is the active position.
    """

    gain: np.ndarray
    energy: np.ndarray
    weight: np.ndarray


def vote_positions(images, dictionary, z, w, gamma_e, pool, upper_dictionary, upper_maps, mask=None) -> Vote:
    r"""Position of its block to which each pixel of each upper atom goes, by likelihood.

    .. math:: \hat Z(k', k, u) = \arg\max_m \sum_{n, s} \gamma_e
              \left( v \langle r, \phi_m \rangle - \tfrac12 v^2 \lVert \phi_m \rVert^2 \right),
              \qquad v = S_{nk'}[s] \, D_{k'k}[u]

    where the block is s + u, r is the layer's residual with that block's own contribution added back, and
    :math:`\phi_m` is atom k placed at position m. Ties, and atoms without any weight, take the lowest m.

    Parameters
    ----------
    images : (image, plane, row, col)                      X of this layer
    dictionary : (atom, plane, atom_row, atom_col)         D of this layer
    z, w : (image, atom, block_row, block_col)             blocks of this layer; z = -1 is empty
    gamma_e : (image or 1, plane or 1)                     noise precision of this layer
    pool : (rows, columns) of a full block of this layer
    upper_dictionary : (atom, plane, atom_row, atom_col)   D of the layer above; its planes are the atoms here
    upper_maps : (image, atom, row, col)                   S of the layer above
    mask : (image, plane, row, col) of bool, optional      True where a pixel was observed

    Returns
    -------
    Vote

    Raises
    ------
    GddError
        If shapes do not fit together, z points outside its block, or gamma_e is not positive.

    Notes
    -----
    A position that a ragged block does not have places nothing, so it scores 0 there; it can win only if the block
    at shift 0 has it. Sums run over images in index order for every plane apart, so neither the number of threads
    nor the chunk of images changes a bit. Memory: three sums of (atoms above x atoms x pixels x positions) numbers.

    Source: Pu, Yuan & Carin 2015, Sec. 2.4 ("ML across the different choices of the max pooling").
    Departs: the paper gives no formula, and no index for the atom above.
    Checked: tests/test_projection.py (against a plain loop; planted positions come back).
    """
    layer = _checked(images, dictionary, z, w, upper_dictionary, upper_maps)
    weights = _pixel_weights(layer.images, gamma_e, mask)
    where = block_places(layer.map_size, pool)
    _check_blocks(layer.z, layer.w, where)
    _check_upper(layer.z, layer.upper, layer.maps)
    tally = empty_tally(layer.upper, len(layer.dictionary), where.shape[2])
    for start in range(0, len(layer.images), CHUNK):
        part = slice(start, start + CHUNK)
        gain = _gains(layer.images[part], layer.dictionary, layer.z[part], layer.w[part], weights[part], where)
        norm = _norms(layer.dictionary, weights[part], layer.map_size, mask is not None)
        add_votes(
            cut_into_blocks(gain, pool), cut_into_blocks(norm, pool), layer.z[part], layer.maps[part],
            layer.upper.shape[2:], *tally,
        )  # fmt: skip
    pixels = layer.upper.reshape(*layer.upper.shape[:2], -1, 1)
    score = pixels * tally.gain - 0.5 * pixels**2 * tally.energy
    return elect(score, tally.weight * (pixels != 0), where, layer.upper.shape)


def vote_positions_by_weight(z, upper_dictionary, upper_maps, map_size: Size, pool: Size) -> Vote:
    r"""Position at which each pixel of each upper atom was most active: the alternative to `vote_positions`.

    .. math:: \hat Z(k', k, u) = \arg\max_m \sum_{n, s} v^2 \, [z_{nk}[s + u] = m]

    It needs the sampled positions only, neither images nor dictionary. Parameters as in `vote_positions`;
    `map_size` is the (rows, columns) of this layer's maps.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4 (an alternative reading).
    Departs: the paper gives no formula.
    Checked: tests/test_projection.py (against a plain loop).
    """
    z, upper = _double(z, BLOCKS, "z", np.int64), _double(upper_dictionary, DICTIONARY, "upper_dictionary")
    maps, where = _double(upper_maps, MAPS, "upper_maps"), block_places(map_size, pool)
    _check_blocks(z, z, where)
    _check_upper(z, upper, maps)
    tally = empty_tally(upper, z.shape[1], where.shape[2])
    nothing = np.zeros((CHUNK, *z.shape[1:], where.shape[2]))
    for start in range(0, len(z), CHUNK):
        part = slice(start, start + CHUNK)
        add_votes(nothing, nothing, z[part], maps[part], upper.shape[2:], *tally)
    weight = tally.weight * (upper.reshape(*upper.shape[:2], -1, 1) != 0)
    return elect(weight, weight, where, upper.shape)


def _gains(images, dictionary, z, w, weights, where):
    """gamma_e <r, phi_m> with each block's own contribution added back: (image, atom, row, col)."""
    map_size = tuple(i - d + 1 for i, d in zip(images.shape[2:], dictionary.shape[2:], strict=True))
    rows, cols = map_size
    maps = np.zeros((len(images), len(dictionary), rows, cols))
    _place_weights(maps.reshape(*maps.shape[:2], -1), z, w, where)
    gains = correlate(weights * (images - synthesise(dictionary, maps)), dictionary)
    _add_back(gains, z, w, np.ascontiguousarray(weights), dictionary, where)
    return gains


def _norms(dictionary, weights, map_size, masked):
    """gamma_e ||phi_m||^2, (image, atom, row, col); the same everywhere unless pixels are missing."""
    if masked:
        return correlate(weights, dictionary**2)
    norms = np.einsum("nc,kc->nk", weights[:, :, 0, 0], (dictionary**2).sum((2, 3)))
    return np.broadcast_to(norms[..., None, None], (*norms.shape, *map_size))


@kernel()
def _place_weights(maps, z, w, where):
    """Write each active weight into `maps` (image, atom, place): `unpool` in place."""
    for n, k, i, j in np.ndindex(z.shape):
        if z[n, k, i, j] >= 0:
            maps[n, k, where[i, j, z[n, k, i, j]]] = w[n, k, i, j]


@kernel(parallel=True, nogil=True)
def _add_back(gains, z, w, weights, dictionary, where):
    """Add w <phi_z, phi_m> (weighted by pixel) to `gains` at every position m of every active block, in place."""
    cols = gains.shape[3]
    height, width = dictionary.shape[2:]
    for n in numba.prange(z.shape[0]):
        for k, i, j in np.ndindex(z.shape[1:]):
            if z[n, k, i, j] < 0 or w[n, k, i, j] == 0:
                continue
            active = where[i, j, z[n, k, i, j]]
            row, col = active // cols, active % cols
            for m in range(where.shape[2]):
                if where[i, j, m] < 0:
                    continue
                down, right = where[i, j, m] // cols - row, where[i, j, m] % cols - col
                total = 0.0
                for c in range(dictionary.shape[1]):
                    for a in range(max(0, down), min(height, height + down)):
                        for b in range(max(0, right), min(width, width + right)):
                            here = weights[n, c, row + a, col + b] * dictionary[k, c, a, b]
                            total += here * dictionary[k, c, a - down, b - right]
                gains[n, k, row + down, col + right] += w[n, k, i, j] * total


@kernel(parallel=True, nogil=True)
def add_votes(gain, norm, z, maps, atom_size, gain_sum, energy_sum, weight_sum):
    """Add the votes of some images to the three sums, in place: a thread per plane, images in index order."""
    height, width = atom_size
    positions = gain.shape[4]
    for k in numba.prange(gain.shape[1]):
        for n, upper, s, t in np.ndindex(maps.shape):
            value = maps[n, upper, s, t]
            if value == 0:
                continue
            for a in range(height):
                for b in range(width):
                    pixel = a * width + b
                    for m in range(positions):
                        gain_sum[upper, k, pixel, m] += value * gain[n, k, s + a, t + b, m]
                        energy_sum[upper, k, pixel, m] += value * value * norm[n, k, s + a, t + b, m]
                    active = z[n, k, s + a, t + b]
                    if active >= 0:
                        weight_sum[upper, k, pixel, active] += value * value


def empty_tally(upper, planes, positions) -> Tally:
    """Sums before any vote was cast."""
    shape = (len(upper), planes, upper.shape[2] * upper.shape[3], positions)
    return Tally(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def elect(score, weight, where, shape) -> Vote:
    """Highest score among the positions that the block at shift 0 has; the first of equals."""
    exists = where[: shape[2], : shape[3]].reshape(-1, where.shape[2]) >= 0
    winner = np.where(exists, score, -np.inf).argmax(-1)
    held = np.take_along_axis(weight, winner[..., None], axis=-1)[..., 0]
    total = weight.sum(-1)
    share = np.divide(held, total, out=np.full(total.shape, np.nan), where=total > 0)
    return Vote(winner.astype(np.int16).reshape(shape), share.reshape(shape))


class _Layer(NamedTuple):
    """Checked arguments of a vote, in double precision."""

    images: np.ndarray
    dictionary: np.ndarray
    z: np.ndarray
    w: np.ndarray
    upper: np.ndarray
    maps: np.ndarray

    @property
    def map_size(self) -> Size:
        return tuple(i - d + 1 for i, d in zip(self.images.shape[2:], self.dictionary.shape[2:], strict=True))


def _checked(images, dictionary, z, w, upper_dictionary, upper_maps) -> _Layer:
    layer = _Layer(
        _double(images, IMAGES, "images"),
        _double(dictionary, DICTIONARY, "dictionary"),
        _double(z, BLOCKS, "z", np.int64),
        _double(w, BLOCKS, "w"),
        _double(upper_dictionary, DICTIONARY, "upper_dictionary"),
        _double(upper_maps, MAPS, "upper_maps"),
    )
    for axis, pixels, atom in zip(IMAGES[2:], layer.images.shape[2:], layer.dictionary.shape[2:], strict=True):
        if atom > pixels:
            raise GddError(f"dictionary: atoms of size {atom} along axis '{axis}', larger than the {pixels} of images")
    _same("dictionary", layer.dictionary.shape[1], "images", layer.images.shape[1], "plane")
    _same("z", layer.z.shape[0], "images", len(layer.images), IMAGE)
    _same("z", layer.z.shape[1], "dictionary", len(layer.dictionary), "atom")
    return layer


def _double(array, dims, argument, kind=float) -> np.ndarray:
    array = as_plain(array, dims, argument)
    if kind is not float and not np.issubdtype(array.dtype, np.integer):
        raise GddError(f"{argument}: numbers of type {array.dtype}; whole numbers are needed")
    if not np.isfinite(array).all():
        raise GddError(f"{argument}: a value is NaN or infinite; all must be finite")
    return np.ascontiguousarray(array, kind)


def _pixel_weights(images, gamma_e, mask) -> np.ndarray:
    """gamma_e of every pixel, 0 where it was not observed: the axes of images."""
    gamma_e = as_plain(gamma_e, (IMAGE, "plane"), "gamma_e").astype(float)
    if not ((gamma_e > 0) & np.isfinite(gamma_e)).all():
        raise GddError(f"gamma_e: {gamma_e[~(gamma_e > 0) | np.isinf(gamma_e)][0]} given; all must be positive")
    for axis, have, need in zip(IMAGES[:2], gamma_e.shape, images.shape[:2], strict=True):
        if have not in (1, need):
            raise GddError(f"gamma_e: axis '{axis}' has size {have}; 1 or {need} is needed")
    weights = np.broadcast_to(gamma_e[:, :, None, None], images.shape)
    if mask is None:
        return weights
    if np.shape(mask) != images.shape or np.asarray(mask).dtype != bool:
        raise GddError(f"mask: shape {np.shape(mask)}; bool of the shape of images, {images.shape}, is needed")
    return weights * np.asarray(mask)


def _check_blocks(z, w, where) -> None:
    grid, positions = where.shape[:2], where.shape[2]
    if z.shape != w.shape or z.shape[2:] != grid:
        raise GddError(f"z: blocks of shape {z.shape}, w: {w.shape}; the last two axes must be {grid} in both")
    if z.min() < EMPTY or z.max() >= positions:
        raise GddError(f"z: positions from {z.min()} to {z.max()}; -1 .. {positions - 1} are possible")
    if (np.take_along_axis(where[None, None], np.maximum(z, 0)[..., None], axis=-1)[..., 0][z >= 0] < 0).any():
        raise GddError("z: a position lies outside its ragged block; see block_places for those that exist")


def _check_upper(z, upper, maps) -> None:
    _same("upper_dictionary", upper.shape[1], "z", z.shape[1], "plane")
    _same("upper_maps", maps.shape[1], "upper_dictionary", len(upper), "atom")
    _same("upper_maps", len(maps), "z", len(z), IMAGE)
    for axis, n, a, grid in zip(IMAGES[2:], maps.shape[2:], upper.shape[2:], z.shape[2:], strict=True):
        _same("upper_maps", n, "blocks of z less atom, plus 1", grid - a + 1, axis)


def _same(first, here, second, there, axis) -> None:
    if here != there:
        raise GddError(f"{first}: axis '{axis}' has size {here}; {there} is needed, as of {second}")
