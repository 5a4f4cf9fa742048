"""The top dictionary in the image plane (Sec. 2.4): vote, collapse, render.

Under a deep model an atom of an upper layer looks different in every image, because the position of each of its pixels
within a pooling block varies between images. The projection fixes one position per pixel, the same in all images and at
all shifts. A vote by likelihood chooses it, `collapse` convolves the layers into one, and `render_projected`
synthesises images from the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import DICTIONARY, IMAGES, MAPS
from gdd.base.checks import GddError, as_finite, check_kind, check_pair, check_whole
from gdd.base.compiling import kernel, share_out
from gdd.model.convolution import CHUNK, correlate, synthesise, valid_size
from gdd.model.joint import joint_residual, layer_values
from gdd.model.pooling import Blocks, Size, cut_into_blocks, map_indices, repeat_blocks, spread, unpool
from gdd.model.spec import ModelSpec
from gdd.model.state import JointState, LayerData, maps_of, of_images
from gdd.sampler.pretrain import Fitted, Pretrained
from gdd.sampler.refine import Refined

# ---- a model's atoms in the image plane


def project(trained: Pretrained | Refined) -> xr.DataArray:
    """Top atoms of a trained model in the image plane.

    Parameters
    ----------
    trained : a pretrained or a refined model

    Returns
    -------
    DataArray (atom, plane, atom_row, atom_col)
        The attribute ``winning_share`` holds, for every pooled layer from the bottom, the share of the weight at the
        winning positions: 1 if the chain always pooled where the projection does, 1/B if it had no preference.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.4.
    Departs: the paper gives no formula for the vote; after pretraining each layer votes on its own residual.
    Checked: tests/test_projection.py, tests/test_projection_joint.py, tests/test_pipeline.py.
    """
    return project_layers(trained)[-1]


def project_layers(trained: Pretrained | Refined, images: int | None = None) -> tuple[xr.DataArray, ...]:
    """Atoms of every layer in the image plane (Fig. 3 and 5), bottom first; the last is the result of `project`.

    ``images`` : number of training images that vote in a refined model, the first ones; None for all. With three layers
        a vote of all images takes longer than many sweeps
    """
    check_kind("trained", trained, (Pretrained, Refined))
    data = trained.inputs if isinstance(trained, Pretrained) else trained.data
    if not data and len(trained.model.layers) > 1:
        raise GddError("trained: of a file, which has no images to vote; use the `atoms_` of the model that was loaded")
    if isinstance(trained, Pretrained):
        dictionaries = [layer.state.shared.dictionary for layer in trained.layers]
        votes = vote_pretrained(trained)
    else:
        cut = slice(None if images is None else check_whole("images", images, 1))
        state, data = of_images(trained.state, trained.data, cut)
        dictionaries, votes = state.shared.dictionaries, vote_joint(state, data, trained.model)
    shares = [float(np.nanmean(vote.share)) for vote in votes]
    positions = [vote.positions for vote in votes]
    layers = collapse(dictionaries, [layer.pool for layer in trained.model.layers[:-1]], positions)
    return tuple(
        xr.DataArray(atoms, dims=DICTIONARY, name="projected_atoms", attrs={"winning_share": shares[:below]})
        for below, atoms in enumerate(layers)
    )


# ---- collapse and render


def collapse(
    dictionaries: Sequence[np.ndarray], pools: Sequence[Size], positions: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    r"""Dictionaries of all layers in the image plane, the positions of their pixels being known.

    .. math:: \tilde D^{(k_L)} = \sum_{k_1 \dots k_{L-1}} D^{(k_1, 1)} * \hat D^{(k_1, k_2, 2)} * \dots *
              \hat D^{(k_{L-1}, k_L, L)}, \qquad
              \hat D^{(l)} = h\left(g(D^{(l)}, n^{l-1}) \odot \hat Z^{(l-1)}, \; n^1 \cdots n^{l-2}\right)

    dictionaries : per layer, bottom first: (atom, plane, atom_row, atom_col)
    pools : per layer but the top one: (rows, columns) of a block
    positions : per layer but the bottom one, in its dictionary's axes: `Vote.positions` of the pool below it; None
        spreads a value in equal parts over all positions of its block

    Returns a picture of each atom, (atom, plane, row, col), bottom layer first.

    *Source:* Pu, Yuan & Carin 2015, supplement, "Layer Collapsing Approximation Method".
    *Departs:* Zhat depends on the atom above too; Dhat holds up to l = L and keeps Zhat of the layer below
    (P10, P17 in the errata).
    *Checked:* tests/test_projection.py (equals the layered image where that is exact; broken where it is not).
    """
    projected, (row, col) = [dictionaries[0]], (1, 1)
    for upper, (p, q), zhat in zip(dictionaries[1:], pools, positions, strict=True):
        if zhat is None:
            unpooled = repeat_blocks(upper, (p, q)) / (p * q)
        else:
            unpooled = unpool(zhat, upper, (upper.shape[2] * p, upper.shape[3] * q), (p, q))
        projected.append(synthesise(projected[-1], spread(unpooled, (row, col))))
        row, col = row * p, col * q
    return projected


def render_projected(projected, top_maps, step: Size, image_size: Size) -> np.ndarray:
    """Synthesise images (image, plane, row, col) from projected atoms and maps of the top layer.

    projected : (atom, plane, atom_row, atom_col)
    top_maps : (image, atom, row, col)
    step : pixels (row, col) between positions, `ModelSpec.stride`
    image_size : (rows, columns); with ragged blocks the sum is larger and is cropped

    *Source:* Pu, Yuan & Carin 2015, supplement, "Testing". *Departs:* the printed equation lacks h (P16 in the errata).
    *Checked:* tests/test_projection.py.
    """
    image_size = check_pair("image_size", image_size)
    images = synthesise(projected, spread(as_finite(top_maps, MAPS, "top_maps"), step))
    for axis, have, need in zip(IMAGES[2:], images.shape[2:], image_size, strict=True):
        if have < need:
            raise GddError(f"image_size: axis '{axis}' has size {need}; atoms and maps reach {have}")
    return images[..., : image_size[0], : image_size[1]]


# ---- the vote


class Vote(NamedTuple):
    """Winning positions and their share of the total weight v^2, NaN where that is zero.

    Both have the axes of the dictionary above, (atom, plane, atom_row, atom_col).
    """

    positions: np.ndarray
    share: np.ndarray


def vote_pretrained(fitted: Pretrained) -> list[Vote]:
    """Vote of every pooled layer on its own residual, bottom first."""

    def vote(below: Fitted, above: Fitted, data: LayerData) -> Vote:
        local, shared = below.state
        return vote_positions(
            data.images, shared.dictionary, Blocks(local.z, local.w), local.gamma_e, below.spec.pool,
            above.state.shared.dictionary, maps_of(above.state.local, above.shape), data.mask,
        )

    pairs = zip(fitted.layers, fitted.layers[1:], fitted.inputs, strict=False)
    return [vote(*pair) for pair in pairs]


def vote_joint(state: JointState, data: LayerData, model: ModelSpec) -> list[Vote]:
    """Vote of every pooled layer on the residual of the data, under the joint model; bottom first.

    The formula is that of `vote_positions`. In an upper layer phi_m is the image of a unit at position m, synthesised
    down through each image's own positions. *Checked:* tests/test_projection_joint.py (against a plain loop).
    """
    shapes, (local, (dictionaries, *_)) = model.shapes(), state
    if len(shapes) == 1:
        return []
    values = layer_values(local, dictionaries, shapes)
    blocks = [*map(Blocks, local.positions, values[1:]), Blocks(local.z, local.w)]
    maps = [unpool(z, w, shape.map_size, shape.block) for (z, w), shape in zip(blocks, shapes, strict=True)]
    votes = [
        vote_positions(
            data.images, dictionaries[0], blocks[0], local.gamma_e, shapes[0].block, dictionaries[1], maps[1],
            data.mask,
        )
    ]
    residual = joint_residual(state, data, model)
    weights = _pixel_weights(local.gamma_e, data.images.shape, data.mask)
    for layer in range(1, len(shapes) - 1):
        where = map_indices(shapes[layer].map_size, shapes[layer].block)
        votes_of_images = [(slice(None), *_unit_gains(residual, weights, blocks[layer], state, model, layer))]
        votes.append(_choose_winners(votes_of_images, blocks[layer].z, dictionaries[layer + 1], maps[layer + 1], where))
    return votes


def vote_positions(images, dictionary, blocks, gamma_e, pool, upper_dictionary, upper_maps, mask=None) -> Vote:
    r"""Maximum-likelihood position, within its block, of each pixel of each upper atom.

    .. math:: \hat Z(k', k, u) = \arg\max_m \sum_{n, s} \gamma_e
              \left( v \langle r, \phi_m \rangle - \tfrac12 v^2 \lVert \phi_m \rVert^2 \right),
              \qquad v = S_{nk'}[s] \, D_{k'k}[u]

    where the block is s + u, r is the layer's residual with that block's own contribution added back, and
    :math:`\phi_m` is atom k placed at position m. Ties, and atoms without any weight, take the lowest m.

    images : (image, plane, row, col)                      X of this layer
    dictionary : (atom, plane, atom_row, atom_col)         D of this layer
    blocks : z and w, (image, atom, block_row, block_col)  blocks of this layer; z = -1 is empty
    gamma_e : (image or 1,)                                noise precision of this layer
    pool : (rows, columns) of a full block of this layer
    upper_dictionary : (atom, plane, atom_row, atom_col)   D of the layer above; its planes are the atoms here
    upper_maps : (image, atom, row, col)                   S of the layer above
    mask : (image, plane, row, col) of bool, optional      True where a pixel was observed

    A position scores 0 in a ragged block that lacks it; it can win only if the block at shift 0 has it. Sums run over
    images in index order, separately for every plane, so the bits depend neither on the number of threads nor on the
    chunks of images. Memory: three sums of (atoms above x atoms x pixels x positions) numbers.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.4 ("ML across the different choices of the max pooling").
    *Departs:* the paper gives no formula, and no index for the atom above.
    *Checked:* tests/test_projection.py (against a plain loop; planted positions come back).
    """
    images, dictionary, w = (np.ascontiguousarray(part, float) for part in (images, dictionary, blocks[1]))
    z, weights = np.asarray(blocks[0]), _pixel_weights(gamma_e, images.shape, mask)
    map_size = valid_size(images, dictionary)
    where = map_indices(map_size, pool)

    def votes(part: slice) -> tuple[slice, np.ndarray, np.ndarray]:
        residual = images[part] - synthesise(dictionary, unpool(z[part], w[part], map_size, pool))
        gain = correlate(weights[part] * residual, dictionary)
        chunk = gain, z[part], w[part], np.ascontiguousarray(weights[part])
        share_out(len(gain), lambda batch, _: _add_self_products(*(array[batch] for array in chunk), dictionary, where))
        if mask is None:
            norm = np.einsum("nc,kc->nk", weights[part, :, 0, 0], (dictionary**2).sum(axis=(2, 3)))
            norm = np.broadcast_to(norm[..., None, None], gain.shape)
        else:
            norm = correlate(weights[part], dictionary**2)
        return part, cut_into_blocks(gain, pool), cut_into_blocks(norm, pool)

    chunks = (votes(slice(start, start + CHUNK)) for start in range(0, len(images), CHUNK))
    return _choose_winners(chunks, z, upper_dictionary, upper_maps, where)


def _pixel_weights(gamma_e, shape, mask) -> np.ndarray:
    """Noise precision of every pixel, 0 where it is hidden: (image, plane, row, col)."""
    weights = np.broadcast_to(np.asarray(gamma_e, float)[:, None, None, None], shape)
    return weights if mask is None else weights * mask


def _choose_winners(votes: Iterable[tuple[slice, np.ndarray, np.ndarray]], z, upper, maps, where) -> Vote:
    """Sum the votes of all chunks of images; the highest score among the positions of the block at shift 0 wins.

    votes : of each chunk its slice, then gamma_e <r, phi_m> and gamma_e |phi_m|^2, both (image, atom, block_row,
        block_col, position)
    """
    upper, maps = np.ascontiguousarray(upper, float), np.ascontiguousarray(maps, float)
    gain, energy, weight = sums = np.zeros((3, *upper.shape[:2], upper[0, 0].size, where.shape[2]))
    for part, gains, norms in votes:
        chunk = gains, norms, z[part], maps[part], upper.shape[2:]
        share_out(upper.shape[1], lambda planes, _, chunk=chunk: _add_votes((planes.start, planes.stop), *chunk, sums))
    pixels = upper.reshape(*upper.shape[:2], -1, 1)
    score, weight = pixels * gain - 0.5 * pixels**2 * energy, weight * (pixels != 0)
    exists = where[: upper.shape[2], : upper.shape[3]].reshape(-1, where.shape[2]) >= 0
    winner = np.where(exists, score, -np.inf).argmax(-1)
    winning_weight, total = np.take_along_axis(weight, winner[..., None], axis=-1)[..., 0], weight.sum(-1)
    share = np.divide(winning_weight, total, out=np.full(total.shape, np.nan), where=total > 0)
    return Vote(winner.astype(np.int16).reshape(upper.shape), share.reshape(upper.shape))


@kernel()
def _add_votes(planes, gain, norm, z, maps, atom_size, sums):
    """Add a chunk of images' votes for a pixel of value 1 to ``sums`` (3, atom, plane, pixel, position), in place.

    The sums are over images in index order, of S gamma_e <r, phi_m>, S^2 gamma_e |phi_m|^2, and S^2 where m is active;
    ``planes`` is the range of planes.
    """
    (height, width), positions = atom_size, gain.shape[4]
    gain_sum, energy_sum, weight_sum = sums[0], sums[1], sums[2]
    for k in range(planes[0], planes[1]):
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


@kernel()
def _add_self_products(gains, z, w, weights, dictionary, where):
    """Add w <phi_z, phi_m>, weighted by pixel, to ``gains`` at every position m of every active block, in place."""
    cols = gains.shape[3]
    height, width = dictionary.shape[2:]
    for n in range(z.shape[0]):
        for k, i, j in np.ndindex(z.shape[1:]):
            if z[n, k, i, j] < 0 or w[n, k, i, j] == 0:
                continue
            active = where[i, j, z[n, k, i, j]]
            row, col = active // cols, active % cols
            for m in range(where.shape[2]):
                if where[i, j, m] < 0:
                    continue
                lag_row, lag_col = where[i, j, m] // cols - row, where[i, j, m] % cols - col
                total = 0.0
                for c in range(dictionary.shape[1]):
                    for a in range(max(0, lag_row), min(height, height + lag_row)):
                        for b in range(max(0, lag_col), min(width, width + lag_col)):
                            pixel = weights[n, c, row + a, col + b] * dictionary[k, c, a, b]
                            total += pixel * dictionary[k, c, a - lag_row, b - lag_col]
                gains[n, k, row + lag_row, col + lag_col] += w[n, k, i, j] * total


def _unit_gains(residual, weights, blocks: Blocks, state: JointState, model: ModelSpec, layer: int):
    """gamma_e <r, phi_m> and gamma_e |phi_m|^2 of an upper layer, (image, atom, block_row, block_col, position).

    The cost is one synthesis, within a unit's window, for every training image and position of a map.
    """
    z, w = blocks
    gain, norm = np.zeros((2, *z.shape, np.prod(model.shapes()[layer].block)))
    every_image = np.arange(len(z))
    for k, i, j in np.ndindex(z.shape[1:]):
        window, units = unit_responses(state, model, layer, k, (i, j))
        values = np.where(z[:, k, i, j] >= 0, w[:, k, i, j], 0.0)
        contribution = values[:, None, None, None] * units[z[:, k, i, j], every_image]
        weighted = weights[window] * units
        gain[:, k, i, j] = (weighted * (residual[window] + contribution)).sum(axis=(2, 3, 4)).T
        norm[:, k, i, j] = (weighted * units).sum(axis=(2, 3, 4)).T
    return gain, norm


def unit_responses(state: JointState, model: ModelSpec, layer: int, atom: int, block: tuple[int, int]):
    """Images of one atom at every position of one block, down through every training image's own positions.

    Returns slices, the window that the block affects, and its content (position, image, plane, row, col), which is 0
    for positions that a ragged block lacks.
    """
    shapes, (local, (dictionaries, *_)) = model.shapes(), state
    (p, q), (rows, cols), (height, width) = (shapes[layer].block, shapes[layer].map_size, shapes[layer].atom_size)
    row, col = block[0] * p, block[1] * q
    size = min(p, rows - row), min(q, cols - col)  # edge blocks may be ragged
    patch = np.zeros((p * q, len(local.z), shapes[layer].planes, size[0] + height - 1, size[1] + width - 1))
    for a, b in np.ndindex(size):
        patch[a * q + b, :, :, a : a + height, b : b + width] = dictionaries[layer][atom]
    for below in reversed(range(layer)):
        shape, atoms = shapes[below], np.ascontiguousarray(dictionaries[below], float)
        (p, q), (rows, cols) = shape.block, shape.map_size
        reach = np.s_[:, :, row : row + patch.shape[3], col : col + patch.shape[4]]
        row, col = row * p, col * q
        size = min(patch.shape[3] * p, rows - row), min(patch.shape[4] * q, cols - col)
        height, width = size[0] + shape.atom_size[0] - 1, size[1] + shape.atom_size[1] - 1
        out = np.zeros((*patch.shape[:2], shape.planes, height, width))
        _add_blocks(out, np.ascontiguousarray(local.positions[below][reach]), patch, shape.block, atoms)
        patch = out
    return np.s_[:, :, row : row + patch.shape[3], col : col + patch.shape[4]], patch


@kernel()
def _add_blocks(out, z, values, block, dictionary):
    """Add each block's atom at its position, times its value, to ``out`` (unit, image, plane, row, col), in place.

    z : (image, atom, block_row, block_col), values : (unit, image, atom, block_row, block_col)
    """
    planes, height, width = dictionary.shape[1:]
    for unit, n, k, i, j in np.ndindex(values.shape):
        m, value = z[n, k, i, j], values[unit, n, k, i, j]
        if m < 0 or value == 0:
            continue
        top, left = i * block[0] + m // block[1], j * block[1] + m % block[1]
        for c in range(planes):
            for a in range(height):
                for b in range(width):
                    out[unit, n, c, top + a, left + b] += value * dictionary[k, c, a, b]
