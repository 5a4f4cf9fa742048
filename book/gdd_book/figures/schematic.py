"""Figure 1 of the paper in our own drawing: the generative process, upwards in pretraining, downwards in refinement.

Every number in it is computed with the package: the maps are pooled and unpooled, the atoms convolved.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gdd.model.convolution import synthesise
from gdd.model.pooling import pool_sum, unpool
from gdd_book.figures.style import COLOURS, bare, finish, new_figure

SIGNED = LinearSegmentedColormap.from_list("signed", [COLOURS["blue"], "#FFFFFF", COLOURS["orange"]])
UPPER_ATOMS = np.array([[[1.0, 0.45], [-0.6, 0.25]], [[0.5, -0.7], [0.4, 0.6]]])[:, None]
UPPER_MAPS = np.array([[[0.9, 0.0], [0.0, -0.7]], [[0.0, 0.8], [-0.6, 0.0]]])[None]
LOWER_ATOM = np.array([[0.1, 0.8, 0.1], [0.8, 0.3, -0.4], [0.1, -0.4, -0.5]])[None, None]
POSITIONS = np.array([[1, 0, 3], [2, 3, 0], [0, 1, 2]])
KEPT = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], bool)  # blocks that pretraining leaves active, in the left column
POOL, MAP = (2, 2), (6, 6)
LEVELS = (10.55, 7.35, 4.15, 0.95)  # heights of the four pictures, top first
SIDE = 1.9


def draw_generative_process() -> Figure:
    """One atom of layer l and two of layer l + 1. Left: pretraining. Right: refinement.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Fig. 1.
    Departs: our own drawing, with 2 x 2 blocks.
    Checked: tests/test_figures.py.
    """
    figure, axes = new_figure(height=6.7)
    axes.set(xlim=(0, 11.2), ylim=(0.8, 13.85), aspect="equal")
    _pretraining(axes, 0.1)
    _refinement(axes, 5.8)
    axes.plot([5.55, 5.55], [0.95, 13.6], color="#CCCCCC", linewidth=1)
    bare(axes)
    return finish(figure)


def _pretraining(axes: Axes, left: float) -> None:
    w = np.where(KEPT, synthesise(UPPER_ATOMS, UPPER_MAPS)[0, 0], 0.0)[None, None]
    maps = unpool(np.where(KEPT, POSITIONS, -1)[None, None], w, MAP, POOL)
    noise = 0.12 * np.sin(np.arange(64.0) ** 2).reshape(8, 8)
    pictures = (UPPER_MAPS, pool_sum(maps, POOL), maps, synthesise(LOWER_ATOM, maps) + noise)
    _title(axes, left, "Pretraining", "upwards, a layer at a time")
    _picture(axes, left + 0.22, LEVELS[0] + 0.22, UPPER_MAPS[0, 1], None)
    _column(axes, left, [picture[0, 0] for picture in pictures])
    _step(axes, left, 0, up=True, text="explain with the\natoms of layer $l+1$,\nnoise $E^{(l+1)}$ left")
    _step(axes, left, 1, up=True, text="pool: each block's\nweight, 0 if empty")
    _step(axes, left, 2, up=True, text="explain with the\natoms of layer $l$,\nnoise $E^{(l)}$ left")
    _outcomes(axes, left + SIDE + 0.4, LEVELS[2] + 0.55, none=True)
    axes.text(left + SIDE + 0.4, LEVELS[2] + 0.35, "one of $B+1$ a block", va="top", fontsize=9)


def _refinement(axes: Axes, left: float) -> None:
    pooled = synthesise(UPPER_ATOMS, UPPER_MAPS)
    maps = unpool(POSITIONS[None, None], pooled, MAP, POOL)
    noise = 0.12 * np.sin(np.arange(64.0) ** 2).reshape(8, 8)
    pictures = (UPPER_MAPS, pooled, maps, synthesise(LOWER_ATOM, maps) + noise)
    _title(axes, left, "Refinement", "downwards, all layers together")
    _picture(axes, left + 0.22, LEVELS[0] + 0.22, UPPER_MAPS[0, 1], None)
    _column(axes, left, [picture[0, 0] for picture in pictures])
    _step(axes, left, 0, up=False, text="convolve with the\natoms of layer $l+1$,\nno noise")
    _step(axes, left, 1, up=False, text="unpool: each value\nto its position")
    _step(axes, left, 2, up=False, text="convolve with the\natoms of layer $l$, add\n$E$ at the data only")
    _outcomes(axes, left + SIDE + 0.4, LEVELS[2] + 0.55, none=False)
    axes.text(left + SIDE + 0.4, LEVELS[2] + 0.35, "one of $B$ a block", va="top", fontsize=9)


def _title(axes: Axes, left: float, name: str, subtitle: str) -> None:
    axes.text(left, 13.75, name, fontsize=14, weight="bold", va="top")
    axes.text(left, 13.22, subtitle, fontsize=10, va="top", color=COLOURS["grey"])


def _column(axes: Axes, left: float, pictures: list[np.ndarray]) -> None:
    names = ("$S^{(l+1)}$", "$X^{(l+1)}$", "$S^{(l)}$", "$X^{(l)}$")
    words = ("maps of layer $l+1$", "input of layer $l+1$", "map of layer $l$", "input of layer $l$,\nor the data")
    blocks = (None, (1, 1), POOL, None)
    for bottom, picture, name, word, block in zip(LEVELS, pictures, names, words, blocks, strict=True):
        _picture(axes, left, bottom, picture, block)
        axes.text(left + SIDE + 0.4, bottom + SIDE - 0.02, name, fontsize=14, va="top")
        axes.text(left + SIDE + 0.4, bottom + SIDE - 0.52, word, fontsize=9, va="top", color=COLOURS["grey"])


def _picture(axes: Axes, left: float, bottom: float, values: np.ndarray, block: tuple[int, int] | None) -> None:
    rows, cols = values.shape
    cell = SIDE / rows
    for i, j in np.ndindex(rows, cols):
        corner = (left + j * cell, bottom + (rows - 1 - i) * cell)
        strength = np.sign(values[i, j]) * min(1, abs(values[i, j])) ** 0.7
        axes.add_patch(
            Rectangle(corner, cell, cell, facecolor=SIGNED((strength + 1) / 2), edgecolor="#C4C4C4", linewidth=0.5)
        )
    p, q = block or (rows, cols)
    for i in range(0, rows, p):
        for j in range(0, cols, q):
            corner = (left + j * cell, bottom + (rows - i - p) * cell)
            axes.add_patch(Rectangle(corner, q * cell, p * cell, fill=False, edgecolor="black", linewidth=1.3))


def _step(axes: Axes, left: float, gap: int, up: bool, text: str) -> None:
    """Arrow in the gap under picture number `gap`, with what happens there."""
    top, bottom = LEVELS[gap] - 0.12, LEVELS[gap + 1] + SIDE + 0.12
    start, end = (bottom, top) if up else (top, bottom)
    colour = COLOURS["blue"] if up else COLOURS["red"]
    x = left + SIDE / 2
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2.2, "mutation_scale": 17}
    axes.annotate("", (x, end), (x, start), arrowprops=arrow)
    axes.text(x + 0.4, (top + bottom) / 2, text, fontsize=9, va="center", color=colour, linespacing=1.05)


def _outcomes(axes: Axes, left: float, bottom: float, none: bool) -> None:
    """The outcomes of one block as small pictures: its four positions, and the empty block where that can be."""
    side = 0.42
    for outcome in range(5 if none else 4):
        x = left + outcome * (side + 0.14)
        axes.add_patch(Rectangle((x, bottom), side, side, facecolor="white", edgecolor="black", linewidth=1))
        if outcome < 4:
            row, col = divmod(outcome, 2)
            corner = (x + col * side / 2, bottom + (1 - row) * side / 2)
            axes.add_patch(Rectangle(corner, side / 2, side / 2, facecolor=COLOURS["orange"], linewidth=0))
            axes.add_patch(Rectangle((x, bottom), side, side, fill=False, edgecolor="black", linewidth=1))
