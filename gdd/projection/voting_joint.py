"""The vote under the joint model: one residual, that of the data, judges the positions of every pooled layer.

For the bottom layer `gdd.projection.voting.vote_positions` does as it stands. Higher up, what a unit at a position
looks like in
the data differs from image to image, as it goes down through that image's own positions; it is worked out here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdd.base.compiling import kernel
from gdd.model.joint import joint_residual, layer_values
from gdd.model.pooling import block_places, unpool
from gdd.model.spec import ModelSpec
from gdd.model.state import JointLocal, JointState, LayerData
from gdd.projection.voting import Vote, add_votes, elect, empty_tally, vote_positions


def vote_joint(state: JointState, data: LayerData, model: ModelSpec) -> tuple[Vote, ...]:
    r"""Position of its block to which each pixel of each upper atom goes, for every pooled layer, bottom first.

    .. math:: \hat Z^{(l)}(k', k, u) = \arg\max_m \sum_{n, s} \gamma_e
              \left( v \langle r, \phi_m \rangle - \tfrac12 v^2 \lVert \phi_m \rVert^2 \right),
              \qquad v = S^{(l+1)}_{nk'}[s] \, D^{(l+1)}_{k'k}[u]

    The block of layer l is s + u, r is the residual of the data with that block's contribution added back, and
    :math:`\phi_m` is the image of a unit at its position m.

    Parameters
    ----------
    state, data, model

    Returns
    -------
    tuple of Vote
        One for each layer but the top, in the axes of the dictionary above.

    Notes
    -----
    Above the bottom layer it costs an image, of the window that a unit reaches, for every image and place of a map.

    Source: Pu, Yuan & Carin 2015, Sec. 2.4 ("ML across the different choices of the max pooling").
    Departs: the paper gives no formula, and no index for the atom above.
    Checked: tests/test_projection_joint.py (against a plain loop).
    """
    shapes, dictionaries = model.shapes(), state.shared.dictionaries
    if len(shapes) == 1:
        return ()
    values = layer_values(state.local, dictionaries, shapes)
    maps = [unpool(z, v, shape.map_size, shape.block) for z, v, shape in _blocks(state.local, values, shapes)]
    bottom = vote_positions(
        data.images, dictionaries[0], state.local.positions[0], values[1], state.local.gamma_e[:, None],
        model.layers[0].pool, dictionaries[1], maps[1], data.mask,
    )  # fmt: skip
    residual = joint_residual(state, data, model)
    weights = np.broadcast_to(state.local.gamma_e[:, None, None, None], residual.shape)
    weights = weights if data.mask is None else weights * data.mask
    upper = [
        vote_upper_positions(residual, weights, state, model, layer, values[layer + 1], maps[layer + 1])
        for layer in range(1, len(shapes) - 1)
    ]
    return bottom, *upper


def vote_upper_positions(residual, weights, state: JointState, model: ModelSpec, layer: int, values, maps) -> Vote:
    """Vote of one pooled layer above the bottom one; see `vote_joint`.

    Parameters
    ----------
    residual : (image, plane, row, col)                 of the data, 0 where missing
    weights : (image, plane, row, col)                  precision of each pixel, 0 where missing
    state, model
    layer : number of the pooled layer, from 0
    values : (image, atom, block_row, block_col)        what its blocks hold: the input of the layer above
    maps : (image, atom, row, col)                      S of the layer above
    """
    shape, upper = model.shapes()[layer], np.ascontiguousarray(state.shared.dictionaries[layer + 1], float)
    z, where = state.local.positions[layer].astype(np.int64), block_places(shape.map_size, shape.block)
    gain, norm = (np.zeros((*z.shape, where.shape[2])) for _ in range(2))
    for k, i, j in np.ndindex(z.shape[1:]):
        slots = np.flatnonzero(where[i, j] >= 0)
        units = [unit_images(state, model, layer, k, where[i, j, m]) for m in slots]
        window = _window([(*corner, *patch.shape[2:]) for corner, patch in units])
        patches = [_within(window, corner, patch) for corner, patch in units]
        rest, weight = residual[window], weights[window]
        own = np.zeros(rest.shape)
        for m, unit in zip(slots, patches, strict=True):
            here = z[:, k, i, j] == m
            own[here] = values[here, k, i, j, None, None, None] * unit[here]
        for m, unit in zip(slots, patches, strict=True):
            weighted = weight * unit
            gain[:, k, i, j, m] = (weighted * (rest + own)).sum(axis=(1, 2, 3))
            norm[:, k, i, j, m] = (weighted * unit).sum(axis=(1, 2, 3))
    tally = empty_tally(upper, z.shape[1], where.shape[2])
    add_votes(gain, norm, z, np.ascontiguousarray(maps, float), upper.shape[2:], *tally)
    pixels = upper.reshape(*upper.shape[:2], -1, 1)
    score = pixels * tally.gain - 0.5 * pixels**2 * tally.energy
    return elect(score, tally.weight * (pixels != 0), where, upper.shape)


def unit_images(
    state: JointState, model: ModelSpec, layer: int, atom: int, place: int
) -> tuple[tuple[int, int], np.ndarray]:
    """Image of a unit at one place of one map of a layer, down through every image's own positions.

    Returns
    -------
    (row, col), (image, plane, row, col)
        First row and column of the window that the unit reaches, and what stands in it.
    """
    shapes, positions = model.shapes(), state.local.positions
    images, (row, col) = len(state.local.z), divmod(place, shapes[layer].map_size[1])
    patch = np.repeat(np.asarray(state.shared.dictionaries[layer][None, atom], float), images, axis=0)
    for below in reversed(range(layer)):
        shape = shapes[below]
        reach = np.s_[:, :, row : row + patch.shape[2], col : col + patch.shape[3]]
        (p, q), (rows, cols) = shape.block, shape.map_size
        row, col = row * p, col * q
        size = (min(patch.shape[2] * p, rows - row), min(patch.shape[3] * q, cols - col))  # edge blocks may be ragged
        atoms = np.asarray(state.shared.dictionaries[below], float)
        out = np.zeros((images, shape.planes, *(n + a - 1 for n, a in zip(size, shape.atom_size, strict=True))))
        _add_blocks(out, np.ascontiguousarray(positions[below][reach]), patch, shape.block, atoms)
        patch = out
    return (row, col), patch


@kernel()
def _add_blocks(out, z, values, block, dictionary):
    """Add to ``out`` (image, plane, row, col), which is changed, every block's atom at its position, times its value.

    ``z`` and ``values`` are (image, atom, block_row, block_col) of the window. The atoms are few and placed apart, so
    this takes a fraction of the time of a convolution by transforms.
    """
    images, atoms, rows, cols = z.shape
    planes, height, width = dictionary.shape[1:]
    for n in range(images):
        for k in range(atoms):
            for i in range(rows):
                for j in range(cols):
                    m, value = z[n, k, i, j], values[n, k, i, j]
                    if m < 0 or value == 0:
                        continue
                    top, left = i * block[0] + m // block[1], j * block[1] + m % block[1]
                    for c in range(planes):
                        for a in range(height):
                            for b in range(width):
                                out[n, c, top + a, left + b] += value * dictionary[k, c, a, b]


def _window(boxes: Sequence[tuple[int, int, int, int]]) -> tuple[slice, ...]:
    """Smallest window that holds all of these, each (row, col, rows, cols)."""
    top, left = (min(box[axis] for box in boxes) for axis in (0, 1))
    bottom, right = (max(box[axis] + box[axis + 2] for box in boxes) for axis in (0, 1))
    return np.s_[:, :, top:bottom, left:right]


def _within(window: tuple[slice, ...], corner: tuple[int, int], patch: np.ndarray) -> np.ndarray:
    """Put a patch into a window of zeros."""
    rows, cols = window[2:]
    out = np.zeros((*patch.shape[:2], rows.stop - rows.start, cols.stop - cols.start))
    row, col = corner[0] - rows.start, corner[1] - cols.start
    out[:, :, row : row + patch.shape[2], col : col + patch.shape[3]] = patch
    return out


def _blocks(local: JointLocal, values: Sequence[np.ndarray], shapes):
    """Positions, values and shape of the blocks of every layer; those of the top are its elements."""
    return zip((*local.positions, local.z), (*values[1:], local.w), shapes, strict=True)
