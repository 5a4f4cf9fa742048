"""Small grids of numbers side by side: what an operator takes and what it returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gdd.base.axes import COL, ROW
from gdd.base.checks import GddError, as_finite, check_kind
from gdd_book.figures.style import COLOURS, FONT, FULL, bare, finish, new_figure

EMPTY, POSITIVE, NEGATIVE = "#FFFFFF", "#FBE3B0", "#BFDDF2"


def show_grids(
    grids: Sequence[np.ndarray],
    titles: Sequence[str],
    between: Sequence[str] = (),
    blocks: Sequence = (),
    cell: float = 0.36,
) -> Figure:
    """Grids of numbers in a row, with signs between them: zeros white, positive orange, negative blue.

    Parameters
    ----------
    grids : arrays (row, col)
    titles : one for each
    between : what stands between two grids, for instance "*" or "=": one fewer than grids
    blocks : for each grid the (rows, columns) of the blocks drawn round its cells, or None; default None
    cell : size of a cell in inches at most; smaller where the row would be wider than the page

    Raises
    ------
    GddError
        If the numbers of grids, titles and signs do not fit, or a grid has not two axes.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, the pictures of f, f^-1, g and h.
    Departs: our own drawing.
    Checked: tests/test_figures.py.
    """
    for argument, given in (("grids", grids), ("titles", titles), ("between", between), ("blocks", blocks)):
        check_kind(argument, given, (tuple, list))
    grids = [as_finite(grid, (ROW, COL), f"grids: number {number}") for number, grid in enumerate(grids)]
    between = list(between) or [r"$\rightarrow$"] * (len(grids) - 1)
    blocks = list(blocks) or [None] * len(grids)
    if not len(grids) == len(titles) == len(between) + 1 == len(blocks):
        raise GddError(f"titles, between: {len(titles)}, {len(between)} given for {len(grids)} grids")
    gap = 1.6
    widths = [np.shape(g)[1] for g in grids]
    tall = max(np.shape(g)[0] for g in grids)
    total = sum(widths) + gap * len(between) + 0.4
    inch = min(cell, FULL / total)
    figure, axes = new_figure(height=(tall + 0.4) * inch + 0.4)
    left = 0.2
    for number, (grid, title) in enumerate(zip(grids, titles, strict=True)):
        draw_grid(axes, np.asarray(grid), left, blocks[number], inch)
        middle, top = left + widths[number] / 2, np.shape(grid)[0] / 2
        axes.text(middle, top + 0.25, title, ha="center", va="bottom", fontsize=FONT)
        left += widths[number]
        if number < len(between):
            axes.text(left + gap / 2, 0, between[number], ha="center", va="center", fontsize=FONT + 4)
        left += gap
    axes.set(xlim=(0, total), ylim=(-tall / 2 - 0.2, tall / 2 + 0.2 + 0.3 / inch), aspect="equal")
    bare(axes)
    return finish(figure)


def draw_grid(axes: Axes, grid: np.ndarray, left: float, block: tuple[int, int] | None, inch: float) -> None:
    """One grid with its numbers, centred on the height 0, cells of size 1; thick lines round its blocks."""
    rows, cols = grid.shape
    size = min(FONT, 26 * inch)
    for i, j in np.ndindex(rows, cols):
        value, bottom = grid[i, j], rows / 2 - i - 1
        face = POSITIVE if value > 0 else NEGATIVE if value < 0 else EMPTY
        axes.add_patch(Rectangle((left + j, bottom), 1, 1, facecolor=face, edgecolor="#B8B8B8", linewidth=0.7))
        text = f"{value:g}".replace("-", "\N{MINUS SIGN}") if value else "0"
        colour = COLOURS["grey"] if value == 0 else COLOURS["black"]
        axes.text(left + j + 0.5, bottom + 0.47, text, ha="center", va="center", fontsize=size, color=colour)
    p, q = block or (rows, cols)
    for i in range(0, rows, p):
        for j in range(0, cols, q):
            high, wide = min(p, rows - i), min(q, cols - j)
            corner = (left + j, rows / 2 - i - high)
            axes.add_patch(Rectangle(corner, wide, high, fill=False, edgecolor=COLOURS["black"], linewidth=1.6))
