"""The vote of the projection, for one pixel of an upper atom: its candidates, written out, and who wins."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gdd.model.convolution import correlate, synthesise
from gdd.model.pooling import unpool
from gdd_book.figures.style import COLOURS, FONT, bare, finish, new_figure


def votes_for(images, dictionary, blocks, gamma_e: float, pool, upper, maps, pixel) -> tuple[np.ndarray, np.ndarray]:
    """Positions for one pixel (atom above, plane, row, col): gain in log likelihood, and the squared weight at each.

    The sum of `gdd.projection.vote_positions` word by word; other arguments as there. Every block has to be a full one.
    """
    (z, w), (top, plane, *shift) = blocks, pixel
    sizes = tuple(n - a + 1 for n, a in zip(images.shape[2:], dictionary.shape[2:], strict=True))
    gain = correlate(images - synthesise(dictionary, unpool(z, w, sizes, pool)), dictionary)[:, plane]
    energy = (dictionary[plane] ** 2).sum()
    score, weight = np.zeros((2, pool[0] * pool[1]))
    for n, row, col in np.argwhere(maps[:, top]):
        value, i, j = maps[n, top, row, col] * upper[tuple(pixel)], row + shift[0], col + shift[1]
        alone = np.zeros((1, len(dictionary), *z.shape[2:]))
        alone[0, plane, i, j] = w[n, plane, i, j]
        back = correlate(synthesise(dictionary, unpool(z[n : n + 1], alone, sizes, pool)), dictionary)[0, plane]
        block = (gain[n] + back)[i * pool[0] : (i + 1) * pool[0], j * pool[1] : (j + 1) * pool[1]].ravel()
        score += gamma_e * (value * block - 0.5 * value**2 * energy)
        if z[n, plane, i, j] >= 0:
            weight[z[n, plane, i, j]] += value**2
    return score, weight


def show_vote(scores: np.ndarray, weight: np.ndarray, pool: tuple[int, int]) -> Figure:
    """Gain of each position of a block, and the share of the weight that was there; the winner is framed."""
    figure, panels = new_figure(1, 2, height=2.9)
    row, col = divmod(int(scores.argmax()), pool[1])
    shown = (scores / np.abs(scores).max(), "gain in log likelihood"), (weight / weight.sum(), "share of the weight")
    for panel, (values, title) in zip(panels, shown, strict=True):
        grid = values.reshape(pool)
        bare(panel).imshow(grid, cmap="Blues", vmin=0, vmax=1)
        for (i, j), value in np.ndenumerate(grid):
            panel.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
        panel.add_patch(Rectangle((col - 0.5, row - 0.5), 1, 1, fill=False, linewidth=3, color=COLOURS["red"]))
        panel.set_title(title, fontsize=FONT)
    return finish(figure)
