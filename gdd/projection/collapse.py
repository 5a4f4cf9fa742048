"""From the top dictionary to the data plane: one pooling map per atom, chosen by a vote, then convolution.

Under a deep model an atom of an upper layer looks different in every image, because each pixel of it goes to
whichever position of its block suits that image. The projection gives every pixel one position for good, the same
in all images and at all shifts. `vote_positions` chooses it (gdd/projection/voting.py), `project` carries the atoms
down.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from gdd.base.axes import DICTIONARY, IMAGES, MAPS
from gdd.base.checks import GddError, as_finite, as_plain, check_block, check_kind, check_pair, check_real
from gdd.model.convolution import synthesise
from gdd.model.pooling import Blocks, Size, repeat_blocks, spread, unpool
from gdd.projection.voting import Vote, vote_positions, vote_positions_by_weight

__all__ = [
    "Vote", "blocks_following", "project", "projected_shapes", "render_projected", "stride", "threshold",
    "vote_positions", "vote_positions_by_weight",
]  # fmt: skip


def stride(pools: Sequence[Size]) -> Size:
    """Distance in pixels of the data plane between neighbours of the top map: the product of the pools."""
    check_kind("pools", pools, (tuple, list))
    pools = [check_pair(f"pools[{number}]", pool) for number, pool in enumerate(pools)]
    return prod(p for p, _ in pools), prod(q for _, q in pools)


def projected_shapes(atom_sizes: Sequence[Size], pools: Sequence[Size]) -> tuple[Size, ...]:
    """Size in the data plane of the atoms of every layer, bottom first.

    ``pools`` lists the pools between the layers, one fewer than the atoms. For MNIST: (8, 8), (25, 25).

    Raises
    ------
    GddError
        If there is not one pool fewer than atoms.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Layer Collapsing".
    Departs: full convolution has n_d + n_w - 1 rows (P8 in the errata).
    Checked: tests/test_projection.py (every setting of the paper).
    """
    _check_layers(atom_sizes, pools, "atom_sizes, pools")
    atom_sizes = [check_pair(f"atom_sizes[{number}]", size) for number, size in enumerate(atom_sizes)]
    pools, sizes = [check_pair(f"pools[{n}]", pool) for n, pool in enumerate(pools)], atom_sizes[:1]
    for level, (atom, pool) in enumerate(zip(atom_sizes[1:], pools, strict=True)):
        step = stride(pools[:level])
        sizes.append(tuple(s + (a * p - 1) * n for s, a, p, n in zip(sizes[-1], atom, pool, step, strict=True)))
    return tuple(sizes)


def project(dictionaries: Sequence, pools: Sequence[Size], positions: Sequence) -> np.ndarray:
    r"""Carry the atoms of the top layer down to the data plane.

    .. math:: \tilde D^{(k_L)} = \sum_{k_1 \dots k_{L-1}} D^{(k_1, 1)} * \hat D^{(k_1, k_2, 2)} * \dots *
              \hat D^{(k_{L-1}, k_L, L)}, \qquad
              \hat D^{(l)} = h\left(g(D^{(l)}, n^{l-1}) \odot \hat Z^{(l-1)}, \; n^1 \cdots n^{l-2}\right)

    Parameters
    ----------
    dictionaries : per layer, bottom first: (atom, plane, atom_row, atom_col)
    pools : per layer but the top one: (rows, columns) of a block
    positions : per layer but the bottom one, in its dictionary's axes: `Vote.positions` of the pool below it;
        None for an average-pooled layer, where a value goes in equal parts to all positions of its block

    Returns
    -------
    (atom, plane, row, col)
        One image per top atom, of the planes of the data. An image of the model is the sum over atoms of
        ``returned * spread(S, stride(pools))``: see `render_projected`.

    Raises
    ------
    GddError
        If the layers do not fit together, or a position lies outside its block.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Layer Collapsing Approximation Method".
    Departs: Zhat depends on the atom above too; Dhat holds up to l = L and keeps Zhat of the layer below
    (P10, P17 in the errata).
    Checked: tests/test_projection.py (equals the layered image where that is exact; broken where it is not).
    """
    _check_layers(dictionaries, pools, "dictionaries, pools")
    _check_layers(dictionaries, positions, "dictionaries, positions")
    pools = [check_block(f"pools[{number}]", pool) for number, pool in enumerate(pools)]
    projected = as_finite(dictionaries[0], DICTIONARY, "dictionaries[0]")
    for level, (upper, zhat) in enumerate(zip(dictionaries[1:], positions, strict=True)):
        upper = as_finite(upper, DICTIONARY, f"dictionaries[{level + 1}]")
        if upper.shape[1] != len(projected):
            raise GddError(
                f"dictionaries[{level + 1}]: axis 'plane' has size {upper.shape[1]}; "
                f"{len(projected)} is needed, the atoms of dictionaries[{level}]"
            )
        unpooled = _unpooled(upper, zhat, pools[level], f"positions[{level}]")
        projected = synthesise(projected, spread(unpooled, stride(pools[:level])))
    return projected


def _unpooled(upper: np.ndarray, positions, pool: Size, argument: str) -> np.ndarray:
    """g(D) o Zhat of every atom and plane; without positions, the mean over all of them."""
    if positions is None:
        return repeat_blocks(upper, pool) / (pool[0] * pool[1])
    positions = as_plain(positions, DICTIONARY, argument)
    if positions.shape != upper.shape:
        raise GddError(f"{argument}: shape {positions.shape}; that of the dictionary above, {upper.shape}, is needed")
    return unpool(positions, upper, (upper.shape[2] * pool[0], upper.shape[3] * pool[1]), pool)


def render_projected(projected, top_maps, step: Size, image_size: Size) -> np.ndarray:
    """Images that projected atoms and maps of the top layer add up to, (image, plane, row, col).

    ``step`` is `stride` of the pools. Where edge blocks are ragged the sum is larger than the image and is cropped.

    Raises
    ------
    GddError
        If the sum is smaller than the image.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Testing".
    Departs: the printed equation lacks h (P16 in the errata).
    Checked: tests/test_projection.py.
    """
    image_size, top_maps = check_pair("image_size", image_size), as_finite(top_maps, MAPS, "top_maps")
    images = synthesise(projected, spread(top_maps, step))
    for axis, have, need in zip(IMAGES[2:], images.shape[2:], image_size, strict=True):
        if have < need:
            raise GddError(f"image_size: axis '{axis}' has size {need}; atoms and maps reach {have}")
    return images[..., : image_size[0], : image_size[1]]


def threshold(atoms, share: float = 0.3) -> np.ndarray:
    """Set to zero what is weaker than ``share`` of an atom's strongest pixel, and what has the other sign.

    An atom and its weights may change sign together, so each atom is turned until its strongest pixel is positive.

    Parameters
    ----------
    atoms : (atom, plane, atom_row, atom_col)
    share : from 0 to 1

    Returns
    -------
    (atom, plane, atom_row, atom_col)

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 4 (Fig. 2a, right).
    Departs: the paper says neither which threshold nor what became of the signs.
    Checked: tests/test_projection_joint.py.
    """
    atoms, share = as_finite(atoms, DICTIONARY, "atoms").astype(float), check_real("share", share, 0, 1)
    flat = atoms.reshape(len(atoms), -1)
    strongest = np.take_along_axis(flat, np.abs(flat).argmax(axis=1)[:, None], axis=1)[:, :, None, None]
    turned = atoms * np.sign(strongest)
    return np.where(turned >= share * np.abs(strongest), turned, 0.0)


def blocks_following(positions, upper_dictionary, upper_maps) -> Blocks:
    """Blocks under given maps of the layer above, when each follows the vote of what brings most into it.

    The value of a block is the sum of all contributions, its position that of the largest one. Blocks that nothing
    reaches have the value 0 at position 0. Where one coefficient reaches a block, this is what `project` assumes.

    Parameters
    ----------
    positions : (atom, plane, atom_row, atom_col)          `Vote.positions`
    upper_dictionary : (atom, plane, atom_row, atom_col)
    upper_maps : (image, atom, row, col)

    Returns
    -------
    Blocks
        z and w, both (image, plane, block_row, block_col).

    Raises
    ------
    GddError
        If the arrays do not fit together.

    Notes
    -----
    Source: our own measure of the projection's error.
    Departs: the paper does not measure it.
    Checked: tests/test_projection.py.
    """
    upper, maps = as_finite(upper_dictionary, DICTIONARY, "upper_dictionary"), as_finite(upper_maps, MAPS, "upper_maps")
    positions = as_finite(positions, DICTIONARY, "positions")
    if positions.shape != upper.shape:
        raise GddError(f"positions: shape {positions.shape}; that of upper_dictionary, {upper.shape}, is needed")
    w = synthesise(upper, maps)
    z, most = np.zeros(w.shape, np.int16), np.zeros(w.shape)
    for image, atom, row, col in np.argwhere(maps):
        reach = np.s_[image, :, row : row + upper.shape[2], col : col + upper.shape[3]]
        brought = np.abs(maps[image, atom, row, col] * upper[atom])
        z[reach] = np.where(brought > most[reach], positions[atom], z[reach])
        most[reach] = np.maximum(brought, most[reach])
    return Blocks(z, np.where(most > 0, w, 0))


def _check_layers(layers: Sequence, given: Sequence, argument: str) -> None:
    for part in (layers, given):
        check_kind(argument, part, (tuple, list))
    if not layers or len(given) != len(layers) - 1:
        raise GddError(f"{argument}: {len(given)} given for {len(layers)} layers; one fewer than layers is needed")
